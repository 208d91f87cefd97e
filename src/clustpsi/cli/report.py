"""``clustpsi report``: a report on runs, as one HTML file; and the option ``--report`` of other commands."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from clustpsi.cli.lists import Where
from clustpsi.cli.notes import Quiet, notes
from clustpsi.printing import printable

DEFAULT = "report.html"
SUFFIXES = (".html", ".htm")

Report = Annotated[
    Path | None,
    typer.Option(
        metavar="[FILE]",
        help=f"Also write a report, an HTML file for a browser; without a name: {DEFAULT}.",
        show_default="no report",
    ),
]


def with_file(arguments: Sequence[str]) -> list[str]:
    """The same arguments, with a file for a ``--report`` without one; only the name of an HTML file counts as a file.

    >>> with_file(["run", "--report", "--quiet"]), with_file(["diagnose", "--report", "counts.csv"])
    (['run', '--report', 'report.html', '--quiet'], ['diagnose', '--report', 'report.html', 'counts.csv'])
    >>> with_file(["run", "--report", "mine.html"])
    ['run', '--report', 'mine.html']
    """
    completed: list[str] = []
    for i, each in enumerate(arguments):
        completed.append(each)
        if each == "--report" and not (i + 1 < len(arguments) and arguments[i + 1].lower().endswith(SUFFIXES)):
            completed.append(DEFAULT)
    return completed


def repeated(context: typer.Context, *left_out: str) -> str:
    """The command line as the user gave it, without some of its options."""
    words = context.command_path.split()
    for each in context.command.params:
        source = context.get_parameter_source(each.name or "")
        if source is None or source.name != "COMMANDLINE" or each.name in left_out:
            continue
        value = context.params[each.name or ""]
        flag = [] if each.param_type_name == "argument" else [max(each.opts, key=len)]
        words += flag if value is True else [*flag, str(value)]
    return shlex.join(words)


def command(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUNS...", help="Folders of runs, or run folders.", show_default="runs"),
    ] = None,
    output: Annotated[Path, typer.Option(help="The HTML file.")] = Path(DEFAULT),
    where: Where = None,
    quiet: Quiet = False,
) -> None:
    """Write a report on runs: one HTML file that opens in any browser, without a network.

    It shows the federation, what drives its skew, its clusters, how methods train, which clients they serve badly,
    which differences between methods are real, and what the methods cost.
    """
    from clustpsi.report.page import check_output
    from clustpsi.runs.frame import parse_filters

    told = notes(quiet)
    filters = parse_filters(where or [])
    check_output(output)
    write(sources or [Path("runs")], output, told, filters)


def write(sources: Sequence[Path], output: Path, told: Console, filters: dict[str, str] | None = None) -> None:
    """Write the report on runs and print where it is."""
    from clustpsi.report.cells import find_cells, find_runs
    from clustpsi.report.page import run_report, write_report
    from clustpsi.runs.frame import select

    with told.status("report") as status:
        runs, left_out = find_runs(sources)
        cells = find_cells(select(runs, filters or {}))
        status.update("report: charts")
        write_report(output, run_report(cells, left_out))
    for note in left_out:
        told.print(f"note: {printable(note)}", style="yellow")
    told.print(printable(f"report in {output}"), style="dim")
