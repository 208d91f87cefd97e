"""``clustpsi run``: compare methods on a data set, with live progress, and write the results to a folder."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from clustpsi.cli.lists import parse_seeds, texts
from clustpsi.cli.notes import Quiet, notes
from clustpsi.cli.options import (
    MOST_WORKERS,
    Methods,
    chosen_methods,
    completing,
    config_options,
    method_options,
    with_options,
)
from clustpsi.cli.report import Report
from clustpsi.cli.report import write as write_report
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.methods import short_spec
from clustpsi.printing import console, counted, print_table, printable
from clustpsi.report.glossary import CONSTANTS
from clustpsi.runs.config import Config, of_methods
from clustpsi.saved import NAME as MODEL

if TYPE_CHECKING:
    from clustpsi.runs.course import Progress as RunProgress
    from clustpsi.runs.store import RunFolder

SETTINGS = {each.name for each in fields(Config)}
BETWEEN_LINES = 10.0  # seconds between two lines of progress, where nothing can be shown live

#: Scores of a run's summary that the table can show, with their headings; it always shows the first four.
SCORES = {
    "global_accuracy": "accuracy",
    "ad": "AD",
    "sdad": "SDAD",
    "worst10": "worst 10%",
    "balanced_accuracy": "balanced",
    "macro_f1": "macro F1",
}
ALWAYS = ("global_accuracy", "ad", "sdad", "worst10")
ON_REQUEST = tuple(key for key in SCORES if key not in ALWAYS)


def command(
    agg_method: Methods = "fedavg,local,clust_psi_pfl,prior_pfl",
    seeds_list: Annotated[
        str, typer.Option(help="Seeds, comma-separated; each gives another partition, split and initial model.")
    ] = "42,0,1",
    output: Annotated[Path, typer.Option(help="Folder for the runs, one folder each.")] = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue runs that were stopped.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute finished runs again.")] = False,
    save_models: Annotated[
        bool,
        typer.Option(
            "--save-models",
            help="Save the models (model.safetensors, for clustpsi predict); a finished run without them is computed "
            "again.",
        ),
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="CLUSTPSI_DATA", help="Folder with the data sets.", show_default="the user's cache"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_WORKERS,
            help="Clients (or chunks of clients, for a small model) trained at once.",
            show_default="one per core",
        ),
    ] = None,
    scores: Annotated[
        str | None,
        typer.Option(
            help=f"More columns, comma-separated: {', '.join(ON_REQUEST)}.", autocompletion=completing(ON_REQUEST)
        ),
    ] = None,
    report: Report = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    **options: Any,
) -> None:
    """Compare federated methods on one data set and partition.

    Without options: FedAvg, local training, Clust-PSI-PFL and prior-PFL on scikit-learn's digits, with three seeds.
    """
    told = notes(quiet)
    if resume and fresh:
        raise ClustPSIError("--resume goes on with a run and --fresh starts it again: give one of them")
    columns = (*ALWAYS, *_more_scores(scores))
    settings = {key: value for key, value in options.items() if key in SETTINGS}
    methods = chosen_methods(agg_method, {key: value for key, value in options.items() if key not in SETTINGS})
    seeds = parse_seeds(seeds_list)
    first = Config(**settings, agg_method=methods[0], seed=seeds[0])
    checked = of_methods(first, methods)  # mistakes show before data is loaded
    if report is not None:
        from clustpsi.report.page import check_output

        check_output(report, checked[0].files)

    # Imported here because pandas and JAX are slow to load, and neither --help nor a mistake needs them.
    from clustpsi.features.columns import describe
    from clustpsi.runs.cell import Cells
    from clustpsi.runs.run import run
    from clustpsi.runs.sources import Sources, identified, settled
    from clustpsi.runs.store import Store

    sources = Sources(data_dir)
    data = sources.load(checked[0])
    for line in describe(data.columns):
        told.print(printable(line), style="dim")
    first = settled(first, data, seeds)
    configs = [
        identified(replace(first, agg_method=method, seed=seed).checked(), data) for seed in seeds for method in methods
    ]
    store = Store(output)
    folders: dict[str, list[RunFolder]] = {}
    with Watcher(told, configs) as watcher, Cells.of(sources, workers) as cells:
        described = False
        for config in configs:
            folder = store.folder(config)
            folders.setdefault(config.agg_method, []).append(folder)
            without_models = folder.finished and save_models and not (folder / MODEL).exists()
            if folder.finished and not fresh and not without_models:
                watcher.skip(config, "finished before; --fresh computes it again")
                continue
            watcher.begin(config)
            if without_models:
                watcher.say("computed again, because its models were not saved")
            cell = cells.open(config)
            if not described:
                watcher.say(f"{cell.model}, {cell.num_parameters:,} parameters: {cell.model_reason}")
                described = True
            again = fresh or without_models
            run(config, store, cell=cell, resume=resume, fresh=again, save_models=save_models, watch=watcher.show)
            watcher.end()
    first = configs[0]
    rows = [summary_row(method, runs) for method, runs in folders.items()]
    constants = constant_rows(next(iter(folders.values())))
    if as_json:
        shared = {key: value for key, value in first.cell.items() if key != "seed"}
        kinds = [asdict(column) for column in data.columns]
        result = {"settings": shared, "seeds": seeds, "columns": kinds, "methods": rows, "constant": constants}
        print(json.dumps(result, indent=2))
    else:
        print_table(summary_table(first, rows, constants, columns, len(seeds)), console())
    for text in remarks(rows, seeds):
        told.print(f"note: {printable(text)}", style="yellow")
    if not as_json:
        told.print(printable(f"results in {output}/"), style="dim")
    if report is not None:
        write_report([folder.path for own in folders.values() for folder in own], report, told)


with_options(command, [*config_options("agg_method", "seed"), *method_options()])


def _more_scores(asked: str | None) -> list[str]:
    chosen = [] if asked is None else [each.replace("-", "_") for each in texts("--scores", asked)]
    for name in chosen:
        if name not in ON_REQUEST:
            raise unknown_name("score", name, ON_REQUEST)
    return chosen


class Watcher:
    """Shows the current run, its accuracy and the remaining time: live on a terminal, elsewhere as lines."""

    def __init__(self, told: Console, configs: Sequence[Config]) -> None:
        # Imported here because bars are slow to load, and --help needs none.
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.console = told
        self.live = told.is_terminal and not told.quiet
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
        # Estimated over the whole time so far: rounds may take minutes, so the last seconds would say nothing.
        options: dict[str, Any] = {"speed_estimate_period": 1e9, "disable": not self.live}
        self.progress = Progress(*columns, TimeRemainingColumn(), console=told, **options)
        self.runs, self.number = len(configs), 0
        self.rounds, self.done = sum(config.comm_rounds for config in configs), 0.0  # of the runs to compute
        self.task = self.progress.add_task("", total=self.rounds)
        self.name, self.before = "", 0.0
        self.config: Config | None = None
        self.started: float | None = None  # when the first run that is computed began
        self.run_started = self.said = 0.0
        self.accuracy = float("nan")

    def __enter__(self) -> "Watcher":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def skip(self, config: Config, reason: str) -> None:
        """Skip the next run: it needs no work."""
        self._next(config)
        self.rounds -= config.comm_rounds
        self.progress.update(self.task, total=self.rounds, visible=self.rounds > 0)
        self.say(reason)

    def begin(self, config: Config) -> None:
        """Begin the next run."""
        self._next(config)
        self.before, self.config = self.done, config
        self.run_started = self.said = time.monotonic()
        self.started = self.started or self.run_started
        self.progress.update(self.task, completed=self.done, description=f"{self.name}: preparing")
        if not self.live:
            self.say(f"run {self.number} of {self.runs} starts")

    def _next(self, config: Config) -> None:
        self.number += 1
        self.name = printable(f"{short_spec(config.agg_method)}, seed {config.seed}")

    def end(self) -> None:
        """End the current run."""
        assert self.config is not None
        self.done = self.before + self.config.comm_rounds
        if not self.live:
            seconds = time.monotonic() - self.run_started
            self.say(f"finished in {seconds:.1f} s, accuracy {self.accuracy:.3f}")

    def say(self, text: str) -> None:
        self.progress.console.print(f"{self.name}: {printable(text)}", style="dim")

    def show(self, now: "RunProgress") -> None:
        """Show progress: clients have trained, or a round has ended."""
        text = f"round {now.round}/{now.num_rounds}, accuracy {now.global_accuracy:.3f}"
        self.done, self.accuracy = self.before + now.round + now.part, now.global_accuracy
        self.progress.update(self.task, completed=self.done, description=f"{self.name}: {text}")
        if now.left_out:
            clients = ", ".join(map(str, now.left_out))
            self.say(f"round {now.round} leaves out clients whose update is missing or not finite: {clients}")
        if not self.live and time.monotonic() - self.said > BETWEEN_LINES:
            self.said = time.monotonic()
            self.say(text + self._left())

    def _left(self) -> str:
        """The remaining time, guessed from all rounds so far; nothing in the first round, which includes compiling."""
        if self.started is None or self.done < 1:
            return ""
        seconds = (time.monotonic() - self.started) / self.done * (self.rounds - self.done)
        return f", {timedelta(seconds=round(seconds))} left"


# ---------------------------------------------------------------------------------------------------------- results


def summary_row(method: str, runs: "Sequence[RunFolder]") -> dict[str, Any]:
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
    row["notes"] = [summary["notes"] for summary in summaries]
    for key in ("seconds", "compilation"):
        row[key] = float(np.mean([run.timing()[key] for run in runs]))
    return row


def constant_rows(runs: "Sequence[RunFolder]") -> dict[str, dict[str, Any]]:
    """Scores of constant answers, which need no training, over the seeds; they are the same for every method."""
    summaries = [run.summary()["constant"] for run in runs]
    return {
        kind: {key: spread([summary[kind][key] for summary in summaries]) for key in summaries[0][kind]}
        for kind in CONSTANTS
    }


def spread(values: list[float]) -> dict[str, Any]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values)), "values": values}


def summary_table(
    config: Config,
    rows: Sequence[Mapping[str, Any]],
    constants: Mapping[str, Mapping[str, Any]],
    columns: Sequence[str],
    num_seeds: int,
) -> Table:
    """One row per method, then the constant answers; ``columns`` are the scores that it shows."""
    from clustpsi.report.tables import method_title

    level = "" if config.non_iid_param is None else f" {config.non_iid_param:g}"
    clients = "natural clients"
    if config.num_clients is not None:
        clients = f"{config.partitioner}{level}, {counted(config.num_clients, 'client')}"
    rounds = counted(config.comm_rounds, "round")
    over = f"mean ± standard deviation over {num_seeds} seeds" if num_seeds > 1 else "one seed"
    table = Table(
        title=f"{Path(config.dataset).name}, {clients}, {rounds}, WPSI {rows[0]['wpsi']['mean']:.2f}",
        caption=f"round {config.comm_rounds}, {over}\n"
        "AD, SDAD: distance of clients from accuracy 1, less is better\n"
        "MB: sent both ways; s: seconds without compiling",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("method", min_width=13)
    for heading in (*(SCORES[key] for key in columns), "tau", "MB", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        taus = "-" if row["tau"][0] is None else ",".join(map(str, row["tau"]))
        sent = (row["bytes_up"] + row["bytes_down"]) / 1e6
        cells = [_cell(row[key], num_seeds) for key in columns]
        table.add_row(method_title(row["method"]), *cells, taus, f"{sent:.2f}", f"{row['seconds']:.1f}")
        if "server_accuracy" in row and row["server_accuracy"] != row["global_accuracy"]:
            cells = [_cell(row[key], num_seeds) for key in ("server_accuracy", "server_ad", "server_sdad")]
            table.add_row("  mean over the server's models", *cells, style="dim")
    for kind, title in CONSTANTS.items():
        table.add_row(title, *(_cell(constants[kind][key], num_seeds) for key in columns), style="dim")
    return table


def _cell(scores: Mapping[str, Any], num_seeds: int) -> str:
    mean, std = f"{scores['mean']:.3f}", f"±{scores['std']:.3f}".replace("0.", ".")
    return mean + std if num_seeds > 1 else mean


def remarks(rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[str]:
    """What a reader of the table should know about single runs, one sentence each."""
    return [
        f"{row['method']}, seed {seed}: {text}"
        for row in rows
        for seed, texts in zip(seeds, row["notes"], strict=True)
        for text in texts
    ]
