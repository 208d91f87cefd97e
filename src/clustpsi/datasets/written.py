"""Numbers and dates as people write them: with a mark for a gap here and there, with signs of money, in local forms.

Both readers look at a column's different texts and at how often each occurs. They give None where the texts are
something else: names, codes, sentences.
"""

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.files import NUMBER

if TYPE_CHECKING:
    import pandas as pd

# What stands for a missing value wherever it occurs, in lower case.
MARKS = frozenset(
    [
        *("", "?", "-", "--", "---", ".", "..", "...", "*", "na", "n/a", "n.a.", "nan", "nil", "none", "null", "nd"),
        *("n.d.", "#n/a", "#na", "#div/0!", "#ref!", "#value!", "missing", "unknown", "unk", "no data"),
        "not available",
    ]
)
# Other marks must be few and rare, and stand beside more numbers than codes have: 1, 2, 3, 4+ stays a category.
MOST_OTHER_MARKS = 3
MOST_OTHER_SHARE = 0.05
FEW_VALUES = 20
LOOK = 100  # texts of a first look, which spares names and sentences the long one

AFFIXED = re.compile(r"([-+]?)\s*([$€£¥]?)\s*([-+]?[\d.,eE+-]*\d[\d.,]*)\s*([%$€£¥]?)")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
DECIMAL_COMMA = re.compile(r"[-+]?(\d+|[1-9]\d{0,2}(\.\d{3})+),\d+")
POINTED_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")
CODE = re.compile(r"[-+]?0\d+")

TIME = (
    r"([T ] ?(?P<hour>\d{1,2}):(?P<minute>\d\d)(:(?P<second>\d\d([.,]\d+)?))?( ?(?P<half>[AaPp])[Mm])?"
    r"( ?(Z|UTC|GMT|(?P<zone>[-+]\d\d(:?\d\d)?)))?)?"
)
YEAR_FIRST = re.compile(r"(?P<year>\d{4})(?P<sep>[-/.])(?P<first>\d{1,2})(?P=sep)(?P<second_>\d{1,2})" + TIME)
YEAR_LAST = re.compile(r"(?P<first>\d{1,2})(?P<sep>[-/.])(?P<second_>\d{1,2})(?P=sep)(?P<year>\d{4})" + TIME)


@dataclass(frozen=True)
class Written:
    """A number for each text, NaN for one that marks a gap; the marks; how numbers are written, where unusual."""

    values: NDArray[np.float64]
    marks: tuple[str, ...]
    style: str = ""


def numbers(texts: Sequence[str], counts: NDArray[np.int64]) -> Written | None:
    """The numbers that texts stand for.

    Texts that are all plain numbers give None: a reader of files makes numbers of them, so whoever left them texts
    meant codes. Numbers with leading zeros are codes as well.

    >>> numbers(["39", "?", "1,234"], np.array([5, 1, 1])).values.tolist()
    [39.0, nan, 1234.0]
    >>> numbers(["$10.50", "$2"], np.array([1, 1])).values.tolist()
    [10.5, 2.0]
    >>> numbers(["1", "2", "3", "4+"], np.array([9, 9, 9, 1])), numbers(["02139", "?"], np.array([9, 1]))
    (None, None)
    """
    if not _mostly(texts, AFFIXED.fullmatch):
        return None
    matches = [AFFIXED.fullmatch(text.strip()) for text in texts]
    bare = ["" if match is None else match[1] + match[3] for match in matches]
    decimal_comma = any(DECIMAL_COMMA.fullmatch(text) and not THOUSANDS.fullmatch(text) for text in bare)
    values = np.array([_number(text, decimal_comma) for text in bare])
    known = ~np.isnan(values)
    marks = _marks(texts, counts, known)
    unusual = [text for text, number in zip(texts, known, strict=True) if number and not NUMBER.fullmatch(text.strip())]
    affixes = {match[2] + match[4] for match, number in zip(matches, known, strict=True) if match and number}
    is_code = any(CODE.fullmatch(text) for text in bare)
    if marks is None or not (marks or unusual) or len(affixes) > 1 or is_code or np.unique(values[known]).size < 2:
        return None
    return Written(values, marks, f"written like {unusual[0].strip()!r}" if unusual else "")


def _number(text: str, decimal_comma: bool) -> float:
    if decimal_comma and (DECIMAL_COMMA.fullmatch(text) or POINTED_THOUSANDS.fullmatch(text)):
        return float(text.replace(".", "").replace(",", "."))
    if not decimal_comma and THOUSANDS.fullmatch(text):
        return float(text.replace(",", ""))
    return float(text) if NUMBER.fullmatch(text) else np.nan


def dates(texts: Sequence[str], counts: NDArray[np.int64]) -> Written | None:
    """Days since 1970, in UTC, as are times without a zone.

    The year comes first or last. Where it is last, some date must tell the day from the month, unless points separate
    them, which only day first has.

    >>> dates(["1970-01-03", "1970-01-01 12:00", "?"], np.array([5, 1, 1])).values.tolist()
    [2.0, 0.5, nan]
    >>> dates(["12/31/1969", "1/2/1970 6:00 PM"], np.array([1, 1])).values.tolist()
    [-1.0, 1.75]
    >>> dates(["01/02/1970", "02/01/1970"], np.array([1, 1]))
    """
    form = YEAR_FIRST if _mostly(texts, YEAR_FIRST.fullmatch) else YEAR_LAST
    if form is YEAR_LAST and not _mostly(texts, YEAR_LAST.fullmatch):
        return None
    matches = [form.fullmatch(text.strip()) for text in texts]
    day_first = False
    if form is YEAR_LAST:
        found = [match for match in matches if match is not None]
        day_first = any(match["sep"] == "." or int(match["first"]) > 12 for match in found)
        if day_first == any(int(match["second_"]) > 12 for match in found):
            return None
    values = np.array([np.nan if match is None else _day(match, day_first) for match in matches])
    marks = _marks(texts, counts, ~np.isnan(values))
    return None if marks is None else Written(values, marks)


def _day(match: re.Match[str], day_first: bool) -> float:
    month, day = (match["second_"], match["first"]) if day_first else (match["first"], match["second_"])
    try:
        whole = (
            datetime.date(int(match["year"]), int(month), int(day)).toordinal() - datetime.date(1970, 1, 1).toordinal()
        )
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
    """Days since 1970, in UTC, of dates and times; NaN where there is none."""
    import pandas as pd

    since = pd.to_datetime(moments, utc=True) - pd.Timestamp(0, tz="UTC")
    return np.asarray((since / pd.Timedelta(days=1)).to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def _mostly(texts: Sequence[str], fits: Callable[[str], object]) -> bool:
    looked_at = [text.strip() for text in texts[:LOOK] if text.strip().lower() not in MARKS]
    return bool(looked_at) and 2 * sum(fits(text) is not None for text in looked_at) >= len(looked_at)


def _marks(texts: Sequence[str], counts: NDArray[np.int64], known: NDArray[np.bool_]) -> tuple[str, ...] | None:
    """The texts that stand for a gap; None if some of the texts are neither values nor marks."""
    unread = [text for text, is_known in zip(texts, known, strict=True) if not is_known]
    is_other = np.array([text.strip().lower() not in MARKS for text in texts], dtype=bool) & ~known
    rare = is_other.sum() <= MOST_OTHER_MARKS and counts[is_other].sum() <= MOST_OTHER_SHARE * counts.sum()
    return tuple(unread) if not is_other.any() or (rare and known.sum() > FEW_VALUES) else None
