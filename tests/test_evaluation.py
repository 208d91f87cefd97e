"""The paper's metrics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustpsi.evaluation import score


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30))
def test_with_equal_test_sizes_global_accuracy_is_one_minus_ad(correct: list[int]) -> None:
    scores = score(correct, np.zeros(len(correct)), np.full(len(correct), 20))
    assert scores.global_accuracy == pytest.approx(1 - scores.ad)
    assert scores.sdad == pytest.approx(np.std(np.array(correct) / 20))
    assert scores.worst10 <= scores.global_accuracy + 1e-12


def test_clients_without_test_data_count_nowhere() -> None:
    scores = score([8, 0, 5], [1.0, 0.0, 2.0], [10, 0, 5])
    assert scores.global_accuracy == pytest.approx(13 / 15)
    assert scores.ad == pytest.approx(0.1)
    assert np.isnan(scores.local_accuracy[1])
    assert scores.worst10 == pytest.approx(0.8)
    assert scores.loss == pytest.approx(3 / 15)
    np.testing.assert_allclose(scores.local_loss, [0.1, np.nan, 0.4])
    np.testing.assert_allclose(scores.local_accuracy, [0.8, np.nan, 1.0])


def test_worst_tenth_is_rounded_up() -> None:
    accuracy = np.arange(1, 12)
    assert score(accuracy, np.zeros(11), np.full(11, 100)).worst10 == pytest.approx(0.015)
