"""What a dataset is: labels, and features that are prepared once the training rows are known."""

from collections.abc import Callable
from dataclasses import dataclass
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
    """

    name: str
    labels: NDArray[np.int32]
    class_names: tuple[str, ...]
    prepare: Prepare
    model: str
    official_test: NDArray[np.int64] | None = None
    client_ids: NDArray[np.str_] | None = None
    model_reason: str = ""

    @property
    def num_classes(self) -> int:
        return len(self.class_names)
