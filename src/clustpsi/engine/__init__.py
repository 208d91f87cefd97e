"""The simulator's engine: compiled local training and scoring (JAX)."""

from clustpsi.engine.simulator import Simulator  # first: it sets how JAX starts
from clustpsi.engine.network import Network, network_for  # isort: skip

__all__ = ["Network", "Simulator", "network_for"]
