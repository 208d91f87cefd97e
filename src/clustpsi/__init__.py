"""Federated learning when clients' data differ.

Up to clustering everything works on label counts alone; what trains starts JAX.  Names are loaded when they are first
used, so that ``import clustpsi`` and the command line's help cost nothing.
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
    from clustpsi.experiments.comparison import compare
    from clustpsi.federation import Federation, build_federation
    from clustpsi.runs.config import Config
    from clustpsi.runs.run import run
    from clustpsi.runs.store import Store

_HOMES = {
    "PSIClustering": "clustering",
    "Config": "runs.config",
    "load_dataset": "datasets",
    "from_arrays": "datasets.tables",
    "from_table": "datasets.tables",
    "Diagnosis": "diagnosis",
    "diagnose": "diagnosis",
    "Federation": "federation",
    "build_federation": "federation",
    "Store": "runs.store",
    "compare": "experiments.comparison",
    "run": "runs.run",
}

__all__ = [
    "ClustPSIError",
    "Config",
    "Diagnosis",
    "Federation",
    "InfeasiblePartition",
    "PSIClustering",
    "Store",
    "__version__",
    "build_federation",
    "compare",
    "diagnose",
    "from_arrays",
    "from_table",
    "load_dataset",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("clustpsi")
    if name not in _HOMES:
        raise AttributeError(f"module 'clustpsi' has no attribute {name!r}")
    return getattr(import_module(f"clustpsi.{_HOMES[name]}"), name)
