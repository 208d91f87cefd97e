"""Clusters of clients with similar label skew: K-means on PSI features, the number of clusters chosen by silhouette.

The paper's procedure tries every number of clusters j = 2..K-1; :mod:`clustpsi.kmeans` makes that cheap.
"""

import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Literal, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from clustpsi.errors import ClustPSIError, ClustPSIWarning, unknown_name
from clustpsi.kmeans import MAX_ITERATIONS, SEARCHES, Search, SearchName, means
from clustpsi.psi_space import FEATURES, Floats, Labels, PSICentres, nearest, psi_features
from clustpsi.skew import Smoothing, check_counts, psi_terms

#: Default of `max_clusters` with more clients than `sample_size`.
MAX_CLUSTERS_OF_MANY = 100

#: A number of clusters must raise the silhouette by more than this to replace a smaller one.
TIE = 1e-9

#: Draws of clients who are all alike.
CHANCE_DRAWS = 8


class PSIClustering(TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Group clients by the PSI of their label counts.

    Parameters
    ----------
    n_clusters
        ``"auto"`` tries 2 to K-1 clusters and keeps the smallest number with the highest silhouette.  A number is used
        as it is; it must be from 1 to K, and at most `sample_size`.
    features
        ``"psi"``, the paper's [PSI_k, PSI_k1, ..., PSI_kC]; or ``"signed"``, sign(p_kc - P_c) * sqrt(PSI_kc), which
        tells too much of a class from too little. Both are standardized.
    smoothing, epsilon
        How PSI treats classes that a client does not have; see :func:`clustpsi.skew.psi_terms`.
    search
        Which K-means solution counts for a number of clusters. ``"best"``: of all solutions found whose inertia is
        within 2 % of the lowest, the one with the best silhouette; one of the starts is a Ward tree. ``"plain"``, what
        scikit-learn's ``KMeans`` does and the paper describes: of `n_init` k-means++ starts, the lowest inertia.
    n_init
        Number of k-means++ seedings for each number of clusters. With ``search="best"`` there are 16/j times as many
        for j < 16 clusters and none for more than 32, which start from the Ward tree alone.
    max_clusters
        Largest number of clusters that ``"auto"`` tries; by default K-1, or 100 with more than `sample_size` clients.
    min_wpsi
        With ``"auto"``, keep all clients together when the weighted PSI of the federation exceeds `chance_wpsi_` by
        less than this value; 0.1 is the usual limit of "no significant shift". By default clients are always split, as
        in the paper.
    min_clarity
        With ``"auto"``, keep all clients together when the best silhouette is less than this share of
        `exact_silhouette_`: clients then differ within clusters by more than chance, so that the clusters cut through
        a cloud. By default the best silhouette always counts, as in the paper.
    sample_size
        With more clients than this, K-means and silhouettes run on a random sample of this size.  All clients then
        join the nearest centre.
    random_state
        Seed of the k-means++ seedings and of the sample.

    Attributes
    ----------
    labels_ : (K,) array
        Cluster of each client. Clusters are numbered from 0 in lexicographic order of their centres, so with the
        paper's features cluster 0 is the one with the lowest mean PSI.
    n_clusters_ : int
        Number of clusters, none of them empty.
    silhouette_scores_ : dict
        Mean silhouette for every number of clusters tried.
    cluster_centers_ : (n_clusters_, n_features) array
        Centres in the space of the standardized features.
    psi_ : (K,) array
        PSI of each client.
    wpsi_ : float
        Weighted PSI of the federation.
    chance_wpsi_ : float
        What it would be, about, if all clients drew their labels from the same mix: the mean of some draws (0 without
        `min_wpsi`, which alone needs it).
    exact_silhouette_ : float
        What the best silhouette would be, about, if all clients of a cluster drew their labels from the same mix: the
        mean of some draws (NaN without `min_clarity`, which alone needs it, and where nothing was tried).
    reference_ : (C,) array
        Label distribution of the federation, with which new clients are compared.
    mean_, scale_ : (n_features,) arrays
        Mean and standard deviation with which the features are standardized.

    Examples
    --------
    >>> counts = [[40, 0, 0], [0, 50, 0], [0, 0, 70], [60, 0, 0], [0, 30, 0], [0, 0, 20]]
    >>> clustering = PSIClustering(random_state=0).fit(counts)
    >>> clustering.n_clusters_, clustering.silhouette_scores_[3]
    (3, 1.0)
    >>> clustering.labels_
    array([0, 2, 1, 0, 2, 1])
    >>> clustering.predict([[9, 0, 0], [0, 0, 8]])
    array([0, 1])
    """

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = "auto",
        *,
        features: Literal["psi", "signed"] = "psi",
        smoothing: Smoothing = "additive",
        epsilon: float | None = None,
        search: SearchName = "best",
        n_init: int = 10,
        max_clusters: int | None = None,
        min_wpsi: float | None = None,
        min_clarity: float | None = None,
        sample_size: int = 2_000,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.features = features
        self.smoothing = smoothing
        self.epsilon = epsilon
        self.search = search
        self.n_init = n_init
        self.max_clusters = max_clusters
        self.min_wpsi = min_wpsi
        self.min_clarity = min_clarity
        self.sample_size = sample_size
        self.random_state = random_state

    def fit(self, counts: ArrayLike, y: object = None) -> Self:
        """Cluster clients by their label counts (clients x classes); `y` is ignored."""
        table = self._check_counts(counts, reset=True)
        rng = self._check_parameters(len(table))

        self.reference_: Floats = table.sum(axis=0) / table.sum()
        features, self.psi_ = psi_features(table, self.features, self.smoothing, self.epsilon, self.reference_)
        self.wpsi_ = float(np.average(self.psi_, weights=table.sum(axis=1)))
        self.chance_wpsi_ = self._wpsi_by_chance(table.sum(axis=1)) if self.min_wpsi else 0.0
        self.mean_, self.scale_ = _mean_and_scale(features)
        features -= self.mean_
        features /= self.scale_

        sample: slice | Labels = slice(None)
        if len(features) > self.sample_size:
            sample = rng.choice(len(features), self.sample_size, replace=False)
        searched = features[sample]
        # Distinct rows come out sorted, so the search does not depend on the order of the clients.
        points, weights = np.unique(searched, axis=0, return_counts=True)
        numbers = self._candidates(len(table))
        search = Search(points, weights, numbers, self.search, self.n_init, rng)

        self.silhouette_scores_: dict[int, float] = {}
        chosen, labels, best = 1, np.zeros(len(points), dtype=np.intp), -np.inf
        for j in numbers:
            candidate, score = search.solve(j)
            if not np.isnan(score):
                self.silhouette_scores_[j] = score
            if j == self.n_clusters or score > best + TIE:
                chosen, labels, best = j, candidate, score
        labels, self.cluster_centers_ = _settle(points, weights, labels)
        if self.n_clusters != "auto" and len(self.cluster_centers_) < self.n_clusters:
            warnings.warn(
                f"there are {len(self.cluster_centers_)} clusters where {self.n_clusters} were asked for: clients with "
                "the same label distribution always share one",
                ClustPSIWarning,
                stacklevel=2,
            )
        if chosen in self.silhouette_scores_:
            best = self.silhouette_scores_[chosen] = search.silhouette(labels)
        self.exact_silhouette_ = np.nan
        if self.min_clarity and self.n_clusters == "auto" and chosen > 1:
            self.exact_silhouette_ = self._silhouette_if_exact(table[sample], nearest(searched, self.cluster_centers_))
            if best < self.min_clarity * self.exact_silhouette_ or self.exact_silhouette_ <= 0:
                labels, self.cluster_centers_ = _settle(points, weights, np.zeros_like(labels))
        self.labels_: Labels = nearest(features, self.cluster_centers_)
        self.n_clusters_ = len(self.cluster_centers_)
        return self

    def predict(self, counts: ArrayLike) -> Labels:
        """Cluster of each new client: the one with the nearest centre, compared with the fitted federation."""
        return self.centres.nearest(self._check_new(counts))

    def transform(self, counts: ArrayLike) -> Floats:
        """Standardized features of clients, compared with the fitted federation."""
        return self.centres.standardized(self._check_new(counts))

    @property
    def centres(self) -> PSICentres:
        """All that placing a new client takes, as plain data."""
        check_is_fitted(self)
        return PSICentres(
            self.features,
            self.smoothing,
            self.epsilon,
            self.reference_,
            self.mean_,
            self.scale_,
            self.cluster_centers_,
        )

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names of the columns that :meth:`transform` gives, from those of the classes (x0, x1, ... if they have none).

        >>> PSIClustering(1).fit([[3, 4], [9, 1]]).get_feature_names_out(["cat", "dog"])
        array(['psi', 'psi_cat', 'psi_dog'], dtype=object)
        """
        check_is_fitted(self)
        classes = _check_feature_names_in(self, input_features)
        terms = [f"{self.features}_{name}" for name in classes]
        return np.array(["psi", *terms] if self.features == "psi" else terms, dtype=object)

    def _check_new(self, counts: ArrayLike) -> NDArray[np.int64]:
        check_is_fitted(self)
        return self._check_counts(counts, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _check_counts(self, counts: ArrayLike, reset: bool) -> NDArray[np.int64]:
        """Counts as integers; `reset` says whether they set the number of classes or must have the known one."""
        try:
            return check_counts(validate_data(self, counts, reset=reset))
        except ClustPSIError:
            raise
        except ValueError as error:
            raise ClustPSIError(str(error)) from error

    def _check_parameters(self, clients: int) -> np.random.RandomState:
        """Raise for parameters that cannot be; gives the generator that `random_state` stands for."""
        if self.features not in FEATURES:
            raise unknown_name("features", self.features, FEATURES)
        if self.search not in SEARCHES:
            raise unknown_name("search", self.search, SEARCHES)
        for name, value, least in (
            ("n_init", self.n_init, 1),
            ("sample_size", self.sample_size, 2),
            ("max_clusters", self.max_clusters, 2),
        ):
            optional = name == "max_clusters" and value is None
            if not (optional or (_is_whole(value) and value >= least)):
                raise ClustPSIError(f"{name} must be a whole number of at least {least}, not {value!r}")
        for name, limit in (("min_wpsi", self.min_wpsi), ("min_clarity", self.min_clarity)):
            if not (limit is None or (isinstance(limit, Real) and not isinstance(limit, bool) and limit >= 0)):
                raise ClustPSIError(f"{name} must be a number of at least 0 or None, not {limit!r}")
        try:
            rng: np.random.RandomState = check_random_state(self.random_state)
        except ValueError as error:
            raise ClustPSIError(
                f"random_state must be a whole number from 0 to 4,294,967,295, a RandomState or None, "
                f"not {self.random_state!r}"
            ) from error
        if isinstance(self.n_clusters, str) and self.n_clusters == "auto":
            return rng
        if not (_is_whole(self.n_clusters) and 1 <= self.n_clusters <= clients):
            raise ClustPSIError(
                f"n_clusters must be 'auto' or a whole number from 1 to {clients}, the number of clients, "
                f"not {self.n_clusters!r}"
            )
        if self.n_clusters > self.sample_size < clients:
            raise ClustPSIError(
                f"the clusters of {clients} clients are found on a sample of {self.sample_size}, which has no "
                f"{self.n_clusters} clusters: ask for at most {self.sample_size}, or raise sample_size of PSIClustering"
            )
        return rng

    def _candidates(self, clients: int) -> Sequence[int]:
        """Numbers of clusters to try; none means that all clients stay together."""
        if self.n_clusters != "auto":
            return [self.n_clusters]
        if self.min_wpsi and self.wpsi_ < self.chance_wpsi_ + self.min_wpsi:
            return []
        limit = self.max_clusters or (clients - 1 if clients <= self.sample_size else MAX_CLUSTERS_OF_MANY)
        return range(2, min(limit, clients - 1) + 1)

    def _wpsi_by_chance(self, sizes: NDArray[np.int64]) -> float:
        """The weighted PSI of clients of these sizes who all have the federation's mix: the mean of a few draws."""
        rng = np.random.default_rng(0)  # of its own, so that the search for clusters is the same with it and without
        drawn = [rng.multinomial(sizes, self.reference_) for _ in range(CHANCE_DRAWS)]
        psi = [psi_terms(each, self.smoothing, self.epsilon, self.reference_).sum(axis=1) for each in drawn]
        return float(np.average(np.mean(psi, axis=0), weights=sizes))

    def _silhouette_if_exact(self, counts: NDArray[np.int64], labels: Labels) -> float:
        """The silhouette of clients of these sizes who draw their labels from their clusters' mixes."""
        from sklearn.metrics import silhouette_score  # here, because it takes its time to load

        rng = np.random.default_rng(0)  # of its own, as above
        mixes = np.array([counts[labels == own].sum(axis=0) for own in range(labels.max() + 1)], np.float64)
        mixes /= mixes.sum(axis=1, keepdims=True)
        silhouettes = []
        for _ in range(CHANCE_DRAWS):
            drawn = rng.multinomial(counts.sum(axis=1), mixes[labels])
            features, _ = psi_features(drawn, self.features, self.smoothing, self.epsilon, self.reference_)
            silhouettes.append(silhouette_score((features - self.mean_) / self.scale_, labels))
        return float(np.mean(silhouettes))


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _settle(points: Floats, weights: NDArray[np.int64], labels: Labels) -> tuple[Labels, Floats]:
    """Number the clusters by their centres in lexicographic order, so that every point is with its nearest centre."""
    for _ in range(MAX_ITERATIONS):
        _, labels = np.unique(labels, return_inverse=True)
        centers = means(points, weights.astype(np.float64), labels[None], labels.max() + 1)[0]
        centers = centers[np.lexsort(centers.T[::-1])]
        moved = nearest(points, centers)
        if (moved == labels).all():
            break
        labels = moved
    return labels, centers


def _mean_and_scale(features: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column; 1 for a column that is constant up to rounding."""
    ordered = np.sort(features, axis=0)  # the same bits for any order of the clients
    mean, scale = ordered.mean(axis=0), ordered.std(axis=0)
    largest = np.maximum(np.abs(ordered[0]), np.abs(ordered[-1]))
    return mean, np.where(scale > 1e-12 * largest, scale, 1.0)
