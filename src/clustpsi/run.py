"""One run: a method on a federation, from its configuration to its folder of results."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clustpsi.config import Config
from clustpsi.datasets.base import Dataset
from clustpsi.datasets.word_vectors import WordVectors, read_word_vectors
from clustpsi.engine import Simulator, network_for
from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import Scores, constant_answers, score
from clustpsi.features.text import FIRST_WORD, FittedText
from clustpsi.federation import Federation, build_federation
from clustpsi.history import History
from clustpsi.ledger import Ledger
from clustpsi.limits import check_visits
from clustpsi.methods import Method, make_method
from clustpsi.methods.base import Setting, State
from clustpsi.methods.orders import Deployment, Evaluate, Model, Work, drive
from clustpsi.models import build_model
from clustpsi.results import RunFolder, Store, load_arrays, pack_state, save_arrays, unpack_state
from clustpsi.sources import Sources, identified
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


@dataclass(frozen=True)
class Cell:
    """A federation and its simulator, which all methods compared with each other share."""

    federation: Federation
    simulator: Simulator
    model: str
    vectors: WordVectors | None = None

    @property
    def num_parameters(self) -> int:
        return self.simulator.network.num_parameters

    @property
    def model_reason(self) -> str:
        """Why this model."""
        chosen = self.model == self.federation.dataset.model
        reason = self.federation.dataset.model_reason if chosen else "as asked for with --model"
        if self.vectors is None:
            return reason
        words, dimensions = self.vectors.table.shape
        return f"{reason}; {self.vectors.found:,} of {words - FIRST_WORD:,} words have a vector ({dimensions} numbers)"

    def setting(self, config: Config) -> Setting:
        return Setting(
            clients=np.arange(self.federation.num_clients),
            sizes=self.federation.train_sizes,
            num_classes=self.federation.num_classes,
            fraction=config.fraction,
            num_rounds=config.comm_rounds,
            local_epochs=config.local_epochs,
            initial=self.simulator.initial,
            seed=config.seed,
        )


def open_cell(
    config: Config, *, dataset: Dataset | None = None, data_dir: Path | None = None, workers: int | None = None
) -> Cell:
    """Load the data (unless it is given), spread it over clients and set the simulator up."""
    config = config.checked()
    assert config.partitioner is not None
    dataset = dataset or Sources(data_dir).load(config)
    federation = build_federation(
        dataset, config.partitioner, config.non_iid_param, config.num_clients, config.seed, config.split
    )
    return open_federation(federation, config, workers=workers)


def open_federation(federation: Federation, config: Config, *, workers: int | None = None) -> Cell:
    """Set the simulator up for a federation that is there already."""
    if config.validation:
        federation = federation.for_validation(config.seed)
    if federation.num_clients < 2:
        raise ClustPSIError("a federation needs at least two clients, and this one has a single one")
    if np.count_nonzero(federation.label_counts.sum(axis=0)) < 2:
        raise ClustPSIError(
            "all training samples have the same label: there is nothing to learn; at least two classes are needed"
        )
    check_visits(int(federation.train_sizes.max()), config.local_epochs, "the largest client")
    model = config.model or federation.dataset.model
    vectors = None if config.word_vectors is None else _word_vectors(federation, config.word_vectors)
    features = federation.features
    network = network_for(build_model(model, federation.num_classes, vectors), features.shape[1:], features.dtype)
    simulator = Simulator(
        federation,
        network,
        optimizer=config.optimizer,
        lr=config.lr,
        batch_size=min(config.batch_size, len(federation.train_rows)),  # more would only take memory
        local_epochs=config.local_epochs,
        seed=config.seed,
        workers=workers,
    )
    return Cell(federation, simulator, model, vectors)


def _word_vectors(federation: Federation, path: str) -> WordVectors:
    """The vectors of the words of the training data."""
    fitted = federation.fitted
    if not isinstance(fitted, FittedText):
        raise ClustPSIError(f"--word-vectors are for texts, and {federation.dataset.name} has none")
    return read_word_vectors(Path(path), fitted.words)


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
    dataset = Sources(data_dir).load(config) if cell is None else cell.federation.dataset
    config = identified(config, dataset)
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
        self.simulator = cell.simulator
        self.client_names = cell.federation.client_names
        self.constant = constant_answers(cell.federation.label_counts, cell.federation.test_label_counts)
        self.seconds: dict[str, float] = {}

    def go(self) -> None:
        try:
            self._go()
        finally:
            self.simulator.watch = None

    def _go(self) -> None:
        self.simulator.take_ledger()  # what an earlier run on this cell left behind
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
        return self.simulator.ledger.timed(purpose)

    def _round(self, t: int, state: State) -> State:
        rng = generator(self.config.seed, Stream.SAMPLING, t)
        return self._serve(self.method.round(self.setting, state, t, rng), t, "server")

    def _serve(self, work: Work[State], t: int, purpose: str) -> State:
        """Drive the method's work of round t; the time that its orders do not take is booked under ``purpose``.

        Clients' updates that are not finite never get here, but the server's arithmetic may overflow.
        """
        with self._timed(purpose), np.errstate(over="ignore", invalid="ignore"):
            state = drive(work, partial(self.simulator.serve, t=t))
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
            left_out = tuple(self.client_names[client] for client in ledger.left_out)
            self.watch(Progress(t, 0.0, self.config.comm_rounds, history.last_accuracy, left_out))

    def _take_ledger(self) -> Ledger:
        """What was served since the last look; its time is added up here."""
        ledger = self.simulator.take_ledger()
        for purpose, seconds in ledger.seconds.items():
            self.seconds[purpose] = self.seconds.get(purpose, 0.0) + seconds
        return ledger

    def _scores(self, t: int, deployment: Deployment) -> Scores:
        scores = score(self.simulator.serve(Evaluate(self.setting.clients, deployment), t))
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
        """Have the simulator report on a long round while it lasts."""
        watch, rounds, accuracy = self.watch, self.config.comm_rounds, history.last_accuracy
        if watch is not None:
            self.simulator.watch = lambda part: watch(Progress(ended, part, rounds, accuracy))

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
        federation = self.cell.federation
        self.folder.write_clients(
            self.client_names, federation.dataset.class_names, federation.label_counts, federation.test_label_counts
        )

    def _save(self, t: int, state: State, history: History) -> None:
        """Tables first, checkpoint last: what the checkpoint says has happened is in the tables."""
        with self._timed("files"):
            self.folder.write_tables(
                history,
                self.client_names,
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
                self.folder.write_models(self.method.deploy(self.setting, state), self.client_names)
        self._take_ledger()
        facts = {"model": self.cell.model, "num_parameters": self.cell.num_parameters}
        self.folder.finish(history, facts, self.cell.federation.label_counts, self.constant, self.seconds)


def _models(state: State) -> Iterator[Model]:
    """All models of a state, those of its parts included."""
    yield from state.models
    for part in state.parts:
        yield from _models(part)
