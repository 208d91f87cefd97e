"""One run: a method on a federation, from its configuration to its folder of results."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import Scores, constant_answers, score
from clustpsi.methods import Method, make_method
from clustpsi.methods.base import State
from clustpsi.orders import Deployment, Evaluate, Ledger, Model, Work, drive
from clustpsi.runs.cell import Cell, open_cell
from clustpsi.runs.config import Config
from clustpsi.runs.history import History
from clustpsi.runs.sources import Sources, identified
from clustpsi.runs.store import RunFolder, Store, load_arrays, pack_state, save_arrays, unpack_state
from clustpsi.streams import Stream, generator

# At least this many seconds pass between two checkpoints, and at least this many times what writing one takes.
CHECKPOINT_SECONDS = 5.0
CHECKPOINT_SHARE = 20


@dataclass(frozen=True)
class Progress:
    """What a run tells its watcher, after every round and whenever clients have trained.

    Attributes
    ----------
    round
        The last round that has ended.
    part
        The share of the next one's training that is done.
    num_rounds
        T.
    global_accuracy
        At the last evaluation.
    left_out
        Names of the clients whose update was not finite, once, when their round ends.
    """

    round: int
    part: float
    num_rounds: int
    global_accuracy: float
    left_out: tuple[str, ...] = ()


Watch = Callable[[Progress], None]


def run(
    config: Config,
    store: Store,
    *,
    cell: Cell | None = None,
    resume: bool = False,
    fresh: bool = False,
    save_models: bool = False,
    data_dir: Path | None = None,
    workers: int | None = None,
    watch: Watch | None = None,
) -> RunFolder:
    """Run a configuration and leave its results in the store.

    A finished run is not computed again unless ``fresh``; an unfinished one goes on where it was with ``resume`` and
    ends bit for bit as if it had never stopped.  ``cell`` spares the set-up when several methods run on one federation.
    """
    config = config.checked()
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
    method = make_method(config.agg_method)
    cell = cell or open_cell(config, dataset=dataset, workers=workers)
    with folder.locked():
        if fresh:
            folder.clear()
        elif folder.finished:  # by another process, since the first look
            return folder
        _Run(config, folder, method, cell, save_models, watch).go()
    return folder


class _Run:
    """A run under way."""

    def __init__(
        self, config: Config, folder: RunFolder, method: Method, cell: Cell, save_models: bool, watch: Watch | None
    ) -> None:
        self.config, self.folder, self.method, self.cell = config, folder, method, cell
        self.save_models, self.watch = save_models, watch
        self.setting = cell.setting(config)
        self.server, self.clients = cell.server, cell.server.clients
        self.constant = constant_answers(self.clients.train_counts, self.clients.test_counts)
        self.seconds: dict[str, float] = {}

    def go(self) -> None:
        try:
            self._go()
        finally:
            self.server.watch = None

    def _go(self) -> None:
        self.server.take_ledger()  # what an earlier run on this cell left behind
        if (self.folder / "checkpoint.npz").exists():
            with self._timed("files"):
                done, state, history = self._load()
                (self.folder / "failed.txt").unlink(missing_ok=True)
        else:
            done, state, history = 0, self._serve(self.method.start(self.setting), 0, "start"), History()
            self._close(0, state, history)
            with self._timed("files"):
                self.folder.create(self.config)
                self._write_clients()
            self._save(0, state, history)
        saved, cost = time.monotonic(), 0.0
        for t in range(done + 1, self.config.comm_rounds + 1):
            self._watch_training(t - 1, history)
            try:
                after = self._round(t, state)
                self._close(t, after, history)
            except ClustPSIError as error:
                self._save(t - 1, state, history)
                self.folder.write_failure(str(error))
                raise
            state = after
            if time.monotonic() - saved > max(CHECKPOINT_SECONDS, CHECKPOINT_SHARE * cost):
                before = time.monotonic()
                self._save(t, state, history)
                saved = time.monotonic()
                cost = saved - before
        self._finish(state, history)

    def _timed(self, purpose: str) -> AbstractContextManager[None]:
        return self.server.ledger.timed(purpose)

    def _round(self, t: int, state: State) -> State:
        rng = generator(self.config.seed, Stream.SAMPLING, t)
        return self._serve(self.method.round(self.setting, state, t, rng), t, "server")

    def _serve(self, work: Work[State], t: int, purpose: str) -> State:
        """Drive the method's work of round t; the time that its orders do not take is booked under ``purpose``.

        Clients' updates that are not finite never get here, but the server's arithmetic may overflow.
        """
        with self._timed(purpose), np.errstate(over="ignore", invalid="ignore"):
            state = drive(work, partial(self.server.serve, t=t))
            if not all(np.isfinite(vector).all() for model in _models(state) for vector in model):
                raise self._diverged(t, "a model of the server is not finite")
        return state

    def _close(self, t: int, state: State, history: History) -> None:
        """Close round t: evaluate where it is due, and record what the round cost."""
        with self._timed("evaluation"):
            due = t % self.config.eval_every == 0 or t == self.config.comm_rounds
            scores = self._scores(t, self.method.deploy(self.setting, state)) if due else None
            others = self.method.server_deployments(self.setting, state) if due else ()
            server = [self._scores(t, each) for each in others]
        ledger = self._take_ledger()
        history.add(t, scores, server, ledger, self.method.clusters(self.setting, state))
        if self.watch is not None:
            left_out = tuple(self.clients.names[client] for client in ledger.left_out)
            self.watch(Progress(t, 0.0, self.config.comm_rounds, history.last_accuracy, left_out))

    def _take_ledger(self) -> Ledger:
        """What was served since the last look; its time is added up here."""
        ledger = self.server.take_ledger()
        for purpose, seconds in ledger.seconds.items():
            self.seconds[purpose] = self.seconds.get(purpose, 0.0) + seconds
        return ledger

    def _scores(self, t: int, deployment: Deployment) -> Scores:
        scores = score(self.server.serve(Evaluate(self.setting.clients, deployment), t))
        if not np.isfinite(scores.loss):
            raise self._diverged(t, "the test loss is not finite")
        return scores

    def _diverged(self, t: int, what: str) -> ClustPSIError:
        if t == 0:
            return ClustPSIError(f"{what} before the first round: are all features finite?")
        return ClustPSIError(
            f"{self.config.agg_method} diverged: {what} in round {t}; try a smaller --lr than {self.config.lr:g} or, "
            "where the method has one, a smaller learning rate of the server (eta, server_lr)"
        )

    def _watch_training(self, ended: int, history: History) -> None:
        """Have the server report on a long round while it lasts."""
        watch, rounds, accuracy = self.watch, self.config.comm_rounds, history.last_accuracy
        if watch is not None:
            self.server.watch = lambda part: watch(Progress(ended, part, rounds, accuracy))

    def _load(self) -> tuple[int, State, History]:
        path = self.folder / "checkpoint.npz"
        arrays = load_arrays(path)
        try:
            self.seconds = dict(zip(arrays["seconds/of"].tolist(), arrays["seconds/spent"].tolist(), strict=True))
            return int(arrays["round"]), unpack_state(arrays), History.unpack(arrays)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise ClustPSIError(
                f"{path} is damaged or was written by a different version of clustpsi ({error}): start the run afresh "
                "with --fresh"
            ) from None

    def _write_clients(self) -> None:
        clients = self.clients
        self.folder.write_clients(clients.names, clients.class_names, clients.train_counts, clients.test_counts)

    def _save(self, t: int, state: State, history: History) -> None:
        """Tables first, checkpoint last: what the checkpoint says has happened is in the tables."""
        with self._timed("files"):
            self.folder.write_tables(
                history,
                self.clients.names,
                self.method.clusters(self.setting, state),
                self.method.tables(self.setting, state),
            )
            spent: dict[str, Any] = {
                "seconds/of": np.array(list(self.seconds), dtype=str),
                "seconds/spent": np.array(list(self.seconds.values())),
            }
            save_arrays(
                self.folder / "checkpoint.npz", {"round": np.array(t), **spent, **history.pack(), **pack_state(state)}
            )

    def _finish(self, state: State, history: History) -> None:
        self._save(self.config.comm_rounds, state, history)
        if self.save_models:
            with self._timed("files"):
                self.folder.write_models(self.method.deploy(self.setting, state), self.clients.names)
        self._take_ledger()
        facts = {"model": self.cell.model, "num_parameters": self.cell.num_parameters}
        self.folder.finish(history, facts, self.clients.train_counts, self.constant, self.seconds)


def _models(state: State) -> Iterator[Model]:
    """All models of a state, those of its parts included."""
    yield from state.models
    for part in state.parts:
        yield from _models(part)
