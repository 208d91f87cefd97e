"""Models for tables: logistic regression and a multilayer perceptron."""

import jax
from flax import linen as nn

from clustpsi.models.layers import Dense


class Logistic(nn.Module):
    """A single fully connected layer: multinomial logistic regression (the paper's ACSIncome model)."""

    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        return Dense(self.num_classes)(x.reshape(x.shape[0], -1))


class MLP(nn.Module):
    """Three hidden layers of 500 ReLU units (the paper's Serengeti model)."""

    num_classes: int
    width: int = 500
    depth: int = 3

    @nn.compact
    def __call__(self, x: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        x = x.reshape(x.shape[0], -1)
        for _ in range(self.depth):
            x = nn.relu(Dense(self.width)(x))
        return Dense(self.num_classes)(x)
