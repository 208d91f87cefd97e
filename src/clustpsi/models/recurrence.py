"""The recurrence of an LSTM.

Each word's step needs the one before and is so short that XLA would spend most of its time between operations.  So on
the CPU all steps are one loop that Numba compiles, forward and backward.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numba import njit

from clustpsi.models.vectors import BYTES, COLUMNS, ROWS, filled, product
from clustpsi.xla_calls import (
    ARGUMENTS,
    RESULTS,
    asks_for_version,
    called,
    called_by_xla,
    floats,
    lengths,
    structure,
    words,
)

# The hyperbolic tangent as a fraction of two polynomials, for numbers up to LARGEST: beyond, it is 1 in single
# precision.  The coefficients, of the powers 1, 3, ... and 0, 2, ..., are those of the library Eigen.
LARGEST = np.float32(7.99881172180175781)
N1, N3, N5, N7, N9, N11, N13 = (
    np.float32(each)
    for each in (
        *(4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08),
        *(-8.60467152213735e-11, 2.00018790482477e-13, -2.76076847742355e-16),
    )
)
D0, D2, D4, D6 = (
    np.float32(each)
    for each in (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06)
)
ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)


def last_state(inputs: jax.Array, is_word: jax.Array, recurrent: jax.Array, kept: jax.Array) -> jax.Array:
    """The hidden state of an LSTM after the last word, (units, rows).

    Parameters
    ----------
    inputs
        What the words contribute to the gates (in, forget, candidate, out): length, 4 * units, rows.
    is_word
        Whether there is a word, or padding, which changes nothing: length, rows.
    recurrent
        The state's weights: units, 4 * units.
    kept
        The state's dropout mask: units, rows.
    """
    if jax.default_backend() != "cpu":
        return _step_by_step(inputs, is_word, recurrent, kept)
    rows = inputs.shape[2]
    inputs, is_word, kept = (filled(each, COLUMNS) for each in (inputs, is_word, kept))
    there = jnp.broadcast_to(is_word[:, None], (len(inputs), *kept.shape)).astype(jnp.float32)
    return _in_one_loop(inputs, there, recurrent, kept)[:, :rows]


def _step_by_step(inputs: jax.Array, is_word: jax.Array, recurrent: jax.Array, kept: jax.Array) -> jax.Array:
    def step(state: tuple[jax.Array, jax.Array], word: tuple[jax.Array, jax.Array]) -> Any:
        hidden, cell = state
        contribution, is_word = word
        into, forget, candidate, out = jnp.split(contribution + recurrent.T @ (hidden * kept), 4)
        after = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(into) * jnp.tanh(candidate)
        hidden = jnp.where(is_word, jax.nn.sigmoid(out) * jnp.tanh(after), hidden)
        return (hidden, jnp.where(is_word, after, cell)), None

    zero = jnp.zeros_like(kept)
    (hidden, _), _ = lax.scan(step, (zero, zero), (inputs, is_word))
    return hidden


@jax.custom_vjp
def _in_one_loop(inputs: jax.Array, there: jax.Array, recurrent: jax.Array, kept: jax.Array) -> jax.Array:
    """Like :func:`last_state`, for rows that fill vector registers; ``there`` is ``is_word`` for each unit."""
    return _forward(inputs, there, recurrent, kept)[0]


def _forward(
    inputs: jax.Array, there: jax.Array, recurrent: jax.Array, kept: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    shapes = [inputs.shape, *[there.shape] * 3]
    opened, hidden, cell, squashed = called(_all_words, shapes, inputs, there, recurrent, kept)
    return hidden[-1], (there, recurrent, kept, opened, hidden, cell, squashed)


def _backward(values: tuple[jax.Array, ...], to_hidden: jax.Array) -> Any:
    """From the last word to the first; then the gradient of the weights, as one product for all words."""
    there, recurrent, kept, opened, hidden, cell, squashed = values
    arguments = there, recurrent, kept, opened, cell, squashed, to_hidden
    (to_inputs,) = called(_all_words_backward, [opened.shape], *arguments)
    before = jnp.pad(hidden[:-1], ((1, 0), (0, 0), (0, 0))) * kept
    to_recurrent = jnp.einsum("lur,lgr->ug", before, to_inputs)
    return to_inputs, None, to_recurrent, None


_in_one_loop.defvjp(_forward, _backward)


# ----------------------------------------------------------------------------------------------- what Numba compiles

_loop = njit(error_model="numpy", fastmath={"contract"})  # a check of the divisor would keep it from vector registers


@_loop
def _tanh(x):  # type: ignore[no-untyped-def]
    x = LARGEST if x > LARGEST else x  # which leaves NaN what it is
    x = -LARGEST if x < -LARGEST else x
    s = x * x
    numerator = x * (N1 + s * (N3 + s * (N5 + s * (N7 + s * (N9 + s * (N11 + s * N13))))))
    return numerator / (D0 + s * (D2 + s * (D4 + s * D6)))


@_loop
def _gates(opened, of_gate):  # type: ignore[no-untyped-def]
    return opened[:of_gate], opened[of_gate : 2 * of_gate], opened[2 * of_gate : 3 * of_gate], opened[3 * of_gate :]


@_loop
def _squashed(contribution, from_state, to):  # type: ignore[no-untyped-def]
    for i in range(to.size):
        to[i] = _tanh(contribution[i] + from_state[i])


@_loop
def _opened(contribution, from_state, to):  # type: ignore[no-untyped-def]
    for i in range(to.size):
        to[i] = HALF * _tanh(HALF * (contribution[i] + from_state[i])) + HALF  # the sigmoid


@_loop
def _open(contribution, from_state, opened, of_gate):  # type: ignore[no-untyped-def]
    """The gates of a word."""
    candidate = 2 * of_gate
    out = candidate + of_gate
    _opened(contribution[:candidate], from_state, opened[:candidate])
    _squashed(contribution[candidate:out], from_state[candidate:out], opened[candidate:out])
    _opened(contribution[out:], from_state[out:], opened[out:])


@_loop
def _advance(opened, there, kept, before, cell_before, hidden, cell, squashed, dropped):  # type: ignore[no-untyped-def]
    into, forget, candidate, out = _gates(opened, there.size)
    for i in range(there.size):
        after = forget[i] * cell_before[i] + into[i] * candidate[i]
        cell[i] = after if there[i] > 0 else cell_before[i]
    for i in range(there.size):
        squashed[i] = _tanh(cell[i])
    for i in range(there.size):
        hidden[i] = out[i] * squashed[i] if there[i] > 0 else before[i]
    for i in range(there.size):
        dropped[i] = hidden[i] * kept[i]


@_loop
def _padded(recurrent, lines, columns):  # type: ignore[no-untyped-def]
    """The weights with zeros around them."""
    weights = np.zeros((lines, columns), np.float32)
    weights[: len(recurrent), : recurrent.shape[1]] = recurrent
    return weights


@called_by_xla
def _all_words(call):  # type: ignore[no-untyped-def]
    """From what :func:`_forward` takes: opened gates, hidden state, cell and its hyperbolic tangent after each word."""
    call = structure(call)
    if asks_for_version(call):
        return 0
    arguments, given = words(call[ARGUMENTS], 4), words(call[RESULTS], 4)
    length, units, rows = lengths(arguments[1])
    gates, size = 4 * units, units * rows
    inputs, there = floats(arguments[0]).reshape(length, 4 * size), floats(arguments[1]).reshape(length, size)
    recurrent, kept = floats(arguments[2]).reshape(units, gates), floats(arguments[3])
    opened, hidden = floats(given[0]).reshape(length, 4 * size), floats(given[1]).reshape(length, size)
    cell, squashed = floats(given[2]).reshape(length, size), floats(given[3]).reshape(length, size)
    lines = (gates + ROWS - 1) // ROWS * ROWS
    weights = _padded(recurrent, units, lines)
    from_state, dropped, zero = (
        np.zeros(lines * rows, np.float32),
        np.empty(size, np.float32),
        np.zeros(size, np.float32),
    )
    for i in range(length):
        before, cell_before = (hidden[i - 1], cell[i - 1]) if i else (zero, zero)
        _open(inputs[i], from_state, opened[i], size)
        _advance(opened[i], there[i], kept, before, cell_before, hidden[i], cell[i], squashed[i], dropped)
        a, b, total = weights.ctypes.data, dropped.ctypes.data, from_state.ctypes.data
        product(a, BYTES, BYTES * lines, b, total, lines, rows, units, 0)
    return 0


@_loop
def _back(opened, there, cell_before, squashed, to_hidden, to_cell, to_gates):  # type: ignore[no-untyped-def]
    """Gradients of a word's gates; the cell's becomes that of the word before.

    Many loops, because the compiler uses vector registers only where it can tell few arrays apart.
    """
    size = there.size
    into, forget, candidate, out = _gates(opened, size)
    to_into, to_forget, to_candidate, to_out = _gates(to_gates, size)
    of_cell = to_out  # until that is known
    for i in range(size):
        own = to_cell[i] + to_hidden[i] * out[i] * (ONE - squashed[i] * squashed[i])
        of_cell[i] = own if there[i] > 0 else ZERO
    for i in range(size):
        to_into[i] = of_cell[i] * candidate[i] * into[i] * (ONE - into[i])
    for i in range(size):
        to_forget[i] = of_cell[i] * cell_before[i] * forget[i] * (ONE - forget[i])
    for i in range(size):
        to_candidate[i] = of_cell[i] * into[i] * (ONE - candidate[i] * candidate[i])
    for i in range(size):
        to_cell[i] = of_cell[i] * forget[i] if there[i] > 0 else to_cell[i]
    for i in range(size):
        to_out[i] = to_hidden[i] * squashed[i] * out[i] * (ONE - out[i]) if there[i] > 0 else ZERO


@_loop
def _before(there, kept, from_gates, to_hidden):  # type: ignore[no-untyped-def]
    """The hidden state's gradient becomes that of the word before."""
    for i in range(there.size):
        passed = ZERO if there[i] > 0 else to_hidden[i]
        to_hidden[i] = kept[i] * from_gates[i] + passed


