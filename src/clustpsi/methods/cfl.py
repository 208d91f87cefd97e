"""Clustered federated learning (CFL): split a cluster in two when its clients pull in different directions.

F. Sattler, K.-R. Müller and W. Samek. Clustered federated learning: model-agnostic distributed multitask optimization
under privacy constraints. IEEE Transactions on Neural Networks and Learning Systems 32(8), 2021.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Method, Setting, State, num_chosen, option
from clustpsi.methods.fedavg import sample
from clustpsi.orders import Deployment, Model, Train, Work, mean_model, together

COLUMNS = ("round", "cluster", "mean_norm", "max_norm", "split")


class Leaf(NamedTuple):
    """What became of a cluster in a round: its model, or the models of its two halves and the second half's members."""

    models: tuple[Model, ...]
    second_half: NDArray[np.int64]
    mean_norm: float
    max_norm: float


@dataclass(frozen=True)
class CFL(Method):
    name: ClassVar[str] = "cfl"
    title: ClassVar[str] = "CFL"
    family: ClassVar[str] = "clustering"
    idea: ClassVar[str] = "a cluster whose mean update vanishes while single ones do not is split by cosine similarity"
    paper: ClassVar[str] = "Sattler et al., TNNLS 2021"

    cfl_preset: str = option(
        "paper",
        "what eps1 bounds: the mean update's norm, or its ratio to the largest update's (relative)",
        choices=("paper", "relative"),
    )
    eps1: float | None = option(
        None, "split only below this mean norm or ratio (default: 1e-5; relative: 0.4)", least=0
    )
    eps2: float | None = option(None, "split only above this largest norm (default: 0.1; relative: 0)", least=0)
    gamma: float = option(0.5, "how far apart the halves must be: sqrt((1 - cosine) / 2) > gamma", least=0, most=1)
    warmup: int | None = option(None, "first round that may split (default: 1; relative: a quarter of T)", least=0)
    linkage: str = option(
        "optimal",
        "how a cluster is cut in two: least largest cosine between the halves, or complete linkage as in released code",
        choices=("optimal", "complete"),
    )

    def start(self, setting: Setting) -> Work[State]:
        yield from ()
        models, cluster = (setting.initial(0),), np.zeros(len(setting.clients), np.int64)
        if setting.before is not None:  # those who share a model already are a cluster
            used, cluster = np.unique(setting.before.of_client[setting.clients], return_inverse=True)
            models = tuple(setting.before.models[each] for each in used)
        return State(models=models, memory={"cluster": cluster, "norms": np.zeros((0, len(COLUMNS)))})

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        cluster, models = state.memory["cluster"].copy(), list(state.models)
        members = [setting.clients[cluster == c] for c in range(len(models))]
        leaves = yield from together(
            [self.train(setting, own, model, t, rng) for own, model in zip(members, models, strict=True)]
        )
        for c, leaf in enumerate(leaves):
            cluster[np.isin(setting.clients, leaf.second_half)] = len(models)
            models[c] = leaf.models[0]
            models += leaf.models[1:]
        norms = [(t, c, leaf.mean_norm, leaf.max_norm, len(leaf.models) == 2) for c, leaf in enumerate(leaves)]
        memory = {"cluster": cluster, "norms": np.vstack([state.memory["norms"], norms])}
        return State(models=tuple(models), memory=memory)

    def train(
        self, setting: Setting, members: NDArray[np.int64], model: Model, t: int, rng: np.random.Generator
    ) -> Work[Leaf]:
        """A round of one cluster: as in FedAvg, unless it is time to split."""
        nobody = members[:0]
        chosen = sample(rng, members, num_chosen(len(members), setting.fraction))
        trained = yield Train(chosen, model, each=True)
        if trained.mean is None:
            return Leaf((model,), nobody, np.nan, np.nan)
        mean_norm = norm(trained.mean, model)
        max_norm = max(norm(new, model) for new in trained.models if new is not None)
        unsplit = Leaf((trained.mean,), nobody, mean_norm, max_norm)
        if len(members) <= 2 or not self.may_split(setting, mean_norm, max_norm, t):
            return unsplit

        absent = np.setdiff1d(members, chosen)
        clients, models = [*chosen], list(trained.models)
        if len(absent):
            others = yield Train(absent, model, each=True, purpose="split")
            clients, models = [*clients, *absent], [*models, *others.models]
        updated = {int(client): new for client, new in zip(clients, models, strict=True) if new is not None}
        known = np.array(sorted(updated), np.int64)
        if len(known) < 2:
            return unsplit
        updates = np.stack([updated[int(client)].parameters for client in known])
        updates -= model.parameters
        similarity = cosines(updates)
        second = bipartition(similarity, self.linkage)
        if not distance_across(similarity, second) > self.gamma:
            return unsplit
        halves = known[~second], known[second]
        children = tuple(mean_model([updated[int(client)] for client in half], setting.sizes[half]) for half in halves)
        # A client without a finite update goes to the larger half and counts in no mean.
        second_half = halves[1] if len(halves[1]) <= len(halves[0]) else np.setdiff1d(members, halves[0])
        return Leaf(children, second_half, mean_norm, max_norm)

    def may_split(self, setting: Setting, mean_norm: float, max_norm: float, t: int) -> bool:
        """Whether the cluster as a whole stands still while single clients do not."""
        relative = self.cfl_preset == "relative"
        eps1 = self.eps1 if self.eps1 is not None else 0.4 if relative else 1e-5
        eps2 = self.eps2 if self.eps2 is not None else 0.0 if relative else 0.1
        warmup = self.warmup if self.warmup is not None else setting.num_rounds // 4 if relative else 1
        return mean_norm < eps1 * (max_norm if relative else 1) and max_norm > eps2 and t >= warmup

    def deploy(self, setting: Setting, state: State) -> Deployment:
        return Deployment(state.models, state.memory["cluster"])

    def server_deployments(self, setting: Setting, state: State) -> tuple[Deployment, ...]:
        everybody = np.zeros(len(setting.clients), np.int64)
        return tuple(Deployment((model,), everybody) for model in state.models)

    def clusters(self, setting: Setting, state: State) -> NDArray[np.int64]:
        return state.memory["cluster"]

    def tables(self, setting: Setting, state: State) -> dict[str, dict[str, NDArray[Any]]]:
        columns = dict(zip(COLUMNS, state.memory["norms"].T, strict=True))
        counts = ("round", "cluster", "split")
        return {"cfl": {key: each.astype(np.int64) if key in counts else each for key, each in columns.items()}}


