"""What a run has measured: server scores, round trips through a checkpoint, tables."""

import numpy as np
import pytest

from clustpsi.evaluation import Scores, score
from clustpsi.orders import Evaluated, Ledger
from clustpsi.runs.history import History

NAMES = ["a", "b", "c"]


def scores(*correct: int, sizes: tuple[int, ...] = (10, 10, 20)) -> Scores:
    """Scores of clients whose test rows all have class 0, some of them taken for class 1."""
    right, size = np.array(correct), np.array(sizes)
    nothing = np.zeros_like(size)
    counts = ((size, nothing), (right, size - right), (right, nothing))
    return score(Evaluated(*(np.stack(each, axis=1) for each in counts), np.array([1.0, 2.0, 3.0])))


def test_server_scores_are_those_of_the_mean_over_the_servers_models() -> None:
    history = History()
    server = [scores(2, 8, 10), scores(6, 10, 20), scores(1, 3, 0)]
    history.add(0, scores(5, 5, 5), server, Ledger(), None)
    (row,) = zip(*history.rounds().values(), strict=True)
    found = dict(zip(history.rounds(), row, strict=True))
    assert found["server_accuracy"] == pytest.approx((20 / 40 + 36 / 40 + 4 / 40) / 3)
    distance = 1 - np.array([(0.2 + 0.6 + 0.1) / 3, (0.8 + 1.0 + 0.3) / 3, (0.5 + 1.0 + 0.0) / 3])
    assert found["server_ad"] == pytest.approx(distance.mean())
    assert found["server_sdad"] == pytest.approx(np.sqrt(((distance - distance.mean()) ** 2).mean()))  # of all clients
    assert found["global_accuracy"] == pytest.approx(15 / 40)


def test_clients_without_test_rows_count_in_no_server_score() -> None:
    history = History()
    sizes = (10, 0, 20)
    history.add(0, scores(5, 0, 5, sizes=sizes), [scores(2, 0, 10, sizes=sizes)], Ledger(), None)
    rounds = history.rounds()
    assert rounds["server_ad"][0] == pytest.approx((0.8 + 0.5) / 2)
    assert rounds["server_sdad"][0] == pytest.approx(0.15)


def some_rounds() -> History:
    """Five rounds, two of them evaluated; client 1 breaks twice."""
    history = History()
    history.add(0, scores(1, 2, 3), [], Ledger(bytes_up=7), np.array([0, 1, 1]))
    history.add(1, None, [], Ledger(trained=2, left_out=[1], bytes_up=10, bytes_down=20), np.array([0, 1, 1]))
    history.add(2, scores(5, 6, 8), [], Ledger(trained=3, left_out=[1, 2]), np.array([0, 1, 2]))
    history.add(3, None, [], Ledger(trained=1), np.array([0, 1, 2]))
    return history


def test_a_history_survives_a_checkpoint() -> None:
    history = some_rounds()
    again = History.unpack(history.pack())
    assert again.last_accuracy == history.last_accuracy == pytest.approx(19 / 40)
    for ours, theirs in (
        (again.rounds(), history.rounds()),
        (again.evaluated(), history.evaluated()),
        (again.local(NAMES), history.local(NAMES)),
        (again.left_out(NAMES), history.left_out(NAMES)),
    ):
        assert list(ours) == list(theirs)
        for key, column in theirs.items():
            np.testing.assert_array_equal(ours[key], column)
    for each in (history, again):
        each.add(4, scores(9, 9, 19), [], Ledger(trained=1), np.array([0, 1, 2]))
    np.testing.assert_array_equal(history.rounds()["global_accuracy"], again.rounds()["global_accuracy"])


def test_tables_have_a_row_for_every_round_and_one_for_every_client_that_was_evaluated() -> None:
    history = some_rounds()
    rounds, evaluated, local = history.rounds(), history.evaluated(), history.local(NAMES)
    assert rounds["round"].tolist() == [0, 1, 2, 3] and evaluated["round"].tolist() == [0, 2]
    assert rounds["participants"].tolist() == [0, 2, 3, 1] and rounds["left_out"].tolist() == [0, 1, 2, 0]
    assert rounds["bytes_up"].tolist() == [7, 10, 0, 0] and rounds["bytes_down"].tolist() == [0, 20, 0, 0]
    assert rounds["tau"].tolist() == [2, 2, 3, 3]
    assert np.isnan(rounds["global_accuracy"]).tolist() == [False, True, False, True]
    assert "server_accuracy" not in rounds
    left_out = history.left_out(NAMES)
    assert left_out["round"].tolist() == [1, 2, 2] and list(left_out["client"]) == ["b", "b", "c"]
    assert local["round"].tolist() == [0, 0, 0, 2, 2, 2] and "".join(local["client"]) == "abcabc"
    np.testing.assert_allclose(local["accuracy"], [0.1, 0.2, 0.15, 0.5, 0.6, 0.4])
    np.testing.assert_allclose(local["loss"], [0.1, 0.2, 0.15] * 2)


def test_a_method_without_clusters_has_no_column_for_them() -> None:
    history = History()
    history.add(0, scores(1, 2, 3), [], Ledger(), None)
    assert "tau" not in history.rounds()
