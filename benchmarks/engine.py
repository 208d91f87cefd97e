"""Time a round of local training in the simulator, on all its cores, against a plain PyTorch loop on one thread.

    python benchmarks/engine.py [--quick]

Needs ``pip install -e '.[benchmark]'``.  Logistic regression, 10 features and 2 classes, 100 clients of 14,000 rows,
batch 32, 5 epochs, half of the clients per round.  PyTorch is timed on a part of one client and scaled by its steps.
Then a small federation is trained for the same number of rounds on both sides, with the same clients, and tested.
"""

import argparse
import os
import time

import numpy as np
import torch
from numpy.typing import NDArray

import torch_reference
from clustpsi.datasets.base import Dataset
from clustpsi.engine import Simulator, network_for
from clustpsi.features import as_they_are
from clustpsi.federation import Federation
from clustpsi.models import build_model
from clustpsi.orders import Deployment, Evaluate, Train

BATCH, EPOCHS, FEATURES = 32, 5, 10


def federation_of(clients: int, train: int, test: int) -> Federation:
    """Clients with rows of their own from one noisy linear rule."""
    rng = np.random.default_rng(0)
    rows = clients * (train + test)
    features = rng.standard_normal((rows, FEATURES)).astype(np.float32)
    score = features @ rng.standard_normal(FEATURES) + rng.standard_normal(rows)
    dataset = Dataset("rule", (score > 0).astype(np.int32), ("no", "yes"), *as_they_are(features), model="logistic")
    own = np.arange(rows).reshape(clients, train + test)
    return Federation(
        dataset, tuple(own[:, :train]), tuple(own[:, train:]), tuple(f"client {k}" for k in range(clients))
    )


def simulator_of(federation: Federation) -> Simulator:
    network = network_for(build_model("logistic", 2), (FEATURES,), np.dtype(np.float32))
    return Simulator(federation, network, batch_size=BATCH, local_epochs=EPOCHS)


def visits(rows: NDArray[np.int64], epochs: int, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([rng.permutation(rows) for _ in range(epochs)]))


def speed(repetitions: int, torch_steps: int) -> None:
    federation = federation_of(100, 14_000, 1)
    simulator = simulator_of(federation)
    chosen = np.arange(0, 100, 2)
    start = simulator.initial(0)
    steps = len(chosen) * EPOCHS * -(-14_000 // BATCH)
    x, y = torch.from_numpy(federation.features), torch.from_numpy(federation.labels).long()
    order = visits(federation.train[0][: torch_steps * BATCH], 1, np.random.default_rng(0))
    model = torch_reference.logistic((FEATURES,), 2)
    simulator.serve(Train(chosen, start), 1)  # compiles
    torch_reference.train(model, x, y, order[: 10 * BATCH], 10 * BATCH, BATCH)
    times: list[tuple[float, float]] = []
    for t in range(repetitions):
        before = time.perf_counter()
        torch_reference.train(model, x, y, order, len(order), BATCH)
        between = time.perf_counter()
        simulator.serve(Train(chosen, start), t + 2)
        times.append(((between - before) / torch_steps, (time.perf_counter() - between) / steps))
    simulator.close()
    print(f"wall-clock of one step, microseconds; a round is {steps:,} steps; {os.cpu_count()} cores, one for PyTorch")
    print(f"{'':10} {'PyTorch':>9} {'clustpsi':>9} {'ratio':>6} {'round of PyTorch':>17} {'round of clustpsi':>18}")
    for label, summary in (("minimum", np.min), ("median", np.median)):
        theirs, ours = summary(times, axis=0)
        print(
            f"{label:10} {theirs * 1e6:9.1f} {ours * 1e6:9.2f} {theirs / ours:6.0f} "
            f"{theirs * steps:15.1f} s {ours * steps:16.2f} s"
        )


def accuracy(clients: int, rounds: int) -> None:
    """FedAvg with every client in every round, from the same initial model, each side with its own batch order."""
    federation = federation_of(clients, 600, 2_000)
    simulator = simulator_of(federation)
    everybody = np.arange(clients)
    model = simulator.initial(0)
    network = simulator.network
    weights = network.parameters_of(model.parameters)["Dense_0"]
    state = {
        "weight": torch.from_numpy(np.array(weights["kernel"]).T.copy()),
        "bias": torch.from_numpy(np.array(weights["bias"])),
    }
    x, y = torch.from_numpy(federation.features), torch.from_numpy(federation.labels).long()
    for t in range(1, rounds + 1):
        model = simulator.serve(Train(everybody, model), t).mean
        trained = []
        for rows in federation.train:
            local = torch_reference.logistic((FEATURES,), 2)
            local.load_state_dict(state)
            order = visits(rows, EPOCHS, np.random.default_rng((t, int(rows[0]))))
            torch_reference.train(local, x, y, order, len(rows), BATCH)
            trained.append(local.state_dict())
        state = {name: torch.stack([each[name] for each in trained]).mean(0) for name in state}
    correct = simulator.serve(Evaluate(everybody, Deployment((model,), np.zeros(clients, np.int64))), 0).correct
    simulator.close()
    rows = torch.from_numpy(np.concatenate(federation.test))
    with torch.no_grad():
        theirs = torch.nn.functional.linear(x[rows], state["weight"], state["bias"]).argmax(1) == y[rows]
    print(
        f"test accuracy after {rounds} rounds, {clients} clients: PyTorch {theirs.float().mean():.4f}, "
        f"clustpsi {correct.sum() / len(rows):.4f} ({len(rows):,} test rows)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and rounds")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    speed(3 if quick else 7, 400 if quick else 1_000)
    accuracy(4, 2 if quick else 5)


if __name__ == "__main__":
    main()
