"""Printed tables: one description, four formats."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clustpsi.errors import unknown_name

FORMATS = ("terminal", "markdown", "latex", "csv")


@dataclass(frozen=True)
class Entry:
    """A cell: its lines, and whether they stand out."""

    lines: tuple[str, ...] = ("",)
    bold: bool = False


@dataclass(frozen=True)
class Line:
    """A row: its name and its cells; or a single cell that holds for all columns."""

    name: str
    entries: tuple[Entry, ...]
    spans: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table with rows in named sections.

    ``frame`` has the same figures unrounded, a row a cell: it is what the CSV format gives.
    """

    title: str
    headings: tuple[str, ...]
    sections: Sequence[tuple[str, Sequence[Line]]]
    frame: pd.DataFrame
    notes: Sequence[str] = field(default=())
    corner: tuple[str, str] = ("dataset", "method")


def render(sheets: Sequence[Sheet], format: str, *, width: int | None = None, color: bool = False) -> str:
    """The tables as text in one of :data:`FORMATS`."""
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    if format == "csv":
        return "\n".join(sheet.frame.to_csv(index=False, lineterminator="\n") for sheet in sheets)
    if format == "terminal":
        return _terminal(sheets, width, color)
    return "\n".join((_markdown if format == "markdown" else _latex)(sheet) for sheet in sheets)


def _cells(sheet: Sheet, line: Line) -> list[Entry]:
    """A cell for each column."""
    return list(line.entries) * len(sheet.headings) if line.spans else list(line.entries)


def _terminal(sheets: Sequence[Sheet], width: int | None, color: bool) -> str:
    text = io.StringIO()
    console = Console(file=text, width=width or 200, force_terminal=color, highlight=False, legacy_windows=False)
    for sheet in sheets:
        table = Table(box=box.SIMPLE, pad_edge=False)
        for heading in sheet.corner:
            table.add_column(heading, no_wrap=True)
        for heading in sheet.headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for name, lines in sheet.sections:
            for i, line in enumerate(lines):
                cells = [
                    Text("\n".join(entry.lines), style="bold" if entry.bold else "") for entry in _cells(sheet, line)
                ]
                table.add_row(name if i == 0 else "", line.name, *cells, end_section=line is lines[-1])
        console.print(sheet.title, style="bold", markup=False)
        console.print(table)
        for note in sheet.notes:
            console.print(note, markup=False)
    return text.getvalue()


def _markdown(sheet: Sheet) -> str:
    rows = [f"**{sheet.title}**", "", "| " + " | ".join([*sheet.corner, *sheet.headings]) + " |"]
    rows.append("|---|---|" + "---:|" * len(sheet.headings))
    for name, lines in sheet.sections:
        for i, line in enumerate(lines):
            cells = [
                "<br>".join(f"**{text}**" if entry.bold and j == 0 else text for j, text in enumerate(entry.lines))
                for entry in _cells(sheet, line)
            ]
            rows.append("| " + " | ".join([name if i == 0 else "", line.name, *cells]) + " |")
    return "\n".join([*rows, *(f"\n{note}" for note in sheet.notes)]) + "\n"


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


def _tex(text: str) -> str:
    """Text for LaTeX.

    >>> print(_tex("α=0.3: 50 % ± 1 †"))
    $\\alpha$=0.3: 50 \\% $\\pm$ 1 $^\\dagger$
    """
    text = re.sub(r"([%&_#$])", r"\\\1", text)
    for symbol, command in (("±", r"$\pm$"), ("α", r"$\alpha$"), ("†", r"$^\dagger$"), ("<", "$<$"), ("|", r"$|$")):
        text = text.replace(symbol, command)
    return text
