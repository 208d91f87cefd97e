"""Data sets: labels, rows, and what has to be learned from training rows to turn rows into features."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.features import Features, Rows
from clustpsi.features.columns import Column


@dataclass(frozen=True, eq=False)
class ClientIds:
    """The natural client of every row, as a number, and the clients' names in the order of the numbers.

    The names are sorted as texts, and each is kept once, so that long names do not take memory for every row.

    >>> ids = ClientIds.of(["rome", "oslo", "rome"])
    >>> ids.codes.tolist(), ids.names
    ([1, 0, 1], ('oslo', 'rome'))
    """

    codes: NDArray[np.int32]
    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> "ClientIds":
        """Make them from the name of every row's client."""
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int32)
        return cls.sorted(codes, list(numbers))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "ClientIds":
        """Make them from the result of :meth:`as_arrays`."""
        return cls(np.asarray(arrays["client_codes"]), tuple(arrays["client_names"].tolist()))

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """The same as arrays for a cache, in which every name takes as much room as the longest."""
        return {"client_codes": self.codes, "client_names": np.array(self.names)}

    @classmethod
    def sorted(cls, codes: NDArray[np.int32], names: Sequence[str]) -> "ClientIds":
        """Make them from numbers, and names in any order."""
        order = sorted(range(len(names)), key=names.__getitem__)
        rank = np.empty(len(names), dtype=np.int32)
        rank[order] = np.arange(len(names))
        return cls(rank[codes], tuple(names[number] for number in order))


@dataclass(frozen=True)
class Dataset:
    """A labelled data set before it is spread over clients.

    Attributes
    ----------
    name
        Name, as on the command line.
    labels
        Class of every row, integers 0..C-1.
    class_names
        One name per class, in the order of the integers.
    rows
        The rows as they were read.
    features
        What has to be learned from the training rows of all clients to turn rows into the model's input.  Test data
        have no part in it.  Images stay uint8 and become [0, 1] inside the model; text becomes int32 token ids.
    model
        Name of the model that suits the data (the paper's, for the paper's data sets).
    official_test
        Rows of the official test part, where there is one.
    client_ids
        Natural client of every row, if the data have natural clients.
    model_reason
        Why ``model`` was chosen, one line to print.
    columns
        For the user's own table, what each column was read as.
    """

    name: str
    labels: NDArray[np.int32]
    class_names: tuple[str, ...]
    rows: Rows
    features: Features[Any, Any]
    model: str
    official_test: NDArray[np.int64] | None = None
    client_ids: ClientIds | None = None
    model_reason: str = ""
    columns: tuple[Column, ...] = ()

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def prepare(self, train_rows: NDArray[np.int64]) -> NDArray[Any]:
        """The features of all rows; everything that has to be learned is learned from ``train_rows``."""
        return self.features.fit(self.features.summarize(self.rows.take(train_rows))).transform(self.rows)

    @cached_property
    def content(self) -> str:
        """A hash of everything that can change a result; it identifies the data independently of their name."""
        ids = self.client_ids
        parts = {
            "labels": (self.labels, np.array(self.class_names, dtype=object)),
            "clients": () if ids is None else (ids.codes, np.array(ids.names, dtype=object)),
            "official test": () if self.official_test is None else (self.official_test,),
            "features": self.rows.arrays,
        }
        return fingerprint(part for name, own in parts.items() for part in (np.array([name], dtype=object), *own))


def fingerprint(arrays: Iterable[NDArray[Any]]) -> str:
    """A hash of arrays of numbers or texts: of their types, shapes and values, not of their layout in memory.

    >>> fingerprint([np.arange(4)[::2]]) == fingerprint([np.array([0, 2])]) != fingerprint([np.array([2, 0])])
    True
    """
    digest = hashlib.sha256()
    for array in arrays:
        if array.dtype.kind in "OUT":
            texts = [str(value).encode("utf-8", "surrogatepass") for value in array.ravel().tolist()]
            digest.update(f"texts {array.shape} {[len(text) for text in texts]} ".encode())
            digest.update(b"".join(texts))
        else:
            digest.update(f"{array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]
