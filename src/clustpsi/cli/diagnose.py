"""``clustpsi diagnose``: how skewed is a federation, and which clients belong together?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from clustpsi.cli.options import config_options, with_options
from clustpsi.config import column_names

if TYPE_CHECKING:
    from clustpsi.diagnosis import Diagnosis

STYLE = {"none": "green", "moderate": "yellow", "major": "red"}
READING = ("drop", "drop_unlabelled", "min_class", "sep", "no_header")  # options that run has as well
SHOWN = 50  # clients in the terminal; --json has them all


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
        int | None, typer.Option(help="Number of clusters.", show_default="the best silhouette decides")
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
    seed: Annotated[int, typer.Option(min=0, help="Of K-means++.")] = 0,
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
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _print(report, Console())


with_options(command, [each for each in config_options() if each.name in READING])


def _print(report: "Diagnosis", console: Console) -> None:
    from clustpsi.diagnosis import band

    wpsi = report.measures["wpsi"]
    shift = band(wpsi)
    console.print(
        f"{len(report.client_names):,} clients, {len(report.class_names)} classes, {report.counts.sum():,} samples"
    )
    shown = "no" if shift == "none" else shift
    console.print(
        f"WPSI [bold {STYLE[shift]}]{wpsi:.4f}[/]: {shown} shift (below 0.1: none, to 0.25: moderate, above: major)\n"
    )
    measures = Table("measure", title="skew of the federation", title_justify="left")
    measures.add_column("value", justify="right")
    for key, value in report.measures.items():
        measures.add_row(key, f"{value:.4f}")
    console.print(measures)
    shares = Table("class", title="classes that drive it", title_justify="left")
    shares.add_column("share of WPSI", justify="right")
    for c in np.argsort(-report.class_shares, kind="stable")[:10]:
        shares.add_row(report.class_names[c], f"{report.class_shares[c]:.1%}")
    console.print(shares)
    table = Table("client", title="clients", title_justify="left")
    for heading in ("samples", "PSI"):
        table.add_column(heading, justify="right")
    for heading in ("shift", "cluster", "drivers (+ too much, - too little)"):
        table.add_column(heading)
    rows: Any = report.clients().head(SHOWN).itertuples()
    for row in rows:
        table.add_row(
            row.client,
            f"{row.samples:,}",
            f"{row.psi:.4f}",
            f"[{STYLE[row.shift]}]{row.shift}[/]",
            str(row.cluster),
            row.drivers,
        )
    console.print(table)
    if len(report.client_names) > SHOWN:
        console.print(f"... and {len(report.client_names) - SHOWN:,} more (--json has them all)")
    scores = report.clustering.silhouette_scores_
    best = (
        f", silhouette {scores[report.clustering.n_clusters_]:.3f}" if report.clustering.n_clusters_ in scores else ""
    )
    console.print(f"\n[bold]{_count(report.clustering.n_clusters_, 'cluster')}[/]{best}")
    for c in range(report.clustering.n_clusters_):
        members = [name for name, own in zip(report.client_names, report.clustering.labels_, strict=True) if own == c]
        mix = report.counts[report.clustering.labels_ == c].sum(axis=0)
        top = ", ".join(
            f"{report.class_names[k]} {mix[k] / mix.sum():.0%}" for k in np.argsort(-mix, kind="stable")[:3] if mix[k]
        )
        size = _count(len(members), "client")
        console.print(f"  {c}: {size} ({top}): {' '.join(members[:20])}{' ...' if len(members) > 20 else ''}")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
