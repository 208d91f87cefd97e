"""Scoring: whether a model classifies rows correctly, and with what loss."""

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import optax

from clustpsi.engine.network import Network


@lru_cache
def row_scores(network: Network) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Compile the scoring of a batch of rows: (correct, loss) of each.

    ``log_prior`` has a line for each row, added to its logits.
    """

    def score(
        features: jax.Array,
        labels: jax.Array,
        parameters: jax.Array,
        buffers: jax.Array,
        rows: jax.Array,
        log_prior: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        logits = network.evaluate(network.parameters_of(parameters), network.buffers_of(buffers), features[rows])
        logits = logits + log_prior
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels[rows])
        return jnp.argmax(logits, axis=-1) == labels[rows], losses

    return jax.jit(score)
