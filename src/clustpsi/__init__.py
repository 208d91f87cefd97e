"""Federated learning when clients' data differ.

Measuring skew and clustering need label counts only; training also needs JAX.  Each name is loaded when it is first
used, so ``import clustpsi`` and the command line's help are fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clustpsi.errors import ClustPSIError, InfeasiblePartition

if TYPE_CHECKING:
    __version__: str

    from clustpsi.clustering import PSIClustering
    from clustpsi.datasets import load_dataset
    from clustpsi.datasets.tables import from_arrays, from_table
    from clustpsi.diagnosis import Diagnosis, diagnose
    from clustpsi.estimator import FederatedClassifier
    from clustpsi.experiments.comparison import compare
    from clustpsi.federation import Federation, build_federation
    from clustpsi.runs.config import Config
    from clustpsi.runs.run import run
    from clustpsi.runs.store import Store
    from clustpsi.saved.file import load_model
    from clustpsi.saved.model import SavedModel

_HOMES = {
    "PSIClustering": "clustering",
    "Config": "runs.config",
    "load_dataset": "datasets",
    "load_model": "saved.file",
    "from_arrays": "datasets.tables",
    "from_table": "datasets.tables",
    "Diagnosis": "diagnosis",
    "diagnose": "diagnosis",
    "FederatedClassifier": "estimator",
    "Federation": "federation",
    "build_federation": "federation",
    "SavedModel": "saved.model",
    "Store": "runs.store",
    "compare": "experiments.comparison",
    "run": "runs.run",
}

__all__ = [
    "ClustPSIError",
    "Config",
    "Diagnosis",
    "FederatedClassifier",
    "Federation",
    "InfeasiblePartition",
    "PSIClustering",
    "SavedModel",
    "Store",
    "__version__",
    "build_federation",
    "compare",
    "diagnose",
    "from_arrays",
    "from_table",
    "load_dataset",
    "load_model",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("clustpsi")
    if name not in _HOMES:
        raise AttributeError(f"module 'clustpsi' has no attribute {name!r}")
    return getattr(import_module(f"clustpsi.{_HOMES[name]}"), name)
