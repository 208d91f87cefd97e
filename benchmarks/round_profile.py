"""Where the time of a round of the smallest model goes.

    python benchmarks/round_profile.py

One core; softmax regression with 10 features and 2 classes, 50 of 100 clients with 8,192 rows each, 5 epochs, batches
of 32: the case `logistic` of `make bench`, with random rows.  The median of some rounds.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before JAX counts the cores

import numpy as np  # noqa: E402

from clustpsi.datasets.base import Dataset  # noqa: E402
from clustpsi.engine import Simulator, local, network_for, softmax_regression  # noqa: E402
from clustpsi.features import as_they_are  # noqa: E402
from clustpsi.federation import Federation  # noqa: E402
from clustpsi.models import build_model  # noqa: E402
from clustpsi.orders import Train  # noqa: E402

CLIENTS, CHOSEN, ROWS, WIDTH, EPOCHS, BATCH, ROUNDS = 100, 50, 8192, 10, 5, 32, 20
PARTS = {
    "steps": (softmax_regression, "_train"),
    "shuffling": (local, "shuffled_epochs"),
    "laying a client's rows side by side": (softmax_regression, "side_by_side"),
}


def federation() -> Federation:
    rng = np.random.default_rng(0)
    number = CLIENTS * ROWS
    features = rng.standard_normal((number + CLIENTS, WIDTH)).astype(np.float32)
    labels = rng.integers(0, 2, len(features)).astype(np.int32)
    train = np.sort(rng.permutation(number).reshape(CLIENTS, ROWS), axis=1)
    test = np.arange(number, len(features)).reshape(CLIENTS, 1)
    dataset = Dataset("random", labels, ("0", "1"), *as_they_are(features), model="logistic")
    return Federation(dataset, tuple(train), tuple(test), tuple(map(str, range(CLIENTS))))


def main() -> None:
    spent = defaultdict[str, float](float)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            before = time.perf_counter()
            result = function(*arguments)
            spent[name] += time.perf_counter() - before
            return result

        return call

    for name, (module, function) in PARTS.items():
        setattr(module, function, timed(name, getattr(module, function)))
    network = network_for(build_model("logistic", 2), (WIDTH,), np.dtype(np.float32))
    rng = np.random.default_rng(1)
    simulator = Simulator(federation(), network, batch_size=BATCH, local_epochs=EPOCHS)
    model, rounds = simulator.initial(0), []
    for t in range(1, ROUNDS + 2):
        spent.clear()
        before = time.perf_counter()
        model = simulator.serve(Train(np.sort(rng.permutation(CLIENTS)[:CHOSEN]), model), t).mean
        whole = time.perf_counter() - before
        rounds.append([*(spent[name] for name in PARTS), whole - sum(spent.values()), whole])
    *parts, whole = np.median(rounds[1:], axis=0) * 1e3  # the first round compiles
    print("| | ms | share |\n|---|---|---|")
    for name, spent_on in zip([*PARTS, "the rest: orders, keys, averaging"], parts, strict=True):
        print(f"| {name} | {spent_on:.1f} | {spent_on / whole:.0%} |")
    print(f"| whole round | {whole:.1f} | |")
    steps = CHOSEN * EPOCHS * ROWS // BATCH
    print(f"\n{steps:,} steps, {parts[0] / steps * 1e6:.0f} ns each")


if __name__ == "__main__":
    main()
