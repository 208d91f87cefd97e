"""Noise on counts and summaries: its distribution, its budget, what it never tells."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from clustpsi.datasets.base import Dataset
from clustpsi.datasets.tables import from_arrays, from_table
from clustpsi.engine import Simulator, network_for
from clustpsi.features import TableFeatures, TableRows, as_they_are
from clustpsi.federation import Federation
from clustpsi.models import build_model
from clustpsi.nodes.protocol import Terms
from clustpsi.orders import Train, Trained, log_shares
from clustpsi.privacy import (
    DELTA,
    discrete_laplace,
    noise_of,
    private_counts,
    private_split,
    private_summary,
    range_middles,
)
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.store import Store

COUNTS = np.array([[40, 3, 0, 12]])


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_noise_is_discrete_laplace(epsilon: float) -> None:
    noise = discrete_laplace(np.random.default_rng(0), epsilon, (200_000,))
    values = np.arange(-3, 4)
    share = np.array([(noise == value).mean() for value in values])
    expected = np.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(values))
    assert np.abs(share - expected).max() < 0.005


def test_the_likelihood_of_what_is_told_changes_by_at_most_the_budget() -> None:
    """Counts of data that differ in one row, over many secrets: no answer is exp(epsilon) times as likely for one."""
    epsilon = 1.0
    told = []
    for counts in (COUNTS, COUNTS - np.array([[0, 1, 0, 0]])):
        told.append(np.array([private_counts(counts, counts, epsilon, None, f"{i}")[0][0, 1] for i in range(4_000)]))
    for value in range(5):
        one, other = ((each == value).mean() for each in told)
        assert max(one / other, other / one) < math.exp(epsilon) * 1.3


def test_training_and_test_counts_have_noise_of_their_own_and_a_summary_halves_the_budget() -> None:
    zero = np.zeros((1, 20_000), np.int64) + 1000
    for alone, epsilon in ((True, 1.0), (False, 0.5)):
        train, test = private_counts(zero, zero, 1.0, None, "s", alone=alone)
        assert np.corrcoef(train[0], test[0])[0, 1] < 0.05
        assert train.std() == pytest.approx(math.sqrt(2 * math.exp(-epsilon)) / (1 - math.exp(-epsilon)), rel=0.05)


def test_asking_twice_tells_no_more_and_another_secret_tells_something_else() -> None:
    once, twice = (private_counts(COUNTS, COUNTS, 0.5, None, "mine")[0] for _ in range(2))
    assert once.tolist() == twice.tolist()
    others = [private_counts(COUNTS, COUNTS, 0.5, None, f"{i}")[0].tolist() for i in range(20)]
    assert len({str(each) for each in others}) > 10
    assert noise_of(None, "a").integers(2**60) != noise_of(None, "a").integers(2**60)


def test_one_row_more_gives_no_other_row_another_part() -> None:
    """Each row has a coin of its own, so that a row changes one count of training or test rows by one."""
    for rows in (2, 3, 60, 61, 1000):
        (train, test), (more_train, more_test) = (private_split(number, "mine") for number in (rows, rows + 1))
        assert len(train) and len(test) and sorted([*train, *test]) == list(range(rows))
        if rows >= 60:
            assert train.tolist() == [row for row in more_train if row < rows]
            assert test.tolist() == [row for row in more_test if row < rows]
    shares = [len(private_split(1000, f"{i}")[1]) for i in range(50)]
    assert 190 < np.mean(shares) < 210 and len(set(shares)) > 10


def test_a_name_that_one_row_has_is_told_with_a_probability_of_at_most_delta() -> None:
    for epsilon in (0.5, 1.0, 8.0):
        for names in (1, 20):  # that one row may have
            least = 1 + names * math.log(names / DELTA) / epsilon
            told = math.exp(-epsilon / names * math.ceil(least - 1)) / (1 + math.exp(-epsilon / names))
            assert names * told <= DELTA


def test_noise_on_other_terms_is_new() -> None:
    """Answers with the same noise could be subtracted from each other."""
    terms = Terms(3, ("a", "b"), {}, None, 7, 1.0)
    assert terms.secret("s") == replace(terms, number=5).secret("s"), "whoever is asked again tells no more"
    others = [replace(terms, **{key: value}) for key, value in (("seed", 8), ("dp_epsilon", 2.0), ("classes", ("a",)))]
    assert len({each.secret("s") for each in [terms, *others]}) == 4


def test_small_counts_are_told_as_none_but_a_client_keeps_a_row() -> None:
    assert private_counts(COUNTS, COUNTS, None, 5, None)[0].tolist() == [[40, 0, 0, 12]]
    assert private_counts(COUNTS, COUNTS, None, 50, None)[0].tolist() == [[1, 0, 0, 0]]
    assert private_counts(COUNTS, COUNTS, None, None, None)[0].tolist() == COUNTS.tolist()


def test_scales_from_noisy_summaries_are_near_the_true_ones() -> None:
    rng = np.random.default_rng(0)
    features = TableFeatures(("a", "b"))
    clients = [TableRows(rng.normal((40, -3), (8, 1), (4000, 2))) for _ in range(10)]
    summaries = [private_summary(features, rows, 2.0, None, f"{i}") for i, rows in enumerate(clients)]
    merged = summaries[0]
    for other in summaries[1:]:
        merged = merged.merge(other)
    for scaling in ("standard", "robust"):
        first, second = replace(features, scaling=scaling).fit(merged).numbers
        assert first.centre == pytest.approx(40, abs=2) and second.centre == pytest.approx(-3, abs=0.2)
        assert first.spread == pytest.approx(8 if scaling == "standard" else 10.8, rel=0.25)
        assert second.spread == pytest.approx(1 if scaling == "standard" else 1.35, rel=0.35)
    # It survives the way to the server.
    again = features.summary_from_dict(merged.as_dict())
    assert features.fit(again) == features.fit(merged)


def test_pure_noise_gives_no_scale() -> None:
    features = TableFeatures(("a",))
    (column,) = features.fit(private_summary(features, TableRows(np.full((3, 1), 7.0)), 0.01, None, "s")).numbers
    assert np.isfinite(column.centre) and column.spread > 0


def test_ranges_do_not_depend_on_data() -> None:
    middles = range_middles()
    assert len(middles) == 241 and (np.diff(middles) > 0).all() and middles[120] == 0


def test_rare_names_and_words_are_never_told() -> None:
    frame = pd.DataFrame({"town": ["rome"] * 900 + ["Mr Smith's"], "label": ["a", "b"] * 450 + ["a"]})
    dataset = from_table(frame, label="label")
    texts = from_arrays(["ship sea"] * 899 + ["secret ship"], ["a", "b"] * 450)
    for secret in map(str, range(30)):
        told = private_summary(dataset.features, dataset.rows, 1.0, None, secret).as_dict()
        assert told["categories"][0]["names"] == ["rome"]
        words = private_summary(texts.features, texts.rows, 50.0, None, secret).as_dict()["words"]
        assert set(words["names"]) == {"ship", "sea"}
    assert private_summary(dataset.features, dataset.rows, None, 2, None).as_dict()["categories"][0]["names"] == [
        "rome"
    ]
    assert "secret" not in private_summary(texts.features, texts.rows, None, 2, None).as_dict()["words"]["names"]


def test_a_simulation_shows_the_effect_and_repeats(tmp_path: Path) -> None:
    config = Config(num_clients=5, non_iid_param=0.5, agg_method="clust_psi_pfl", comm_rounds=1, local_epochs=1)
    plain, noisy, again = (
        run(replace(config, dp_epsilon=epsilon), Store(tmp_path / name))
        for name, epsilon in (("plain", None), ("noisy", 0.5), ("again", 0.5))
    )
    assert not plain.clients().equals(noisy.clients())
    assert noisy.clients().equals(again.clients())
    assert noisy.accuracy().equals(again.accuracy())
    assert "dp_epsilon" not in plain.config().as_dict()


def test_a_class_that_was_not_told_is_trained_as_the_rarest_that_was() -> None:
    """The server rules it out, because it believes it absent; with no probability its rows would drown all others."""
    labels = np.repeat([0, 1, 2], [12, 8, 2]).astype(np.int32)
    features = np.random.default_rng(0).normal(size=(22, 4)).astype(np.float32)
    dataset = Dataset("few", labels, ("a", "b", "c"), *as_they_are(features), model="logistic")
    federation = Federation(dataset, (np.arange(22),), (np.arange(0),), ("one",))
    network = network_for(build_model("logistic", 3), (4,), np.dtype(np.float32))
    told = np.array([[12, 8, 0]]), np.array([[0, 0, 0]])

    def trained(told: tuple[Any, Any] | None, counts: list[int]) -> Trained:
        simulator = Simulator(federation, network, told=told)
        return simulator.serve(Train(np.arange(1), simulator.initial(0), log_prior=log_shares(np.array([counts]))), 1)

    ours, ruled_out, as_rarest = trained(told, [12, 8, 0]), trained(None, [12, 8, 0]), trained(None, [12, 8, 8])
    assert ours.losses[0] < 3 < ruled_out.losses[0]
    np.testing.assert_allclose(ours.mean.parameters, as_rarest.mean.parameters, atol=1e-6)


def test_a_client_whose_noisy_counts_are_all_none_still_has_a_row() -> None:
    few, nothing = np.array([[2, 1]]), np.array([[0, 0]])
    for number in range(300):
        train, _ = private_counts(few, nothing, 1.0, None, f"{number}")
        assert train.sum() > 0
    assert private_counts(few, nothing, None, 3, None)[1].tolist() == [[0, 0]]
