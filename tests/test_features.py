"""Features: what clients learn of their own rows adds up, in any order, to what all rows together tell."""

import json
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clustpsi import from_table
from clustpsi.errors import ClustPSIError
from clustpsi.features import Features, TableFeatures, TextFeatures, TextRows, fitted_from_dict
from clustpsi.features.exact import exact_sums, mean_and_deviation
from clustpsi.features.quantiles import KEPT_BITS, MOST_VALUES, Counts
from clustpsi.features.table import Kinds, TableRows

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)
SMALL = st.floats(-1e6, 1e6, allow_nan=False)
TABLE = TableFeatures(("wing", "weight"), ("habitat",), marks_gaps=True, most_kinds=3)
ROBUST = TableFeatures(("wing", "weight"), ("habitat",), scaling="robust")
TEXT = TextFeatures(length=4, vocabulary=3)


@st.composite
def tables(draw: st.DrawFn) -> TableRows:
    rows = draw(st.integers(1, 30))
    cells = st.lists(st.one_of(SMALL, st.just(np.nan)), min_size=2 * rows, max_size=2 * rows)
    codes = draw(st.lists(st.integers(-1, 4), min_size=rows, max_size=rows))
    kinds = Kinds(np.array(codes, np.int32), ("sea", "wood", "moor", "field", "town"))
    return TableRows(np.array(draw(cells)).reshape(rows, 2), (kinds,))


@st.composite
def texts(draw: st.DrawFn) -> TextRows:
    words = st.lists(st.sampled_from(["gull", "owl", "tern", "the", "a"]), max_size=6).map(" ".join)
    return TextRows.of(draw(st.lists(words, min_size=1, max_size=12)))


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.tuples(st.sampled_from([TABLE, ROBUST]), tables()),
        st.tuples(st.just(TEXT), texts()),
    ),
    st.data(),
)
def test_summaries_merge_in_any_order_with_the_same_result(made: tuple[Features[Any, Any], Any], data: Any) -> None:
    features, rows = made
    owner = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))))
    clients = [rows.take(np.flatnonzero(owner == k)) for k in np.unique(owner)]
    summaries = [features.summarize(client) for client in clients]
    whole = features.fit(features.summarize(rows))
    for _ in range(2):
        order = data.draw(st.permutations(summaries))
        sent = [features.summary_from_dict(json.loads(json.dumps(each.as_dict()))) for each in order]
        merged = features.fit(reduce(lambda one, other: one.merge(other), sent))
        assert merged.as_dict() == whole.as_dict() == features.fit_clients(clients).as_dict()
    again = fitted_from_dict(json.loads(json.dumps(whole.as_dict())))
    np.testing.assert_array_equal(again.transform(rows), whole.transform(rows))


@settings(deadline=None)
@given(st.lists(SMALL, min_size=1, max_size=50))
def test_mean_and_deviation_are_numpys_but_for_rounding(values: list[float]) -> None:
    mean, deviation = mean_and_deviation(len(values), *exact_sums(np.array(values)))
    assert mean == pytest.approx(np.mean(values), rel=1e-12, abs=1e-9)
    assert deviation == pytest.approx(np.std(values), rel=1e-9, abs=1e-9 * (1 + max(map(abs, values))))


@settings(deadline=None)
@given(st.lists(NUMBERS, max_size=20), st.lists(NUMBERS, max_size=20))
def test_sums_are_exact_whatever_the_sizes_of_the_numbers(one: list[float], other: list[float]) -> None:
    parts = [exact_sums(np.array(part, np.float64)) for part in (one, other)]
    assert tuple(map(sum, zip(*parts, strict=True))) == exact_sums(np.array([*other, *one], np.float64))


@settings(deadline=None)
@given(st.lists(st.one_of(SMALL, st.integers(-3, 3).map(float)), min_size=1, max_size=60))
def test_quartiles_are_numpys_to_the_last_bit(values: list[float]) -> None:
    found = Counts.of(np.array(values)).quantiles([0.25, 0.5, 0.75])
    assert found.tolist() == (np.percentile(values, [25, 50, 75]) + 0.0).tolist()


