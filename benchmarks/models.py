"""Time a training step of every model here and in a plain PyTorch loop, both on one thread.

    python benchmarks/models.py [--quick] [model ...]

Needs ``pip install -e '.[benchmark]'``.  A measurement trains one client for a few dozen steps of batch 32 with a fresh
Adam.  The two sides take turns, and the smallest CPU time of each counts: with one thread a side it is what the clock
shows on a quiet machine, and unlike the clock it does not count the time that other processes take.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

import torch_reference
from clustpsi.engine import network_for  # first: it sets how JAX starts
from clustpsi.engine.training import Job, local_training, make_optimizer
from clustpsi.models import build_model

import jax  # isort: skip

BATCH = 32
#: Shape of a row, number of classes, largest value (None: real numbers), steps of a measurement.
INPUTS: dict[str, tuple[tuple[int, ...], int, int | None, int]] = {
    "logistic": ((10,), 2, None, 2000),
    "mlp": ((30,), 13, None, 50),
    "fmnist_cnn": ((28, 28), 10, 255, 30),
    "cifar_cnn": ((32, 32, 3), 10, 255, 4),
    "lstm": ((30,), 2, 10_001, 100),
    "embedding_mlp": ((100,), 5, 10_001, 100),
}


def rows_of(name: str, number: int) -> tuple[NDArray[np.generic], NDArray[np.int32]]:
    """Random features of the model's kind, and random labels."""
    rng = np.random.default_rng(0)
    shape, num_classes, top, _ = INPUTS[name]
    labels = rng.integers(0, num_classes, number).astype(np.int32)
    if top is None:
        return rng.standard_normal((number, *shape)).astype(np.float32), labels
    return rng.integers(0, top + 1, (number, *shape)).astype(np.uint8 if top == 255 else np.int32), labels


def ours(name: str, steps: int) -> Callable[[], None]:
    """The program that the simulator runs for one client."""
    features, labels = rows_of(name, steps * BATCH)
    network = network_for(build_model(name, INPUTS[name][1]), features.shape[1:], features.dtype)
    program = local_training(
        network, make_optimizer("adam", 1e-3), BATCH, proximal=False, keep_optimizer=False, lanes=1
    )
    start = network.initial(0, 0)
    order = np.concatenate([np.random.default_rng(1).permutation(len(labels)), np.zeros(BATCH)])
    job = Job(
        parameters=start.parameters[None],
        buffers=start.buffers[None],
        optimizer_state=np.zeros((1, 0), np.float32),
        order=order[None].astype(np.int32),
        size=np.array([len(labels)], np.int32),
        epochs=np.ones(1, np.int32),
        key=np.array([[1, 2]], np.uint32),
        proximal=np.zeros(1, np.float32),
        anchor=np.zeros((1, 0), np.float32),
        log_prior=np.zeros((1, INPUTS[name][1]), np.float32),
    )
    on_device = jax.device_put((features, labels, job))
    return lambda: jax.block_until_ready(program(*on_device))


def theirs(name: str, steps: int) -> Callable[[], None]:
    """The same in PyTorch."""
    features, labels = rows_of(name, steps * BATCH)
    model = torch_reference.MODELS[name](INPUTS[name][0], INPUTS[name][1])
    x, y = torch.from_numpy(features), torch.from_numpy(labels).long()
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(labels)))
    return lambda: torch_reference.train(model, x, y, order, len(labels), BATCH)


def cpu_seconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", choices=[[], *INPUTS], metavar="model", help=", ".join(INPUTS))
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{'model':14} {'PyTorch':>10} {'clustpsi':>10} {'ratio':>6}    microseconds a step (batch {BATCH}, one thread)"
    )
    for name in arguments.models or INPUTS:
        steps = INPUTS[name][-1]
        torch_steps = min(steps, 200)  # enough of them for the clock
        sides = theirs(name, torch_steps), ours(name, steps)
        for side in sides:
            side()  # compiles, and touches the memory
        times = [[cpu_seconds(side) for side in sides] for _ in range(3 if arguments.quick else 10)]
        torch_time, our_time = np.min(times, axis=0) / (torch_steps, steps) * 1e6
        print(f"{name:14} {torch_time:10,.0f} {our_time:10,.1f} {torch_time / our_time:6.1f}", flush=True)


if __name__ == "__main__":
    main()
