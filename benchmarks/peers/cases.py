"""What is trained: five models on real data, dealt out to 100 clients with the same number of rows each.

Without skew, because speed does not depend on it and a few rounds then tell whether all peers learn the same.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clustpsi.datasets import load_dataset
from clustpsi.federation import Federation
from clustpsi.partition import iid
from peers.protocol import BATCH

CLIENTS = 100
SEED = 42


@dataclass(frozen=True)
class Case:
    """A data set and its model.

    Attributes
    ----------
    dataset, model
        Their names.
    rows
        Training rows per client, whole batches.
    test_rows
        Rows that the averaged model is tested on.
    rounds
        Timed, after the first one, which every peer needs to warm up.
    """

    dataset: str
    model: str
    rows: int
    test_rows: int
    rounds: int


CASES = {
    "logistic": Case("acs_income", "logistic", 256 * BATCH, 20_000, 3),
    "fmnist_cnn": Case("fmnist", "fmnist_cnn", 3 * BATCH, 4_000, 4),
    "mlp": Case("serengeti", "mlp", 8 * BATCH, 4_000, 4),
    "lstm": Case("sent140", "lstm", 6 * BATCH, 4_000, 4),
    "cifar_cnn": Case("cifar10", "cifar_cnn", 1 * BATCH, 2_000, 3),
}


def write(name: str, path: Path, data_dir: Path | None) -> None:
    """Write the data of a case: features, labels, the rows of every client (one line each), rows to test on."""
    case = CASES[name]
    dataset = load_dataset(case.dataset, data_dir=data_dir)
    order = np.random.default_rng(SEED).permutation(len(dataset.labels))
    needed = CLIENTS * case.rows
    if needed + case.test_rows > len(order):
        raise SystemExit(f"{name} needs {needed + case.test_rows:,} rows, and {case.dataset} has {len(order):,}")
    spread, test = np.sort(order[:needed]), np.sort(order[needed : needed + case.test_rows])
    train = np.stack([spread[own] for own in iid(dataset.labels[spread], CLIENTS, SEED)])
    names = tuple(map(str, range(CLIENTS)))
    nothing = (np.empty(0, np.int64),) * CLIENTS
    features = Federation(dataset, tuple(train), nothing, names).features  # fitted on what the clients train on
    kept = np.concatenate([train.ravel(), test])
    np.savez(
        path,
        model=np.array(case.model),
        num_classes=np.array(dataset.num_classes),
        features=features[kept],
        labels=dataset.labels[kept].astype(np.int64),
        train=np.arange(needed).reshape(train.shape),
        test=np.arange(needed, len(kept)),
    )
