"""Centralized learning (CL): all clients' training data in one place, the reference without a federation.

Every sample is visited as often as FedAvg visits it on average: q T E epochs in all.  They are spread evenly over the
rounds, so that its curve can be compared with the others.  One optimizer is used throughout; rounds do not reset it.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustpsi.limits import check_visits
from clustpsi.methods.base import Method, Setting, State, option
from clustpsi.orders import Deployment, TrainPooled, Work


@dataclass(frozen=True)
class Centralized(Method):
    name: ClassVar[str] = "centralized"
    title: ClassVar[str] = "CL"
    family: ClassVar[str] = "reference"
    idea: ClassVar[str] = "one model on the pooled data of all clients"
    paper: ClassVar[str] = "-"
    is_centralized: ClassVar[bool] = True

    cl_epochs: int | None = option(
        None, "passes over the pooled data in all (default: fraction x rounds x epochs)", least=1
    )

    def start(self, setting: Setting) -> Work[State]:
        rows = int(setting.sizes[setting.clients].sum())
        check_visits(rows, -(-self._epochs(setting) // setting.num_rounds), "all clients together")
        yield from ()
        return State(models=(setting.common_start,))

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        total = self._epochs(setting)
        epochs = total * t // setting.num_rounds - total * (t - 1) // setting.num_rounds
        if epochs == 0:
            return state
        pooled = yield TrainPooled(state.models[0], epochs, state.memory.get("optimizer"))
        return State(models=(pooled.model,), memory={"optimizer": pooled.optimizer_state})

    def _epochs(self, setting: Setting) -> int:
        """Number of epochs in all rounds together."""
        return self.cl_epochs or max(1, round(setting.fraction * setting.num_rounds * setting.local_epochs))

    def deploy(self, setting: Setting, state: State) -> Deployment:
        return Deployment(state.models, np.zeros(len(setting.clients), np.int64))
