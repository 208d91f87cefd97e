"""The paper's metrics, those for rare classes, and constant answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import balanced_accuracy_score, f1_score

from clustpsi.errors import ClustPSIError
from clustpsi.evaluation import Scores, constant_answers, score
from clustpsi.orders import Evaluated


def tally(clients: ArrayLike, labels: ArrayLike, predicted: ArrayLike, num_clients: int, classes: int) -> Evaluated:
    """What the clients count, given every test row's client, class and predicted class."""
    owner, actual, taken = map(np.asarray, (clients, labels, predicted))
    counts = np.zeros((3, num_clients, classes), np.int64)
    for k, y, p in zip(owner, actual, taken, strict=True):
        counts[0, k, y] += 1
        counts[1, k, p] += 1
        counts[2, k, y] += y == p
    return Evaluated(*counts, np.zeros(num_clients))


def of_clients(correct: ArrayLike, sizes: ArrayLike, loss: ArrayLike | None = None) -> Scores:
    """Scores of clients whose test rows all have class 0, some of them taken for class 1."""
    right, size = np.asarray(correct), np.asarray(sizes)
    actual = np.stack([size, 0 * size], axis=1)
    predicted, hits = np.stack([right, size - right], axis=1), np.stack([right, 0 * right], axis=1)
    return score(Evaluated(actual, predicted, hits, np.zeros(len(size)) if loss is None else np.asarray(loss)))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30))
def test_with_equal_test_sizes_global_accuracy_is_one_minus_ad(correct: list[int]) -> None:
    scores = of_clients(correct, np.full(len(correct), 20))
    assert scores.global_accuracy == pytest.approx(1 - scores.ad)
    assert scores.sdad == pytest.approx(np.std(np.array(correct) / 20))
    assert scores.worst10 <= scores.global_accuracy + 1e-12


def test_clients_without_test_data_count_nowhere() -> None:
    scores = of_clients([8, 0, 5], [10, 0, 5], [1.0, 0.0, 2.0])
    assert scores.global_accuracy == pytest.approx(13 / 15)
    assert scores.ad == pytest.approx(0.1)
    assert np.isnan(scores.local_accuracy[1])
    assert scores.worst10 == pytest.approx(0.8)
    assert scores.loss == pytest.approx(3 / 15)
    np.testing.assert_allclose(scores.local_loss, [0.1, np.nan, 0.4])
    np.testing.assert_allclose(scores.local_accuracy, [0.8, np.nan, 1.0])

    with pytest.raises(ClustPSIError, match="no client has test samples"):
        of_clients([0, 0], [0, 0])


def test_worst_tenth_is_rounded_up() -> None:
    assert of_clients(np.arange(1, 12), np.full(11, 100)).worst10 == pytest.approx(0.015)


@given(arrays(np.int64, st.tuples(st.just(3), st.integers(1, 40)), elements=st.integers(0, 4)))
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true", "ignore:A single label was found")
def test_scores_of_classes_are_scikit_learns_over_all_clients(rows: NDArray[np.int64]) -> None:
    clients, labels, predicted = rows
    scores = score(tally(clients, labels, predicted, 5, 5))
    assert scores.balanced_accuracy == pytest.approx(balanced_accuracy_score(labels, predicted))
    assert scores.macro_f1 == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert scores.global_accuracy == pytest.approx((labels == predicted).mean())


def test_finding_40_constant_answers_are_scored_on_test_data() -> None:
    train = np.array([[6, 3, 1], [0, 5, 4], [2, 2, 0]])
    test = np.array([[1, 3, 0], [0, 1, 3], [1, 1, 0]])
    clusters = np.array([4, 7, 7])  # the second: 2, 7, 4
    owner, labels = np.repeat(np.arange(3), 4)[:10], np.array([0, 1, 1, 1, 1, 2, 2, 2, 0, 1])
    answers = {"federation": [1, 1, 1], "client": [0, 1, 0], "cluster": [0, 1, 1]}  # a tie: the first
    constant = constant_answers(train, test, clusters)
    assert list(constant) == ["federation", "client", "cluster"]
    for who, answer in answers.items():
        expected = score(tally(owner, labels, np.array(answer)[owner], 3, 3))
        for key in ("global_accuracy", "balanced_accuracy", "macro_f1", "ad", "sdad", "worst10"):
            assert getattr(constant[who], key) == pytest.approx(getattr(expected, key)), (who, key)
    assert list(constant_answers(train, test)) == ["federation", "client"]
