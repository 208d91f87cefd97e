"""The parts that the models share, in the form that is fastest to train on a CPU."""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax

# New running statistics are 0.9 * old + 0.1 * batch.  A client takes a few dozen steps per round: with Keras' 0.99 the
# statistics that are averaged and used for evaluation would still be mostly those of the round before.
BATCH_NORM_MOMENTUM = 0.9
BATCH_NORM_EPSILON = 1e-5

# Ways to compute a convolution on the CPU (:func:`convolution`).
FORMS = ("patches", "winograd")
# With fewer channels, in or out, the transforms cost more than the multiplications they save.
WINOGRAD_CHANNELS = 32
# Numbers in a vector register.
VECTOR = 16


def pixels(x: jax.Array) -> jax.Array:
    """Images as floats (rows, height, width, channels); bytes become [0, 1]."""
    if x.dtype == jnp.uint8:
        x = x.astype(jnp.float32) / 255
    return x[..., None] if x.ndim == 3 else x


def framed(x: jax.Array) -> jax.Array:
    """Rows, height, width, channels as :func:`pooled_convolution` takes them: height, width, channels, rows.

    Each image has a frame of zeros around it, one pixel wide.  The images come last, because vector registers then fill
    along them, however few channels there are; on the CPU rows of zeros are added that fill the last register.
    """
    x = _with_frame(x.transpose(1, 2, 3, 0))
    if jax.default_backend() != "cpu":
        return x
    from clustpsi.models.vectors import LANES, filled

    return filled(x, LANES)


def unframed(x: jax.Array, rows: int) -> jax.Array:
    """So many rows of what :func:`framed` gives: all numbers of each, in the order of height, width, channels."""
    return x[1:-1, 1:-1, :, :rows].reshape(-1, rows).T


def usual_form(channels: int, features: int) -> str:
    """The form of a convolution on a CPU of which nothing is known."""
    return "patches" if min(channels, features) < WINOGRAD_CHANNELS else "winograd"


def convolution(x: jax.Array, kernel: jax.Array, form: str | None = None) -> jax.Array:
    """A 3 x 3 convolution with stride 1 and zero padding to the same size.

    On the CPU it consists of matrix products, which XLA computes, forward and backward, many times faster than its own
    convolution there (docs/benchmarks.md).

    Parameters
    ----------
    x
        Rows, height, width, channels.
    kernel
        3, 3, channels in, channels out.
    form
        On the CPU, one of :data:`FORMS`, which differ in speed and rounding; by default the usual one.
    """
    if jax.default_backend() != "cpu":
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    if (form or usual_form(kernel.shape[2], kernel.shape[3])) == "patches":
        return patch_convolution(x, kernel)
    from clustpsi.models.winograd import winograd_convolution  # few models need it, and it has to be compiled

    return winograd_convolution(x, kernel)


def patch_convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """The convolution as one product of all 3 x 3 patches with the kernel."""
    _, height, width, _ = x.shape
    padded = jnp.pad(computed_once(x), ((0, 0), (1, 1), (1, 1), (0, 0)))
    matrix = kernel.reshape(-1, kernel.shape[3])
    # In two steps, because few channels are short pieces to copy.
    triples = computed_once(jnp.concatenate([padded[:, :, j : j + width] for j in range(3)], axis=-1))
    patches = jnp.concatenate([triples[:, i : i + height] for i in range(3)], axis=-1)
    return (patches.reshape(-1, len(matrix)) @ matrix).reshape(*x.shape[:-1], -1)


def pooled_convolution(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """A convolution of :func:`framed` images with bias, ReLU and :func:`max_pool`, framed again.

    Parameters
    ----------
    kernel
        3, 3, channels in, channels out.
    """
    if jax.default_backend() != "cpu":
        return _one_by_one(x, kernel, bias)
    from clustpsi.models.direct import direct_convolution  # one model needs it, and it has to be compiled

    return direct_convolution(x, kernel, bias)


def _one_by_one(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    y = lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("HWCN", "HWIO", "NHWC"))
    # ReLU and maximum commute, and so do bias and maximum: after pooling they have a quarter of the work.
    return _with_frame(nn.relu(max_pool(y) + bias).transpose(1, 2, 3, 0))


def _with_frame(x: jax.Array) -> jax.Array:
    return jnp.pad(x, ((1, 1), (1, 1), (0, 0), (0, 0)))


def computed_once(x: jax.Array) -> jax.Array:
    """A hint to XLA not to fuse what leads to ``x`` into each of its uses."""
    return jnp.asarray(lax.optimization_barrier(x))  # type: ignore[no-untyped-call]


class Conv(nn.Module):
    """A 3 x 3 convolution with bias, same padding; ``form`` as in :func:`convolution`.

    Or else it is ``pooled``, with ReLU, and takes and gives :func:`framed` images.
    """

    features: int
    form: str | None = None
    pooled: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        channels = x.shape[-2 if self.pooled else -1]
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (3, 3, channels, self.features))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        if self.pooled:
            return pooled_convolution(x, kernel, bias)
        return convolution(x, kernel, self.form) + bias


