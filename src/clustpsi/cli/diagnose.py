"""``clustpsi diagnose``: how skewed a federation is, and which clients belong together."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clustpsi.cli.notes import Quiet, notes
from clustpsi.cli.options import config_options, with_options
from clustpsi.cli.report import Report, repeated
from clustpsi.datasets.files import user_path
from clustpsi.presets import DEFAULT_CLUSTERING
from clustpsi.printing import console, counted, print_table, printable
from clustpsi.runs.config import column_names

if TYPE_CHECKING:
    from clustpsi.diagnosis import Diagnosis
    from clustpsi.report.advice import Advice

STYLE = {"none": "green", "moderate": "yellow", "major": "red"}
SHIFT = {"none": "no significant shift", "moderate": "moderate shift", "major": "major shift"}
READING = ("drop", "drop_unlabelled", "min_class", "sep", "no_header")  # options that `clustpsi run` has too
SHOWN = 50  # clients in the terminal; --json has them all


def command(
    *,
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="Table of label counts, one row per client; or, with --label and --client, one row per sample."
        ),
    ],
    label: Annotated[str | None, typer.Option(help="Column with the label, if each row is a sample.")] = None,
    client: Annotated[str | None, typer.Option(help="Column that names the client.")] = None,
    tau_clusters: Annotated[
        int | None,
        typer.Option(min=1, max=10_000_000, help="Number of clusters.", show_default="the best silhouette decides"),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="Defaults of the options below: robust (signed, laplace, and one cluster if WPSI is less than 0.1 "
            "above chance or there are no clear groups) or paper (psi, additive, always clusters)."
        ),
    ] = DEFAULT_CLUSTERING,
    psi_features: Annotated[
        str | None, typer.Option(help="Client descriptor: psi or signed.", show_default="the preset's")
    ] = None,
    psi_smoothing: Annotated[
        str | None,
        typer.Option(help="What replaces zero shares in PSI: additive, clip or laplace.", show_default="the preset's"),
    ] = None,
    psi_epsilon: Annotated[
        float | None, typer.Option(help="Strength of the smoothing.", show_default="the smoothing's own")
    ] = None,
    psi_search: Annotated[
        str,
        typer.Option(
            help="K-means solution: best (best silhouette within 2 % of the lowest inertia) or plain (the paper's)."
        ),
    ] = "best",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of K-means++.")] = 0,
    report: Report = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    **reading: Any,
) -> None:
    """Measure the label skew of a federation, name the classes that drive it, and cluster its clients."""
    from clustpsi.diagnosis import diagnose
    from clustpsi.report.advice import advise

    told = notes(quiet)
    if report is not None:
        from clustpsi.report.page import check_output

        check_output(report, [user_path(file)])

    said = {"features": psi_features, "smoothing": psi_smoothing}
    options: dict[str, Any] = {
        **{key: value for key, value in said.items() if value is not None},
        "preset": preset,
        "epsilon": psi_epsilon,
        "search": psi_search,
        "random_state": seed,
        "n_clusters": "auto" if tau_clusters is None else tau_clusters,
    }
    reading["drop"] = column_names(reading["drop"])
    found = diagnose(file, label=label, client=client, **reading, **options)
    advice = advise(found.counts)
    if as_json:
        told_all = {"cautions": found.cautions(), "advice": {"method": advice.method, "text": advice.sentences}}
        print(json.dumps(found.as_dict() | told_all, indent=2))
    else:
        _print(found, console())
        _print_advice(advice, console())
    if report is not None:
        from clustpsi.report.page import skew_report, write_report

        options["features"] = found.other_features
        other = diagnose(found.counts, found.client_names, found.class_names, **options)
        write_report(report, skew_report(found, other, file.name, repeated(context, "report", "quiet", "as_json")))
        told.print(printable(f"report in {report}"), style="dim")


with_options(command, [each for each in config_options() if each.name in READING])


def _print_advice(advice: "Advice", to: Console) -> None:
    to.print("\nWhat to do", style="bold")
    for sentence in advice.sentences:
        to.print(printable(sentence))
    to.print(printable(advice.source), style="dim")


def _print(report: "Diagnosis", to: Console) -> None:
    from clustpsi.diagnosis import band

    clients, classes = len(report.client_names), len(report.class_names)
    to.print(f"{counted(clients, 'client')}, {counted(classes, 'class')}, {counted(report.counts.sum(), 'sample')}")
    other = "paper" if report.preset == "robust" else "robust"
    to.print(f"{report.settings} (--preset {other} for the other)")
    wpsi = report.measures["wpsi"]
    shift = band(wpsi)
    to.print(
        Text.assemble(
            "WPSI ",
            (f"{wpsi:.4f}", f"bold {STYLE[shift]}"),
            f": {SHIFT[shift]} (below 0.1: none, to 0.25: moderate, above: major)\n",
        )
    )
    _print_measures(report, to)
    _print_clients(report, to)
    _print_clusters(report, to)


def _print_measures(report: "Diagnosis", to: Console) -> None:
    measures = Table("measure", title="skew of the federation", title_justify="left")
    measures.add_column("value", justify="right", no_wrap=True)
    for key, value in report.measures.items():
        measures.add_row(key, f"{value:.4f}")
    print_table(measures, to)
    shares = Table("class", title="classes that drive it", title_justify="left")
    shares.add_column("share of WPSI", justify="right", no_wrap=True)
    for c in np.argsort(-report.class_shares, kind="stable")[:10]:
        shares.add_row(report.class_names[c], f"{report.class_shares[c]:.1%}")
    print_table(shares, to)


def _print_clients(report: "Diagnosis", to: Console) -> None:
    table = Table("client", title="clients", title_justify="left")
    for heading in ("samples", "PSI"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("shift", "cluster"):
        table.add_column(heading, no_wrap=True)
    table.add_column("drivers (+ too much, - too little)")
    shown: Any = report.clients().head(SHOWN).itertuples()
    for row in shown:
        shift = Text(row.shift, style=STYLE[row.shift])
        table.add_row(row.client, f"{row.samples:,}", f"{row.psi:.4f}", shift, str(row.cluster), row.drivers)
    print_table(table, to)
    if len(report.client_names) > SHOWN:
        to.print(f"... and {len(report.client_names) - SHOWN:,} more (--json has them all)")


def _print_clusters(report: "Diagnosis", to: Console) -> None:
    clustering = report.clustering
    score = clustering.silhouette_scores_.get(clustering.n_clusters_)
    told = "" if score is None else f", silhouette {score:.3f}"
    to.print(Text.assemble("\n", (counted(clustering.n_clusters_, "cluster"), "bold"), told))
    for c in range(clustering.n_clusters_):
        members = [name for name, own in zip(report.client_names, clustering.labels_, strict=True) if own == c]
        mix = report.counts[clustering.labels_ == c].sum(axis=0)
        top = ", ".join(
            f"{report.class_names[k]} {mix[k] / mix.sum():.0%}" for k in np.argsort(-mix, kind="stable")[:3] if mix[k]
        )
        named = f"{' '.join(members[:20])}{' ...' if len(members) > 20 else ''}"
        to.print(printable(f"  {c}: {counted(len(members), 'client')} ({top}): {named}"))
    for text in report.cautions():
        to.print(f"note: {text}", style="yellow")
