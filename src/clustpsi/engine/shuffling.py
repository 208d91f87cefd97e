"""The order in which a client visits its rows: shuffled anew in each epoch.

The order has the bits of ``numpy.random.Generator.shuffle``, epoch after epoch.  For the smallest model NumPy's shuffle
would take a third of the training: it draws a number again if it is too large, and the processor often guesses wrong
whether it is.  Here a number that is too large is overwritten, which needs no guess, and rows are exchanged once all
numbers are drawn (docs/benchmarks.md).
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

# The generator PCG64 (O'Neill 2014, pcg-random.org): a state of 128 bits that is multiplied by this, in two halves.
MULTIPLIER_HIGH, MULTIPLIER_LOW = np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645)
HALF = np.uint64(32)  # of a word's bits
LOW_HALF = np.uint64(2**32 - 1)

_compiled = njit(nogil=True, cache=True)


def shuffled_epochs(rows: NDArray[np.int64], epochs: int, rng: np.random.Generator, out: NDArray[np.int32]) -> None:
    """Write the rows of each epoch, reshuffled, one epoch after the other, from the start of ``out``.

    Parameters
    ----------
    rng
        Of a seed and nothing else: it has drawn nothing.  It is read and stays as it is.
    """
    drawn = rng.bit_generator.state
    assert drawn["bit_generator"] == "PCG64" and not drawn["has_uint32"]
    words = [drawn["state"][name] >> 64 * (1 - i) & 2**64 - 1 for name in ("state", "inc") for i in range(2)]
    _shuffle(rows.astype(np.int32), epochs, np.array(words, np.uint64), out)


def _write_high_product(_: Any, a: Any, b: Any) -> Any:
    """The upper half of a product of two words, which Numba has no type for."""

    def write(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> ir.Value:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), write


_high_product: Any = intrinsic(_write_high_product)


@_compiled
def _drawn(high, low, high_step, low_step):  # type: ignore[no-untyped-def]
    """The next word of PCG64, and its state after it."""
    high = high * MULTIPLIER_LOW + low * MULTIPLIER_HIGH + _high_product(low, MULTIPLIER_LOW) + high_step
    low = low * MULTIPLIER_LOW + low_step
    high += np.uint64(low < low_step)
    mixed, rotation = high ^ low, high >> np.uint64(58)
    return (mixed >> rotation) | (mixed << (-rotation & np.uint64(63))), high, low


@_compiled
def _shuffle(shuffled, epochs, state, out):  # type: ignore[no-untyped-def]
    """The algorithm of Fisher and Yates, with NumPy's way to draw a number that is at most ``last``.

    As many bits are drawn as ``last`` has, again and again until the number is small enough: the lower half of each
    word, and then its upper half.
    """
    size = shuffled.size
    partners = np.empty(size, np.int32)
    high, low, high_step, low_step = state
    upper, is_left = np.int64(0), False
    for epoch in range(epochs):
        last, mask = size - 1, np.int64(1)
        while mask < last:
            mask = 2 * mask + 1
        while last > 0:
            while last > mask >> 1:  # all that need as many bits
                if is_left or last - 1 == mask >> 1:  # the next half may be the last with so many bits
                    if is_left:
                        number = upper
                    else:
                        word, high, low = _drawn(high, low, high_step, low_step)
                        number, upper = np.int64(word & LOW_HALF), np.int64(word >> HALF)
                    is_left = not is_left
                    partners[last] = number & mask  # if it is too large, the next one goes to the same place
                    last -= np.int64(number & mask <= last)
                    continue
                word, high, low = _drawn(high, low, high_step, low_step)
                number = np.int64(word & LOW_HALF) & mask
                partners[last] = number
                last -= np.int64(number <= last)
                number = np.int64(word >> HALF) & mask
                partners[last] = number
                last -= np.int64(number <= last)
            mask >>= 1
        for i in range(size - 1, 0, -1):
            partner = partners[i]
            shuffled[i], shuffled[partner] = shuffled[partner], shuffled[i]
        out[epoch * size : (epoch + 1) * size] = shuffled
