"""K-means of weighted points for one number of clusters after another, and the silhouette of each solution.

Three things make the whole search cheap: clients with the same features are one weighted point; the distances between
points are computed once, and the silhouette of a labelling is then a sum over them; and one Ward tree, which is cut at
every number of clusters, gives good starts.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import cut_tree, ward
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist, pdist, squareform

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

SearchName = Literal["best", "plain"]

#: Which solution is chosen: "best" takes the highest silhouette among solutions of nearly the lowest inertia; "plain",
#: as in the paper, takes the lowest inertia of a few k-means++ starts.
SEARCHES: tuple[SearchName, ...] = ("best", "plain")

#: Up to this many clusters "best" also starts from k-means++ seedings; beyond, the Ward tree almost always leads to a
#: lower inertia than ten of them, and they would take most of the time.
MAX_SEEDED_CLUSTERS = 32

#: For "best", solutions whose inertia is within this fraction of the lowest count as equal, and silhouette decides.
SAME_INERTIA = 0.02

#: Up to this many points all starts run side by side in NumPy; more are left to compiled loops, which take less time
#: and memory. They differ in rounding, and in that a cluster which runs empty stays so.
MAX_SIDE_BY_SIDE = 200

MAX_ITERATIONS = 300


class Search:
    """K-means solutions of weighted points for the given numbers of clusters.

    Parameters
    ----------
    points, weights
        The distinct points, sorted, and how many clients are at each.
    numbers
        Numbers of clusters that :meth:`solve` will be asked for.
    search
        One of `SEARCHES`.
    n_init
        k-means++ starts for each number of clusters; "best" has 16/j times as many for j < 16 clusters, and none for
        more than 32.
    rng
        Draws the k-means++ seedings.
    """

    def __init__(
        self,
        points: Floats,
        weights: NDArray[np.int64],
        numbers: Sequence[int],
        search: SearchName,
        n_init: int,
        rng: np.random.RandomState,
    ) -> None:
        self.best, self.n_init, self.points = search == "best", n_init, len(points)
        few = len(points) <= MAX_SIDE_BY_SIDE
        numbers = [j for j in numbers if j < len(points)]
        solver = _SideBySide if few else _Compiled
        self.solver: _Solver = solver(points, weights.astype(np.float64), numbers if self.best else [])
        # Up to 32 clusters are always seeded, so that a number has the same solution whatever else is asked for.
        longest = MAX_SEEDED_CLUSTERS if self.best else max(numbers, default=0)
        self.seeds = _plus_plus(
            self.solver.distances, self.solver.weights, min(longest, len(points)), self._starts, rng
        )

    def _starts(self, j: int) -> int:
        """Number of k-means++ starts for j clusters.

        Few clusters have more starts: each costs little, and K-means then ends in the most different solutions.
        """
        if not self.best:
            return self.n_init
        return max(self.n_init, self.n_init * 16 // max(j, 2)) if j <= MAX_SEEDED_CLUSTERS else 0

    def solve(self, j: int) -> tuple[Labels, float]:
        """Labels of the chosen solution with j clusters, and their silhouette."""
        if j >= self.points:
            labels, scores = np.arange(self.points)[None], np.full(1, np.nan)
        else:
            starts = self._starts(j)
            seeds = self.seeds[:starts, :j] if starts else np.empty((0, j), dtype=np.intp)
            labels, inertias, scores = self.solver.converged(j, self.best, seeds)
            # Starts that end in the same solution are scored once.
            inertias, firsts = np.unique(inertias.round(9), return_index=True)
            near = firsts[inertias <= inertias[0] * (1 + SAME_INERTIA)] if self.best else firsts[:1]
            labels, scores = labels[near], scores[near]
        unknown = np.isnan(scores)
        if unknown.any():
            scores[unknown] = self.solver.silhouettes(labels[unknown])
        best = np.nan_to_num(scores, nan=-np.inf).argmax()
        return labels[best], float(scores[best])

    def silhouette(self, labels: Labels) -> float:
        """Mean silhouette of all clients; NaN unless there are 2 clusters or more and fewer than clients.

        Clients that share a point are at distance 0 of each other; a client alone in its cluster scores 0.
        """
        return float(self.solver.silhouettes(labels[None])[0])


class _Solver(Protocol):
    """Distances between weighted points, and Lloyd's iterations over them."""

    weights: Floats
    distances: Floats

    def converged(self, j: int, tree: bool, seeds: Labels) -> tuple[Labels, Floats, Floats]:
        """Run Lloyd's iterations from the Ward tree, if asked for, and from each seeding.

        Returns labels (solutions x points), inertias, and silhouettes, NaN where they are not computed yet.
        """
        ...

    def silhouettes(self, labels: Labels) -> Floats:
        """Silhouette of each labelling (one per row)."""
        ...


