"""Time and silhouette of the search for the number of clusters, next to the same search with scikit-learn.

    python benchmarks/clustering.py                       # 100 clients, the whole grid, two partitions per cell
    python benchmarks/clustering.py --quick               # 100 clients, four cells, one partition
    python benchmarks/clustering.py --clients 100 1000    # scikit-learn takes minutes for each cell of 1,000 clients
    python benchmarks/clustering.py --alone best --clients 2000 --classes 10 1000 --cells alpha=0.3 alpha=5
    python benchmarks/clustering.py --alone best --clients 1000000 --cells alpha=0.3

The loop with scikit-learn is ``KMeans(n_clusters=j, n_init=10, random_state=0)`` and ``silhouette_score`` for
j = 2..K-1 on the same standardized features; ``--alone`` goes without it, with search "best" or "plain", and prints
time and peak memory. Everything runs on one thread, one after the other; seconds are CPU time, which a busy machine
distorts least.
"""

import argparse
import itertools
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from clustpsi.clustering import PSIClustering
from clustpsi.kmeans import SEARCHES, SearchName

SAMPLES_PER_CLIENT = 600
GRID = [
    *(("alpha", value) for value in (0.05, 0.09, 0.2, 0.3, 0.7, 5.0, 50.0)),
    *(("S", value) for value in (0.0, 0.03, 0.1, 0.5, 1.0)),
]
QUICK = [("alpha", 0.09), ("alpha", 5.0), ("S", 0.0), ("S", 0.1)]

Counts = NDArray[np.int64]


def dirichlet(clients: int, classes: int, alpha: float, rng: np.random.Generator) -> Counts:
    """Each class is spread over the clients by a Dirichlet draw; clients with under ten samples get ten of a class."""
    shares = rng.dirichlet(np.full(clients, alpha), size=classes).T
    counts = np.floor(shares * (SAMPLES_PER_CLIENT * clients // classes)).astype(np.int64)
    small = np.flatnonzero(counts.sum(axis=1) < 10)
    counts[small, rng.integers(0, classes, len(small))] += 10
    return counts


def similarity(clients: int, classes: int, share: float, rng: np.random.Generator) -> Counts:
    """A share of the samples is dealt at random, the rest sorted by label and cut into equal chunks."""
    labels = rng.permutation(np.arange(clients * SAMPLES_PER_CLIENT) % classes)
    dealt = round(share * len(labels))
    counts = np.zeros((clients, classes), dtype=np.int64)
    for part in (labels[:dealt], np.sort(labels[dealt:])):
        chunks = part[: len(part) // clients * clients].reshape(clients, -1)
        counts += np.stack([(chunks == label).sum(axis=1) for label in range(classes)], axis=1)
    return counts


def drawn(clients: int, classes: int, cell: tuple[str, float], seed: int) -> Counts:
    kind, value = cell
    draw = dirichlet if kind == "alpha" else similarity
    return draw(clients, classes, value, np.random.default_rng(seed))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def scikit_learn_search(points: NDArray[np.float64]) -> tuple[int, float]:
    """Number of clusters and silhouette that the loop with scikit-learn ends with."""
    tau, best = 1, -np.inf
    for j in range(2, len(points)):
        labels = KMeans(n_clusters=j, n_init=10, random_state=0).fit_predict(points)
        if 2 <= len(np.unique(labels)) < len(points):
            score = float(silhouette_score(points, labels))
            if score > best + 1e-9:
                tau, best = j, score
    return tau, best


def compare(clients: int, classes: int, cells: list[tuple[str, float]], partitions: int) -> None:
    print(f"\n{clients:,} clients        scikit-learn                 clustpsi")
    print("cell         seed  tau  silhouette  seconds  tau  silhouette  seconds   faster  difference")
    ratios, differences = [], []
    for seed in range(partitions):
        for kind, value in cells:
            counts = drawn(clients, classes, (kind, value), seed)
            ours, seconds = timed(lambda counts=counts: PSIClustering(random_state=0).fit(counts))
            points = ours.transform(counts)
            (tau, theirs), their_seconds = timed(lambda points=points: scikit_learn_search(points))
            best = max(ours.silhouette_scores_.values())
            ratios.append(their_seconds / seconds)
            differences.append(best - theirs)
            print(
                f"{kind:>5} {value:<6g} {seed:4d} {tau:4d} {theirs:11.4f} {their_seconds:8.2f} {ours.n_clusters_:4d} "
                f"{best:11.4f} {seconds:8.3f} {ratios[-1]:7.0f}x {differences[-1]:+11.4f}",
                flush=True,
            )
    print(f"faster {min(ratios):.0f}x to {max(ratios):.0f}x, median {np.median(ratios):.0f}x; "
          f"lowest silhouette difference {min(differences):+.4f}")  # fmt: skip


def alone(clients: int, classes: int, cells: list[tuple[str, float]], partitions: int, search: SearchName) -> None:
    for seed in range(partitions):
        for kind, value in cells:
            counts = drawn(clients, classes, (kind, value), seed)
            fitted, seconds = timed(lambda counts=counts: PSIClustering(search=search, random_state=0).fit(counts))
            tau = fitted.n_clusters_
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(
                f"{clients:,} clients, {classes:,} classes, {kind} {value:g}, seed {seed}, {search}: {seconds:.2f} s, "
                f"tau {tau}, silhouette {fitted.silhouette_scores_[tau]:.4f}, peak so far {peak:.2f} GiB",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[100])
    parser.add_argument("--classes", type=int, nargs="+", default=[10])
    parser.add_argument("--alone", choices=SEARCHES, help="this search without scikit-learn")
    parser.add_argument("--quick", action="store_true", help="four cells of the grid, one partition each")
    parser.add_argument("--cells", nargs="+", metavar="KIND=VALUE", help="only these cells, such as alpha=0.3 S=0.1")
    parser.add_argument("--partitions", type=int, default=2, help="partitions of each cell")
    arguments = parser.parse_args()
    cells = QUICK if arguments.quick else GRID
    if arguments.cells:
        cells = [(kind, float(value)) for kind, value in (cell.split("=") for cell in arguments.cells)]
    # Fewer distinct clients than clusters, as with S = 0, is no news here.
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        for first in (4, 300):  # first use loads code, and with many clients compiles it
            PSIClustering(max_clusters=2).fit(np.eye(first, dtype=np.int64))
        for clients, classes in itertools.product(arguments.clients, arguments.classes):
            partitions = 1 if arguments.quick else arguments.partitions
            if arguments.alone:
                alone(clients, classes, cells, partitions, arguments.alone)
            else:
                compare(clients, classes, cells, partitions)


if __name__ == "__main__":
    main()
