"""FedROD: one model trained with a balanced loss, and for each client a head of its own on top of it.

H.-Y. Chen and W.-L. Chao. On bridging generic and personalized federated learning for image classification. ICLR 2022
(linear heads).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustpsi.methods.base import Method, Setting, State
from clustpsi.methods.fedavg import sample
from clustpsi.methods.heads import head_of, own_heads, with_heads
from clustpsi.orders import Deployment, Together, Train, Work, log_shares


@dataclass(frozen=True)
class FedROD(Method):
    """State: the generic model; memory: label counts, and what every client adds to the generic head.

    A personal prediction is the sum of the generic and the personal head's logits.  Both are linear, so that this is
    one head, their sum; training it with everything else fixed trains the personal one.
    """

    name: ClassVar[str] = "fedrod"
    title: ClassVar[str] = "FedROD"
    family: ClassVar[str] = "personal models"
    idea: ClassVar[str] = "FedAvg with balanced softmax, and personal last layers that add to the generic one"
    paper: ClassVar[str] = "Chen and Chao, ICLR 2022"

    def start(self, setting: Setting) -> Work[State]:
        model, head = setting.common_start, head_of(setting, self.name)
        counts = yield from self.label_counts(setting)
        return State((model,), {"counts": counts, "added": own_heads(setting, head) - model.parameters[head]})

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        chosen, head, generic = (
            sample(rng, setting.clients, setting.num_chosen),
            head_of(setting, self.name),
            state.models[0],
        )
        own = np.searchsorted(setting.clients, chosen)
        added = state.memory["added"].copy()
        both = yield Together(
            (
                Train(chosen, generic, log_prior=log_shares(state.memory["counts"][own])),
                Train(
                    chosen,
                    with_heads(generic, head, generic.parameters[head] + added[own]),
                    trains=head,
                    weights=np.zeros(len(chosen)),
                    each=True,
                    holds_start=True,
                    keeps_model=True,
                ),
            )
        )
        for k, model in zip(own, both[1].models, strict=True):
            if model is not None:
                added[k] = model.parameters[head] - generic.parameters[head]
        return State((both[0].mean or generic,), {**state.memory, "added": added})

    def deploy(self, setting: Setting, state: State) -> Deployment:
        generic, head = state.models[0], head_of(setting, self.name)
        models = with_heads(generic, head, generic.parameters[head] + state.memory["added"])
        return Deployment(tuple(models), np.arange(len(models)))

    def server_deployments(self, setting: Setting, state: State) -> tuple[Deployment, ...]:
        return (Deployment(state.models, np.zeros(len(setting.clients), np.int64)),)
