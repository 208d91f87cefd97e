"""How much the clients' label distributions differ: PSI and its weighted mean, and the distances it is compared with.

Every function takes label counts, one row per client and one column per class: no features, no model.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustpsi.errors import ClustPSIError, unknown_name

Smoothing = Literal["additive", "clip", "laplace"]

#: Ways to keep PSI finite for a class that a client does not have, and the default strength of each.
SMOOTHINGS: dict[str, float] = {"additive": 1e-6, "clip": 1e-4, "laplace": 0.5}

CLIENTS_AT_ONCE = 65_536

#: Most samples of a federation: up to here every count and every sum of counts is exact in double precision.
MAX_SAMPLES = 2**53


def check_counts(
    counts: ArrayLike,
    clients: Sequence[object] | None = None,
    classes: Sequence[object] | None = None,
    where: str = "",
) -> NDArray[np.int64]:
    """Label counts as an int64 array (clients x classes), or a :class:`ClustPSIError` that says what is wrong.

    Lists, arrays, data frames and whole-numbered floats will do. All counts together may be 2**53 at most.

    Errors call clients and classes by the names given, else by their positions, and start with ``where``.

    >>> check_counts([[3.0, 0.0], [1.0, 2.0]])
    array([[3, 0],
           [1, 2]])
    """
    before = f"{where}: " if where else ""
    try:
        values = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise ClustPSIError(
            f"{before}label counts must be a table of numbers with one row per client and one column per class"
        ) from None
    if values.ndim != 2:
        raise ClustPSIError(f"{before}label counts must have two dimensions, clients x classes, not {values.ndim}")
    if values.size == 0:
        raise ClustPSIError(
            f"{before}label counts need at least one client and one class, but their shape is {values.shape}"
        )
    for wrong, right in (
        (~np.isfinite(values), "finite"),
        (values < 0, "zero or more"),
        (values != np.floor(values), "whole numbers"),
    ):
        if wrong.any():
            client, label = np.argwhere(wrong)[0]
            found = values[client, label]
            who, what = _named(client, clients), _named(label, classes)
            raise ClustPSIError(
                f"{before}label counts must be {right}, but client {who} has {found:g} samples of class {what}"
            )
    total = values.sum()
    if total > MAX_SAMPLES:
        raise ClustPSIError(
            f"{before}label counts must add up to 2**53 (about 9e15) at most, where sums are still exact, "
            f"not {total:.3g}"
        )
    without = np.flatnonzero(values.sum(axis=1) == 0)
    if without.size:
        who = _named(without[0], clients)
        raise ClustPSIError(f"{before}client {who} has no samples, so it has no label distribution: leave it out")
    return values.astype(np.int64)


def _named(place: int, names: Sequence[object] | None) -> str:
    return str(place) if names is None or place >= len(names) else repr(names[place])


def psi_terms(
    counts: ArrayLike,
    smoothing: Smoothing = "additive",
    epsilon: float | None = None,
    reference: ArrayLike | None = None,
) -> NDArray[np.float64]:
    r"""Per-class terms of the population stability index of every client, :math:`PSI_{i,c}^L` in the paper.

    .. math:: PSI_{i,c} = (P_c - p_{i,c}) \ln (P_c / p_{i,c})

    where :math:`p_i` is the label distribution of client i and :math:`P` that of all clients' samples together.

    Parameters
    ----------
    counts
        Label counts, clients x classes.
    smoothing
        ``"additive"`` adds `epsilon` to P and p; ``"clip"`` raises both to at least `epsilon`; ``"laplace"`` adds
        `epsilon` samples of every class to each client and leaves P alone.
    epsilon
        Strength of the smoothing; by default 1e-6, 1e-4 and 0.5 in that order.
    reference
        Class probabilities P of a known federation, to compare new clients with; by default pooled from `counts`.

    Returns
    -------
    (K, C) array of values that are zero or more. The column of a class that nobody has (P = 0) is zero.

    Examples
    --------
    >>> psi_terms([[50, 50], [90, 10]]).round(4)
    array([[0.0673, 0.1022],
           [0.0503, 0.2197]])
    """
    table = check_counts(counts)
    if smoothing not in SMOOTHINGS:
        raise unknown_name("smoothing", smoothing, SMOOTHINGS)
    strength = SMOOTHINGS[smoothing] if epsilon is None else epsilon
    if not (np.isfinite(strength) and strength > 0):
        raise ClustPSIError(f"epsilon must be a finite number above 0, not {strength}")
    pooled = table.sum(axis=0) / table.sum() if reference is None else _check_reference(reference, table.shape[1])

    known = pooled > 0
    terms = np.zeros(table.shape)
    for start in range(0, len(table), CLIENTS_AT_ONCE):  # so that what is made on the way takes little memory
        own = slice(start, start + CLIENTS_AT_ONCE)
        terms[own][:, known] = _terms_of(table[own], pooled, known, smoothing, strength)
    return terms


def _terms_of(
    table: NDArray[np.int64],
    pooled: NDArray[np.float64],
    known: NDArray[np.bool_],
    smoothing: Smoothing,
    strength: float,
) -> NDArray[np.float64]:
    """Terms of some clients, for the classes that somebody has."""
    p_all, p_client = pooled[known], _distributions(table)[:, known]
    if smoothing == "additive":
        p_all, p_client = p_all + strength, p_client + strength
    elif smoothing == "clip":
        p_all, p_client = np.maximum(p_all, strength), np.maximum(p_client, strength)
    else:
        sizes = table.sum(axis=1, keepdims=True)
        p_client = (table[:, known] + strength) / (sizes + strength * known.sum())
    terms: NDArray[np.float64] = (p_all - p_client) * np.log(p_all / p_client)
    return terms


def psi(
    counts: ArrayLike,
    smoothing: Smoothing = "additive",
    epsilon: float | None = None,
    reference: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Population stability index of every client, the sum of its :func:`psi_terms`; shape (K,).

    >>> psi([[50, 50], [90, 10]]).round(4)
    array([0.1695, 0.27  ])
    """
    totals: NDArray[np.float64] = psi_terms(counts, smoothing, epsilon, reference).sum(axis=1)
    return totals


