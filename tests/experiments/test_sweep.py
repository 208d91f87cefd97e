"""Sweeps: grids, and runs that are done once whatever happens on the way."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from clustpsi.cli import main
from clustpsi.errors import ClustPSIError
from clustpsi.experiments.grid import grid, paper_grid, read_grids
from clustpsi.experiments.ray_backend import RayWorkers, pack, unpack
from clustpsi.experiments.sweep import Sweep
from clustpsi.experiments.workers import Event, Outcome, Processes, Step, Worker
from clustpsi.runs import infeasible
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.sources import Sources
from clustpsi.runs.store import RunFolder, Store, write_json

TINY = {"dataset": "digits", "num_clients": 4, "comm_rounds": 2, "local_epochs": 1, "seeds_list": 1}


def identified(values: dict[str, object]) -> list[Config]:
    """The runs of a grid, with the content of their data."""
    known, unknown = Sources().identify(grid(values))
    assert not unknown
    return known


# ---------------------------------------------------------------------------------------------------------- grids


def test_a_grid_is_every_combination_with_the_methods_of_a_cell_together() -> None:
    runs = grid(TINY | {"dirichlet": [50, 0.3], "similarity": "0", "seeds_list": [1, 2], "agg_method": "fedavg,local"})
    assert len(runs) == len(set(runs)) == 3 * 2 * 2
    assert [run.agg_method for run in runs[:4]] == ["fedavg", "local"] * 2
    assert [run.seed for run in runs] == [1] * 6 + [2] * 6
    assert [(run.partitioner, run.non_iid_param) for run in runs[:6:2]] == [
        ("dirichlet", 50),
        ("dirichlet", 0.3),
        ("similarity", 0),
    ]
    assert {run.comm_rounds for run in runs} == {2}


def test_centralized_learning_runs_once_for_each_seed_whatever_the_partitions() -> None:
    runs = grid(
        TINY | {"dirichlet": [50, 0.3], "num_clients": [4, 6], "seeds_list": "1,2", "agg_method": "centralized"}
    )
    assert [(run.seed, run.partitioner, run.num_clients) for run in runs] == [(1, "iid", 6), (2, "iid", 6)]


def test_the_papers_grid_has_its_runs_and_leaves_out_what_it_found_infeasible() -> None:
    income = paper_grid({"dataset": "acs_income"})
    assert len(income) == 6 * 12 * 5 + 5  # six feasible partitions, twelve methods, and CL once for each of five seeds
    assert {(run.comm_rounds, run.local_epochs, run.fraction, run.num_clients) for run in income} == {(40, 5, 0.5, 100)}
    assert min(run.non_iid_param for run in income if run.partitioner == "dirichlet") == 0.3
    assert len(paper_grid({"dataset": "fmnist", "agg-method": "fedavg"})) == 9 * 5
    with pytest.raises(ClustPSIError, match="infeasible"):
        paper_grid({"dataset": "acs_income", "dirichlet": 0.05, "agg_method": "fedavg"})


def test_a_toml_file_may_hold_several_grids(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        "seeds_list = [1]\nnum-clients = 4\n"
        "[[grid]]\ndirichlet = [50, 0.3]\n"
        '[[grid]]\nagg-method = ["local"]\nlr = [0.1, 0.01]\n'
    )
    first, second = map(grid, read_grids(path))
    assert [(run.non_iid_param, run.num_clients, run.seed) for run in first] == [(50, 4, 1), (0.3, 4, 1)]
    assert [(run.agg_method, run.lr) for run in second] == [("local", 0.1), ("local", 0.01)]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"datasett": "digits"}, "unknown grid setting 'datasett': did you mean 'dataset'"),
        ({"dataset": "digit"}, "unknown dataset 'digit': did you mean 'digits'"),
        ({"agg_method": ["fedavgg"]}, "unknown method 'fedavgg'"),
        ({"dirichlet": []}, r"dirichlet \(values of alpha\) is empty"),
        ({"seeds_list": ""}, "seeds_list is empty"),
        ({"seeds_list": "1,1"}, "names a value twice"),
        ({"num_clients": "many"}, "num_clients must be whole numbers, not 'many'"),
        ({"num_clients": 2.5}, "num_clients must be whole numbers, not 2.5"),
        ({"dirichlet": 0.3, "partitioner": "iid"}, "not both ways"),
        ({"similarity": 2}, "must be from 0 to 1"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused_in_one_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ClustPSIError, match=sentence) as caught:
        grid(values)
    assert "\n" not in str(caught.value)


def test_a_grid_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match="cannot read the grid"):
        read_grids(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("dataset = ")
    with pytest.raises(ClustPSIError, match="is not TOML"):
        read_grids(tmp_path / "bad.toml")


# ------------------------------------------------------------------------------------------------ order and faults


def finish(store: Store, config: Config, seconds: float = 1.0) -> None:
    """Leave what a finished run leaves, as far as a sweep looks at it."""
    folder = RunFolder(store.root / config.folder_name)
    folder.create(config)
    write_json(folder / "timing.json", {"seconds": seconds})
    write_json(folder / "summary.json", {})


class Script:
    """A pool that plays a part: says how each attempt at a run ends, and finishes the folder if it ends well."""

    def __init__(
        self, store: Store, size: int = 1, play: Callable[[Config, int], Outcome] | None = None, seconds: float = 1.0
    ) -> None:
        self.size, self.store, self.closed, self.seconds = size, store, False, seconds
        self.play = play or (lambda config, attempt: Outcome("finished"))
        self.seen: list[tuple[int, Config]] = []
        self.waiting: list[tuple[int, Config]] = []

    def submit(self, worker: int, config: Config) -> None:
        self.seen.append((worker, config))
        self.waiting.append((worker, config))

    def events(self, timeout: float) -> Iterable[tuple[int, Event]]:
        if not self.waiting:
            time.sleep(0.01)
            return
        worker, config = self.waiting.pop(0)
        yield worker, Step(1, 2, 0.5)
        outcome = self.play(config, [each for _, each in self.seen].count(config))
        if outcome.status == "finished":
            finish(self.store, config, self.seconds)
        yield worker, outcome

    def close(self) -> None:
        self.closed = True


def some_runs(**more: object) -> list[Config]:
    return identified(TINY | {"dirichlet": [50, 0.3], "agg_method": "fedavg,local,clust_psi_pfl"} | more)


def test_a_worker_stays_in_its_cell_and_the_last_cell_is_shared(tmp_path: Path) -> None:
    store = Store(tmp_path)
    pool = Script(store, size=2)
    sweep = Sweep(some_runs(agg_method="fedavg,local,clust_psi_pfl,fedprox"), store)
    sweep.go(pool)
    assert pool.closed and len(sweep.finished) == sweep.computed == len(pool.seen) == 8
    levels = {worker: [run.non_iid_param for at, run in pool.seen if at == worker] for worker in (0, 1)}
    assert levels == {0: [50] * 4, 1: [0.3] * 4}
    shared = Script(store, size=2)
    Sweep(some_runs(dirichlet=0.7), store).go(shared)
    assert {worker for worker, _ in shared.seen} == {0, 1}


def test_a_cell_stays_with_its_worker_between_two_runs(tmp_path: Path) -> None:
    class Together(Script):
        """Whatever is under way ends at the same time."""

        def events(self, timeout: float) -> Iterable[tuple[int, Event]]:
            for _ in range(len(self.waiting)):
                yield from super().events(timeout)

    store, runs = Store(tmp_path), some_runs(dirichlet=[50, 0.3, 0.7], agg_method="fedavg,local,clust_psi_pfl,fedprox")
    for config in runs[:2]:
        finish(store, config)
    pool = Together(store, size=2)
    Sweep(runs, store).go(pool)
    levels = {worker: [run.non_iid_param for at, run in pool.seen if at == worker][:4] for worker in (0, 1)}
    assert levels == {0: [50, 50, 0.7, 0.7], 1: [0.3] * 4}


class Queue(Script):
    """A pool that notes how many runs its workers have when one is given; a worker that dies loses what it had."""

    def submit(self, worker: int, config: Config) -> None:
        self.most = max(getattr(self, "most", 0), 1 + [at for at, _ in self.waiting].count(worker))
        super().submit(worker, config)

    def events(self, timeout: float) -> Iterable[tuple[int, Event]]:
        for worker, event in super().events(timeout):
            if isinstance(event, Outcome) and event.status == "died":
                self.waiting = [(at, config) for at, config in self.waiting if at != worker]
            yield worker, event


@pytest.mark.parametrize(("seconds", "most"), [(0.1, 2), (1.0, 1)])
def test_a_worker_with_a_short_run_has_the_next_one_already(tmp_path: Path, seconds: float, most: int) -> None:
    store, runs = Store(tmp_path), some_runs()
    pool, sweep = Queue(store, seconds=seconds), Sweep(runs, store)
    sweep.go(pool)
    assert pool.most == most
    assert [config for _, config in pool.seen] == runs and sweep.computed == len(sweep.finished) == 6


def test_no_run_waits_for_a_worker_while_another_is_idle(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs(dirichlet=0.3)
    finish(store, runs[0], 0.1)  # so the runs are known to be short
    pool = Queue(store, size=2, seconds=0.1)
    Sweep(runs, store).go(pool)
    assert (pool.most, {worker for worker, _ in pool.seen}) == (1, {0, 1})


def test_the_next_run_of_a_worker_that_dies_is_done_and_has_not_been_tried(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs()
    died = Outcome("died", "its process was ended by SIGKILL")
    pool = Queue(store, seconds=0.1, play=lambda config, _: died if config in runs[2:4] else Outcome("finished"))
    sweep = Sweep(runs, store)
    sweep.go(pool)
    assert set(sweep.failed) == set(runs[2:4]) and sweep.finished == {*runs[:2], *runs[4:]}
    assert pool.most == 2 and [config for _, config in pool.seen].count(runs[3]) == 3  # lost once, tried twice


def test_finished_runs_are_never_submitted_again(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs()
    for config in runs[:4]:
        finish(store, config)
    pool = Script(store)
    sweep = Sweep(runs, store)
    sweep.go(pool)
    assert [config for _, config in pool.seen] == runs[4:]
    assert (len(sweep.finished), sweep.computed) == (6, 2)


def test_a_failed_run_stops_nothing_and_is_tried_again_by_the_next_sweep(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs()
    notices = []
    broken = Outcome("failed", "no luck", "where it went wrong")
    sweep = Sweep(runs, store, notify=lambda config, outcome: notices.append((config, outcome.status)))
    sweep.go(Script(store, play=lambda config, _: broken if config == runs[1] else Outcome("finished")))
    assert sweep.failed == {runs[1]: "no luck"} and len(sweep.finished) == 5
    assert notices.count((runs[1], "failed")) == 1 and len(notices) == 6
    note = tmp_path / "failed" / f"{runs[1].folder_name}.txt"
    assert note.read_text() == "no luck\nwhere it went wrong\n"
    again = Script(store)
    Sweep(runs, store).go(again)
    assert [config for _, config in again.seen] == [runs[1]]
    assert not note.exists()


def test_a_run_whose_worker_dies_is_tried_once_more(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs()
    fatal = {runs[0]: 1, runs[1]: 99}
    died = Outcome("died", "its process was ended by SIGKILL")
    pool = Script(store, play=lambda config, attempt: died if attempt <= fatal.get(config, 0) else Outcome("finished"))
    sweep = Sweep(runs, store)
    sweep.go(pool)
    assert [config for _, config in pool.seen].count(runs[0]) == 2 and runs[0] in sweep.finished
    assert [config for _, config in pool.seen].count(runs[1]) == 2
    assert sweep.failed == {runs[1]: "tried 2 times: its process was ended by SIGKILL"}


def test_an_infeasible_partition_is_tried_once_for_all_methods_and_remembered(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs()
    none = Outcome("infeasible", "no partition")

    def play(config: Config, attempt: int) -> Outcome:
        return none if config.non_iid_param == 0.3 else Outcome("finished")

    for tries in (1, 0):
        pool = Script(store, play=play)
        sweep = Sweep(runs, store)
        sweep.go(pool)
        assert [config.non_iid_param for _, config in pool.seen].count(0.3) == tries
        assert len(sweep.infeasible) == len(sweep.finished) == 3 and not sweep.failed
    (known,) = infeasible.recorded(store).values()
    assert (known["non_iid_param"], known["seed"], known["reason"]) == (0.3, 1, "no partition")


def test_a_run_under_way_elsewhere_is_waited_for_and_taken_over_if_it_is_dropped(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs(dirichlet=0.3)
    theirs, dropped = (RunFolder(tmp_path / config.folder_name) for config in runs[:2])
    pool, shown = Script(store), []
    with theirs.locked():
        lock = dropped.locked()
        lock.__enter__()

        def show(sweep: Sweep) -> None:
            shown.append(len(sweep.elsewhere))
            if len(sweep.finished) == 1 and len(shown) > 3:
                lock.__exit__(None, None, None)
                finish(store, runs[0])

        sweep = Sweep(runs, store, show=show)
        assert sweep.elsewhere == runs[:2]
        sweep.go(pool)
    assert [config for _, config in pool.seen] == [runs[2], runs[1]]
    assert len(sweep.finished) == 3 and sweep.computed == 2


def test_an_interrupted_sweep_stops_its_workers_and_keeps_what_is_finished(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs()

    def play(config: Config, attempt: int) -> Outcome:
        if config == runs[2]:
            raise KeyboardInterrupt
        return Outcome("finished")

    pool = Script(store, play=play)
    with pytest.raises(KeyboardInterrupt):
        Sweep(runs, store).go(pool)
    assert pool.closed
    assert Sweep(runs, store).finished == set(runs[:2])


def test_a_store_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs()
    write_json_in(tmp_path / "old" / "config.json", {"format": 0})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ClustPSIError, match="written by a different version of clustpsi"):
        Sweep(runs, store)
    assert sorted(tmp_path.rglob("*")) == before


def write_json_in(path: Path, values: object) -> None:
    path.parent.mkdir(parents=True)
    write_json(path, values)


def test_a_damaged_folder_fails_its_own_run_only(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs()
    damaged = tmp_path / runs[2].folder_name
    damaged.mkdir()
    (damaged / "config.json").write_text("{")
    sweep = Sweep(runs, store)
    sweep.go(Script(store))
    assert list(sweep.failed) == [runs[2]] and "config.json cannot be read" in sweep.failed[runs[2]]
    assert len(sweep.finished) == 5


def test_the_time_left_comes_from_the_pace_of_finished_runs(tmp_path: Path) -> None:
    store, runs = Store(tmp_path), some_runs()
    assert Sweep(runs, store).seconds_left() is None
    finish(store, runs[0])  # one second
    assert Sweep(runs, store).seconds_left() == pytest.approx(5.0)


# -------------------------------------------------------------------------------------------------- the real thing

SMALL = ["--dirichlet", "50", "--similarity", "0", "--num-clients", "4", "--comm-rounds", "2", "--local-epochs", "1"]
SMALL += ["--seeds-list", "1", "--agg-method", "fedavg,local,clust_psi_pfl"]


def contents(root: Path) -> dict[str, bytes]:
    """Every result of a store: all files but times and locks."""
    left_out = ("timing.json", ".lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in root.glob("*/*") if path.name not in left_out}


def call(*arguments: str) -> int | str | None:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small grid as plain runs, one by one in this process."""
    root = tmp_path_factory.mktemp("straight")
    for config in identified(TINY | {"dirichlet": 50, "similarity": 0, "agg_method": "fedavg,local,clust_psi_pfl"}):
        run(config, Store(root))
    return root


