"""``clustpsi figure``: the paper's figures and others, as PDF, SVG or PNG."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from clustpsi.cli.lists import Where, numbers, parse_seeds
from clustpsi.cli.notes import Quiet, notes
from clustpsi.cli.options import config_options, with_options
from clustpsi.printing import console, print_table, printable
from clustpsi.runs.config import Config


def command(
    name: Annotated[str | None, typer.Argument(help="Which figure; without a name, all are listed.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set.", show_default="digits; for runs, the only one in the store")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="CLUSTPSI_DATA", help="Folder with the data sets.", show_default="the user's cache"),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder of runs (or a CSV of them), for figures made from runs.", show_default="runs"),
    ] = None,
    where: Where = None,
    score: Annotated[
        str | None,
        typer.Option(
            help="What the figures rounds and accuracy-... show: a column of rounds.csv, such as ad, worst10 or loss.",
            show_default="global_accuracy",
        ),
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help="Folder of a study, for the figure of importances.", show_default="study")
    ] = None,
    num_clients: Annotated[
        str | None, typer.Option(help="Numbers of clients, comma-separated.", show_default="the figure's own")
    ] = None,
    alphas: Annotated[
        str | None, typer.Option(help="Values of alpha (Dirichlet).", show_default="the figure's own")
    ] = None,
    similarities: Annotated[
        str | None, typer.Option(help="Values of S (Similarity).", show_default="the figure's own")
    ] = None,
    seeds_list: Annotated[
        str | None, typer.Option(help="Seeds, comma-separated.", show_default="42,0,1,2,3; for runs, all")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File: .pdf, .svg or .png; its data is written beside it, into a CSV of the same name.",
            show_default="NAME.pdf; data in NAME.csv",
        ),
    ] = None,
    quiet: Quiet = False,
    **reading: Any,
) -> None:
    """Draw a figure, and write its data beside it as CSV."""
    from clustpsi.report import figures  # imported here: --help needs neither SciPy nor scikit-learn
    from clustpsi.runs.frame import parse_filters

    told = notes(quiet)
    if name is None:
        table = Table("figure", "made from", "shows")
        for key, kind in figures.FIGURES.items():
            table.add_row(key, kind.needs, kind.shows)
        print_table(table, console())
        return
    path = Path(f"{name}.pdf") if output is None else output
    request = figures.Request(
        dataset=dataset,
        data_dir=data_dir,
        reading=Config(dataset=dataset or "digits", **reading).checked().reading,
        num_clients=None if num_clients is None else numbers("--num-clients", num_clients, int),
        alphas=None if alphas is None else numbers("--alphas", alphas, float),
        similarities=None if similarities is None else numbers("--similarities", similarities, float),
        seeds=None if seeds_list is None else parse_seeds(seeds_list),
        runs=runs,
        where=parse_filters(where or []),
        score=score,
        study=study,
    )
    figures.check_request(name, request, path)
    with told.status(f"drawing {name}"):
        drawing = figures.draw(name, request)
    data = drawing.write(path)
    for note in drawing.notes:
        told.print(printable(note), style="dim")
    for written in (path, data):
        print(printable(str(written)))


with_options(command, [each for each in config_options() if each.name in Config().reading])
