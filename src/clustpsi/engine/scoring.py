"""Scoring: predicted class, loss and class probabilities of rows."""

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp

from clustpsi.engine.network import Network
from clustpsi.engine.training import cross_entropy


@lru_cache
def row_scores(network: Network) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Compile the scoring of a batch: predicted class and loss of each row.

    For each row of the batch, ``scale`` has a factor of its logits, and ``log_prior`` has what is then added to them.
    A scale of 0 omits the logits, whatever they are.
    """

    def score(
        features: jax.Array,
        labels: jax.Array,
        parameters: jax.Array,
        buffers: jax.Array,
        rows: jax.Array,
        scale: jax.Array,
        log_prior: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        logits = _read(network, parameters, buffers, features[rows], scale, log_prior)
        return jnp.argmax(logits, axis=-1), cross_entropy(logits, labels[rows])

    return jax.jit(score)


@lru_cache
def row_probabilities(network: Network) -> Callable[..., jax.Array]:
    """Compile the class probabilities of a batch of rows; ``scale`` and ``log_prior`` as in :func:`row_scores`."""

    def probabilities(
        features: jax.Array, parameters: jax.Array, buffers: jax.Array, scale: jax.Array, log_prior: jax.Array
    ) -> jax.Array:
        return jax.nn.softmax(_read(network, parameters, buffers, features, scale, log_prior))

    return jax.jit(probabilities)


@lru_cache
def row_logits(network: Network) -> Callable[..., jax.Array]:
    """Compile the logits of a batch of rows."""

    def logits(features: jax.Array, parameters: jax.Array, buffers: jax.Array, rows: jax.Array) -> jax.Array:
        return network.evaluate(network.parameters_of(parameters), network.buffers_of(buffers), features[rows])

    return jax.jit(logits)


def _read(
    network: Network,
    parameters: jax.Array,
    buffers: jax.Array,
    features: jax.Array,
    scale: jax.Array,
    log_prior: jax.Array,
) -> jax.Array:
    """Logits as the client uses them: scaled, with the prior added."""
    logits = network.evaluate(network.parameters_of(parameters), network.buffers_of(buffers), features)
    return jnp.where(scale[:, None] == 0, 0, logits * scale[:, None]) + log_prior
