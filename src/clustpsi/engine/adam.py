"""Adam as one pass over parameters and moments.

XLA makes three loops of it on the CPU, one for each of its results, which takes about twice as long: the processor
divides while memory waits, and waits for memory while it could divide (docs/benchmarks.md).  There, a loop that Numba
compiles is called from inside XLA's program instead.
"""

from functools import lru_cache
from math import sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numba import njit

from clustpsi.xla_calls import (
    ARGUMENTS,
    RESULT_COUNT,
    RESULTS,
    asks_for_version,
    called_by_xla,
    floats,
    register,
    structure,
    words,
)

ADAM = {"b1": 0.9, "b2": 0.999, "eps": 1e-8}
B1, B2 = np.float32(ADAM["b1"]), np.float32(ADAM["b2"])
REST1, REST2 = np.float32(1 - ADAM["b1"]), np.float32(1 - ADAM["b2"])

Tree = Any  # of arrays
TARGET = "clustpsi_adam"


class State(NamedTuple):
    """Steps taken, and both moments of the gradient; flattened in this order by those that keep it."""

    steps: jax.Array
    first: Tree
    second: Tree


def start(parameters: Tree) -> State:
    first, second = (jax.tree.map(jnp.zeros_like, parameters) for _ in range(2))
    return State(jnp.zeros([], jnp.int32), first, second)


def step(lr: float, gradient: Tree, state: State, parameters: Tree) -> tuple[Tree, State]:
    """New parameters and state.  Both bias corrections are two scalars: one division per entry instead of three."""
    steps = state.steps + 1
    root = jnp.sqrt(1 - ADAM["b2"] ** steps)
    slope, eps = -lr * root / (1 - ADAM["b1"] ** steps), ADAM["eps"] * root
    update = _compiled_update if jax.default_backend() == "cpu" else _update
    parameters, first, second = update(parameters, state.first, state.second, gradient, slope, eps)
    return parameters, State(steps, first, second)


def _update(
    parameters: Tree, first: Tree, second: Tree, gradient: Tree, slope: jax.Array, eps: jax.Array
) -> tuple[Tree, Tree, Tree]:
    first = jax.tree.map(lambda m, g: B1 * m + REST1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: B2 * v + REST2 * g * g, second, gradient)
    parameters = jax.tree.map(lambda p, m, v: p + slope * m / (jnp.sqrt(v) + eps), parameters, first, second)
    return parameters, first, second


def _compiled_update(
    parameters: Tree, first: Tree, second: Tree, gradient: Tree, slope: jax.Array, eps: jax.Array
) -> tuple[Tree, Tree, Tree]:
    """All arrays in one call, which overwrites all but the gradient."""
    _register()
    overwritten, structure = jax.tree.flatten((parameters, first, second))
    results: list[Any] = jax.eval_shape(lambda: overwritten)
    aliases = {i: i for i in range(len(results))}
    call = jax.ffi.ffi_call(TARGET, results, input_output_aliases=aliases, vmap_method="broadcast_all")
    updated = call(*overwritten, *jax.tree.leaves(gradient), slope, eps)
    parameters, first, second = jax.tree.unflatten(structure, updated)
    return parameters, first, second


@lru_cache
def _register() -> None:
    register(TARGET, _adam)


# ------------------------------------------------------------------------------------------------ what Numba compiles


@njit(error_model="numpy", fastmath={"contract"})  # a check of the divisor would keep it from using vector registers
def _pass(parameters, first, second, gradient, slope, eps):  # type: ignore[no-untyped-def]
    for i in range(parameters.size):
        g = gradient[i]
        m = B1 * first[i] + REST1 * g
        v = B2 * second[i] + REST2 * g * g
        first[i], second[i] = m, v
        parameters[i] += slope * m / (sqrt(v) + eps)


@called_by_xla
def _adam(call):  # type: ignore[no-untyped-def]
    """Results are where the first arguments were: parameters, first and second moments; then gradient, slope, eps.

    Models side by side come with a slope and an epsilon each.
    """
    call = structure(call)
    if asks_for_version(call):
        return 0
    number = call[RESULT_COUNT] // 3
    results, arguments = words(call[RESULTS], 3 * number), words(call[ARGUMENTS], 4 * number + 2)
    slope, eps = floats(arguments[4 * number]), floats(arguments[4 * number + 1])
    for i in range(number):
        parameters, first = floats(results[i]), floats(results[number + i])
        second, gradient = floats(results[2 * number + i]), floats(arguments[3 * number + i])
        size = parameters.size // slope.size
        for j in range(slope.size):
            own = slice(j * size, (j + 1) * size)
            _pass(parameters[own], first[own], second[own], gradient[own], slope[j], eps[j])
    return 0
