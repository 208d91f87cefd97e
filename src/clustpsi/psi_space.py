"""Clients as points: what describes their label skew, and which of some centres is nearest.

All that placing a client that comes later takes, as plain data: neither the other clients nor scikit-learn.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustpsi.skew import Smoothing, psi_terms

Floats = NDArray[np.float64]
Labels = NDArray[np.intp]

FEATURES = ("psi", "signed")

ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class PSICentres:
    """Centres of clusters, and how a client's label counts become a point beside them.

    Attributes
    ----------
    features, smoothing, epsilon
        Those of :class:`clustpsi.clustering.PSIClustering`.
    reference
        (C,), label distribution of the federation that clients are compared with.
    mean, scale
        (number of features,), what standardizes the features.
    centres
        (number of clusters, number of features).
    """

    features: str
    smoothing: Smoothing
    epsilon: float | None
    reference: Floats
    mean: Floats
    scale: Floats
    centres: Floats

    def standardized(self, counts: NDArray[np.int64]) -> Floats:
        """The point of every client, from its label counts (clients x classes)."""
        described, _ = psi_features(counts, self.features, self.smoothing, self.epsilon, self.reference)
        standardized: Floats = (described - self.mean) / self.scale
        return standardized

    def nearest(self, counts: NDArray[np.int64]) -> Labels:
        """The cluster of every client."""
        return nearest(self.standardized(counts), self.centres)


def psi_features(
    counts: NDArray[np.int64], features: str, smoothing: Smoothing, epsilon: float | None, reference: Floats
) -> tuple[Floats, Floats]:
    """Features of each client before they are standardized, and its PSI."""
    terms = psi_terms(counts, smoothing, epsilon, reference)
    totals: Floats = terms.sum(axis=1)
    if features == "psi":
        return np.column_stack([totals, terms]), totals
    excess = counts / counts.sum(axis=1, keepdims=True) - reference
    return np.sign(excess) * np.sqrt(terms), totals


def nearest(rows: Floats, centres: Floats) -> Labels:
    """Index of the centre nearest to each row; each pair on its own, so that a row's answer never depends on others."""
    from scipy.spatial.distance import cdist  # here, because SciPy takes its time to load

    chunks = (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))
    return np.concatenate([cdist(chunk, centres, "sqeuclidean").argmin(axis=1) for chunk in chunks])
