"""Clusters of clients with similar label skew: K-means on PSI features, the number of clusters chosen by silhouette.

The paper's procedure tries every number of clusters j = 2..K-1. Three things make the whole search cheap: clients with
the same features are one weighted point; the distances between points are computed once, and the silhouette of a
labelling is then a sum over them; and K-means starts from one Ward tree, which is cut at every j.
"""

from collections.abc import Iterable
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import cut_tree, ward
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.skew import Smoothing, check_counts, psi_terms

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

FEATURES = ("psi", "signed")

#: Up to this many clusters K-means also starts from k-means++ seedings; beyond, the Ward tree almost always leads to a
#: lower inertia than ten of them, and they would take most of the time.
MAX_SEEDED_CLUSTERS = 32

#: Default of `max_clusters` with more clients than `sample_size`.
MAX_CLUSTERS_OF_MANY = 100

#: Solutions whose inertia is within this fraction of the lowest are equally good to K-means: silhouette decides.
SAME_INERTIA = 0.02

#: A number of clusters must raise the silhouette by more than this to replace a smaller one.
TIE = 1e-9

MAX_ITERATIONS = 300
ROWS_AT_ONCE = 65_536


class PSIClustering(TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Group clients by the PSI of their label counts.

    Parameters
    ----------
    n_clusters
        ``"auto"`` tries 2 to K-1 clusters and keeps the smallest number with the highest silhouette; a number from 1
        to K is used as it is.
    features
        ``"psi"``, the paper's [PSI_k, PSI_k1, ..., PSI_kC]; or ``"signed"``, sign(p_kc - P_c) * sqrt(PSI_kc), which
        tells too much of a class from too little. Both are standardized.
    smoothing, epsilon
        How PSI treats classes that a client does not have; see :func:`clustpsi.skew.psi_terms`.
    n_init
        Number of k-means++ seedings for each number of clusters up to 32, and 16/j times as many for j < 16. One more
        start, and the only one for more than 32 clusters, is a Ward tree.
    max_clusters
        Largest number of clusters that ``"auto"`` tries; by default K-1, or 100 with more than `sample_size` clients.
    min_wpsi
        With ``"auto"``, keep all clients together when the weighted PSI of the federation is below this value; 0.1 is
        the usual limit of "no significant shift". By default clients are always split, as in the paper.
    sample_size
        With more clients than this, K-means and silhouettes run on a random sample of so many, and all clients then
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
    reference_ : (C,) array
        Label distribution of the federation, with which new clients are compared.
    mean_, scale_ : (n_features,) arrays
        What standardizes the features.

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
        n_init: int = 10,
        max_clusters: int | None = None,
        min_wpsi: float | None = None,
        sample_size: int = 2_000,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.features = features
        self.smoothing = smoothing
        self.epsilon = epsilon
        self.n_init = n_init
        self.max_clusters = max_clusters
        self.min_wpsi = min_wpsi
        self.sample_size = sample_size
        self.random_state = random_state

    def fit(self, counts: ArrayLike, y: object = None) -> Self:
        """Cluster the clients whose label counts (clients x classes) these are; `y` is ignored."""
        table = self._check_counts(counts, reset=True)
        self._check_parameters(len(table))
        rng = check_random_state(self.random_state)

        self.reference_: Floats = table.sum(axis=0) / table.sum()
        features, self.psi_ = self._features(table)
        self.wpsi_ = float(np.average(self.psi_, weights=table.sum(axis=1)))
        self.mean_, self.scale_ = _mean_and_scale(features)
        features = (features - self.mean_) / self.scale_

        searched = features
        if len(features) > self.sample_size:
            searched = features[rng.choice(len(features), self.sample_size, replace=False)]
        # Distinct rows come out sorted, so the search does not depend on the order of the clients.
        points, weights = np.unique(searched, axis=0, return_counts=True)
        search = _Search(points, weights, self.n_init, rng)

        self.silhouette_scores_: dict[int, float] = {}
        chosen, labels, best = 1, np.zeros(len(points), dtype=np.intp), -np.inf
        for j in self._candidates(len(table)):
            candidate, score = search.solve(j)
            if not np.isnan(score):
                self.silhouette_scores_[j] = score
            if j == self.n_clusters or score > best + TIE:
                chosen, labels, best = j, candidate, score
        labels, self.cluster_centers_ = _settle(points, weights, labels)
        if chosen in self.silhouette_scores_:
            self.silhouette_scores_[chosen] = float(search.silhouettes(labels[None])[0])
        self.labels_: Labels = _nearest(features, self.cluster_centers_)
        self.n_clusters_ = len(self.cluster_centers_)
        return self

    def predict(self, counts: ArrayLike) -> Labels:
        """Cluster of each new client: the nearest centre, as seen from the federation that was fitted."""
        return _nearest(self.transform(counts), self.cluster_centers_)

    def transform(self, counts: ArrayLike) -> Floats:
        """Standardized features of clients, compared with the federation that was fitted."""
        check_is_fitted(self)
        table = self._check_counts(counts, reset=False)
        standardized: Floats = (self._features(table)[0] - self.mean_) / self.scale_
        return standardized

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

    def _check_parameters(self, clients: int) -> None:
        if self.features not in FEATURES:
            raise unknown_name("features", self.features, FEATURES)
        for name, value, least in (
            ("n_init", self.n_init, 1),
            ("sample_size", self.sample_size, 2),
            ("max_clusters", self.max_clusters, 2),
        ):
            optional = name == "max_clusters" and value is None
            if not (optional or (isinstance(value, Integral) and value >= least)):
                raise ClustPSIError(f"{name} must be a whole number of at least {least}, not {value!r}")
        fixed = isinstance(self.n_clusters, Integral) and 1 <= self.n_clusters <= clients
        if not (fixed or self.n_clusters == "auto"):
            raise ClustPSIError(
                f"n_clusters must be 'auto' or a whole number from 1 to {clients}, the number of clients, "
                f"not {self.n_clusters!r}"
            )

    def _candidates(self, clients: int) -> Iterable[int]:
        """Numbers of clusters to try; none means that all clients stay together."""
        if self.n_clusters != "auto":
            return [self.n_clusters]
        if self.min_wpsi is not None and self.wpsi_ < self.min_wpsi:
            return []
        limit = self.max_clusters or (clients - 1 if clients <= self.sample_size else MAX_CLUSTERS_OF_MANY)
        return range(2, min(limit, clients - 1) + 1)

    def _features(self, table: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Features of each client before they are standardized, and its PSI."""
        terms = psi_terms(table, self.smoothing, self.epsilon, self.reference_)
        totals: Floats = terms.sum(axis=1)
        if self.features == "psi":
            return np.column_stack([totals, terms]), totals
        excess = table / table.sum(axis=1, keepdims=True) - self.reference_
        return np.sign(excess) * np.sqrt(terms), totals


class _Search:
    """K-means and silhouettes over weighted points, for any number of clusters."""

    def __init__(self, points: Floats, weights: NDArray[np.int64], n_init: int, rng: np.random.RandomState) -> None:
        self.points, self.weights = points, weights.astype(np.float64)
        self.distances: Floats = cdist(points, points)
        self.seeds = _plus_plus(self.distances**2, self.weights, n_init, rng)
        self.tree = cut_tree(ward(points)) if len(points) > 1 else np.zeros((1, 1), dtype=np.intp)

    def solve(self, j: int) -> tuple[Labels, float]:
        """Labels of the best K-means solution with j clusters, and their silhouette."""
        if j >= len(self.points):
            solutions = np.arange(len(self.points))[None]
        else:
            starts = _means(self.points, self.weights, self.tree[:, len(self.points) - j][None], j)
            if j <= MAX_SEEDED_CLUSTERS:
                starts = np.concatenate([starts, self.points[self.seeds[j - 1]]])
            solutions, inertias = _lloyd(self.points, self.weights, starts)
            # Starts that end in the same solution are scored once.
            inertias, firsts = np.unique(inertias.round(9), return_index=True)
            solutions = solutions[firsts[inertias <= inertias[0] * (1 + SAME_INERTIA)]]
        scores = self.silhouettes(solutions)
        best = np.nan_to_num(scores, nan=-np.inf).argmax()
        return solutions[best], float(scores[best])

    def silhouettes(self, labels: Labels) -> Floats:
        """Mean silhouette of all clients for each labelling, a row; NaN without 2 clusters or with one for each client.

        Clients that share a point are at distance 0 of each other; a client alone in its cluster scores 0.
        """
        number, points = labels.shape
        clusters = labels.max() + 1
        cells = (labels + clusters * np.arange(number)[:, None]).ravel()
        sizes = np.bincount(cells, np.tile(self.weights, number), minlength=number * clusters)
        order = np.argsort(cells, kind="stable")
        bounds = np.searchsorted(cells[order], np.arange(number * clusters + 1))
        members = csr_array((self.weights[order % points], order % points, bounds), shape=(len(sizes), points))
        # Sums of the distances of every point to the clients of every cluster; in the mean, a client skips itself.
        sums = (members @ self.distances).reshape(number, clusters, points)
        sizes = sizes.reshape(number, clusters)
        own, size = np.take_along_axis(sums, labels[:, None], axis=1)[:, 0], np.take_along_axis(sizes, labels, axis=1)
        within = own / np.maximum(size - 1, 1)
        np.put_along_axis(sums, labels[:, None], np.inf, axis=1)
        sums[sizes == 0] = np.inf
        sums /= np.maximum(sizes, 1)[..., None]
        between = sums.min(axis=1)
        larger = np.maximum(within, between)
        with np.errstate(invalid="ignore"):  # where there is but one cluster, the next one is infinitely far
            scores = np.divide(between - within, larger, out=np.zeros_like(larger), where=(size > 1) & (larger > 0))
        used, clients = np.count_nonzero(sizes, axis=1), self.weights.sum()
        return np.where((used > 1) & (used < clients), scores @ self.weights / clients, np.nan)


def _plus_plus(squares: Floats, weights: Floats, n_init: int, rng: np.random.RandomState) -> list[NDArray[np.intp]]:
    """Greedy k-means++ seedings for 1, 2, ... up to 32 clusters: for j clusters an array (seedings x j).

    There are `n_init` of them, and 16/j times as many for j < 16: a solution with few clusters costs little, and there
    K-means has the most different ones. Each seeding for j clusters extends one for j - 1: its next point is the best
    of a few, drawn with probability proportional to the squared distance to the nearest seed.
    """
    seeds = np.empty((n_init * 8, 0), dtype=np.intp)
    nearest = np.ones((len(seeds), len(weights)))
    seedings = []
    for j in range(1, min(MAX_SEEDED_CLUSTERS, len(weights)) + 1):
        number = max(n_init, n_init * 16 // max(j, 2))
        cumulative = np.cumsum(nearest[:number] * weights, axis=1)
        draws = rng.random_sample((number, 2 + int(np.log(j)) if j > 1 else 1)) * cumulative[:, -1:]
        drawn = np.stack([row.searchsorted(draw, side="right") for row, draw in zip(cumulative, draws, strict=True)])
        drawn = np.minimum(drawn, len(weights) - 1)
        after = np.minimum(squares[drawn], nearest[:number, None] if j > 1 else np.inf)
        best = (after @ weights).argmin(axis=1)
        rows = np.arange(number)
        seeds, nearest = np.column_stack([seeds[:number], drawn[rows, best]]), after[rows, best]
        seedings.append(seeds)
    return seedings


def _lloyd(points: Floats, weights: Floats, centers: Floats) -> tuple[Labels, Floats]:
    """Lloyd's iterations from several starts at once (starts x clusters x features): labels and inertia of each."""
    clusters = centers.shape[1]
    labels = np.full((len(centers), len(points)), -1, dtype=np.intp)
    inertias = np.empty(len(centers))
    running = np.arange(len(centers))
    constant = weights @ (points**2).sum(axis=1)
    extended = np.column_stack([points, np.ones(len(points))])
    for _ in range(MAX_ITERATIONS):
        # |x - c|^2 / 2 without |x|^2 / 2, as one product: (x, 1) (-c, |c|^2 / 2).
        planes = np.concatenate([-centers, (centers**2).sum(axis=2, keepdims=True) / 2], axis=2)
        gaps = (extended @ planes.reshape(-1, extended.shape[1]).T).reshape(len(points), -1, clusters)
        nearest = gaps.argmin(axis=2).T
        inertias[running] = constant + 2 * (weights @ gaps.min(axis=2))
        moved = (nearest != labels[running]).any(axis=1)
        labels[running] = nearest
        running = running[moved]
        if not len(running):
            break
        centers = _means(points, weights, nearest[moved], clusters, centers[moved])
    return labels, inertias


def _means(points: Floats, weights: Floats, labels: Labels, clusters: int, otherwise: ArrayLike = 0.0) -> Floats:
    """Centres of several labellings at once (labellings x clusters x features); `otherwise` for empty clusters."""
    cells = (labels + clusters * np.arange(len(labels))[:, None]).ravel()

    def totals(values: Floats) -> Floats:
        repeated = values[None].repeat(len(labels), axis=0).ravel()
        sums = np.bincount(cells, repeated, len(labels) * clusters).reshape(len(labels), clusters)
        return np.asarray(sums, dtype=np.float64)

    sizes = totals(weights)[..., None]
    sums = np.stack([totals(weights * column) for column in points.T], axis=2)
    return np.where(sizes > 0, sums / np.maximum(sizes, 1), otherwise)


def _settle(points: Floats, weights: NDArray[np.int64], labels: Labels) -> tuple[Labels, Floats]:
    """Number the clusters by their centres in lexicographic order, so that every point is with its nearest centre."""
    for _ in range(MAX_ITERATIONS):
        _, labels = np.unique(labels, return_inverse=True)
        centers = _means(points, weights.astype(np.float64), labels[None], labels.max() + 1)[0]
        centers = centers[np.lexsort(centers.T[::-1])]
        nearest = _nearest(points, centers)
        if (nearest == labels).all():
            break
        labels = nearest
    return labels, centers


def _nearest(rows: Floats, centers: Floats) -> Labels:
    """Index of the centre nearest to each row; each pair on its own, so that a row's answer never depends on others."""
    chunks = (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))
    return np.concatenate([cdist(chunk, centers, "sqeuclidean").argmin(axis=1) for chunk in chunks])


def _mean_and_scale(features: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column; 1 for a column that is constant up to rounding."""
    ordered = np.sort(features, axis=0)  # the same bits for any order of the clients
    mean, scale = ordered.mean(axis=0), ordered.std(axis=0)
    return mean, np.where(scale > 1e-12 * np.abs(ordered).max(axis=0), scale, 1.0)
