"""ONNX graphs: the same logits as ours, in ONNX Runtime."""

import jax
import numpy as np
import onnxruntime
import pytest
from flax import linen as nn

from clustpsi.datasets.word_vectors import WordVectors
from clustpsi.engine import network_for
from clustpsi.errors import ClustPSIError
from clustpsi.models import MODELS, build_model
from clustpsi.models.dense import MLP, Logistic
from clustpsi.models.images import CIFARCNN, FMNISTCNN
from clustpsi.models.onnx_graph import onnx_model
from clustpsi.models.text import LSTM, EmbeddingMLP

#: Module, shape and type of a row.
SMALL = [
    (Logistic(5), (10,), np.float32),
    (Logistic(5), (8, 8), np.float32),
    (MLP(5, width=20), (30,), np.float32),
    (MLP(5, width=20, depth=1), (3, 4), np.uint8),
    (FMNISTCNN(5, width=50), (12, 9, 1), np.uint8),
    (FMNISTCNN(5, maps=(4, 3), width=50), (7, 9), np.float32),
    (CIFARCNN(5, blocks=((4, 0.2), (6, 0.3))), (5, 8, 3), np.uint8),
    (LSTM(5), (12,), np.int32),
    (EmbeddingMLP(5), (12,), np.int32),
]
#: Those of the paper.
LARGE = [
    ("logistic", (10,), np.float32),
    ("mlp", (30,), np.float32),
    ("fmnist_cnn", (28, 28, 1), np.uint8),
    ("cifar_cnn", (32, 32, 3), np.uint8),
    ("lstm", (30,), np.int32),
    ("embedding_mlp", (100,), np.int32),
]


def random_rows(rng, shape, dtype, number):
    if dtype is np.float32:
        return rng.standard_normal((number, *shape)).astype(dtype)
    return rng.integers(0, 256 if dtype is np.uint8 else 40, (number, *shape)).astype(dtype)


def scaled(rng, shape):
    """Random weights that keep the size of what passes through them, or the numbers of a vector."""
    inputs = np.prod(shape[:-1]) if len(shape) > 1 else 1
    return rng.normal(0, inputs**-0.5, shape).astype(np.float32)


def both(module, x, seed=0):
    """Logits of a model with random parameters and buffers: ours, and those of its graph."""
    network = network_for(module, x.shape[1:], x.dtype)
    rng = np.random.default_rng(seed)
    # Not the initial ones: biases and BatchNorm start at zeros and ones, which would hide what is forgotten.
    zeros = network.parameters_of(np.zeros(network.num_parameters, np.float32))
    parameters = jax.tree.map(lambda leaf: scaled(rng, leaf.shape), zeros)
    buffers = network.buffers_of(rng.uniform(0.5, 1, network.num_buffers).astype(np.float32))
    session = onnxruntime.InferenceSession(
        onnx_model(module, parameters, buffers, x.shape[1:], x.dtype).SerializeToString()
    )
    assert [each.name for each in session.get_inputs()] == ["features"]
    ours = np.asarray(jax.jit(network.evaluate)(parameters, buffers, x))
    return ours, session.run(["logits"], {"features": x})[0], session


def check(module, shape, dtype):
    x = random_rows(np.random.default_rng(1), shape, dtype, 7)
    ours, theirs, session = both(module, x)
    assert theirs.dtype == np.float32
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)
    assert np.ptp(ours, axis=0).min() > 1e-4  # rows differ: the graph does look at them
    for rows in (0, 1):
        np.testing.assert_allclose(session.run(None, {"features": x[:rows]})[0], ours[:rows], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "shape", "dtype"), SMALL, ids=[f"{type(each[0]).__name__}-{each[1]}" for each in SMALL]
)
def test_logits_are_ours(module, shape, dtype):
    check(module, shape, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape", "dtype"), LARGE)
def test_logits_of_the_papers_models_are_ours(name, shape, dtype):
    check(build_model(name, 10), shape, dtype)


@pytest.mark.parametrize("name", ["lstm", "embedding_mlp"])
def test_word_vectors_are_in_the_graph(name):
    rng = np.random.default_rng(2)
    vectors = WordVectors(rng.standard_normal((40, 12)).astype(np.float32), 38)
    ours, theirs, _ = both(build_model(name, 3, vectors), random_rows(rng, (6,), np.int32, 9))
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)


def test_padding_changes_no_state_wherever_it_stands():
    x = np.array([[0, 0, 0, 0], [5, 0, 7, 0], [0, 5, 0, 7], [5, 7, 0, 0], [5, 7, 1, 0]], np.int32)
    ours, theirs, _ = both(build_model("lstm", 3), x)
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(theirs[1], theirs[2])
    assert np.abs(theirs[3] - theirs[4]).max() > 1e-3


def test_every_model_has_a_graph():
    assert {type(module) for module, _, _ in SMALL} == {type(build_model(name, 2)) for name in MODELS}

    class Unknown(nn.Module):
        num_classes: int

    with pytest.raises(ClustPSIError, match="no ONNX graph of the model Unknown"):
        onnx_model(Unknown(2), {}, {}, (3,), np.dtype(np.float32))
