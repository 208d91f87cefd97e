"""Models: their layers against independent arithmetic, their sizes, and that each of them learns."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from jax import lax

from clustpsi.datasets.base import Dataset
from clustpsi.engine import Simulator, adam, network_for
from clustpsi.engine.training import make_optimizer
from clustpsi.errors import ClustPSIError
from clustpsi.features import as_they_are
from clustpsi.federation import Federation
from clustpsi.models import MODELS, build_model
from clustpsi.models.layers import (
    BatchNorm,
    Dropout,
    convolution,
    dropout_mask,
    max_pool,
    pixels,
    product,
)
from clustpsi.models.recurrence import _step_by_step, _tanh, last_state
from clustpsi.orders import Train

#: Model, shape and type of a row, classes, parameters, buffers: the paper's data sets.
SIZES = [
    ("logistic", (10,), np.float32, 2, 22, 0),
    ("mlp", (30,), np.float32, 13, 15_500 + 2 * 250_500 + 6_513, 0),
    ("fmnist_cnn", (28, 28), np.uint8, 10, 80 + 1_168 + 4_640 + 591_872 + 20_490, 0),
    ("cifar_cnn", (32, 32, 3), np.uint8, 10, 287_008 + 1_152 + 262_272 + 1_290, 2 * (2 * (32 + 64 + 128) + 128)),
    ("lstm", (30,), np.int32, 2, 500_100 + 2_040 + 400 + 22, 0),
    ("embedding_mlp", (100,), np.int32, 6, 500_100 + 40_008 + 54, 0),
]


def random_rows(rng, shape, dtype, number):
    if dtype is np.float32:
        return rng.standard_normal((number, *shape)).astype(dtype)
    return rng.integers(0, 256 if dtype is np.uint8 else 50, (number, *shape)).astype(dtype)


def applied(module, *arguments, seed=0, **options):
    return jax.jit(lambda: module.init_with_output(jax.random.key(seed), *arguments, **options))()


@pytest.mark.parametrize(("name", "shape", "dtype", "classes", "parameters", "buffers"), SIZES)
def test_sizes_are_those_of_the_paper(name, shape, dtype, classes, parameters, buffers):
    network = network_for(build_model(name, classes), shape, np.dtype(dtype))
    assert (network.num_parameters, network.num_buffers) == (parameters, buffers)
    x = random_rows(np.random.default_rng(0), shape, dtype, 3)

    def evaluate(parameters, buffers):
        return network.evaluate(network.parameters_of(parameters), network.buffers_of(buffers), x)

    logits = jax.eval_shape(evaluate, np.zeros(parameters, np.float32), np.zeros(buffers, np.float32))
    assert logits.shape == (3, classes) and logits.dtype == jnp.float32


def test_initial_models_are_the_same_however_well_their_program_is_optimized():
    network = network_for(build_model("logistic", 3), (50,), np.dtype(np.float32))
    parameters, _ = jax.jit(network._variables)(jax.random.fold_in(jax.random.key(4), 1))
    optimized = np.asarray(jax.flatten_util.ravel_pytree(parameters)[0])
    np.testing.assert_array_max_ulp(network.initial(4, 1).parameters, optimized, maxulp=2)


def test_every_model_is_covered():
    assert {size[0] for size in SIZES} == set(MODELS)


@pytest.mark.parametrize(
    ("channels", "features", "height", "form"), [(3, 4, 7, None), (32, 33, 44, None), (33, 32, 7, "patches")]
)
def test_convolution_equals_the_native_one_with_its_gradients(channels, features, height, form):
    """Few channels and many take different ways; odd sizes, and a number of images that is no multiple of a block."""
    rng = np.random.default_rng(1)
    x, kernel, cotangent = (
        jnp.asarray(rng.standard_normal(shape), jnp.float32)
        for shape in (
            (6, height, 6, channels),
            (3, 3, channels, features),
            (6, height, 6, features),
        )
    )

    def native(x, kernel):
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def results(function):
        def all_three(x, kernel, cotangent):
            y, back = jax.vjp(function, x, kernel)
            return y, *back(cotangent)

        return all_three

    # Optimizing the programs takes longer than all else here, and changes nothing but rounding.
    quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    expected = quickly(results(native))(x, kernel, cotangent)
    ours = results(partial(convolution, form=form))
    side_by_side = quickly(jax.vmap(ours))(*(jnp.stack([a, 2 * a]) for a in (x, kernel, cotangent)))
    for result, lanes, reference in zip(quickly(ours)(x, kernel, cotangent), side_by_side, expected, strict=True):
        tolerance = 2e-6 * float(jnp.abs(reference).max())
        np.testing.assert_allclose(result, reference, rtol=0, atol=tolerance)
        np.testing.assert_allclose(lanes[0], reference, rtol=0, atol=tolerance)
        np.testing.assert_allclose(lanes[1], 4 * reference, rtol=0, atol=4 * tolerance)


@pytest.mark.parametrize(("rows", "columns"), [(7, 3), (20, 3), (7, 20)])
def test_product_equals_the_plain_one_with_its_gradients(rows, columns):
    """Narrow matrices take another way."""
    rng = np.random.default_rng(5)
    x, kernel, cotangent = (
        rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4, rows), (2, rows, columns), (2, 4, columns))
    )
    value, back = jax.vjp(jax.vmap(product), x, kernel)
    expected = x @ kernel, cotangent @ kernel.swapaxes(1, 2), x.swapaxes(1, 2) @ cotangent
    for ours, reference in zip((value, *back(cotangent)), expected, strict=True):
        np.testing.assert_allclose(ours, reference, atol=1e-5)


@pytest.mark.parametrize("size", [(6, 8), (7, 5)])
def test_max_pool_equals_flax(size):
    x = jnp.asarray(np.random.default_rng(2).standard_normal((2, *size, 3)), jnp.float32)

    @partial(jax.jit, static_argnums=0)
    def with_gradient(pool, x):
        pooled, back = jax.vjp(pool, x)
        return pooled, back(pooled)[0]

    for ours, reference in zip(
        with_gradient(max_pool, x), with_gradient(lambda x: nn.max_pool(x, (2, 2), (2, 2)), x), strict=True
    ):
        np.testing.assert_array_equal(ours, reference)


def test_max_pool_passes_the_whole_gradient_on_when_values_tie():
    gradient = jax.grad(lambda x: max_pool(x).sum())(jnp.ones((1, 2, 2, 1)))
    assert gradient.sum() == 1


def test_bytes_become_zero_to_one():
    x = pixels(jnp.array([[[0, 51], [255, 102]]], jnp.uint8))
    np.testing.assert_allclose(x[0, :, :, 0], [[0, 0.2], [1, 0.4]], rtol=1e-6)


@pytest.mark.parametrize("shape", [(5,), (4, 3, 5)])
def test_batch_norm_leaves_masked_rows_out(shape):
    rng = np.random.default_rng(3)
    full = jnp.asarray(rng.standard_normal((8, *shape)) * 3 + 1, jnp.float32)
    mask = jnp.arange(8) < 5
    module = BatchNorm()
    _, variables = applied(module, full, train=False, mask=None)
    normalize = jax.jit(partial(module.apply, train=True, mutable=["batch_stats"]))
    masked, updated = normalize(variables, full, mask=mask)
    short, expected = normalize(variables, full[:5], mask=jnp.ones(5, bool))
    np.testing.assert_allclose(masked[:5], short, atol=1e-5)
    axes = tuple(range(len(shape)))
    np.testing.assert_allclose(short, (full[:5] - full[:5].mean(axes)) / np.sqrt(full[:5].var(axes) + 1e-5), atol=1e-4)
    for ours, reference in zip(jax.tree.leaves(updated), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, reference, atol=1e-5)
    mean = updated["batch_stats"]["mean"]
    np.testing.assert_allclose(mean, 0.1 * full[:5].mean(axes), atol=1e-5)  # momentum 0.9, from 0


def test_dropout_keeps_the_mean_and_follows_its_key():
    mask = np.asarray(dropout_mask(jax.random.key(0), 0.2, (101, 99)))
    assert set(np.unique(mask)) == {np.float32(0), np.float32(1.25)}
    assert abs((mask == 0).mean() - 0.2) < 0.015
    np.testing.assert_array_equal(mask, dropout_mask(jax.random.key(0), 0.2, (101, 99)))
    assert (mask != np.asarray(dropout_mask(jax.random.key(1), 0.2, (101, 99)))).any()


def test_dropout_shares_its_mask_along_broadcast_axes():
    x = jnp.ones((4, 6, 8))
    dropped = Dropout(0.5, broadcast=(1,)).apply({}, x, train=True, rngs={"dropout": jax.random.key(0)})
    assert (dropped == dropped[:, :1]).all() and 0 < (dropped == 0).mean() < 1


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [pytest.param("cifar_cnn", (8, 8, 3), np.uint8, marks=pytest.mark.slow), ("lstm", (6,), np.int32)],
)
def test_dropout_acts_in_training_only(name, shape, dtype):
    network = network_for(build_model(name, 2), shape, np.dtype(dtype))
    x = random_rows(np.random.default_rng(0), shape, dtype, 4)
    start = network.initial(0, 0)
    parameters, buffers = network.parameters_of(start.parameters), network.buffers_of(start.buffers)
    train = jax.jit(network.train)
    first, again, other = (
        np.asarray(train(parameters, buffers, x, jnp.ones(4, bool), jax.random.key(key))[0]) for key in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-4
    assert jax.jit(network.evaluate)(parameters, buffers, x).shape == (4, 2)  # needs no key: nothing is dropped


def test_lstm_equals_a_plain_loop_and_ignores_padding():
    module = build_model("lstm", 3)
    tokens = np.array([[5, 9, 2, 7, 0, 0], [3, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], np.int32)
    moved = np.array([[0, 5, 0, 9, 2, 7], [0, 0, 0, 0, 0, 3], [0, 0, 0, 0, 0, 0]], np.int32)
    together, variables = applied(module, np.concatenate([tokens, moved]), train=False)
    logits, after_padding = together[:3], together[3:]
    params = jax.tree.map(lambda a: np.asarray(a, np.float64), variables["params"])
    table, dense, head = params["Embed_0"]["embedding"], params["Dense_0"], params["Dense_1"]

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    for row, got in zip(tokens, logits, strict=True):
        hidden, cell = np.zeros(10), np.zeros(10)
        for token in row[row > 0]:
            gates = table[token] @ dense["kernel"] + dense["bias"] + hidden @ params["recurrent"]
            into, forget, candidate, out = gates.reshape(4, 10)
            cell = sigmoid(forget) * cell + sigmoid(into) * np.tanh(candidate)
            hidden = sigmoid(out) * np.tanh(cell)
        np.testing.assert_allclose(got, hidden @ head["kernel"] + head["bias"], atol=1e-5)
    np.testing.assert_array_equal(dense["bias"], np.repeat([0, 1, 0, 0], 10))  # the forget gate starts open
    np.testing.assert_allclose(after_padding, logits, atol=1e-6)


@pytest.mark.parametrize(("units", "repeats"), [(3, 1), (10, 10)])  # rows of less and of more than a vector register
def test_lstm_has_the_gradients_of_a_plain_loop(units: int, repeats: int):
    """With padding at the end, at the start and in between, and with dropout; two models side by side as well."""
    rng = np.random.default_rng(7)
    length, rows = 6, 4 * repeats
    texts = [[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1], [1, 0, 1, 0, 1, 1], [0] * 6]
    is_word = np.array(texts * repeats, bool).T
    kept = jnp.asarray(rng.integers(0, 2, (units, rows)) / 0.5, jnp.float32)
    inputs, recurrent, cotangent = (
        jnp.asarray(rng.standard_normal(shape), jnp.float32)
        for shape in ((length, 4 * units, rows), (units, 4 * units), (units, rows))
    )

    def plain(inputs, recurrent):
        hidden, cell = jnp.zeros((2, units, rows))
        for contribution, word in zip(inputs, is_word, strict=True):
            into, forget, candidate, out = jnp.split(contribution + recurrent.T @ (hidden * kept), 4)
            new_cell = nn.sigmoid(forget) * cell + nn.sigmoid(into) * jnp.tanh(candidate)
            hidden = jnp.where(word, nn.sigmoid(out) * jnp.tanh(new_cell), hidden)
            cell = jnp.where(word, new_cell, cell)
        return hidden

    def results(function):
        def all_three(inputs, recurrent, cotangent):
            hidden, back = jax.vjp(function, inputs, recurrent)
            return hidden, *back(cotangent)

        return all_three

    ours = results(lambda inputs, recurrent: last_state(inputs, is_word, recurrent, kept))
    elsewhere = results(lambda inputs, recurrent: _step_by_step(inputs, is_word, recurrent, kept))  # not on the CPU
    arguments = inputs, recurrent, cotangent
    side_by_side = jax.jit(jax.vmap(ours))(*(jnp.stack([a, a]) for a in arguments))
    for *found, lanes, reference in zip(
        *(jax.jit(each)(*arguments) for each in (ours, elsewhere)),
        *(side_by_side, jax.jit(results(plain))(*arguments)),
        strict=True,
    ):
        assert float(jnp.abs(reference).max()) > 0.1
        atol = 1e-6 * repeats  # gradients of the weights are sums over all rows
        for result in found:
            np.testing.assert_allclose(result, reference, rtol=0, atol=atol)
        np.testing.assert_allclose(lanes, [reference] * 2, rtol=0, atol=atol)


def test_the_hyperbolic_tangent_is_numpys_to_the_last_digits():
    for x in [*np.linspace(-20, 20, 4001), *np.logspace(-30, 0, 100), np.inf, -np.inf, np.nan]:
        expected = np.tanh(x)
        np.testing.assert_allclose(_tanh(np.float32(x)), expected, rtol=5e-7)


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("fmnist_cnn", np.zeros((7, 28), np.uint8), "at least 8 x 8"),
        ("cifar_cnn", np.zeros((32, 4, 3), np.uint8), "at least 8 x 8"),
        ("fmnist_cnn", np.zeros(64, np.float32), "takes images"),
        ("lstm", np.zeros(64, np.float32), "token ids"),
        ("embedding_mlp", np.zeros((8, 8), np.int32), "token ids"),
    ],
)
def test_unsuitable_input_is_refused(name, row, message):
    with pytest.raises(ClustPSIError, match=message):
        network_for(build_model(name, 2), row.shape, row.dtype)


def test_images_of_other_sizes_and_channels_work():
    for name, shape in (("fmnist_cnn", (9, 12, 3)), ("cifar_cnn", (11, 8))):
        module, x = build_model(name, 4), np.zeros((5, *shape), np.uint8)
        logits, _ = jax.eval_shape(lambda: module.init_with_output(jax.random.key(0), x, train=False))  # noqa: B023
        assert logits.shape == (5, 4)


def test_unknown_model_is_named():
    with pytest.raises(ClustPSIError, match="did you mean 'lstm'"):
        build_model("lsmt", 2)


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("logistic", (6,), np.float32),
        ("mlp", (6,), np.float32),
        ("logistic", (2, 2), np.uint8),  # images are numbers too
        ("fmnist_cnn", (8, 8), np.uint8),
        pytest.param("cifar_cnn", (8, 8, 3), np.uint8, marks=pytest.mark.slow),  # compiles for long
        ("lstm", (5,), np.int32),
        ("embedding_mlp", (5,), np.int32),
    ],
)
def test_one_round_of_training_lowers_the_training_loss(name, shape, dtype):
    """Two classes that any model can tell apart; 33 rows a client also exercise a last batch of one row."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 99).astype(np.int32)
    features = random_rows(rng, shape, dtype, 99)
    if dtype is np.int32:
        features = features % 10 + 2 + 10 * labels.reshape(-1, *[1] * len(shape))  # a vocabulary each
    else:
        shift = labels.reshape(-1, *[1] * len(shape)) * (100 if dtype is np.uint8 else 2)
        features = features // (2 if dtype is np.uint8 else 1) + shift
    dataset = Dataset("tiny", labels, ("a", "b"), *as_they_are(features.astype(dtype)), model=name)
    rows = np.arange(99).reshape(3, 33)
    federation = Federation(dataset, tuple(rows), tuple(np.empty(0, np.int64) for _ in rows), ("x", "y", "z"))
    network = network_for(build_model(name, 2), shape, np.dtype(dtype))
    simulator = Simulator(federation, network, lr=0.01, local_epochs=8, workers=1)
    try:
        first = simulator.serve(Train(np.arange(3), simulator.initial(0)), 1)
        second = simulator.serve(Train(np.arange(3), first.mean), 2)
    finally:
        simulator.close()
    assert first.kept.all() and second.losses.mean() < 0.8 * first.losses.mean()


