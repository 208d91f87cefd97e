"""``clustpsi table``: the paper's tables from a store of runs."""

import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from clustpsi.cli.lists import Where
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.files import write_atomically
from clustpsi.report.runs import parse_filters, read_runs, select, write_runs
from clustpsi.report.sheet import FORMATS, Sheet, render

app = typer.Typer(
    help="Tables from a store of runs: the paper's two, tests of differences, what is in the clusters, and all runs."
)

Source = Annotated[Path, typer.Argument(help="Store: a folder of runs, or a CSV that `clustpsi table runs` wrote.")]
Format = Annotated[str, typer.Option(help=f"One of {', '.join(FORMATS)}.")]
Output = Annotated[Path | None, typer.Option(help="File to write.", show_default="standard output")]
Dataset = Annotated[str | None, typer.Option(help="Data sets, comma-separated.", show_default="all")]
NumClients = Annotated[int | None, typer.Option(help="K.", show_default="the largest in the store")]
CommRounds = Annotated[int | None, typer.Option(help="T, where runs differ in it.")]
AggMethod = Annotated[str | None, typer.Option(help="Methods, comma-separated, as in the store.", show_default="all")]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="Seeds asked for: cells with fewer are marked.", show_default="the most there are"),
]
Against = Annotated[str | None, typer.Option(help="paper: print the paper's value and the difference too.")]
Digits = Annotated[int, typer.Option(min=1, max=10, help="Digits after the point.")]


@app.command("global")
def global_accuracy(
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
    """Global accuracy of every method under every partition."""
    runs = _runs(source, dataset, comm_rounds, agg_method, where)
    _write([_score_table(runs, "global", num_clients, seeds, against, digits)], format, output)


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
    """Clients' distance from a perfect model (AD ± SDAD) of every method under every partition."""
    runs = _runs(source, dataset, comm_rounds, agg_method, where)
    _write([_score_table(runs, "local", num_clients, seeds, against, digits)], format, output)


@app.command("tests")
def significance(
    source: Source = Path("runs"),
    reference: Annotated[str, typer.Option(help="The method that is compared with every other.")] = "clust_psi_pfl",
    measure: Annotated[str, typer.Option(help="global (accuracy) or local (AD).")] = "global",
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
    from clustpsi.report.tables import MEASURES

    if measure not in MEASURES:
        raise unknown_name("measure", measure, MEASURES)
    runs = _runs(source, dataset, comm_rounds, agg_method, where)
    _write(difference_tables(runs, measure, reference, num_clients), format, output)


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
    """What is in the clusters: their number and majority classes, and how far constant answers would go."""
    from clustpsi.report.clusters import cluster_table

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
    """All runs as CSV, a row each: the store's compact form, which the other tables read too."""
    _put(write_runs(_runs(source, dataset, comm_rounds, agg_method, where)), output)


def _runs(
    source: Path, dataset: str | None, comm_rounds: int | None, agg_method: str | None, where: list[str] | None
) -> pd.DataFrame:
    runs, problems = read_runs(source)
    for problem in problems:
        print(problem, file=sys.stderr)
    filters = parse_filters(where or [])
    named = {"dataset": dataset, "comm_rounds": comm_rounds, "agg_method": agg_method}
    return select(runs, filters | {key: str(value) for key, value in named.items() if value is not None})


def _score_table(
    runs: pd.DataFrame, kind: str, num_clients: int | None, seeds: int | None, against: str | None, digits: int
) -> Sheet:
    from clustpsi.report.tables import score_table

    if against not in (None, "paper"):
        raise ClustPSIError(f"--against can be paper, not {against!r}")
    return score_table(
        runs, kind, num_clients=num_clients, seeds=seeds, against_paper=against == "paper", digits=digits
    )


def _write(sheets: list[Sheet] | tuple[Sheet, ...], format: str, output: Path | None) -> None:
    _put(render(sheets, format, color=output is None and sys.stdout.isatty()), output)


def _put(text: str, output: Path | None) -> None:
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, lambda file: file.write(text.encode()))
