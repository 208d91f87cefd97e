"""Sweeps: many runs on all cores, which continue after any interruption.

The store decides what is left to do: a run is done when its folder is finished, and the process working on a run holds
its lock.  So a sweep needs no state of its own, several sweeps may share a store, and a killed one is started again.
"""

import contextlib
import itertools
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clustpsi.errors import ClustPSIError, ClustPSIWarning
from clustpsi.experiments.workers import Event, Note, Outcome, Pool, Step
from clustpsi.files import make_folder, write_atomically
from clustpsi.runs import infeasible
from clustpsi.runs.config import FORMAT, Config
from clustpsi.runs.store import RunFolder, Store

ATTEMPTS = 2  # a run whose worker dies is tried once more: the machine may have been short of memory for a moment
SHORT = 1.0  # seconds; whoever is busy with a shorter run has the next one already, and never waits for it
LOOK_AGAIN = 1.0  # seconds between two looks at runs that another sweep works on


@dataclass
class Running:
    """A run that a worker of this sweep is busy with."""

    config: Config
    step: Step | None = None


@dataclass
class Sweep:
    """Executes many runs.

    Parameters
    ----------
    configs
        The runs, in this order as far as possible; each is identified, so that its folder is known.
    store
        Where the runs go.
    unknown
        Runs whose data cannot be read, with the reason; they fail.
    notify
        Called with a run and how it ended, once for each run that this sweep has to work on.
    show
        Called often, for a live view.

    Attributes
    ----------
    finished, computed
        Finished runs, and how many of them this sweep has computed.
    failed, infeasible
        Runs that will not be finished, with the reason.
    notes
        What should be known about finished runs: updates that were omitted, accuracy that still moves.
    running
        Runs in progress here, by worker.
    elsewhere
        Runs in progress in other processes.
    """

    configs: Sequence[Config]
    store: Store
    unknown: Mapping[Config, str] = field(default_factory=dict)
    notify: Callable[[Config, Outcome], None] = lambda config, outcome: None
    show: Callable[["Sweep"], None] = lambda sweep: None
    finished: set[Config] = field(default_factory=set, init=False)
    computed: int = field(default=0, init=False)
    failed: dict[Config, str] = field(default_factory=dict, init=False)
    infeasible: dict[Config, str] = field(default_factory=dict, init=False)
    notes: dict[Config, list[str]] = field(default_factory=dict, init=False)
    running: dict[int, Running] = field(default_factory=dict, init=False)
    elsewhere: list[Config] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        _check_version(self.store)
        self._known_infeasible = {name: values["reason"] for name, values in infeasible.recorded(self.store).items()}
        self._pending: dict[Any, list[Config]] = {}
        self._ahead: dict[int, Config] = {}  # the next run of workers that have it already
        self._attempts: dict[Config, int] = defaultdict(int)
        self._pace = _Pace()
        self._num_workers = 1
        for config in self.configs:
            if config not in self.unknown and self._is_open(config, tell=False):
                self._pending.setdefault(_cell(config), []).append(config)

    @property
    def num_pending(self) -> int:
        return sum(map(len, self._pending.values()))

    def go(self, pool: Pool) -> None:
        """Work until every run is finished, failed or infeasible."""
        self._num_workers = pool.size
        for lost, reason in self.unknown.items():
            self._end(lost, Outcome("failed", reason))
        cells: dict[int, Any] = {}  # that each worker has open
        looked = time.monotonic()
        try:
            while True:
                idle_first = sorted(range(pool.size), key=self.running.__contains__)
                for worker in idle_first + idle_first:  # a run to do, then one to do next
                    if self._wants_more(worker) and (config := self._next(worker, cells)) is not None:
                        if worker in self.running:
                            self._ahead[worker] = config
                        else:
                            self.running[worker] = Running(config)
                        cells[worker] = _cell(config)
                        pool.submit(worker, config)
                self.show(self)
                if not self.running and not self.elsewhere:
                    return
                for worker, event in pool.events(LOOK_AGAIN):
                    self._handle(worker, event)
                if time.monotonic() - looked > LOOK_AGAIN:
                    self._look_elsewhere()
                    looked = time.monotonic()
        finally:
            pool.close()

    def seconds_left(self) -> float | None:
        """An estimate from the pace of finished runs; None before the first."""
        waiting = itertools.chain(*self._pending.values(), self._ahead.values())
        paces = [(self._pace.of(config), config.comm_rounds) for config in waiting] + [
            (self._pace.of(run.config), run.config.comm_rounds - (run.step.round if run.step else 0))
            for run in self.running.values()
        ]
        if any(pace is None for pace, _ in paces):
            return None
        return sum(pace * rounds for pace, rounds in paces if pace is not None) / self._num_workers

    def _wants_more(self, worker: int) -> bool:
        """Whether a worker should get a run: it has none, or none after a short one."""
        if worker not in self.running:
            return True
        now = self.running[worker].config
        pace = self._pace.of(now)
        return worker not in self._ahead and pace is not None and pace * now.comm_rounds < SHORT

    def _next(self, worker: int, cells: dict[int, Any]) -> Config | None:
        """A run for a worker: of its own cell, else of one that nobody has open, else of that with most runs left."""
        while self._pending:
            others = {cell for other, cell in cells.items() if other != worker}
            free = (cell for cell in self._pending if cell not in others)
            fullest = max(self._pending, key=lambda cell: len(self._pending[cell]))
            cell = cells[worker] if cells.get(worker) in self._pending else next(free, fullest)
            config = self._pending[cell].pop(0)
            if not self._pending[cell]:
                del self._pending[cell]
            if self._is_open(config):
                return config
        return None

    def _is_open(self, config: Config, *, tell: bool = True) -> bool:
        """Whether a run is still to be done; if not, it is counted."""
        try:
            folder = self.store.folder(config)
        except ClustPSIError as error:
            self._end(config, Outcome("failed", str(error)))
            return False
        if folder.finished:
            self._end(config, Outcome("finished"), tell=tell)
        elif (reason := self._known_infeasible.get(infeasible.partition_name(config))) is not None:
            self._end(config, Outcome("infeasible", reason), tell=tell)
        elif folder.is_locked:
            self.elsewhere.append(config)
        else:
            return True
        return False

    def _look_elsewhere(self) -> None:
        waiting, self.elsewhere = self.elsewhere, []
        for config in waiting:
            if self._is_open(config):
                self._pending.setdefault(_cell(config), []).append(config)

    def _handle(self, worker: int, event: Event) -> None:
        if isinstance(event, Note):
            warnings.warn(event.text, ClustPSIWarning, stacklevel=2)
            return
        if isinstance(event, Step):
            self.running[worker].step = event
            return
        if worker not in self.running:
            return  # an idle worker died: it is replaced when it is needed
        config, ahead = self.running.pop(worker).config, self._ahead.pop(worker, None)
        if ahead is not None and event.status == "died":
            self._pending.setdefault(_cell(ahead), []).insert(0, ahead)
        elif ahead is not None:
            self.running[worker] = Running(ahead)
        if event.status == "locked":
            self.elsewhere.append(config)
        elif event.status == "died":
            self._attempts[config] += 1
            if self._attempts[config] < ATTEMPTS:
                self._pending.setdefault(_cell(config), []).insert(0, config)
            else:
                self._end(config, Outcome("failed", f"tried {ATTEMPTS} times: {event.reason}"))
        else:
            self.computed += event.status == "finished"
            self._end(config, event)

    def _end(self, config: Config, outcome: Outcome, *, tell: bool = True) -> None:
        """Count a run that has ended; if it has no result, leave a note beside the runs."""
        name = config.folder_name
        note = self.store.root / "failed" / f"{name}.txt"
        with contextlib.suppress(ClustPSIError):  # a full disk must not stop the sweep; the reason is told anyway
            if outcome.status == "finished":
                self.finished.add(config)
                note.unlink(missing_ok=True)
                folder = RunFolder(self.store.root / name)
                self._pace.learn(config, folder)
                if notes := folder.summary().get("notes"):
                    self.notes[config] = notes
            elif outcome.status == "infeasible":
                self.infeasible[config] = outcome.reason
                if (partition := infeasible.partition_name(config)) not in self._known_infeasible:
                    self._known_infeasible[partition] = outcome.reason
                    infeasible.record(self.store, config, outcome.reason)
            else:
                self.failed[config] = outcome.reason
                make_folder(note.parent)
                text = "\n".join(filter(None, [outcome.reason, outcome.details])) + "\n"
                write_atomically(note, lambda file: file.write(text.encode()))
        if tell:
            self.notify(config, outcome)


