"""Ditto: FedAvg, and for each client a personal model held near the shared one.

T. Li, S. Hu, A. Beirami and V. Smith. Ditto: fair and robust federated learning through personalization. ICML 2021.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from clustpsi.methods.base import Method, Setting, State, option
from clustpsi.methods.fedavg import sample
from clustpsi.orders import Deployment, Together, Train, Work


@dataclass(frozen=True)
class Ditto(Method):
    """State: the shared model, then every client's own; memory: who has trained yet."""

    name: ClassVar[str] = "ditto"
    title: ClassVar[str] = "Ditto"
    family: ClassVar[str] = "personal models"
    idea: ClassVar[str] = "FedAvg, and personal models with (lambda/2) ||v - theta_t||^2 added to their loss"
    paper: ClassVar[str] = "Li et al., ICML 2021"

    lambda_ditto: float = option(0.1, "strength of the pull towards the shared model", least=0)

    def start(self, setting: Setting) -> Work[State]:
        yield from ()
        goes_on = setting.before is not None  # then its own model is what each client uses already
        return State((setting.common_start, *setting.own_starts), {"trained": np.full(len(setting.clients), goes_on)})

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        chosen = sample(rng, setting.clients, setting.num_chosen)
        own = 1 + np.searchsorted(setting.clients, chosen)
        shared = state.models[0]
        both = yield Together(
            (
                Train(chosen, shared, holds_start=True),  # it comes with the other order, as what that is held near
                Train(
                    chosen,
                    [state.models[k] for k in own],
                    proximal=self.lambda_ditto,
                    anchors=[shared] * len(chosen),
                    weights=np.zeros(len(chosen)),
                    each=True,
                    holds_start=True,
                    keeps_model=True,
                ),
            )
        )
        models, trained = list(state.models), state.memory["trained"].copy()
        models[0] = shared if both[0].mean is None else both[0].mean
        for k, model in zip(own, both[1].models, strict=True):
            if model is not None:
                models[k], trained[k - 1] = model, True
        return replace(state, models=tuple(models), memory={"trained": trained})

    def deploy(self, setting: Setting, state: State) -> Deployment:
        """Every client's own model; until it has trained, the shared one."""
        trained = state.memory["trained"]
        return Deployment(state.models, np.where(trained, 1 + np.arange(len(trained)), 0))

    def server_deployments(self, setting: Setting, state: State) -> tuple[Deployment, ...]:
        return (Deployment(state.models[:1], np.zeros(len(setting.clients), np.int64)),)