def test_a_sweep_killed_half_way_and_resumed_gives_the_same_bits(
    straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "clustpsi", "sweep", *SMALL, "--output", str(tmp_path), "--workers", "1"]
    victim = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    while not (done := list(tmp_path.glob("*/summary.json"))) and victim.poll() is None:
        time.sleep(0.01)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait()
    done = list(tmp_path.glob("*/summary.json"))
    assert 0 < len(done) < 6
    written = {path: path.stat().st_mtime_ns for path in done}
    assert call("sweep", *SMALL, "--output", str(tmp_path), "--workers", "2") == 0
    assert {path: path.stat().st_mtime_ns for path in done} == written
    assert contents(tmp_path) == contents(straight)
    capsys.readouterr()
    tables = []
    for root in (straight, tmp_path):
        for name in ("global", "local"):
            assert call("table", name, str(root), "--format", "csv") == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]


def test_a_killed_worker_is_replaced_and_its_run_goes_on(tmp_path: Path, straight: Path) -> None:
    store = Store(tmp_path)
    (config,) = (run for run in identified(TINY | {"similarity": 0, "agg_method": "clust_psi_pfl"}))
    pool = Processes(1, store)
    killed = []

    def show(sweep: Sweep) -> None:
        if not killed and 0 in sweep.running and 0 in pool._workers:
            killed.append(pool._workers[0][0].pid)
            os.kill(killed[0], signal.SIGKILL)

    sweep = Sweep([config], store, show=show)
    sweep.go(pool)
    assert killed and sweep.computed == 1
    name = config.folder_name
    ours = {key: value for key, value in contents(tmp_path).items() if key.startswith(name)}
    assert ours == {key: value for key, value in contents(straight).items() if key.startswith(name)}


