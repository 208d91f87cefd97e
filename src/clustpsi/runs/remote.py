"""Cells whose clients are nodes on other machines."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from clustpsi.datasets.labels import Parts
from clustpsi.datasets.word_vectors import read_word_vectors
from clustpsi.engine.architecture import Architecture
from clustpsi.errors import ClustPSIError
from clustpsi.features import fitted_from_dict
from clustpsi.features.text import FittedText
from clustpsi.methods import make_method
from clustpsi.nodes.gathering import Gathered, gather, load, save
from clustpsi.nodes.protocol import Initial, Served, Training
from clustpsi.nodes.server import Exchange, NodeServer, Patience, Transport
from clustpsi.orders import Model, Unusable
from clustpsi.runs.cell import Cell, OwnArchitecture
from clustpsi.runs.config import Config, column_names


def check_method(spec: str) -> None:
    """Raise if no real federation can carry out the method."""
    if make_method(spec).is_centralized:
        raise ClustPSIError(
            f"{spec} trains on all data in one place, which no federation can do: simulate it with clustpsi run"
        )


def open_nodes(
    config: Config,
    transport: Transport,
    wanted: int,
    *,
    patience: Patience | None = None,
    classes: Sequence[str] = (),
    memory: Path | None = None,
    resume: bool = False,
) -> Cell:
    """Build a cell from nodes.

    Parameters
    ----------
    config
        The run.
    transport
        Carries messages to the nodes.
    wanted
        How many nodes the federation needs.
    patience
        How long the server waits, and for how many nodes.
    classes
        All classes, if they are known; no node may have others.
    memory
        File in which the federation is saved.
    resume
        Whether to continue with the federation in that file, if it exists.
    """
    config = config.checked()
    check_method(config.agg_method)
    if config.start_from is not None:
        raise ClustPSIError("--start-from is for simulations: a federation starts from initial models")
    exchange = Exchange(transport, patience or Patience())
    if resume and memory is not None and memory.exists():
        gathered, node_of, met = load(memory), dict[str, int](), set[int]()
        number = len(gathered.members)
        exchange.wait_for_nodes(number, exchange.patience.needed(number))
    else:
        gathered, node_of = gather(
            exchange,
            wanted,
            seed=config.seed,
            classes=classes,
            dp_epsilon=config.dp_epsilon,
            min_count=config.min_count,
        )
        met = transport.nodes()
        if memory is not None:
            save(memory, gathered)
    return _cell(config, exchange, gathered, node_of, met)


def _cell(config: Config, exchange: Exchange, gathered: Gathered, node_of: dict[str, int], met: set[int]) -> Cell:
    clients = gathered.clients
    model = config.model or gathered.model
    settings = {
        "optimizer": config.optimizer,
        "lr": config.lr,
        "batch_size": min(config.batch_size, int(clients.sizes.sum())),
        "local_epochs": config.local_epochs,
    }
    fitted = fitted_from_dict(gathered.fitted) if gathered.fitted else None
    vectors = None
    if config.word_vectors is not None:
        if not isinstance(fitted, FittedText):
            raise ClustPSIError("--word-vectors are for texts, and the nodes have none")
        vectors = read_word_vectors(Path(config.word_vectors), fitted.words)
    training = Training(gathered.fitted, model, None if vectors is None else vectors.table, settings)
    architecture: Architecture | OwnArchitecture
    if fitted is None:
        if model != gathered.model:
            raise ClustPSIError(f"--model {model} is not the nodes' own model, {gathered.model}: leave it out")
        server = NodeServer(exchange, gathered.members, clients, training, _no_initial, node_of, met)
        initial = cache(lambda index: _asked_initial(server, index, config.seed))
        architecture = OwnArchitecture(model, initial(0).parameters.size)
    else:
        shape, dtype = fitted.row
        architecture = known = Architecture(model, clients.num_classes, shape, dtype.name, vectors)
        initial = cache(lambda index: known.network.initial(config.seed, index))
        server = NodeServer(exchange, gathered.members, clients, training, initial, node_of, met)
    server.initial = initial
    reason = "as asked for with --model" if model != gathered.model else gathered.model_reason
    parts = Parts(config.label, None, column_names(config.text))
    return Cell(server, gathered.content, fitted, parts, architecture, reason)


def _no_initial(index: int) -> Model:
    raise ClustPSIError("no node has been asked for its initial model")


def _asked_initial(server: NodeServer, index: int, seed: int) -> Model:
    """The initial model of clients with a model of their own, from the first client that answers."""
    reason = "no node is connected"
    server.meet_nodes(0)
    for member in server.members:
        answer = server.ask_client(member.description.name, Initial(index, seed))
        if isinstance(answer, Served) and len(answer.replies) == 1 and isinstance(answer.replies[0], Model):
            return answer.replies[0]
        reason = str(answer) if isinstance(answer, Unusable) else "its answer is malformed"
    raise ClustPSIError(f"no node gives an initial model: {reason}")
