"""Time a training step of every model in the simulator and in a plain PyTorch loop on one thread.

    python benchmarks/models.py [--quick] [--one-core] [--words NUMBER] [model ...]

Needs ``pip install -e '.[benchmark]'``.  A measurement of the simulator is a round of local training of four clients on
all its cores (batch 32, fresh Adam); one of PyTorch trains one client on one thread, which on few cores is its fastest
setting; its Adam is fused and its images have their channels last.  The two take turns, the smallest time of each
counts, and a step is that time over the number of steps.  With --one-core both sides are pinned to one core, and CPU
time counts, which a busy machine disturbs less.  Texts have all 10,002 tokens, or the first NUMBER.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

import torch_reference
from clustpsi.models.text import TOKENS
from steps import BATCH, CLIENTS, INPUTS, round_of, rows_of


def theirs(name: str, steps: int, words: int) -> Callable[[], object]:
    """The same in PyTorch."""
    features, labels = rows_of(name, steps * BATCH, words)
    model = torch_reference.MODELS[name](INPUTS[name][0], INPUTS[name][1]).to(memory_format=torch.channels_last)
    adam = partial(torch.optim.Adam, fused=True)
    x, y = torch.from_numpy(features), torch.from_numpy(labels).long()
    order = torch.from_numpy(np.random.default_rng(1).permutation(len(labels)))
    return lambda: torch_reference.train(model, x, y, order, len(labels), BATCH, adam)


def seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", choices=[[], *INPUTS], metavar="model", help=", ".join(INPUTS))
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--one-core", action="store_true", help="pin both sides to one core")
    parser.add_argument("--words", type=int, default=TOKENS, help="how many different tokens texts have")
    arguments = parser.parse_args()
    if arguments.one_core:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before JAX counts the cores
    clock = time.process_time if arguments.one_core else time.perf_counter
    torch.set_num_threads(1)
    cores = len(os.sched_getaffinity(0))
    print(
        f"{'model':14} {'PyTorch':>10} {'clustpsi':>10} {'ratio':>6}    microseconds per step; PyTorch on one thread, "
        f"clustpsi on {cores} core{'s' if cores > 1 else ''}"
    )
    for name in arguments.models or INPUTS:
        steps = INPUTS[name][-1]
        torch_steps = min(steps, 200)  # enough of them for the clock
        sides = theirs(name, torch_steps, arguments.words), round_of(name, steps, arguments.words)
        for side in sides:
            side()  # compiles, and touches the memory
        times = [[seconds(side, clock) for side in sides] for _ in range(3 if arguments.quick else 10)]
        torch_time, our_time = np.min(times, axis=0) / (torch_steps, CLIENTS * steps) * 1e6
        print(f"{name:14} {torch_time:10,.0f} {our_time:10,.1f} {torch_time / our_time:6.1f}", flush=True)


if __name__ == "__main__":
    main()
