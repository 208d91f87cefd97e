"""What nodes must agree on before they can train together: classes, columns, kinds of data.

Everything is decided from the nodes' descriptions.  A contradiction is an error whose sentence names the nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustpsi.datasets.tables import model_of_table
from clustpsi.errors import ClustPSIError
from clustpsi.nodes.data import features_of
from clustpsi.nodes.protocol import Description
from clustpsi.partition import Rows, client_80_20


@dataclass(frozen=True)
class Agreement:
    """What all nodes have in common.

    Attributes
    ----------
    names
        Names of the clients, in the order of their numbers.
    classes
        All classes.
    kind, features
        As in :class:`~clustpsi.nodes.protocol.Description`.
    model, model_reason
        The model that is trained, and why this one.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    kind: str
    features: dict[str, Any]
    model: str
    model_reason: str


def agree(nodes: Sequence[Description], classes: Sequence[str] = ()) -> Agreement:
    """What these nodes have in common; ``classes``, if given, are the only ones that nodes may have."""
    ordered = in_order(nodes)
    first = ordered[0]
    for node in ordered[1:]:
        if node.kind != first.kind:
            raise ClustPSIError(
                f"node {node.name!r} has data of the kind {node.kind!r}, and node {first.name!r} of the kind "
                f"{first.kind!r}: all nodes need the same kind"
            )
    features = _features(ordered)
    model, reason = first.model, first.model_reason
    if first.kind == "table" and first.columns:
        rows = [node.rows for node in ordered if node.rows is not None]
        total = sum(rows) if len(rows) == len(ordered) else 0  # unknown: a small model
        model, reason = model_of_table(features_of(first.kind, features), total)
    elif any(node.model != model for node in ordered):
        other = next(node for node in ordered if node.model != model)
        raise ClustPSIError(
            f"node {other.name!r} has the model {other.model!r}, and node {first.name!r} has {model!r}: all nodes need "
            "the same model"
        )
    return Agreement(
        tuple(node.name for node in ordered), _classes(ordered, classes), first.kind, features, model, reason
    )


def in_order(nodes: Sequence[Description]) -> list[Description]:
    """Nodes sorted by name: as numbers if all names are numbers, otherwise as text."""
    names = [node.name for node in nodes]
    for name in names:
        if names.count(name) > 1:
            raise ClustPSIError(f"two nodes call themselves {name!r}: give every node a name of its own (--name)")
    return sorted(nodes, key=_key(names, lambda node: node.name))


def split_orders(nodes: Sequence[Description], seed: int) -> list[Rows | None]:
    """Each node's rows in the order in which a simulation splits them; None for a node that splits them itself."""
    if any(node.rows is None for node in nodes):
        return [None] * len(nodes)
    for node in nodes:
        if node.rows is not None and node.rows < 2:
            raise ClustPSIError(f"node {node.name!r} has {node.rows} rows: it needs at least 2, to train and to test")
    train, test = client_80_20([np.arange(node.rows or 0) for node in nodes], seed)
    return [np.concatenate([held_out, rest]) for rest, held_out in zip(train, test, strict=True)]


def _key(values: Sequence[str], of: Any = lambda value: value) -> Any:
    """The sort key of texts: as numbers if all of them are numbers."""
    try:
        numbers = {value: float(value) for value in values}
    except ValueError:
        return of
    return lambda each: (numbers[of(each)], of(each))


