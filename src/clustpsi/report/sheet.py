"""Printed tables: one description, four formats.

All names and cells are plain text: this module escapes what LaTeX, Markdown or a terminal would interpret.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clustpsi.errors import unknown_name
from clustpsi.printing import console, print_table, printable

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("terminal", "markdown", "latex", "csv")


@dataclass(frozen=True)
class Entry:
    """A cell: its lines, and whether they are bold."""

    lines: tuple[str, ...] = ("",)
    bold: bool = False


@dataclass(frozen=True)
class Line:
    """A row: its name and its cells, or a single cell for all columns."""

    name: str
    entries: tuple[Entry, ...]
    spans: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table with rows in named sections.

    ``frame`` has the same numbers unrounded, one row per cell, for the CSV format.
    """

    title: str
    headings: tuple[str, ...]
    sections: Sequence[tuple[str, Sequence[Line]]]
    frame: "pd.DataFrame"
    notes: Sequence[str] = field(default=())
    corner: tuple[str, str] = ("dataset", "method")


def render(sheets: Sequence[Sheet], format: str) -> str:
    """The tables as text in one of :data:`FORMATS`."""
    check_format(format)
    if format == "csv":
        return "\n".join(sheet.frame.to_csv(index=False, lineterminator="\n") for sheet in sheets)
    if format == "terminal":
        text = io.StringIO()
        show(sheets, console(text=text))
        return text.getvalue()
    return "\n".join((_markdown if format == "markdown" else _latex)(sheet) for sheet in sheets)


def check_format(format: str) -> None:
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)


def show(sheets: Sequence[Sheet], to: Console) -> None:
    """Print the tables on a :func:`clustpsi.printing.console`."""
    for sheet in sheets:
        table = Table(*sheet.corner, box=box.SIMPLE, pad_edge=False)
        for heading in sheet.headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for name, lines in sheet.sections:
            for i, line in enumerate(lines):
                cells = [
                    Text("\n".join(map(printable, entry.lines)), style="bold" if entry.bold else "")
                    for entry in _cells(sheet, line)
                ]
                table.add_row(name if i == 0 else "", line.name, *cells, end_section=line is lines[-1])
        to.print(printable(sheet.title), style="bold")
        print_table(table, to, names=len(sheet.corner))
        for note in sheet.notes:
            to.print(printable(note))


def _cells(sheet: Sheet, line: Line) -> list[Entry]:
    """One cell per column."""
    return list(line.entries) * len(sheet.headings) if line.spans else list(line.entries)


def _markdown(sheet: Sheet) -> str:
    rows = [f"**{_md(sheet.title)}**", "", "| " + " | ".join(map(_md, [*sheet.corner, *sheet.headings])) + " |"]
    rows.append("|---|---|" + "---:|" * len(sheet.headings))
    for name, lines in sheet.sections:
        for i, line in enumerate(lines):
            cells = [
                "<br>".join(
                    f"**{_md(text)}**" if entry.bold and j == 0 else _md(text) for j, text in enumerate(entry.lines)
                )
                for entry in _cells(sheet, line)
            ]
            rows.append("| " + " | ".join([_md(name) if i == 0 else "", _md(line.name), *cells]) + " |")
    return "\n".join([*rows, *(f"\n{_md(note)}" for note in sheet.notes)]) + "\n"


def _md(text: str) -> str:
    r"""Text for GitHub's Markdown; characters without a special meaning in their place, as in psi_features, stay.

    >>> print(_md("a|b *c* <d> p < 0.05 psi_features _e_ [f](g)"))
    a\|b \*c\* \<d> p < 0.05 psi_features \_e\_ \[f\](g)
    """
    return re.sub(r"[\\|*`\[\]~&$]|^[#>]|<(?=\S)|(?<!\w)_|_(?!\w)", r"\\\g<0>", printable(text))


def _latex(sheet: Sheet) -> str:
    """A table environment; it needs the packages graphicx, makecell and multirow."""
    columns = len(sheet.headings)
    rows = [
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{_tex('. '.join([sheet.title, *sheet.notes]))}.}}",
        r"\resizebox{\textwidth}{!}{",
        rf"\begin{{tabular}}{{ll{'c' * columns}}}",
        r"\hline",
        " & ".join(rf"\textbf{{{_tex(heading)}}}" for heading in (*sheet.corner, *sheet.headings)) + r" \\ \hline",
    ]
    for name, lines in sheet.sections:
        for i, line in enumerate(lines):
            first = rf"\multirow{{{len(lines)}}}{{*}}{{{_tex(name)}}}" if i == 0 else ""
            cells = [_tex_cell(entry) for entry in line.entries]
            if line.spans:
                cells = [rf"\multicolumn{{{columns}}}{{c}}{{{cells[0]}}}"]
            end = r" \\ \hline" if line is lines[-1] else r" \\"
            rows.append(" & ".join([first, _tex(line.name), *cells]) + end)
    return "\n".join([*rows, r"\end{tabular}", "}", r"\end{table*}"]) + "\n"


def _tex_cell(entry: Entry) -> str:
    lines = [_tex(line) for line in entry.lines]
    if entry.bold:
        lines[0] = rf"\textbf{{{lines[0]}}}"
    return lines[0] if len(lines) == 1 else r"\makecell{" + r" \\ ".join(lines) + "}"


_TEX = str.maketrans(
    {
        **{special: f"\\{special}" for special in "%&_#${}"},
        **{symbol: f"${symbol}$" for symbol in "<>|"},
        **{bracket: f"{{{bracket}}}" for bracket in "[]"},  # after the end of a line they would start an option
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "α": r"$\alpha$",
        "†": r"$^\dagger$",
    }
)


def _tex(text: str) -> str:
    r"""Text for LaTeX.

    >>> print(_tex(r"α=0.3: 50 % ± 1 † \{a_b}"))
    $\alpha$=0.3: 50 \% $\pm$ 1 $^\dagger$ \textbackslash{}\{a\_b\}
    """
    return printable(text).translate(_TEX)
