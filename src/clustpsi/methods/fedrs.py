"""FedRS: FedAvg whose clients hold back what they learn about classes that they do not have.

X.-C. Li and D.-C. Zhan. FedRS: federated learning with restricted softmax for label distribution non-IID data. KDD
2021.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Setting, State, option
from clustpsi.methods.fedavg import SingleModel
from clustpsi.orders import Model, Train, Work


@dataclass(frozen=True)
class FedRS(SingleModel):
    name: ClassVar[str] = "fedrs"
    title: ClassVar[str] = "FedRS"
    family: ClassVar[str] = "local objective"
    idea: ClassVar[str] = "FedAvg with the logits of classes that a client lacks scaled down in its loss"
    paper: ClassVar[str] = "Li and Zhan, KDD 2021"

    alpha_fedrs: float = option(0.5, "alpha, factor of the logits of absent classes", least=0, most=1)

    def prepare(self, setting: Setting, model: Model) -> Work[State]:
        state = yield from super().prepare(setting, model)
        present = yield from self.label_presence(setting)
        return replace(state, memory={**state.memory, "present": present})

    def local(self, setting: Setting, state: State, chosen: NDArray[np.int64]) -> Train:
        present = state.memory["present"][np.searchsorted(setting.clients, chosen)]
        # A client that did not tell what it has is not restricted.
        told = present | ~present.any(axis=1, keepdims=True)
        return replace(super().local(setting, state, chosen), logit_scale=np.where(told, 1.0, self.alpha_fedrs))
