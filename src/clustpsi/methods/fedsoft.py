"""FedSoft: clients are mixtures of clusters, and train personal models held near the clusters they consist of.

Y. Ruan and C. Joe-Wong. FedSoft: soft clustered federated learning with proximal local updating. AAAI 2022.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.methods.base import Method, Setting, State, option
from clustpsi.orders import Deployment, Model, NearestModel, Newcomers, Train, Work, mean_model
from clustpsi.streams import Stream, generator


@dataclass(frozen=True)
class FedSoft(Method):
    """State: the S cluster models, then every client's personal model; importance u (K x S); who has trained."""

    name: ClassVar[str] = "fedsoft"
    title: ClassVar[str] = "FedSoft"
    family: ClassVar[str] = "clustering"
    idea: ClassVar[str] = "personal models, held near S cluster models by how many samples each explains best"
    paper: ClassVar[str] = "Ruan and Joe-Wong, AAAI 2022"

    n_fedsoft: int = option(5, "S, number of cluster models (the paper's n)", least=1)
    lambda_fedsoft: float = option(0.1, "strength of the pull towards the cluster models", least=0)
    tau_est: int = option(2, "rounds between two estimations of the importance weights", least=1)
    sigma_fedsoft: float = option(1e-4, "importance of a cluster that explains no sample", above=0, most=1)

    def start(self, setting: Setting) -> Work[State]:
        yield from ()
        number, clusters = len(setting.clients), self.n_fedsoft
        if clusters > number:
            raise ClustPSIError(f"n_fedsoft is {clusters}, but there are only {number} clients to cluster")
        # Cluster models start apart: copies of one model would explain all samples alike and stay copies for ever.
        centres, personal = tuple(setting.initial(1 + s) for s in range(clusters)), setting.own_starts
        if setting.before is not None:  # or they would pull everybody back to where training began
            drawn = generator(setting.seed, Stream.METHOD).choice(number, clusters, replace=False)
            centres = tuple(personal[k] for k in drawn)
        memory = {"importance": np.full((number, clusters), 1 / clusters), "trained": np.zeros(number, bool)}
        return State(models=centres + personal, memory=memory)

    def round(self, setting: Setting, state: State, t: int, rng: np.random.Generator) -> Work[State]:
        centres, personal = list(state.models[: self.n_fedsoft]), list(state.models[self.n_fedsoft :])
        importance, ever_trained = state.memory["importance"], state.memory["trained"].copy()
        size = setting.sizes[setting.clients]
        if (t - 1) % self.tau_est == 0:
            explained = yield NearestModel(setting.clients, centres)
            answered = explained.any(axis=1, keepdims=True)  # a client that does not answer keeps its earlier weights
            estimated = np.where(explained == 0, self.sigma_fedsoft, explained / size[:, None])
            importance = np.where(answered, estimated, importance)

        selected = self.select(setting, importance * size[:, None], rng)
        union = np.unique(selected)
        # Sum over s of u_ks ||theta - c_s||^2 is, up to a constant, the sum of the u_ks times the squared distance to
        # the clusters' mean under these weights: one anchor per client.
        trained = yield Train(
            setting.clients[union],
            [personal[k] for k in union],
            proximal=self.lambda_fedsoft * importance[union].sum(axis=1),
            anchors=mixtures(centres, importance[union]),
            weights=np.zeros(len(union)),  # no mean over all: every cluster has one of its own
            each=True,
            holds_start=True,
            mixed_of=centres,
        )
        for k, model in zip(union, trained.models, strict=True):
            if model is not None:
                personal[k], ever_trained[k] = model, True
        finite = union[trained.kept]
        for s, own in enumerate(selected):
            kept = own[np.isin(own, finite)]
            if len(kept):
                centres[s] = mean_model([personal[k] for k in kept], np.ones(len(kept)))
        return State((*centres, *personal), {"importance": importance, "trained": ever_trained})

    def select(
        self, setting: Setting, weight: NDArray[np.float64], rng: np.random.Generator
    ) -> list[NDArray[np.int64]]:
        """For every cluster, positions of q K / S clients drawn with probability proportional to u_ks n_k."""
        number = max(1, int(setting.fraction * len(weight) / self.n_fedsoft + 1e-9))
        probability = weight / weight.sum(axis=0)
        return [rng.choice(len(weight), number, replace=False, p=p) for p in probability.T]

    def deploy(self, setting: Setting, state: State) -> Deployment:
        """Every client's personal model, or its mixture of the cluster models if it has not trained yet."""
        personal = list(state.models[self.n_fedsoft :])
        untrained = np.flatnonzero(~state.memory["trained"])
        mixed = mixtures(state.models[: self.n_fedsoft], state.memory["importance"][untrained])
        for k, model in zip(untrained, mixed, strict=True):
            personal[k] = model
        return Deployment(tuple(personal), np.arange(len(personal)))

    def newcomers(self, setting: Setting, state: State, counts: NDArray[np.int64]) -> Newcomers:
        """The mixture of the cluster models that explains a sample of the federation on average.

        Which of them explain a newcomer's own samples is not to be seen from its label counts.
        """
        importance = setting.sizes[setting.clients] @ state.memory["importance"]
        (mixed,) = mixtures(state.models[: self.n_fedsoft], importance[None])
        return Newcomers((mixed,), counts.sum(axis=0))

    def server_deployments(self, setting: Setting, state: State) -> tuple[Deployment, ...]:
        everybody = np.zeros(len(setting.clients), np.int64)
        return tuple(Deployment((centre,), everybody) for centre in state.models[: self.n_fedsoft])


def mixtures(models: Sequence[Model], weights: NDArray[np.float64]) -> list[Model]:
    """The weighted mean of the models for every row of weights."""
    share = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    vectors = (share @ np.stack(part) for part in zip(*models, strict=True))
    return [Model(parameters, buffers) for parameters, buffers in zip(*vectors, strict=True)]
