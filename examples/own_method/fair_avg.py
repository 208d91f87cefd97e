"""A method of your own: FedAvg in which clients that fare badly count more (after q-FedAvg, Li et al., ICLR 2020)."""

from dataclasses import dataclass, replace

import numpy as np

from clustpsi.methods.base import option
from clustpsi.methods.fedavg import SingleModel


@dataclass(frozen=True)
class FairAvg(SingleModel):
    name, title, family = "fair_avg", "FairAvg", "aggregation"
    idea = "the mean of the clients' models, weighted by samples times the last training loss to a power"
    paper = "example"

    fairness: float = option(1.0, "power of the loss in a client's weight (0: FedAvg)", least=0)

    def prepare(self, setting, model):
        state = yield from super().prepare(setting, model)
        return replace(state, memory={**state.memory, "loss": np.ones(len(setting.clients))})

    def local(self, setting, state, chosen):
        loss = state.memory["loss"][np.searchsorted(setting.clients, chosen)]
        weights = setting.sizes[chosen] * loss**self.fairness
        return replace(super().local(setting, state, chosen), weights=weights)

    def learn(self, setting, state, chosen, trained):
        loss = state.memory["loss"].copy()
        loss[np.searchsorted(setting.clients, chosen[trained.kept])] = trained.losses[trained.kept]
        return replace(state, memory={**state.memory, "loss": loss})
