"""``clustpsi run``: compare methods on a data set, live, and leave the results in a folder."""

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from clustpsi.cli.options import chosen_methods, config_options, method_options, with_options
from clustpsi.config import Config
from clustpsi.errors import ClustPSIError
from clustpsi.methods import make_method
from clustpsi.results import RunFolder, Store

SETTINGS = {each.name for each in fields(Config)}


def command(
    agg_method: Annotated[
        str, typer.Option(help="Methods to compare, comma-separated, each as name or name:parameter=value:...; or all.")
    ] = "fedavg,local,clust_psi_pfl",
    seeds_list: Annotated[
        str, typer.Option(help="Seeds, comma-separated; each is a partition, a split and an initial model of its own.")
    ] = "42,0,1",
    output: Annotated[Path, typer.Option(help="Folder for the runs, one folder each.")] = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with runs that were stopped.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what is there already.")] = False,
    save_models: Annotated[bool, typer.Option("--save-models", help="Keep the final models (models.npz).")] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="CLUSTPSI_DATA", help="Folder with the data sets.", show_default="the user's cache"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Clients (or chunks of small ones) trained at once.", show_default="one per core"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    **options: Any,
) -> None:
    """Compare federated methods on one data set and partition.

    Without options: FedAvg, local training and Clust-PSI-PFL on scikit-learn's digits, in less than a minute.
    """
    from clustpsi.run import open_cell, run  # here, because it starts JAX, which --help does not need

    if resume and fresh:
        raise ClustPSIError("--resume goes on with a run and --fresh starts it again: give one of them")
    settings = {key: value for key, value in options.items() if key in SETTINGS}
    methods = chosen_methods(agg_method, {key: value for key, value in options.items() if key not in SETTINGS})
    seeds = parse_seeds(seeds_list)
    configs = {
        (seed, method): Config(**settings, agg_method=method, seed=seed).checked()
        for seed in seeds
        for method in methods
    }
    store = Store(output)
    console = Console(stderr=True)
    folders: dict[str, list[RunFolder]] = {}
    with watching(console) as progress:
        task = progress.add_task("", total=sum(config.comm_rounds for config in configs.values()))
        for seed in seeds:
            cell = None
            for method in methods:
                config = configs[seed, method]
                name = f"{config.agg_method}, seed {seed}"
                folder = store.folder(config)
                if folder.finished and not fresh:
                    progress.console.print(f"[dim]{name}: finished before (--fresh computes it again)[/]")
                    progress.advance(task, config.comm_rounds)
                else:
                    progress.update(task, description=f"{name}: preparing")
                    cell = cell or open_cell(config, data_dir=data_dir, workers=workers)
                    if not folders:
                        progress.console.print(
                            f"[dim]model: {cell.model}, {cell.simulator.network.num_parameters:,} parameters. {cell.federation.dataset.model_reason}[/]"
                        )
                    done = progress.tasks[0].completed

                    def show(now: Any, name: str = name, done: float = done) -> None:
                        text = f"{name}: round {now.round}/{now.num_rounds}, accuracy {now.global_accuracy:.3f}"
                        progress.update(task, completed=done + now.round, description=text)
                        if now.left_out:
                            progress.console.print(
                                f"[yellow]{name}: round {now.round}: left out, because the update is not finite: client {', '.join(map(str, now.left_out))}[/]"
                            )

                    run(config, store, cell=cell, resume=resume, fresh=fresh, save_models=save_models, watch=show)
                folders.setdefault(config.agg_method, []).append(folder)
    rows = [summary_row(method, runs) for method, runs in folders.items()]
    if as_json:
        first = next(iter(configs.values()))
        shared = {key: value for key, value in first.cell.items() if key != "seed"}
        print(json.dumps({"settings": shared, "seeds": seeds, "methods": rows}, indent=2))
    else:
        Console().print(summary_table(next(iter(configs.values())), rows, len(seeds)))
        console.print(f"[dim]results in {output}/[/]")


with_options(command, [*config_options("agg_method", "seed"), *method_options()])


def parse_seeds(text: str) -> list[int]:
    try:
        seeds = [int(each) for each in text.split(",") if each.strip()]
    except ValueError:
        raise ClustPSIError(f"--seeds-list must be whole numbers with commas between them, not {text!r}") from None
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ClustPSIError(f"--seeds-list must be different numbers from 0 up, at least one, not {text!r}")
    return seeds


def watching(console: Console) -> Progress:
    """The live display of a run."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not (console.is_terminal or sys.stderr.isatty()))


def summary_row(method: str, runs: list[RunFolder]) -> dict[str, Any]:
    """One method over its seeds: means and population standard deviations of the last round's scores."""
    summaries, seconds = [run.summary() for run in runs], [run.timing()["seconds"] for run in runs]
    row: dict[str, Any] = {"method": method, "runs": [str(run.path) for run in runs]}
    for key in summaries[0]["last"]:
        if key != "round":
            values = [summary["last"][key] for summary in summaries]
            row[key] = {"mean": float(np.mean(values)), "std": float(np.std(values)), "values": values}
    best = [summary["best"]["global_accuracy"] for summary in summaries]
    row["best_round_accuracy"] = {
        "mean": float(np.mean(best)),
        "std": float(np.std(best)),
        "rounds": [summary["best"]["round"] for summary in summaries],
    }
    row["tau"] = [summary["tau"] for summary in summaries]
    row["wpsi"] = [summary["skew"]["wpsi"] for summary in summaries]
    for key in ("bytes_up", "bytes_down", "participants", "left_out"):
        row[key] = float(np.mean([summary[key] for summary in summaries]))
    row["seconds"] = float(np.mean(seconds))
    return row


def summary_table(config: Config, rows: list[dict[str, Any]], num_seeds: int) -> Table:
    wpsi = rows[0]["wpsi"]
    level = "" if config.non_iid_param is None else f" {config.non_iid_param:g}"
    clients = "natural clients" if config.num_clients is None else f"{config.num_clients} clients"
    title = f"{config.dataset}, {config.partitioner}{level}, {clients}, {config.comm_rounds} rounds, WPSI {np.mean(wpsi):.2f}"
    caption = f"last round; mean ± standard deviation over {num_seeds} seeds; AD, SDAD: distance of clients from accuracy 1 (less is better)"
    table = Table(
        title=title,
        caption=caption if num_seeds > 1 else caption.replace("mean ± standard deviation over 1 seeds", "one seed"),
    )
    table.add_column("method")
    for heading in ("accuracy", "AD", "SDAD", "worst 10 %", "tau", "MB up", "MB down", "seconds"):
        table.add_column(heading, justify="right")
    for row in rows:
        spread = [
            f"{row[key]['mean']:.3f}" + (f" ± {row[key]['std']:.3f}" if num_seeds > 1 else "")
            for key in ("global_accuracy", "ad", "sdad", "worst10")
        ]
        taus = "-" if row["tau"][0] is None else ", ".join(map(str, row["tau"]))
        table.add_row(
            display_name(row["method"]),
            *spread,
            taus,
            f"{row['bytes_up'] / 1e6:.2f}",
            f"{row['bytes_down'] / 1e6:.2f}",
            f"{row['seconds']:.1f}",
        )
    return table


def display_name(spec: str) -> str:
    """A method's title, with the parameters that differ from its defaults."""
    _, _, parameters = spec.partition(":")
    return make_method(spec).title + (f" ({parameters.replace(':', ', ')})" if parameters else "")
