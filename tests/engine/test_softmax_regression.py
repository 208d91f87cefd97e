"""What the loops of softmax regression are made of; test_simulator.py compares the whole with the general program."""

import ctypes
import platform

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from clustpsi.engine.softmax_regression import _exp

GENERAL = np.concatenate(
    [
        -np.random.default_rng(0).exponential(10, 20_000).astype(np.float32),
        np.linspace(-105, 0, 20_000, dtype=np.float32),
        -(np.float32(2) ** np.arange(-140, 8, dtype=np.float32)),
    ]
)


@njit
def exps(x: NDArray[np.float32]) -> NDArray[np.float32]:
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = _exp(x[i])
    return out


def test_exp_is_the_nearest_number_or_the_one_next_to_it() -> None:
    ours, exact = exps(GENERAL), np.exp(GENERAL.astype(np.float64)).astype(np.float32)
    steps = np.abs(ours.view(np.int32) - exact.view(np.int32))
    assert steps.max() <= 1
    assert steps.mean() < 0.01


def test_exp_of_special_numbers() -> None:
    special = np.array([0, -0.0, -104, -1e30, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(exps(special), [1, 1, 0, 0, 0, np.nan])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries may round in other ways")
def test_exp_has_the_bits_of_the_c_library() -> None:
    expf = ctypes.CDLL("libm.so.6").expf
    expf.restype, expf.argtypes = ctypes.c_float, [ctypes.c_float]
    np.testing.assert_array_equal(exps(GENERAL), np.array([expf(x) for x in GENERAL.tolist()], np.float32))


def test_exp_uses_vector_registers() -> None:
    exps(GENERAL[:1])
    assembly = next(iter(exps.inspect_asm().values()))
    products = [line.split()[0] for line in assembly.splitlines() if "mul" in line]
    assert any(name.endswith("pd") or name.startswith("fmul") for name in products), products
