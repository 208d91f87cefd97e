"""Streams of chance: results that landed depend on these very bits."""

import itertools

import numpy as np
import pytest

from clustpsi.streams import Stream, generator, raw_key


def test_the_numbers_of_the_streams_never_change() -> None:
    assert {stream.name: int(stream) for stream in Stream} == {
        "SAMPLING": 2,
        "TRAINING": 3,
        "METHOD": 4,
        "HELD_OUT": 5,
        "SCORED": 6,
        "OWN_START": 7,
        "OWN_TASK": 8,
    }


def test_the_bits_of_a_position_never_change() -> None:
    drawn = generator(42, Stream.TRAINING, 3, 7)
    assert drawn.integers(2**32, size=3).tolist() == [1644438210, 1520603603, 2449572839]
    assert drawn.permutation(6).tolist() == [4, 1, 5, 2, 0, 3]
    assert generator(42, Stream.SAMPLING, 3).integers(2**32, size=2).tolist() == [1096998077, 106292246]
    assert raw_key(42, Stream.TRAINING, 3, 7).tolist() == [97410844, 1570564402]


@pytest.mark.parametrize("bits", [raw_key, lambda *place: generator(*place).integers(2**32, size=2)])
def test_every_seed_purpose_round_and_client_has_bits_of_its_own(bits) -> None:  # type: ignore[no-untyped-def]
    places = [
        (seed, stream, *position)
        for seed, stream in itertools.product((0, 1, 42), Stream)
        for position in [(), *itertools.product(range(3)), *itertools.product(range(3), range(3))]
    ]
    # NumPy takes (1, 2) and (1, 2, 0) for the same seed; a purpose always has positions of the same length.
    for length in (2, 3, 4):
        same_length = [place for place in places if len(place) == length]
        drawn = {tuple(np.asarray(bits(*place)).tolist()) for place in same_length}
        assert len(drawn) == len(same_length)
