"""Clust-PSI-PFL: cluster the clients by the PSI of their labels, then train one model per cluster.

D. M. Jimenez-Gutierrez, M. Hassanzadeh, D. Solans, M. Elbamby, N. Kourtellis, A. Anagnostopoulos, I. Chatzigiannakis
and A. Vitaletti. Clust-PSI-PFL: a population stability index approach for clustered non-IID personalized federated
learning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.methods.base import Method, Setting, State, option
from clustpsi.methods.fedavg import FedAvg, SingleModel
from clustpsi.orders import Deployment, Newcomers, Work, in_clusters, joined, together
from clustpsi.presets import CLUSTERING
from clustpsi.psi_space import PSICentres

# What is kept of the clustering, to place clients that come later.
CENTRES = ("reference", "mean", "scale", "centres")


@dataclass(frozen=True)
class ClustPSIPFL(Method):
    name: ClassVar[str] = "clust_psi_pfl"
    title: ClassVar[str] = "Clust-PSI-PFL"
    family: ClassVar[str] = "clustering"
    idea: ClassVar[str] = "K-means++ on the clients' PSI, clusters by silhouette, one model per cluster"
    paper: ClassVar[str] = "Jimenez-Gutierrez et al., Clust-PSI-PFL"

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "robust": {
            "psi_features": CLUSTERING["robust"]["features"],
            "psi_smoothing": CLUSTERING["robust"]["smoothing"],
            "min_wpsi": CLUSTERING["robust"]["min_wpsi"],
            "min_clarity": CLUSTERING["robust"]["min_clarity"],
            "inner": "prior_pfl",
        }
    }
    inner_default: ClassVar[type[Method] | None] = FedAvg

    tau_clusters: int | None = option(None, "number of clusters (default: the best silhouette decides)", least=1)
    psi_features: str = option(
        "psi", "client descriptor: the paper's PSI terms, or signed roots", choices=("psi", "signed")
    )
    psi_smoothing: str = option("additive", "what replaces zero shares in PSI", choices=("additive", "clip", "laplace"))
    psi_epsilon: float | None = option(None, "strength of the smoothing (default: the smoothing's own)", above=0)
    psi_search: str = option(
        "best",
        "K-means solution: best silhouette within 2 % of the lowest inertia, or the paper's plain K-means++",
        choices=("best", "plain"),
    )
    min_wpsi: float = option(
        0.0, "all clients stay together if WPSI is less than this above chance (0.1: 'no significant shift')", least=0
    )
    min_clarity: float = option(
        0.0,
        "all clients stay together if the best silhouette is less than this share of what exact groups would have",
        least=0,
    )
    inner: SingleModel = field(
        default_factory=FedAvg, metadata={"help": "single-model method that runs inside each cluster"}
    )

    def start(self, setting: Setting) -> Work[State]:
        if self.tau_clusters is not None and self.tau_clusters > len(setting.clients):
            raise ClustPSIError(
                f"tau_clusters is {self.tau_clusters}, but there are only {len(setting.clients)} clients to cluster"
            )
        from clustpsi.clustering import PSIClustering  # here, because scikit-learn takes its time to load

        counts = yield from self.label_counts(setting)
        clustering = PSIClustering(
            n_clusters="auto" if self.tau_clusters is None else self.tau_clusters,
            features=self.psi_features,  # type: ignore[arg-type]  # checked: one of its choices
            smoothing=self.psi_smoothing,  # type: ignore[arg-type]  # likewise
            epsilon=self.psi_epsilon,
            search=self.psi_search,  # type: ignore[arg-type]  # likewise
            min_wpsi=self.min_wpsi,
            min_clarity=self.min_clarity,
            random_state=setting.seed,
        ).fit(counts)
        cluster = clustering.labels_.astype(np.int64)
        parts = yield from together([self.inner.start(own) for own in self.members(setting, cluster)])
        tried = clustering.silhouette_scores_
        memory = {
            "cluster": cluster,
            **{key: getattr(clustering.centres, key) for key in CENTRES},
            "tau_tried": np.array(list(tried), np.int64),
            "silhouette": np.array(list(tried.values()), np.float64),
        }
        return State(memory=memory, parts=tuple(parts))

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        own = self.members(setting, state.memory["cluster"])
        rounds = [self.inner.round(part, before, t, rng) for part, before in zip(own, state.parts, strict=True)]
        return replace(state, parts=tuple((yield from together(rounds))))

    def deploy(self, setting: Setting, state: State) -> Deployment:
        cluster = state.memory["cluster"]
        inner = [
            self.inner.deploy(own, part) for own, part in zip(self.members(setting, cluster), state.parts, strict=True)
        ]
        return joined(inner, cluster)

    def newcomers(self, setting: Setting, state: State, counts: NDArray[np.int64]) -> Newcomers:
        """The cluster with the nearest centre, and in it what the method inside says."""
        cluster, memory = state.memory["cluster"], state.memory
        if any(key not in memory for key in CENTRES):
            raise ClustPSIError(
                "this run was begun by an earlier version of clustpsi, which did not keep the centres of the clusters: "
                "start it afresh with --fresh"
            )
        centres = PSICentres(
            self.psi_features,
            self.psi_smoothing,  # type: ignore[arg-type]  # checked: one of its choices
            self.psi_epsilon,
            *(memory[key] for key in CENTRES),
        )
        parts = [
            self.inner.newcomers(own, part, counts[cluster == c])
            for c, (own, part) in enumerate(zip(self.members(setting, cluster), state.parts, strict=True))
        ]
        return in_clusters(parts, centres)

    def clusters(self, setting: Setting, state: State) -> NDArray[np.int64]:
        return state.memory["cluster"]

    def tables(self, setting: Setting, state: State) -> dict[str, dict[str, NDArray[Any]]]:
        return {"silhouette": {"tau": state.memory["tau_tried"], "silhouette": state.memory["silhouette"]}}

    @staticmethod
    def members(setting: Setting, cluster: NDArray[np.int64]) -> list[Setting]:
        """Each cluster as a federation of its own."""
        return [replace(setting, clients=setting.clients[cluster == c]) for c in range(int(cluster.max()) + 1)]
