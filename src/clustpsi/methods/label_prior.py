"""Clients' label priors: the mix of all, and what clients have in common.

T. P. Minka. Estimating a Dirichlet distribution. Technical report, MIT, 2000 (the fixed point for Dirichlet-multinomial
counts).
"""

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64] | NDArray[np.float64]

# Bounds of the Dirichlet distribution's sum.  Pure clients drive it to 0 and equal ones to infinity, without end.
LEAST_SUM, LARGEST_SUM = 1e-6, 1e6
MOST_STEPS, PRECISION = 1000, 1e-6


def label_mix(counts: Counts) -> NDArray[np.float64]:
    """Shares of the classes in all clients' samples together."""
    mix: NDArray[np.float64] = counts.sum(axis=0) / counts.sum()
    return mix


def impurity(counts: Counts) -> NDArray[np.float64]:
    """Gini impurity 1 - sum_c p_kc^2: how much a client can tell about the difference of classes.

    >>> impurity(np.array([[4, 0], [2, 2]]))
    array([0. , 0.5])
    """
    share = counts / counts.sum(axis=1, keepdims=True)
    gini: NDArray[np.float64] = 1 - (share**2).sum(axis=1)
    return gini


def fit_dirichlet(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Parameters of the Dirichlet distribution of label mixes under which the clients' counts are most likely.

    Their sum says how alike clients are: as if each of them had seen so many samples of what they have in common.  It
    stays between :data:`LEAST_SUM` (every client has one class) and :data:`LARGEST_SUM` (all have the same mix).  A
    class that nobody has gets 0.

    This is Minka's fixed point, which nears the maximum ever more slowly where clients are alike and the likelihood
    hardly depends on the sum.  After :data:`MOST_STEPS` steps it is taken as it is: the sum is then too small (127 is
    the most likely one for a partition with alpha 50, and this gives 87), which changes the mixes little.

    >>> fit_dirichlet(np.array([[30, 10], [18, 22], [9, 31], [25, 15]])).round(1)
    array([3.6, 3.4])
    """
    from scipy.special import digamma  # here, because SciPy takes its time to load

    present = np.flatnonzero(counts.sum(axis=0))
    # Equal counts give equal terms: each is worked out once, however many clients there are.
    columns = [np.unique(counts[:, c], return_counts=True) for c in present]
    sizes, repeats = np.unique(counts.sum(axis=1), return_counts=True)
    found = label_mix(counts)[present]
    for _ in range(MOST_STEPS):
        total = found.sum()
        slope = repeats @ (digamma(sizes + total) - digamma(total))
        terms = [
            often @ (digamma(number + each) - digamma(each))
            for each, (number, often) in zip(found, columns, strict=True)
        ]
        before, found = found, found * np.array(terms) / slope
        found *= np.clip(found.sum(), LEAST_SUM, LARGEST_SUM) / found.sum()
        if np.abs(found - before).max() <= PRECISION * before.max():
            break
    parameters = np.zeros(counts.shape[1])
    parameters[present] = found
    return parameters
