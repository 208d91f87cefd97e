"""One run: a method on a federation, from its configuration to its folder of results."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from clustpsi.config import Config
from clustpsi.datasets import load_dataset
from clustpsi.datasets.base import Dataset
from clustpsi.datasets.text import FIRST_WORD, Texts
from clustpsi.datasets.word_vectors import WordVectors, read_word_vectors
from clustpsi.engine import Simulator, network_for
from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import Scores, score
from clustpsi.federation import Federation, build_federation
from clustpsi.history import History
from clustpsi.limits import check_visits
from clustpsi.methods import Method, make_method
from clustpsi.methods.base import Deployment, Setting, State
from clustpsi.methods.orders import drive
from clustpsi.models import build_model
from clustpsi.results import RunFolder, Store, load_arrays, pack_state, save_arrays, unpack_state
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
        Clients whose update was not finite, once, when their round ends.
    """

    round: int
    part: float
    num_rounds: int
    global_accuracy: float
    left_out: tuple[int, ...] = ()


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


@lru_cache(maxsize=1)
def _dataset(name: str, label: str | None, client: str | None, text: str | None, data_dir: Path | None) -> Dataset:
    columns = tuple(column.strip() for column in text.split(",")) if text else ()
    return load_dataset(name, data_dir=data_dir, label=label, client=client, text=columns)


def open_cell(
    config: Config, *, dataset: Dataset | None = None, data_dir: Path | None = None, workers: int | None = None
) -> Cell:
    """Load the data (unless it is given), spread it over clients and set the simulator up."""
    dataset = dataset or _dataset(config.dataset, config.label, config.client, config.text, data_dir)
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
    texts = federation.dataset.prepare
    if not isinstance(texts, Texts):
        raise ClustPSIError(f"--word-vectors are for texts, and {federation.dataset.name} has none")
    return read_word_vectors(Path(path), texts.vocabulary(federation.train_rows))


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
    folder = store.folder(config)
    if folder.finished and not fresh:
        return folder
    if folder.exists and not (resume or fresh):
        raise ClustPSIError(
            f"{folder.path} holds an unfinished run: go on with --resume, or start it again with --fresh"
        )
    method = make_method(config.agg_method)
    cell = cell or open_cell(config, data_dir=data_dir, workers=workers)
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
        self.seconds: dict[str, float] = {}

    def go(self) -> None:
        try:
            self._go()
        finally:
            self.simulator.watch = None

    def _go(self) -> None:
        self.simulator.take_ledger()  # what an earlier run on this cell left behind
        if (self.folder / "checkpoint.npz").exists():
            done, state, history = self._load()
        else:
            done, state, history = 0, self._start(), History()
            self.folder.create(self.config)
            self._evaluate(0, state, history)
            self.folder.write_clients(self.cell.federation)
            self._save(0, state, history)
        saved, cost = time.monotonic(), 0.0
        for t in range(done + 1, self.config.comm_rounds + 1):
            rng = generator(self.config.seed, Stream.SAMPLING, t)
            self._watch_training(t - 1, history)
            work = self.method.round(self.setting, state, t, rng)
            state = drive(work, partial(self.simulator.serve, t=t))
            self._evaluate(t, state, history)
            if time.monotonic() - saved > max(CHECKPOINT_SECONDS, CHECKPOINT_SHARE * cost):
                before = time.monotonic()
                self._save(t, state, history)
                saved = time.monotonic()
                cost = saved - before
        self._finish(state, history)

    def _start(self) -> State:
        return drive(self.method.start(self.setting), partial(self.simulator.serve, t=0))

    def _evaluate(self, t: int, state: State, history: History) -> None:
        """Close round t: evaluate where it is due, and record what the round cost."""
        due = t % self.config.eval_every == 0 or t == self.config.comm_rounds
        scores = self._scores(self.method.deploy(self.setting, state)) if due else None
        server = [self._scores(each) for each in self.method.server_deployments(self.setting, state)] if due else []
        ledger = self.simulator.take_ledger()
        for purpose, seconds in ledger.seconds.items():
            self.seconds[purpose] = self.seconds.get(purpose, 0.0) + seconds
        history.add(t, scores, server, ledger, self.method.clusters(self.setting, state))
        if self.watch is not None:
            self.watch(Progress(t, 0.0, self.config.comm_rounds, history.last_accuracy, tuple(ledger.left_out)))

    def _watch_training(self, ended: int, history: History) -> None:
        """Have the simulator report on a long round while it lasts."""
        watch, rounds, accuracy = self.watch, self.config.comm_rounds, history.last_accuracy
        if watch is not None:
            self.simulator.watch = lambda part: watch(Progress(ended, part, rounds, accuracy))

    def _scores(self, deployment: Deployment) -> Scores:
        correct, loss = self.simulator.evaluate(deployment)
        return score(correct, loss, self.cell.federation.test_sizes)

    def _load(self) -> tuple[int, State, History]:
        arrays = load_arrays(self.folder / "checkpoint.npz")
        try:
            self.seconds = dict(zip(arrays["seconds/of"].tolist(), arrays["seconds/spent"].tolist(), strict=True))
            return int(arrays["round"]), unpack_state(arrays), History.unpack(arrays)
        except KeyError as missing:
            raise ClustPSIError(
                f"{self.folder / 'checkpoint.npz'} lacks {missing}: start the run afresh with --fresh"
            ) from None

    def _save(self, t: int, state: State, history: History) -> None:
        """Tables first, checkpoint last: what the checkpoint says has happened is in the tables."""
        names = self.cell.federation.client_names
        self.folder.write_tables(
            history, names, self.method.clusters(self.setting, state), self.method.tables(self.setting, state)
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
            deployment = self.method.deploy(self.setting, state)
            self.folder.write_models(deployment, self.cell.federation.client_names)
        facts = {"model": self.cell.model, "num_parameters": self.cell.num_parameters}
        self.folder.finish(self.cell.federation, history, facts, self.seconds)
