"""HACCS: group clients by their label distributions, favour fast and badly served groups, take their fastest clients.

J. Wolfrath, N. Sreekumar, D. Kumar, Y. Wang and A. Chandra. HACCS: heterogeneity-aware clustered client selection for
accelerated federated learning. IPDPS 2022 (the variant for P(y)).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.methods.base import Setting, State, option
from clustpsi.methods.fedavg import SingleModel
from clustpsi.orders import Losses, Model, Train, Trained, Work
from clustpsi.streams import Stream, generator

# Clients nearer than this in Hellinger distance are of one group (the reference code's threshold).
SAME_GROUP = 0.25


@dataclass(frozen=True)
class HACCS(SingleModel):
    name: ClassVar[str] = "haccs"
    title: ClassVar[str] = "HACCS"
    family: ClassVar[str] = "selection"
    idea: ClassVar[str] = "groups of like label histograms, drawn by latency and loss; their fastest clients train"
    paper: ClassVar[str] = "Wolfrath et al., IPDPS 2022"

    rho_haccs: float = option(0.95, "weight of latency against loss in the choice of groups", least=0, most=1)
    haccs_loss: str = option(
        "participants",
        "whose losses the server knows: those of participants, or of all clients in every round",
        choices=("participants", "all"),
    )
    haccs_weights: str = option(
        "samples",
        "weights of clients in the mean: numbers of samples, or equal ones as in the reference code",
        choices=("samples", "uniform"),
    )
    dp_eps: float | None = option(
        None,
        "simulated noise: the server adds Laplace noise of scale 1 / dp_eps to every count (default: none); "
        "--dp-epsilon protects what clients tell",
        above=0,
    )

    def prepare(self, setting: Setting, model: Model) -> Work[State]:
        state = yield from super().prepare(setting, model)
        counts = yield from self.label_counts(setting)
        # Draws are for all clients of the federation, so that a client's device is the same in any cluster.
        rng, everybody = generator(setting.seed, Stream.METHOD), len(setting.sizes)
        latency = draw_latencies(rng, everybody)[setting.clients]
        noise = rng.laplace(0.0, 1.0, (everybody, setting.num_classes))[setting.clients]
        noisy = counts if self.dp_eps is None else counts + noise / self.dp_eps
        memory = {"group": group_by_labels(noisy), "latency": latency, "loss": np.zeros(len(latency))}
        if self.haccs_loss == "participants":
            memory["loss"] = known_losses((yield Losses(setting.clients, model)))
        return replace(state, memory={**state.memory, **memory})

    def select(self, setting: Setting, state: State, rng: np.random.Generator) -> Work[NDArray[np.int64]]:
        loss = state.memory["loss"]
        if self.haccs_loss == "all":
            loss = known_losses((yield Losses(setting.clients, state.models[0])))
        group, latency = state.memory["group"], state.memory["latency"]
        theta = group_weights(group, latency, loss, self.rho_haccs)
        slots = allocate(rng, theta, np.bincount(group), setting.num_chosen)
        by_speed = np.argsort(latency, kind="stable")
        fastest = [by_speed[group[by_speed] == g][:number] for g, number in enumerate(slots)]
        return np.sort(setting.clients[np.concatenate(fastest)])

    def local(self, setting: Setting, state: State, chosen: NDArray[np.int64]) -> Train:
        order = super().local(setting, state, chosen)
        if self.haccs_weights == "uniform":
            order = replace(order, weights=np.ones(len(chosen)))
        # A client that was just asked for its loss already holds the model.
        return order if self.haccs_loss == "participants" else replace(order, holds_start=True)

    def learn(self, setting: Setting, state: State, chosen: NDArray[np.int64], trained: Trained) -> State:
        loss = state.memory["loss"].copy()
        loss[np.searchsorted(setting.clients, chosen[trained.kept])] = trained.losses[trained.kept]
        return replace(state, memory={**state.memory, "loss": loss})


def known_losses(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Losses, with the mean of the known ones in place of those that are missing.

    >>> known_losses(np.array([1.0, np.nan, 3.0]))
    array([1., 2., 3.])
    """
    absent = np.isnan(losses)
    return np.where(absent, losses[~absent].mean() if not absent.all() else 0.0, losses)


def group_by_labels(counts: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Groups of clients with similar label distributions.

    This is OPTICS on Hellinger distances with at least two clients per group, cut at `SAME_GROUP`.  With that minimum
    every client with a near neighbour is a core point, so the groups are the connected components of "nearer than the
    cut".  A client without a near neighbour forms a group alone.

    >>> group_by_labels(np.array([[10, 0], [9, 0], [0, 5], [3, 4]]))
    array([0, 0, 1, 2])
    """
    from scipy.sparse.csgraph import connected_components  # here, because SciPy takes its time to load

    nothing = counts.max(axis=1, keepdims=True) <= 0  # but noise: read as a uniform distribution
    counts = np.where(nothing, 1.0, np.maximum(counts, 0.0))
    root = np.sqrt(counts / counts.sum(axis=1, keepdims=True))
    distance = np.sqrt(np.maximum(1 - root @ root.T, 0))
    group: NDArray[np.int64] = connected_components(distance <= SAME_GROUP, directed=False)[1].astype(np.int64)
    return group


def draw_latencies(rng: np.random.Generator, number: int) -> NDArray[np.float64]:
    """Seconds that each client's device takes: the reference's simulation of networks and processors."""
    share = [0.6, 0.2, 0.14, 0.06]  # of fast, medium, slow and very slow ones
    network, processor = rng.choice(4, number, p=share), rng.choice(4, number, p=share)
    round_trip = rng.uniform(0.02, 0.2, number)
    megabits_per_second = rng.uniform(np.array([75, 50, 25, 1])[network], np.array([100, 75, 50, 25])[network])
    computation = 10 * (0.5 * processor + rng.uniform(0, 0.5, number))
    return round_trip + 80 / megabits_per_second + computation  # a model of nominally 10 MB


def group_weights(
    group: NDArray[np.int64], latency: NDArray[np.float64], loss: NDArray[np.float64], rho: float
) -> NDArray[np.float64]:
    """theta_g = rho (1 - latency_g / max latency) + (1 - rho) loss_g / sum of losses, of the groups' means."""
    known = np.isfinite(loss)
    size = np.bincount(group)
    mean_latency = np.bincount(group, latency) / size
    mean_loss = np.bincount(group, np.where(known, loss, 0)) / np.maximum(np.bincount(group, known), 1)
    theta = rho * (1 - mean_latency / mean_latency.max()) + (1 - rho) * mean_loss / max(mean_loss.sum(), 1e-12)
    return _normalized(theta, size > 0)


def allocate(
    rng: np.random.Generator, theta: NDArray[np.float64], size: NDArray[np.int64], number: int
) -> NDArray[np.int64]:
    """How many clients each group sends: its whole share of the slots first, the rest drawn with probability theta."""
    slots = np.minimum((theta * number + 1e-9).astype(np.int64), size)
    while slots.sum() < number:
        slots[rng.choice(len(theta), p=_normalized(theta, slots < size))] += 1
    return slots


def _normalized(theta: NDArray[np.float64], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Probabilities of the allowed groups; equal ones where theta says nothing."""
    weights = np.where(allowed, theta, 0)
    weights = weights if weights.sum() > 0 else allowed.astype(np.float64)
    probability: NDArray[np.float64] = weights / weights.sum()
    return probability