@pytest.mark.skipif(not hasattr(os, "nice"), reason="this system has no priorities of processes")
def test_workers_stand_back_as_far_as_they_are_told(tmp_path: Path) -> None:
    store, (config,) = Store(tmp_path), identified(TINY)
    pool, own = Processes(1, store, niceness=3), os.getpriority(os.PRIO_PROCESS, 0)
    try:
        pool.submit(0, config)
        patience = time.monotonic() + 120
        while os.getpriority(os.PRIO_PROCESS, pool._workers[0][0].pid) != own + 3:
            assert time.monotonic() < patience
            time.sleep(0.01)
    finally:
        pool.close()


def test_an_infeasible_or_failing_run_says_why(tmp_path: Path) -> None:
    (config,) = identified(TINY | {"num_clients": 500})
    assert Worker(None).execute(config, Store(tmp_path)).status == "infeasible"
    outcome = Worker(None).execute(replace(config, dataset="none.csv", label="y"), Store(tmp_path))
    assert outcome.status == "failed" and "none.csv" in outcome.reason


def test_the_command_refuses_mistakes_and_counts_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, sentence in (
        (["--paper", "--grid", "x.toml"], "give one of them"),
        (["--ray", ""], "--ray needs the address of a cluster"),
        (["--dataset", "digit"], "did you mean 'digits'"),
    ):
        assert call("sweep", *arguments, "--output", str(tmp_path)) == 2
        assert sentence in capsys.readouterr().err
    nowhere = ["--data-dir", str(tmp_path / "data")]
    assert call("sweep", "--paper", "--dataset", "acs_income", "--dry-run", "--output", str(tmp_path), *nowhere) == 0
    said = capsys.readouterr().out
    assert said.startswith("365 runs: 0 finished, 365 left; 365 of them lack their data: ")
    assert "run `clustpsi data get acs_income`" in said


