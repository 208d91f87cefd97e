"""The simulator against plain loops."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from clustpsi.datasets.base import Dataset
from clustpsi.engine import Simulator, network_for, softmax_regression
from clustpsi.engine.own_words import OwnWords
from clustpsi.engine.training import local_training
from clustpsi.errors import ClustPSIError
from clustpsi.features import as_they_are
from clustpsi.federation import Federation
from clustpsi.models import build_model
from clustpsi.orders import (
    RULED_OUT_LOSS,
    Deployment,
    Evaluate,
    Evaluated,
    HeldOutLosses,
    HoldOut,
    LabelCounts,
    LabelPresence,
    Losses,
    Model,
    NearestModel,
    Together,
    Train,
    TrainPooled,
)
from clustpsi.streams import Stream, generator
from helpers import make_federation

EVERYBODY = np.arange(7)


def simulate(federation: Federation, model: str = "logistic", **options: object) -> Simulator:
    features = federation.features
    network = network_for(build_model(model, federation.num_classes), features.shape[1:], features.dtype)
    return Simulator(federation, network, **{"batch_size": 32, "local_epochs": 3, "seed": 5, "lr": 0.01, **options})  # type: ignore[arg-type]


Step = Callable[[np.ndarray], np.ndarray]


def adam() -> Step:
    """By how much Adam moves parameters with these gradients, one after the other."""
    first, second, number = 0.0, 0.0, 0

    def step(gradient: np.ndarray) -> np.ndarray:
        nonlocal first, second, number
        first, second, number = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2, number + 1
        return 0.01 * (first / (1 - 0.9**number)) / (np.sqrt(second / (1 - 0.999**number)) + 1e-8)

    return step


def plain_training(
    simulator: Simulator,
    client: int,
    start: Model,
    t: int,
    *,
    mu: float = 0.0,
    anchor: Model | None = None,
    log_prior: object = 0.0,
    scale: object = 1.0,
    step: Step | None = None,
) -> np.ndarray:
    """What training a softmax regression is for a client, in double precision: epochs, batches, Adam."""
    federation, step = simulator.federation, step or adam()
    classes = federation.num_classes
    rng = generator(simulator.work.seed, Stream.TRAINING, t, client)
    rows = federation.train[client].copy()
    # Biases, then weights by feature.
    theta, centre = (each.parameters.astype(np.float64).reshape(-1, classes) for each in (start, anchor or start))
    for _ in range(simulator.work.local_epochs):
        rng.shuffle(rows)
        for at in range(0, len(rows), simulator.work.batch_size):
            batch = rows[at : at + simulator.work.batch_size]
            x = np.column_stack([np.ones(len(batch)), federation.features[batch]])
            logits = scale * (x @ theta) + log_prior
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            error = p / p.sum(axis=1, keepdims=True) - np.eye(classes)[federation.labels[batch]]
            theta = theta - step(x.T @ (error * scale) / len(batch) + mu * (theta - centre))
    return theta.ravel()


@pytest.mark.parametrize("lanes", [None, 1, 4])
def test_local_training_is_the_plain_loop_for_every_client_size(federation: Federation, lanes: int | None) -> None:
    simulator = simulate(federation, lanes=lanes)
    start = simulator.initial(0)
    trained = simulator.serve(Train(EVERYBODY, start, each=True), 2)
    for client in EVERYBODY:
        expected = plain_training(simulator, client, start, 2)
        np.testing.assert_allclose(trained.models[client].parameters, expected, atol=2e-6)


@pytest.mark.parametrize(("features", "classes", "batch_size"), [(40, 3, 32), (40, 2, 32), (3, 5, 10), (3, 2, 50)])
def test_local_training_is_the_plain_loop_for_rows_of_several_registers(
    features: int, classes: int, batch_size: int
) -> None:
    simulator = simulate(make_federation([33, 64, 7], features=features, classes=classes), batch_size=batch_size)
    start = simulator.initial(0)
    trained = simulator.serve(Train(np.arange(3), start, each=True), 2)
    for client in range(3):
        expected = plain_training(simulator, client, start, 2)
        np.testing.assert_allclose(trained.models[client].parameters, expected, atol=2e-6)


def test_the_mean_is_weighted_by_samples_or_as_asked(federation: Federation) -> None:
    simulator = simulate(federation)
    start = simulator.initial(0)
    chosen = np.array([1, 3, 5])
    trained = simulator.serve(Train(chosen, start, each=True), 1)
    models = np.array([model.parameters for model in trained.models], np.float64)
    np.testing.assert_allclose(trained.mean.parameters, np.average(models, axis=0, weights=[64, 50, 90]), rtol=1e-6)
    uniform = simulator.serve(Train(chosen, start, weights=np.ones(3)), 1)
    np.testing.assert_allclose(uniform.mean.parameters, models.mean(axis=0), rtol=1e-6)
    assert uniform.models is None


@pytest.mark.parametrize("lanes", [None, 4])
def test_proximal_term_pulls_towards_start_or_anchor(federation: Federation, lanes: int | None) -> None:
    simulator = simulate(federation, lanes=lanes)
    start, anchor = simulator.initial(0), simulator.initial(1)
    clients = np.array([1, 5])
    own = simulator.serve(Train(clients, start, proximal=0.5, each=True), 1)
    other = simulator.serve(
        Train(clients, start, proximal=np.array([0.0, 2.0]), anchors=[anchor, anchor], each=True), 1
    )
    for j, client in enumerate(clients):
        np.testing.assert_allclose(
            own.models[j].parameters, plain_training(simulator, client, start, 1, mu=0.5), atol=2e-6
        )
    np.testing.assert_allclose(other.models[0].parameters, plain_training(simulator, 1, start, 1), atol=2e-6)
    np.testing.assert_allclose(
        other.models[1].parameters, plain_training(simulator, 5, start, 1, mu=2, anchor=anchor), atol=2e-6
    )


@pytest.mark.parametrize("lanes", [None, 4])
def test_log_prior_enters_the_loss_and_minus_infinity_freezes_a_class(
    federation: Federation, lanes: int | None
) -> None:
    simulator = simulate(federation, lanes=lanes)
    start = simulator.initial(0)
    rows = federation.train[5]
    shares = np.bincount(federation.labels[rows], minlength=3) / len(rows)
    log_prior = np.log(np.maximum(shares, 1e-9))[None]
    trained = simulator.serve(Train(np.array([5]), start, log_prior=log_prior), 1)
    np.testing.assert_allclose(
        trained.mean.parameters, plain_training(simulator, 5, start, 1, log_prior=log_prior), atol=2e-6
    )
    only = federation.train[4][0]  # a client with one sample: mask every class it does not have
    mask = np.full((1, 3), -np.inf)
    mask[0, federation.labels[only]] = 0.0
    frozen = simulator.serve(Train(np.array([4]), start, log_prior=mask), 1)
    np.testing.assert_array_equal(frozen.mean.parameters, start.parameters)


def test_logits_can_be_scaled_by_class_in_training(federation: Federation) -> None:
    """Scaling a class's logits is training a model whose weights of that class are so much smaller and move so fast."""
    scale = np.array([[1.0, 0.5, 2.0]])
    for lanes in (None, 4):
        simulator = simulate(federation, lanes=lanes, optimizer="sgd")
        start = simulator.initial(0)
        trained = simulator.serve(Train(np.array([5]), start, logit_scale=scale), 1).mean
        assert trained is not None
        same = simulator.serve(Train(np.array([5]), start, logit_scale=np.ones((1, 3))), 1).mean
        plain = simulator.serve(Train(np.array([5]), start), 1).mean
        assert same is not None and plain is not None
        np.testing.assert_allclose(same.parameters, plain.parameters, atol=1e-7)
        expected = plain_training(simulator, 5, start, 1, scale=scale, step=lambda gradient: 0.01 * gradient)
        np.testing.assert_allclose(trained.parameters, expected, atol=2e-6)