class _Pace:
    """Seconds per round: of the same data set, clients and method; else of the same data set; else of any run."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], tuple[float, int]] = {}  # the sum and the number of paces

    def learn(self, config: Config, folder: RunFolder) -> None:
        with contextlib.suppress(ClustPSIError, KeyError):
            pace = folder.timing()["seconds"] / config.comm_rounds
            for key in self._keys(config):
                total, number = self._seen.get(key, (0.0, 0))
                self._seen[key] = total + pace, number + 1

    def of(self, config: Config) -> float | None:
        seen = next((self._seen[key] for key in self._keys(config) if key in self._seen), None)
        return None if seen is None else seen[0] / seen[1]

    @staticmethod
    def _keys(config: Config) -> list[tuple[Any, ...]]:
        return [(config.dataset, config.num_clients, config.agg_method), (config.dataset, config.num_clients), ()]


def _cell(config: Config) -> tuple[Any, ...]:
    return tuple(config.cell.values())


def _check_version(store: Store) -> None:
    """Raise for a store of another version: its runs would not be found, and all would be computed again."""
    for folder in store:
        try:
            written = json.loads((folder / "config.json").read_text()).get("format")
        except (OSError, ValueError, AttributeError):
            continue  # a damaged folder stops only its own run
        if written != FORMAT:
            raise ClustPSIError(
                f"the store {store.root} was written by a different version of clustpsi (format {written}; this one "
                f"writes {FORMAT}): choose another --output; nothing in it was changed"
            )
