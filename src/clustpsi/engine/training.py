"""Local training: all epochs of a client, or of several clients side by side, in one compiled program."""

import functools
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from clustpsi.engine import adam
from clustpsi.engine.network import Network, as_vector
from clustpsi.errors import unknown_name
from clustpsi.models.layers import is_narrow


class Optimizer(NamedTuple):
    """Its state at the start, by parameters; and new parameters and state, by gradient, state and parameters."""

    start: Callable[[Any], Any]
    step: Callable[[Any, Any, Any], tuple[Any, Any]]


def _sgd(lr: float, gradient: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
    return jax.tree.map(lambda p, g: p - lr * g, parameters, gradient), state


OPTIMIZERS: dict[str, Callable[[float], Optimizer]] = {
    "adam": lambda lr: Optimizer(adam.start, functools.partial(adam.step, lr)),
    "sgd": lambda lr: Optimizer(lambda _: (), functools.partial(_sgd, lr)),
}

CPU_OPTIONS = {
    # Without it XLA copies parameters in every step instead of overwriting them: a sixth of the time of an MLP's step.
    "xla_cpu_copy_insertion_use_region_analysis": True,
    # Without it XLA drops the layers' optimization barriers before it decides what to fuse.
    "xla_disable_hlo_passes": "cse_barrier_expander",
}

# Finite, because -inf minus -inf is not a number; low enough that a class's probability and gradient are exactly 0.
NEVER = -1e30


def _rows(data: jax.Array, rows: jax.Array) -> jax.Array:
    """Rows that are known to exist: without the check a small model's step is a tenth shorter."""
    return data.at[rows].get(mode="promise_in_bounds")


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Loss of each row.  The label's logit is picked by comparison; indexing would give a slow gradient."""
    own = jnp.where(jnp.arange(logits.shape[-1]) == labels[..., None], logits, 0).sum(axis=-1)
    return jax.nn.logsumexp(logits, axis=-1) - own


@lru_cache
def make_optimizer(name: str, lr: float) -> Optimizer:
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name](lr)


Array = Any  # NumPy's on the way in, JAX's inside the program


class Job(NamedTuple):
    """One client's training, as arrays (with a leading axis if several run side by side).

    Attributes
    ----------
    parameters, buffers
        The initial values, as flat vectors.
    optimizer_state
        A flat vector, or one of size 0 for a fresh optimizer.
    order
        Rows of the data in the order in which they are visited, epoch by epoch, padded to a common length.
    size, epochs
        Rows per epoch, and epochs.
    key
        Raw bits of the key for dropout.
    proximal, anchor
        Strength and centre of the proximal term (ignored by the program without one).
    log_prior
        Added to the logits.
    logit_scale
        Factors of the logits before that (ignored by the program without them).
    trains
        1 for parameters that are trained and 0 for others (ignored by the program that trains all).
    """

    parameters: Array
    buffers: Array
    optimizer_state: Array
    order: Array
    size: Array
    epochs: Array
    key: Array
    proximal: Array
    anchor: Array
    log_prior: Array
    logit_scale: Array
    trains: Array


class Result(NamedTuple):
    parameters: Array
    buffers: Array
    optimizer_state: Array
    loss: Array


def _turned(tree: Any) -> Any:
    """As the loop carries it: narrow matrices as their transposes, in which products are faster."""
    return jax.tree.map(lambda array: array.T if is_narrow(array) else array, tree)


def _turned_back(tree: Any, like: Any) -> Any:
    return jax.tree.map(lambda array, given: array if array.shape == given.shape else array.T, tree, like)


@lru_cache
def local_training(
    network: Network,
    optimizer: Optimizer,
    batch_size: int,
    *,
    proximal: bool,
    keep_optimizer: bool,
    lanes: int,
    scaled: bool = False,
    partial: bool = False,
) -> Callable[[jax.Array, jax.Array, Job], Result]:
    """Compile the training of ``lanes`` clients at a time, once for all runs of the same kind.

    The number of steps is a run-time value, so that neither a client's size nor the number of epochs triggers another
    compilation.  The last batch of an epoch may be short: its missing rows are masked.  If it has a single row and the
    model has BatchNorm, it is left out, because BatchNorm cannot normalize a single row.
    """

    def train(features: jax.Array, labels: jax.Array, job: Job) -> Result:
        start = network.parameters_of(job.parameters)
        anchor = _turned(network.parameters_of(job.anchor)) if proximal else None
        trains = _turned(network.parameters_of(job.trains)) if partial else None
        fresh = optimizer.start(start)
        state = ravel_pytree(fresh)[1](job.optimizer_state) if keep_optimizer else fresh
        key = jax.random.wrap_key_data(job.key)
        last = job.size % batch_size
        alone = (last == 1) & (job.size > 1) & (network.num_buffers > 0)
        batches = jnp.maximum(job.size // batch_size + jnp.where((last == 0) | alone, 0, 1), 1)
        steps = jnp.where(job.size > 0, job.epochs * batches, 0)

        def step(carry):  # type: ignore[no-untyped-def]
            i, parameters, buffers, state, loss_sum, seen = carry
            epoch, batch = i // batches, i % batches
            rows = jax.lax.dynamic_slice(job.order, (epoch * job.size + batch * batch_size,), (batch_size,))
            count = jnp.minimum(batch_size, job.size - batch * batch_size)
            mask = jnp.arange(batch_size) < count
            x, y = _rows(features, rows), _rows(labels, rows)

            def objective(parameters):  # type: ignore[no-untyped-def]
                logits, updated = network.train(
                    _turned_back(parameters, start), buffers, x, mask, jax.random.fold_in(key, i)
                )
                logits = logits * job.logit_scale if scaled else logits
                losses = cross_entropy(logits + job.log_prior, y)
                return jnp.where(mask, losses, 0).sum() / count, updated

            (loss, updated), gradient = jax.value_and_grad(objective, has_aux=True)(parameters)
            if proximal:
                gradient = jax.tree.map(lambda g, p, a: g + job.proximal * (p - a), gradient, parameters, anchor)
            if partial:
                gradient = jax.tree.map(lambda g, share: g * share, gradient, trains)
            parameters, state = optimizer.step(gradient, state, parameters)
            return i + 1, parameters, updated, state, loss_sum + loss * count, seen + count

        carry = (
            *(jnp.int32(0), _turned(start), network.buffers_of(job.buffers)),
            *(_turned(state), jnp.float32(0), jnp.int32(0)),
        )
        _, parameters, buffers, state, loss_sum, seen = jax.lax.while_loop(lambda carry: carry[0] < steps, step, carry)
        kept = ravel_pytree(_turned_back(state, fresh))[0] if keep_optimizer else job.optimizer_state
        return Result(
            as_vector(_turned_back(parameters, start)), as_vector(buffers), kept, loss_sum / jnp.maximum(seen, 1)
        )

    def train_lanes(features: jax.Array, labels: jax.Array, jobs: Job) -> Result:
        if lanes == 1:  # without vmap, whose loop copies every carried array in every step instead of overwriting it
            result: Result = jax.tree.map(
                lambda a: a[None], train(features, labels, jax.tree.map(lambda a: a[0], jobs))
            )
            return result
        return jax.vmap(train, in_axes=(None, None, 0))(features, labels, jobs)

    return jax.jit(train_lanes, compiler_options=CPU_OPTIONS if jax.default_backend() == "cpu" else None)
