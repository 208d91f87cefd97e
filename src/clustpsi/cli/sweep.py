"""``clustpsi sweep``: a grid of runs on all cores or on a Ray cluster, with live progress."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from clustpsi.cli.notes import Quiet, notes
from clustpsi.cli.options import (
    MOST_WORKERS,
    Methods,
    chosen_methods,
    complete_datasets,
    config_options,
    is_given,
    method_options,
    with_options,
)
from clustpsi.cli.report import Report
from clustpsi.cli.report import write as write_report
from clustpsi.cli.stopping import Stopped
from clustpsi.errors import ClustPSIError
from clustpsi.limits import cpu_count
from clustpsi.methods import short_spec
from clustpsi.printing import counted, printable
from clustpsi.runs.config import Config

if TYPE_CHECKING:  # pandas is slow to load, and --help does not need it
    from clustpsi.experiments.ray_backend import RayWorkers
    from clustpsi.experiments.sweep import Sweep
    from clustpsi.experiments.workers import Outcome, Processes
    from clustpsi.runs.store import Store

LISTS = ("dataset", "partitioner", "non_iid_param", "num_clients", "agg_method", "seed")
REFRESH = 0.25  # seconds between two updates of the live view
MOST_NOTES = 10  # most runs whose notes are printed
DEFAULT_METHODS = "fedavg,local,clust_psi_pfl,prior_pfl"


def command(
    *,
    context: typer.Context,
    dataset: Annotated[
        str, typer.Option(help="Data sets, comma-separated.", autocompletion=complete_datasets)
    ] = "digits",
    dirichlet: Annotated[
        str | None, typer.Option(help="Dirichlet partitions: values of alpha, such as 50,0.3.")
    ] = None,
    similarity: Annotated[
        str | None, typer.Option(help="Similarity partitions: values of S, such as 1,0.03,0.")
    ] = None,
    partitioner: Annotated[
        str, typer.Option(help="Partitioners as in run, instead of --dirichlet and --similarity.")
    ] = "dirichlet",
    non_iid_param: Annotated[
        str | None, typer.Option(help="Non-IID parameters for --partitioner.", show_default="as in run")
    ] = None,
    num_clients: Annotated[str, typer.Option(help="Numbers of clients, comma-separated.")] = "20",
    agg_method: Methods = DEFAULT_METHODS,
    seeds_list: Annotated[str, typer.Option(help="Seeds, comma-separated.")] = "42,0,1",
    file: Annotated[
        Path | None, typer.Option("--grid", help="TOML file with the grid; options on the command line override it.")
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's grid; options on the command line override it.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Store: folder for the runs, one folder each.")] = Path("runs"),
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="CLUSTPSI_DATA", help="Folder with the data sets.", show_default="the user's cache"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_WORKERS, help="Runs at once, one process each.", show_default="one per core"),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on a Ray cluster: host:port, ray://host:port, auto, or local."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the runs, and those still to be computed.")
    ] = False,
    report: Report = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    **options: Any,
) -> None:
    """Run a grid: data sets x partitions x numbers of clients x methods x seeds.

    Run the same command again to continue a stopped sweep: it computes only what is not finished.  The exit code is 1
    if a run failed; failed runs are tried again the next time.
    """
    told = notes(quiet)
    if paper and file is not None:
        raise ClustPSIError("--paper is a grid and so is --grid: give one of them")
    axes = {"dataset": dataset, "dirichlet": dirichlet, "similarity": similarity, "partitioner": partitioner}
    axes |= {
        "non_iid_param": non_iid_param,
        "num_clients": num_clients,
        "agg_method": agg_method,
        "seeds_list": seeds_list,
    }
    given = {key: value for key, value in (axes | options).items() if is_given(context, key)}
    configs = _configs(given, paper, file)
    if report is not None:
        from clustpsi.report.page import check_output

        read = {path for config in configs for path in config.files}
        check_output(report, read if file is None else {*read, file})

    from clustpsi.experiments.sweep import Sweep
    from clustpsi.runs.sources import Sources
    from clustpsi.runs.store import Store

    store = Store(output)
    cluster = None if ray is None else _cluster(ray, store, data_dir, workers)
    known, unknown = (Sources(data_dir) if cluster is None else cluster).identify(configs)
    sweep = Sweep([*known, *unknown], store, unknown)
    if dry_run and as_json:
        print(json.dumps(_summary(sweep, 0.0), indent=2))
        return
    if dry_run:
        missing = f"; {len(unknown)} of them lack their data: {next(iter(unknown.values()))}" if unknown else ""
        print(printable(f"{_sentence(sweep)}{missing}"))
        return
    started = time.monotonic()
    try:
        if sweep.num_pending or sweep.elsewhere or unknown:
            with _View(sweep, told):
                sweep.go(cluster or _processes(sweep, workers, data_dir))
    except Stopped as stopped:
        stopped.progress = _sentence(sweep)
        raise
    if as_json:
        print(json.dumps(_summary(sweep, time.monotonic() - started), indent=2))
    else:
        told.print(printable(f"{_sentence(sweep)}; {sweep.computed} computed now; runs in {output}/"))
        _tell_notes(sweep, told)
        for config, reason in sweep.failed.items():
            print(printable(f"failed: {config.folder_name}: {reason}"), file=sys.stderr)
    if report is not None and sweep.finished:
        finished = [store.folder(config).path for config in sweep.configs if config in sweep.finished]
        write_report(finished, report, told)
    if sweep.failed:
        raise typer.Exit(1)


with_options(command, [*config_options(*LISTS), *method_options()])


def _configs(given: dict[str, Any], paper: bool, file: Path | None) -> list[Config]:
    """The runs to compute."""
    from clustpsi.experiments.grid import PAPER, grid, paper_grid, read_grids, replaced, unique

    settings = {each.name for each in config_options()} | {"dirichlet", "similarity", "seeds_list"}
    own = {key: value for key, value in given.items() if key in settings}
    parameters = {key: value for key, value in given.items() if key not in settings}

    def runs(values: Mapping[str, Any]) -> list[Config]:
        values = replaced(values, own)
        asked = values.get("agg_method", DEFAULT_METHODS)
        if not isinstance(asked, str) and not (
            isinstance(asked, list) and all(isinstance(each, str) for each in asked)
        ):
            raise ClustPSIError(f"the grid's agg_method must be a text or a list of texts, not {asked!r}")
        methods = chosen_methods(asked, parameters)
        return (paper_grid if paper else grid)(values | {"agg_method": methods})

    grids: Sequence[Mapping[str, Any]] = [PAPER] if paper else read_grids(file) if file else [{}]
    return unique(run for values in grids for run in runs(values))


def _cluster(address: str, store: "Store", data_dir: Path | None, workers: int | None) -> "RayWorkers":
    from clustpsi.experiments.ray_backend import RayWorkers

    return RayWorkers(address, store, data_dir, workers)


def _processes(sweep: "Sweep", workers: int | None, data_dir: Path | None) -> "Processes":
    from clustpsi.experiments.workers import Processes

    return Processes(
        min(workers or cpu_count(), max(1, sweep.num_pending + len(sweep.elsewhere))), sweep.store, data_dir
    )


def _sentence(sweep: "Sweep") -> str:
    left = len(sweep.configs) - len(sweep.finished) - len(sweep.failed) - len(sweep.infeasible)
    counts = {"finished": len(sweep.finished), "infeasible": len(sweep.infeasible), "failed": len(sweep.failed)}
    parts = [f"{count} {what}" for what, count in (counts | {"left": left}).items() if count or what == "finished"]
    return f"{counted(len(sweep.configs), 'run')}: {', '.join(parts)}"


def _summary(sweep: "Sweep", seconds: float) -> dict[str, Any]:
    named = {
        what: [{"run": config.folder_name, "reason": reason} for config, reason in runs.items()]
        for what, runs in (("failed", sweep.failed), ("infeasible", sweep.infeasible))
    }
    return {
        "store": str(sweep.store.root),
        "runs": len(sweep.configs),
        "finished": len(sweep.finished),
        "computed": sweep.computed,
        "seconds": seconds,
        **named,
        "notes": [{"run": config.folder_name, "notes": texts} for config, texts in sweep.notes.items()],
    }


def _tell_notes(sweep: "Sweep", told: Console) -> None:
    """Print what readers should know about finished runs."""
    for config, texts in list(sweep.notes.items())[:MOST_NOTES]:
        for text in texts:
            told.print(printable(f"note: {_name(config)}: {text}"))
    if len(sweep.notes) > MOST_NOTES:
        more = counted(len(sweep.notes) - MOST_NOTES, "run")
        told.print(f"note: {more} more with notes (--json has them all)")


class _View:
    """The live view on a terminal; elsewhere one line for each run that ends."""

    def __init__(self, sweep: "Sweep", told: Console) -> None:
        self.console = told
        self.sweep, self.started, self.shown = sweep, time.monotonic(), 0.0
        self.live: Live | None = None
        if told.is_terminal and not told.quiet:
            self.live = Live(console=self.console, auto_refresh=False, get_renderable=lambda: self._picture(sweep))
        sweep.notify, sweep.show = self._notify, self._show

    def __enter__(self) -> None:
        if self.live is not None:
            self.live.start()

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def _show(self, sweep: "Sweep") -> None:
        if self.live is not None and time.monotonic() - self.shown > REFRESH:
            self.live.refresh()
            self.shown = time.monotonic()

    def _notify(self, config: Config, outcome: "Outcome") -> None:
        if self.console.quiet:
            return
        name = _name(config)
        if self.live is None:
            left = self.sweep.seconds_left()
            ended = len(self.sweep.finished) + len(self.sweep.failed) + len(self.sweep.infeasible)
            reason = f": {outcome.reason}" if outcome.reason else ""
            guess = "" if left is None else f", {_clock(left)} left"
            text = f"[{ended}/{len(self.sweep.configs)}{guess}] {outcome.status}: {name}{reason}"
            self.console.print(printable(text))
        elif outcome.status == "failed":
            self.console.print(printable(f"failed: {name}: {outcome.reason}"), style="red")

    def _picture(self, sweep: "Sweep") -> Group:
        total = len(sweep.configs)
        ended = len(sweep.finished) + len(sweep.failed) + len(sweep.infeasible)
        left = sweep.seconds_left()
        head = Table.grid(padding=(0, 2))
        head.add_row(
            ProgressBar(total=total, completed=ended, width=30),
            f"{len(sweep.finished)}/{total} done",
            f"{len(sweep.running)} running",
            Text(f"{len(sweep.failed)} failed", style="red" if sweep.failed else ""),
            f"{len(sweep.infeasible)} infeasible",
            *([f"{len(sweep.elsewhere)} in another sweep"] if sweep.elsewhere else []),
            _clock(time.monotonic() - self.started),
            "left -" if left is None else f"left {_clock(left)}",
        )
        body = Table.grid(padding=(0, 2))
        for _, run in sorted(sweep.running.items()):
            step = run.step
            now = (
                ("starting", "")
                if step is None
                else (f"round {step.round}/{step.num_rounds}", f"accuracy {step.accuracy:.3f}")
            )
            body.add_row("", Text(printable(_name(run.config))), *now)
        return Group(head, body)


def _name(config: Config) -> str:
    level = "" if config.non_iid_param is None else f" {config.non_iid_param:g}"
    clients = "" if config.num_clients is None else f", {counted(config.num_clients, 'client')}"
    method = short_spec(config.agg_method)
    return f"{Path(config.dataset).name}, {config.partitioner}{level}{clients}, {method}, seed {config.seed}"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
