"""A sweep's worker against plain runs, and what a sweep counts."""

import json
import threading
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clustpsi.errors import ClustPSIError
from clustpsi.experiments.grid import grid
from clustpsi.experiments.sweep import Sweep
from clustpsi.experiments.workers import REPORTS, Event, Outcome, Processes, Step, Worker, _serve
from clustpsi.runs.cell import Cells
from clustpsi.runs.config import Config
from clustpsi.runs.run import _Run, run
from clustpsi.runs.sources import Sources
from clustpsi.runs.store import RunFolder, Store
from helpers import clustpsi

TINY = {"num_clients": 4, "comm_rounds": 2, "local_epochs": 1}


def identified(values: dict[str, Any]) -> list[Config]:
    """Runs that know their data."""
    known, unknown = Sources().identify(grid(TINY | values))
    assert not unknown
    return known


def contents(folder: RunFolder) -> dict[str, bytes]:
    """Every file of a run but the one that tells the time."""
    return {path.name: path.read_bytes() for path in folder.path.iterdir() if path.name not in ("timing.json", ".lock")}


def test_a_worker_with_several_seeds_and_partitions_gives_what_plain_runs_give(tmp_path: Path) -> None:
    """It keeps a cell for the next run: only if that is on the same partition, with the same seed and settings."""
    runs = identified({"seeds_list": "1,2", "similarity": 0, "agg_method": "fedavg,local"})
    runs += identified({"seeds_list": 2, "similarity": 0, "lr": 0.1}) + identified({"seeds_list": 2, "similarity": 1})
    assert len(runs) == 6
    plain, sweep, worker = Store(tmp_path / "plain"), Store(tmp_path / "sweep"), Worker(None)
    for config in runs:
        assert worker.execute(config, sweep) == Outcome("finished")
        assert contents(sweep.folder(config)) == contents(run(config, plain))


