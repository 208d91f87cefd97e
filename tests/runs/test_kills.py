"""A kill at any call that changes the disk leaves something that the same command finishes, with the same bits.

A kill is played inside the process: the call does not happen, and neither does any later one, also none of those that
clean up on the way out.  The last test kills real processes.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clustpsi.runs.run
from clustpsi.datasets import load_dataset
from clustpsi.experiments.grid import grid
from clustpsi.experiments.sweep import Sweep
from clustpsi.experiments.workers import ThisProcess
from clustpsi.files import is_unfinished
from clustpsi.runs.cell import open_cell
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.sources import Sources, identified
from clustpsi.runs.store import Store
from helpers import clustpsi as command_line

CALLS = ("fsync", "replace", "rename", "unlink", "mkdir", "rmdir")
TINY = Config(agg_method="clust_psi_pfl", num_clients=4, comm_rounds=2, local_epochs=1, seed=0).checked()
CONFIG = identified(TINY, load_dataset("digits"))
SMALL_FIGURE = ("--num-clients", "4", "--alphas", "5", "--similarities", "0", "--seeds-list", "0")


class Killed(BaseException):
    """What no clean-up can catch."""


@contextmanager
def killed_at(number: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Die at the ``number``-th call below ``root``; gives the calls that were made."""
    made: list[str] = []

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: Any, *rest: Any, **options: Any) -> Any:
            path = Path(f"/proc/self/fd/{target}").resolve() if isinstance(target, int) else Path(target)
            if path.is_relative_to(root):
                made.append(f"{name} {path.name}")
                if len(made) >= number:
                    raise Killed
            return real(target, *rest, **options)

        return call

    with monkeypatch.context() as patched:
        for name in CALLS:
            patched.setattr(os, name, watched(name, getattr(os, name)))
        with suppress(Killed):
            yield made


def files(root: Path) -> dict[str, bytes]:
    """Everything that lasts: not times, locks, or what a later command clears away by itself."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "timing.json" and path.suffix != ".lock"
    }


def survives(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[Path], None],
    work: Callable[[Path], None],
    least: int,
) -> None:
    """Kill ``work`` at each of its calls in turn; repeated, it must end as if nothing had happened."""
    whole = root / "whole"
    whole.mkdir()
    prepare(whole)
    with killed_at(10**9, whole, monkeypatch) as calls:
        work(whole)
    expected = files(whole)
    assert len(calls) >= least, calls
    for number in range(1, len(calls) + 1):
        place = root / str(number)
        place.mkdir()
        prepare(place)
        with killed_at(number, place, monkeypatch) as made:
            work(place)
        assert len(made) >= number
        work(place)
        left = {name: content for name, content in files(place).items() if not is_unfinished(place / name)}
        assert left == expected, f"killed at call {number}, {calls[number - 1]}"


@pytest.fixture
def every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustpsi.runs.run, "CHECKPOINT_SECONDS", 0)
    monkeypatch.setattr(clustpsi.runs.run, "CHECKPOINT_SHARE", 0)


def test_finding_29_a_run_killed_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every_round: None) -> None:
    cell = open_cell(CONFIG, workers=1)
    survives(
        tmp_path,
        monkeypatch,
        prepare=lambda root: None,
        work=lambda root: run(CONFIG, Store(root), cell=cell, resume=True, save_models=True) and None,
        least=50,
    )


@pytest.mark.parametrize("again", [{"fresh": True}, {"resume": True}])
def test_finding_29_a_fresh_start_killed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: dict[str, bool]
) -> None:
    cell, started = open_cell(CONFIG, workers=1), set[Path]()

    def work(root: Path) -> None:
        how = {"fresh": True} if root not in started else again
        started.add(root)
        run(CONFIG, Store(root), cell=cell, **how)

    survives(
        tmp_path,
        monkeypatch,
        prepare=lambda root: run(CONFIG, Store(root), cell=cell) and None,
        work=work,
        least=32,
    )


def test_finding_30_a_sweep_killed_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"num_clients": [4, 500], "comm_rounds": 1, "local_epochs": 1, "seeds_list": 0, "dirichlet": 50}
    values |= {"agg_method": "fedavg,clust_psi_pfl:tau_clusters=9"}  # one works, one fails, two are infeasible
    configs, _ = Sources().identify(grid(values))

    def work(root: Path) -> None:
        sweep = Sweep(configs, Store(root))
        sweep.go(ThisProcess(Store(root)))
        assert (len(sweep.finished), len(sweep.failed), len(sweep.infeasible)) == (1, 1, 2)

    survives(tmp_path, monkeypatch, prepare=lambda root: None, work=work, least=25)


@pytest.mark.parametrize(
    "arguments",
    [
        ("table", "global", "src/clustpsi/recorded/fmnist.csv", "--format", "markdown", "--output", "{root}/table.md"),
        ("figure", "tau", *SMALL_FIGURE, "--output", "{root}/figure.svg"),
    ],
)
def test_a_table_or_figure_killed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    here = Path(__file__).parents[2]

    def work(root: Path) -> None:
        placed = [text.replace("docs/", f"{here}/docs/").format(root=root) for text in arguments]
        assert command_line(*placed) == 0

    def old(root: Path) -> None:
        for name in ("table.md", "figure.svg", "figure.csv"):
            (root / name).write_text("an older one")

    survives(tmp_path, monkeypatch, prepare=old, work=work, least=3)


@pytest.mark.slow
def test_real_processes_killed_at_random_moments(tmp_path: Path) -> None:
    config = replace(CONFIG, comm_rounds=150)
    arguments = ["--agg-method", "clust_psi_pfl", "--num-clients", "4", "--comm-rounds", "150", "--local-epochs", "1"]
    script = (
        "import sys, clustpsi.runs.run; clustpsi.runs.run.CHECKPOINT_SECONDS = clustpsi.runs.run.CHECKPOINT_SHARE = 0\n"
    )
    script += "from clustpsi.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", script, "run", *arguments, "--seeds-list", "0", "--resume", "--output"]
    expected = run(config, Store(tmp_path / "whole"))
    chance = random.Random(7)
    for trial in range(12):
        store = tmp_path / str(trial)
        process = subprocess.Popen([*command, str(store)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.5, 8))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert subprocess.run([*command, str(store)], capture_output=True, check=False).returncode == 0
        assert files(store / expected.path.name) == files(expected.path)


def sweeps_at_once(root: Path, number: int) -> list[int]:
    """Exit codes of several sweeps over the same grid, in the same store, at the same time."""
    arguments = ["sweep", "--dirichlet", "50,0.3", "--num-clients", "4", "--comm-rounds", "2", "--local-epochs", "1"]
    arguments += ["--seeds-list", "0,1", "--agg-method", "fedavg,local", "--workers", "1", "--output", str(root)]
    command = [sys.executable, "-m", "clustpsi", *arguments]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(number)]
    said = [process.communicate()[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert codes == [0] * number, said
    assert sum(folder.finished for folder in Store(root)) == 8
    return codes


@pytest.mark.slow
def test_finding_30_many_sweeps_share_a_store(tmp_path: Path) -> None:
    for trial in range(20):
        sweeps_at_once(tmp_path / str(trial), 3)
        time.sleep(0.1)
