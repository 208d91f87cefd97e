"""FedAvgM: FedAvg with momentum on the server.

T.-M. H. Hsu, H. Qi and M. Brown. Measuring the effects of non-identical data distribution for federated visual
classification. 2019.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustpsi.methods.base import option
from clustpsi.methods.fedopt import Memory, ServerOptimizer, Vector


@dataclass(frozen=True)
class FedAvgM(ServerOptimizer):
    name: ClassVar[str] = "fedavgm"
    title: ClassVar[str] = "FedAvgM"
    family: ClassVar[str] = "server optimizer"
    idea: ClassVar[str] = "the mean update drives gradient descent with momentum on the server"
    paper: ClassVar[str] = "Hsu et al., 2019"

    momentum: float = option(0.7, "beta, share of the velocity that is kept", least=0, most=1)
    server_lr: float = option(1.0, "eta_s, length of the server's step", above=0)

    def memory(self, theta: Vector) -> Memory:
        return {"velocity": np.zeros_like(theta)}

    def step(self, theta: Vector, mean: Vector, memory: Memory, t: int) -> tuple[Vector, Memory]:
        # v <- beta v + (theta - mean);  theta <- theta - eta v, with the mean taken out of v: without momentum and with
        # eta = 1 the result is FedAvg's mean to the last bit.
        kept = self.momentum * memory["velocity"]
        moved = (1 - self.server_lr) * theta + self.server_lr * (mean - kept)
        return moved, {"velocity": kept + (theta - mean)}