def test_a_run_trains_while_the_files_of_the_one_before_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = identified({"seeds_list": "1,2"})
    worker, store, alone = Worker(None), Store(tmp_path / "sweep"), Store(tmp_path / "alone")
    told, trained, both, go, finish = list[Any](), list[Config](), threading.Event(), _Run.go, RunFolder.finish

    def train(made: _Run) -> None:
        go(made)
        trained.append(made.course.config)
        if len(trained) == 2:
            both.set()

    def finish_late(folder: RunFolder, *arguments: Any) -> None:
        assert both.wait(60) and folder.is_locked
        finish(folder, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(_Run, "go", train)
        patched.setattr(RunFolder, "finish", finish_late)
        for config in runs:

            def tell(outcome: Outcome, config: Config = config) -> None:
                told.append((config, outcome))

            worker.train(config, store, tell, lambda _: None)
        worker.wait()
    assert told == [(config, Outcome("finished")) for config in runs]
    for config in runs:
        assert not store.folder(config).is_locked
        assert contents(store.folder(config)) == contents(run(config, alone))


def test_nothing_is_said_of_a_run_before_the_outcome_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clustpsi.experiments.workers.REPORTS", -1)  # every round
    runs, told = identified({"seeds_list": "1,2"}), list[Event]()
    monkeypatch.setattr("clustpsi.experiments.workers.signal.signal", lambda *_: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def recv() -> Config:
        if not runs:
            raise EOFError
        return runs.pop(0)

    pipe = SimpleNamespace(send=told.append, recv=recv)
    _serve(pipe, Store(tmp_path), None, 0)  # type: ignore[arg-type]
    while len(told) < 8:
        time.sleep(0.01)
    steps, end = [Step] * 3, [Outcome]
    assert [type(event) for event in told] == [*steps, *end, *steps, *end]


def test_a_run_whose_last_files_cannot_be_written_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, worker, store = identified({"seeds_list": "1,2"}), Worker(None), Store(tmp_path)
    with monkeypatch.context() as patched:

        def full(*_: Any) -> None:
            raise ClustPSIError("no space left to write summary.json")

        patched.setattr(RunFolder, "finish", full)
        outcomes = list[Outcome]()
        worker.train(runs[0], store, outcomes.append, lambda _: None)
        worker.wait()
        assert outcomes == [Outcome("failed", "no space left to write summary.json")]
    assert not store.folder(runs[0]).finished and not store.folder(runs[0]).is_locked
    assert [worker.execute(config, store).status for config in runs] == ["finished", "finished"]


def test_a_worker_reports_every_round_once(tmp_path: Path) -> None:
    steps, (config,) = list[Step](), identified({"seeds_list": 1})
    Worker(None).execute(config, Store(tmp_path), steps.append)
    assert [(step.round, step.num_rounds) for step in steps] == [(0, 2), (1, 2), (2, 2)]
    assert steps[-1].accuracy == Store(tmp_path).folder(config).summary()["last"]["global_accuracy"]


def test_a_worker_process_reports_few_of_many_short_rounds(tmp_path: Path) -> None:
    (config,), pool, told = (
        identified({"seeds_list": 1, "comm_rounds": 300}),
        Processes(1, Store(tmp_path)),
        list[Event](),
    )
    try:
        pool.submit(0, config)
        while not (told and isinstance(told[-1], Outcome)):
            told += [event for _, event in pool.events(60)]
    finally:
        pool.close()
    seconds = Store(tmp_path).folder(config).timing()["seconds"]
    assert told[-1] == Outcome("finished") and 1 <= len(told) - 1 <= 2 + seconds * 2 / REPORTS
    assert len(told) < 300


def test_a_worker_does_not_search_twice_for_a_partition_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = identified({"num_clients": 500, "seeds_list": 1, "agg_method": "fedavg,local"})
    (other,) = identified({"seeds_list": 1})
    worker, store = Worker(None), Store(tmp_path)
    first = worker.execute(runs[0], store)
    with monkeypatch.context() as patched:
        patched.setattr(Cells, "open", lambda *_: pytest.fail("it searches again"))
        assert worker.execute(runs[1], store) == first and first.status == "infeasible"
    assert worker.execute(other, store) == Outcome("finished")


def test_a_run_that_another_process_holds_is_locked_and_not_failed(tmp_path: Path) -> None:
    store, (config,) = Store(tmp_path), identified({"seeds_list": 1})
    with store.folder(config).locked():
        outcome = Worker(None).execute(config, store)
    assert outcome.status == "locked" and "another process" in outcome.reason
    assert Worker(None).execute(config, store).status == "finished"


def test_a_worker_looks_for_data_where_it_is_told(tmp_path: Path) -> None:
    config = Config(dataset="fmnist", num_clients=4).checked()
    outcome = Worker(tmp_path / "my data").execute(config, Store(tmp_path / "runs"))
    assert outcome.status == "failed" and str(tmp_path / "my data") in outcome.reason


class Pool:
    """A worker whose runs end as they are told to."""

    size = 1

    def __init__(self, outcomes: dict[Config, Outcome]) -> None:
        self.outcomes = outcomes

    def submit(self, worker: int, config: Config) -> None:
        self.config = config

    def events(self, timeout: float) -> Iterable[tuple[int, Event]]:
        yield 0, self.outcomes.get(self.config, Outcome("finished"))

    def close(self) -> None:
        pass


def test_only_runs_that_this_sweep_has_finished_count_as_computed(tmp_path: Path) -> None:
    runs = grid(TINY | {"seeds_list": "1,2,3,4,5"})
    sweep = Sweep(runs, Store(tmp_path))
    sweep.go(Pool({runs[1]: Outcome("failed", "no luck"), runs[2]: Outcome("infeasible", "no partition")}))
    assert (sweep.computed, len(sweep.finished), len(sweep.failed), len(sweep.infeasible)) == (3, 3, 1, 1)


def test_finding_27_a_sweep_mentions_clients_that_were_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("--num-clients", "3", "--non-iid-param", "1", "--comm-rounds", "1", "--local-epochs", "1")
    settings += ("--seeds-list", "0", "--agg-method", "fedavg,fedprox", "--optimizer", "sgd", "--lr", "1e38")
    assert clustpsi("run", *settings, "--output", str(tmp_path)) == 0
    grid = ("sweep", *settings, "--partitioner", "dirichlet", "--output", str(tmp_path))
    capsys.readouterr()
    assert clustpsi(*grid) == 0
    told = capsys.readouterr().err.splitlines()
    note = "2 of 2 updates were missing or not finite and omitted (2 clients, see left_out.csv)"
    assert f"note: digits, dirichlet 1, 3 clients, fedavg, seed 0: {note}" in told
    assert len([line for line in told if line.startswith("note: ")]) == 2
    monkeypatch.setattr("clustpsi.cli.sweep.MOST_NOTES", 1)
    assert clustpsi(*grid) == 0
    assert "note: 1 run more with notes (--json has them all)" in capsys.readouterr().err.splitlines()
    assert clustpsi(*grid, "--json") == 0
    assert [each["notes"] for each in json.loads(capsys.readouterr().out)["notes"]] == [[note]] * 2
    assert clustpsi(*grid, "--quiet") == 0
    assert "note:" not in capsys.readouterr().err
