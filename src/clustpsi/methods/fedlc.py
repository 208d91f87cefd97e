"""FedLC: FedAvg whose clients train with logits that are held back by class, the rarer the more.

J. Zhang, Z. Li, B. Li, J. Xu, S. Wu, S. Ding and C. Wu. Federated learning with label distribution skew via logits
calibration. ICML 2022.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Setting, State, option
from clustpsi.methods.fedavg import SingleModel
from clustpsi.orders import Model, Train, Work


@dataclass(frozen=True)
class FedLC(SingleModel):
    name: ClassVar[str] = "fedlc"
    title: ClassVar[str] = "FedLC"
    family: ClassVar[str] = "local objective"
    idea: ClassVar[str] = "FedAvg with tau n_kc^(-1/4) taken off the logit of class c in a client's loss"
    paper: ClassVar[str] = "Zhang et al., ICML 2022"

    tau_fedlc: float = option(1.0, "tau, strength of the calibration", least=0)

    def prepare(self, setting: Setting, model: Model) -> Work[State]:
        state = yield from super().prepare(setting, model)
        counts = yield from self.label_counts(setting)
        return replace(state, memory={**state.memory, "counts": counts})

    def local(self, setting: Setting, state: State, chosen: NDArray[np.int64]) -> Train:
        counts = state.memory["counts"][np.searchsorted(setting.clients, chosen)].astype(np.float64)
        margin = np.full(counts.shape, np.inf)  # of a class that the client does not have: it takes no part
        np.power(counts, -0.25, out=margin, where=counts > 0)
        # Without a strength nothing is held back: absent classes neither.
        log_prior = -self.tau_fedlc * margin if self.tau_fedlc > 0 else None
        return replace(super().local(setting, state, chosen), log_prior=log_prior)