def norm(new: Model, old: Model) -> float:
    """Length of an update of the parameters."""
    return float(np.linalg.norm(new.parameters - old.parameters))


def cosines(updates: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cosine similarity of every two rows, zero for a row of zeros; the rows are normalized in place."""
    length = np.sqrt(np.einsum("ij,ij->i", updates, updates))
    updates /= np.maximum(length, 1e-12)[:, None]
    similarity: NDArray[np.float64] = (updates @ updates.T).astype(np.float64)
    return similarity


def bipartition(similarity: NDArray[np.float64], linkage: str) -> NDArray[np.bool_]:
    """Whether each client belongs to the second of two halves (the first client belongs to the first).

    Single linkage joins the most similar clients until two groups are left (the maximum spanning tree without its
    weakest edge).  This makes the largest similarity between the groups as small as possible.

    >>> bipartition(np.array([[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]]), "optimal")
    array([False, False,  True])
    """
    kind = "single" if linkage == "optimal" else linkage
    from sklearn.cluster import AgglomerativeClustering  # here, because scikit-learn takes its time to load

    halves = AgglomerativeClustering(2, metric="precomputed", linkage=kind).fit_predict(1 - similarity)
    second: NDArray[np.bool_] = halves != halves[0]
    return second


def distance_across(similarity: NDArray[np.float64], second: NDArray[np.bool_]) -> float:
    """sqrt((1 - alpha) / 2), alpha the largest similarity between the halves: 0 if the same, 1 if opposite."""
    alpha = similarity[~second][:, second].max()
    return float(np.sqrt(max(1 - alpha, 0) / 2))
