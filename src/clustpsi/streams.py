"""Random numbers: one independent stream per purpose, so that one use of random numbers never changes another."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Stream(IntEnum):
    """What a stream is for.  The numbers are part of every result: never change them."""

    SAMPLING = 2
    TRAINING = 3
    METHOD = 4
    HELD_OUT = 5
    SCORED = 6
    OWN_START = 7  # clients with a model of their own: initial models
    OWN_TASK = 8  # and what they draw in a task


def generator(seed: int, stream: Stream, *position: int) -> np.random.Generator:
    """The generator of a seed, a purpose and a position such as (round, client).

    >>> bool(generator(42, Stream.TRAINING, 3, 7).integers(100) == generator(42, Stream.TRAINING, 3, 7).integers(100))
    True
    """
    return np.random.default_rng((seed, int(stream), *position))


def raw_key(seed: int, stream: Stream, *position: int) -> NDArray[np.uint32]:
    """The bits of a JAX key for the same position."""
    return np.random.SeedSequence((seed, int(stream), *position)).generate_state(2, np.uint32).astype(np.uint32)
