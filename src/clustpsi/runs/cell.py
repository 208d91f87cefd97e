"""Cells: what all methods of a comparison share, above all the server of their orders."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.base import Dataset
from clustpsi.datasets.labels import Parts
from clustpsi.datasets.word_vectors import WordVectors, read_word_vectors
from clustpsi.engine import Simulator
from clustpsi.engine.architecture import Architecture
from clustpsi.errors import ClustPSIError
from clustpsi.features import Fitted
from clustpsi.features.text import FIRST_WORD, FittedText
from clustpsi.federation import Federation, build_federation
from clustpsi.methods.base import Setting, check_option
from clustpsi.orders import Deployment, Server
from clustpsi.runs.config import Config, column_names, typed
from clustpsi.runs.going_on import going_on, saved_architecture, used_before
from clustpsi.runs.private import as_told
from clustpsi.runs.sources import Sources, content, with_content
from clustpsi.saved.file import load_model


@dataclass(frozen=True)
class OwnArchitecture:
    """A model that only the clients know: its name and its size."""

    model: str
    num_parameters: int


@dataclass(frozen=True)
class Cell:
    """A server of orders, its model and its features.

    Attributes
    ----------
    server
        A simulated federation, or a real one.
    content
        Hash of the server's data.
    fitted
        Features, fitted on all clients' training rows; None for clients with a model of their own.
    parts
        Columns of the data that are not features.
    architecture, model_reason
        The model that is trained, and why it was chosen.
    before
        What each client used before, if training continues from a saved model.
    """

    server: Server
    content: str
    fitted: Fitted[Any] | None
    parts: Parts
    architecture: Architecture | OwnArchitecture
    model_reason: str
    before: Deployment | None = None

    @property
    def model(self) -> str:
        return self.architecture.model

    @property
    def num_parameters(self) -> int:
        own = self.architecture
        return own.num_parameters if isinstance(own, OwnArchitecture) else own.network.num_parameters

    @property
    def head(self) -> NDArray[np.bool_] | None:
        """Which parameters belong to the model's last layer; None for clients with a model of their own."""
        own = self.architecture
        return None if isinstance(own, OwnArchitecture) else own.network.head

    @property
    def forms(self) -> tuple[str, ...]:
        """Forms of the model's convolutions, none if they are the usual ones; nodes choose their own."""
        return self.server.forms if isinstance(self.server, Simulator) else ()

    def with_forms(self, forms: tuple[str, ...]) -> "Cell":
        """The cell for a run that goes on and began with these forms."""
        if not isinstance(self.server, Simulator) or forms == self.forms:
            return self
        return replace(self, server=self.server.with_forms(forms))

    def identified(self, config: Config) -> Config:
        """The run, with the hash of this cell's data."""
        return with_content(config, self.content)

    def setting(self, config: Config) -> Setting:
        """What a method knows before it asks the clients anything."""
        clients = self.server.clients
        setting = Setting(
            clients=np.arange(len(clients.names)),
            sizes=clients.sizes,
            num_classes=clients.num_classes,
            fraction=config.fraction,
            num_rounds=config.comm_rounds,
            local_epochs=config.local_epochs,
            initial=self.server.initial,
            seed=config.seed,
            before=self.before,
            head=self.head,
        )
        if self.before is None:
            return setting
        general = setting.common_start
        return replace(setting, initial=lambda index: self.server.initial(index) if index else general)


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
            self.close()  # frees the old cell's memory before the new one needs any
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
        """Cells that are closed when the context ends."""
        cells = cls(sources, workers)
        try:
            yield cells
        finally:
            cells.close()


def open_cell(
    config: Config, *, dataset: Dataset | None = None, data_dir: Path | None = None, workers: int | None = None
) -> Cell:
    """Load the data (unless it is given), partition it over clients and set up the simulator."""
    config = config.checked()
    if workers is not None:
        workers = typed("workers", workers, int)
        check_option("workers", workers, {"least": 1})
    assert config.partitioner is not None
    dataset = dataset or Sources(data_dir).load(config)
    federation = build_federation(
        dataset, config.partitioner, config.non_iid_param, config.num_clients, config.seed, config.split
    )
    return open_federation(federation, config, workers=workers)


def open_federation(federation: Federation, config: Config, *, workers: int | None = None) -> Cell:
    """Set up the simulator for an existing federation."""
    if config.validation:
        federation = federation.for_validation(config.seed)
    dataset, saved = federation.dataset, None if config.start_from is None else load_model(config.start_from)
    if saved is not None:
        federation = going_on(federation, saved)
    if federation.num_clients < 2:
        raise ClustPSIError("a federation needs at least two clients, and this one has a single one")
    if np.count_nonzero(federation.label_counts.sum(axis=0)) < 2:
        raise ClustPSIError(
            "all training samples have the same label: there is nothing to learn; at least two classes are needed"
        )
    federation, told = as_told(federation, config.dp_epsilon, config.min_count, config.seed)
    architecture = _architecture(federation, config) if saved is None else saved_architecture(saved, config)
    simulator = Simulator(
        federation,
        architecture.network,
        told=told,
        optimizer=config.optimizer,
        lr=config.lr,
        batch_size=min(config.batch_size, len(federation.train_rows)),  # a larger one would only cost memory
        local_epochs=config.local_epochs,
        seed=config.seed,
        workers=workers,
    )
    return Cell(
        simulator,
        content(config, dataset),
        federation.fitted,
        _parts(federation, config),
        architecture,
        _reason(federation, architecture) if saved is None else "as in the saved model that it starts from",
        None if saved is None else used_before(saved, federation, config, dataset.content),
    )


def _architecture(federation: Federation, config: Config) -> Architecture:
    """The network that suits the data, or the one that the user asks for."""
    model = config.model or federation.dataset.model
    vectors = None if config.word_vectors is None else _word_vectors(federation, config.word_vectors)
    features = federation.features
    return Architecture(model, federation.num_classes, features.shape[1:], features.dtype.name, vectors)


def _parts(federation: Federation, config: Config) -> Parts:
    """The columns that are not features: those of the table, or the arrays of an NPZ file."""
    columns = federation.dataset.columns
    if not columns:
        return Parts(config.label, config.client, column_names(config.text))
    named = {kind: tuple(each.name for each in columns if each.kind == kind) for kind in ("label", "client", "text")}
    return Parts(next(iter(named["label"]), None), next(iter(named["client"]), None), named["text"])


def _reason(federation: Federation, architecture: Architecture) -> str:
    """Why this model was chosen."""
    chosen, vectors = architecture.model == federation.dataset.model, architecture.vectors
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
