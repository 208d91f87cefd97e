"""Numbers and dates as people write them: with marks for gaps, with currency signs, in local forms.

Both readers look at a column's distinct texts and at how often each occurs.  They return None if the texts are
something else: names, codes, sentences.
"""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from clustpsi.exact import exact_numbers

if TYPE_CHECKING:
    import pandas as pd

#: What points in the numbers of a file stand for, where the file has numbers like 1.500: thousands if it has decimal
#: commas and no other decimal points; unclear if it has both, or neither.
Points = Literal["thousands", "unclear"]

# What stands for a missing value wherever it occurs, in lower case.
MARKS = frozenset(
    [
        *("", "?", "-", "--", "---", ".", "..", "...", "*", "na", "n/a", "n.a.", "nan", "nil", "none", "null", "nd"),
        *("n.d.", "#n/a", "#na", "#div/0!", "#ref!", "#value!", "missing", "unknown", "unk", "no data"),
        "not available",
    ]
)
# Cells of files that are gaps in columns of categories, too; pandas has the same by default.
GAPS = frozenset(
    [
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
        *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    ]
)
# Other marks must be few and rare, and the column must have more distinct numbers than codes do: 1, 2, 3, 4+ stays a
# category.
MOST_OTHER_MARKS = 3
MOST_OTHER_SHARE = 0.05
FEW_VALUES = 20
LONGEST = 64  # characters of a number or a date
EPOCH = datetime.date(1970, 1, 1).toordinal()
LOOK = 100  # texts to try first: names and sentences fail there, and need no full look

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
AFFIXED = re.compile(r"([-+]?)\s*([$€£¥]?)\s*([-+]?[\d.,eE+-]*\d[\d.,]*)\s*([%$€£¥]?)")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
DECIMAL_COMMA = re.compile(r"[-+]?(\d+|[1-9]\d{0,2}(\.\d{3})+),\d+")
POINTED_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")
CODE = re.compile(r"[-+]?0\d+")

TIME = (
    r"([T ] ?(?P<hour>\d{1,2}):(?P<minute>\d\d)(:(?P<second>\d\d([.,]\d+)?))?( ?(?P<half>[AaPp])[Mm])?"
    r"( ?(Z|UTC|GMT|(?P<zone>[-+]\d\d(:?\d\d)?)))?)?"
)
YEAR_FIRST = re.compile(r"(?P<year>\d{4})(?P<sep>[-/.])(?P<one>\d{1,2})(?P=sep)(?P<two>\d{1,2})" + TIME)
YEAR_LAST = re.compile(r"(?P<one>\d{1,2})(?P<sep>[-/.])(?P<two>\d{1,2})(?P=sep)(?P<year>\d{4})" + TIME)


@dataclass(frozen=True)
class Form:
    """How a column's numbers or dates are written, so that other rows are read in the same way.

    Attributes
    ----------
    is_date
        Whether they are dates.
    is_local
        Whether numbers have a decimal comma or, in dates that end with the year, the day comes before the month.
    marks
        Texts that stand for a gap.
    """

    is_date: bool = False
    is_local: bool = False
    marks: tuple[str, ...] = ()

    def read(self, texts: Sequence[str]) -> tuple[NDArray[np.float64], list[int]]:
        """The numbers that texts stand for, NaN for a gap; and the positions of texts that are neither.

        >>> Form(is_local=True).read(["1,5", "7", "?", "much"])
        (array([1.5, 7. , nan, nan]), [3])
        >>> Form(is_date=True, is_local=True).read(["02/01/1970"])[0].tolist()
        [1.0]
        """
        values = self._dates(texts) if self.is_date else self._numbers(texts)
        unread = np.flatnonzero(np.isnan(values)).tolist()
        return values, [at for at in unread if texts[at].strip().lower() not in MARKS and texts[at] not in self.marks]

    def _numbers(self, texts: Sequence[str]) -> NDArray[np.float64]:
        parsed = exact_numbers(texts)
        values = np.where(np.isfinite(parsed), parsed, np.nan)
        if self.is_local:  # then 1.234 means 1234
            values[:] = np.nan
        for place, match in _matches(AFFIXED, texts, np.isnan(values)).items():
            values[place] = _number(match[1] + match[3], self.is_local)
        return values

    def _dates(self, texts: Sequence[str]) -> NDArray[np.float64]:
        values = _iso_days(texts)
        for form in (YEAR_FIRST, YEAR_LAST):
            for place, match in _matches(form, texts, np.isnan(values)).items():
                values[place] = _day(match, self.is_local and form is YEAR_LAST)
        return values


