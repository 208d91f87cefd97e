"""``clustpsi diagnose``: how skewed is a federation, and which clients belong together?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clustpsi.cli.options import config_options, with_options
from clustpsi.printing import console, counted, print_table, printable
from clustpsi.runs.config import column_names

if TYPE_CHECKING:
    from clustpsi.diagnosis import Diagnosis

STYLE = {"none": "green", "moderate": "yellow", "major": "red"}
SHIFT = {"none": "no significant shift", "moderate": "moderate shift", "major": "major shift"}
READING = ("drop", "drop_unlabelled", "min_class", "sep", "no_header")  # options that run has as well
SHOWN = 50  # clients in the terminal; --json has them all
WEAK = 0.25  # silhouette below which Kaufman and Rousseeuw (1990) see no substantial structure


def command(
    *,
    file: Annotated[
        Path,
        typer.Argument(
            help="Table of label counts, one row per client; or, with --label and --client, one row per sample."
        ),
    ],
    label: Annotated[str | None, typer.Option(help="Column with the label, where each row is a sample.")] = None,
    client: Annotated[str | None, typer.Option(help="Column that names the client.")] = None,
    tau_clusters: Annotated[
        int | None,
        typer.Option(min=1, max=10_000_000, help="Number of clusters.", show_default="the best silhouette decides"),
    ] = None,
    psi_features: Annotated[str, typer.Option(help="Client descriptor: psi (the paper's) or signed.")] = "psi",
    psi_smoothing: Annotated[
        str, typer.Option(help="What replaces zero shares in PSI: additive, clip or laplace.")
    ] = "additive",
    psi_epsilon: Annotated[
        float | None, typer.Option(help="Strength of the smoothing.", show_default="the smoothing's own")
    ] = None,
    psi_search: Annotated[
        str,
        typer.Option(
            help="K-means solution: best (best silhouette within 2 % of the lowest inertia) or plain (the paper's)."
        ),
    ] = "best",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of K-means++.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    **reading: Any,
) -> None:
    """Measure the label skew of a federation, name the classes that drive it, and cluster its clients."""
    from clustpsi.diagnosis import diagnose

    options: dict[str, Any] = {
        "features": psi_features,
        "smoothing": psi_smoothing,
        "epsilon": psi_epsilon,
        "search": psi_search,
        "random_state": seed,
        "n_clusters": "auto" if tau_clusters is None else tau_clusters,
    }
    reading["drop"] = column_names(reading["drop"])
    report = diagnose(file, label=label, client=client, **reading, **options)
    if as_json:
        print(json.dumps(report.as_dict() | {"advice": advice(report)}, indent=2))
    else:
        _print(report, console())


with_options(command, [each for each in config_options() if each.name in READING])


def _print(report: "Diagnosis", to: Console) -> None:
    from clustpsi.diagnosis import band

    clients, classes = len(report.client_names), len(report.class_names)
    to.print(f"{counted(clients, 'client')}, {counted(classes, 'class')}, {counted(report.counts.sum(), 'sample')}")
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
    for text in advice(report):
        to.print(f"note: {text}", style="yellow")


def advice(report: "Diagnosis") -> list[str]:
    """What speaks against taking the clusters at face value, a sentence each."""
    clustering, found = report.clustering, []
    score = clustering.silhouette_scores_.get(clustering.n_clusters_)
    if score is not None and score < WEAK:
        found.append(
            f"a silhouette of {score:.3f} is weak (below {WEAK}: no substantial structure, after Kaufman and "
            "Rousseeuw), so the clusters may be chance"
        )
    alone = int((np.bincount(clustering.labels_) == 1).sum())
    if alone and clustering.n_clusters_ > 1:
        have = "has" if alone == 1 else "have"
        found.append(
            f"{counted(alone, 'cluster')} of {clustering.n_clusters_} {have} a single client, which would train alone"
        )
    return found
