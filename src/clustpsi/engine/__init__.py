"""The simulator's engine: compiled local training and scoring (JAX)."""

from clustpsi.engine.network import Network, network_for
from clustpsi.engine.simulator import Simulator

__all__ = ["Network", "Simulator", "network_for"]
