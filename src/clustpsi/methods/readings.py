"""Readings of a model's logits, and the choice of one by held-out losses.

A reading takes the classes' probabilities of client k to be softmax(T logits + log prior_k + b log P), P being the
label mix of the federation.  T below 1 trusts the model less next to the prior; what it then says too little of the mix
that the model was trained with, b adds.

C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger. On calibration of modern neural networks. ICML 2017 (T alone).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Reading(NamedTuple):
    """T, what logits are multiplied by, and b, how often the log of the federation's mix is added."""

    scale: float
    mix: float


AS_TRAINED = Reading(1.0, 0.0)
PRIOR_ALONE = Reading(0.0, 0.0)
# T in quarter octaves, and b = u (T - 1).
SCALES = tuple(2.0 ** (i / 4) for i in range(-28, 17))
READINGS = (
    AS_TRAINED,
    PRIOR_ALONE,
    *(Reading(scale, u * (scale - 1)) for scale in SCALES if scale != 1 for u in (0.0, 0.5, 1.0)),
)


def shifts(readings: tuple[Reading, ...], mix: NDArray[np.float64]) -> NDArray[np.float64]:
    """b log P of each reading, (R, C); 0 for a class that nobody has, which the prior rules out."""
    log = np.log(mix, out=np.zeros_like(mix), where=mix > 0)
    return np.array([reading.mix for reading in readings])[:, None] * log


def clearly_better(losses: NDArray[np.float64], than: NDArray[np.float64], evidence: float) -> bool:
    """Whether clients' losses are less in all, by more than so many standard errors of the sum of the differences.

    Clients are the sample: with n of them the sum is at most sqrt(n) standard errors, so that four clients or fewer can
    never show more than two.  A client without an answer, NaN, does not count.

    >>> clearly_better(np.zeros(9), np.ones(9), 2.0), clearly_better(np.zeros(3), np.ones(3), 2.0)
    (True, False)
    """
    gain = than - losses
    gain = gain[np.isfinite(gain)]
    return bool(gain.sum() > evidence * np.sqrt((gain**2).sum()))


def chosen(losses: NDArray[np.float64], evidence: float) -> int:
    """The reading to take, by clients' losses under several, (clients, R).

    That is the best one if it is clearly better than the first, which reads the model as it was trained, and otherwise
    the first: few held-out rows say little.
    """
    best = int(np.nansum(losses, axis=0).argmin())
    return best if clearly_better(losses[:, best], losses[:, 0], evidence) else 0