def _classes(nodes: Sequence[Description], allowed: Sequence[str]) -> tuple[str, ...]:
    first = nodes[0]
    if all(node.fixed_classes for node in nodes):
        for node in nodes[1:]:
            if node.classes != first.classes:
                raise ClustPSIError(
                    f"node {node.name!r} has the classes {', '.join(node.classes)}, and node {first.name!r} has "
                    f"{', '.join(first.classes)}: all nodes need the same"
                )
        return first.classes
    if allowed:
        for node in nodes:
            if extra := [name for name in node.classes if name not in allowed]:
                raise ClustPSIError(
                    f"node {node.name!r} has the class {extra[0]!r}, which is not among those of the federation: "
                    f"{', '.join(allowed)}"
                )
        return tuple(allowed)
    for node in nodes:
        others = {name for other in nodes if other is not node for name in other.classes}
        if len(nodes) > 1 and len(node.classes) > 1 and others.isdisjoint(node.classes):
            raise ClustPSIError(
                f"node {node.name!r} has the classes {', '.join(node.classes)}, none of which another node has "
                f"({', '.join(sorted(others))}): is its label column the same?"
            )
    found = {name for node in nodes for name in node.classes}
    if len(found) < 2:
        raise ClustPSIError(
            f"all nodes have the same single class, {min(found)!r}: there is nothing to learn; at least two classes "
            "are needed"
        )
    return tuple(sorted(found, key=_key(sorted(found))))


def _features(nodes: Sequence[Description]) -> dict[str, Any]:
    first = nodes[0]
    if first.kind != "table" or not first.columns:
        for node in nodes[1:]:
            if node.features != first.features or node.columns:
                raise ClustPSIError(
                    f"node {node.name!r} has rows of another form than node {first.name!r} ({_shown(node)} and "
                    f"{_shown(first)}): all nodes need the same"
                )
        return first.features
    kinds = {column: _kind(column, nodes) for column in first.columns}
    for node in nodes[1:]:
        if extra := [column for column in node.columns if column not in first.columns]:
            raise _lacking(first, node, extra[0])
    numbers = tuple(name for name, kind in kinds.items() if kind in ("number", "date"))
    categories = tuple(name for name, kind in kinds.items() if kind == "category")
    if not numbers and not categories:
        raise ClustPSIError("no column is a feature at every node: all are identifiers, or hold no single values")
    forms = tuple(_form(name, nodes) for name in numbers)
    return {**first.features, "numbers": numbers, "categories": categories, "forms": forms}


def _form(column: str, nodes: Sequence[Description]) -> dict[str, Any]:
    """How the nodes write a column, for reading rows that come later."""
    found = [
        form
        for node in nodes
        for name, form in zip(node.features["numbers"], node.features["forms"], strict=False)
        if name == column
    ]
    marks = sorted({mark for form in found for mark in form["marks"]})
    return {
        "is_date": any(form["is_date"] for form in found),
        "is_local": any(form["is_local"] for form in found),
        "marks": tuple(marks),
    }


_PLURALS = {"number": "numbers", "date": "dates", "category": "categories"}


def _kind(column: str, nodes: Sequence[Description]) -> str:
    """The kind of a column for all nodes: decided by those that see more in it than gaps and row identifiers."""
    said: dict[str, str] = {}
    for node in nodes:
        if column not in node.columns:
            raise _lacking(node, nodes[0], column)
        said.setdefault(node.columns[column], node.name)
    sure = {kind: plural for kind, plural in _PLURALS.items() if kind in said}
    if len(sure) > 1:
        (one, ones), (other, others) = list(sure.items())[:2]
        raise ClustPSIError(
            f"column {column!r} holds {ones} at node {said[one]!r} and {others} at node {said[other]!r}: write it "
            "alike everywhere, or leave it out with --drop"
        )
    return next(iter(sure)) if sure else "number" if "empty" in said and "omitted" not in said else "omitted"


def _lacking(node: Description, other: Description, column: str) -> ClustPSIError:
    return ClustPSIError(
        f"node {node.name!r} has no column {column!r}, which node {other.name!r} has: all nodes need the same columns "
        "(--drop leaves one out)"
    )


def _shown(node: Description) -> str:
    values = node.features
    if node.kind == "array":
        return f"shape {tuple(values['shape'])}"
    if node.kind == "table":
        return f"columns {', '.join([*values['numbers'], *values['categories']])}"
    return node.kind
