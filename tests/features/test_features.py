"""Features: what clients learn of their own rows adds up, in any order, to what all rows together tell."""

import json
from fractions import Fraction
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
from clustpsi.features.kinds import Frequencies
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
    total, squares = exact_sums(np.array([*other, *one], np.float64))
    assert tuple(map(sum, zip(*parts, strict=True))) == (total, squares)
    numbers = [*map(Fraction, one), *map(Fraction, other)]
    assert Fraction(total, 2**1074) == sum(numbers)
    assert Fraction(squares, 2**2148) == sum(number * number for number in numbers)


def test_sums_of_many_numbers_outgrow_64_bits() -> None:
    values = np.full(5_000, np.nextafter(2.0, 0.0))  # all 53 bits of the mantissa are set
    each = Fraction(values[0])
    assert exact_sums(values) == (5_000 * each * 2**1074, 5_000 * each**2 * 2**2148)
    assert exact_sums(-values)[0] == -5_000 * each * 2**1074


@pytest.mark.parametrize("scale", [1.0, 2.0**-1, 2.0**-7, 2.0**500, 2.0**-530, 5e-324])
def test_mean_and_deviation_of_numbers_of_any_size(scale: float) -> None:
    values = np.array([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) * scale
    assert mean_and_deviation(8, *exact_sums(values)) == (5 * scale, 2 * scale)
    assert mean_and_deviation(2, *exact_sums(values[[0, 0]])) == (2 * scale, 0)


@settings(deadline=None)
@given(st.lists(st.one_of(SMALL, st.integers(-3, 3).map(float)), min_size=1, max_size=60))
def test_quartiles_are_numpys_to_the_last_bit(values: list[float]) -> None:
    found = Counts.of(np.array(values)).quantiles([0.25, 0.5, 0.75])
    assert found.tolist() == (np.percentile(values, [25, 50, 75]) + 0.0).tolist()


def same(one: Counts, other: Counts) -> bool:
    """Apart from the assertion: pytest would take minutes to show how thousands of numbers differ."""
    return one.as_dict() == other.as_dict()


def test_quartiles_of_many_different_values_are_as_close_as_said() -> None:
    rng = np.random.default_rng(0)
    values = rng.lognormal(3, 2, 40_000) * rng.choice([-1, 1], 40_000)
    parts = [Counts.of(part) for part in np.split(values, [100, 5_000, 20_000])]
    merged = reduce(Counts.merge, parts)
    assert not merged.is_exact and parts[0].is_exact and len(parts[0].values) < MOST_VALUES
    assert same(reduce(Counts.merge, parts[::-1]), merged) and same(merged, Counts.of(values))
    shares = np.linspace(0.01, 0.99, 99)
    exact, close = np.quantile(values, shares), merged.quantiles(shares)
    np.testing.assert_allclose(close, exact, rtol=2.0 ** -(KEPT_BITS + 1))
    assert (close != exact).any()


def test_exact_counts_that_grow_too_long_together_become_ranges() -> None:
    values = np.random.default_rng(1).normal(size=MOST_VALUES + 1)
    one, other = Counts.of(values[:2_000]), Counts.of(values[2_000:])
    assert one.is_exact and other.is_exact
    assert same(one.merge(other), Counts.of(values))
    assert not one.merge(other).is_exact and Counts.of(values[1:]).is_exact


def test_a_table_by_hand() -> None:
    names = ("sea", "wood", "moor", "field")
    codes = np.array([2, 1, -1, 2, 0, 3], np.int32)
    numbers = np.array([[1, 1, 7], [np.nan, 2, 7], [1, 3, 7], [5, 4, 7], [5, 5, 7], [3, 6, 7]])
    features = TableFeatures(("wing", "weight", "eyes"), ("habitat",), marks_gaps=True, most_kinds=3)
    clients = [TableRows(numbers[k : k + 2], (Kinds(codes[k : k + 2], names),)) for k in (4, 2, 0)]
    fitted = features.fit_clients(clients)
    root = np.sqrt(3.2)
    assert [(each.centre, each.spread, each.is_marked) for each in fitted.numbers] == [
        (3.0, pytest.approx(root), True),  # gaps do not count
        (3.5, pytest.approx(np.std([1, 2, 3, 4, 5, 6])), False),
        (7.0, 1.0, False),  # a spread of 0
    ]
    # Of equally frequent kinds the missing one comes first, then the first in the alphabet.
    assert fitted.categories[0].kinds == ("moor", None, "field")
    later = TableRows(np.array([[np.nan, 3.5, 8], [3, 3.5, 7]]), (Kinds(np.array([0, 1]), ("heath", "moor")),))
    assert fitted.transform(later).tolist() == [[0, 0, 1, 1, 0, 0, 0, 1], [0, 0, 0, 0, 1, 0, 0, 0]]


def test_ties_go_by_the_data_sets_own_numbers_where_it_has_them() -> None:
    names, codes = ("wood", "sea", "moor", "town"), np.array([2, 1, 0, 3, 2], np.int32)
    one, other = (Frequencies.of(part, names, is_ranked=True) for part in (codes[3:], codes[:3]))
    for merged in (one.merge(other), other.merge(one)):
        assert merged.most_frequent(3) == ("moor", "wood", "sea")
        assert merged.most_frequent(4) == ("moor", "wood", "sea", "town")
    plain = Frequencies.of(codes, names, is_ranked=False)
    assert plain.most_frequent(3) == ("moor", "sea", "town")
    assert Frequencies({"a": 1}, {"a": 9}).merge(Frequencies({"a": 1}, {"a": 3})).ranks == {"a": 3}


def test_texts_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clustpsi.features.text.BATCH_ROWS", 2)
    rows = TextRows.of(["the owl and the tern", "a gull", "", "the gull saw the owl"])
    features = TextFeatures(length=4, vocabulary=3)
    fitted = features.fit_clients([rows.take(np.array([3, 1])), rows.take(np.array([2, 0]))])
    assert fitted.words == ("the", "gull", "owl")
    expected = [[2, 4, 1, 2], [1, 3, 0, 0], [0, 0, 0, 0], [2, 3, 1, 2]]
    assert fitted.transform(rows).tolist() == expected
    assert fitted.transform(rows.take(np.array([3, 0]))).tolist() == [expected[3], expected[0]]
    ranked = TextRows(rows.ids, rows.starts, rows.words, is_ranked=True)
    assert TextFeatures(4, 3).fit(features.summarize(ranked)).words == ("the", "owl", "gull")  # which came first


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
        (birds.assign(wing="long"), "column 'wing' must hold numbers, and row 1 has 'long'"),
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
