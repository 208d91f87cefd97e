"""Label counts of a federation's clients, from a table of counts or of samples.

Tables of counts are mostly made by other programs, which add more than counts: the clients' names as a first column, an
index, totals. These are detected and reported.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from clustpsi import skew
from clustpsi.datasets.files import user_path
from clustpsi.datasets.labels import (
    Name,
    Parts,
    assign_parts,
    check_number,
    name_of,
    read_clients,
    read_labels,
    read_names,
)
from clustpsi.datasets.table_files import POINTS, read_table
from clustpsi.errors import ClustPSIError, ClustPSIWarning
from clustpsi.features.columns import ID_WORDS, SAVED_INDEX, WORD, is_id_name, nested
from clustpsi.features.written import AFFIXED, CODE, MARKS, NUMBER, POINTED_THOUSANDS, THOUSANDS, Points

# Names of columns and rows in tables of counts that are neither classes nor clients.
CLIENT_WORDS = frozenset(
    (
        "client",
        "site",
        "node",
        "silo",
        "party",
        "user",
        "device",
        "hospital",
        "center",
        "centre",
        "participant",
        "station",
    )
)
# What totals are called: by the first without doubt.
SURE_TOTALS = frozenset(
    (
        *("total", "totals", "sum", "overall", "grand total", "total sum", "gesamt", "insgesamt", "summe"),
        *("gesamtsumme", "somme", "suma", "totale"),
    )
)
TOTAL_WORDS = SURE_TOTALS | {"all", "n", "samples", "margin"}
LETTERS = re.compile(r"[^\W\d_]+")
WHOLE_FLOAT = re.compile(r"[-+]?\d+\.0")
MANY = 5  # numbers that agree by more than chance


@dataclass(frozen=True)
class CountTable:
    """Label counts (clients x classes), the names of both, and one sentence for everything guessed or omitted."""

    counts: NDArray[np.int64]
    clients: tuple[str, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_counts(
    table: "pd.DataFrame | str | Path",
    label: Name | None = None,
    client: Name | None = None,
    *,
    drop: Name | Sequence[Name] = (),
    drop_unlabelled: bool = False,
    min_class: int | None = None,
    sep: str | None = None,
    no_header: bool = False,
) -> CountTable:
    """Read label counts from a file or a data frame; warnings say what is guessed or omitted.

    With ``label`` the table has one row per sample, and ``client`` names its client. Without, it has one row per client
    and one column per class. Then the clients' names are the column ``client``, else the index, else a first column of
    names or of numbers that look like names. A column or a row that is the sum of the others is omitted.
    """
    if isinstance(table, pd.DataFrame):
        where, frame = "the table", table
    else:
        path = user_path(table)
        # Without a label any column may hold names.
        names = None if label is None else {str(each) for each in (label, client) if each is not None}
        where, frame = str(path), read_table(path, names=names, sep=sep, no_header=no_header)
    index = frame.index
    frame, parts = assign_parts(frame, where, label=label, client=client, drop=drop)
    frame = frame.drop(columns=list(parts.drop))
    if len(frame.columns) <= (parts.client is not None):
        raise ClustPSIError(f"{where} has no column of counts")
    if parts.label is not None:
        read = _count_samples(frame, where, parts, drop_unlabelled, min_class)
    elif drop_unlabelled or min_class is not None:
        option = "--drop-unlabelled" if drop_unlabelled else "--min-class"
        raise ClustPSIError(
            f"{option} is for a table with one row per sample: name its columns with --label and --client"
        )
    else:
        is_counted = isinstance(index, pd.RangeIndex) and index.name is None
        read = _read_counts(frame, where, parts.client, None if is_counted else index)
    for note in read.notes:
        warnings.warn(note, ClustPSIWarning, stacklevel=3)
    return read


def _count_samples(
    frame: pd.DataFrame, where: str, parts: Parts, drop_unlabelled: bool, min_class: int | None
) -> CountTable:
    if parts.label is None or parts.client is None:
        raise ClustPSIError(
            f"{where}: a table with one row per sample needs --client too (client= in Python): the column that names "
            "the client of each row"
        )
    options: dict[str, Any] = {"drop_unlabelled": drop_unlabelled, "min_class": min_class}
    labels = read_labels(frame[parts.label], f"column {parts.label!r}", where, **options)
    check_number(labels, f"column {parts.label!r}", where)
    codes, clients = read_clients(frame[parts.client].iloc[labels.kept], f"column {parts.client!r}", where)
    shape = len(clients), len(labels.names)
    cells = np.bincount(codes.astype(np.int64) * shape[1] + labels.codes, minlength=shape[0] * shape[1])
    return CountTable(skew.check_counts(cells.reshape(shape)), clients, labels.names, labels.notes)


def _read_counts(frame: pd.DataFrame, where: str, client: str | None, index: "pd.Index[Any] | None") -> CountTable:
    notes: list[str] = []
    points = frame.attrs.get(POINTS)
    # The index of a filtered frame is numbers without a name: it names clients only if nothing else does.
    is_named = index is not None and not (index.name is None and pd.api.types.is_integer_dtype(index.dtype))
    if client is None and not is_named:
        frame, client = _find_client(frame, where, points, notes, must_be_called=index is not None)
    if client is not None:
        names = read_names(frame[client], f"column {client!r}", where)
        frame = frame.drop(columns=client)
    elif index is not None:
        names = [_text(each) for each in index]
    else:
        names = [str(row) for row in range(len(frame))]
    repeated = pd.Index(names).duplicated()
    if repeated.any():
        raise ClustPSIError(
            f"{where}: client {names[int(repeated.argmax())]!r} has more than one row of counts; "
            "for a table with one row per sample give --label too (label= in Python)"
        )
    columns = [str(column) for column in frame.columns]
    are_floats = all(map(WHOLE_FLOAT.fullmatch, columns))  # as pandas writes whole numbers beside gaps
    classes = [column.removesuffix(".0") for column in columns] if are_floats else columns
    numbers = [_numbers(frame[each], each, where, names, points, notes) for each in columns]
    counts = skew.check_counts(np.column_stack(numbers), names, classes, where)
    column = _total(counts, classes, where, "column", "leave it out with --drop (drop= in Python)", notes)
    if column is not None:
        counts, classes = np.delete(counts, column, axis=1), [*classes[:column], *classes[column + 1 :]]
    row = _total(counts.T, names, where, "row", "take it out", notes)
    if row is not None:
        counts, names = np.delete(counts, row, axis=0), [*names[:row], *names[row + 1 :]]
    return CountTable(counts, tuple(names), tuple(classes), tuple(notes))


def _text(value: Any) -> str:
    """A name; the levels of a multi-index are joined."""
    return " ".join(map(name_of, value)) if isinstance(value, tuple) else name_of(value)


def _numbers(
    values: "pd.Series[Any]",
    column: str,
    where: str,
    names: Sequence[str],
    points: Points | None,
    notes: list[str],
) -> NDArray[np.float64]:
    """The counts of a class."""
    texts = [] if _is_numeric(values) else values.dropna().astype(str).str.strip().unique().tolist()
    shares = [text for text in texts if _is_amount(text)]
    if shares:
        first = names[int((values.astype(str).str.strip() == shares[0]).to_numpy().argmax())]
        raise ClustPSIError(
            f"{where}: column {column!r} has {shares[0]!r} for client {first!r}, but counts are numbers of samples, "
            "neither shares nor amounts"
        )
    numbers = _as_numbers(values, points)
    if numbers is None:
        raise ClustPSIError(
            f"{where}: column {column!r} is not numeric, but counts are whole numbers; for a table with one row "
            "per sample give --label and --client (label= and client= in Python)"
        )
    missing = np.isnan(numbers)
    if missing.any():
        first = names[int(missing.argmax())]
        raise ClustPSIError(f"{where}: column {column!r} has no count for client {first!r}; write 0 for none")
    pointed = [text for text in texts if POINTED_THOUSANDS.fullmatch(text)]
    if points == "unclear" and pointed:
        told = f"{pointed[0]!r} is read as {pointed[0].replace('.', '')}, because counts are whole numbers"
        notes.append(f"{where}: column {column!r}: {told}")
    return numbers


def _is_amount(text: str) -> bool:
    """Whether a text is a number with a sign of percent or of a currency."""
    match = AFFIXED.fullmatch(text)
    return match is not None and bool(match[2] + match[4])


def _is_numeric(values: "pd.Series[Any]") -> bool:
    return pd.api.types.is_any_real_numeric_dtype(values.dtype)


def _as_numbers(values: "pd.Series[Any]", points: Points | None) -> NDArray[np.float64] | None:
    """Numbers as counts are written, NaN for a gap; None if some are something else."""
    if _is_numeric(values):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    if not (values.dtype == object or isinstance(values.dtype, pd.CategoricalDtype | pd.StringDtype)):
        return None
    if nested(values) is not None:
        return None
    codes, different = pd.factorize(values.astype(object))
    found = []
    for text in (str(each).strip() for each in different):
        if text.lower() in MARKS:
            found.append(np.nan)
        elif THOUSANDS.fullmatch(text):
            found.append(float(text.replace(",", "")))
        elif points is not None and POINTED_THOUSANDS.fullmatch(text):
            found.append(float(text.replace(".", "")))
        elif NUMBER.fullmatch(text) or text.lower().lstrip("+-") in ("inf", "infinity"):
            found.append(float(text))
        else:
            return None
    return np.array([*found, np.nan])[codes]


def _find_client(
    frame: pd.DataFrame, where: str, points: Points | None, notes: list[str], *, must_be_called: bool
) -> tuple[pd.DataFrame, str | None]:
    """The table without a saved index, and the column that names the clients, if there is one.

    This is the first column if it has texts (codes with leading zeros among them) or true and false; else a column that
    is called like a client; else a first column of different whole numbers, if one of these holds: its name says that
    it identifies rows, it is the only column named by a word, it counts the rows, or it ascends.  (Counts of a class
    hardly ever ascend by chance, unless there are few clients.)  With ``must_be_called`` only what its values or its
    name make sure of counts.
    """
    first, *others = map(str, frame.columns)
    if not others:
        return frame, None

    def is_text(column: str) -> bool:
        if _is_numeric(frame[column]):
            return False
        texts = frame[column].dropna().astype(str).str.strip()
        if texts.str.fullmatch(CODE.pattern).any():
            return True
        numbers = _as_numbers(frame[column], points)
        is_none = numbers is None or bool(np.isnan(numbers).all())
        return is_none and bool(texts.any()) and not all(map(_is_amount, texts.unique()))

    if is_text(first):
        return frame, first
    called = [each for each in (first, *others) if _is_client_name(each)]
    numbers = _as_numbers(frame[first], points)
    is_different = numbers is not None and _are_different(numbers)
    counting = numbers is not None and is_different and _count_rows(numbers)
    client = called[0] if len(called) == 1 else None
    if client is None and is_id_name(first) and is_different and is_text(others[0]) and len(others) > 1:
        client, counting = others[0], True
    if client not in (None, first) and (counting or (is_different and SAVED_INDEX.fullmatch(first))):
        notes.append(f"{where}: column {first!r} is omitted: it counts the rows")
        frame = frame.drop(columns=first)
    if client is not None and is_text(client):
        return frame, client
    if client is not None:
        found = _as_numbers(frame[client], points)
        if found is not None and (_are_different(found) or np.isnan(found).any()):
            notes.append(_read_as_clients(where, client, "give it another name"))
            return frame, client
    if numbers is None or not is_different:
        return frame, None
    alone = not NUMBER.fullmatch(first) and all(map(NUMBER.fullmatch, others))
    ascending = len(numbers) > 2 and bool((np.diff(numbers) > 0).all())
    if is_id_name(first) or (not must_be_called and (alone or counting or (ascending and len(numbers) >= MANY))):
        notes.append(_read_as_clients(where, first, "put another column first"))
        return frame, first
    if ascending and not must_be_called:
        notes.append(
            f"{where}: column {first!r} is read as the counts of a class; if it names the clients, give "
            f"--client {first} (client= in Python)"
        )
    return frame, None


def _is_client_name(name: str) -> bool:
    """Whether a column is called like a client: site, Sites, client_id, site name."""
    words = [word.lower() for word in WORD.findall(name)]
    words = [word for word in words if word not in ID_WORDS and word != "name"]
    return len(words) == 1 and (words[0] in CLIENT_WORDS or words[0].removesuffix("s") in CLIENT_WORDS)


def _are_different(numbers: NDArray[np.float64]) -> bool:
    """Whether numbers are whole, and no two are equal."""
    return bool((numbers == np.floor(numbers)).all()) and len(np.unique(numbers)) == len(numbers)


def _count_rows(numbers: NDArray[np.float64]) -> bool:
    return len(numbers) > 2 and numbers.min() in (0, 1) and bool(np.ptp(numbers) == len(numbers) - 1)


def _read_as_clients(where: str, column: str, remedy: str) -> str:
    return (
        f"{where}: column {column!r} has a different whole number in every row and is read as the clients' names; "
        f"if it counts a class, {remedy}"
    )


def _total(
    counts: NDArray[np.int64], names: Sequence[str], where: str, kind: str, remedy: str, notes: list[str]
) -> int | None:
    """The column (or row) that is surely the total of others, if there is one; if it is only likely, a note."""
    words = [" ".join(LETTERS.findall(name.lower())) for name in names]
    sums = counts.sum(axis=1)
    found = np.flatnonzero((2 * counts == sums[:, None]).all(axis=0)).tolist()
    sure = [place for place in range(len(names)) if words[place] in SURE_TOTALS]
    if len(names) < 3:  # two equal classes; but of two equal rows one may be the total of the other
        called = [place for place in found if place in sure and kind == "row"]
        found = called
    else:
        called = [place for place in found if words[place] in TOTAL_WORDS]
    if not called:
        before = np.cumsum(counts, axis=1) - counts
        for place in sure:
            if place > 1 and (counts[:, place] == before[:, place]).all():
                notes.append(f"{where}: {kind} {names[place]!r} is omitted: it is the sum of the {kind}s before it")
                return place
        if len(found) != 1:
            return None
    place = called[0] if called else found[0]
    if called or np.count_nonzero(sums) >= MANY:
        notes.append(f"{where}: {kind} {names[place]!r} is omitted: it is the sum of the others")
        return place
    notes.append(f"{where}: {kind} {names[place]!r} is the sum of the others; if it is a total, {remedy}")
    return None
