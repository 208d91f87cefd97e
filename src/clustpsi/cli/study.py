"""``clustpsi study metrics``: which measure of skew is the most informative?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from clustpsi.cli.lists import joined, numbers, texts
from clustpsi.cli.notes import Quiet, notes
from clustpsi.experiments.study_axes import (
    CLASS_COUNTS,
    KNOWN_MEASURES,
    LEVELS,
    MEASURES,
    MODELS,
    NUM_CLIENTS,
    TARGETS,
)
from clustpsi.printing import console, counted, print_table, printable

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(no_args_is_help=True)


@app.callback()
def studies() -> None:
    """Studies on label counts, without any training of federated models."""


@app.command("metrics")
def metrics(
    dataset: Annotated[str, typer.Option(help="Data sets, comma-separated.")] = ",".join(CLASS_COUNTS),
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the data sets, whose class counts are then read from their labels.",
            show_default="the paper's data sets by their known class counts",
        ),
    ] = None,
    num_clients: Annotated[str, typer.Option(help="Numbers of clients.")] = joined(NUM_CLIENTS),
    alphas: Annotated[str, typer.Option(help="Values of alpha (Dirichlet).")] = joined(LEVELS["dirichlet"]),
    similarities: Annotated[str, typer.Option(help="Values of S (Similarity).")] = joined(LEVELS["similarity"]),
    seeds: Annotated[int, typer.Option(max=10_000, help="Partitions of each kind.")] = 20,
    measures: Annotated[str, typer.Option(help=f"Measures to compare, of {', '.join(KNOWN_MEASURES)}.")] = ",".join(
        MEASURES
    ),
    models: Annotated[str, typer.Option(help="Regressors.")] = ",".join(MODELS),
    held_out: Annotated[
        str,
        typer.Option(help="What the models do not see: seed (a quarter of the partitions) or dataset (each in turn)."),
    ] = "seed",
    output: Annotated[Path, typer.Option(help="Folder for the tables.")] = Path("study"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Draw the partitions again.")] = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Predict alpha and S from the measures of thousands of partitions, and rank the measures."""
    from clustpsi.experiments import (  # here, because pandas takes its time to load, and --help does not need it
        study,
        study_partitions,
    )

    told = notes(quiet)
    chosen, compared, names = texts("--models", models), texts("--measures", measures), texts("--dataset", dataset)
    study.check_analysis(chosen, compared, held_out, len(names))
    settings = study_partitions.StudySettings(
        {name: study_partitions.class_counts(name, data_dir) for name in names},
        numbers("--num-clients", num_clients, int),
        numbers("--alphas", alphas, float),
        numbers("--similarities", similarities, float),
        seeds,
    )
    with told.status("") as status:
        partitions = study_partitions.draw_partitions(
            settings, output, fresh=fresh, watch=lambda name: status.update(Text(f"partitions of {printable(name)}"))
        )
        found = study.analyse(
            partitions,
            models=chosen,
            measures=compared,
            held_out=held_out,
            watch=lambda what: status.update(f"regression: {what}"),
        )
    found.write(output)
    if as_json:
        tables = {name: getattr(found, name) for name in ("scores", "importances", "associations")}
        tables["ranking"] = found.ranking()
        records = {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()}
        print(json.dumps({"partitions": len(partitions), "held_out": held_out, **records}, indent=2))
        return
    shown = console()
    shown.print(f"{counted(len(partitions), 'partition')}; models judged on held-out {held_out}s")
    ranking = found.ranking()
    protocols = {target: protocol for protocol, targets in TARGETS.items() for target in targets}
    for target in ranking["target"].unique():
        title = f"{protocols[target]}: predict {target.replace('_', ' ')}"
        print_table(_table(title, ranking[ranking["target"] == target]), shown)
    shown.print(
        "importance: share of the permutation importance. R² lost: without this measure. Both and R² are held out,\n"
        "and means over the models. Spearman: with the level, over all partitions; within: mean over the data sets\n"
        "and numbers of clients; weakest: the weakest of them."
    )
    told.print(f"tables in {printable(str(output))}/", style="dim")


def _table(title: str, rows: "pd.DataFrame") -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    table.add_column("measure", no_wrap=True)
    headings = {
        "permutation": "importance",
        "alone": "R² alone",
        "loss_without": "R² lost",
        "spearman": "Spearman",
        "spearman_within": "within",
        "weakest_within": "weakest",
    }
    for heading in headings.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows.to_dict("records"):
        table.add_row(row["measure"], *(f"{row[key]:.3f}" for key in headings))
    return table
