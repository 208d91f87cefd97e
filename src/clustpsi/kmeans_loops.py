"""K-means and silhouettes of many points: compiled loops that reuse what is known of a solution nearby.

The squared distance of a point to the centre of a cluster needs no coordinates: it is the point's mean squared distance
to the members, less the members' mean squared distance to their own centre. Both come from one row of sums for each
cluster, the squared distances of all points to its members. A point that changes its cluster changes two rows, by a row
of distances each; two branches of a tree that merge add their rows up. So the cost does not depend on the number of
features, and every cut of a tree comes from the one before it. Silhouettes come from sums of plain distances in the
same way.

A cluster's row r stands for the values ``factor * r - offset``. An empty cluster has the offset minus infinity, so that
it is never the nearest. Loops are used instead of array expressions because Numba compiles them several times faster.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from clustpsi.kmeans import MAX_ITERATIONS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def walk(
    distances: Floats, weights: Floats, merges: Integers, wanted: Flags,
    labels: Integers, inertias: Floats, scores: Floats,
) -> None:  # fmt: skip
    """K-means from the cuts of a tree: labels, inertia and silhouette for each wanted number of clusters, ascending.

    `merges` are the pairs of nodes in the order in which they merge, as in SciPy's linkage; ``wanted[j]`` asks for j
    clusters. The walk begins with every point a cluster of its own and ends with all points in one.
    """
    points = len(weights)
    squares, sums, kept = np.empty((points, points)), np.empty((points, points)), np.empty((points, points))
    for x in range(points):
        for y in range(points):
            sums[x, y] = weights[x] * distances[x, y]
            squares[x, y] = sums[x, y] * distances[x, y]
    sizes, own_sizes = weights.copy(), weights.copy()
    factors, own_factors = np.empty(points), np.empty(points)
    offsets, own_offsets, no_offsets = np.zeros(points), np.zeros(points), np.zeros(points)
    clusters, place = np.arange(points), np.arange(points)  # clusters that are left, and where each stands there
    row_of = np.arange(2 * points)  # of each node of the tree
    tree, everyone = np.arange(points), np.arange(points)  # cluster of each point in the cut
    centre, gap = np.arange(points), np.zeros(points)  # nearest centre of each point, and its squared distance
    other, mean = np.arange(points), np.empty(points)  # nearest cluster but its own, and its mean distance
    nearest, squared, nobody = np.empty(points, np.int64), np.empty(points), np.arange(points)
    changed, redo, touched = np.zeros(points, np.bool_), np.zeros(points, np.bool_), np.empty(points, np.int64)
    for x in range(points):
        factors[x] = 1 / weights[x]
        nobody[x] = -1
    _choose(sums, factors, no_offsets, clusters, everyone, tree, other, mean)

    row = len(labels)
    for step in range(points - 1):
        a, b = row_of[merges[step, 0]], row_of[merges[step, 1]]
        row_of[points + step] = a
        for x in range(points):
            squares[a, x] += squares[b, x]
            sums[a, x] += sums[b, x]
            tree[x] = a if tree[x] == b else tree[x]
            centre[x] = a if centre[x] == b else centre[x]
            other[x] = a if other[x] == b else other[x]
        sizes[a] += sizes[b]
        left = points - 1 - step
        place[clusters[left]] = place[b]
        clusters[place[b]] = clusters[left]
        touched[0], changed[a] = a, True
        _rescale(squares, weights, sizes, tree, touched[:1], changed, factors, offsets)
        _follow(squares, factors, offsets, clusters[:left], touched[:1], changed, redo, nobody, centre, gap)
        _follow(sums, factors, no_offsets, clusters[:left], touched[:1], changed, redo, tree, other, mean)
        changed[a] = False
        if not wanted[left]:
            continue

        row -= 1
        own = labels[row]
        for x in range(points):
            own[x], nearest[x], squared[x] = tree[x], centre[x], gap[x]
            own_sizes[x], own_factors[x], own_offsets[x] = sizes[x], factors[x], offsets[x]
        number = _lloyd(
            distances, weights, squares, own_sizes, own_factors, own_offsets, clusters[:left],
            own, nearest, squared, touched, kept,
        )  # fmt: skip
        inertias[row] = _weighted_sum(weights, squared)
        for i in range(number):
            c = touched[i]
            _copy(squares[c], kept[i])
            _copy(kept[i], sums[c])
            changed[c] = True
            own_offsets[c] = 0.0 if own_sizes[c] > 0 else -np.inf
        for x in range(points):
            nearest[x], squared[x] = other[x], mean[x]
            redo[x] = own[x] != tree[x]
            if redo[x]:
                _move(sums[tree[x]], sums[own[x]], distances[x], weights[x], 1)
        for c in clusters[:left]:
            own_offsets[c] = own_offsets[c] if changed[c] else 0.0
        _follow(sums, own_factors, own_offsets, clusters[:left], touched[:number], changed, redo, own, nearest, squared)
        scores[row] = _silhouette(sums, weights, own_sizes, own, squared)
        for i in range(number):
            _copy(sums[touched[i]], kept[i])
            changed[touched[i]] = False


@_compiled
def seeded(distances: Floats, weights: Floats, seeds: Integers, labels: Integers, inertias: Floats) -> None:
    """K-means from several sets of points as the first centres (starts x clusters): labels and inertia of each."""
    (starts, number), points = seeds.shape, len(weights)
    rows, kept = np.empty((number, points)), np.empty((0, points))
    factors, offsets, sizes = np.empty(number), np.empty(number), np.empty(number)
    clusters, everyone, touched, changed = np.arange(number), np.arange(points), np.arange(number), np.ones(number) > 0
    nearest, gap, nobody = np.empty(points, np.int64), np.empty(points), np.empty(points, np.int64)
    for start in range(starts):
        own = labels[start]
        for x in range(points):
            own[x] = nearest[x] = nobody[x] = -1
        for c in range(number):
            _copy(rows[c], distances[seeds[start, c]])
            factors[c], offsets[c] = 1.0, 0.0
        _choose(rows, factors, offsets, clusters, everyone, nobody, own, gap)
        _add_up(distances, weights, own, 2, rows, sizes)
        _rescale(rows, weights, sizes, own, clusters, changed, factors, offsets)
        _choose(rows, factors, offsets, clusters, everyone, nobody, nearest, gap)
        _lloyd(distances, weights, rows, sizes, factors, offsets, clusters, own, nearest, gap, touched, kept)
        inertias[start] = _weighted_sum(weights, gap)


@_compiled
def silhouettes(distances: Floats, weights: Floats, labels: Integers, number: int, scores: Floats) -> None:
    """Mean silhouette of all clients for each labelling (one per row, with clusters 0 to `number` - 1)."""
    points = len(weights)
    sums, sizes, factors, offsets = np.empty((number, points)), np.empty(number), np.empty(number), np.empty(number)
    clusters, everyone, other, mean = np.arange(number), np.arange(points), np.arange(points), np.empty(points)
    for i in range(len(labels)):
        own = labels[i]
        _add_up(distances, weights, own, 1, sums, sizes)
        for c in range(number):
            factors[c], offsets[c] = 1 / max(sizes[c], 1.0), (0.0 if sizes[c] > 0 else -np.inf)
        for x in range(points):
            other[x] = -1
        _choose(sums, factors, offsets, clusters, everyone, own, other, mean)
        scores[i] = _silhouette(sums, weights, sizes, own, mean)


@_compiled
def _lloyd(
    distances: Floats, weights: Floats, rows: Floats, sizes: Floats, factors: Floats, offsets: Floats,
    clusters: Integers, labels: Integers, nearest: Integers, gap: Floats, touched: Integers, kept: Floats,
) -> int:  # fmt: skip
    """Lloyd's iterations in place, until every point is with its nearest centre.

    Clusters that changed are listed in `touched` and counted, and `kept`, unless empty, has their rows from before.
    """
    points = len(labels)
    is_touched, is_changed = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    changed, redo, nobody = np.empty(len(rows), np.int64), np.zeros(points, np.bool_), np.empty(points, np.int64)
    for x in range(points):
        nobody[x] = -1
    count = 0
    for _ in range(MAX_ITERATIONS):
        number = 0
        for x in range(points):
            if labels[x] == nearest[x]:
                continue
            for c in (labels[x], nearest[x]):
                if not is_changed[c]:
                    is_changed[c] = True
                    changed[number] = c
                    number += 1
                if not is_touched[c]:
                    is_touched[c] = True
                    touched[count] = c
                    if len(kept):
                        _copy(kept[count], rows[c])
                    count += 1
            _move(rows[labels[x]], rows[nearest[x]], distances[x], weights[x], 2)
            sizes[labels[x]] -= weights[x]
            sizes[nearest[x]] += weights[x]
            labels[x] = nearest[x]
        if number == 0:
            break
        _rescale(rows, weights, sizes, labels, changed[:number], is_changed, factors, offsets)
        _follow(rows, factors, offsets, clusters, changed[:number], is_changed, redo, nobody, nearest, gap)
        for c in changed[:number]:
            is_changed[c] = False
    return count


@_compiled
def _rescale(
    rows: Floats, weights: Floats, sizes: Floats, labels: Integers,
    changed: Integers, is_changed: Flags, factors: Floats, offsets: Floats,
) -> None:  # fmt: skip
    """Factors and offsets of clusters whose members have changed, so that their rows stand for distances to centres."""
    for c in changed:
        factors[c], offsets[c] = 1 / max(sizes[c], 1.0), 0.0
    for x in range(len(labels)):
        c = labels[x]
        if is_changed[c]:
            offsets[c] += weights[x] * rows[c, x]
    for c in changed:
        offsets[c] = offsets[c] * factors[c] * factors[c] / 2 if sizes[c] > 0 else -np.inf


@_compiled
def _follow(
    rows: Floats, factors: Floats, offsets: Floats, clusters: Integers,
    changed: Integers, is_changed: Flags, redo: Flags, own: Integers, best: Integers, value: Floats,
) -> None:  # fmt: skip
    """Update each point's best cluster after some clusters changed; `redo` marks points that must compare all."""
    points = len(best)
    wanted, number = np.empty(points, np.int64), 0
    for x in range(points):
        c = best[x]
        if is_changed[c] and not redo[x]:
            # One that has come nearer is still nearer than all those that have not changed.
            now = factors[c] * rows[c, x] - offsets[c]
            redo[x] = now > value[x] or c == own[x]
            value[x] = now
        if redo[x]:
            wanted[number] = x
            number += 1
    for c in changed:
        row, factor, offset = rows[c], factors[c], offsets[c]
        for x in range(points):
            found = factor * row[x] - offset
            if found < value[x] and own[x] != c and not redo[x]:
                value[x] = found
                best[x] = c
    _choose(rows, factors, offsets, clusters, wanted[:number], own, best, value)
    for x in wanted[:number]:
        redo[x] = False