@pytest.mark.parametrize(("model", "lanes"), [("logistic", None), ("logistic", 4), ("mlp", None)])
def test_parameters_that_are_not_trained_stay(federation: Federation, model: str, lanes: int | None) -> None:
    simulator = simulate(federation, model, lanes=lanes)
    start, head = simulator.initial(0), simulator.network.head
    assert head.sum() == ((500 if model == "mlp" else 6) + 1) * 3
    trains = head if model == "mlp" else np.arange(head.size) % 2 == 0
    trained = simulator.serve(Train(np.array([3]), start, trains=trains), 1).mean
    assert trained is not None
    moved = trained.parameters != start.parameters
    assert not moved[~trains].any() and moved[trains].any()
    whole = simulator.serve(Train(np.array([3]), start, trains=np.ones(head.size, bool)), 1).mean
    plain = simulator.serve(Train(np.array([3]), start), 1).mean
    assert whole is not None and plain is not None
    np.testing.assert_allclose(whole.parameters, plain.parameters, atol=1e-6)


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_results_do_not_depend_on_workers(federation: Federation, model: str) -> None:
    first, second = (simulate(federation, model, workers=workers) for workers in (1, 3))
    order = Train(EVERYBODY, first.initial(0))
    np.testing.assert_array_equal(first.serve(order, 1).mean.parameters, second.serve(order, 1).mean.parameters)


