"""Features as models take them."""

import warnings

import numpy as np
import pandas as pd
import pytest

from clustpsi.datasets import from_table
from clustpsi.errors import ClustPSIWarning
from clustpsi.features import Kinds, TableFeatures, TableRows


def scaled_by(scaling, columns, train_rows):  # type: ignore[no-untyped-def]
    rows = TableRows(columns)
    features = TableFeatures(tuple(map(str, range(columns.shape[1]))), scaling=scaling)
    return features.fit(features.summarize(rows.take(train_rows))).transform(rows)


def robust_scale(columns, train_rows):  # type: ignore[no-untyped-def]
    return scaled_by("robust", columns, train_rows)


def standard_scale(columns, train_rows):  # type: ignore[no-untyped-def]
    return scaled_by("standard", columns, train_rows)


def test_robust_scale_goes_by_median_and_quartiles_of_known_training_values() -> None:
    columns = np.array([[1.0, 5], [np.nan, 5], [2, 5], [3, 5], [100, 5], [7, 9], [np.nan, np.nan]])
    scaled = robust_scale(columns, np.arange(5))
    low, median, high = 1.75, 2.5, 27.25  # quartiles of 1, 2, 3 and 100, between which NumPy interpolates
    expected = (np.array([1, median, 2, 3, 100, 7, median]) - median) / (high - low)
    np.testing.assert_allclose(scaled[:, 0], expected, rtol=1e-6)
    assert scaled[:, 1].tolist() == [0, 0, 0, 0, 0, 4, 0]  # no spread: only centred
    assert scaled.dtype == np.float32


def test_standard_scale_goes_by_mean_and_deviation_of_known_training_values() -> None:
    scaled = standard_scale(np.array([[1.0], [np.nan], [2], [6], [50]]), np.arange(4))
    np.testing.assert_allclose(scaled[:, 0], (np.array([1, 3, 2, 6, 50]) - 3) / np.sqrt(14 / 3), rtol=1e-6)


@pytest.mark.parametrize("scale", [robust_scale, standard_scale])
def test_a_column_without_a_known_training_value_stays_as_it_is(scale) -> None:  # type: ignore[no-untyped-def]
    assert scale(np.array([[np.nan], [np.nan], [3.0]]), np.arange(2)).ravel().tolist() == [0, 0, 3]


def test_frequent_codes_have_columns_in_the_order_of_their_frequency() -> None:
    codes = np.array([4, 1, 1, -1, -1, -1, 2, 9], np.int32)
    rows = TableRows(np.empty((8, 0)), (Kinds(codes, tuple("abcdefghij")),))
    features = TableFeatures((), ("kind",), most_kinds=2)
    hot = features.fit(features.summarize(rows.take(np.arange(7)))).transform(rows)
    assert hot.argmax(axis=1).tolist() == [2, 1, 1, 0, 0, 0, 2, 2]  # missing, then 1; the others share the last
    assert (hot.sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("kinds", "rows", "kept"), [(50, 50, True), (51, 51, False), (51, 102, True), (52, 103, False)]
)
def test_identifiers_have_more_kinds_than_columns_are_made_for_and_than_half_the_rows(
    kinds: int, rows: int, kept: bool
) -> None:
    frame = pd.DataFrame({"x": 1.0, "kind": [f"k{i % kinds}" for i in range(rows)], "y": np.arange(rows) % 2})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        features = from_table(frame, label="y").prepare(np.arange(rows))
    assert any(each.category is ClustPSIWarning for each in caught) is not kept
    assert (features.shape[1] > 1) is kept
