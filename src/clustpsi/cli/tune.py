"""``clustpsi tune``: the paper's grid search, on validation data."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from clustpsi.cli.lists import parse_seeds
from clustpsi.cli.notes import Quiet, notes
from clustpsi.cli.options import MOST_WORKERS, complete_methods, config_options, with_options
from clustpsi.cli.stopping import Stopped
from clustpsi.errors import ClustPSIError, InfeasiblePartition
from clustpsi.experiments.hyperparameters import TRAINING
from clustpsi.limits import cpu_count
from clustpsi.methods import short_spec
from clustpsi.printing import console, counted, print_table, printable

if TYPE_CHECKING:  # pandas is slow to load, and --help does not need it
    from clustpsi.experiments.sweep import Sweep
    from clustpsi.experiments.workers import Pool

SHOWN = 10  # combinations shown in the terminal; the CSV and --json have all


def command(
    agg_method: Annotated[
        str,
        typer.Option(
            help="The method, as name or name:parameter=value:...; a parameter given here is not searched.",
            autocompletion=complete_methods,
        ),
    ] = "fedavg",
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="key=value1,value2,...: replaces the paper's values of a parameter, or adds one; repeatable."
        ),
    ] = None,
    seeds_list: Annotated[str, typer.Option(help="Seeds, comma-separated; a combination's score is the mean.")] = "42",
    output: Annotated[Path, typer.Option(help="Folder for the runs, one folder each.")] = Path("tuning"),
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="CLUSTPSI_DATA", help="Folder with the data sets.", show_default="the user's cache"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_WORKERS, help="Runs at once; 1 uses a single process.", show_default="one per core"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the runs, and those still to be computed.")
    ] = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ranking as JSON.")] = False,
    **settings: Any,
) -> None:
    """Try all combinations of a method's hyper-parameters, and rank them on a part of the training data.

    Test data is never used. Run the same command again to continue: it computes only what is not finished.
    """
    from clustpsi.experiments.sweep import Sweep
    from clustpsi.experiments.tune import Search
    from clustpsi.runs.store import Store

    told = notes(quiet)
    search = Search.of(agg_method, _changes(grid or []), settings | {"seeds_list": parse_seeds(seeds_list)})
    search = search.identified(data_dir)
    store = Store(output)
    sweep = Sweep(search.configs, store)
    if dry_run and as_json:
        print(json.dumps({"runs": len(search.configs), "pending": sweep.num_pending}, indent=2))
        return
    if dry_run:
        print(f"{counted(len(search.configs), 'run')}, {sweep.num_pending} of them to be computed")
        return
    if sweep.num_pending or sweep.elsewhere:
        try:
            with told.status("") as status:
                sweep.show = lambda state: status.update(_progress(state))
                if not told.is_terminal:
                    sweep.notify = lambda config, outcome: told.print(
                        printable(
                            f"{_progress(sweep)}: {outcome.status}: {short_spec(config.agg_method)}, seed {config.seed}"
                        )
                    )
                sweep.go(_pool(sweep, workers, data_dir))
        except Stopped as stopped:
            stopped.progress = _progress(sweep)
            raise
    for reason in sweep.infeasible.values():
        raise InfeasiblePartition(reason)
    if len(sweep.failed) == len(search.configs):
        raise ClustPSIError(f"every run failed: {next(iter(sweep.failed.values()))}")
    for config, reason in sweep.failed.items():
        print(printable(f"failed: {config.folder_name}: {reason}"), file=sys.stderr)
    ranking = search.ranking(store)
    file = store.root / search.write(store, ranking)
    rows = ranking.to_dict("records")
    flags = search.flags({str(key): value for key, value in rows[0].items()})
    if as_json:
        print(json.dumps({"ranking": rows, "best": flags, "file": str(file), "failed": len(sweep.failed)}, indent=2))
        return
    table = Table(
        *search.space,
        title=f"{agg_method} on {Path(search.configs[0].dataset).name}: {counted(len(rows), 'combination')}",
        caption=f"accuracy on validation data, round {search.configs[0].comm_rounds}",
    )
    table.add_column("accuracy", justify="right", no_wrap=True)
    for row in rows[:SHOWN]:
        spread = f" ± {row['std']:.3f}" if row["seeds"] > 1 else ""
        table.add_row(*(str(row[key]) for key in search.space), f"{row['accuracy']:.4f}{spread}")
    shown = console()
    print_table(table, shown)
    if len(rows) > SHOWN:
        shown.print(printable(f"... and {len(rows) - SHOWN:,} more in {file}"))
    shown.print("best:", style="bold")
    print(f"  {printable(flags)}")


with_options(command, config_options("agg_method", "seed", "validation", *TRAINING))


def _changes(assignments: list[str]) -> dict[str, str]:
    changes: dict[str, str] = {}
    for assignment in assignments:
        key, equals, values = assignment.partition("=")
        if not equals:
            raise ClustPSIError(f"--grid {assignment!r} should read key=value1,value2,...")
        key = key.strip().replace("-", "_")
        if key in changes:
            raise ClustPSIError(f"--grid gives {key} twice: give all its values at once, as {key}=value1,value2,...")
        changes[key] = values
    return changes


def _progress(sweep: "Sweep") -> str:
    left = sweep.seconds_left()
    ended = len(sweep.finished) + len(sweep.failed) + len(sweep.infeasible)
    guess = f", about {counted(math.ceil(left / 60), 'minute')} left" if left else ""
    return f"{ended} of {counted(len(sweep.configs), 'run')}{guess}"


def _pool(sweep: "Sweep", workers: int | None, data_dir: Path | None) -> "Pool":
    from clustpsi.experiments.workers import Processes, ThisProcess

    size = min(workers or cpu_count(), sweep.num_pending)
    return ThisProcess(sweep.store, data_dir) if size <= 1 else Processes(size, sweep.store, data_dir)