@_compiled
def _choose(
    rows: Floats, factors: Floats, offsets: Floats, clusters: Integers,
    wanted: Integers, own: Integers, best: Integers, value: Floats,
) -> None:  # fmt: skip
    """For each of the points `wanted`, the cluster with the least value, other than its own; a tie changes nothing."""
    for x in wanted:
        c = best[x]
        value[x] = np.inf if c < 0 or c == own[x] else factors[c] * rows[c, x] - offsets[c]
    for c in clusters:
        row, factor, offset = rows[c], factors[c], offsets[c]
        for x in wanted:
            found = factor * row[x] - offset
            if found < value[x] and own[x] != c:
                value[x] = found
                best[x] = c


@_compiled
def _silhouette(sums: Floats, weights: Floats, sizes: Floats, labels: Integers, between: Floats) -> float:
    """Mean over all clients; NaN for fewer than 2 clusters or one for each client.

    A client alone in its cluster scores 0.  Clients that share a point are at distance 0 of each other.
    """
    total, clients, used = 0.0, 0.0, 0
    seen = np.zeros(len(sizes), np.bool_)
    for x in range(len(labels)):
        c = labels[x]
        used += 0 if seen[c] else 1
        seen[c] = True
        clients += weights[x]
        within = sums[c, x] / max(sizes[c] - 1, 1.0)
        larger = max(within, between[x])
        if sizes[c] > 1 and 0 < larger < np.inf:
            total += weights[x] * (between[x] - within) / larger
    return total / clients if 1 < used < clients else np.nan