def test_results_hardly_depend_on_grouping(federation: Federation) -> None:
    means = {}
    for lanes in (1, 4, 16):
        simulator = simulate(federation, lanes=lanes)
        means[lanes] = simulator.serve(Train(EVERYBODY, simulator.initial(0)), 1).mean.parameters
    np.testing.assert_allclose(means[4], means[1], atol=1e-5)
    np.testing.assert_allclose(means[4], means[16], atol=1e-5)


def test_orders_served_together_are_the_same_as_one_by_one(federation: Federation) -> None:
    simulator = simulate(federation, lanes=4)
    a, b = simulator.initial(0), simulator.initial(1)
    orders = (Train(np.array([0, 1]), a), Train(np.array([3, 5, 6]), b, proximal=0.1))
    together = simulator.serve(Together(orders), 1)
    for order, reply in zip(orders, together, strict=True):
        alone = simulator.serve(order, 1)
        np.testing.assert_allclose(reply.mean.parameters, alone.mean.parameters, atol=1e-5)
        np.testing.assert_allclose(reply.losses, alone.losses, atol=1e-5)


def test_different_client_sizes_share_one_compiled_program() -> None:
    federation = make_federation([5, 31, 32, 33, 100, 64, 2], features=9)
    simulator = simulate(federation, lanes=2)
    local_training.cache_clear()
    for t in (1, 2, 3):
        simulator.serve(Train(EVERYBODY[t:], simulator.initial(0)), t)
    kind = {"proximal": False, "scaled": False, "partial": False, "keep_optimizer": False}
    train = simulator.work._programs.training(simulator.network, **kind, lanes=2)
    assert train._cache_size() == 1  # type: ignore[attr-defined]


def test_an_update_that_is_not_finite_is_left_out() -> None:
    federation = make_federation([20, 20, 20])
    federation.features[federation.train[1][3]] = np.nan
    simulator = simulate(federation)
    trained = simulator.serve(Train(np.arange(3), simulator.initial(0), each=True), 1)
    assert trained.kept.tolist() == [True, False, True]
    assert trained.models[1] is None
    assert np.isnan(trained.losses[1])
    expected = (trained.models[0].parameters + trained.models[2].parameters) / 2
    np.testing.assert_allclose(trained.mean.parameters, expected, rtol=1e-6)
    assert simulator.take_ledger().left_out == [1]
    nobody = simulator.serve(Train(np.array([1]), simulator.initial(0)), 1)
    assert nobody.mean is None


