"""The number of clusters that each K-means search leads to, on partitions as in the paper: labels only, no training.

    python benchmarks/tau_search.py                                                  # the digits, at once
    python benchmarks/tau_search.py --data-dir DIR fmnist:0.05:100 acs_income:0.3:100 digits:0.1:20

A cell is DATASET:ALPHA:CLIENTS. For each seed (of the partition and of K-means, as in a run) the table has the chosen
number of clusters with search "best" and with "plain", whose silhouettes and inertias are those of scikit-learn's
``KMeans``, for 10 starts and for one.
"""

import argparse
from pathlib import Path

from clustpsi.clustering import PSIClustering
from clustpsi.datasets import load_dataset
from clustpsi.federation import build_federation

SEARCHES = {
    "best": {"search": "best"},
    "plain, n_init=10": {"search": "plain", "n_init": 10},
    "plain, n_init=1": {"search": "plain", "n_init": 1},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", nargs="*", default=["digits:0.1:20"], metavar="DATASET:ALPHA:CLIENTS")
    parser.add_argument("--data-dir", type=Path, help="folder with the data sets")
    parser.add_argument("--seeds-list", default="42,0,1,2,3")
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds_list.split(",")]
    print(f"| partition | search | {' | '.join(f'seed {seed}' for seed in seeds)} |")
    print("|---" * (len(seeds) + 2) + "|")
    for cell in arguments.cells:
        name, alpha, clients = cell.split(":")
        dataset = load_dataset(name, data_dir=arguments.data_dir)
        counts = [
            build_federation(dataset, "dirichlet", float(alpha), int(clients), seed).label_counts for seed in seeds
        ]
        for title, options in SEARCHES.items():
            found = [
                PSIClustering(**options, random_state=seed).fit(own) for seed, own in zip(seeds, counts, strict=True)
            ]
            taus = [f"{each.n_clusters_} ({each.silhouette_scores_[each.n_clusters_]:.3f})" for each in found]
            print(f"| {name}, alpha {alpha}, K {clients} | {title} | {' | '.join(taus)} |", flush=True)


if __name__ == "__main__":
    main()