class Dense(nn.Module):
    """A dense layer with bias, on rows of features."""

    features: int
    bias_init: nn.initializers.Initializer = nn.initializers.zeros

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (x.shape[-1], self.features))
        bias = self.param("bias", self.bias_init, (self.features,), jnp.float32)
        return product(x.astype(kernel.dtype), kernel) + bias


class Embed(nn.Module):
    """A table of embeddings, looked up by token."""

    rows: int
    features: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        init = nn.initializers.variance_scaling(1.0, "fan_in", "normal", out_axis=0)  # as in Flax
        table = self.param("embedding", init, (self.rows, self.features))
        # Flax's lookup goes over all values again, to write not-a-number where a token is not in the table.
        return table.at[tokens].get(mode="clip")


@jax.custom_vjp
def product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """The matrix product of a few rows with a matrix, whose gradients never transpose the larger of the two.

    XLA folds transpositions into products and chooses between two libraries by what results; for some products the
    choice is several times slower.  So each is written in its fastest form.
    """
    return x @ kernel


def _product_forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    if is_narrow(kernel):
        return x @ kernel, (x, kernel)
    turned = computed_once(x.T)  # which the gradient needs anyway
    return _summed_over(0, turned, kernel), (turned, kernel)


def _product_backward(inputs: tuple[jax.Array, jax.Array], cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = inputs
    if is_narrow(kernel):
        return cotangent @ kernel.T, computed_once(_summed_over(0, cotangent, x)).T
    return computed_once(_summed_over(1, kernel, cotangent)).T, x @ cotangent


def is_narrow(matrix: jax.Array) -> bool:
    """Whether its transpose is faster to work on, because its rows are shorter than a vector register."""
    return matrix.ndim == 2 and matrix.shape[1] < VECTOR < matrix.shape[0]


def _summed_over(axis: int, a: jax.Array, b: jax.Array) -> jax.Array:
    return lax.dot_general(a, b, (((axis,), (axis,)), ((), ())))


product.defvjp(_product_forward, _product_backward)


def max_pool(x: jax.Array) -> jax.Array:
    """The maximum of every 2 x 2 square; a last odd row or column is dropped.

    Height and width are the two axes in the middle.
    """
    first, height, width, last = x.shape
    whole = x[:, : height // 2 * 2, : width // 2 * 2]
    return largest(whole.reshape(first, height // 2, 2, width // 2, 2, last))


@jax.custom_vjp
def largest(x: jax.Array) -> jax.Array:
    """The maximum over the third and the fifth axis, of length 2.

    A reduction, and even more so its gradient, would be slower on the CPU.
    """
    return _largest(computed_once(x))


def _largest(x: jax.Array) -> jax.Array:
    a, b, c, d = _four(x)
    return computed_once(jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d)))


def _four(x: jax.Array) -> list[jax.Array]:
    return [x[:, :, a, :, b] for a in range(2) for b in range(2)]


def _largest_forward(x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    x = computed_once(x)
    found = _largest(x)
    return found, (x, found)


def _largest_backward(values: tuple[jax.Array, jax.Array], cotangent: jax.Array) -> tuple[jax.Array]:
    """All that equal the maximum share alike.  So does JAX's gradient, which counts them by a slower reduction."""
    x, found = values
    number = sum((each == found).astype(x.dtype) for each in _four(x))
    share = computed_once(cotangent / number)
    return (computed_once((x == jnp.expand_dims(found, (2, 4))) * jnp.expand_dims(share, (2, 4))),)


largest.defvjp(_largest_forward, _largest_backward)


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
        Axes along which entries are kept or dropped together.
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
    """Batch normalization over all axes but the last, with batch statistics that ignore masked rows."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None) -> jax.Array:
        channels = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, channels)
        bias = self.param("bias", nn.initializers.zeros, channels)
        running_mean = self.variable("batch_stats", "mean", jnp.zeros, channels)
        running_variance = self.variable("batch_stats", "var", jnp.ones, channels)
        mean, variance = running_mean.value, running_variance.value
        if train:
            counted = jnp.ones(x.shape[0]) if mask is None else mask.astype(x.dtype)
            share = (counted / (counted.sum() * math.prod(x.shape[1:-1]))).reshape(-1, *[1] * (x.ndim - 1))
            axes = tuple(range(x.ndim - 1))
            mean = (share * x).sum(axes)
            variance = jnp.maximum((share * x * x).sum(axes) - mean * mean, 0)
            for running, batch in ((running_mean, mean), (running_variance, variance)):
                running.value = BATCH_NORM_MOMENTUM * running.value + (1 - BATCH_NORM_MOMENTUM) * batch
        # One multiplication and one addition per entry, and as few in the gradient.
        slope = scale * lax.rsqrt(variance + BATCH_NORM_EPSILON)
        return x * slope + (bias - mean * slope)
