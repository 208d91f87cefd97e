"""Adam as one pass over parameters and moments.

XLA makes three loops of it on the CPU, one for each of its results, which takes about twice as long: the processor
divides while memory waits, and waits for memory while it could divide (docs/benchmarks.md).  There, a loop that Numba
compiles is called from inside XLA's program instead.
"""

import ctypes
from functools import lru_cache
from math import sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numba import carray, cfunc, njit, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

ADAM = {"b1": 0.9, "b2": 0.999, "eps": 1e-8}
B1, B2 = np.float32(ADAM["b1"]), np.float32(ADAM["b2"])
REST1, REST2 = np.float32(1 - ADAM["b1"]), np.float32(1 - ADAM["b2"])

Tree = Any  # of arrays
TARGET = "clustpsi_adam"

# Words (of 8 bytes) of the structures with which XLA calls other programs, xla/ffi/api/c_api.h.
EXTENSION, API, ARGUMENTS, RESULTS, RESULT_COUNT = 1, 2, 9, 14, 12  # of the call
DATA, RANK, LENGTHS = 3, 4, 5  # of an array
METADATA, VERSION_IN_METADATA, VERSION_IN_API = 3, 3, 4
OLDEST = 1 << 32  # version 0.1 of the interface, that of JAX 0.7, which does not say its own when it asks for ours


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
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    jax.ffi.register_ffi_target(TARGET, capsule(_called_by_xla.address, None, None), platform="cpu")


# ------------------------------------------------------------------------------------------------ what Numba compiles


def _as_pointer(_, address):  # type: ignore[no-untyped-def]
    """A number as a pointer, which Numba's own functions do not make."""
    return types.voidptr(address), lambda _, builder, __, values: builder.inttoptr(values[0], cgutils.voidptr_t)


_pointer: Any = intrinsic(_as_pointer)


@njit
def _words(address, number):  # type: ignore[no-untyped-def]
    return carray(_pointer(address), number, np.int64)


@njit
def _floats(array):  # type: ignore[no-untyped-def]
    """One of XLA's arrays, flat."""
    words, size = _words(array, 6), 1
    for length in _words(words[LENGTHS], words[RANK]):
        size *= length
    return carray(_pointer(words[DATA]), size, np.float32)


@njit(error_model="numpy", fastmath={"contract"})  # a check of the divisor would keep it from using vector registers
def _pass(parameters, first, second, gradient, slope, eps):  # type: ignore[no-untyped-def]
    for i in range(parameters.size):
        g = gradient[i]
        m = B1 * first[i] + REST1 * g
        v = B2 * second[i] + REST2 * g * g
        first[i], second[i] = m, v
        parameters[i] += slope * m / (sqrt(v) + eps)


@cfunc(types.int64(types.voidptr), cache=True)
def _called_by_xla(call):  # type: ignore[no-untyped-def]
    """Results are where the first arguments were: parameters, first and second moments; then gradient, slope, eps.

    Models side by side come with a slope and an epsilon each.
    """
    call = carray(call, 16, np.int64)
    if call[EXTENSION]:  # XLA asks for which version of its interface this was made: what is read here is in all
        metadata = _words(_words(call[EXTENSION], 4)[METADATA], 4)
        metadata[VERSION_IN_METADATA] = _words(call[API], 5)[VERSION_IN_API] if call[API] else OLDEST
        return 0
    number = call[RESULT_COUNT] // 3
    results, arguments = _words(call[RESULTS], 3 * number), _words(call[ARGUMENTS], 4 * number + 2)
    slope, eps = _floats(arguments[4 * number]), _floats(arguments[4 * number + 1])
    for i in range(number):
        parameters, first = _floats(results[i]), _floats(results[number + i])
        second, gradient = _floats(results[2 * number + i]), _floats(arguments[3 * number + i])
        size = parameters.size // slope.size
        for j in range(slope.size):
            own = slice(j * size, (j + 1) * size)
            _pass(parameters[own], first[own], second[own], gradient[own], slope[j], eps[j])
    return 0
