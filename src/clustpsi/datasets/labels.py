"""Which columns of a table play which part, and which class and client its rows belong to.

Training and diagnosis both read tables with this module, so that they agree and give the same messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustpsi.datasets.files import check_header
from clustpsi.errors import ClustPSIError
from clustpsi.features.columns import MANY_KINDS, nested

if TYPE_CHECKING:
    import pandas as pd

OTHER = "other"
MAX_CLASSES = 1_000
# Names that often stand for a gap, in lower case.
LIKE_GAPS = frozenset(("na", "n/a", "nan", "none", "null", "<na>", "#n/a"))

Name = str | int  # of a column: data frames may have numbers for names


@dataclass(frozen=True)
class Parts:
    """The columns of a table that have a special role."""

    label: str | None = None
    client: str | None = None
    text: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*(each for each in (self.label, self.client) if each is not None), *self.text, *self.drop)


def assign_parts(
    table: "pd.DataFrame",
    where: str,
    *,
    label: Name | None = None,
    client: Name | None = None,
    text: Name | Sequence[Name] = (),
    drop: Name | Sequence[Name] = (),
    is_part: bool = False,
) -> tuple["pd.DataFrame", Parts]:
    """Check that the named columns exist and differ; return the table with texts as names and rows counted from 0.

    A named index level becomes a column; the rest of the index is dropped.  With ``is_part``, a column to drop may be
    one that only other parts have.
    """
    parts = Parts(
        None if label is None else str(label),
        None if client is None else str(client),
        column_names(text),
        column_names(drop),
    )
    named = parts.columns
    by_option = {"label": (parts.label,), "client": (parts.client,), "text": parts.text, "drop": parts.drop}
    for option, columns in by_option.items():
        if any(column is not None and not column.strip() for column in columns):
            raise ClustPSIError(f"--{option} is empty: give it a value, or leave it away")
    if not len(table):
        raise ClustPSIError(f"{where} has no rows")
    levels = [level for level in table.index.names if level is not None and str(level) in named]
    table = table.reset_index(level=levels) if levels else table
    table = table.reset_index(drop=True).set_axis([str(column) for column in table.columns], axis=1)
    if is_part:
        parts = replace(parts, drop=tuple(name for name in parts.drop if name in table.columns))
        named = parts.columns
    check_header(where, list(table.columns), named)
    if len(set(named)) < len(named):
        twice = next(each for each in named if named.count(each) > 1)
        raise ClustPSIError(f"{where}: label, client, text and drop must be different columns, and two are {twice!r}")
    return table, parts


def column_names(columns: Name | Sequence[Name]) -> tuple[str, ...]:
    """Names of columns as texts, from one or more of them."""
    return (str(columns),) if isinstance(columns, str | int) else tuple(map(str, columns))


@dataclass(frozen=True)
class Labels:
    """The classes of a table's rows.

    Attributes
    ----------
    codes
        Class of every row that is kept.
    names
        The classes' names; classes are sorted by value, numbers as numbers.
    kept
        The rows that have a label.
    is_merged
        Whether rare classes were merged.
    notes
        One sentence for each change to rows or classes.
    """

    codes: NDArray[np.int32]
    names: tuple[str, ...]
    kept: NDArray[np.int64]
    is_merged: bool = False
    notes: tuple[str, ...] = ()


def read_labels(
    values: "pd.Series[Any] | ArrayLike",
    what: str,
    where: str,
    *,
    drop_unlabelled: bool = False,
    min_class: int | None = None,
) -> Labels:
    """The classes that labels stand for.

    Parameters
    ----------
    values
        One label per row.
    what, where
        What messages call the labels and the table.
    drop_unlabelled
        Omit rows without a label instead of refusing them.
    min_class
        Merge classes with fewer samples than this into one, called "other", which is the last.

    Examples
    --------
    >>> labels = read_labels([10, 9, 10, 7, 9, 8], "the labels", "these", min_class=2)
    >>> labels.names, labels.codes.tolist()
    (('9', '10', 'other'), [1, 0, 1, 2, 0, 2])
    >>> labels.notes
    ("these, the labels: 2 classes with fewer than 2 samples are merged into 'other' (7, 8)",)
    """
    if min_class is not None and min_class < 2:
        raise ClustPSIError(f"--min-class must be a number at least 2, not {min_class}")
    codes, names = _coded(values, what, where)
    notes = []
    kept = np.flatnonzero(codes >= 0)
    if len(kept) < len(codes):
        if not drop_unlabelled:
            remedy = ", or --drop-unlabelled (drop_unlabelled=True in Python) to omit the rows without"
            raise _empty(values, codes, what, where, remedy)
        if not len(kept):
            raise ClustPSIError(f"{where}, {what} is empty in all rows")
        without = f"{len(codes) - len(kept):,} of {len(codes):,} rows"
        notes.append(f"{where}, {what}: {without} have no label and are omitted")
        codes = codes[kept]
    if doubtful := [name for name in names if name.lower() in LIKE_GAPS]:
        notes.append(
            f"{where}, {what}: {doubtful[0]!r} is the name of a class; if it stands for a gap, leave these cells empty"
        )
    if min_class is not None:
        codes, names, note = _merged(codes, names, min_class)
        notes += [f"{where}, {what}: {note}"] if note else []
    return Labels(codes, names, kept, min_class is not None, tuple(notes))


def check_number(labels: Labels, what: str, where: str) -> None:
    """Refuse labels that are too many different ones to be classes."""
    classes, rows = len(labels.names), len(labels.codes)
    if classes > MAX_CLASSES:
        raise ClustPSIError(
            f"{where}, {what} has {classes:,} different values: a label has at most {MAX_CLASSES:,} classes"
        )
    if classes > MANY_KINDS and 2 * classes > rows:
        raise ClustPSIError(
            f"{where}, {what} has {classes:,} different values in {rows:,} rows: a label has classes that many rows "
            "share, and neither measured numbers nor names of rows"
        )


def read_names(values: "pd.Series[Any]", what: str, where: str) -> list[str]:
    """The name in every row.

    >>> import pandas as pd
    >>> read_names(pd.Series([10.0, 9.0, 10.0]), "the clients", "these")
    ['10', '9', '10']
    """
    codes, names = read_clients(values, what, where)
    return [names[code] for code in codes.tolist()]


def read_clients(
    values: "pd.Series[Any] | ArrayLike", what: str, where: str
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """The client of every row as a number, and the clients' names, sorted by value (numbers as numbers).

    >>> read_clients([10, 9, 10], "the clients", "these")[1]
    ('9', '10')
    """
    codes, names = _coded(values, what, where)
    if (codes < 0).any():
        raise _empty(values, codes, what, where)
    return codes, names


def _empty(
    values: "pd.Series[Any] | ArrayLike", codes: NDArray[np.int32], what: str, where: str, remedy: str = ""
) -> ClustPSIError:
    import pandas as pd

    place = int((codes < 0).argmax())
    row = place + 1
    if isinstance(values, pd.Series) and pd.api.types.is_integer_dtype(values.index.dtype):  # rows of a table
        row = int(values.index[place]) + 1
    return ClustPSIError(f"{where}, {what} is empty in row {row}: every row needs one{remedy}")


def _coded(values: "pd.Series[Any] | ArrayLike", what: str, where: str) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """For every row the number of its value (-1: missing), and the names of the values in their order."""
    import pandas as pd

    array = values.to_numpy() if isinstance(values, pd.Series) else np.asarray(values)
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray | pd.Series):
        array = np.asarray(values, dtype=object)  # a list, in which a gap would become the text nan
    if array.ndim != 1:
        raise ClustPSIError(f"{where}, {what}: one value per row is needed, not an array of shape {array.shape}")
    if array.dtype == object and (kind := nested(pd.Series(array))) is not None:
        raise ClustPSIError(f"{where}, {what} holds {kind}: one number or text per row is needed")
    codes, different = pd.factorize(array)
    found = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in different]
    try:
        order: Sequence[int] = sorted(range(len(found)), key=found.__getitem__)
    except TypeError:  # numbers and texts together
        order = sorted(range(len(found)), key=lambda place: str(found[place]))
    numbers: dict[str, int] = {}  # 1 and "1" are one
    rank = np.full(len(found) + 1, -1, dtype=np.int32)  # the last for rows without a value, whose code is -1
    for place in order:
        if (name := name_of(found[place])).strip():
            rank[place] = numbers.setdefault(name, len(numbers))
    return rank[codes], tuple(numbers)


def name_of(value: Any) -> str:
    """The name of a class or client; whole numbers have no decimals.

    >>> name_of(3.0), name_of(2.5), name_of("3.0")
    ('3', '2.5', '3.0')
    """
    return str(value + 0.0).removesuffix(".0") if isinstance(value, float | np.floating) else str(value)


def _merged(
    codes: NDArray[np.int32], names: tuple[str, ...], least: int
) -> tuple[NDArray[np.int32], tuple[str, ...], str]:
    """Merge rare classes into one; return the classes and a phrase about it."""
    is_rare = np.bincount(codes, minlength=len(names)) < least
    rare = [name for name, rarely in zip(names, is_rare, strict=True) if rarely]
    if not rare:
        return codes, names, ""
    kept = [name for name, rarely in zip(names, is_rare, strict=True) if not rarely]
    places = {name: place for place, name in enumerate(dict.fromkeys([*kept, OTHER]))}
    number = np.array([places[OTHER if rarely else name] for name, rarely in zip(names, is_rare, strict=True)])
    shown = ", ".join(rare[:5]) + (", ..." if len(rare) > 5 else "")
    classes = "1 class" if len(rare) == 1 else f"{len(rare):,} classes"
    are = "is" if len(rare) == 1 else "are"
    note = f"{classes} with fewer than {least:,} samples {are} merged into {OTHER!r} ({shown})"
    return number[codes].astype(np.int32), tuple(places), note
