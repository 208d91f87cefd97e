"""Local training where it is easily wrong unnoticed: dropout, lone rows, padding, ties, buffers that break."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from numpy.typing import ArrayLike

from clustpsi.datasets.base import Dataset
from clustpsi.engine import Simulator, network_for
from clustpsi.engine.sizes import power_of_two, round_up
from clustpsi.features import as_they_are
from clustpsi.features.text import PADDING
from clustpsi.federation import Federation
from clustpsi.methods.base import Deployment
from clustpsi.models.dense import Logistic
from clustpsi.models.layers import BatchNorm, Dense, Dropout, Embed
from clustpsi.orders import Evaluate, Model, NearestModel, Train, TrainPooled
from clustpsi.streams import Stream, generator


def federate(features: np.ndarray, labels: ArrayLike, sizes: Sequence[int], classes: int = 2) -> Federation:
    """Clients with so many training rows each, and one test row after them."""
    ends = np.cumsum(np.array(sizes) + 1)
    assert ends[-1] == len(features) == np.size(labels)
    dataset = Dataset("made", np.array(labels, np.int32), tuple("abcdef"[:classes]), *as_they_are(features), model="-")
    train = tuple(np.arange(end - size - 1, end - 1) for size, end in zip(sizes, ends, strict=True))
    return Federation(dataset, train, tuple(np.array([end - 1]) for end in ends), tuple(map(str, range(len(sizes)))))


def simulate(federation: Federation, module: nn.Module, **options: object) -> Simulator:
    features = federation.features
    network = network_for(module, features.shape[1:], features.dtype)
    settings = {"batch_size": 32, "local_epochs": 1, "seed": 5, "lr": 0.1, "optimizer": "sgd", "workers": 1}
    return Simulator(federation, network, **settings | options)  # type: ignore[arg-type]


def noise(rows: int, width: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)


# -------------------------------------------------------------------------------------------------------------- dropout

WIDTH = 64


class Dropping(nn.Module):
    """One weight a feature and class; a step moves the weights of the features that it has not dropped."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        return Dense(2)(Dropout(0.5)(x, train))


def dropping(lanes: int, epochs: int = 1) -> Simulator:
    """Two clients with one and the same training row, so that nothing but dropout can tell them apart."""
    return simulate(
        federate(np.ones((4, WIDTH), np.float32), [0] * 4, [1, 1]), Dropping(), lanes=lanes, local_epochs=epochs
    )


def moved(simulator: Simulator, t: int) -> np.ndarray:
    """Which features' weights training in round t moves, one row per client."""
    start = simulator.initial(0)
    models = simulator.serve(Train(np.arange(2), start, each=True), t).models
    change = np.stack([model.parameters - start.parameters for model in models])
    return (change[:, 2:].reshape(2, WIDTH, 2) != 0).any(axis=2)  # after the two biases


@pytest.mark.parametrize("lanes", [1, 2])
def test_every_client_and_round_drops_other_features(lanes: int) -> None:
    simulator = dropping(lanes)
    first, second = moved(simulator, 1), moved(simulator, 2)
    np.testing.assert_array_equal(first, moved(simulator, 1))
    for one, other in ((first[0], first[1]), (first[0], second[0]), (first[1], second[1])):
        assert 0.2 < (one != other).mean() < 0.8


@pytest.mark.parametrize("lanes", [1, 2])
def test_every_step_drops_other_features(lanes: int) -> None:
    assert 0.25 < moved(dropping(lanes), 1).mean() < 0.75
    assert moved(dropping(lanes, epochs=12), 1).mean() > 0.97  # one step's half, again and again, would stay a half


def test_pooled_training_drops_other_features_every_round() -> None:
    simulator = dropping(1)
    start = simulator.initial(0)
    changes = [simulator.serve(TrainPooled(start, 1), t).model.parameters != start.parameters for t in (1, 2)]
    assert 0.2 < (changes[0] != changes[1]).mean() < 0.8


# -------------------------------------------------------------------------------------------------------- order of rows


def test_pooled_training_visits_rows_in_another_order_every_round() -> None:
    simulator = simulate(federate(noise(42), [0, 1] * 21, [20, 20]), Logistic(2), batch_size=8)
    start = simulator.initial(0)
    first, again, second = (simulator.serve(TrainPooled(start, 1), t).model.parameters for t in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)


# ------------------------------------------------------------------------------------------------------------ BatchNorm