class _SideBySide:
    """All starts at once, for few points."""

    def __init__(self, points: Floats, weights: Floats, numbers: Sequence[int]) -> None:
        self.points, self.weights = points, weights
        self.distances: Floats = cdist(points, points)
        self.tree = cut_tree(ward(points)) if numbers else np.empty((len(points), 0), dtype=np.intp)

    def converged(self, j: int, tree: bool, seeds: Labels) -> tuple[Labels, Floats, Floats]:
        starts = self.points[seeds]
        if tree:
            cut = self.tree[:, len(self.points) - j]
            starts = np.concatenate([means(self.points, self.weights, cut[None], j), starts])
        labels, inertias = _lloyd(self.points, self.weights, starts)
        return labels, inertias, np.full(len(labels), np.nan)

    def silhouettes(self, labels: Labels) -> Floats:
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


class _Compiled:
    """One start after the other, for many points; the cuts of the tree in one walk."""

    def __init__(self, points: Floats, weights: Floats, numbers: Sequence[int]) -> None:
        from clustpsi import kmeans_loops  # here, because Numba takes its time to load

        self.loops, self.weights = kmeans_loops, weights
        pairs = pdist(points)
        self.distances: Floats = squareform(pairs)
        if not numbers:
            return
        wanted = np.zeros(len(points) + 1, dtype=np.bool_)
        wanted[list(numbers)] = True
        self.row = {j: row for row, j in enumerate(sorted(numbers))}
        self.labels = np.empty((len(numbers), len(points)), dtype=np.int64)
        self.inertias, self.scores = np.empty(len(numbers)), np.empty(len(numbers))
        merges = ward(pairs)[:, :2].astype(np.int64)
        self.loops.walk(self.distances, weights, merges, wanted, self.labels, self.inertias, self.scores)

    def converged(self, j: int, tree: bool, seeds: Labels) -> tuple[Labels, Floats, Floats]:
        labels = np.empty((len(seeds), len(self.weights)), dtype=np.int64)
        inertias, scores = np.empty(len(seeds)), np.full(len(seeds), np.nan)
        self.loops.seeded(self.distances, self.weights, np.ascontiguousarray(seeds), labels, inertias)
        if tree:
            row = self.row[j]
            labels = np.concatenate([self.labels[row : row + 1], labels])
            inertias = np.concatenate([self.inertias[row : row + 1], inertias])
            scores = np.concatenate([self.scores[row : row + 1], scores])
        return labels, inertias, scores

    def silhouettes(self, labels: Labels) -> Floats:
        scores = np.empty(len(labels))
        labels = np.ascontiguousarray(labels)
        self.loops.silhouettes(self.distances, self.weights, labels, int(labels.max()) + 1, scores)
        return scores


def _plus_plus(
    distances: Floats, weights: Floats, longest: int, starts: Callable[[int], int], rng: np.random.RandomState
) -> Labels:
    """Greedy k-means++ seedings: the first j columns of the first ``starts(j)`` rows are those for j clusters.

    Each seeding for j clusters extends one for j - 1: its next point is the best of a few, drawn with probability
    proportional to the squared distance to the nearest seed.
    """
    squares = distances**2
    seeds = np.zeros((starts(1), longest), dtype=np.intp)
    nearest = np.ones((len(seeds), len(weights)))
    for j in range(1, longest + 1):
        number = starts(j)
        cumulative = np.cumsum(nearest[:number] * weights, axis=1)
        draws = rng.random_sample((number, 2 + int(np.log(j)) if j > 1 else 1)) * cumulative[:, -1:]
        drawn = np.stack([row.searchsorted(draw, side="right") for row, draw in zip(cumulative, draws, strict=True)])
        drawn = np.minimum(drawn, len(weights) - 1)
        after = np.minimum(squares[drawn], nearest[:number, None] if j > 1 else np.inf)
        best = (after @ weights).argmin(axis=1)
        rows = np.arange(number)
        seeds[:number, j - 1], nearest = drawn[rows, best], after[rows, best]
    return seeds


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
        centers = means(points, weights, nearest[moved], clusters, centers[moved])
    return labels, inertias


def means(points: Floats, weights: Floats, labels: Labels, clusters: int, otherwise: ArrayLike = 0.0) -> Floats:
    """Centres of several labellings at once (labellings x clusters x features); `otherwise` for empty clusters."""
    cells = (labels + clusters * np.arange(len(labels))[:, None]).ravel()

    def totals(values: Floats) -> Floats:
        repeated = values[None].repeat(len(labels), axis=0).ravel()
        sums = np.bincount(cells, repeated, len(labels) * clusters).reshape(len(labels), clusters)
        return np.asarray(sums, dtype=np.float64)

    sizes = totals(weights)[..., None]
    sums = np.stack([totals(weights * column) for column in points.T], axis=2)
    return np.where(sizes > 0, sums / np.maximum(sizes, 1), otherwise)
