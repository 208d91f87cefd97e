"""``clustpsi table``: tables from a store of runs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clustpsi.cli.lists import Where
from clustpsi.errors import ClustPSIError
from clustpsi.files import check_writable, write_atomically
from clustpsi.printing import console, printable
from clustpsi.report.sheet import FORMATS, Sheet, check_format, render, show

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(
    help="Tables from a store of runs: scores, tests of differences, costs, contents of clusters, all runs."
)

Source = Annotated[Path, typer.Argument(help="Store: a folder of runs, or a CSV file from `clustpsi table runs`.")]
Format = Annotated[str, typer.Option(help=f"One of {', '.join(FORMATS)}.")]
Output = Annotated[Path | None, typer.Option(help="File to write.", show_default="standard output")]
Dataset = Annotated[str | None, typer.Option(help="Data sets, comma-separated.", show_default="all")]
NumClients = Annotated[
    int | None, typer.Option(help="K, the number of clients.", show_default="the largest in the store")
]
CommRounds = Annotated[int | None, typer.Option(help="T, the number of rounds, if runs differ in it.")]
AggMethod = Annotated[str | None, typer.Option(help="Methods, comma-separated, as in the store.", show_default="all")]
Score = Annotated[
    str,
    typer.Option(
        help="Score of the last round: global_accuracy, balanced_accuracy, macro_f1, worst10, loss, ad or sdad."
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, help="Expected number of seeds: cells with fewer are marked.", show_default="the largest found"
    ),
]
Against = Annotated[str | None, typer.Option(help="paper: also print the paper's value and the difference.")]
Digits = Annotated[int, typer.Option(min=1, max=10, help="Digits after the point.")]


@app.command("global")
def global_score(
    source: Source = Path("runs"),
    score: Score = "global_accuracy",
    format: Format = "terminal",
    output: Output = None,
    dataset: Dataset = None,
    num_clients: NumClients = None,
    comm_rounds: CommRounds = None,
    agg_method: AggMethod = None,
    where: Where = None,
    seeds: Seeds = None,
    against: Against = None,
    digits: Digits = 2,
) -> None:
    """Global accuracy, or another score, of every method under every partition."""
    from clustpsi.report.tables import score_table

    against_paper = _check(source, format, output, against)
    runs = _runs(source, dataset, comm_rounds, agg_method, where)
    sheet = score_table(runs, score, num_clients=num_clients, seeds=seeds, against_paper=against_paper, digits=digits)
    _write([sheet], format, output)


@app.command("local")
def local_distance(
    source: Source = Path("runs"),
    format: Format = "terminal",
    output: Output = None,
    dataset: Dataset = None,
    num_clients: NumClients = None,
    comm_rounds: CommRounds = None,
    agg_method: AggMethod = None,
    where: Where = None,
    seeds: Seeds = None,
    against: Against = None,
    digits: Digits = 2,
) -> None:
    """Distance of clients from a perfect model (AD ± SDAD), for every method under every partition."""
    from clustpsi.report.tables import score_table

    against_paper = _check(source, format, output, against)
    runs = _runs(source, dataset, comm_rounds, agg_method, where)
    sheet = score_table(
        runs, "ad", spread="sdad", num_clients=num_clients, seeds=seeds, against_paper=against_paper, digits=digits
    )
    _write([sheet], format, output)


@app.command("tests")
def significance(
    source: Source = Path("runs"),
    reference: Annotated[str, typer.Option(help="The method that is compared with every other.")] = "clust_psi_pfl",
    score: Score = "global_accuracy",
    format: Format = "terminal",
    output: Output = None,
    dataset: Dataset = None,
    num_clients: NumClients = None,
    comm_rounds: CommRounds = None,
    agg_method: AggMethod = None,
    where: Where = None,
) -> None:
    """Which differences between a method and the others are real: paired tests over seeds."""
    from clustpsi.report.significance import difference_tables

    _check(source, format, output)
    runs = _runs(source, dataset, comm_rounds, agg_method, where)
    _write(difference_tables(runs, reference, score, num_clients=num_clients), format, output)


@app.command("best")
def best(
    source: Source = Path("runs"),
    reference: Annotated[str, typer.Option(help="The method that is compared with the best other.")] = "prior_pfl",
    score: Score = "global_accuracy",
    format: Format = "terminal",
    output: Output = None,
    dataset: Dataset = None,
    num_clients: NumClients = None,
    comm_rounds: CommRounds = None,
    agg_method: AggMethod = None,
    where: Where = None,
) -> None:
    """How far a method is from the best other one in every cell, and whether the difference is real."""
    from clustpsi.report.best import best_table

    _check(source, format, output)
    runs = _runs(source, dataset, comm_rounds, agg_method, where)
    _write([best_table(runs, reference, score, num_clients=num_clients)], format, output)


@app.command("effort")
def effort(
    source: Source = Path("runs"),
    format: Format = "terminal",
    output: Output = None,
    dataset: Dataset = None,
    num_clients: NumClients = None,
    comm_rounds: CommRounds = None,
    agg_method: AggMethod = None,
    where: Where = None,
) -> None:
    """What every method costs under every partition: clients that trained, and bytes sent."""
    from clustpsi.report.effort import effort_table

    _check(source, format, output)
    runs = _runs(source, dataset, comm_rounds, agg_method, where)
    _write([effort_table(runs, num_clients=num_clients)], format, output)


@app.command("clusters")
def clusters(
    source: Source = Path("runs"),
    format: Format = "terminal",
    output: Output = None,
    dataset: Dataset = None,
    num_clients: NumClients = None,
    comm_rounds: CommRounds = None,
    agg_method: AggMethod = None,
    where: Where = None,
) -> None:
    """Contents of the clusters: their number and majority classes, and what constant answers would score."""
    from clustpsi.report.clusters import cluster_table

    _check(source, format, output)
    runs = _runs(source, dataset, comm_rounds, agg_method, where)
    _write([cluster_table(runs, num_clients=num_clients)], format, output)


@app.command("runs")
def all_runs(
    source: Source = Path("runs"),
    output: Output = None,
    dataset: Dataset = None,
    comm_rounds: CommRounds = None,
    agg_method: AggMethod = None,
    where: Where = None,
) -> None:
    """All runs as CSV, one row each: the store's compact form, which the other tables read too."""
    from clustpsi.runs.frame import write_runs

    _check(source, "csv", output)
    _put(write_runs(_runs(source, dataset, comm_rounds, agg_method, where)), output)


