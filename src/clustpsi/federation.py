"""A federation: a data set, and for every client the rows it trains on and the rows it is tested on."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi import partition
from clustpsi.datasets.base import Dataset
from clustpsi.errors import ClustPSIError, ClustPSIWarning, unknown_name
from clustpsi.features import Fitted
from clustpsi.partition import PARTITIONERS, RowLists, Rows

#: Where test rows come from: the official test part dealt out by label, a fifth of every client's own rows, or the same
#: with the official test part merged into the data first. "auto" takes the first where there is an official test part.
#: "none": all rows are for training.
SPLITS = ("auto", "official_matched", "client_80_20", "merge_80_20", "none")


@dataclass(frozen=True, eq=False)
class Federation:
    """A data set spread over clients.

    Attributes
    ----------
    dataset
        The data set; all row numbers are positions in it.
    train, test
        Training and test rows of every client, as an array each or all together. No row has two owners or two uses.
    client_names
        One name per client.
    fitted_before
        Features that were fitted on other training rows and are used as they are, where there are such.
    """

    dataset: Dataset
    train: RowLists
    test: RowLists
    client_names: tuple[str, ...]
    fitted_before: Fitted[Any] | None = None

    def __post_init__(self) -> None:
        for name in ("train", "test"):
            object.__setattr__(self, name, RowLists.of(getattr(self, name)))
        if not len(self.train) == len(self.test) == len(self.client_names) > 0:
            raise ClustPSIError(
                "a federation needs training rows, test rows and a name for every client, but got "
                f"{len(self.train)}, {len(self.test)} and {len(self.client_names)} of them"
            )
        empty = np.flatnonzero(self.train.sizes == 0)
        if len(empty):
            raise ClustPSIError(
                f"client {self.client_names[empty[0]]!r} has no training rows: leave it out of the federation"
            )
        rows = np.concatenate([self.train.rows, self.test.rows])
        total = len(self.dataset.labels)
        if rows.min() < 0 or rows.max() >= total:
            raise ClustPSIError(f"rows of clients must be from 0 to {total - 1}, the rows of the data set")
        if np.bincount(rows, minlength=total).max() > 1:
            raise ClustPSIError("a row of the data set may belong to one client only, either to train or to test on")

    @property
    def num_clients(self) -> int:
        return len(self.train)

    @property
    def num_classes(self) -> int:
        return self.dataset.num_classes

    @property
    def labels(self) -> NDArray[np.int32]:
        """Class of every row of the data set."""
        return self.dataset.labels

    @cached_property
    def label_counts(self) -> NDArray[np.int64]:
        """Training rows of each class that every client has (clients x classes): all that PSI needs to know."""
        return partition.label_counts(self.train, self.labels, self.num_classes)

    @cached_property
    def test_label_counts(self) -> NDArray[np.int64]:
        """Test rows of each class that every client has (clients x classes)."""
        return partition.label_counts(self.test, self.labels, self.num_classes)

    @property
    def train_sizes(self) -> NDArray[np.int64]:
        return self.train.sizes

    @property
    def test_sizes(self) -> NDArray[np.int64]:
        return self.test.sizes

    @cached_property
    def train_rows(self) -> Rows:
        """All clients' training rows, sorted."""
        return np.sort(self.train.rows)

    @cached_property
    def fitted(self) -> Fitted[Any]:
        """Features that have learned from the training rows, as if every client had summarized its own.

        Summaries merge without rounding, so the summary of all rows is what the clients' summaries add up to.
        """
        dataset = self.dataset
        if self.fitted_before is not None:
            return self.fitted_before
        return dataset.features.fit(dataset.features.summarize(dataset.rows.take(self.train_rows)))

    @cached_property
    def features(self) -> NDArray[Any]:
        """Features of every row of the data set."""
        rows = self.dataset.rows
        if self.fitted_before is not None:
            rows = self.fitted_before.accept(self.dataset.features, rows)
        return self.fitted.transform(rows)

    def for_validation(self, seed: int) -> "Federation":
        """The same clients, with a fifth of their training rows as test rows; the real test rows are not used.

        This is for choosing hyper-parameters. A client with a single training row trains on it and has no test rows.
        """
        large = self.train.sizes >= 2
        kept, held_out = partition.client_80_20(self.train.chosen(np.flatnonzero(large)), seed)
        halves = iter(zip(kept, held_out, strict=True))
        none = np.empty(0, np.int64)
        pairs = [next(halves) if ok else (rows, none) for rows, ok in zip(self.train, large, strict=True)]
        return replace(
            self, train=RowLists.of([train for train, _ in pairs]), test=RowLists.of([test for _, test in pairs])
        )


