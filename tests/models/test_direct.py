"""Pooled convolutions in one pass: against XLA's own, with all gradients, whatever the shapes and the processor."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from clustpsi.models import layers
from clustpsi.models.layers import framed, pooled_convolution, unframed

# Optimizing the programs takes longer than all else here, and changes nothing but rounding.
quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def native(x, kernel, bias):
    y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return nn.max_pool(nn.relu(y + bias), (2, 2), (2, 2))


def ours(x, kernel, bias, pooled=pooled_convolution):
    rows, height, width, _ = x.shape
    return unframed(pooled(framed(x), kernel, bias), rows).reshape(rows, height // 2, width // 2, -1)


def results(function):
    """The function's result, and the gradients of images, kernel and bias."""

    def all_four(x, kernel, bias, cotangent):
        y, back = jax.vjp(function, x, kernel, bias)
        return y, *back(cotangent)

    return all_four


def numbers(rows, height, width, channels, maps):
    """Images, kernel, bias and cotangent."""
    rng = np.random.default_rng(1)
    shapes = (rows, height, width, channels), (3, 3, channels, maps), (maps,), (rows, height // 2, width // 2, maps)
    return [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes]


def assert_close(found, expected):
    for result, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, reference, rtol=0, atol=1.5e-6 * float(jnp.abs(reference).max()))


@pytest.mark.parametrize(
    ("rows", "height", "width", "channels", "maps"),
    [(32, 8, 6, 1, 8), (7, 7, 9, 3, 4), (33, 6, 7, 5, 6), (1, 2, 2, 2, 1), (17, 3, 2, 8, 16)],
)
def test_it_equals_the_native_one_with_its_gradients(rows, height, width, channels, maps):
    """Odd sizes, rows that fill no vector register, maps that are no multiple of a block; and models side by side."""
    arguments = numbers(rows, height, width, channels, maps)
    expected = quickly(results(native))(*arguments)
    assert_close(quickly(results(ours))(*arguments), expected)
    x, kernel, bias, cotangent = arguments
    doubled = 2 * x, 2 * kernel, 4 * bias, cotangent
    together = quickly(jax.vmap(results(ours)))(*map(lambda *each: jnp.stack(each), arguments, doubled))
    assert_close((each[0] for each in together), expected)
    factors = 4, 2, 2, 1
    assert_close((each[1] / factor for each, factor in zip(together, factors, strict=True)), expected)


def test_elsewhere_it_is_the_same():
    """XLA's own operations, which accelerators use."""
    arguments = numbers(5, 7, 6, 3, 4)
    elsewhere = partial(ours, pooled=layers._one_by_one)
    assert_close(*(quickly(results(each))(*arguments) for each in (elsewhere, ours)))


def test_the_same_numbers_give_the_same_bits():
    """Whatever other images are in the batch, and from one call to the next."""
    x, kernel, bias, _ = numbers(40, 6, 6, 3, 5)
    whole = jax.jit(ours)(x, kernel, bias)
    np.testing.assert_array_equal(whole, jax.jit(ours)(x, kernel, bias))
    np.testing.assert_array_equal(whole[3:10], jax.jit(ours)(x[3:10], kernel, bias))


def test_a_frame_of_zeros_surrounds_the_results():
    """Whatever was in that memory before."""
    x, kernel, bias, _ = numbers(16, 20, 20, 1, 8)
    x, pool = framed(x), jax.jit(pooled_convolution)
    y = pool(x, kernel, bias)
    for _ in range(5):
        shape = y.shape
        del y
        other = jnp.full(shape, 7.0).block_until_ready()
        del other
        y = pool(x, kernel, bias)
        without = y.at[1:-1, 1:-1].set(0)
        assert jnp.abs(y).max() > 0 and not without.any()


def test_equal_results_share_the_gradient():
    """All four are equal, or two, or three; and what is not above zero gets nothing."""
    squares = jnp.asarray([[1, 1, 1, 1], [2, 0, 0, 2], [3, 3, 1, 3], [-1, -1, -1, -1], [0, 0, 0, 0]], jnp.float32)
    kernel = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1)
    _, to_x, _, to_bias = results(ours)(squares.reshape(5, 2, 2, 1), kernel, jnp.zeros(1), jnp.full((5, 1, 1, 1), 12.0))
    expected = [[3, 3, 3, 3], [6, 0, 0, 6], [4, 4, 0, 4], [0] * 4, [0] * 4]
    np.testing.assert_allclose(to_x.reshape(5, 4), expected, rtol=1e-6)
    assert to_bias == 36


@pytest.mark.parametrize("pixel", [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_what_is_not_a_number_stays_it(pixel):
    """Or else nobody would notice that a model has diverged.

    One of four squares has it in all its results, one in a single result, which is another one for each pixel; and
    other images are left alone.
    """
    x = jnp.ones((3, 4, 4, 1)).at[1, *pixel].set(jnp.nan)
    kernel = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1)
    for bias, others in ((0.5, 1.5), (-3.0, 0.0)):
        y = ours(x, kernel, jnp.full(1, bias))
        np.testing.assert_array_equal(y.reshape(3, 4), [[others] * 4, [np.nan] * 4, [others] * 4])


NARROW = """
import sys
from llvmlite import binding

features = binding.get_host_cpu_features()
features.update((name, False) for name in features if name.startswith("avx512"))
binding.get_host_cpu_features = lambda: features
import pytest
from clustpsi.models.vectors import LANES

assert LANES == 8
sys.exit(pytest.main([sys.argv[1], "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "not processor"]))
"""


@pytest.mark.slow
def test_a_processor_with_narrow_registers_gives_the_same(tmp_path: Path):
    """Compiled anew as for a processor without AVX-512, into a cache of its own."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", NARROW, __file__], check=True, env=environment)