@pytest.mark.parametrize("lanes", [None, 1])
def test_pooled_training_goes_on_with_its_optimizer(federation: Federation, lanes: int | None) -> None:
    simulator = simulate(federation, lanes=lanes)
    first = simulator.serve(TrainPooled(simulator.initial(0), 2), 1)
    kept = simulator.serve(TrainPooled(first.model, 1, first.optimizer_state), 2)
    reset = simulator.serve(TrainPooled(first.model, 1), 2)
    assert first.optimizer_state[0] == 2 * -(-len(federation.train_rows) // 32)  # Adam's count of steps
    assert kept.loss < first.loss
    assert not np.array_equal(kept.model.parameters, reset.model.parameters)


def is_written_out(simulator: Simulator) -> bool:
    return simulator.work._scoring.score is softmax_regression.row_scores


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_written_out_softmax_regression_is_the_general_program(federation: Federation, optimizer: str) -> None:
    written_out, general = simulate(federation, optimizer=optimizer), simulate(federation, optimizer=optimizer, lanes=1)
    assert is_written_out(written_out) and not is_written_out(general)
    start = general.initial(0)
    order = Train(EVERYBODY, start, proximal=0.1, log_prior=np.log(np.full((7, 3), [0.2, 0.3, 0.5])))
    ours, theirs = written_out.serve(order, 1), general.serve(order, 1)
    np.testing.assert_allclose(ours.mean.parameters, theirs.mean.parameters, atol=2e-6)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-5)
    first, second = written_out.serve(TrainPooled(start, 2), 1), general.serve(TrainPooled(start, 2), 1)
    # Either goes on where the other stopped: the optimizer's state has one layout.
    ours = written_out.serve(TrainPooled(second.model, 1, second.optimizer_state), 2)
    theirs = general.serve(TrainPooled(first.model, 1, first.optimizer_state), 2)
    np.testing.assert_allclose(ours.model.parameters, theirs.model.parameters, atol=5e-6)
    np.testing.assert_allclose(ours.optimizer_state, theirs.optimizer_state, atol=1e-5)
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)


@pytest.mark.parametrize(("batch_size", "local_epochs"), [(150, 3), (32, 40)])
def test_the_loss_has_all_rows_of_large_batches_and_of_many_epochs(
    federation: Federation, batch_size: int, local_epochs: int
) -> None:
    settings = {"batch_size": batch_size, "local_epochs": local_epochs, "lr": 0.001}
    written_out, general = simulate(federation, **settings), simulate(federation, **settings, lanes=1)
    order = Train(EVERYBODY, general.initial(0))
    ours, theirs = written_out.serve(order, 1), general.serve(order, 1)
    assert max(len(rows) for rows in federation.train) > 64
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-5)


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_only_small_softmax_regression_on_floats_is_written_out(model: str) -> None:
    small, wide = make_federation([20, 20, 20]), make_federation([20, 20, 20], features=400)
    assert is_written_out(simulate(small, model)) == (model == "logistic")
    assert not is_written_out(simulate(wide, model))


@pytest.fixture
def texts() -> Federation:
    """Three clients with few words, partly the same, and padding at the end; and one who has nearly all words."""
    rng = np.random.default_rng(0)
    sizes = (40, 9, 33, 800)
    tokens = [rng.choice(rng.permutation(10_002)[:60], (size, 30)) for size in sizes[:3]]
    tokens.append(rng.integers(1, 10_002, (sizes[3], 30)))
    features = np.concatenate(tokens).astype(np.int32)
    features[::3, 20:] = 0
    labels = rng.integers(0, 2, len(features)).astype(np.int32)
    rows = tuple(np.split(np.arange(len(features)), np.cumsum(sizes)[:-1]))
    dataset = Dataset("texts", labels, ("a", "b"), *as_they_are(features), model="embedding_mlp")
    return Federation(dataset, tuple(own[1:] for own in rows), tuple(own[:1] for own in rows), tuple("abcd"))


