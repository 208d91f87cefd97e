"""FedAvg, and the frame of every method that trains one model for all clients.

B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Agüera y Arcas. Communication-efficient learning of deep networks
from decentralized data. AISTATS 2017.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Method, Setting, State, option
from clustpsi.orders import Deployment, Model, Train, Trained, Work


def sample(rng: np.random.Generator, clients: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """A uniform sample without replacement, in ascending order."""
    return np.sort(rng.choice(clients, size=number, replace=False))


@dataclass(frozen=True)
class SingleModel(Method):
    """One model for all clients: select, train locally, update the server's model.

    A method of this kind overrides only the steps in which it differs from FedAvg.  It builds on the result of
    ``super()``, so that two methods that differ in different steps can be combined by inheriting from both.
    """

    average_over: str = option(
        "all",
        "average each parameter over all clients that trained, or those that changed it",
        choices=("all", "movers"),
    )

    def prepare(self, setting: Setting, model: Model) -> Work[State]:
        """What the server learns once, before the first round."""
        yield from ()
        return State(models=(model,))

    def select(self, setting: Setting, state: State, rng: np.random.Generator) -> Work[NDArray[np.int64]]:
        """The clients of a round."""
        yield from ()
        return sample(rng, setting.clients, setting.num_chosen)

    def local(self, setting: Setting, state: State, chosen: NDArray[np.int64]) -> Train:
        """What the chosen clients do."""
        return Train(chosen, state.models[0], average_over=self.average_over)

    def update(self, state: State, mean: Model, t: int) -> State:
        """The server's step from the mean of the clients' models."""
        return replace(state, models=(mean,))

    def learn(self, setting: Setting, state: State, chosen: NDArray[np.int64], trained: Trained) -> State:
        """What the server remembers from a round in addition to the model."""
        return state

    def start(self, setting: Setting) -> Work[State]:
        return (yield from self.prepare(setting, setting.common_start))

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        chosen = yield from self.select(setting, state, rng)
        if len(chosen) == 0:
            return state
        trained = yield self.local(setting, state, chosen)
        state = self.learn(setting, state, chosen, trained)
        return state if trained.mean is None else self.update(state, trained.mean, t)

    def deploy(self, setting: Setting, state: State) -> Deployment:
        return Deployment(state.models, np.zeros(len(setting.clients), np.int64))


@dataclass(frozen=True)
class FedAvg(SingleModel):
    name: ClassVar[str] = "fedavg"
    title: ClassVar[str] = "FedAvg"
    family: ClassVar[str] = "reference"
    idea: ClassVar[str] = "the mean of the chosen clients' models, weighted by their numbers of samples"
    paper: ClassVar[str] = "McMahan et al., AISTATS 2017"