def wpsi(
    counts: ArrayLike,
    smoothing: Smoothing = "additive",
    epsilon: float | None = None,
    reference: ArrayLike | None = None,
) -> float:
    """Weighted PSI of the federation: the mean of :func:`psi` with the clients' sample sizes as weights.

    >>> round(wpsi([[50, 50], [90, 10]]), 4)
    0.2197
    """
    table = check_counts(counts)
    return float(np.average(psi(table, smoothing, epsilon, reference), weights=table.sum(axis=1)))


def hellinger(counts: ArrayLike) -> float:
    """Root mean squared Hellinger distance over all pairs of clients, as FedArtML defines it; 0 to 1.

    The squared distances of all pairs add up to the spread around the mean, so no pair is ever formed.

    >>> hellinger([[5, 0], [0, 7]])
    1.0
    """
    roots = np.sqrt(_distributions(check_counts(counts)))
    if len(roots) == 1:
        return 0.0
    return min(float(np.sqrt(roots.var(axis=0, ddof=1).sum())), 1.0)


def jensen_shannon(counts: ArrayLike) -> float:
    """Jensen-Shannon distance of all clients to their unweighted mean, as FedArtML defines it; 0 to 1.

    This is the root of the divergence in bits; with more than two clients the divergence is first divided by its bound
    log2(K).

    >>> jensen_shannon([[5, 0], [0, 7]])
    1.0
    """
    shares = _distributions(check_counts(counts))
    shares = shares[:, shares.any(axis=0)]
    mean = shares.mean(axis=0)
    # p ln(p/m) - p + m, written in the relative deviation from m: it keeps its digits when clients are almost alike.
    deviation = (shares - mean) / mean
    logs = np.log1p(deviation, where=shares > 0, out=np.zeros_like(shares))
    divergence = float((mean * ((1 + deviation) * logs - deviation)).sum(axis=1).mean() / np.log(2))
    if len(shares) > 2:
        divergence /= float(np.log2(len(shares)))
    return min(float(np.sqrt(max(divergence, 0.0))), 1.0)


def earth_mover(counts: ArrayLike) -> float:
    """FedArtML's earth mover's distance, which compares the *sorted* probabilities of two clients; 0 to 1.

    It treats the probabilities of a client as a sample of numbers and ignores which class they belong to. So two
    clients with one class each are at distance 0 even when the classes differ. It stays as it is because the paper
    compares with it. :func:`label_earth_mover` is the distance between label distributions.

    >>> earth_mover([[5, 0], [0, 7]])
    0.0
    """
    ordered = np.sort(_distributions(check_counts(counts)), axis=1)
    return min(float(np.sqrt(_mean_pairwise_gap(ordered).mean())), 1.0)


def label_earth_mover(counts: ArrayLike) -> float:
    """Earth mover's distance between label distributions, mean over all pairs of clients; 0 to 1.

    Moving a sample to any other class costs 1, so the distance of a pair is half the sum of absolute differences.

    >>> label_earth_mover([[5, 0], [0, 7]])
    1.0
    """
    return float(_mean_pairwise_gap(_distributions(check_counts(counts))).sum() / 2)


def measures(counts: ArrayLike, smoothing: Smoothing = "additive", epsilon: float | None = None) -> dict[str, float]:
    """Every measure of the federation as a whole, by name.

    >>> measures([[5, 5], [8, 8]])
    {'wpsi': 0.0, 'hellinger': 0.0, 'jensen_shannon': 0.0, 'earth_mover': 0.0, 'label_earth_mover': 0.0}
    """
    table = check_counts(counts)
    return {
        "wpsi": wpsi(table, smoothing, epsilon),
        "hellinger": hellinger(table),
        "jensen_shannon": jensen_shannon(table),
        "earth_mover": earth_mover(table),
        "label_earth_mover": label_earth_mover(table),
    }


def _distributions(table: NDArray[np.int64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = table / table.sum(axis=1, keepdims=True)
    return shares


def _check_reference(reference: ArrayLike, num_classes: int) -> NDArray[np.float64]:
    pooled = np.asarray(reference, dtype=np.float64)
    if pooled.shape != (num_classes,):
        raise ClustPSIError(
            f"reference must hold one probability for each of {num_classes} classes, not shape {pooled.shape}"
        )
    if not (np.isfinite(pooled).all() and (pooled >= 0).all() and abs(pooled.sum() - 1) < 1e-6):
        raise ClustPSIError("reference must hold probabilities: zero or more each, one in sum")
    return pooled


def _mean_pairwise_gap(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean absolute difference over all pairs of rows, column by column.

    In a sorted column, the gap after the r-th value lies between r values and the other K - r: r (K - r) pairs span it.
    """
    rows = len(values)
    if rows == 1:
        return np.zeros(values.shape[1])
    gaps = np.diff(np.sort(values, axis=0), axis=0)
    below = np.arange(1, rows)
    spans: NDArray[np.float64] = (below * (rows - below)) @ gaps
    return spans / (rows * (rows - 1) / 2)
