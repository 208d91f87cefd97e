"""IFCA: several models, each trained by the clients on whose data it has the least loss.

A. Ghosh, J. Chung, D. Yin and K. Ramchandran. An efficient framework for clustered federated learning. NeurIPS 2020
(model averaging).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.methods.base import Method, Setting, State, option
from clustpsi.methods.fedavg import sample
from clustpsi.orders import Deployment, Losses, Together, Train, Work


@dataclass(frozen=True)
class IFCA(Method):
    """State: the models; memory: every client's cluster, by the losses that it sent last."""

    name: ClassVar[str] = "ifca"
    title: ClassVar[str] = "IFCA"
    family: ClassVar[str] = "clustering"
    idea: ClassVar[str] = "several models; a client trains and uses the one with the least loss on its data"
    paper: ClassVar[str] = "Ghosh et al., NeurIPS 2020"

    n_ifca: int = option(5, "number of models", least=1)

    def start(self, setting: Setting) -> Work[State]:
        if self.n_ifca > len(setting.clients):
            raise ClustPSIError(
                f"n_ifca is {self.n_ifca}, but there are only {len(setting.clients)} clients to cluster"
            )
        # Models start apart: copies of one would have the same loss everywhere and stay copies for ever.
        models = [setting.initial(1 + s) for s in range(self.n_ifca)]
        if setting.before is not None:  # then those in use come first, the most used ones if there are too many
            used, users = np.unique(setting.before.of_client[setting.clients], return_counts=True)
            kept = np.sort(used[np.argsort(-users, kind="stable")[: self.n_ifca]])
            models[: len(kept)] = [setting.before.models[each] for each in kept]
        state = State(tuple(models), {"cluster": np.zeros(len(setting.clients), np.int64)})
        return (yield from self.assigned(setting, state, setting.clients))

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        chosen = sample(rng, setting.clients, setting.num_chosen)
        state = yield from self.assigned(setting, state, chosen)
        cluster = state.memory["cluster"][np.searchsorted(setting.clients, chosen)]
        taken = np.unique(cluster)
        # They hold all models since they compared them.
        trained = yield Together(
            tuple(Train(chosen[cluster == s], state.models[s], holds_start=True) for s in taken.tolist())
        )
        models = list(state.models)
        for s, each in zip(taken.tolist(), trained, strict=True):
            models[s] = models[s] if each.mean is None else each.mean
        state = State(tuple(models), state.memory)
        # In the end everybody looks for its model once more.
        return (yield from self.assigned(setting, state, setting.clients)) if t == setting.num_rounds else state

    def assigned(self, setting: Setting, state: State, clients: NDArray[np.int64]) -> Work[State]:
        """The state with these clients in the cluster whose model has the least loss (ties: the first)."""
        losses = np.stack((yield Together(tuple(Losses(clients, model) for model in state.models))), axis=1)
        cluster = state.memory["cluster"].copy()
        answered = np.isfinite(losses).any(axis=1)  # who does not answer stays where it is
        least = np.where(np.isfinite(losses), losses, np.inf).argmin(axis=1)
        cluster[np.searchsorted(setting.clients, clients[answered])] = least[answered]
        return State(state.models, {"cluster": cluster})

    def deploy(self, setting: Setting, state: State) -> Deployment:
        return Deployment(state.models, state.memory["cluster"])

    def clusters(self, setting: Setting, state: State) -> NDArray[np.int64]:
        return state.memory["cluster"]