@_compiled
def _add_up(distances: Floats, weights: Floats, labels: Integers, power: int, rows: Floats, sizes: Floats) -> None:
    """Rows and sizes of all clusters: sums of distances, or of their squares, to the members."""
    for c in range(len(rows)):
        sizes[c] = 0.0
        for x in range(len(labels)):
            rows[c, x] = 0.0
    for x in range(len(labels)):
        sizes[labels[x]] += weights[x]
        row, weight, own = rows[labels[x]], weights[x], distances[x]
        if power == 2:
            for y in range(len(row)):
                row[y] += weight * own[y] * own[y]
        else:
            for y in range(len(row)):
                row[y] += weight * own[y]


@_compiled
def _move(before: Floats, after: Floats, distances: Floats, weight: float, power: int) -> None:
    """A point leaves one cluster for another."""
    for y in range(len(before)):
        part = weight * distances[y] * (distances[y] if power == 2 else 1.0)
        before[y] -= part
        after[y] += part


@_compiled
def _copy(to: Floats, values: Floats) -> None:
    for x in range(len(to)):
        to[x] = values[x]


@_compiled
def _weighted_sum(weights: Floats, values: Floats) -> float:
    total = 0.0
    for x in range(len(weights)):
        total += weights[x] * values[x]
    return total
