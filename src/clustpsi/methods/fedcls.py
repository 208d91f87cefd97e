"""FedCLS: choose clients whose labels complement each other.

C. Li and H. Wu. FedCLS: a federated learning client selection algorithm based on cluster label information. VTC
2022-Fall.  Its text leaves the selection rule open; ours is a greedy cover of the labels (docs/methods.md).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Setting, State, option
from clustpsi.methods.fedavg import SingleModel
from clustpsi.orders import Model, Work
from clustpsi.streams import Stream, generator


@dataclass(frozen=True)
class FedCLS(SingleModel):
    name: ClassVar[str] = "fedcls"
    title: ClassVar[str] = "FedCLS"
    family: ClassVar[str] = "selection"
    idea: ClassVar[str] = "groups of clients with the same labels; groups that add labels not yet covered come first"
    paper: ClassVar[str] = "Li and Wu, VTC 2022-Fall"

    tau_fedcls: float = option(0.1, "share of the labels in which members of a group may differ", least=0, most=1)

    def prepare(self, setting: Setting, model: Model) -> Work[State]:
        state = yield from super().prepare(setting, model)
        present = yield from self.label_presence(setting)
        order = generator(setting.seed, Stream.METHOD).permutation(len(setting.sizes))
        position = np.searchsorted(setting.clients, order[np.isin(order, setting.clients)])
        memory = {"present": present, "group": leader_groups(present, position, self.tau_fedcls)}
        return replace(state, memory={**state.memory, **memory})

    def select(self, setting: Setting, state: State, rng: np.random.Generator) -> Work[NDArray[np.int64]]:
        yield from ()
        chosen = cover_labels(rng, state.memory["present"], state.memory["group"], setting.num_chosen)
        return np.sort(setting.clients[chosen])


def leader_groups(present: NDArray[np.bool_], order: NDArray[np.int64], tau: float) -> NDArray[np.int64]:
    """Each client, in this order, joins the first group whose founder differs in at most a share tau of the labels."""
    group, leaders = np.empty(len(present), np.int64), present[:0]
    for client in order:
        near = np.flatnonzero((leaders != present[client]).mean(axis=1) <= tau + 1e-9)
        group[client] = near[0] if len(near) else len(leaders)
        if not len(near):
            leaders = np.vstack([leaders, present[client]])
    return group


def cover_labels(
    rng: np.random.Generator, present: NDArray[np.bool_], group: NDArray[np.int64], number: int
) -> list[int]:
    """Clients that together cover the labels as often as possible.

    In each step, the group that offers most uncovered labels sends a random client.  Ties go to the group that is
    farther from the covered labels, then to chance.  When no remaining client can add a label, covering starts again.
    """
    unused = [list(rng.permutation(np.flatnonzero(group == g))) for g in range(int(group.max()) + 1)]
    covered, chosen = np.zeros(present.shape[1], bool), list[int]()
    while len(chosen) < number:
        left = np.array([len(members) > 0 for members in unused])
        offered = np.stack([present[members].any(axis=0) for members in unused])
        if not (offered[left] & ~covered).any():
            covered[:] = False
        added, distance = (offered & ~covered).sum(axis=1), (offered != covered).sum(axis=1)
        best = np.lexsort((rng.random(len(unused)), -distance, -added, ~left))[0]
        chosen.append(int(unused[best].pop()))
        covered |= present[chosen[-1]]
    return chosen
