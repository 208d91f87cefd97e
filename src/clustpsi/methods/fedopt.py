"""FedAdagrad, FedYogi and FedAdam: the server treats the mean update as a gradient for an adaptive optimizer.

S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S. Kumar and H. B. McMahan. Adaptive federated
optimization. ICLR 2021 (Algorithm 2).
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Setting, State, option
from clustpsi.methods.fedavg import SingleModel
from clustpsi.orders import Model, Work

Vector = NDArray[Any]  # float32, which a Python number beside it does not change
Memory = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class ServerOptimizer(SingleModel):
    """FedAvg with an optimizer on the server: the clients' mean gives the direction of a step from the old model.

    Buffers are averaged as in FedAvg and not optimized, because a running mean is not a parameter.
    """

    server_opt_on_buffers: bool = option(
        False, "optimize BatchNorm's statistics too, as Flower does, instead of averaging them"
    )

    @abstractmethod
    def memory(self, theta: Vector) -> Memory:
        """The optimizer's state before the first round."""

    @abstractmethod
    def step(self, theta: Vector, mean: Vector, memory: Memory, t: int) -> tuple[Vector, Memory]:
        """The server's parameters and the optimizer's state after round t."""

    def prepare(self, setting: Setting, model: Model) -> Work[State]:
        state = yield from super().prepare(setting, model)
        return replace(state, memory={**state.memory, **self.memory(self._optimized(model))})

    def update(self, state: State, mean: Model, t: int) -> State:
        old = state.models[0]
        theta, memory = self.step(self._optimized(old), self._optimized(mean), state.memory, t)
        number = len(old.parameters)
        buffers = theta[number:] if self.server_opt_on_buffers else mean.buffers
        return replace(state, models=(Model(theta[:number], buffers),), memory={**state.memory, **memory})

    def _optimized(self, model: Model) -> Vector:
        return np.concatenate(model) if self.server_opt_on_buffers else model.parameters


@dataclass(frozen=True)
class FedOpt(ServerOptimizer):
    """The common part of the three adaptive optimizers, which differ only in how v follows the squared update."""

    eta: float = option(0.001, "server learning rate", above=0)
    tau_adaptivity: float = option(0.001, "tau of the adaptive step m / (sqrt(v) + tau)", above=0)
    beta1: float = option(0.9, "decay of the first moment m", least=0, below=1)
    eta_l: float = option(1.0, "factor on every client's update (1: none; Flower ignores it too)", above=0)
    v0: str = option(
        "zero", "initial second moment: Flower's 0, or the tau^2 of the method's paper", choices=("zero", "tau2")
    )

    @abstractmethod
    def second_moment(self, v: Vector, squared: Vector) -> Vector:
        """v_t from v_{t-1} and the squared update."""

    def learning_rate(self, t: int) -> float:
        return self.eta

    def memory(self, theta: Vector) -> Memory:
        v = self.tau_adaptivity**2 if self.v0 == "tau2" else 0.0
        return {"m": np.zeros_like(theta), "v": np.full_like(theta, v)}

    def step(self, theta: Vector, mean: Vector, memory: Memory, t: int) -> tuple[Vector, Memory]:
        delta = self.eta_l * (mean - theta)
        m = self.beta1 * memory["m"] + (1 - self.beta1) * delta
        v = self.second_moment(memory["v"], delta**2)
        return theta + self.learning_rate(t) * m / (np.sqrt(v) + self.tau_adaptivity), {"m": m, "v": v}


@dataclass(frozen=True)
class FedAdagrad(FedOpt):
    name: ClassVar[str] = "fedadagrad"
    title: ClassVar[str] = "FedAdagrad"
    family: ClassVar[str] = "server optimizer"
    idea: ClassVar[str] = "the mean update drives Adagrad on the server"
    paper: ClassVar[str] = "Reddi et al., ICLR 2021"

    eta: float = option(0.3162, "server learning rate", above=0)
    tau_adaptivity: float = option(0.1, "tau of the adaptive step m / (sqrt(v) + tau)", above=0)
    beta1: float = option(0.0, "decay of the first moment m", least=0, below=1)

    def second_moment(self, v: Vector, squared: Vector) -> Vector:
        return v + squared


@dataclass(frozen=True)
class FedYogi(FedOpt):
    name: ClassVar[str] = "fedyogi"
    title: ClassVar[str] = "FedYogi"
    family: ClassVar[str] = "server optimizer"
    idea: ClassVar[str] = "the mean update drives Yogi on the server"
    paper: ClassVar[str] = "Reddi et al., ICLR 2021"

    tau_adaptivity: float = option(0.01, "tau of the adaptive step m / (sqrt(v) + tau)", above=0)
    beta2: float = option(0.99, "decay of the second moment v", least=0, below=1)

    def second_moment(self, v: Vector, squared: Vector) -> Vector:
        moved: Vector = v - (1 - self.beta2) * squared * np.sign(v - squared)
        return moved


@dataclass(frozen=True)
class FedAdam(FedOpt):
    name: ClassVar[str] = "fedadam"
    title: ClassVar[str] = "FedAdam"
    family: ClassVar[str] = "server optimizer"
    idea: ClassVar[str] = "the mean update drives Adam on the server"
    paper: ClassVar[str] = "Reddi et al., ICLR 2021"

    beta2: float = option(0.99, "decay of the second moment v", least=0, below=1)
    bias_correction: str = option(
        "flower", "correction of eta: Flower's, or none as in the method's paper", choices=("flower", "none")
    )

    def second_moment(self, v: Vector, squared: Vector) -> Vector:
        return self.beta2 * v + (1 - self.beta2) * squared

    def learning_rate(self, t: int) -> float:
        if self.bias_correction == "none":
            return self.eta
        # Flower raises the decays to t + 1, one power more than textbook Adam.
        return float(self.eta * np.sqrt(1 - self.beta2 ** (t + 1)) / (1 - self.beta1 ** (t + 1)))
