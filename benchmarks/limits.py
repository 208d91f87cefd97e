"""How far each model's training step is from what the machine can do.

    python benchmarks/limits.py [model ...]

One core.  The limits are measured in the same run: the fastest matrix product (1,024 x 1,024, single precision), and
the fastest copy of 64 MB.  A step's arithmetic is that of its matrix products and convolutions, counted as usual
(a multiplication and an addition for every weight and position; forward, and twice that backward, once for the first
layer), although Winograd's form needs fewer multiplications: a share above 100 % is possible.  A step's bytes are those
that the optimizer has to move, which no form of the model can save: gradient, parameter and both moments are read, and
all but the gradient written.  CPU time is measured, so that a busy machine disturbs less.
"""

import argparse
import os
import time
from collections.abc import Callable
from math import prod

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before JAX counts the cores

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from clustpsi.engine import network_for  # noqa: E402
from clustpsi.models import build_model  # noqa: E402
from clustpsi.models.text import TOKENS  # noqa: E402
from steps import BATCH, CLIENTS, INPUTS, round_of  # noqa: E402

TOUCHES = 7  # of every parameter by Adam
#: Positions, inputs and outputs of every matrix product.
LAYERS = {
    "logistic": [(1, 10, 2)],
    "mlp": [(1, 30, 500), (1, 500, 500), (1, 500, 500), (1, 500, 13)],
    "fmnist_cnn": [(28 * 28, 9, 8), (14 * 14, 72, 16), (7 * 7, 144, 32), (1, 288, 2048), (1, 2048, 10)],
    "cifar_cnn": [
        *[(32 * 32, 9 * inputs, 32) for inputs in (3, 32)],
        *[(16 * 16, 9 * inputs, 64) for inputs in (32, 64)],
        *[(8 * 8, 9 * inputs, 128) for inputs in (64, 128)],
        *[(1, 2048, 128), (1, 128, 10)],
    ],
    "lstm": [(30, 50, 40), (30, 10, 40), (1, 10, 2)],
    "embedding_mlp": [(1, 5000, 8), (1, 8, 6)],
}


def fastest(work: Callable[[], object], repetitions: int) -> float:
    """CPU seconds of the fastest of several calls, after one that does not count."""
    work()
    times = []
    for _ in range(repetitions):
        before = time.process_time()
        work()
        times.append(time.process_time() - before)
    return min(times)


def peaks() -> tuple[float, float]:
    """Operations and bytes per second."""
    size, number = 1024, 2**24
    matrix, numbers = jnp.ones((size, size)), np.ones(number, np.float32)
    product, into = jax.jit(jnp.matmul), np.empty_like(numbers)
    seconds = fastest(lambda: product(matrix, matrix).block_until_ready(), 20)
    return 2 * size**3 / seconds, 2 * numbers.nbytes / fastest(lambda: np.copyto(into, numbers), 10)


def arithmetic(name: str) -> tuple[float, float]:
    """Operations of a step, and bytes that its optimizer moves."""
    shape, num_classes, top, _ = INPUTS[name]
    dtype = np.float32 if top is None else np.uint8 if top == 255 else np.int32
    network = network_for(build_model(name, num_classes), shape, np.dtype(dtype))
    forward = [2.0 * BATCH * prod(layer) for layer in LAYERS[name]]
    saved = 0 if top == TOKENS - 1 else forward[0]  # nobody needs the gradient of pixels or numbers
    return 3 * sum(forward) - saved, 4.0 * TOUCHES * network.num_parameters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", choices=[[], *INPUTS], metavar="model", help=", ".join(INPUTS))
    operations, bytes_ = peaks()
    print(f"one core: {operations / 1e9:.0f} GFLOP/s in a matrix product, {bytes_ / 1e9:.1f} GB/s in a copy\n")
    print("| model | µs per step | MFLOP | GFLOP/s | of the product's | optimizer's MB | GB/s | of the copy's |")
    print("|---|---|---|---|---|---|---|---|")
    for name in parser.parse_args().models or INPUTS:
        steps = INPUTS[name][-1]
        seconds = fastest(round_of(name, steps), 5) / (CLIENTS * steps)
        needs, moves = arithmetic(name)
        print(
            f"| `{name}` | {seconds * 1e6:,.1f} | {needs / 1e6:,.2f} | {needs / seconds / 1e9:.1f} "
            f"| {needs / seconds / operations:.0%} | {moves / 1e6:.2f} | {moves / seconds / 1e9:.2f} "
            f"| {moves / seconds / bytes_:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
