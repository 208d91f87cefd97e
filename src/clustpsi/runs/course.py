"""The course of a run in memory: a method's rounds on a cell, their scores and costs, and the model at the end."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.engine.architecture import Architecture
from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import Scores, score
from clustpsi.methods import make_method
from clustpsi.methods.base import State
from clustpsi.orders import Deployment, Evaluate, Ledger, Model, Work, drive
from clustpsi.runs.cell import Cell
from clustpsi.runs.config import SCORED_CLIENTS, Config
from clustpsi.runs.history import History
from clustpsi.saved.file import versions
from clustpsi.saved.model import SavedModel
from clustpsi.streams import Stream, generator


@dataclass(frozen=True)
class Progress:
    """What a run reports after every round and whenever clients have trained.

    Attributes
    ----------
    round
        The last round that has ended.
    part
        The share of the next round's training that is done.
    num_rounds
        T, the number of rounds.
    global_accuracy
        Global accuracy at the last evaluation.
    left_out
        Names of the clients whose update was missing or not finite; reported once, when their round ends.
    """

    round: int
    part: float
    num_rounds: int
    global_accuracy: float
    left_out: tuple[str, ...] = ()


Watch = Callable[[Progress], None]


class Course:
    """A run in progress: call :meth:`start` or :meth:`go_on`, then :meth:`round` until all rounds are done.

    Parameters
    ----------
    config
        The run.
    cell
        The cell that serves its orders.
    watch
        Called after every round and whenever clients have trained.

    Attributes
    ----------
    done
        The last round that has ended.
    state
        What the server keeps for the next round.
    history
        Scores and costs so far.
    seconds
        Time spent so far, by purpose.
    newcomers
        Scores of clients that came after the start: one record per client and evaluation.
    scored
        The clients that are scored: all, or a sample that is the same in every round.
    """

    state: State

    def __init__(self, config: Config, cell: Cell, watch: Watch | None = None) -> None:
        self.config, self.cell, self.watch = config, cell, watch
        self.method, self.setting = make_method(config.agg_method), cell.setting(config)
        self.server, self.clients = cell.server, cell.server.clients
        self.done, self.history, self.seconds = 0, History(), dict[str, float]()
        self.newcomers = list[dict[str, Any]]()
        self.scored = _scored(config, self.setting.clients)
        self.server.take_ledger()  # drops what an earlier run on this cell left

    @property
    def is_over(self) -> bool:
        return self.done == self.config.comm_rounds

    def start(self) -> None:
        """Everything before the first round."""
        self.state = self._serve(self.method.start(self.setting), 0, "start")
        self._close(0, self.state)

    def go_on(self, done: int, state: State, history: History, seconds: dict[str, float]) -> None:
        """Continue a stopped run from its last checkpoint."""
        self.done, self.state, self.history, self.seconds = done, state, history, seconds

    def round(self) -> None:
        """Carry out the next round; if it fails, everything stays as before."""
        t = self.done + 1
        self._watch_training()
        try:
            after = self._round(t)
            self._close(t, after)
        finally:
            self.server.watch = None
        self.done, self.state = t, after

    def timed(self, purpose: str) -> AbstractContextManager[None]:
        """A block whose time counts for a purpose."""
        return self.server.ledger.timed(purpose)

    def take_ledger(self) -> Ledger:
        """The costs since the last call; their time is added to :attr:`seconds`."""
        ledger = self.server.take_ledger()
        for purpose, seconds in ledger.seconds.items():
            self.seconds[purpose] = self.seconds.get(purpose, 0.0) + seconds
        return ledger

    @property
    def deployment(self) -> Deployment:
        """What each client uses now."""
        return self.method.deploy(self.setting, self.state)

    def saved(self) -> SavedModel:
        """Everything that is needed to use the models, if they are clustpsi's models."""
        clients, cell, state = self.clients, self.cell, self.state
        assert cell.fitted is not None and isinstance(cell.architecture, Architecture)
        return SavedModel(
            clients.class_names,
            clients.names,
            clients.train_counts,
            cell.fitted,
            cell.parts,
            cell.architecture,
            self.deployment,
            self.method.newcomers(self.setting, state, clients.train_counts),
            self.method.clusters(self.setting, state),
            self.config.agg_method,
            self.config.as_dict(),
            versions(),
        )

    # ------------------------------------------------------------------------------------------------------ steps

    def _round(self, t: int) -> State:
        with self.timed("server"):  # drawing clients is its work too
            rng = generator(self.config.seed, Stream.SAMPLING, t)
        return self._serve(self.method.round(self.setting, self.state, t, rng), t, "server")

    def _serve(self, work: Work[State], t: int, purpose: str) -> State:
        """Carry out the method's work of round t; time outside its orders counts for ``purpose``.

        Updates of clients that are not finite were omitted before, but the server's arithmetic may overflow.
        """
        with self.timed(purpose), np.errstate(over="ignore", invalid="ignore"):
            state = drive(work, partial(self.server.serve, t=t))
            if not all(np.isfinite(vector).all() for model in _models(state) for vector in model):
                raise self._diverged(t, "a model of the server is not finite")
        return state

    def _close(self, t: int, state: State) -> None:
        """Close round t: evaluate if it is due, and record the costs of the round."""
        with self.timed("evaluation"):
            due = t % self.config.eval_every == 0 or t == self.config.comm_rounds
            due = due and bool(self.clients.test_counts[self.scored].any())
            scores = self._scores(t, self.method.deploy(self.setting, state)) if due else None
            others = self.method.server_deployments(self.setting, state) if due else ()
            server = [self._scores(t, each) for each in others]
            if due:
                self._score_newcomers(t, state)
        ledger = self.take_ledger()
        with self.timed("server"):  # which keeps the records
            self.history.add(t, scores, server, ledger, self.method.clusters(self.setting, state))
        if self.watch is not None:
            left_out = tuple(self.clients.names[client] for client in ledger.left_out)
            self.watch(Progress(t, 0.0, self.config.comm_rounds, self.history.last_accuracy, left_out))

    def _scores(self, t: int, deployment: Deployment) -> Scores:
        scores = score(self.server.serve(Evaluate(self.scored, deployment.of(self.scored)), t))
        if not np.isfinite(scores.loss):
            raise self._diverged(t, "the test loss is not finite")
        return scores

    def _score_newcomers(self, t: int, state: State) -> None:
        """Score clients that came after the start, each with the model that its label counts choose."""
        new = self.server.newcomers
        if new is None:
            return
        placed = self.method.newcomers(self.setting, state, self.clients.train_counts).place(new.train_counts)
        positions = len(self.clients.names) + np.arange(len(new.names))
        evaluated = self.server.serve(Evaluate(positions, placed), t)
        if evaluated is None:  # they have all left again
            return
        rows, right = evaluated.actual.sum(axis=1), evaluated.correct.sum(axis=1)
        for name, model, of, out_of in zip(new.names, placed.of_client, right, rows, strict=True):
            accuracy = float(of / out_of) if out_of else float("nan")
            self.newcomers.append({"round": t, "client": name, "model": int(model), "accuracy": accuracy})

    def _diverged(self, t: int, what: str) -> ClustPSIError:
        if t == 0:
            return ClustPSIError(f"{what} before the first round: are all features finite?")
        return ClustPSIError(
            f"{self.config.agg_method} diverged: {what} in round {t}; try a smaller --lr than {self.config.lr:g} or, "
            "where the method has one, a smaller learning rate of the server (eta, server_lr)"
        )

    def _watch_training(self) -> None:
        """Have the server report progress during a long round."""
        watch, ended, rounds, accuracy = self.watch, self.done, self.config.comm_rounds, self.history.last_accuracy
        if watch is not None:
            self.server.watch = lambda part: watch(Progress(ended, part, rounds, accuracy))


def _scored(config: Config, clients: NDArray[np.int64]) -> NDArray[np.int64]:
    """The clients that are scored, in ascending order."""
    number = min(config.eval_clients or SCORED_CLIENTS, len(clients))
    if number == len(clients):
        return clients
    return np.sort(generator(config.seed, Stream.SCORED).choice(clients, number, replace=False))


def _models(state: State) -> Iterator[Model]:
    """All models of a state, including those of its parts."""
    yield from state.models
    for part in state.parts:
        yield from _models(part)
