"""Numbers in vector registers; test_simulator.py compares what is made of them with the general program."""

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from clustpsi.engine.registers import (
    COPIED,
    ROWS,
    SUMMED,
    copy_columns,
    exponential,
    larger,
    load,
    load_eight,
    row_starts,
    smaller,
    start_of,
    store,
    store_sums,
    sum_of,
)

GENERAL = np.concatenate(
    [
        -np.random.default_rng(0).exponential(10, 20_000).astype(np.float32),
        np.linspace(-105, 0, 20_000, dtype=np.float32),
        -(np.float32(2) ** np.arange(-140, 8, dtype=np.float32)),
    ]
)
SPECIAL = np.array([0, -0.0, -104, -1e30, -np.inf, np.nan], np.float32)


@njit
def _exponentials(x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    for i in range(0, x.size, ROWS):
        store(start_of(out), i, exponential(load(start_of(x), i)))


def exponentials(x: NDArray[np.float32]) -> NDArray[np.float32]:
    out = np.zeros(-(-x.size // ROWS) * ROWS, np.float32)
    _exponentials(np.resize(x, out.size), out)
    return out[: x.size]


def test_the_exponential_is_the_nearest_number_or_the_one_next_to_it() -> None:
    ours, exact = exponentials(GENERAL), np.exp(GENERAL.astype(np.float64)).astype(np.float32)
    steps = np.abs(ours.view(np.int32) - exact.view(np.int32))
    assert steps.max() <= 1
    assert steps.mean() < 0.01


def test_the_exponential_of_special_numbers() -> None:
    np.testing.assert_array_equal(exponentials(SPECIAL), [1, 1, 0, 0, 0, np.nan])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries may round in other ways")
def test_the_exponential_has_the_bits_of_the_c_library() -> None:
    expf = ctypes.CDLL("libm.so.6").expf
    expf.restype, expf.argtypes = ctypes.c_float, [ctypes.c_float]
    np.testing.assert_array_equal(exponentials(GENERAL), np.array([expf(x) for x in GENERAL.tolist()], np.float32))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="compiles for a smaller x86 processor")
def test_a_processor_without_large_registers_gives_the_same_bits() -> None:
    program = """
import sys
import numpy as np
from llvmlite import binding

binding.get_host_cpu_features = dict
from test_registers import GENERAL, SPECIAL, exponentials
from clustpsi.engine import registers

assert not registers.PERMUTES
sys.stdout.buffer.write(exponentials(np.concatenate([GENERAL, SPECIAL])).tobytes())
"""
    smaller_cpu = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}
    there = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, env=os.environ | smaller_cpu, check=True,
        capture_output=True,
    )  # fmt: skip
    here = exponentials(np.concatenate([GENERAL, SPECIAL]))
    np.testing.assert_array_equal(np.frombuffer(there.stdout, np.float32), here)


@njit
def _extremes(x: NDArray[np.float32], y: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    a, b = load(start_of(x), 0), load(start_of(y), 0)
    store(start_of(out), 0, larger(a, b))
    store(start_of(out), ROWS, smaller(a, b))


def test_the_difference_of_extremes_is_not_a_number_if_one_of_them_is_not() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, ROWS)).astype(np.float32)
    x[3], y[5], x[7], y[7] = np.nan, np.nan, np.nan, np.nan
    out = np.empty(2 * ROWS, np.float32)
    _extremes(x, y, out)
    np.testing.assert_array_equal(out[ROWS:] - out[:ROWS], -np.abs(x - y))


@njit
def _sums(x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    first = start_of(x)
    for i in range(COPIED):
        out[i] = sum_of(load_eight(first, SUMMED * i))
    store_sums(
        start_of(out), COPIED, load_eight(first, 0), load_eight(first, SUMMED), load_eight(first, 2 * SUMMED),
        load_eight(first, 3 * SUMMED),
    )  # fmt: skip


def test_sums_are_those_of_halves_alone_and_four_at_a_time() -> None:
    x, out = np.random.default_rng(0).standard_normal((COPIED, SUMMED)).astype(np.float32), np.zeros(8, np.float32)
    _sums(x.ravel(), out)
    halves = x[:, :4] + x[:, 4:]
    quarters = halves[:, :2] + halves[:, 2:]
    np.testing.assert_array_equal(out, np.tile(quarters[:, 0] + quarters[:, 1], 2))


@njit
def _columns(
    table: NDArray[np.float32], rows: NDArray[np.int32], starts: NDArray[np.int64], out: NDArray[np.float32]
) -> None:
    row_starts(start_of(rows), 1, table.shape[1], start_of(starts))
    for f in range(0, table.shape[1], COPIED):
        copy_columns(start_of(starts), start_of(table), f, start_of(out), f * (ROWS + 3) + 2, ROWS + 3)


def test_columns_are_those_of_the_rows_that_are_named() -> None:
    rng = np.random.default_rng(0)
    table, rows = rng.standard_normal((50, 2 * COPIED)).astype(np.float32), rng.integers(0, 50, ROWS + 1, np.int32)
    out = np.zeros((2 * COPIED, ROWS + 3), np.float32)
    _columns(table, rows, np.empty(ROWS, np.int64), out.ravel())
    np.testing.assert_array_equal(out[:, 2 : 2 + ROWS], table[rows[1:]].T)
    assert not out[:, :2].any() and not out[:, 2 + ROWS :].any()
