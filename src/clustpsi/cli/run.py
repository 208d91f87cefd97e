"""``clustpsi run``: compare methods on a data set, live, and leave the results in a folder."""

import json
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from clustpsi.cli.lists import parse_seeds
from clustpsi.cli.options import chosen_methods, config_options, method_options, with_options
from clustpsi.config import Config
from clustpsi.errors import ClustPSIError
from clustpsi.features.columns import describe
from clustpsi.report.tables import method_title
from clustpsi.results import RunFolder, Store
from clustpsi.sources import Sources, identified

if TYPE_CHECKING:
    from clustpsi.run import Cell
    from clustpsi.run import Progress as RunProgress

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
    sources = Sources(data_dir)
    configs = {
        (seed, method): Config(**settings, agg_method=method, seed=seed).checked()
        for seed in seeds
        for method in methods
    }
    data = sources.load(next(iter(configs.values())))
    for line in describe(data.columns):
        print(line, file=sys.stderr)
    configs = {key: identified(config, data) for key, config in configs.items()}
    store = Store(output)
    console = Console(stderr=True)
    folders: dict[str, list[RunFolder]] = {}
    with Watcher(console, sum(config.comm_rounds for config in configs.values())) as watcher:
        for seed in seeds:
            cell: Cell | None = None
            for method in methods:
                config = configs[seed, method]
                folder = store.folder(config)
                folders.setdefault(config.agg_method, []).append(folder)
                watcher.begin(config)
                if folder.finished and not fresh:
                    watcher.say("finished before; --fresh computes it again")
                    continue
                if cell is None:
                    cell = open_cell(config, dataset=sources.load(config), workers=workers)
                    if seed == seeds[0]:
                        watcher.say(f"{cell.model}, {cell.num_parameters:,} parameters: {cell.model_reason}")
                run(config, store, cell=cell, resume=resume, fresh=fresh, save_models=save_models, watch=watcher.show)
    first = next(iter(configs.values()))
    rows = [summary_row(method, runs) for method, runs in folders.items()]
    if as_json:
        shared = {key: value for key, value in first.cell.items() if key != "seed"}
        columns = [asdict(column) for column in data.columns]
        print(json.dumps({"settings": shared, "seeds": seeds, "columns": columns, "methods": rows}, indent=2))
    else:
        Console().print(summary_table(first, rows, len(seeds)))
        console.print(f"results in {output}/", style="dim")


with_options(command, [*config_options("agg_method", "seed"), *method_options()])


class Watcher:
    """The live display: what runs, how good it is, and how long everything will take."""

    def __init__(self, console: Console, total_rounds: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
        # Over everything so far: rounds may take minutes, and the last seconds would say nothing.
        options: dict[str, Any] = {"speed_estimate_period": 1e9, "disable": not console.is_terminal}
        self.progress = Progress(*columns, TimeRemainingColumn(), console=console, **options)
        self.task = self.progress.add_task("", total=total_rounds)
        self.name, self.rounds_before, self.rounds_of_run = "", 0, 0

    def __enter__(self) -> "Watcher":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, config: Config) -> None:
        """The next run."""
        self.name = f"{config.agg_method}, seed {config.seed}"
        self.rounds_before, self.rounds_of_run = self.rounds_before + self.rounds_of_run, config.comm_rounds
        self.progress.update(self.task, completed=self.rounds_before, description=f"{self.name}: preparing")

    def say(self, text: str) -> None:
        self.progress.console.print(f"{self.name}: {text}", style="dim", highlight=False)

    def show(self, now: "RunProgress") -> None:
        """Clients have trained, or a round has ended."""
        text = f"{self.name}: round {now.round}/{now.num_rounds}, accuracy {now.global_accuracy:.3f}"
        self.progress.update(self.task, completed=self.rounds_before + now.round + now.part, description=text)
        if now.left_out:
            clients = ", ".join(map(str, now.left_out))
            self.say(f"round {now.round} leaves out clients whose update is not finite: {clients}")


def summary_row(method: str, runs: list[RunFolder]) -> dict[str, Any]:
    """One method over its seeds: means and population standard deviations of the last round's scores."""
    summaries = [run.summary() for run in runs]
    row: dict[str, Any] = {"method": method, "runs": [str(run.path) for run in runs]}
    for key in summaries[0]["last"]:
        if key != "round":
            row[key] = spread([summary["last"][key] for summary in summaries])
    row["best_round"] = spread([summary["best"]["global_accuracy"] for summary in summaries])
    row["best_round"]["rounds"] = [summary["best"]["round"] for summary in summaries]
    row["tau"] = [summary["tau"] for summary in summaries]
    row["wpsi"] = spread([summary["skew"]["wpsi"] for summary in summaries])
    for key in ("bytes_up", "bytes_down", "participants", "left_out"):
        row[key] = float(np.mean([summary[key] for summary in summaries]))
    row["seconds"] = float(np.mean([run.timing()["seconds"] for run in runs]))
    return row


def spread(values: list[float]) -> dict[str, Any]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values)), "values": values}


def summary_table(config: Config, rows: list[dict[str, Any]], num_seeds: int) -> Table:
    level = "" if config.non_iid_param is None else f" {config.non_iid_param:g}"
    clients = f"{config.partitioner}{level}, {config.num_clients} clients"
    if config.num_clients is None:
        clients = "natural clients"
    skewness = f"WPSI {rows[0]['wpsi']['mean']:.2f}"
    over = f"mean ± standard deviation over {num_seeds} seeds" if num_seeds > 1 else "one seed"
    table = Table(
        title=f"{config.dataset}, {clients}, {config.comm_rounds} rounds, {skewness}",
        caption=f"round {config.comm_rounds}, {over}; MB: sent both ways\n"
        "AD, SDAD: distance of clients from accuracy 1, less is better",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("method", min_width=13)
    for heading in ("accuracy", "AD", "SDAD", "worst 10%", "tau", "MB", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        taus = "-" if row["tau"][0] is None else ",".join(map(str, row["tau"]))
        sent = (row["bytes_up"] + row["bytes_down"]) / 1e6
        scores = [_cell(row[key], num_seeds) for key in ("global_accuracy", "ad", "sdad", "worst10")]
        table.add_row(method_title(row["method"]), *scores, taus, f"{sent:.2f}", f"{row['seconds']:.1f}")
        if "server_accuracy" in row and row["server_accuracy"] != row["global_accuracy"]:
            scores = [_cell(row[key], num_seeds) for key in ("server_accuracy", "server_ad", "server_sdad")]
            table.add_row("  mean over the server's models", *scores, style="dim")
    return table


def _cell(scores: dict[str, Any], num_seeds: int) -> str:
    mean, std = f"{scores['mean']:.3f}", f"±{scores['std']:.3f}".replace("0.", ".")
    return mean + std if num_seeds > 1 else mean
