"""One run: a method on a federation, from its configuration to the folder with its results."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import constant_answers
from clustpsi.files import kept_together
from clustpsi.runs.cell import Cell, OwnArchitecture, open_cell
from clustpsi.runs.config import Config
from clustpsi.runs.course import Course, Watch
from clustpsi.runs.history import History
from clustpsi.runs.sources import Sources, identified
from clustpsi.runs.store import RunFolder, Store, load_arrays, pack_state, save_arrays, unpack_state
from clustpsi.saved import NAME as MODEL
from clustpsi.saved.file import save_model

# Between two checkpoints pass at least this many seconds, and at least this many times the time of writing one.
CHECKPOINT_SECONDS = 5.0
CHECKPOINT_SHARE = 20


def run(
    config: Config,
    store: Store,
    *,
    cell: Cell | None = None,
    resume: bool = False,
    fresh: bool = False,
    save_models: bool = False,
    save_rounds: bool = False,
    data_dir: Path | None = None,
    workers: int | None = None,
    watch: Watch | None = None,
    later: Callable[[Callable[[], None]], None] | None = None,
) -> RunFolder:
    """Run a configuration and write its results to the store.

    A finished run is not computed again unless ``fresh``.  With ``resume`` an unfinished run continues from its last
    checkpoint and ends bit for bit as if it had never stopped.  With ``save_rounds`` every round has a checkpoint;
    otherwise the last one may be some seconds old.  ``cell`` saves the set-up if several methods run on one federation.
    ``later`` is given what is left to do after the last round, which is to write files and to unlock the folder; this
    may be done in another thread, while the cell serves the next run.
    """
    config = config.checked()
    if config.split == "none":
        raise ClustPSIError(
            "--split none leaves no rows to score a run on: take another, or train on all rows with "
            "clustpsi.FederatedClassifier"
        )
    dataset = None
    if cell is None:
        dataset = Sources(data_dir).load(config)
        config = identified(config, dataset)
    else:
        config = cell.identified(config)
    folder = store.folder(config)
    if folder.finished and not fresh:
        return folder
    if folder.exists and not (resume or fresh):
        raise ClustPSIError(
            f"{folder.path} holds an unfinished run: go on with --resume, or start it again with --fresh"
        )
    cell = cell or open_cell(config, dataset=dataset, workers=workers)
    with ExitStack() as held:
        held.enter_context(folder.locked())
        if fresh:
            folder.clear()
        elif folder.finished:  # another process has finished it since the first check
            return folder
        if (folder / "checkpoint.npz").exists():
            cell = cell.with_forms(folder.forms())
        made = _Run(Course(config, cell, watch), folder, save_models, save_rounds)
        made.go()
        if later is None:
            made.finish()
        else:
            kept = held.pop_all()
            later(lambda: _finish(made, kept))
    return folder


def _finish(made: "_Run", held: ExitStack) -> None:
    with held:
        made.finish()


class _Run:
    """A run that writes its course to a folder."""

    def __init__(self, course: Course, folder: RunFolder, save_models: bool, save_rounds: bool) -> None:
        self.course, self.folder, self.save_models, self.save_rounds = course, folder, save_models, save_rounds
        self.clients = course.clients
        counted = np.zeros_like(self.clients.test_counts)  # of the clients that are scored
        counted[course.scored] = self.clients.test_counts[course.scored]
        self.constant = constant_answers(self.clients.train_counts, counted)

    def go(self) -> None:
        """All rounds."""
        course, saved, cost = self.course, time.monotonic(), 0.0
        if (self.folder / "checkpoint.npz").exists():
            with course.timed("files"):
                self._load()
                (self.folder / "failed.txt").unlink(missing_ok=True)
        else:
            course.start()
            with course.timed("files"), kept_together():
                self.folder.create(course.config)
                self._write_clients()
        while not course.is_over:
            if self.save_rounds or time.monotonic() - saved > max(CHECKPOINT_SECONDS, CHECKPOINT_SHARE * cost):
                before = time.monotonic()
                self._save()
                saved = time.monotonic()
                cost = saved - before
            try:
                course.round()
            except ClustPSIError as error:
                self._save()
                self.folder.write_failure(str(error))
                raise
        course.take_ledger()

    def _load(self) -> None:
        path = self.folder / "checkpoint.npz"
        arrays = load_arrays(path)
        try:
            seconds = dict(zip(arrays["seconds/of"].tolist(), arrays["seconds/spent"].tolist(), strict=True))
            self.course.go_on(int(arrays["round"]), unpack_state(arrays), History.unpack(arrays), seconds)
            self.course.newcomers = [row for row in self.folder.newcomers() if row["round"] <= self.course.done]
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise ClustPSIError(
                f"{path} is damaged or was written by a different version of clustpsi ({error}): start the run afresh "
                "with --fresh"
            ) from None

    def _write_clients(self) -> None:
        clients = self.clients
        self.folder.write_clients(clients.names, clients.class_names, clients.train_counts, clients.test_counts)

    def _save(self) -> None:
        """Write tables first and the checkpoint last: then the tables have every round that the checkpoint has."""
        course = self.course
        with course.timed("files"):
            with kept_together():
                self._write_tables()
            spent: dict[str, Any] = {
                "seconds/of": np.array(list(course.seconds), dtype=str),
                "seconds/spent": np.array(list(course.seconds.values())),
            }
            packed = {**course.history.pack(), **pack_state(course.state)}
            how = {"round": np.array(course.done), "forms": np.array(course.cell.forms, dtype=str)}
            save_arrays(self.folder / "checkpoint.npz", {**how, **spent, **packed})

    def _write_tables(self) -> None:
        course = self.course
        self.folder.write_tables(
            course.history,
            self.clients.names,
            course.scored,
            course.method.clusters(course.setting, course.state),
            course.method.tables(course.setting, course.state),
        )
        self.folder.write_newcomers(course.newcomers)

    def finish(self) -> None:
        """What comes after the last round.  The cell's server may already serve another run: its ledger is not used."""
        course, cell, before = self.course, self.course.cell, time.perf_counter()
        with kept_together():  # the summary, which says that all is there, comes after them
            self._write_tables()
            if self.save_models:
                if isinstance(cell.architecture, OwnArchitecture):  # only the clients know it
                    self.folder.write_vectors(course.deployment, self.clients.names)
                else:
                    save_model(course.saved(), self.folder / MODEL)
            files = course.seconds.get("files", 0.0) + time.perf_counter() - before
            self.folder.write_timing({**course.seconds, "files": files})
        facts: dict[str, Any] = {"model": cell.model, "num_parameters": cell.num_parameters}
        if cell.forms:
            facts["convolutions"] = list(cell.forms)
        self.folder.finish(course.history, facts, self.clients.train_counts, self.constant)
