"""FedRep: a shared body and personal heads; a client first trains its head, then the body under it.

L. Collins, H. Hassani, A. Mokhtari and S. Shakkottai. Exploiting shared representations for personalized federated
learning. ICML 2021.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Method, Setting, State
from clustpsi.methods.fedavg import sample
from clustpsi.methods.heads import head_of, own_heads, with_heads
from clustpsi.orders import Deployment, Model, Train, Work


@dataclass(frozen=True)
class FedRep(Method):
    """State: the model whose body is shared; memory: every client's head."""

    name: ClassVar[str] = "fedrep"
    title: ClassVar[str] = "FedRep"
    family: ClassVar[str] = "personal models"
    idea: ClassVar[str] = "a shared body under personal last layers, which are trained first"
    paper: ClassVar[str] = "Collins et al., ICML 2021"

    def start(self, setting: Setting) -> Work[State]:
        yield from ()
        head = head_of(setting, self.name)
        return State((setting.common_start,), {"heads": own_heads(setting, head)})

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        chosen, head = sample(rng, setting.clients, setting.num_chosen), head_of(setting, self.name)
        state, models = yield from self.train_heads(setting, state, chosen)
        trained = yield Train(chosen, models, trains=~head, holds_start=True)
        if trained.mean is not None:
            state = State((trained.mean,), state.memory)
        # In the end everybody trains its head once more, for the body that it will use.
        if t == setting.num_rounds:
            state, _ = yield from self.train_heads(setting, state, setting.clients)
        return state

    def train_heads(
        self, setting: Setting, state: State, clients: NDArray[np.int64]
    ) -> Work[tuple[State, list[Model]]]:
        """The clients train their heads and keep them; gives their models too."""
        head, own = head_of(setting, self.name), np.searchsorted(setting.clients, clients)
        starts = with_heads(state.models[0], head, state.memory["heads"][own])
        trained = yield Train(clients, starts, trains=head, weights=np.zeros(len(clients)), each=True, keeps_model=True)
        models = [new or old for new, old in zip(trained.models, starts, strict=True)]
        heads = state.memory["heads"].copy()
        heads[own] = [model.parameters[head] for model in models]
        return State(state.models, {"heads": heads}), models

    def deploy(self, setting: Setting, state: State) -> Deployment:
        models = with_heads(state.models[0], head_of(setting, self.name), state.memory["heads"])
        return Deployment(tuple(models), np.arange(len(models)))
