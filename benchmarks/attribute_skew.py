"""What methods do where clients differ in more than their labels.

    python benchmarks/attribute_skew.py                      # the table of docs/prior_pfl.md
    python benchmarks/attribute_skew.py --model mlp

Handwritten digits, spread over clients; half of the clients then see the same digits differently.  "inverted": ink is
white on black there, so P(x | y) differs.  "renamed": they call a digit by the name of the next one, so that no single
answer is right for all.  Printed is global accuracy, mean and standard deviation over seeds.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits

import clustpsi
from clustpsi.datasets.base import Dataset
from clustpsi.partition import dirichlet, iid

METHODS = (
    "fedavg", "fedavgm", "fedsoft", "cfl:cfl_preset=relative", "ifca", "ditto", "fedrep", "fedrod",
    "clust_psi_pfl:psi_features=signed", "local", "prior_pfl:personal=false", "prior_pfl",
)  # fmt: skip
SEEDS = (1, 2, 3)
CLIENTS = 20
BRIGHTEST = 16
KINDS = ("alike", "inverted", "renamed")


def spread(alpha: float | None, kind: str, seed: int) -> Dataset:
    """Digits with natural clients, every other of which differs."""
    pixels, labels = load_digits(return_X_y=True)
    rows = iid(labels, CLIENTS, seed) if alpha is None else dirichlet(labels, CLIENTS, alpha, seed)
    client = np.empty(len(labels), np.int64)
    for number, own in enumerate(rows):
        client[own] = number
    differs = client % 2 == 1
    if kind == "inverted":
        pixels = np.where(differs[:, None], BRIGHTEST - pixels, pixels)
    elif kind == "renamed":
        labels = np.where(differs, (labels + 1) % 10, labels)
    dealt = np.concatenate(rows)  # with Dirichlet, rows that are left over belong to nobody
    return clustpsi.from_arrays(pixels[dealt], labels[dealt], client[dealt], name=f"digits, {kind}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="logistic", help="default: logistic")
    parser.add_argument("--rounds", type=int, default=40, help="default: 40")
    options = parser.parse_args()
    columns = [(alpha, kind) for alpha in (None, 0.3) for kind in KINDS]
    scores: dict[str, list[str]] = {method: [] for method in METHODS}
    for alpha, kind in columns:
        found: dict[str, list[float]] = {method: [] for method in METHODS}
        for seed in SEEDS:
            table = clustpsi.compare(
                spread(alpha, kind, seed), METHODS, seeds=[seed], model=options.model, comm_rounds=options.rounds
            )
            for method, accuracy in zip(METHODS, table["last_global_accuracy"], strict=True):
                found[method].append(accuracy)
        for method, each in found.items():
            scores[method].append(f"{np.mean(each):.3f} ± {np.std(each, ddof=1):.3f}")
    titles = [f"{'IID' if alpha is None else f'α={alpha:g}'}, {kind}" for alpha, kind in columns]
    print(f"| method | {' | '.join(titles)} |\n|---|{'---:|' * len(titles)}")
    for method, each in scores.items():
        print(f"| `{method}` | {' | '.join(each)} |")


if __name__ == "__main__":
    main()