class Normalizing(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        return Dense(2)(BatchNorm()(x, train, mask))


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("size", [31, 32, 33, 34, 1])
def test_a_last_batch_of_one_row_is_not_normalized_and_any_other_is(size: int, lanes: int) -> None:
    labels = np.arange(size + 3) % 2
    simulator = simulate(federate(noise(size + 3), labels, [size, 1]), Normalizing(), lanes=lanes)
    reply = simulator.serve(Train(np.array([0]), simulator.initial(0)), 3)
    rows = np.arange(size)
    generator(5, Stream.TRAINING, 3, 0).shuffle(rows)
    batches = [rows[at : at + 32] for at in range(0, size, 32)]
    batches = [batch for batch in batches if len(batch) > 1] or batches
    mean, variance = np.zeros(4), np.ones(4)
    for batch in batches:
        x = simulator.federation.features[batch]
        mean, variance = 0.9 * mean + 0.1 * x.mean(axis=0), 0.9 * variance + 0.1 * x.var(axis=0)
    np.testing.assert_allclose(reply.mean.buffers, np.concatenate([mean, variance]), atol=1e-5)


def test_pooled_training_goes_on_from_the_buffers_it_is_given() -> None:
    simulator = simulate(federate(noise(12), [0, 1] * 6, [5, 5]), Normalizing())
    initial = simulator.initial(0)
    start = Model(initial.parameters, np.full_like(initial.buffers, 3))
    x = simulator.federation.features[np.concatenate(simulator.federation.train)]
    expected = 0.9 * 3 + 0.1 * np.concatenate([x.mean(axis=0), x.var(axis=0)])
    pooled = simulator.serve(TrainPooled(start, 1), 1)  # ten rows are one batch
    np.testing.assert_allclose(pooled.model.buffers, expected, atol=1e-5)


class Counting(nn.Module):
    """Keeps a statistic that plays no part in training; it overflows for large features."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        statistic = self.variable("batch_stats", "largest", jnp.zeros, (1,))
        if train:
            statistic.value = jnp.abs(x).max(keepdims=True).reshape(1) * jnp.float32(1e38)
        return Dense(2)(x)


def test_an_update_whose_buffers_are_not_finite_is_left_out() -> None:
    features = np.clip(noise(12), -1, 1)
    features[6] = 100
    simulator = simulate(federate(features, [0, 1] * 6, [5, 5]), Counting())
    trained = simulator.serve(Train(np.arange(2), simulator.initial(0), each=True), 1)
    assert trained.kept.tolist() == [True, False]
    assert np.isfinite(trained.mean.buffers).all()
    np.testing.assert_array_equal(trained.mean.parameters, trained.models[0].parameters)


# ------------------------------------------------------------------------------------------------------- proximal terms


def test_clients_side_by_side_are_pulled_each_by_its_own_strength() -> None:
    """The first step of gradient descent is the same; from the second on the pull to the start is felt."""
    simulator = simulate(federate(noise(14), [0, 1] * 7, [6, 6]), Logistic(2), lanes=2, local_epochs=3)
    start, clients, strengths = simulator.initial(0), np.arange(2), np.array([0.5, 4.0])
    together = simulator.serve(Train(clients, start, proximal=strengths, each=True), 1).models
    for k in clients:
        alone = simulator.serve(Train(clients[[k]], start, proximal=float(strengths[k]), each=True), 1).models[0]
        other = simulator.serve(Train(clients[[k]], start, proximal=float(strengths[1 - k]), each=True), 1).models[0]
        np.testing.assert_allclose(together[k].parameters, alone.parameters, atol=1e-6)
        assert np.abs(together[k].parameters - other.parameters).max() > 1e-3


# -------------------------------------------------------------------------------------------------------------- padding


class Reading(nn.Module):
    """The mean embedding of the words; padding is known by its number and left out."""

    vocabulary: int

    @nn.compact
    def __call__(self, tokens: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        is_word = (tokens != PADDING)[..., None]
        return Dense(2)((Embed(self.vocabulary, 3)(tokens) * is_word).mean(axis=1))


def test_a_client_whose_texts_are_all_full_still_tells_its_first_word_from_padding() -> None:
    tokens = np.random.default_rng(1).integers(100, 130, (22, 6)).astype(np.int32)
    federation = federate(tokens, [0, 1] * 11, [10, 10])
    own_words, over_all = (simulate(federation, Reading(1500), lanes=lanes, lr=1.0) for lanes in (None, 2))
    start = own_words.initial(0)
    assert start.parameters.size > 4096  # or clients would be trained side by side, over all words
    ours, theirs = (each.serve(Train(np.arange(2), start, each=True), 1) for each in (own_words, over_all))
    for one, other in zip(ours.models, theirs.models, strict=True):
        np.testing.assert_allclose(one.parameters, other.parameters, atol=1e-6)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-5)


# ----------------------------------------------------------------------------------------------------------------- ties


@pytest.mark.parametrize("lanes", [None, 1])
def test_of_classes_that_are_equally_likely_the_first_is_predicted(lanes: int | None) -> None:
    simulator = simulate(federate(noise(6), [0, 0, 0, 1, 0, 2], [1, 1, 1], classes=3), Logistic(3), lanes=lanes)
    indifferent = Model(np.zeros(15, np.float32), np.zeros(0, np.float32))
    found = simulator.serve(Evaluate(np.arange(3), Deployment((indifferent,), np.zeros(3, np.int64))), 1)
    assert found.correct.sum(axis=1).tolist() == [1, 0, 0]
    np.testing.assert_allclose(found.loss, np.log(3), rtol=1e-6)


def test_of_models_with_the_same_loss_the_first_is_the_nearest() -> None:
    simulator = simulate(federate(noise(10), [0, 1] * 5, [3, 5]), Logistic(2))
    model = simulator.initial(0)
    nearest = simulator.serve(NearestModel(np.arange(2), (model, model, model)), 1)
    assert nearest.tolist() == [[3, 0, 0], [5, 0, 0]]


# ---------------------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("number", "power", "rounded"),
    [(1, 1, 1), (2, 2, 2), (3, 4, 3), (4, 4, 4), (5, 8, 6), (6, 8, 6), (7, 8, 8), (8, 8, 8), (9, 16, 12), (13, 16, 16)],
)
def test_sizes_are_powers_of_two_or_three_quarters_of_them(number: int, power: int, rounded: int) -> None:
    assert (power_of_two(number), round_up(number)) == (power, rounded)
