"""Cells: what all methods that are compared with each other share, above all who serves their orders."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clustpsi.datasets.base import Dataset
from clustpsi.datasets.word_vectors import WordVectors, read_word_vectors
from clustpsi.engine import Simulator, network_for
from clustpsi.errors import ClustPSIError
from clustpsi.features.text import FIRST_WORD, FittedText
from clustpsi.federation import Federation, build_federation
from clustpsi.methods.base import Setting
from clustpsi.models import build_model
from clustpsi.orders import Server
from clustpsi.runs.config import Config
from clustpsi.runs.sources import Sources, content, with_content


@dataclass(frozen=True)
class Cell:
    """A server of orders and its model.

    Attributes
    ----------
    server
        A simulated federation, or a real one.
    content
        Hash of the data that it serves with.
    model, num_parameters, model_reason
        What is trained, how large it is, and why it was chosen.
    """

    server: Server
    content: str
    model: str
    num_parameters: int
    model_reason: str

    def identified(self, config: Config) -> Config:
        """A run on this cell, together with the content of its data."""
        return with_content(config, self.content)

    def setting(self, config: Config) -> Setting:
        """What a method knows before it asks the clients anything."""
        clients = self.server.clients
        return Setting(
            clients=np.arange(len(clients.names)),
            sizes=clients.sizes,
            num_classes=clients.num_classes,
            fraction=config.fraction,
            num_rounds=config.comm_rounds,
            local_epochs=config.local_epochs,
            initial=self.server.initial,
            seed=config.seed,
        )


class Cells:
    """Opens the cells of runs; consecutive runs of a cell share its federation and compiled programs.

    Parameters
    ----------
    sources
        Where the data comes from.
    workers
        How many chunks of clients a simulator trains at once; by default one per core.
    """

    def __init__(self, sources: Sources, workers: int | None = None) -> None:
        self._sources, self._workers = sources, workers
        self._settings: dict[str, object] | None = None
        self._cell: Cell | None = None

    def open(self, config: Config, dataset: Dataset | None = None) -> Cell:
        """The cell of a run, on the data set if one is given."""
        if self._cell is None or self._settings != config.cell:
            self.close()  # the old cell's memory is free before the new one takes any
            self._cell = open_cell(config, dataset=dataset or self._sources.load(config), workers=self._workers)
            self._settings = config.cell
        return self._cell

    def close(self) -> None:
        if self._cell is not None:
            self._cell.server.close()
        self._settings = self._cell = None

    @classmethod
    @contextmanager
    def of(cls, sources: Sources, workers: int | None = None) -> Iterator["Cells"]:
        """Cells that are closed at the end."""
        cells = cls(sources, workers)
        try:
            yield cells
        finally:
            cells.close()


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
    return Cell(
        simulator,
        content(config, federation.dataset),
        model,
        network.num_parameters,
        _reason(federation, model, vectors),
    )


def _reason(federation: Federation, model: str, vectors: WordVectors | None) -> str:
    """Why this model."""
    chosen = model == federation.dataset.model
    reason = federation.dataset.model_reason if chosen else "as asked for with --model"
    if vectors is None:
        return reason
    words, dimensions = vectors.table.shape
    return f"{reason}; {vectors.found:,} of {words - FIRST_WORD:,} words have a vector ({dimensions} numbers)"


def _word_vectors(federation: Federation, path: str) -> WordVectors:
    """The vectors of the words of the training data."""
    fitted = federation.fitted
    if not isinstance(fitted, FittedText):
        raise ClustPSIError(f"--word-vectors are for texts, and {federation.dataset.name} has none")
    return read_word_vectors(Path(path), fitted.words)
