"""One run: a method on a federation, from its configuration to its folder of results."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import constant_answers
from clustpsi.runs.cell import Cell, OwnArchitecture, open_cell
from clustpsi.runs.config import Config
from clustpsi.runs.course import Course, Watch
from clustpsi.runs.history import History
from clustpsi.runs.sources import Sources, identified
from clustpsi.runs.store import RunFolder, Store, load_arrays, pack_state, save_arrays, unpack_state
from clustpsi.saved import NAME as MODEL
from clustpsi.saved.file import save_model

# At least this many seconds pass between two checkpoints, and at least this many times what writing one takes.
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
) -> RunFolder:
    """Run a configuration and leave its results in the store.

    A finished run is not computed again unless ``fresh``; an unfinished one goes on where it was with ``resume`` and
    ends bit for bit as if it had never stopped.  That is after the last finished round with ``save_rounds``, and
    otherwise some seconds earlier.  ``cell`` spares the set-up when several methods run on one federation.
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
    with folder.locked():
        if fresh:
            folder.clear()
        elif folder.finished:  # by another process, since the first look
            return folder
        if (folder / "checkpoint.npz").exists():
            cell = cell.with_forms(folder.forms())
        _Run(Course(config, cell, watch), folder, save_models, save_rounds).go()
    return folder


class _Run:
    """A run whose course is kept in a folder."""

    def __init__(self, course: Course, folder: RunFolder, save_models: bool, save_rounds: bool) -> None:
        self.course, self.folder, self.save_models, self.save_rounds = course, folder, save_models, save_rounds
        self.clients = course.clients
        counted = np.zeros_like(self.clients.test_counts)  # of clients who are scored
        counted[course.scored] = self.clients.test_counts[course.scored]
        self.constant = constant_answers(self.clients.train_counts, counted)

    def go(self) -> None:
        course = self.course
        if (self.folder / "checkpoint.npz").exists():
            with course.timed("files"):
                self._load()
                (self.folder / "failed.txt").unlink(missing_ok=True)
        else:
            course.start()
            with course.timed("files"):
                self.folder.create(course.config)
                self._write_clients()
            self._save()
        saved, cost = time.monotonic(), 0.0
        while not course.is_over:
            try:
                course.round()
            except ClustPSIError as error:
                self._save()
                self.folder.write_failure(str(error))
                raise
            if self.save_rounds or time.monotonic() - saved > max(CHECKPOINT_SECONDS, CHECKPOINT_SHARE * cost):
                before = time.monotonic()
                self._save()
                saved = time.monotonic()
                cost = saved - before
        self._finish()

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
        """Tables first, checkpoint last: what the checkpoint says has happened is in the tables."""
        course = self.course
        with course.timed("files"):
            self.folder.write_tables(
                course.history,
                self.clients.names,
                course.scored,
                course.method.clusters(course.setting, course.state),
                course.method.tables(course.setting, course.state),
            )
            self.folder.write_newcomers(course.newcomers)
            spent: dict[str, Any] = {
                "seconds/of": np.array(list(course.seconds), dtype=str),
                "seconds/spent": np.array(list(course.seconds.values())),
            }
            packed = {**course.history.pack(), **pack_state(course.state)}
            how = {"round": np.array(course.done), "forms": np.array(course.cell.forms, dtype=str)}
            save_arrays(self.folder / "checkpoint.npz", {**how, **spent, **packed})

    def _finish(self) -> None:
        self._save()
        course, cell = self.course, self.course.cell
        if self.save_models:
            with course.timed("files"):
                if isinstance(cell.architecture, OwnArchitecture):  # which only the clients know
                    self.folder.write_vectors(course.deployment, self.clients.names)
                else:
                    save_model(course.saved(), self.folder / MODEL)
        course.take_ledger()
        facts: dict[str, Any] = {"model": cell.model, "num_parameters": cell.num_parameters}
        if cell.forms:
            facts["convolutions"] = list(cell.forms)
        self.folder.finish(course.history, facts, self.clients.train_counts, self.constant, course.seconds)