def test_adam_equals_that_of_optax():
    """One model, models side by side that have taken different numbers of steps, and the form for accelerators."""
    rng, ours, reference = np.random.default_rng(6), make_optimizer("adam", 0.01), optax.adam(0.01)
    parameters = {"a": jnp.zeros((3, 2)), "b": jnp.zeros(40)}
    state, expected_state = ours.start(parameters), reference.init(parameters)
    step, reference_update, before = jax.jit(ours.step), jax.jit(reference.update), (parameters, state)
    for scale in (1, 1e-7, 10):  # tiny gradients make epsilon count
        gradient = jax.tree.map(lambda a: jnp.asarray(scale * rng.standard_normal(a.shape), jnp.float32), parameters)  # noqa: B023
        change, expected_state = reference_update(gradient, expected_state)
        expected = optax.apply_updates(parameters, change), tuple(expected_state[0])
        lanes = jax.tree.map(lambda *each: jnp.stack(each), before, (parameters, state))
        before = parameters, state
        side_by_side = jax.jit(jax.vmap(ours.step, (None, 0, 0)))(gradient, lanes[1], lanes[0])
        parameters, state = step(gradient, state, parameters)
        for updated in ((parameters, state), jax.tree.map(lambda a: a[1], side_by_side)):
            jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), (updated[0], tuple(updated[1])), expected)
    values = (parameters, state.first, state.second, gradient, jnp.float32(-0.1), jnp.float32(1e-3))
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-5), adam._update(*values), jax.jit(adam._compiled_update)(*values)
    )
