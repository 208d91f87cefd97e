"""Training from the page: each start is a separate process, and the runs are those of ``clustpsi run``.

The runs are in the explorer's store: a stopped run continues, and a finished run is not computed again.
"""

import secrets
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from clustpsi.errors import ClustPSIError
from clustpsi.experiments.workers import Note, Outcome, Processes, Step
from clustpsi.explorer.library import Library
from clustpsi.explorer.settings import Settings
from clustpsi.report.charts import Curve
from clustpsi.runs.config import Config
from clustpsi.runs.sources import identified
from clustpsi.runs.store import RunFolder, Store

MOST_AT_ONCE = 4
PATIENCE = 0.5  # seconds between checks of a process, or of a run that another tab computes
MOST_POINTS = 400  # points of a curve: more than a screen can show, and few enough to send twice a second
REMEMBERED = 32  # jobs that are remembered after their end
NICENESS = 10  # of what trains: the page should answer meanwhile


@dataclass
class Method:
    """The progress of one method."""

    config: Config
    state: str = "waiting"  # running, finished, failed or stopped
    reason: str = ""
    rounds: dict[int, float] = field(default_factory=dict)  # accuracy by round
    folder: RunFolder | None = None

    @property
    def done(self) -> bool:
        return self.state in ("finished", "failed", "stopped")


class Job:
    """The training that one press of the start button began."""

    def __init__(self, settings: Settings, library: Library, store: Store) -> None:
        self.settings, self.library, self.store = settings, library, store
        self.methods = [Method(settings.config(each, library.file(settings)).checked()) for each in settings.methods]
        self.notes: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the process; what it has written stays, and the next start continues from there."""
        self._stop.set()
        self.wait()

    def wait(self) -> None:
        """Wait until the job is over."""
        self._thread.join()

    @property
    def under_way(self) -> bool:
        return not all(method.done for method in self.methods)

    @property
    def folders(self) -> list[Path]:
        """Folders of the finished runs."""
        return [each.folder.path for each in self.methods if each.state == "finished" and each.folder is not None]

    def curves(self) -> dict[str, Curve]:
        """Accuracy by round of each method that has begun; if there are many rounds, some of them and the last."""
        found = {}
        for each in self.methods:
            rounds = list(each.rounds.items())  # a copy: the other thread may add rounds
            if rounds:
                kept = np.unique(np.linspace(0, len(rounds) - 1, MOST_POINTS).round().astype(int))
                numbers, accuracies = zip(*(rounds[i] for i in kept), strict=True)
                found[each.config.agg_method] = Curve(np.array(numbers), np.array([accuracies]))
        return found

    def _work(self) -> None:
        pool = Processes(1, self.store, self.library.data_dir, NICENESS)
        try:
            dataset = self.library.dataset(self.settings)
            for method in self.methods:
                method.config = identified(method.config, dataset)
                method.folder = self.store.folder(method.config)
            for method in self.methods:
                if not self._stop.is_set():
                    self._train(method, pool)
        except ClustPSIError as error:
            self._end("failed", self.library.told(error))
        finally:
            pool.close()
            self._end("stopped", "")

    def _train(self, method: Method, pool: Processes) -> None:
        assert method.folder is not None
        method.state = "running"
        if method.folder.exists:  # what an earlier start has computed
            self._read(method)
        if method.folder.finished:
            method.state = "finished"
            return
        while True:
            outcome = self._attempt(method, pool)
            if outcome is None or outcome.status != "locked":
                break
            time.sleep(PATIENCE)  # another tab computes the same run
        if outcome is None:
            method.state = "stopped"
        elif outcome.status == "finished":
            self._read(method)
            method.state = "finished"
        else:
            method.state, method.reason = "failed", self.library.told(ClustPSIError(outcome.reason))

    def _attempt(self, method: Method, pool: Processes) -> Outcome | None:
        """Have the process compute the run; None if the job was stopped."""
        pool.submit(0, method.config)
        while not self._stop.is_set():
            for _, event in pool.events(PATIENCE):
                if isinstance(event, Step):
                    method.rounds[event.round] = event.accuracy
                elif isinstance(event, Note):
                    self.notes.append(event.text)
                else:
                    return event
        return None

    def _read(self, method: Method) -> None:
        """Read accuracies from the run's file, which has all of them once the run has finished."""
        assert method.folder is not None
        table = method.folder.rounds()
        known = dict(zip(table["round"].astype(int).tolist(), table["global_accuracy"].tolist(), strict=True))
        method.rounds = {number: known[number] for number in sorted(known) if np.isfinite(known[number])}

    def _end(self, state: str, reason: str) -> None:
        for method in self.methods:
            if not method.done:
                method.state, method.reason = state, reason


class Training:
    """All jobs of this explorer, by names that cannot be guessed, so that a tab knows only its own jobs."""

    def __init__(self, library: Library, store: Store) -> None:
        self.library, self.store = library, store
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, settings: Settings) -> str:
        """Start to train; gives the job's name."""
        if settings.is_counts:
            raise ClustPSIError("label counts cannot be trained on: choose the column of the label, or a data set")
        if not settings.methods:
            raise ClustPSIError("choose at least one method to train")
        with self._lock:
            if sum(job.under_way for job in self._jobs.values()) >= MOST_AT_ONCE:
                raise ClustPSIError(f"{MOST_AT_ONCE} trainings are under way: wait for one, or stop one")
            over = [name for name, job in self._jobs.items() if not job.under_way]
            for name in over[: max(0, len(self._jobs) - REMEMBERED)]:
                del self._jobs[name]
            job, name = Job(settings, self.library, self.store), secrets.token_hex(8)
            job.start()
            self._jobs[name] = job
        return name

    def job(self, name: str | None) -> Job | None:
        return None if name is None else self._jobs.get(name)

    def close(self) -> None:
        """Stop all jobs."""
        for job in list(self._jobs.values()):
            job.stop()
