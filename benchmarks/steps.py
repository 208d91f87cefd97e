"""Steps of local training of every model, on random rows: what the benchmarks of single models time."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.base import Dataset
from clustpsi.engine import Simulator, network_for
from clustpsi.features import as_they_are
from clustpsi.federation import Federation
from clustpsi.models import build_model
from clustpsi.models.text import TOKENS
from clustpsi.orders import Train

CLIENTS = 4
BATCH = 32
#: Shape of a row, number of classes, largest value (None: real numbers), steps of a measurement.
INPUTS: dict[str, tuple[tuple[int, ...], int, int | None, int]] = {
    "logistic": ((10,), 2, None, 2000),
    "mlp": ((30,), 13, None, 50),
    "fmnist_cnn": ((28, 28), 10, 255, 30),
    "cifar_cnn": ((32, 32, 3), 10, 255, 4),
    "lstm": ((30,), 2, TOKENS - 1, 100),
    "embedding_mlp": ((100,), 6, TOKENS - 1, 100),
}


def rows_of(name: str, number: int, words: int) -> tuple[NDArray[np.generic], NDArray[np.int32]]:
    """Random features of the model's kind, and random labels."""
    rng = np.random.default_rng(0)
    shape, num_classes, top, _ = INPUTS[name]
    top = words - 1 if top == TOKENS - 1 else top
    labels = rng.integers(0, num_classes, number).astype(np.int32)
    if top is None:
        return rng.standard_normal((number, *shape)).astype(np.float32), labels
    return rng.integers(0, top + 1, (number, *shape)).astype(np.uint8 if top == 255 else np.int32), labels


def round_of(name: str, steps: int, words: int = TOKENS) -> Callable[[], object]:
    """A round of the simulator in which every client takes this many steps."""
    features, labels = rows_of(name, CLIENTS * (steps * BATCH + 1), words)
    own = np.arange(len(labels)).reshape(CLIENTS, -1)
    classes = tuple(map(str, range(INPUTS[name][1])))
    dataset = Dataset(name, labels, classes, *as_they_are(features), model=name)
    federation = Federation(dataset, tuple(own[:, 1:]), tuple(own[:, :1]), tuple(map(str, range(CLIENTS))))
    network = network_for(build_model(name, len(classes)), features.shape[1:], features.dtype)
    simulator = Simulator(federation, network, batch_size=BATCH, local_epochs=1)
    order = Train(np.arange(CLIENTS), simulator.initial(0))
    return lambda: simulator.serve(order, 1)
