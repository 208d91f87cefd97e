"""What is printed for people: names are shown as they are, and no table is cut."""

import re
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from io import StringIO

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

# What a terminal obeys instead of showing it, what reorders or breaks a line, and what cannot be encoded.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_NARROWEST = 13  # characters: columns of names are not made narrower
_UNLIMITED = 1_000_000  # columns where output is not a terminal


def printable(text: str) -> str:
    r"""A name as one line of visible characters: control characters, line breaks too, become escapes.

    >>> print(printable("a\x1b[2Jb\nc [b]"))
    a\x1b[2Jb\nc [b]
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def console(*, stderr: bool = False, text: StringIO | None = None) -> Console:
    """A console that prints text as it is: no markup, no emoji codes, no colours by guess.

    Lines are wrapped between words on a terminal, but not in a file, a pipe or ``text``.
    """
    is_terminal = None if text is None else False  # None: whatever the stream is
    shown = Console(file=text, stderr=stderr, force_terminal=is_terminal, markup=False, emoji=False, highlight=False)
    shown.soft_wrap = not shown.is_terminal
    return shown


def print_table(table: Table, to: Console, *, names: int = 1) -> None:
    """Print a table so that nothing in it is cut.

    Files and pipes get it as wide as it is.  On a terminal that is too narrow for it, columns that may be wrapped
    (``no_wrap=False``) are wrapped; if that is not enough, the table is printed in blocks below each other, each with
    the columns of names.

    Parameters
    ----------
    table
        Its plain strings are text, whatever is in them (see :func:`printable`); give styled cells, and cells of several
        lines, as :class:`rich.text.Text`.
    to
        Of :func:`console`.
    names
        The number of columns, at the left, that name a row.
    """
    limit = to.width if to.is_terminal else _UNLIMITED
    table = _as_text(table)
    blocks = list(_blocks(table, to, names, limit))
    width = to.width
    for block in blocks:
        block.title = table.title if block is blocks[0] else None
        block.caption = table.caption if block is blocks[-1] else None
        to.width = max(min(limit, _width(block, to)), _width(_narrowed(block), to))
        to.print(block, crop=False, soft_wrap=False)
    to.width = width


def _as_text(table: Table) -> Table:
    shown = copy(table)
    shown.title, shown.caption = _lines(table.title), _lines(table.caption)
    shown.columns = [
        replace(
            column,
            header=_text(column.header),
            overflow="fold",
            _cells=[_text(cell) for cell in column.cells],
        )
        for column in table.columns
    ]
    return shown


def _text(cell: RenderableType) -> RenderableType:
    return Text(printable(cell)) if isinstance(cell, str) else cell


def _lines(text: str | Text | None) -> str | Text | None:
    return "\n".join(map(printable, text.split("\n"))) if isinstance(text, str) else text


def _blocks(table: Table, to: Console, names: int, limit: int) -> Iterator[Table]:
    """The table's columns of names with as many of the others as fit, until all have been shown."""
    named, rest = table.columns[:names], table.columns[names:]
    while True:
        fitting = max(1, len(rest))
        while fitting > 1 and _width(_narrowed(_with_columns(table, [*named, *rest[:fitting]])), to) > limit:
            fitting -= 1
        yield _with_columns(table, [*named, *rest[:fitting]])
        rest = rest[fitting:]
        if not rest:
            return


def _with_columns(table: Table, columns: Sequence[Column]) -> Table:
    part = copy(table)
    part.columns = [replace(column, _index=i) for i, column in enumerate(columns)]
    return part


def _narrowed(table: Table) -> Table:
    """The table with columns of names as narrow as they may get."""
    narrow = [each if each.no_wrap else replace(each, min_width=None, max_width=_NARROWEST) for each in table.columns]
    return _with_columns(table, narrow)


def _width(table: Table, to: Console) -> int:
    return Measurement.get(to, to.options.update(max_width=_UNLIMITED), table).maximum


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "client"), counted(1200, "client"), counted(2, "class")
    ('1 client', '1,200 clients', '2 classes')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
