"""What the columns of a table are: numbers, dates, categories, identifiers.

The result is a typed column: a number or a category for every row, and a description of what it was read as.
:mod:`clustpsi.features.table` decides how models use it.
"""

import datetime
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.features import written

if TYPE_CHECKING:
    import pandas as pd

MANY_KINDS = 50  # a category with more kinds than this, and more than half as many as rows, identifies rows
SHOWN = 12  # columns of a kind that are named one by one
LONGEST = 30  # characters of a value that are shown

# Kinds in the order in which they are reported, and those that are not features.
ORDER = (
    *("label", "client", "text", "number", "date", "category", "constant"),
    *("identifier", "unsupported", "dropped", "unused"),
)
OMITTED = ("identifier", "unsupported")

# Names of columns that identify rows: saved indexes, and names that end in such a word, as customerID and row_id do.
SAVED_INDEX = re.compile(r"unnamed: \d+|__index_level_\d+__", re.IGNORECASE)
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
ID_WORDS = frozenset(("id", "ids", "idx", "index", "uuid", "guid", "key", "rowid", "rownumber", "no", "nr"))

NESTED: dict[str, tuple[type, ...]] = {
    "lists": (list, tuple, set, frozenset, np.ndarray),
    "objects": (dict,),
    "bytes": (bytes, bytearray, memoryview),
}


@dataclass(frozen=True)
class Column:
    """What a column of a table was read as.

    Attributes
    ----------
    name
        Name of the column.
    kind
        label, client, text, number, date, category or constant; or, for a column that is not a feature, identifier,
        unsupported, dropped or unused.
    detail
        A few more words: how many gaps, kinds, classes.
    """

    name: str
    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Numbers:
    """A column of numbers or dates; NaN is a gap.  ``form`` says how they are written, if the column holds texts."""

    column: Column
    values: NDArray[np.float64]
    form: written.Form = written.PLAIN


@dataclass(frozen=True)
class Categories:
    """A column of categories: for each row the number of its category (-1: missing), and the categories by number."""

    column: Column
    codes: NDArray[np.int32]
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class Omitted:
    """A column that is not a feature; it may be text, which is used only if the user names it."""

    column: Column
    may_be_text: bool = False


Typed = Numbers | Categories | Omitted


def read_column(
    values: "pd.Series[Any]", name: str, *, is_first: bool = False, points: written.Points | None = None
) -> Typed:
    """Find out the kind of a column.

    Parameters
    ----------
    values
        The column.
    name
        Its name, which may say that it identifies rows.
    is_first
        Whether it is the table's first column.  If that column counts the rows, it is an index saved with the table.
    points
        What points stand for in texts that are numbers, if the file says it.

    Examples
    --------
    >>> import pandas as pd
    >>> read_column(pd.Series(["39", "50", "?", "7"]), "age").column
    Column(name='age', kind='number', detail="1 gap written '?'")
    >>> read_column(pd.Series([3, 7, 5]), "customer_id").column.kind
    'identifier'
    """
    typed = _read_typed(values, name, is_first)
    is_declared = str(values.dtype) == "category"
    return _read_texts(values, name, is_declared=is_declared, points=points) if typed is None else typed


