"""How good a federation's models are: for everybody together, and for each client (the paper's section "Metrics")."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Scores:
    """Scores of one evaluation.

    Attributes
    ----------
    local_accuracy
        A_k of every client; NaN for a client without test data, which counts nowhere.
    global_accuracy
        Mean of the A_k, weighted by the numbers of test samples.
    ad, sdad
        Mean and (population) standard deviation over clients of the distance |A_k - 1| from a perfect model.
    worst10
        Mean local accuracy of the tenth of the clients (at least one) that fare worst.
    loss
        Mean test loss over all samples.
    """

    local_accuracy: NDArray[np.float64]
    local_loss: NDArray[np.float64]
    global_accuracy: float
    ad: float
    sdad: float
    worst10: float
    loss: float


def score(correct: ArrayLike, loss_sum: ArrayLike, test_sizes: ArrayLike) -> Scores:
    """Scores from each client's correctly classified test samples, summed test loss and number of test samples.

    >>> scores = score([9, 5], [1.0, 8.0], [10, 10])
    >>> scores.global_accuracy, round(scores.ad, 12), round(scores.sdad, 12), scores.worst10
    (0.7, 0.3, 0.2, 0.5)
    """
    right, losses, sizes = (np.asarray(values, np.float64) for values in (correct, loss_sum, test_sizes))
    tested = sizes > 0
    accuracy, mean_loss = np.full(len(sizes), np.nan), np.full(len(sizes), np.nan)
    accuracy[tested], mean_loss[tested] = right[tested] / sizes[tested], losses[tested] / sizes[tested]
    distance = np.abs(accuracy[tested] - 1.0)
    worst = np.sort(accuracy[tested])[: max(1, -(-len(distance) // 10))]
    return Scores(
        local_accuracy=accuracy,
        local_loss=mean_loss,
        global_accuracy=float(right.sum() / sizes.sum()),
        ad=float(distance.mean()),
        sdad=float(distance.std()),
        worst10=float(worst.mean()),
        loss=float(losses.sum() / sizes.sum()),
    )
