"""A node's rows: its own file or, to try a federation on one machine, its part of a data set."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clustpsi.datasets.base import Dataset
from clustpsi.datasets.tables import from_table
from clustpsi.errors import ClustPSIError
from clustpsi.features import ArrayFeatures, TableFeatures, TextFeatures
from clustpsi.features.columns import OMITTED
from clustpsi.features.written import Form
from clustpsi.federation import Federation
from clustpsi.nodes.protocol import Description
from clustpsi.partition import Rows

KINDS = {"table": TableFeatures, "array": ArrayFeatures, "text": TextFeatures}


@dataclass(frozen=True)
class NodeData:
    """A node's rows.

    Attributes
    ----------
    name
        Name of the client.
    dataset
        The rows of this client only.
    split
        Training and test rows, if they are already split.
    reread
        Reads the rows again, with the columns that the nodes have agreed on; None if all have the same from the start.
    """

    name: str
    dataset: Dataset
    split: tuple[Rows, Rows] | None = None
    reread: Callable[[TableFeatures], Dataset] | None = None

    def describe(self, private: bool) -> Description:
        """What the server must know about this node to build the federation."""
        dataset, features = self.dataset, self.dataset.features
        kind = next(name for name, each in KINDS.items() if isinstance(features, each))
        plain = asdict(features)  # type: ignore[call-overload]  # all kinds of features are dataclasses
        return Description(
            name=self.name,
            kind=kind,
            features=plain,
            columns={} if self.reread is None else _columns(dataset),
            classes=dataset.class_names,
            fixed_classes=self.split is not None,
            rows=len(dataset.labels) if self.split is None and not private else None,
            model=dataset.model,
            model_reason=dataset.model_reason,
        )

    def agreed(self, features: dict[str, Any], classes: tuple[str, ...]) -> Dataset:
        """The rows, with the columns and classes that all nodes have agreed on."""
        dataset = self.dataset
        kind = next(name for name, each in KINDS.items() if isinstance(dataset.features, each))
        as_agreed = features_of(kind, features)
        if self.reread is not None and _names(as_agreed) != _names(dataset.features):
            dataset = self.reread(as_agreed)
        unknown = set(dataset.class_names) - set(classes)
        if unknown:
            raise ClustPSIError(
                f"node {self.name!r} has the class {min(unknown)!r}, which the federation does not have: it has "
                f"{', '.join(classes)}"
            )
        number = np.array([classes.index(name) for name in dataset.class_names], np.int32)
        return replace(dataset, labels=number[dataset.labels], class_names=classes, features=as_agreed)


def from_file(path: str | Path, name: str | None = None, **reading: Any) -> NodeData:
    """A node's own file; ``reading`` are arguments of :func:`~clustpsi.datasets.tables.from_table`."""
    if reading.get("min_class") is not None:
        raise ClustPSIError("--min-class needs all rows in one place to know which classes are rare: leave it out")
    dataset = from_table(path, is_part=True, **reading)
    if len(dataset.labels) < 2:
        raise ClustPSIError(f"{path} has a single row: a node needs at least 2, one to train and one to test on")
    reread = None
    if isinstance(dataset.features, TableFeatures) and dataset.columns:

        def reread(features: TableFeatures) -> Dataset:
            return from_table(path, is_part=True, like=features, **reading)

    return NodeData(name or Path(path).stem, dataset, reread=reread)


def share(federation: Federation, client: int) -> NodeData:
    """One client's part of a federation that was partitioned on one machine."""
    train, test = federation.train[client], federation.test[client]
    rows, dataset = np.concatenate([train, test]), federation.dataset
    own = replace(
        dataset, labels=dataset.labels[rows], rows=dataset.rows.take(rows), official_test=None, client_ids=None
    )
    split = np.arange(len(train)), np.arange(len(train), len(rows))
    return NodeData(federation.client_names[client], own, split)


def features_of(kind: str, plain: dict[str, Any]) -> Any:
    """Features as an object, from plain data."""
    values = dict(plain)
    if "forms" in values:
        values["forms"] = tuple(Form(**form) for form in values["forms"])
    return KINDS[kind](**values)


def _names(features: Any) -> tuple[tuple[str, ...], ...]:
    return features.numbers, features.categories


def _columns(dataset: Dataset) -> dict[str, str]:
    """How the columns of a table were read."""
    features = dataset.features
    assert isinstance(features, TableFeatures)
    kinds = dict.fromkeys(features.numbers, "number") | dict.fromkeys(features.categories, "category")
    found: dict[str, str] = {}
    for column in dataset.columns:
        if column.name in kinds:
            is_date = column.kind == "date"
            found[column.name] = "empty" if column.detail == "empty" else "date" if is_date else kinds[column.name]
        elif column.kind in OMITTED:
            found[column.name] = "omitted"
    return found