PLAIN = Form()
DATES = Form(is_date=True)


@dataclass(frozen=True)
class Written:
    """A number for each text, NaN for a mark of a gap; their form; how numbers are written, if unusual."""

    values: NDArray[np.float64]
    form: Form
    style: str = ""


def numbers(texts: Sequence[str], counts: NDArray[np.int64], points: Points | None = None) -> Written | None:
    """The numbers that texts stand for.

    If all texts are plain numbers, the result is None: readers of files turn such texts into numbers, so those that
    are still texts must be codes.  Numbers with leading zeros are codes as well.  Only where ``points`` may stand for
    thousands do readers leave plain numbers as texts.

    >>> numbers(["39", "?", "1,234"], np.array([5, 1, 1])).values.tolist()
    [39.0, nan, 1234.0]
    >>> numbers(["$10.50", "$2"], np.array([1, 1])).values.tolist()
    [10.5, 2.0]
    >>> numbers(["1", "2", "3", "4+"], np.array([9, 9, 9, 1])), numbers(["02139", "?"], np.array([9, 1]))
    (None, None)
    >>> numbers(["999", "1.500"], np.array([1, 1]), "thousands").values.tolist()
    [999.0, 1500.0]
    """
    if not _mostly(texts, AFFIXED):
        return None
    parsed = exact_numbers(texts)
    values = np.where(np.isfinite(parsed), parsed, np.nan)  # "inf" is a word here
    is_plain = ~np.isnan(values)
    others = _matches(AFFIXED, texts, ~is_plain)
    bare = {place: match[1] + match[3] for place, match in others.items()}
    decimal_comma = any(DECIMAL_COMMA.fullmatch(text) and not THOUSANDS.fullmatch(text) for text in bare.values())
    with_points = [place for place in np.flatnonzero(is_plain).tolist() if "." in texts[place]]
    all_pointed = bool(with_points) and all(POINTED_THOUSANDS.fullmatch(texts[place].strip()) for place in with_points)
    has_thousands = points == "thousands" and all_pointed
    decimal_comma = decimal_comma or has_thousands
    if decimal_comma:
        bare |= {place: texts[place].strip() for place in np.flatnonzero(is_plain).tolist()}
    for place, text in bare.items():
        values[place] = _number(text, decimal_comma)
    known = ~np.isnan(values)
    unusual = [place for place in others if known[place]]
    affixes = {others[place][2] + others[place][4] for place in unusual} | ({""} if is_plain.any() else set())
    marks = _marks(texts, counts, known)
    is_code = any(CODE.fullmatch(text) for text in texts)
    if (
        marks is None
        or not (marks or unusual or points)
        or len(affixes) > 1
        or is_code
        or np.unique(values[known]).size < 2
    ):
        return None
    style = f"written like {texts[unusual[0]].strip()!r}" if unusual else ""
    if has_thousands:
        style = f"written like {texts[with_points[0]].strip()!r}, points before thousands"
    elif points is not None and all_pointed and not decimal_comma:
        shown = texts[with_points[0]].strip()
        style = f"{shown!r} read as {float(shown):g}; if it means {shown.replace('.', '')}, write it so"
    return Written(values, Form(is_local=decimal_comma, marks=marks), style)


def _number(text: str, decimal_comma: bool) -> float:
    """A number that is not written plainly."""
    if decimal_comma and (DECIMAL_COMMA.fullmatch(text) or POINTED_THOUSANDS.fullmatch(text)):
        return float(text.replace(".", "").replace(",", "."))
    if not decimal_comma and THOUSANDS.fullmatch(text):
        return float(text.replace(",", ""))
    return float(text) if NUMBER.fullmatch(text) else np.nan


def dates(texts: Sequence[str], counts: NDArray[np.int64]) -> Written | None:
    """Dates and times as days since 1970 in UTC; times without a zone count as UTC.

    The year comes first or last.  If it is last, at least one date must show which part is the day.  Dates with points
    need no such proof: they always start with the day.

    >>> dates(["1970-01-03", "1970-01-01 12:00", "?"], np.array([5, 1, 1])).values.tolist()
    [2.0, 0.5, nan]
    >>> dates(["12/31/1969", "1/2/1970 6:00 PM"], np.array([1, 1])).values.tolist()
    [-1.0, 1.75]
    >>> dates(["01/02/1970", "02/01/1970"], np.array([1, 1]))
    """
    form = YEAR_FIRST if _mostly(texts, YEAR_FIRST) else YEAR_LAST
    if form is YEAR_LAST and not _mostly(texts, YEAR_LAST):
        return None
    values = _iso_days(texts) if form is YEAR_FIRST else np.full(len(texts), np.nan)
    others = _matches(form, texts, np.isnan(values))
    day_first = False
    if form is YEAR_LAST:
        day_first = any(match["sep"] == "." or int(match["one"]) > 12 for match in others.values())
        if day_first == any(int(match["two"]) > 12 for match in others.values()):
            return None
    for place, match in others.items():
        values[place] = _day(match, day_first)
    marks = _marks(texts, counts, ~np.isnan(values))
    return None if marks is None else Written(values, Form(is_date=True, is_local=day_first, marks=marks))


