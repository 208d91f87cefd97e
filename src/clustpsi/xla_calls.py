"""Loops that Numba compiles, called from inside XLA's programs.

A loop is registered under a name, by which ``jax.ffi.ffi_call`` finds it.  XLA calls it with the address of a
structure (xla/ffi/api/c_api.h), of which this module knows what is needed.  Numba keeps compiled loops by the file that
they stand in: after a change here, those that use it must be compiled anew (remove ``__pycache__``).
"""

import ctypes
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numba import carray, cfunc, njit, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

# Words (of 8 bytes) of the structures.
EXTENSION, API, ARGUMENTS, RESULT_COUNT, RESULTS = 1, 2, 9, 12, 14  # of the call
DATA, RANK, LENGTHS = 3, 4, 5  # of an array
METADATA, VERSION_IN_METADATA, VERSION_IN_API = 3, 3, 4
OLDEST = 1 << 32  # version 0.1 of the interface, that of JAX 0.7, which does not say its own when it asks for ours

#: Decorates a function of the structure's address that returns 0.
called_by_xla = cfunc(types.int64(types.voidptr), cache=True)


def register(name: str, function: Any) -> None:
    """Have XLA find a function under a name."""
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    jax.ffi.register_ffi_target(name, capsule(function.address, None, None), platform="cpu")


def called(function: Any, shapes: list[Any], *arguments: jax.Array) -> Any:
    """The results of a function that :data:`called_by_xla` has compiled.

    They are floats in these shapes, or what is given instead of a shape.
    """
    name = _registered(function)
    results: list[Any] = [
        jax.eval_shape(partial(jnp.zeros, shape)) if isinstance(shape, tuple) else shape for shape in shapes
    ]
    return jax.ffi.ffi_call(name, results, vmap_method="sequential")(*arguments)


@lru_cache
def _registered(function: Any) -> str:
    """The name under which XLA finds a function: where it stands."""
    name = f"{function.__wrapped__.__module__}.{function.__wrapped__.__name__}"
    register(name, function)
    return name


def _as_pointer(_, address):  # type: ignore[no-untyped-def]
    """A number as a pointer, which Numba's own functions do not make."""
    return types.voidptr(address), lambda _, builder, __, values: builder.inttoptr(values[0], cgutils.voidptr_t)


_pointer: Any = intrinsic(_as_pointer)


@njit
def words(address, number):  # type: ignore[no-untyped-def]
    return carray(_pointer(address), number, np.int64)


@njit
def structure(call):  # type: ignore[no-untyped-def]
    """What XLA calls with, as words."""
    return carray(call, 16, np.int64)


@njit
def asks_for_version(call):  # type: ignore[no-untyped-def]
    """Whether XLA asks for which version of its interface this was made; it is told: what is read here is in all."""
    if call[EXTENSION]:
        metadata = words(words(call[EXTENSION], 4)[METADATA], 4)
        metadata[VERSION_IN_METADATA] = words(call[API], 5)[VERSION_IN_API] if call[API] else OLDEST
        return True
    return False


@njit
def lengths(array):  # type: ignore[no-untyped-def]
    """Of the axes of one of XLA's arrays."""
    array = words(array, 6)
    return words(array[LENGTHS], array[RANK])


@njit
def address(array):  # type: ignore[no-untyped-def]
    """Of the first number of one of XLA's arrays."""
    return words(array, 6)[DATA]


@njit
def floats(array):  # type: ignore[no-untyped-def]
    """One of XLA's arrays, flat."""
    size = 1
    for length in lengths(array):
        size *= length
    return carray(_pointer(address(array)), size, np.float32)
