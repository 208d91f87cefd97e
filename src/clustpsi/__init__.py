"""Federated learning when clients' data differ.

Up to clustering everything works on label counts alone; what trains starts JAX and is imported on demand.
"""

from clustpsi.clustering import PSIClustering
from clustpsi.diagnosis import Diagnosis, diagnose
from clustpsi.errors import ClustPSIError, InfeasiblePartition

__all__ = ["ClustPSIError", "Diagnosis", "InfeasiblePartition", "PSIClustering", "diagnose"]