def is_unclear_date(texts: Sequence[str]) -> bool:
    """Whether texts are dates of which none shows which number is the day and which the month.

    >>> is_unclear_date(["01/02/1970", "02/01/1970"]), is_unclear_date(["31/01/1970"]), is_unclear_date(["x"])
    (True, False, False)
    """
    known = [text for text in texts if text.strip().lower() not in MARKS]
    found = _matches(YEAR_LAST, known, np.ones(len(known), dtype=bool)) if _mostly(texts, YEAR_LAST) else {}
    return 0 < len(known) == len(found) and all(
        match["sep"] != "." and int(match["one"]) <= 12 and int(match["two"]) <= 12 for match in found.values()
    )


def _iso_days(texts: Sequence[str]) -> NDArray[np.float64]:
    """Days since 1970 of texts that are ISO 8601 dates, the most common form; NaN for the others."""
    import pandas as pd

    return days(pd.to_datetime(pd.Series(texts, dtype="str"), format="ISO8601", utc=True, errors="coerce"))


def _day(match: re.Match[str], day_first: bool) -> float:
    month, day = (match["two"], match["one"]) if day_first else (match["one"], match["two"])
    try:
        whole = datetime.date(int(match["year"]), int(month), int(day)).toordinal() - EPOCH
    except ValueError:  # no such day
        return np.nan
    if match["hour"] is None:
        return float(whole)
    hour = int(match["hour"])
    if match["half"] is not None:
        hour = hour % 12 + (12 if match["half"] in "Pp" else 0)
    minutes = 60 * hour + int(match["minute"]) + float((match["second"] or "0").replace(",", ".")) / 60
    if (zone := match["zone"]) is not None:
        ahead = 60 * int(zone[1:3]) + int(zone[3:].lstrip(":") or 0)
        minutes -= -ahead if zone[0] == "-" else ahead
    return whole + minutes / 1440


def days(moments: "pd.Series[Any]") -> NDArray[np.float64]:
    """Dates and times as days since 1970 in UTC; NaN where there is no date."""
    import pandas as pd

    # Always in microseconds, so that equal moments give equal bits.  Nanoseconds would end in the year 2262.
    exact = pd.to_datetime(moments, utc=True).dt.tz_convert(None).to_numpy().astype("datetime64[us]")
    return np.asarray((exact - np.datetime64(0, "us")) / np.timedelta64(1, "D"), dtype=np.float64)


def _mostly(texts: Sequence[str], form: re.Pattern[str]) -> bool:
    """Whether at least half of the first texts have this form."""
    looked_at = [text for text in texts[:LOOK] if text.strip().lower() not in MARKS]
    fitting = _matches(form, looked_at, np.ones(len(looked_at), dtype=bool))
    return bool(looked_at) and 2 * len(fitting) >= len(looked_at)


def _matches(form: re.Pattern[str], texts: Sequence[str], among: NDArray[np.bool_]) -> dict[int, re.Match[str]]:
    """The texts that have this form, by position."""
    stripped = {place: texts[place].strip() for place in np.flatnonzero(among).tolist()}
    short = {place: text for place, text in stripped.items() if len(text) <= LONGEST}
    return {place: match for place, text in short.items() if (match := form.fullmatch(text)) is not None}


def _marks(texts: Sequence[str], counts: NDArray[np.int64], known: NDArray[np.bool_]) -> tuple[str, ...] | None:
    """The texts that stand for a gap; None if some of the texts are neither values nor marks."""
    unread = [text for text, is_known in zip(texts, known, strict=True) if not is_known]
    is_other = np.array([text.strip().lower() not in MARKS for text in texts], dtype=bool) & ~known
    rare = is_other.sum() <= MOST_OTHER_MARKS and counts[is_other].sum() <= MOST_OTHER_SHARE * counts.sum()
    return tuple(unread) if not is_other.any() or (rare and known.sum() > FEW_VALUES) else None