def own_words_or_all(texts: Federation, model: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Simulator, Simulator]:
    """Training over own words, which the last client has no use for, and over all: its program, for everybody."""
    simulator = simulate(texts, model, local_epochs=1)
    with monkeypatch.context() as patch:
        patch.setattr(OwnWords, "of", lambda *_: None)
        over_all = simulate(texts, model, local_epochs=1)
    assert over_all.work._own_words is None
    return simulator, over_all


@pytest.mark.parametrize(("model", "mu"), [("embedding_mlp", 0.0), ("embedding_mlp", 0.5), ("lstm", 0.0)])
def test_training_over_a_clients_own_words_is_training_over_all(
    texts: Federation, model: str, mu: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator, over_all = own_words_or_all(texts, model, monkeypatch)
    words = simulator.work._own_words
    assert words is not None
    assert [network.module.vocabulary for network in words.networks] == [64, 64, 64, 10_002]
    start = simulator.initial(0)
    for client in range(4):
        order = Train(np.array([client]), start, proximal=mu, each=True)
        reply, expected = simulator.serve(order, 1), over_all.serve(order, 1)
        np.testing.assert_allclose(reply.mean.parameters, expected.mean.parameters, rtol=0, atol=2e-5)
        np.testing.assert_allclose(reply.losses, expected.losses, rtol=1e-5)
        assert np.abs(reply.mean.parameters - start.parameters).max() > 1e-3
        place, shape = simulator.network.place_of("embedding")
        absent = np.setdiff1d(np.arange(10_002), texts.features[texts.train[client]])
        before, after = (each.parameters[place].reshape(shape)[absent[1:]] for each in (start, reply.mean))
        np.testing.assert_array_equal(before, after)


def test_an_anchor_apart_from_the_start_moves_the_other_words_too(
    texts: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator, over_all = own_words_or_all(texts, "embedding_mlp", monkeypatch)
    start, anchor = simulator.initial(0), simulator.initial(1)
    order = Train(np.array([0, 1]), start, proximal=1.0, anchors=[anchor, anchor])
    reply, expected = simulator.serve(order, 1).mean, over_all.serve(order, 1).mean
    np.testing.assert_allclose(reply.parameters, expected.parameters, rtol=0, atol=2e-5)
    assert (reply.parameters != start.parameters).mean() > 0.99


def logits_of(simulator: Simulator, model: Model, rows: np.ndarray) -> np.ndarray:
    network = simulator.network
    return np.asarray(
        network.evaluate(
            network.parameters_of(jnp.asarray(model.parameters)), {}, jnp.asarray(simulator.federation.features[rows])
        )
    )


def row_losses(simulator: Simulator, model: Model, rows: np.ndarray) -> np.ndarray:
    log_p = jax.nn.log_softmax(logits_of(simulator, model, rows))
    return -np.asarray(log_p)[np.arange(len(rows)), simulator.federation.labels[rows]]


def evaluate(simulator: Simulator, *deployment: object) -> Evaluated:
    reply: Evaluated = simulator.serve(Evaluate(EVERYBODY, Deployment(*deployment)), 1)  # type: ignore[arg-type]
    return reply


@pytest.mark.parametrize("lanes", [None, 1])
def test_scores_are_those_of_a_plain_forward_pass(federation: Federation, lanes: int | None) -> None:
    simulator = simulate(federation, lanes=lanes)
    models = (simulator.initial(0), simulator.initial(1))
    of_client = np.array([0, 1, 0, 1, 0, 1, 1])
    log_prior = np.random.default_rng(0).normal(size=(7, 3))
    plain, adjusted = evaluate(simulator, models, of_client), evaluate(simulator, models, of_client, log_prior)
    for client, rows in enumerate(federation.test):
        model, labels = models[of_client[client]], federation.labels[rows]
        logits = logits_of(simulator, model, rows)
        for evaluated, prior in ((plain, 0.0), (adjusted, log_prior[client])):
            taken = (logits + prior).argmax(axis=1)
            assert evaluated.actual[client].tolist() == np.bincount(labels, minlength=3).tolist()
            assert evaluated.predicted[client].tolist() == np.bincount(taken, minlength=3).tolist()
            assert evaluated.correct[client].tolist() == np.bincount(labels[taken == labels], minlength=3).tolist()
        assert plain.loss[client] == pytest.approx(row_losses(simulator, model, rows).sum(), rel=1e-5)
    losses = simulator.serve(Losses(np.array([5, 0]), models[0]), 1)
    expected = [row_losses(simulator, models[0], federation.train[client]).mean() for client in (5, 0)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    nearest = simulator.serve(NearestModel(np.array([3, 6]), models), 1)
    for row, client in zip(nearest, (3, 6), strict=True):
        both = np.stack([row_losses(simulator, model, federation.train[client]) for model in models])
        assert row.tolist() == np.bincount(both.argmin(axis=0), minlength=2).tolist()


@pytest.mark.parametrize("lanes", [None, 4])
def test_logits_are_scaled_before_the_prior_is_added(federation: Federation, lanes: int | None) -> None:
    simulator = simulate(federation, lanes=lanes)
    model, log_prior = simulator.initial(0), np.random.default_rng(0).normal(size=(7, 3))
    scale = np.array([1, 0, 0.25, 4, 1, 0.5, 0])
    deployment = Deployment((model,), np.zeros(7, np.int64), log_prior, scale)
    evaluated = simulator.serve(Evaluate(EVERYBODY, deployment), 1)
    for client in EVERYBODY:
        rows = federation.test[client]
        logits = scale[client] * plain_logits(simulator, model, rows) + log_prior[client]
        assert evaluated.predicted[client].tolist() == np.bincount(logits.argmax(axis=1), minlength=3).tolist()
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        expected = -log_p[np.arange(len(rows)), federation.labels[rows]].sum()
        np.testing.assert_allclose(evaluated.loss[client], expected, rtol=1e-5)
    unscaled = replace(deployment, scale=np.ones(7))
    before, after = (
        simulator.serve(Evaluate(EVERYBODY, each), 1) for each in (replace(deployment, scale=None), unscaled)
    )
    assert before.loss.tolist() == after.loss.tolist()


def plain_logits(simulator: Simulator, model: Model, rows: np.ndarray) -> np.ndarray:
    parameters = simulator.network.parameters_of(jnp.asarray(model.parameters))
    features = jnp.asarray(simulator.federation.features[rows])
    return np.asarray(simulator.network.evaluate(parameters, {}, features), np.float64)


@pytest.mark.parametrize("lanes", [None, 4])
def test_held_out_rows_are_never_trained_on_and_judge_readings(federation: Federation, lanes: int | None) -> None:
    simulator, hold_out = simulate(federation, lanes=lanes), HoldOut(0.3, 9)
    held = [hold_out.chosen(len(own), generator(5, Stream.HELD_OUT, k)) for k, own in enumerate(federation.train)]
    kept = simulator.serve(LabelCounts(EVERYBODY, hold_out), 0)
    for client, own in enumerate(federation.train):
        expected = np.bincount(federation.labels[own[~held[client]]], minlength=3)
        assert kept[client].tolist() == expected.tolist()

    # Training without them is training as if they were not there.
    start = simulator.initial(0)
    rest = tuple(own[~out] for own, out in zip(federation.train, held, strict=True))
    alone = simulate(replace(federation, train=rest), lanes=lanes)
    trained = [each.serve(order, 1) for each, order in (
        (simulator, Train(EVERYBODY, start, hold_out=hold_out, each=True)), (alone, Train(EVERYBODY, start, each=True)),
    )]  # fmt: skip
    for one, other in zip(trained[0].models, trained[1].models, strict=True):
        np.testing.assert_allclose(one.parameters, other.parameters, atol=1e-6)

    log_prior = np.random.default_rng(1).normal(size=(7, 3))
    log_prior[2, 1] = -np.inf
    scales, shifts = np.array([1.0, 0.0, 0.5]), np.array([[0, 0, 0], [0, 0, 0], [0.1, -0.2, 0.3]])
    for models in (start, [simulator.initial(k) for k in EVERYBODY]):
        order = HeldOutLosses(EVERYBODY, models, hold_out, log_prior, scales, shifts)
        losses = simulator.serve(order, 1)
        for client, own in enumerate(federation.train):
            rows, model = own[held[client]], models if isinstance(models, Model) else models[client]
            if len(rows) == 0:
                assert not losses[client].any()
                continue
            for r in range(3):
                logits = scales[r] * plain_logits(simulator, model, rows) + log_prior[client] + shifts[r]
                log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
                each = np.minimum(-log_p[np.arange(len(rows)), federation.labels[rows]], RULED_OUT_LOSS)
                np.testing.assert_allclose(losses[client, r], each.sum(), rtol=1e-5)


def test_a_model_that_has_diverged_loses_the_most_there_is_unless_it_is_left_out(federation: Federation) -> None:
    simulator, hold_out = simulate(federation), HoldOut(0.3, 9)
    broken = Model(np.full_like(simulator.initial(0).parameters, np.inf), np.zeros(0, np.float32))
    order = HeldOutLosses(
        EVERYBODY, broken, hold_out, np.log(np.full((7, 3), 1 / 3)), np.array([1.0, 0.0]), np.zeros((2, 3))
    )
    losses = simulator.serve(order, 1)
    rows = [len(simulator.work.held_out(k, own, hold_out)[1]) for k, own in enumerate(federation.train)]
    np.testing.assert_allclose(losses, np.outer(rows, [RULED_OUT_LOSS, np.log(3)]))


def test_few_rows_are_not_filled_up_to_a_large_batch(federation: Federation) -> None:
    simulator = simulate(federation, lanes=1)
    score, sizes = simulator.work._scoring.score, []

    def watched(*arguments: object) -> object:
        sizes.append(len(arguments[4]))  # type: ignore[arg-type]
        return score(*arguments)  # type: ignore[arg-type]

    simulator.work._scoring = replace(simulator.work._scoring, score=watched)  # type: ignore[arg-type]
    model = simulator.initial(0)
    evaluate(simulator, (model,) * 7, EVERYBODY)
    assert set(sizes) == {64}
    sizes.clear()
    simulator.serve(Losses(np.array([1, 3, 5]), model), 1)  # 64 + 50 + 90 rows, after a call that compiles
    assert sizes == [256, 256]


def test_part_of_the_clients_can_be_evaluated(federation: Federation) -> None:
    simulator = simulate(federation)
    model = simulator.initial(0)
    everybody = evaluate(simulator, (model,), np.zeros(7, np.int64))
    some = simulator.serve(Evaluate(np.array([5, 2]), Deployment((model,), np.zeros(2, np.int64))), 1)
    for whole, part in zip(everybody, some, strict=True):
        np.testing.assert_array_equal(part, whole[[5, 2]])


@pytest.mark.parametrize("lanes", [None, 1])
def test_finding_46_a_class_that_the_prior_rules_out_has_a_bounded_loss(
    federation: Federation, lanes: int | None
) -> None:
    simulator = simulate(federation, lanes=lanes)
    model = simulator.initial(0)
    no_prior = np.zeros((7, 3))
    first_only = np.full((7, 3), -np.inf)
    first_only[:, 0] = 0.0
    plain = evaluate(simulator, (model,), np.zeros(7, np.int64), no_prior)
    ruled_out = evaluate(simulator, (model,), np.zeros(7, np.int64), first_only)
    others = plain.actual[:, 1:].sum(axis=1)
    assert others.sum() > 0
    np.testing.assert_allclose(ruled_out.loss, others * RULED_OUT_LOSS)  # and 0 for the first class, which is certain
    assert ruled_out.predicted[:, 1:].sum() == 0
    # A loss that a model has earned is reported, however large it is.
    sure = Model(model.parameters * 1e4, model.buffers)
    np.testing.assert_allclose(
        evaluate(simulator, (sure,), np.zeros(7, np.int64)).loss,
        [row_losses(simulator, sure, rows).sum() for rows in federation.test],
        rtol=1e-4,
    )


@pytest.fixture
def _compiled_anew() -> Iterator[None]:
    """No program is read from where compiled ones are kept."""
    local_training.cache_clear()
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("_compiled_anew")
def test_finding_8_compilation_is_booked_apart_and_once(federation: Federation) -> None:
    simulator = simulate(federation, lanes=2)
    start = simulator.initial(0)
    orders = (
        Train(EVERYBODY, start),
        Train(EVERYBODY, start, proximal=0.1),
        Losses(EVERYBODY, start),
        TrainPooled(start, 1),
        Evaluate(EVERYBODY, Deployment((start,), np.zeros(7, np.int64))),
    )
    assert set(simulator.take_ledger().seconds) == {"compilation"}
    for order in orders:
        simulator.serve(order, 1)
    first = simulator.take_ledger().seconds
    for order in orders:
        simulator.serve(order, 2)
    second = simulator.take_ledger().seconds
    assert "compilation" not in second
    assert set(first) == {*second, "compilation"}
    assert sum(first.values()) - first["compilation"] < first["compilation"] / 5  # nothing is compiled elsewhere


def test_training_is_compiled_once_whatever_the_anchor_is(federation: Federation) -> None:
    simulator = simulate(federation)
    initial = simulator.initial(0)
    assert not initial.parameters.flags.writeable  # which Numba takes for another type
    trained = simulator.serve(Train(EVERYBODY, initial, proximal=0.1), 1).mean
    simulator.serve(Train(EVERYBODY, trained, proximal=0.1), 2)
    simulator.serve(Train(EVERYBODY, trained), 2)
    simulator.serve(TrainPooled(trained, 1), 2)
    assert len(softmax_regression._train.signatures) == 1


def test_what_is_not_an_order_is_refused_in_a_sentence(federation: Federation) -> None:
    with pytest.raises(ClustPSIError, match="the simulator cannot serve an order of the type str"):
        simulate(federation).serve("train", 1)  # type: ignore[arg-type]


def test_bytes_are_counted(federation: Federation) -> None:
    simulator = simulate(federation)
    size = simulator.initial(0).num_bytes
    assert size == 4 * (6 * 3 + 3)
    counts = simulator.serve(LabelCounts(np.array([2, 5])), 0)
    assert counts.tolist() == federation.label_counts[[2, 5]].tolist()
    assert simulator.take_ledger().bytes_up == 2 * 3 * 4
    assert (simulator.serve(LabelPresence(EVERYBODY), 0) == (federation.label_counts > 0)).all()
    assert simulator.take_ledger().bytes_up == 7
    simulator.serve(Train(EVERYBODY[:3], start := simulator.initial(0), mixed_of=[start]), 1)
    ledger = simulator.take_ledger()
    assert (ledger.bytes_down, ledger.bytes_up, ledger.trained) == (6 * size, 3 * size, 3)
    simulator.serve(Losses(EVERYBODY, simulator.initial(0)), 1)
    ledger = simulator.take_ledger()
    assert (ledger.bytes_down, ledger.bytes_up) == (7 * size, 28)
    assert "losses" in ledger.seconds


def test_sgd_is_available_and_unknown_optimizers_are_not(federation: Federation) -> None:
    simulator = simulate(federation, optimizer="sgd")
    start = simulator.initial(0)
    assert simulator.serve(Train(EVERYBODY, start), 1).mean is not None
    with pytest.raises(ClustPSIError, match="unknown optimizer 'adamm': did you mean 'adam'"):
        simulate(federation, optimizer="adamm")


def test_initial_models_differ_by_index_and_seed(federation: Federation) -> None:
    first, again = simulate(federation), simulate(federation)
    np.testing.assert_array_equal(first.initial(0).parameters, again.initial(0).parameters)
    assert not np.array_equal(first.initial(0).parameters, first.initial(1).parameters)
    assert not np.array_equal(first.initial(0).parameters, simulate(federation, seed=6).initial(0).parameters)