def _check(source: Path, format: str, output: Path | None, against: str | None = None) -> bool:
    """Check the options before a large store is read; gives whether the paper's values are wanted."""
    check_format(format)
    if output is not None:
        from clustpsi.runs.store import inputs_beside  # imported here: pandas is slow to load

        check_writable(output, inputs_beside(source, output))
    if against not in (None, "paper"):
        raise ClustPSIError(f"--against can be paper, not {against!r}")
    return against == "paper"


def _runs(
    source: Path, dataset: str | None, comm_rounds: int | None, agg_method: str | None, where: list[str] | None
) -> "pd.DataFrame":
    from clustpsi.runs.frame import parse_filters, read_runs, select

    filters = parse_filters(where or [])
    named = {"dataset": dataset, "comm_rounds": comm_rounds, "agg_method": agg_method}
    runs, problems = read_runs(source)
    for problem in problems:
        print(printable(problem), file=sys.stderr)
    return select(runs, filters | {key: str(value) for key, value in named.items() if value is not None})


def _write(sheets: list[Sheet] | tuple[Sheet, ...], format: str, output: Path | None) -> None:
    if format == "terminal" and output is None:
        show(sheets, console())
    else:
        _put(render(sheets, format), output)


def _put(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, lambda file: file.write(text.encode()))
