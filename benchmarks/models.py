"""Time a training step of every model in the simulator and in a plain PyTorch loop on one thread.

    python benchmarks/models.py [--quick] [--one-core] [--words NUMBER] [model ...]

Needs ``pip install -e '.[benchmark]'``.  A measurement of the simulator is a round of local training of four clients on
all its cores (batch 32, fresh Adam); one of PyTorch trains one client on one thread, which on few cores is its fastest
setting.  The two take turns, the smallest time of each counts, and a step is that time over the number of steps.  With
--one-core both sides are pinned to one core.  Texts have all 10,002 tokens, or the first NUMBER.
"""

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

import torch_reference
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


def ours(name: str, steps: int, words: int) -> Callable[[], object]:
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


def theirs(name: str, steps: int, words: int) -> Callable[[], object]:
    """The same in PyTorch."""
    features, labels = rows_of(name, steps * BATCH, words)
    model = torch_reference.MODELS[name](INPUTS[name][0], INPUTS[name][1])
    x, y = torch.from_numpy(features), torch.from_numpy(labels).long()
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(labels)))
    return lambda: torch_reference.train(model, x, y, order, len(labels), BATCH)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", choices=[[], *INPUTS], metavar="model", help=", ".join(INPUTS))
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--one-core", action="store_true", help="pin both sides to one core")
    parser.add_argument("--words", type=int, default=TOKENS, help="how many different tokens texts have")
    arguments = parser.parse_args()
    if arguments.one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before JAX counts the cores
    torch.set_num_threads(1)
    cores = len(os.sched_getaffinity(0))
    print(
        f"{'model':14} {'PyTorch':>10} {'clustpsi':>10} {'ratio':>6}    microseconds per step; PyTorch on one thread, "
        f"clustpsi on {cores} core{'s' if cores > 1 else ''}"
    )
    for name in arguments.models or INPUTS:
        steps = INPUTS[name][-1]
        torch_steps = min(steps, 200)  # enough of them for the clock
        sides = theirs(name, torch_steps, arguments.words), ours(name, steps, arguments.words)
        for side in sides:
            side()  # compiles, and touches the memory
        times = [[seconds(side) for side in sides] for _ in range(3 if arguments.quick else 10)]
        torch_time, our_time = np.min(times, axis=0) / (torch_steps, CLIENTS * steps) * 1e6
        print(f"{name:14} {torch_time:10,.0f} {our_time:10,.1f} {torch_time / our_time:6.1f}", flush=True)


if __name__ == "__main__":
    main()
