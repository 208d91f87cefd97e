"""What the methods cost beside FedAvg: time per trained client, what is booked apart, and CFL's memory.

    python benchmarks/methods.py [--rounds 5]

Clients of 120 samples each, 64 features, 10 classes, different label mixes; half of the clients per round, five epochs.
Every method takes turns with FedAvg, round by round, and the median CPU time per trained client counts: unlike the
clock it does not count what other processes take. Candidate losses (PoC), the first pass (HACCS), the split pass (CFL,
at the end) and the estimation of importance (FedSoft) are not training and stand apart.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from clustpsi.datasets.base import Dataset
from clustpsi.features import as_they_are
from clustpsi.federation import Federation
from clustpsi.methods import make_method, method_types
from clustpsi.methods.base import State
from clustpsi.orders import Losses, NearestModel, Order, Work, drive
from clustpsi.runs.cell import Cell, open_federation
from clustpsi.runs.config import Config
from clustpsi.streams import Stream, generator

SPECS = {"clust_psi_pfl": "clust_psi_pfl:tau_clusters=4"}
SPLITTING = "cfl:cfl_preset=relative:warmup=1:eps1=9:gamma=0"  # in the first round, whatever the updates
LARGE_MODEL_FEATURES = 230  # the MLP then has 621,510 parameters, about as many as the paper's FMNIST model


def synthetic(clients: int, samples: int, features: int, model: str) -> Federation:
    """Clients of equal size with label mixes of their own."""
    rng = np.random.default_rng(0)
    each = samples + 5
    labels = np.concatenate([rng.choice(10, each, p=rng.dirichlet(np.full(10, 0.5))) for _ in range(clients)])
    x = (rng.normal(size=(10, features))[labels] + rng.normal(size=(len(labels), features))).astype(np.float32)
    dataset = Dataset("synthetic", labels.astype(np.int32), tuple(map(str, range(10))), *as_they_are(x), model=model)
    rows = np.arange(len(labels)).reshape(clients, each)
    names = tuple(map(str, range(clients)))
    return Federation(dataset, tuple(rows[:, :samples]), tuple(rows[:, samples:]), names)


class Bench:
    """A method under way, and what its rounds have cost."""

    def __init__(self, spec: str, cell: Cell, config: Config) -> None:
        self.method, self.cell, self.config = make_method(spec), cell, config
        self.setting = cell.setting(config)
        self.apart = 0.0
        self.state = self._drive(self.method.start(self.setting), 0)
        self.first_pass, self.per_client, self.apart_per_round = self.apart, list[float](), list[float]()

    def round(self, t: int) -> None:
        self.cell.server.take_ledger()
        self.apart, start = 0.0, time.process_time()
        rng = generator(self.config.seed, Stream.SAMPLING, t)
        self.state = self._drive(self.method.round(self.setting, self.state, t, rng), t)
        spent = time.process_time() - start - self.apart
        self.per_client.append(spent / max(self.cell.server.take_ledger().trained, 1))
        self.apart_per_round.append(self.apart)

    def _drive(self, work: Work[State], t: int) -> State:
        def serve(order: Order) -> object:
            start = time.process_time()
            reply = self.cell.server.serve(order, t)
            if isinstance(order, Losses | NearestModel):
                self.apart += time.process_time() - start
            return reply

        return drive(work, serve)


def compare(model: str, clients: int, rounds: int) -> None:
    config = Config(comm_rounds=rounds)
    cell = open_federation(synthetic(clients, 120, 64, model), config)
    print(f"\n{model}, {cell.num_parameters:,} parameters, {clients} clients\n")
    print("| method | CPU ms per trained client | FedAvg beside it | ratio | other work, ms per round | first pass |")
    print("|---|---|---|---|---|---|")
    for name in method_types():
        if name in ("centralized", "fedavg"):
            continue
        ours, fedavg = (Bench(spec, cell, config) for spec in (SPECS.get(name, name), "fedavg"))
        for t in range(1, rounds + 2):
            ours.round(t)
            fedavg.round(t)
        mine, theirs = (1000 * float(np.median(each.per_client[1:])) for each in (ours, fedavg))  # without compilation
        apart = 1000 * float(np.mean(ours.apart_per_round[1:]))
        print(
            f"| {SPECS.get(name, name)} | {mine:.2f} | {theirs:.2f} | {mine / theirs:.2f} "
            f"| {apart:.0f} | {1000 * ours.first_pass:.0f} |",
            flush=True,
        )


def cfl_memory() -> None:
    """Peak memory of a CFL round that splits: every client's update of a model of 620,000 parameters."""
    config = Config(local_epochs=1, comm_rounds=1)
    cell = open_federation(synthetic(100, 32, LARGE_MODEL_FEATURES, "mlp"), config, workers=2)
    Bench("fedavg", cell, config).round(1)  # compiles
    before = peak_memory()
    bench = Bench(SPLITTING, cell, config)
    start = time.perf_counter()
    bench.round(1)
    seconds = time.perf_counter() - start
    print(
        f"\nCFL round that splits 100 clients of {cell.num_parameters:,} parameters: {seconds:.1f} s, "
        f"peak memory {peak_memory():.2f} GB ({before:.2f} GB before)"
    )


def peak_memory() -> float:
    """Of this process alone, in GB (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help="only CFL's memory")
    arguments = parser.parse_args()
    if arguments.memory:
        cfl_memory()
    else:
        compare("logistic", 100, 3 * arguments.rounds)
        compare("mlp", 20, arguments.rounds)
        subprocess.run([sys.executable, __file__, "--memory"], check=True)  # alone, for the peak is the process's
