"""Local training: every client alone, every round, without any exchange.

The control that a comparison of personalized methods needs: what does a client gain by taking part at all?
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from clustpsi.methods.base import Method, Setting, State
from clustpsi.orders import Deployment, Train, Work


@dataclass(frozen=True)
class Local(Method):
    name: ClassVar[str] = "local"
    title: ClassVar[str] = "Local only"
    family: ClassVar[str] = "reference"
    idea: ClassVar[str] = "each client trains alone: the control"
    paper: ClassVar[str] = "-"

    def start(self, setting: Setting) -> Work[State]:
        yield from ()
        return State(models=setting.own_starts)

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        # Nothing is sent: the model stays where it is trained.
        trained = yield Train(setting.clients, state.models, each=True, holds_start=True, keeps_model=True)
        models = tuple(new or old for new, old in zip(trained.models, state.models, strict=True))
        return replace(state, models=models)

    def deploy(self, setting: Setting, state: State) -> Deployment:
        return Deployment(state.models, np.arange(len(setting.clients)))
