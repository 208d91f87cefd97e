"""Workers, which execute the runs of a sweep: in this process, in others on this machine, or elsewhere."""

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from clustpsi.errors import ClustPSIError, ClustPSIWarning, InfeasiblePartition
from clustpsi.runs.config import Config
from clustpsi.runs.sources import Sources
from clustpsi.runs.store import RunLocked, Store

if TYPE_CHECKING:
    from clustpsi.runs.cell import Cells

REPORTS = 0.2  # seconds between two reports of a worker process on its rounds: more would be work that nobody sees


@dataclass(frozen=True)
class Step:
    """A run has finished a round."""

    round: int
    num_rounds: int
    accuracy: float


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a run ended."""

    status: Literal["finished", "failed", "infeasible", "locked", "died"]
    reason: str = ""
    details: str = ""


@dataclass(frozen=True)
class Note:
    """A warning of a worker process, which the main process shows."""

    text: str


Event = Step | Note | Outcome


class Pool(Protocol):
    """Workers by number, each of which does its runs in the order in which it gets them."""

    size: int

    def submit(self, worker: int, config: Config) -> None:
        """Give a run to a worker, which may still have others to do; a worker that died is replaced."""

    def events(self, timeout: float) -> Iterable[tuple[int, Event]]:
        """What workers have reported; waits up to ``timeout`` seconds for the first report.

        A worker that died has done none of the runs that it still had.
        """

    def close(self) -> None:
        """Stop all workers at once; their runs can continue from checkpoints."""


# ----------------------------------------------------------------------------------------------------- one worker


class Worker:
    """Executes runs, one after the other; consecutive runs of a cell share its federation and compiled programs."""

    def __init__(self, data_dir: Path | None) -> None:
        self._data_dir = data_dir
        self._cells: Cells | None = None
        self._infeasible: tuple[dict[str, Any], Outcome] | None = None
        self._files = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._told: Future[None] | None = None  # of the last run that has trained

    def execute(self, config: Config, store: Store, watch: Callable[[Step], None] | None = None) -> Outcome:
        """Execute a run, from its checkpoint if there is one; never raises."""
        return self._rounds(config, store, watch)

    def train(
        self, config: Config, store: Store, tell: Callable[[Outcome], None], watch: Callable[[Step], None]
    ) -> None:
        """Execute a run, whose last files are written and whose outcome is told while the next one trains.

        The disk takes a while to keep files, and short runs would spend a part of their time waiting for it.
        """
        rest: list[Callable[[], None]] = []
        outcome = self._rounds(config, store, watch, rest.append)
        self.wait()
        if rest:
            self._told = self._files.submit(lambda: tell(_outcome(rest[0])))
        else:
            tell(outcome)

    def _rounds(
        self,
        config: Config,
        store: Store,
        watch: Callable[[Step], None] | None,
        later: Callable[[Callable[[], None]], None] | None = None,
    ) -> Outcome:
        from clustpsi.runs.cell import Cells  # here, because only workers need JAX
        from clustpsi.runs.course import Progress
        from clustpsi.runs.run import run

        def report(progress: Progress) -> None:
            if watch is not None and progress.part == 0:  # a round has ended
                watch(Step(progress.round, progress.num_rounds, progress.global_accuracy))

        def work() -> None:
            self._cells = self._cells or Cells(Sources(self._data_dir), workers=1)
            run(config, store, cell=self._cells.open(config), resume=True, watch=report, later=later)

        if self._infeasible is not None and self._infeasible[0] == config.cell:
            return self._infeasible[1]  # the search for a partition is long, and was in vain for the run before
        outcome = _outcome(work)
        if outcome.status == "infeasible":
            self._infeasible = config.cell, outcome
        return outcome

    def wait(self) -> None:
        """Until all runs that have trained have been told of."""
        if self._told is not None:
            self._told.result()


def _outcome(work: Callable[[], None]) -> Outcome:
    """How it ended."""
    try:
        work()
    except InfeasiblePartition as error:
        return Outcome("infeasible", str(error))
    except RunLocked as error:
        return Outcome("locked", str(error))
    except ClustPSIError as error:
        return Outcome("failed", str(error))
    except Exception as error:
        first_line = str(error).partition("\n")[0]
        return Outcome("failed", f"{type(error).__name__}: {first_line}", traceback.format_exc())
    return Outcome("finished")


class Processes:
    """Workers as processes of this machine; each is fresh (spawned), because JAX does not survive a fork.

    ``niceness`` is how far they stand back for other processes, on systems that know such a thing.
    """

    def __init__(self, size: int, store: Store, data_dir: Path | None = None, niceness: int = 0) -> None:
        self.size, self.store, self.data_dir, self.niceness = size, store, data_dir, niceness
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, tuple[Any, multiprocessing.connection.Connection]] = {}

    def submit(self, worker: int, config: Config) -> None:
        if worker not in self._workers:
            ours, theirs = self._context.Pipe()
            given = (theirs, self.store, self.data_dir, self.niceness)
            process = self._context.Process(target=_serve, args=given, daemon=True)
            with _sigint_blocked():  # in the new process too, which would print a traceback while it imports
                process.start()
            theirs.close()  # so that the end of the process is the end of the pipe
            self._workers[worker] = process, ours
        with contextlib.suppress(OSError):  # it has died: the end of its pipe says so to `events`
            self._workers[worker][1].send(config)

    def events(self, timeout: float) -> Iterable[tuple[int, Event]]:
        ready = multiprocessing.connection.wait([pipe for _, pipe in self._workers.values()], timeout)
        for worker, (_, pipe) in list(self._workers.items()):
            if pipe not in ready:
                continue
            try:
                yield worker, pipe.recv()
            except (EOFError, OSError):
                yield worker, Outcome("died", self._bury(worker))

    def _bury(self, worker: int) -> str:
        process, pipe = self._workers.pop(worker)
        pipe.close()
        process.join()
        if process.exitcode < 0:
            return f"its process was ended by {signal.Signals(-process.exitcode).name} (short of memory?)"
        return f"its process ended with code {process.exitcode}"

    def close(self) -> None:
        for process, _ in self._workers.values():
            process.kill()  # every file is written atomically, so there is nothing to wait for
        for worker in list(self._workers):
            self._bury(worker)


@contextlib.contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Keep Ctrl-C waiting; processes that are started meanwhile never see it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    multiprocessing.resource_tracker.ensure_running()  # its start, with the first process, would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: multiprocessing.connection.Connection, store: Store, data_dir: Path | None, niceness: int) -> None:
    """A worker process: runs in, events out, until the sweep is gone."""
    if niceness and hasattr(os, "nice"):
        os.nice(niceness)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the sweep decides what it means
    shown, sending = warnings.showwarning, threading.Lock()

    def send(event: Event) -> None:
        with sending:  # outcomes come from a thread of their own
            pipe.send(event)

    def forward(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, ClustPSIWarning):
            send(Note(str(message)))
        else:
            shown(message, category, *place, **more)

    warnings.showwarning = forward
    worker, reported = Worker(data_dir), 0.0

    def report(step: Step) -> None:
        nonlocal reported
        if time.monotonic() - reported > REPORTS:
            worker.wait()  # nothing is said of a run before the one before has been told of
            send(step)
            reported = time.monotonic()

    with contextlib.suppress(EOFError, OSError):
        while True:
            worker.train(pipe.recv(), store, send, report)


class ThisProcess:
    """A pool with one worker, this process: no process has to start, so small searches are quick."""

    size = 1

    def __init__(self, store: Store, data_dir: Path | None = None) -> None:
        self.store = store
        self._worker = Worker(data_dir)
        self._submitted: list[Config] = []

    def submit(self, worker: int, config: Config) -> None:
        self._submitted.append(config)

    def events(self, timeout: float) -> Iterable[tuple[int, Event]]:
        if self._submitted:
            yield 0, self._worker.execute(self._submitted.pop(0), self.store)
        else:
            time.sleep(timeout)

    def close(self) -> None:
        self._submitted.clear()
