"""Features as models take them; whatever is learned from data is learned from the training rows alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def robust_scale(columns: NDArray[Any], train_rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Centre every column by the median and divide by the interquartile range of its training rows.

    Missing values become the centre, i.e. 0. A column without spread is only centred.

    >>> robust_scale(np.array([[1.0], [2.0], [3.0], [np.nan], [100.0]]), np.arange(3)).ravel().tolist()
    [-1.0, 0.0, 1.0, 0.0, 98.0]
    """

    def fit(known: NDArray[np.float64]) -> tuple[float, float]:
        low, middle, high = np.percentile(known, [25, 50, 75])
        return middle, high - low

    return _scale(columns, train_rows, fit)


def standard_scale(columns: NDArray[Any], train_rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Centre every column by the mean and divide by the standard deviation of its training rows.

    Unlike :func:`robust_scale` it bounds the values of a column that is nearly always the same.
    Missing values become the centre, i.e. 0. A column without spread is only centred.

    >>> standard_scale(np.array([[1.0], [3.0], [np.nan], [5.0]]), np.arange(2)).ravel().tolist()
    [-1.0, 1.0, 0.0, 3.0]
    """
    return _scale(columns, train_rows, lambda known: (float(known.mean()), float(known.std())))


def _scale(
    columns: NDArray[Any],
    train_rows: NDArray[np.int64],
    fit: Callable[[NDArray[np.float64]], tuple[float, float]],
) -> NDArray[np.float32]:
    scaled = np.zeros(columns.shape, dtype=np.float32)
    for index in range(columns.shape[1]):
        values = columns[:, index].astype(np.float64)
        known = values[train_rows]
        known = known[~np.isnan(known)]
        centre, spread = fit(known) if known.size else (0.0, 0.0)
        scaled[:, index] = np.nan_to_num((values - centre) / (spread or 1.0), nan=0.0)
    return scaled


def one_hot(codes: NDArray[np.int32], train_rows: NDArray[np.int64], limit: int) -> NDArray[np.float32]:
    """One column for each of the ``limit`` most frequent codes of the training rows, and one for all the others.

    The last column also takes codes that no training row has. A code of -1 (missing) is a category like the others.

    >>> one_hot(np.array([7, 7, 3, 9, -1], np.int32), np.arange(3), limit=5).tolist()
    [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    """
    counts = np.bincount(codes[train_rows] + 1, minlength=int(codes.max(initial=-1)) + 2)
    frequent = np.argsort(-counts, kind="stable")[:limit]
    frequent = frequent[counts[frequent] > 0]
    column = np.full(counts.size, frequent.size)
    column[frequent] = np.arange(frequent.size)
    hot = np.zeros((codes.size, frequent.size + 1), dtype=np.float32)
    hot[np.arange(codes.size), column[codes + 1]] = 1.0
    return hot
