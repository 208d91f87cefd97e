"""The parts that the models share, in the form that is fastest to train on a CPU."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

# New running statistics are 0.9 * old + 0.1 * batch.  A client takes a few dozen steps a round: with Keras' 0.99 the
# statistics that are averaged and used for evaluation would still be mostly those of the round before.
BATCH_NORM_MOMENTUM = 0.9


def pixels(x: jax.Array) -> jax.Array:
    """Images as floats (rows, height, width, channels); bytes become [0, 1]."""
    if x.dtype == jnp.uint8:
        x = x.astype(jnp.float32) / 255
    return x[..., None] if x.ndim == 3 else x


def convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """A convolution with stride 1 and zero padding to the same size.

    On the CPU it is a matrix product over patches, which XLA computes, forward and backward, many times faster than its
    own convolution there (docs/benchmarks.md).

    Parameters
    ----------
    x
        Rows, height, width, channels.
    kernel
        Height, width (both odd), channels in, channels out.
    """
    if jax.default_backend() != "cpu":
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    rows, height, width, _ = x.shape
    down, right, channels, features = kernel.shape
    # The barrier has the input computed once: XLA would otherwise fuse what leads to it into each of the nine slices.
    padded = jnp.pad(lax.optimization_barrier(x), ((0, 0), (down // 2, down // 2), (right // 2, right // 2), (0, 0)))
    patches = jnp.concatenate(
        [padded[:, i : i + height, j : j + width] for i in range(down) for j in range(right)], axis=-1
    )
    flat = patches.reshape(rows * height * width, down * right * channels) @ kernel.reshape(-1, features)
    return flat.reshape(rows, height, width, features)


class Conv(nn.Module):
    """A 3 x 3 convolution with bias, same padding."""

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (3, 3, x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return convolution(x, kernel) + bias


def max_pool(x: jax.Array) -> jax.Array:
    """The maximum of every 2 x 2 square; a last odd row or column is dropped.

    Written as a reduction over a reshaped array: the gradient of a window reduction is very slow on the CPU.
    """
    rows, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(rows, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def dropout_mask(key: jax.Array, rate: float, shape: tuple[int, ...]) -> jax.Array:
    """Zero with probability ``rate``, otherwise 1 / (1 - rate).

    Every random word serves two entries: 16 bits each give the rate to five digits, in half the time.
    """
    size = 1
    for length in shape:
        size *= length
    words = jax.random.bits(key, (-(-size // 2),), jnp.uint32)
    halves = jnp.concatenate([words & 0xFFFF, words >> 16])[:size].reshape(shape)
    return jnp.where(halves >= round(rate * 2**16), jnp.float32(1 / (1 - rate)), jnp.float32(0))


class Dropout(nn.Module):
    """Inverted dropout.

    Parameters
    ----------
    rate
        Share of the entries that become zero in training.
    broadcast
        Axes along which entries share their fate.
    """

    rate: float
    broadcast: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        if not train:
            return x
        shape = tuple(1 if axis in self.broadcast else length for axis, length in enumerate(x.shape))
        return x * dropout_mask(self.make_rng("dropout"), self.rate, shape)


class BatchNorm(nn.Module):
    """Batch normalization over all axes but the last, whose batch statistics leave masked rows out."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None) -> jax.Array:
        rows = None if mask is None else mask.reshape(-1, *[1] * (x.ndim - 1))
        normalized: jax.Array = nn.BatchNorm(use_running_average=not train, momentum=BATCH_NORM_MOMENTUM)(x, mask=rows)
        return normalized
