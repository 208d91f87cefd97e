"""What a dataset is: labels, and features that are prepared once the training rows are known."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Prepare = Callable[[NDArray[np.int64]], NDArray[Any]]


@dataclass(frozen=True)
class Dataset:
    """A labelled data set before it is spread over clients.

    Attributes
    ----------
    name
        As on the command line.
    labels
        Class of every row, integers 0..C-1.
    class_names
        One name a class, in the order of the integers.
    prepare
        ``prepare(train_rows)`` gives the features of *all* rows as the model takes them (first axis: rows), with every
        scale, category and vocabulary fitted on ``train_rows`` alone, so that nothing of the test data leaks.
        Images stay uint8 and become [0, 1] inside the model; text is int32 token ids, 0 = padding after the words,
        1 = a word outside the vocabulary. The array may be a read-only view of a file. For text,
        ``prepare`` is a :class:`~clustpsi.datasets.text.Texts`, which knows the vocabulary too.
    model
        Name of the model that suits the data (the paper's, for the paper's data sets).
    official_test
        Rows of the official test part, where there is one.
    client_ids
        Natural client of every row (a name), where the data has such a thing.
    model_reason
        Why ``model`` was chosen, one line to print.
    source
        The arrays that ``prepare`` makes the features of, for :attr:`content`.  Where there are none, the features of
        all rows stand for them.
    """

    name: str
    labels: NDArray[np.int32]
    class_names: tuple[str, ...]
    prepare: Prepare
    model: str
    official_test: NDArray[np.int64] | None = None
    client_ids: NDArray[np.str_] | None = None
    model_reason: str = ""
    source: tuple[NDArray[Any], ...] = ()

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def content(self) -> str:
        """A hash of everything that can change a result: what tells this data from any other, whatever its name."""
        parts = {
            "labels": (self.labels, np.array(self.class_names, dtype=object)),
            "clients": () if self.client_ids is None else (self.client_ids,),
            "official test": () if self.official_test is None else (self.official_test,),
            "features": self.source or (self.prepare(np.arange(len(self.labels))),),
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
