"""The order of visits has the bits of NumPy's own shuffle."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clustpsi.engine.shuffling import shuffled_epochs


@given(st.integers(1, 3000), st.integers(0, 4), st.integers(0, 2**63))
@example(1, 3, 0)
@example(70_000, 2, 7)  # rows whose numbers have more than 16 bits
def test_epochs_are_numpys_one_after_the_other(size: int, epochs: int, seed: int) -> None:
    rows = np.arange(size)[::-1] + 10_000
    expected, rng = [rows.copy()], np.random.default_rng(seed)
    for _ in range(epochs):
        expected.append(expected[-1].copy())
        rng.shuffle(expected[-1])
    out = np.full((epochs + 1) * size, -1, np.int32)
    shuffled_epochs(rows, epochs, np.random.default_rng(seed), out)
    np.testing.assert_array_equal(out[: epochs * size], np.concatenate([np.empty(0, np.int64), *expected[1:]]))
    assert (out[epochs * size :] == -1).all() and (np.diff(rows) == -1).all()  # neither the rest nor the rows


def test_a_generator_that_has_drawn_half_a_word_is_refused() -> None:
    rng = np.random.default_rng(1)
    rng.integers(5, dtype=np.uint32)
    with pytest.raises(AssertionError):
        shuffled_epochs(np.arange(3), 1, rng, np.zeros(3, np.int32))
