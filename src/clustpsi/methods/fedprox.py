"""FedProx: FedAvg whose clients are held near the model they were sent.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar and V. Smith. Federated optimization in heterogeneous networks.
MLSys 2020.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Setting, State, option
from clustpsi.methods.fedavg import SingleModel
from clustpsi.orders import Train


@dataclass(frozen=True)
class FedProx(SingleModel):
    name: ClassVar[str] = "fedprox"
    title: ClassVar[str] = "FedProx"
    family: ClassVar[str] = "local objective"
    idea: ClassVar[str] = "FedAvg with (mu/2) ||theta - theta_t||^2 added to every client's loss"
    paper: ClassVar[str] = "Li et al., MLSys 2020"

    mu: float = option(0.01, "strength of the proximal term", least=0)

    def local(self, setting: Setting, state: State, chosen: NDArray[np.int64]) -> Train:
        return replace(super().local(setting, state, chosen), proximal=self.mu)