def _read_typed(values: "pd.Series[Any]", name: str, is_first: bool = False) -> Typed | None:
    """A column whose type says what it is; None for texts."""
    from pandas.api import types

    dtype = values.dtype
    if types.is_complex_dtype(dtype):
        return _unsupported(name, "complex numbers")
    if types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype):
        if types.is_integer_dtype(dtype) and values.notna().all() and _identifies(values, name, is_first):
            return Omitted(Column(name, "identifier", "different whole numbers"))
        return _numbers(name, values.to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_datetime64_any_dtype(dtype):
        return _dates(name, written.days(values))
    if types.is_timedelta64_dtype(dtype):
        return _numbers(name, values.dt.total_seconds().to_numpy(dtype=np.float64) / 86_400, "in days")
    return _read_objects(values, name) if types.is_object_dtype(dtype) else None


def numbers_of(values: "pd.Series[Any]", name: str, form: written.Form, where: str) -> NDArray[np.float64]:
    """A column that must hold numbers or dates, because the column of that name did when features were fitted.

    Only ``form`` decides how texts are read, and never the other rows.  So a part of a table is read like the whole.
    """
    import pandas as pd

    what = "dates" if form.is_date else "numbers"
    typed = _read_typed(values, "")
    if isinstance(typed, Numbers):
        if typed.form.is_date != form.is_date and not np.isnan(typed.values).all():
            other = "numbers" if form.is_date else "dates"
            raise ClustPSIError(f"{where}, column {name!r} must hold {what}, and it holds {other}")
        numbers = typed.values
    elif typed is not None or pd.api.types.is_bool_dtype(values.dtype):
        held = "true and false" if typed is None else typed.column.detail.removeprefix("holds ")
        raise ClustPSIError(f"{where}, column {name!r} must hold {what}, and it holds {held}")
    else:
        codes, kinds = kinds_of(values)
        read, unread = form.read(kinds)
        if unread:
            row = row_of(values, int((codes == unread[0]).argmax()))
            found = repr(kinds[unread[0]][:LONGEST])
            raise ClustPSIError(f"{where}, column {name!r} must hold {what}, and row {row} has {found}")
        numbers = np.append(read, np.nan)[codes]
    if np.isinf(numbers).any():
        row = row_of(values, int(np.isinf(numbers).argmax()))
        raise ClustPSIError(f"{where}, column {name!r} is infinite in row {row}: leave the cell empty")
    return numbers


def kinds_of(values: "pd.Series[Any]") -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Read a column of categories: for each row the number of its category (-1: missing), and the categories."""
    import pandas as pd

    codes, kinds = pd.factorize(values.astype(str).where(values.notna()))
    return codes.astype(np.int32), tuple(map(str, kinds.tolist()))


def row_of(values: "pd.Series[Any]", place: int) -> int:
    """The number of a row in its table, counted from 1."""
    import pandas as pd

    return (int(values.index[place]) if isinstance(values.index, pd.RangeIndex) else place) + 1


def known_name(name: str, known: Container[str | None]) -> str:
    """The known spelling of a name that another type of column spells otherwise: 1 for 1.0 or 01, True for true.

    >>> [known_name(name, {"1", "2.5", "True"}) for name in ("1.0", "01", "2.50", "true", "x")]
    ['1', '1', '2.5', 'True', 'x']
    """
    if name in known:
        return name
    others = [name.strip(), name.strip().capitalize()]
    if written.NUMBER.fullmatch(name.strip()):
        number = float(name)
        others += [str(number), str(int(number))] if number.is_integer() else [str(number)]
    return next((other for other in others if other in known), name)


def nested(values: "pd.Series[Any]") -> str | None:
    """What a column holds if not single values: lists, objects or bytes."""
    types = _types(values)
    return next((what for what, kinds in NESTED.items() if any(issubclass(each, kinds) for each in types)), None)


def describe(columns: Sequence[Column]) -> list[str]:
    """What a table's columns were read as, one line per kind.

    >>> describe([Column("a", "number"), Column("b", "number", "2 gaps"), Column("y", "label", "3 classes")])
    ['label: y (3 classes)', '2 numbers: a, b (2 gaps)']
    """
    plural = {"category": "categories", "unsupported": "unsupported", "dropped": "dropped", "unused": "unused"}
    by_kind: dict[str, list[Column]] = {}
    for column in columns:
        by_kind.setdefault(column.kind, []).append(column)
    lines = []
    for kind in sorted(by_kind, key=ORDER.index):
        alike = by_kind[kind]
        shown = [_printable(each.name) + (f" ({each.detail})" if each.detail else "") for each in alike[:SHOWN]]
        more = [f"and {len(alike) - SHOWN:,} more"] if len(alike) > SHOWN else []
        title = kind if len(alike) == 1 else f"{len(alike):,} {plural.get(kind, f'{kind}s')}"
        title += ", omitted" if kind in OMITTED else ""
        lines.append(f"{title}: {', '.join(shown + more)}")
    return lines


def _printable(name: str) -> str:
    """A name that is safe to print: column names come from files and may contain control characters."""
    return name if name.isprintable() else repr(name)


def _types(values: "pd.Series[Any]") -> set[type]:
    """The types of the values in an object column."""
    return set(map(type, values[values.notna()])) if values.dtype == object else set()


def _read_objects(values: "pd.Series[Any]", name: str) -> Typed | None:
    """Read a column of Python objects that are not texts."""
    types = _types(values)
    if (what := nested(values)) is not None:
        return _unsupported(name, what)
    if not types:
        return None

    def all_are(*kinds: type) -> bool:
        return all(issubclass(each, kinds) for each in types)

    def made_by(convert: Callable[[Any], float]) -> NDArray[np.float64]:
        known = values.notna()
        return np.array([convert(value) if here else np.nan for value, here in zip(values, known, strict=True)])

    if all_are(Real, Decimal) and not any(issubclass(each, bool | np.bool_) for each in types):
        return _numbers(name, made_by(_float))
    if all_are(datetime.date, np.datetime64):
        return _dates(name, written.days(values))
    if all_are(datetime.time):
        return _numbers(name, made_by(lambda time: time.hour + time.minute / 60 + time.second / 3600), "in hours")
    return None


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return np.inf if value > 0 else -np.inf


def _read_texts(
    values: "pd.Series[Any]", name: str, *, is_declared: bool, points: written.Points | None = None
) -> Typed:
    """Read a column of texts (or of true and false): as numbers or dates if they look so, else as categories."""
    import pandas as pd

    codes, different = pd.factorize(values.astype(str).where(values.notna()))
    kinds = tuple(different.tolist())
    counts = np.bincount(codes[codes >= 0], minlength=len(kinds))
    if not is_declared:
        if (found := written.numbers(kinds, counts, points)) is not None:
            return _numbers(name, np.append(found.values, np.nan)[codes], found.style, found.form)
        if (found := written.dates(kinds, counts)) is not None:
            return _dates(name, np.append(found.values, np.nan)[codes], found.form)
    rows = f"{len(kinds):,} different values in {len(values):,} rows"
    unclear = not is_declared and written.is_unclear_date(kinds)
    why = "dates whose day and month cannot be told apart: write them like 2020-12-31" if unclear else ""
    if len(kinds) > MANY_KINDS and len(kinds) > 0.5 * len(values):
        return Omitted(Column(name, "identifier", ", ".join(filter(None, [rows, why]))), may_be_text=not why)
    if len(kinds) == len(values) > 1 and is_id_name(name):
        return Omitted(Column(name, "identifier", rows))
    column = Column(name, "category", ", ".join(filter(None, [_count(len(kinds), "kind"), why])))
    if len(kinds) + (codes < 0).any() < 2:
        column = Column(name, "constant", repr(kinds[0][:LONGEST]) if kinds else "empty")
    return Categories(column, codes.astype(np.int32), kinds)


def _numbers(name: str, values: NDArray[np.float64], style: str = "", form: written.Form = written.PLAIN) -> Numbers:
    known = values[~np.isnan(values)]
    gaps = _gaps(len(values) - len(known), form.marks)
    if len(known) == 0:
        return Numbers(Column(name, "constant", "empty"), values, form)
    if known.min() == known.max() and not gaps:
        return Numbers(Column(name, "constant", f"{known[0]:g}"), values, form)
    return Numbers(Column(name, "number", ", ".join(filter(None, [style, gaps]))), values, form)


def _dates(name: str, values: NDArray[np.float64], form: written.Form = written.DATES) -> Numbers:
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return Numbers(Column(name, "constant", "empty"), values, form)
    first, last = (np.datetime64(int(np.floor(day)), "D") for day in (known.min(), known.max()))
    gaps = _gaps(len(values) - len(known), form.marks)
    return Numbers(Column(name, "date", ", ".join(filter(None, [f"{first} to {last}", gaps]))), values, form)


def _gaps(gaps: int, marks: Sequence[str]) -> str:
    shown = [f"written {', '.join(map(repr, marks[:3]))}"] if marks else []
    return " ".join([_count(gaps, "gap"), *shown]) if gaps else ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _identifies(values: "pd.Series[Any]", name: str, is_first: bool) -> bool:
    """Whether whole numbers identify rows: all differ, and the name says so or the first column counts the rows."""
    if len(values) < 2 or not values.is_unique:
        return False
    numbers = values.to_numpy()
    counts = is_first and numbers[0] in (0, 1) and np.array_equal(numbers, np.arange(len(numbers)) + numbers[0])
    return counts or is_id_name(name)


def is_id_name(name: str) -> bool:
    """Whether the name of a column says that it identifies rows.

    >>> [is_id_name(name) for name in ("Unnamed: 0", "customerID", "row_id", "humid", "grid")]
    [True, True, True, False, False]
    """
    words = [word.lower() for word in WORD.findall(name)]
    is_row_number = words[-2:] in (["row", "number"], ["row", "num"], ["serial", "number"])
    return bool(SAVED_INDEX.fullmatch(name)) or is_row_number or not ID_WORDS.isdisjoint(words[-1:])


def _unsupported(name: str, what: str) -> Omitted:
    return Omitted(Column(name, "unsupported", f"holds {what}"))
