"""How good a federation's models are: for everybody together, and for each client (the paper's section "Metrics")."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.orders import Evaluated


@dataclass(frozen=True)
class Scores:
    """Scores of one evaluation.

    Attributes
    ----------
    local_accuracy
        A_k of every client; NaN for a client without test data, which counts nowhere.
    global_accuracy
        Mean of the A_k, weighted by the numbers of test samples.
    balanced_accuracy
        Mean recall over the classes that occur in the test samples of all clients together.
    macro_f1
        Mean F1 over the classes that occur in, or were predicted for, the test samples of all clients together.
    ad, sdad
        Mean and (population) standard deviation over clients of the distance |A_k - 1| from a perfect model.
    worst10
        Mean local accuracy of the worst tenth of the clients (at least one client).
    loss
        Mean test loss over all samples.
    """

    local_accuracy: NDArray[np.float64]
    local_loss: NDArray[np.float64]
    global_accuracy: float
    balanced_accuracy: float
    macro_f1: float
    ad: float
    sdad: float
    worst10: float
    loss: float


def score(evaluated: Evaluated) -> Scores:
    """Scores from what the clients counted.

    >>> actual, predicted, correct = np.array([[[9, 1], [5, 5]], [[10, 0], [10, 0]], [[9, 0], [5, 0]]])
    >>> scores = score(Evaluated(actual, predicted, correct, np.array([1.0, 8.0])))
    >>> scores.global_accuracy, round(scores.ad, 12), round(scores.sdad, 12), scores.worst10
    (0.7, 0.3, 0.2, 0.5)
    >>> scores.balanced_accuracy, round(scores.macro_f1, 3)
    (0.5, 0.412)
    """
    sizes = evaluated.actual.sum(axis=1).astype(np.float64)
    right = evaluated.correct.sum(axis=1).astype(np.float64)
    losses = np.asarray(evaluated.loss, np.float64)
    tested = sizes > 0
    if not tested.any():
        raise ClustPSIError("no client has test samples to score on: clients need at least two samples each")
    accuracy, mean_loss = np.full(len(sizes), np.nan), np.full(len(sizes), np.nan)
    accuracy[tested], mean_loss[tested] = right[tested] / sizes[tested], losses[tested] / sizes[tested]
    distance = np.abs(accuracy[tested] - 1.0)
    worst = np.sort(accuracy[tested])[: max(1, -(-len(distance) // 10))]
    actual, predicted, correct = (counts.sum(axis=0) for counts in evaluated[:3])
    present, named = actual > 0, actual + predicted > 0
    return Scores(
        local_accuracy=accuracy,
        local_loss=mean_loss,
        global_accuracy=float(right.sum() / sizes.sum()),
        balanced_accuracy=float((correct[present] / actual[present]).mean()),
        macro_f1=float((2 * correct[named] / (actual + predicted)[named]).mean()),
        ad=float(distance.mean()),
        sdad=float(distance.std()),
        worst10=float(worst.mean()),
        loss=float(losses.sum() / sizes.sum()),
    )


def constant_answers(
    train: NDArray[np.int64], test: NDArray[np.int64], clusters: NDArray[np.int64] | None = None
) -> dict[str, Scores]:
    """What always naming one class scores on test data: the least that a model should beat.

    Parameters
    ----------
    train, test
        Training and test samples of each class that every client has, (K, C).
    clusters
        The cluster of each client, if there are any.

    Returns
    -------
    dict
        ``"federation"``: every client names the class that is most frequent in all training data.  ``"client"``: each
        client names the most frequent class of its own training data.  ``"cluster"``, if there are clusters: each
        client names the most frequent class of its cluster.  Of equally frequent classes the first counts.  The loss
        is not defined (NaN).

    >>> each = constant_answers(np.array([[8, 2], [3, 4]]), np.array([[2, 0], [1, 1]]))
    >>> each["federation"].global_accuracy, each["client"].global_accuracy
    (0.75, 0.75)
    """
    clients = np.arange(len(train))
    groups = {"federation": np.zeros(len(train), np.int64), "client": clients}
    if clusters is not None:
        groups["cluster"] = np.unique(clusters, return_inverse=True)[1]
    scores = {}
    for who, group in groups.items():
        totals = np.zeros((group.max() + 1, train.shape[1]), np.int64)
        np.add.at(totals, group, train)
        answer = totals.argmax(axis=1)[group]
        predicted, correct = np.zeros_like(test), np.zeros_like(test)
        predicted[clients, answer], correct[clients, answer] = test.sum(axis=1), test[clients, answer]
        scores[who] = score(Evaluated(test, predicted, correct, np.full(len(test), np.nan)))
    return scores
