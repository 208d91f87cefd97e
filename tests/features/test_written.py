"""Numbers and dates as people write them."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustpsi.features import written
from clustpsi.features.columns import Categories, Numbers, read_column

DAY_ONE = datetime.datetime(1970, 1, 1)


def read(values: list[object]) -> object:
    return read_column(pd.Series(values), "x")


def numbers(values: list[object]) -> list[float]:
    typed = read(values)
    assert isinstance(typed, Numbers) and typed.column.kind in ("number", "date"), typed.column
    return typed.values.tolist()


FINITE = st.floats(-1e12, 1e12, allow_nan=False)


@given(st.lists(FINITE, min_size=2, unique=True), st.sampled_from(sorted(written.MARKS)))
def test_finding_14_a_mark_for_a_gap_leaves_numbers_numbers(values: list[float], mark: str) -> None:
    found = numbers([*map(repr, values), mark.upper()])
    assert found[:-1] == values and np.isnan(found[-1])


@given(st.lists(st.integers(1_000, 10**9), min_size=2, unique=True), st.sampled_from(["", "$", "-", "€ "]))
def test_thousands_and_money(values: list[int], before: str) -> None:
    sign = -1 if before == "-" else 1
    assert numbers([f"{before}{value:,}" for value in values]) == [sign * value for value in values]


@given(st.lists(st.decimals(-9_999_999, 9_999_999, places=2), min_size=2, unique=True))
def test_decimal_commas_with_points_for_thousands(values: list[object]) -> None:
    german = [f"{value:,}".translate(str.maketrans(",.", ".,")) for value in values]
    assert numbers(german) == pytest.approx([float(value) for value in values])  # type: ignore[arg-type]


def test_finding_14_one_mark_among_thousands_of_ages() -> None:
    ages = [str(age) for age in np.random.default_rng(0).integers(18, 80, 3_000)]
    typed = read([*ages, "?"])
    assert isinstance(typed, Numbers) and typed.column.detail == "1 gap written '?'"
    assert typed.values[:-1].tolist() == [float(age) for age in ages]


@pytest.mark.parametrize(
    "values",
    [
        ["1", "2", "3"],  # texts of digits: somebody meant codes
        ["02139", "10001", "?"],  # codes have leading zeros
        ["1", "2", "3"] * 40 + ["4+"],  # too few numbers for an unknown mark
        ["V45", "410", "250", "E812", "V10", "E90"],  # diagnoses
        ["$5", "7 %", "3"],  # not all of one kind
        ["?", "7"],  # one number only
        ["yes", "no", "?"],
        ["2020-13-01", "2020-14-01"],  # no dates
        ["01/02/2020", "03/04/2020"],  # day or month?
        ["12/31/2020", "31/12/2020"],  # both
        ["inf", "nan", "x"],
    ],
)
def test_what_is_no_number_and_no_date_stays_a_category(values: list[object]) -> None:
    assert isinstance(read(values), Categories)


def test_a_rare_unknown_mark_is_a_gap_and_a_frequent_one_is_not() -> None:
    many = [str(number) for number in range(200)]
    typed = read([*many, "refused", "refused"])
    assert isinstance(typed, Numbers) and typed.column.detail == "2 gaps written 'refused'"
    assert not isinstance(read([*many, *["refused"] * 20]), Numbers)
    assert not isinstance(read([*many, "refused", "lost", "broken", "late"]), Numbers)


@settings(max_examples=30)
@given(
    st.lists(
        st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)).map(
            lambda moment: moment.replace(microsecond=0)
        ),
        min_size=2,
        unique=True,
    ),
    st.sampled_from(["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y/%m/%d %H:%M:%S", "%d.%m.%Y %H:%M:%S"]),
)
def test_finding_14_dates_are_days_whatever_their_form(moments: list[datetime.datetime], form: str) -> None:
    days = [(moment - DAY_ONE) / datetime.timedelta(days=1) for moment in moments]
    texts = [moment.strftime(form) for moment in moments]
    assert numbers([*texts, "?"])[:-1] == pytest.approx(days, abs=1e-9)
    for values in (
        [moment.isoformat() for moment in moments],
        moments,
        [np.datetime64(moment) for moment in moments],
        [moment.replace(tzinfo=datetime.UTC) for moment in moments],
    ):
        assert numbers(values) == pytest.approx(days, abs=1e-9)


def test_day_and_month_are_told_apart_where_some_date_does() -> None:
    assert numbers(["31/12/1969", "02/01/1970"]) == [-1, 1]
    assert numbers(["12/31/1969", "01/02/1970"]) == [-1, 1]
    assert numbers(["1/2/1970 6:00 PM", "1/13/1970 12:30 AM"]) == pytest.approx([1.75, 12 + 0.5 / 24])
    assert numbers(["1970-01-02T01:00+01:00", "1970-01-01T23:00:00-0130"]) == pytest.approx([1, 1.5 / 24 + 23 / 24])
    assert numbers(["31/12/1969 23:00 -0130", "02/01/1970 1:00 +01:00"]) == pytest.approx([0.5 / 24, 1])


@pytest.mark.parametrize(
    ("texts", "is_date"),
    [
        (["1.234,5", "7", "3,25", "?"], False),
        (["1,234.5", "12", "-3"], False),
        (["$10.50", "$2", "n/a"], False),
        (["31.12.1999", "1.2.2000 12:30", "-"], True),
        (["12/31/1999", "1/2/2000 6:00 PM"], True),
        (["1999-12-31", "2000/1/2"], True),
    ],
)
def test_a_part_of_a_column_is_read_in_the_form_of_the_whole(texts: list[str], is_date: bool) -> None:
    counts = np.ones(len(texts), np.int64)
    whole = (written.dates if is_date else written.numbers)(texts, counts)
    assert whole is not None and whole.form.is_date == is_date
    for place, text in enumerate(texts):
        values, unread = whole.form.read([text])
        np.testing.assert_array_equal(values, whole.values[place : place + 1])
        assert unread == []


def test_a_text_that_is_neither_a_number_nor_a_known_mark_is_told() -> None:
    assert written.Form(marks=("N.K.",)).read(["N.K.", "5", "much", "inf"])[1] == [2, 3]


def test_dates_whose_day_and_month_cannot_be_told_apart_are_told() -> None:
    days = [f"{1 + place // 12:02}/{1 + place % 12:02}/2020" for place in range(100)]
    told = "dates whose day and month cannot be told apart: write them like 2020-12-31"
    assert read(days).column.detail == f"100 different values in 100 rows, {told}"  # type: ignore[attr-defined]
    assert read(days[:3]).column.detail == f"3 kinds, {told}"  # type: ignore[attr-defined]
    assert read(["1/x/2020", "2/3/2020"]).column.detail == "2 kinds"  # type: ignore[attr-defined]


def test_thousands_are_read_by_the_form_of_the_whole_column() -> None:
    whole = written.numbers(["999", "1.500", "12.000"], np.ones(3, np.int64), "thousands")
    assert whole is not None and whole.values.tolist() == [999, 1500, 12000]
    assert whole.form.read(["2.500", "7"])[0].tolist() == [2500, 7]
    assert written.numbers(["007", "1.500"], np.ones(2, np.int64), "thousands") is None
