"""Whether memory stays flat: over rounds, and over the number of clients whose models are averaged.

    python benchmarks/memory.py

The paper's Serengeti model (half a million parameters, 2 MB) and clients of 64 rows.  Every figure is the resident
memory of a process of its own at its peak.
"""

import resource
import subprocess
import sys

import numpy as np

from clustpsi.datasets.base import Dataset
from clustpsi.engine import Simulator, network_for
from clustpsi.features import as_they_are
from clustpsi.federation import Federation
from clustpsi.models import build_model
from clustpsi.orders import Train

ROWS, FEATURES, CLASSES = 64, 30, 13


def train(clients: int, rounds: int) -> None:
    """Average all clients' models, again and again; print the peak."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((clients * ROWS, FEATURES)).astype(np.float32)
    labels = rng.integers(0, CLASSES, len(features)).astype(np.int32)
    dataset = Dataset("noise", labels, tuple(map(str, range(CLASSES))), *as_they_are(features), model="mlp")
    own = np.arange(len(features)).reshape(clients, ROWS)
    federation = Federation(dataset, tuple(own[:, :-1]), tuple(own[:, -1:]), tuple(map(str, range(clients))))
    network = network_for(build_model("mlp", CLASSES), (FEATURES,), np.dtype(np.float32))
    simulator = Simulator(federation, network, local_epochs=1)
    model = simulator.initial(0)
    for t in range(1, rounds + 1):
        model = simulator.serve(Train(np.arange(clients), model), t).mean
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    if len(sys.argv) == 3:
        train(int(sys.argv[1]), int(sys.argv[2]))
        return
    print("clients  rounds  peak MB")
    for clients, rounds in ((20, 2), (20, 50), (20, 200), (200, 2), (2000, 2)):
        command = [sys.executable, __file__, str(clients), str(rounds)]
        peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{clients:7,}  {rounds:6,}  {peak:7,}", flush=True)


if __name__ == "__main__":
    main()
