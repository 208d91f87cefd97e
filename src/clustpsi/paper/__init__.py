"""What the paper reports: its two big tables as data, and the axes they span.

Source: D. M. Jimenez-Gutierrez et al., "Clust-PSI-PFL: A Population Stability Index Approach for Clustered Non-IID
Personalized Federated Learning".  ``global_accuracy.csv`` is the table "Global test accuracy (mean
± standard deviation)", ``local_distance.csv`` the table "Local average distance (AD ± SDAD)"; K = 100, five seeds.  An
empty value is the paper's "---", an infeasible partition.
"""

from functools import cache
from importlib.resources import files

import pandas as pd

from clustpsi.exact import read_exact_csv

#: The paper's data sets by name, with its titles, in its order.
DATASETS = {
    "acs_income": "ACSIncome",
    "serengeti": "Serengeti",
    "fmnist": "FMNIST",
    "cifar10": "CIFAR10",
    "sent140": "Sent140",
    "amazon_reviews": "Amazon Reviews",
}

#: Its methods, in its order.
METHODS = (
    "centralized",
    "fedavg",
    "fedprox",
    "fedavgm",
    "fedadagrad",
    "fedyogi",
    "fedadam",
    "poc",
    "haccs",
    "fedcls",
    "cfl",
    "fedsoft",
    "clust_psi_pfl",
)

#: Its columns: the partitioner and alpha or S.
LEVELS = tuple(
    [("dirichlet", alpha) for alpha in (50.0, 0.7, 0.3, 0.2, 0.09, 0.05)]
    + [("similarity", s) for s in (1.0, 0.03, 0.0)]
)

SEEDS = (42, 0, 1, 2, 3)
NUM_CLIENTS = 100


def global_accuracy() -> pd.DataFrame:
    """Columns ``dataset, method, partitioner, non_iid_param, mean, std``; centralized learning: partitioner "any"."""
    return _read("global_accuracy.csv")


def local_distance() -> pd.DataFrame:
    """Columns ``dataset, method, partitioner, non_iid_param, ad, sdad``."""
    return _read("local_distance.csv")


@cache
def _read(name: str) -> pd.DataFrame:
    with (files(__name__) / name).open() as file:
        return read_exact_csv(file, na_values=["any"], keep_default_na=True).fillna({"partitioner": "any"})


def _infeasible() -> frozenset[tuple[str, str, float]]:
    table = global_accuracy()
    empty = table[table["mean"].isna()]
    return frozenset(zip(empty["dataset"], empty["partitioner"], empty["non_iid_param"], strict=True))


#: The cells (data set, partitioner, level) that the paper prints as "---".
INFEASIBLE = _infeasible()
