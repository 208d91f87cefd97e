"""Scoring: which class a model takes rows for, and with what loss."""

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp

from clustpsi.engine.network import Network
from clustpsi.engine.training import cross_entropy


@lru_cache
def row_scores(network: Network) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Compile the scoring of a batch of rows: (predicted class, loss) of each.

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
        return jnp.argmax(logits, axis=-1), cross_entropy(logits, labels[rows])

    return jax.jit(score)