def build_federation(
    dataset: Dataset,
    partitioner: str,
    non_iid_param: float | None,
    num_clients: int | None,
    seed: int,
    split: str = "auto",
) -> Federation:
    """Spread a data set over clients and give every client test rows that follow its own label mix.

    Parameters
    ----------
    dataset
        The data set.
    partitioner
        ``"dirichlet"``, ``"similarity"``, ``"iid"`` or ``"natural"``.
    non_iid_param
        alpha of the Dirichlet partition, S of the Similarity partition, None for the others.
    num_clients
        Number of clients; None for natural clients, whose number the data decide.
    seed
        Seed of the partition and of the split, which use separate random streams.
    split
        One of `SPLITS`.
    """
    if partitioner not in PARTITIONERS:
        raise unknown_name("partitioner", partitioner, PARTITIONERS)
    split, rows = _rows_to_spread(dataset, split)
    clients, names = _partition(dataset, rows, partitioner, non_iid_param, num_clients, seed, split)
    if split == "none":
        train, test = clients, RowLists(np.empty(0, np.int64), np.zeros_like(clients.sizes))
    elif split == "official_matched":
        assert dataset.official_test is not None
        train, test = clients, partition.official_matched(clients, dataset.labels, dataset.official_test, seed)
    else:
        train, test = partition.client_80_20(clients, seed)
    return Federation(dataset, train, test, names)


def workable(
    dataset: Dataset,
    partitioner: str,
    seeds: Sequence[int],
    non_iid_param: float | None = None,
    num_clients: int | None = None,
    split: str = "auto",
) -> tuple[float | None, int | None]:
    """Non-IID parameter and number of clients for :func:`build_federation`; what is None is chosen to suit all seeds.

    See :func:`clustpsi.partition.workable`.
    """
    _, rows = _rows_to_spread(dataset, split)
    return partition.workable(dataset.labels[rows], partitioner, seeds, non_iid_param, num_clients)


def _rows_to_spread(dataset: Dataset, split: str) -> tuple[str, Rows]:
    """The split to use, and the rows that are given to clients before it."""
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    if split == "auto":
        split = "client_80_20" if dataset.official_test is None else "official_matched"
    if split in ("official_matched", "merge_80_20") and dataset.official_test is None:
        raise ClustPSIError(f"{dataset.name} has no official test part for split {split!r}: use 'client_80_20'")
    rows = np.arange(len(dataset.labels))
    if dataset.official_test is not None and split not in ("merge_80_20", "none"):
        rows = np.delete(rows, dataset.official_test)
    return split, rows


def _partition(
    dataset: Dataset,
    rows: Rows,
    partitioner: str,
    non_iid_param: float | None,
    num_clients: int | None,
    seed: int,
    split: str,
) -> tuple[RowLists, tuple[str, ...]]:
    """Rows and names of the clients."""
    if (non_iid_param is None) == (partitioner in ("dirichlet", "similarity")):
        takes = {"dirichlet": "alpha as its", "similarity": "S as its"}.get(partitioner, "no")
        raise ClustPSIError(f"the {partitioner} partitioner takes {takes} non-IID parameter, but got {non_iid_param}")
    if partitioner == "natural":
        if num_clients is not None:
            raise ClustPSIError(
                f"natural clients are as many as the data has, so {num_clients} clients cannot be asked for"
            )
        return _natural(dataset, rows, least=1 if split == "none" else 2)
    if num_clients is None:
        raise ClustPSIError(f"the {partitioner} partitioner needs a number of clients")
    labels = dataset.labels[rows]
    if partitioner == "iid":
        parts = partition.iid(labels, num_clients, seed)
    else:
        assert non_iid_param is not None
        make = partition.dirichlet if partitioner == "dirichlet" else partition.similarity
        parts = make(labels, num_clients, non_iid_param, seed)
    return RowLists(rows[parts.rows], parts.sizes), tuple(map(str, range(num_clients)))


def _natural(dataset: Dataset, rows: Rows, least: int) -> tuple[RowLists, tuple[str, ...]]:
    if dataset.client_ids is None:
        raise ClustPSIError(f"{dataset.name} has no natural clients: use another partitioner than 'natural'")
    parts, numbers = partition.natural(dataset.client_ids.codes[rows])
    names = [dataset.client_ids.names[int(number)] for number in numbers]
    kept = np.flatnonzero(parts.sizes >= least)
    if not len(kept):
        raise ClustPSIError(f"no natural client of {dataset.name} has the 2 samples it takes to train and test")
    if len(kept) < len(parts):
        single = len(parts) - len(kept)
        message = f"{single} of {len(parts)} natural clients of {dataset.name} have a single sample and are left out"
        warnings.warn(message, ClustPSIWarning, stacklevel=4)
    chosen = parts.chosen(kept)
    return RowLists(rows[chosen.rows], chosen.sizes), tuple(names[client] for client in kept)
