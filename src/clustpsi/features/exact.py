"""Sums without rounding: they do not depend on the order in which parts are added."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Every finite double is a whole multiple of 2**-1074, and its square one of 2**-2148.
UNIT = 1074
HALF = 27  # bits of the lower part of a 53-bit mantissa, so that products of parts fit into 64 bits


def exact_sums(values: NDArray[Any]) -> tuple[int, int]:
    """The sum of finite numbers in units of 2**-1074, and that of their squares in units of 2**-2148.

    >>> exact_sums(np.array([1.5, -0.5])) == (2**1074, 5 * 2**2147)
    True
    """
    fractions, exponents = np.frexp(np.asarray(values, np.float64))
    mantissas = (fractions * 2.0**53).astype(np.int64)
    total = squares = 0
    for exponent in np.unique(exponents):
        own = mantissas[exponents == exponent]
        shift = UNIT + int(exponent) - 53
        total += _scaled(_sum(own), shift)
        size = np.abs(own)
        high, low = size >> HALF, size & (2**HALF - 1)
        of_squares = (_sum(high * high) << 2 * HALF) + (_sum(high * low) << HALF + 1) + _sum(low * low)
        squares += _scaled(of_squares, 2 * shift)
    return total, squares


def mean_and_deviation(number: int, total: int, squares: int) -> tuple[float, float]:
    """Mean and population standard deviation from the exact sums of ``number`` values, each rounded once.

    >>> mean_and_deviation(2, *exact_sums(np.array([1.0, 4.0])))
    (2.5, 1.5)
    """
    mean = Fraction(total, number << UNIT)
    variance = Fraction(number * squares - total * total, number * number << 2 * UNIT)
    return float(mean), _root(variance)


def _sum(values: NDArray[np.int64]) -> int:
    """The sum of 64-bit integers, which may itself need more bits."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _scaled(value: int, shift: int) -> int:
    # A shift to the right loses nothing: subnormal numbers have as many zeros at the end of their mantissas.
    return value << shift if shift >= 0 else value >> -shift


def _root(value: Fraction) -> float:
    """The square root of a fraction that may be too large or too small for a double."""
    if value == 0:
        return 0.0
    # Scale by an even power of two, so that the root of whole numbers has more than 53 bits.
    shift = max(0, 128 - value.numerator.bit_length() + value.denominator.bit_length())
    shift += shift % 2
    return math.ldexp(math.isqrt((value.numerator << shift) // value.denominator), -shift // 2)
