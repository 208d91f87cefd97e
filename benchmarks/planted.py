"""Which clusters are found where there are groups to be found: clients drawn from planted label mixes.

    python benchmarks/planted.py                     # the table of docs/clustering.md
    python benchmarks/planted.py --clients 1000 --groups 6 --labels 200
    CLUSTPSI_DATA=... python benchmarks/planted.py --partitions serengeti fmnist     # the other table

Each group has a label mix of its own, drawn from a Dirichlet distribution; each client draws its labels from the mix of
its group.  One group means that all clients have the same mix: whatever is split then is noise.  Printed are the number
of clusters and the adjusted Rand index (1: exactly the groups; 0: no better than chance), means over draws.

With --partitions: how clear the groups of partitioned data sets are, with the preset `robust`.
"""

import argparse
import itertools

import numpy as np
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from clustpsi.clustering import PSIClustering
from clustpsi.datasets import load_dataset
from clustpsi.errors import InfeasiblePartition
from clustpsi.federation import build_federation
from clustpsi.presets import CLUSTERING

CLASSES, SPREAD = 10, 0.5
LEVELS = (*(("dirichlet", alpha) for alpha in (0.7, 0.3, 0.2, 0.09, 0.05)), ("similarity", 0.03), ("similarity", 0.0))
FORMS = ("d", ".2f", ".2f", ".2f")


def drawn(clients: int, groups: int, labels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Label counts of clients, and the group of each."""
    rng = np.random.default_rng((seed, clients, groups, labels))
    mixes = rng.dirichlet(np.full(CLASSES, SPREAD), groups)
    group = np.arange(clients) % groups
    return np.array([rng.multinomial(labels, mixes[own]) for own in group]), group


def partitions(names: list[str], num_clients: int) -> None:
    """Print clusters, silhouette and the silhouette of exact groups for seeds 42 and 0 of each data set and level."""
    print("| data set | partition | best silhouette at | silhouette | of exact groups | clarity |")
    print("|---|---|---:|---:|---:|---:|")
    for name, (partitioner, level) in itertools.product(names, LEVELS):
        found = []
        for seed in (42, 0):
            try:
                counts = build_federation(load_dataset(name), partitioner, level, num_clients, seed).label_counts
            except InfeasiblePartition:
                continue
            fitted = PSIClustering(random_state=seed, **CLUSTERING["robust"]).fit(counts)
            scores = fitted.silhouette_scores_
            tau = max(scores, key=lambda j: scores[j])
            found.append((tau, scores[tau], fitted.exact_silhouette_, scores[tau] / fitted.exact_silhouette_))
        if found:
            cells = [
                ", ".join(f"{value:{form}}" for value in values)
                for form, values in zip(FORMS, zip(*found, strict=True), strict=True)
            ]
            print(f"| {name} | {partitioner} {level:g} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 3, 6])
    parser.add_argument("--labels", type=int, nargs="+", default=[1000, 200, 50, 20, 10])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--partitions", nargs="+", metavar="DATASET")
    arguments = parser.parse_args()
    if arguments.partitions:
        with threadpool_limits(1):
            partitions(arguments.partitions, arguments.clients)
        return
    print("| groups | labels per client | " + " | ".join(f"{name}: clusters, Rand" for name in CLUSTERING) + " |")
    print("|---:|---:|" + "---:|" * len(CLUSTERING))
    with threadpool_limits(1):
        for groups, labels in itertools.product(arguments.groups, arguments.labels):
            cells = []
            for settings in CLUSTERING.values():
                found = []
                for seed in range(arguments.draws):
                    counts, group = drawn(arguments.clients, groups, labels, seed)
                    fitted = PSIClustering(random_state=0, **settings).fit(counts)
                    found.append((fitted.n_clusters_, adjusted_rand_score(group, fitted.labels_)))
                number, rand = np.mean(found, axis=0)
                cells.append(f"{number:.1f}, {rand:.2f}")
            print(f"| {groups} | {labels:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
