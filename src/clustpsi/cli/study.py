"""``clustpsi study``: which measure of skew is the most informative, and which kind of method suits which skew."""

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
    MEASURES,
    MODELS,
    NUM_CLIENTS,
    STUDY_LEVELS,
    TARGETS,
)
from clustpsi.printing import console, counted, print_table, printable

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(no_args_is_help=True)


@app.callback()
def studies() -> None:
    """Studies: how informative measures of skew are, and what finished runs tell about new federations."""


@app.command("metrics")
def metrics(
    dataset: Annotated[str, typer.Option(help="Data sets, comma-separated.")] = ",".join(CLASS_COUNTS),
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the data sets, whose class counts are then read from their labels.",
            show_default="none: the known class counts of the paper's data sets",
        ),
    ] = None,
    num_clients: Annotated[str, typer.Option(help="Numbers of clients, comma-separated.")] = joined(NUM_CLIENTS),
    alphas: Annotated[str, typer.Option(help="Values of alpha (Dirichlet).")] = joined(STUDY_LEVELS["dirichlet"]),
    similarities: Annotated[str, typer.Option(help="Values of S (Similarity).")] = joined(STUDY_LEVELS["similarity"]),
    seeds: Annotated[int, typer.Option(max=10_000, help="Partitions of each kind.")] = 20,
    measures: Annotated[str, typer.Option(help=f"Measures to compare, of {', '.join(KNOWN_MEASURES)}.")] = ",".join(
        MEASURES
    ),
    models: Annotated[str, typer.Option(help="Regressors.")] = ",".join(MODELS),
    held_out: Annotated[
        str,
        typer.Option(
            help="What is held out for testing: seed (a quarter of the partitions) or dataset (each in turn)."
        ),
    ] = "seed",
    output: Annotated[Path, typer.Option(help="Folder for the tables.")] = Path("study"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Draw the partitions again.")] = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Predict alpha and S from the measures of thousands of partitions, and rank the measures."""
    from clustpsi.experiments import (  # imported here: pandas is slow to load, and --help does not need it
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


@app.command("advice")
def advice(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Stores of runs, or CSV files from `clustpsi table runs`, with several data sets.",
            show_default="the published runs",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="JSON file for what was learned.", show_default="none")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was learned as JSON.")] = False,
) -> None:
    """Learn which kind of method suits a federation, and test that on data sets that were left out."""
    from clustpsi.experiments import advice as study
    from clustpsi.files import check_writable
    from clustpsi.recorded import COMPARISONS, recorded_runs
    from clustpsi.runs.frame import read_runs
    from clustpsi.runs.store import inputs_beside, write_json

    if output is not None:
        check_writable(output, [path for source in sources or () for path in inputs_beside(source, output)])
    stores = [read_runs(source)[0] for source in sources] if sources else map(recorded_runs, COMPARISONS)
    learned = study.learn(*study.find_cells(stores))
    if output is not None:
        write_json(output, learned.as_dict())
    if as_json:
        print(json.dumps(learned.as_dict() | {"helps": learned.helps}, indent=2))
        return
    shown = console()
    shown.print(f"{counted(len(learned.cells), 'cell')} of {counted(len(learned.datasets), 'data set')}")
    rules = Table(title="the rule", title_justify="left", box=box.SIMPLE)
    for heading in ("learned from", "looks at", "limit", "below it", "above it"):
        rules.add_column(heading, no_wrap=heading == "limit")
    without = [f"all but {name}" for name in learned.datasets]
    for name, rule in zip(["all", *without], [learned.rule, *learned.rules], strict=True):
        limit = "" if rule.measure is None else f"{rule.limit:.3f}"
        rules.add_row(name, rule.measure or "nothing", limit, rule.below, rule.above)
    print_table(rules, shown)
    judged = Table(title="on data sets that were left out", title_justify="left", box=box.SIMPLE)
    judged.add_column("choice")
    for name, size in zip(learned.datasets, learned.sizes, strict=True):
        judged.add_column(f"{name} ({size})", justify="right", no_wrap=True)
    judged.add_column("as good as the best", justify="right", no_wrap=True)
    judged.add_column("mean loss", justify="right", no_wrap=True)
    for who, each in learned.judged.items():
        cells = [f"{near} ({loss:.4f})" for near, loss in zip(each.near, each.loss, strict=True)]
        total = f"{learned.near(who)} of {sum(learned.sizes)}"
        judged.add_row("the rule" if who == "rule" else f"always {who}", *cells, total, f"{learned.loss(who):.4f}")
    print_table(judged, shown)
    shown.print(f"Cells in which the choice loses at most {study.NEAR} to the best of {', '.join(learned.methods)};")
    shown.print("in brackets the mean accuracy that it gives away; beside a data set, its number of cells.")
    verdict = "better than" if learned.helps else "no better than"
    shown.print(f"The rule is {verdict} always naming one method.")


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
