"""Label counts of a federation's clients, from a table of counts or of samples.

Tables of counts are mostly made by other programs, which add more than counts: the clients' names as a first column, an
index, totals. These are detected and reported.
"""

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
from clustpsi.datasets.labels import Name, Parts, assign_parts, read_clients, read_labels
from clustpsi.datasets.table_files import read_table
from clustpsi.errors import ClustPSIError, ClustPSIWarning
from clustpsi.features.columns import Numbers, is_id_name, read_column
from clustpsi.features.written import NUMBER

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
TOTAL_WORDS = frozenset(("total", "totals", "all", "sum", "overall", "grand total", "n", "samples", "margin", "gesamt"))
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
        where, frame = str(path), read_table(path, sep=sep, no_header=no_header)
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
        is_named = not isinstance(index, pd.RangeIndex) or index.name is not None
        read = _read_counts(frame, where, parts.client, [_text(each) for each in index] if is_named else None)
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
    codes, clients = read_clients(frame[parts.client].iloc[labels.kept], f"column {parts.client!r}", where)
    shape = len(clients), len(labels.names)
    cells = np.bincount(codes.astype(np.int64) * shape[1] + labels.codes, minlength=shape[0] * shape[1])
    return CountTable(skew.check_counts(cells.reshape(shape)), clients, labels.names, labels.notes)


def _read_counts(frame: pd.DataFrame, where: str, client: str | None, index: list[str] | None) -> CountTable:
    notes: list[str] = []
    names = index
    if client is None and index is None:
        frame, client = _find_client(frame, where, notes)
    if client is not None:
        names = [_text(each) for each in frame[client]]
        frame = frame.drop(columns=client)
    if names is None:
        names = [str(row) for row in range(len(frame))]
    repeated = pd.Index(names).duplicated()
    if repeated.any():
        raise ClustPSIError(
            f"{where}: client {names[int(repeated.argmax())]!r} has more than one row of counts; "
            "for a table with one row per sample give --label too (label= in Python)"
        )
    classes = [str(column) for column in frame.columns]
    counts = skew.check_counts(np.column_stack([_numbers(frame[each], each, where, names) for each in classes]))
    column = _total(counts, classes, f"{where}: column", "leave it out with --drop (drop= in Python)", notes)
    if column is not None:
        counts, classes = np.delete(counts, column, axis=1), [*classes[:column], *classes[column + 1 :]]
    row = _total(counts.T, names, f"{where}: row", "take it out", notes)
    if row is not None:
        counts, names = np.delete(counts, row, axis=0), [*names[:row], *names[row + 1 :]]
    return CountTable(counts, tuple(names), tuple(classes), tuple(notes))


def _text(value: Any) -> str:
    """A name; the levels of a multi-index are joined."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _numbers(values: "pd.Series[Any]", column: str, where: str, names: Sequence[str]) -> NDArray[Any]:
    """The counts of a class."""
    numbers = values.to_numpy()
    if not pd.api.types.is_numeric_dtype(values.dtype):
        typed = read_column(values, column)
        if not isinstance(typed, Numbers) or typed.column.kind == "date":
            raise ClustPSIError(
                f"{where}: column {column!r} is not numeric, but counts are whole numbers; for a table with one row "
                "per sample give --label and --client (label= and client= in Python)"
            )
        numbers = typed.values
    missing = pd.isna(numbers)
    if missing.any():
        first = names[int(missing.argmax())]
        raise ClustPSIError(f"{where}: column {column!r} has no count for client {first!r}; write 0 for none")
    return numbers


def _find_client(frame: pd.DataFrame, where: str, notes: list[str]) -> tuple[pd.DataFrame, str | None]:
    """The table without a saved index, and the column that names the clients, if there is one.

    This is the first column if it has texts. If it has different whole numbers, one of these must hold: its name says
    so, it is the only column named by a word, it counts the rows, or it ascends. (Counts of a class hardly ever ascend
    by chance, unless there are few clients.)
    """

    def is_text(column: int) -> bool:
        return len(frame.columns) > column + 1 and not pd.api.types.is_numeric_dtype(frame.iloc[:, column].dtype)

    first = str(frame.columns[0])
    if is_text(0):
        return frame, first
    if len(frame.columns) < 2 or not pd.api.types.is_integer_dtype(frame[first].dtype):
        return frame, None
    numbers = frame[first].to_numpy()
    if len(np.unique(numbers)) < len(numbers):
        return frame, None
    if is_id_name(first) and is_text(1):
        notes.append(f"{where}: column {first!r} is omitted: it counts the rows")
        return frame.iloc[:, 1:], str(frame.columns[1])
    called = is_id_name(first) or first.lower().rstrip("s") in CLIENT_WORDS
    alone = not NUMBER.fullmatch(first) and all(NUMBER.fullmatch(str(each)) for each in frame.columns[1:])
    ascending = len(numbers) > 2 and bool((np.diff(numbers) > 0).all())
    counting = len(numbers) > 2 and numbers.min() in (0, 1) and np.ptp(numbers) == len(numbers) - 1
    if called or alone or counting or (ascending and len(numbers) >= MANY):
        notes.append(
            f"{where}: column {first!r} has a different whole number in every row and is read as the clients' names; "
            "if it counts a class, put another column first"
        )
        return frame, first
    if ascending:
        notes.append(
            f"{where}: column {first!r} is read as the counts of a class; if it names the clients, give "
            f"--client {first} (client= in Python)"
        )
    return frame, None


def _total(counts: NDArray[np.int64], names: Sequence[str], what: str, remedy: str, notes: list[str]) -> int | None:
    """The column that is surely the total of the others, if there is one; if it is only likely, a note."""
    sums = counts.sum(axis=1)
    found = np.flatnonzero((2 * counts == sums[:, None]).all(axis=0))
    called = [place for place in found.tolist() if names[place].strip().lower() in TOTAL_WORDS]
    if not called and (len(found) != 1 or len(names) < 3):
        return None
    place = int(called[0] if called else found[0])
    if called or np.count_nonzero(sums) >= MANY:
        notes.append(f"{what} {names[place]!r} is omitted: it is the sum of the others")
        return place
    notes.append(f"{what} {names[place]!r} is the sum of the others; if it is a total, {remedy}")
    return None
