"""Models for images: the paper's small network for FMNIST and its deeper one for CIFAR-10."""

import jax
from flax import linen as nn

from clustpsi.errors import ClustPSIError
from clustpsi.models.layers import BatchNorm, Conv, Dense, Dropout, framed, max_pool, pixels, unframed


class FMNISTCNN(nn.Module):
    """Three convolutional stages with 8, 16 and 32 maps, a dense layer of 2048 ReLU units, a classifier."""

    num_classes: int
    maps: tuple[int, ...] = (8, 16, 32)
    width: int = 2048

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        x = pixels(x)
        _check_size(x, len(self.maps))
        rows, x = len(x), framed(x)
        for maps in self.maps:
            x = Conv(maps, pooled=True)(x)
        x = nn.relu(Dense(self.width)(unframed(x, rows)))
        return Dense(self.num_classes)(x)


class CIFARCNN(nn.Module):
    """Three blocks of two convolutions with BatchNorm, pooling and dropout; a dense layer of 128, a classifier.

    ``forms`` are those of the convolutions; none: the usual ones.
    """

    num_classes: int
    blocks: tuple[tuple[int, float], ...] = ((32, 0.2), (64, 0.3), (128, 0.4))
    width: int = 128
    dropout: float = 0.5
    forms: tuple[str, ...] = ()

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        x = pixels(x)
        _check_size(x, len(self.blocks))
        forms = iter(self.forms)
        for filters, rate in self.blocks:
            for _ in range(2):
                x = BatchNorm()(nn.relu(Conv(filters, form=next(forms, None))(x)), train, mask)
            x = Dropout(rate)(max_pool(x), train)
        x = nn.relu(Dense(self.width)(x.reshape(x.shape[0], -1)))
        x = Dropout(self.dropout)(BatchNorm()(x, train, mask), train)
        return Dense(self.num_classes)(x)


def _check_size(x: jax.Array, poolings: int) -> None:
    if x.ndim != 4:
        raise ClustPSIError(
            f"this model takes images (height, width) or (height, width, channels), not rows of shape {x.shape[1:]}: "
            "'mlp' and 'logistic' take any numbers"
        )
    if min(x.shape[1:3]) < 2**poolings:
        raise ClustPSIError(
            f"images of {x.shape[1]} x {x.shape[2]} pixels are too small for {poolings} poolings: "
            f"at least {2**poolings} x {2**poolings} are needed"
        )