# ------------------------------------------------------------------------------------------------------------ Ray


def test_a_packed_run_is_the_same_when_unpacked_and_finished_only_at_the_end(straight: Path, tmp_path: Path) -> None:
    source = next(iter(Store(straight)))
    target = RunFolder(tmp_path / source.path.name)
    unpack(pack(source), target)
    assert target.finished and target.config() == source.config()
    assert contents(tmp_path) == {
        key: value for key, value in contents(straight).items() if key.startswith(source.path.name)
    }


def test_without_ray_the_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClustPSIError, match=r"pip install 'clustpsi\[ray\]'"):
        RayWorkers("local", Store(tmp_path))


def test_a_run_that_cannot_even_be_locked_fails_and_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = SimpleNamespace(init=lambda **_: None, shutdown=lambda: None, remote=lambda **_: type)
    monkeypatch.setitem(sys.modules, "ray", nothing)  # the run never gets as far as a worker
    store, (config,) = Store(tmp_path), identified(TINY)
    (tmp_path / ".locks" / f"{config.folder_name}.lock").mkdir(parents=True)
    sweep = Sweep([config], store)
    sweep.go(RayWorkers("local", store, size=1))
    assert "cannot write" in sweep.failed[config]


def test_what_a_ray_worker_reports_is_in_the_order_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is locked elsewhere is told after the run that the worker got before, not in its place."""
    ended, actor = (Outcome("failed", "no luck"), {}), SimpleNamespace(remote=lambda *_: "future")
    ray = SimpleNamespace(init=lambda **_: None, shutdown=lambda: None, kill=lambda _: None, get=lambda _: ended)
    ray.wait = lambda futures, **_: (futures, [])
    ray.remote = lambda **_: lambda _: SimpleNamespace(remote=lambda _: SimpleNamespace(execute=actor))
    ray.exceptions = SimpleNamespace(RayError=OSError)
    monkeypatch.setitem(sys.modules, "ray", ray)
    store, (ours, theirs) = Store(tmp_path), identified(TINY | {"agg_method": "fedavg,local"})
    pool = RayWorkers("local", store, size=1)
    with store.folder(theirs).locked():
        for config in (ours, theirs):
            pool.submit(0, config)
        assert store.folder(ours).is_locked
        told = [*pool.events(0), *pool.events(0), *pool.events(0)]
    assert [outcome.status for _, outcome in told if isinstance(outcome, Outcome)] == ["failed", "locked"]
    assert not store.folder(ours).is_locked
    pool.close()


def test_a_ray_address_where_nobody_answers_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with pytest.raises(ClustPSIError, match=r"no Ray cluster answers at '127\.0\.0\.1:1'"):
        RayWorkers("127.0.0.1:1", Store(tmp_path))


@pytest.mark.cluster
def test_a_sweep_on_ray_survives_the_loss_of_a_worker_and_gives_the_same_bits(straight: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    small = [*SMALL[SMALL.index("--similarity") :], "--output", str(tmp_path), "--ray", "local", "--workers", "2"]
    environment = os.environ | {"RAY_worker_niceness": "0"}  # by default Ray's workers wait for every other process
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    sweep = subprocess.Popen([sys.executable, "-m", "clustpsi", "sweep", *small], env=environment, **pipes)
    busy: list[int] = []
    while not busy and sweep.poll() is None:
        time.sleep(0.05)
        busy = ray_workers(sweep.pid)
    assert busy, "no worker was ever at work"
    os.kill(busy[0], signal.SIGKILL)
    said, _ = sweep.communicate()
    assert sweep.returncode == 0 and "3 runs: 3 finished; 3 computed now" in said
    assert contents(tmp_path) == {key: value for key, value in contents(straight).items() if "similarity" in key}


def ray_workers(sweep: int) -> list[int]:
    """Processes of Ray workers that a sweep started and that are busy."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
    found = []
    for pid in parents:
        ancestor = pid
        while ancestor in parents and ancestor != sweep:
            ancestor = parents[ancestor]
        try:
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if ancestor == sweep and name.startswith(b"ray::_RemoteWorker.execute"):
            found.append(pid)
    return found