def test_quartiles_of_many_different_values_are_as_close_as_said() -> None:
    rng = np.random.default_rng(0)
    values = rng.lognormal(3, 2, 40_000) * rng.choice([-1, 1], 40_000)
    parts = [Counts.of(part) for part in np.split(values, [100, 5_000, 20_000])]
    merged = reduce(Counts.merge, parts)
    assert not merged.is_exact and parts[0].is_exact and len(parts[0].values) < MOST_VALUES
    turned = reduce(Counts.merge, parts[::-1])
    assert turned.as_dict() == merged.as_dict() == Counts.of(values).as_dict()
    exact, close = np.quantile(values, [0.25, 0.5, 0.75]), merged.quantiles([0.25, 0.5, 0.75])
    np.testing.assert_allclose(close, exact, rtol=2.0**-KEPT_BITS)
    assert (close != exact).any()


@pytest.fixture
def birds() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"wing": rng.normal(30, 5, 60), "seen": pd.date_range("2024-01-01", periods=60)})
    frame["habitat"] = rng.choice(["sea", "wood"], 60)
    frame.loc[::7, "wing"] = np.nan
    frame["species"] = np.where(frame["wing"] > 30, "owl", "gull")
    return frame


def fit(frame: pd.DataFrame) -> tuple[Any, NDArray[Any]]:
    dataset = from_table(frame, label="species")
    fitted = dataset.features.fit(dataset.features.summarize(dataset.rows))
    return fitted, fitted.transform(dataset.rows)


def test_new_rows_get_the_same_features_whatever_their_form(birds: pd.DataFrame) -> None:
    fitted, expected = fit(birds)
    for given_frame in (
        birds[["habitat", "seen", "wing"]],  # another order, no label
        birds.assign(more=1),
        birds.astype({"wing": object, "habitat": "category"}),
        birds.assign(wing=birds["wing"].map(lambda wing: "?" if np.isnan(wing) else f"{wing!r}")),
        birds.assign(seen=birds["seen"].dt.strftime("%Y-%m-%d")),
    ):
        np.testing.assert_array_equal(fitted.transform(fitted.read(given_frame)), expected)
    fewer = fitted.transform(fitted.read(birds.iloc[1:4].assign(habitat=["sea", "cave", None])))
    assert fewer[:, -3:].tolist()[1:] == [[0, 0, 1], [0, 0, 1]]  # an unseen kind and a gap are others


def test_rows_that_do_not_fit_are_refused_in_one_sentence(birds: pd.DataFrame) -> None:
    fitted, _ = fit(birds)
    for frame, sentence in (
        (birds.rename(columns={"wing": "wings"}), "no column 'wing', which the features need: did you mean 'wings'"),
        (birds.assign(wing="long"), "column 'wing' must hold numbers, but it was read as constant"),
        (birds.assign(wing=np.inf), "column 'wing' is infinite"),
    ):
        with pytest.raises(ClustPSIError, match=sentence):
            fitted.read(frame)
    with pytest.raises(ClustPSIError, match="a table with the columns wing, seen, habitat is needed"):
        fitted.read(np.zeros((2, 3)))
    with pytest.raises(ClustPSIError, match="no features of clustpsi"):
        fitted_from_dict({"kind": "smell"})
    images, _ = fitted_from_dict({"kind": "array", "shape": [2, 2, 1], "dtype": "uint8", "divisor": 1.0}), None
    assert images.read(np.zeros((3, 2, 2), np.uint8)).values.shape == (3, 2, 2, 1)
    with pytest.raises(ClustPSIError, match=r"rows of shape \(2, 2, 1\) are needed"):
        images.read(np.zeros((3, 4, 2), np.uint8))
    words = TEXT.fit(TEXT.summarize(TextRows.of(["a b"])))
    with pytest.raises(ClustPSIError, match="must hold texts only, not float"):
        words.read(["a", 1.0])