@called_by_xla
def _all_words_backward(call):  # type: ignore[no-untyped-def]
    """From what :func:`_forward` keeps, without hidden states, and the gradient of the last one: that of the inputs."""
    call = structure(call)
    if asks_for_version(call):
        return 0
    arguments, given = words(call[ARGUMENTS], 7), words(call[RESULTS], 1)
    length, units, rows = lengths(arguments[0])
    gates, size = 4 * units, units * rows
    there, recurrent = floats(arguments[0]).reshape(length, size), floats(arguments[1]).reshape(units, gates)
    kept, opened = floats(arguments[2]), floats(arguments[3]).reshape(length, 4 * size)
    cell, squashed = floats(arguments[4]).reshape(length, size), floats(arguments[5]).reshape(length, size)
    to_hidden, to_inputs = floats(arguments[6]).copy(), floats(given[0]).reshape(length, 4 * size)
    lines = (units + ROWS - 1) // ROWS * ROWS
    weights = _padded(recurrent, lines, gates)
    from_gates, to_cell, zero = (
        np.empty(lines * rows, np.float32),
        np.zeros(size, np.float32),
        np.zeros(size, np.float32),
    )
    for i in range(length - 1, -1, -1):
        _back(opened[i], there[i], cell[i - 1] if i else zero, squashed[i], to_hidden, to_cell, to_inputs[i])
        a, b, total = weights.ctypes.data, to_inputs[i].ctypes.data, from_gates.ctypes.data
        product(a, BYTES * gates, BYTES, b, total, lines, rows, gates, 0)
        _before(there[i], kept, from_gates, to_hidden)
    return 0
