"""The paper's table of hyper-parameters: which values a grid search tries."""

from collections.abc import Sequence
from typing import Any

Values = Sequence[Any]

#: What holds for all methods...
TRAINING: dict[str, Values] = {
    "lr": (0.001, 0.01, 0.1),
    "batch_size": (16, 32, 64),
    "optimizer": ("adam", "sgd"),
}

#: ... and each method's own. The tau of FedOpt and that of FedCLS have names of their own here. Clust-PSI-PFL chooses
#: its number of clusters by itself.
OWN: dict[str, dict[str, Values]] = {
    "fedprox": {"mu": (0.001, 0.01, 0.1)},
    "fedavgm": {"momentum": (0.7, 0.9, 0.99)},
    "fedadagrad": {"tau_adaptivity": (0.01, 0.1), "eta": (0.1, 0.3162), "eta_l": (0.01, 1.0)},
    "fedyogi": {
        "tau_adaptivity": (0.001, 0.01, 0.1),
        "eta": (0.001, 0.01),
        "eta_l": (0.01, 1.0),
        "beta1": (0.9, 0.99),
        "beta2": (0.9, 0.99),
    },
    "fedadam": {
        "tau_adaptivity": (0.001, 0.01, 0.1),
        "eta": (0.001, 0.01),
        "eta_l": (0.01, 1.0),
        "beta1": (0.9, 0.99),
        "beta2": (0.9, 0.99),
    },
    "poc": {"d_poc": (6, 8, 10, 16)},
    "haccs": {"rho_haccs": (0.1, 0.5, 0.95)},
    "fedcls": {"tau_fedcls": (0.1, 0.5, 0.95)},
    "cfl": {"eps1": (0.00001, 0.0001, 0.001), "eps2": (0.001, 0.01, 0.1), "gamma": (0.1, 0.5, 0.9)},
    "fedsoft": {"n_fedsoft": (5, 10, 50)},
}

#: Settings of a run that a search may vary; the others say what is learnt and how it is judged.
TUNABLE = ("lr", "batch_size", "optimizer", "local_epochs", "fraction", "comm_rounds", "model")
