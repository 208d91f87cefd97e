"""Models for text, given as token ids: the paper's LSTM for Sent140 and its small network for Amazon reviews."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax

from clustpsi.datasets.word_vectors import WordVectors
from clustpsi.errors import ClustPSIError
from clustpsi.features.text import FIRST_WORD, PADDING, VOCABULARY
from clustpsi.models.layers import Dense, Dropout, Embed, computed_once

EMBEDDING = 50
TOKENS = VOCABULARY + FIRST_WORD


class LSTM(nn.Module):
    """Embedding, dropout, an LSTM whose last state goes to a classifier.

    Padding, wherever it is, does not change the state, so the classified state is the one after the last word.
    """

    num_classes: int
    units: int = 10
    dropout: float = 0.5
    input_dropout: float = 0.2
    recurrent_dropout: float = 0.2
    vocabulary: int = TOKENS
    vectors: WordVectors | None = None

    @nn.compact
    def __call__(self, tokens: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        x = Dropout(self.dropout)(_embed(tokens, self.vocabulary, self.vectors), train)
        x = Dropout(self.input_dropout, broadcast=(1,))(x, train)  # one mask per sequence, shared by its words
        rows, length, _ = x.shape
        # What the words contribute to the four gates does not depend on the state: one product for the whole sequence.
        inputs = Dense(4 * self.units, bias_init=_forget_bias)(x.reshape(rows * length, -1))
        recurrent = self.param("recurrent", nn.initializers.orthogonal(), (self.units, 4 * self.units))
        kept = Dropout(self.recurrent_dropout)(jnp.ones((rows, self.units)), train)  # one mask per sequence here too
        # Rows come last, so that vector registers run along them.
        gates = inputs.reshape(rows, length, -1).transpose(1, 2, 0)
        hidden = last_state(gates, (tokens != PADDING).T[:, None], recurrent, kept.T).T
        return Dense(self.num_classes)(hidden)


@jax.custom_vjp
def last_state(inputs: jax.Array, is_word: jax.Array, recurrent: jax.Array, kept: jax.Array) -> jax.Array:
    """The hidden state of an LSTM after the last word, (units, rows).

    Parameters
    ----------
    inputs
        What the words contribute to the gates (in, forget, candidate, out): length, 4 * units, rows.
    is_word
        Whether there is a word, or padding, which changes nothing: length, 1, rows.
    recurrent
        The state's weights: units, 4 * units.
    kept
        The state's dropout mask: units, rows.
    """
    return _states(inputs, is_word, recurrent, kept)[0]


def _states(
    inputs: jax.Array, is_word: jax.Array, recurrent: jax.Array, kept: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The last hidden state; hidden state, cell and gates after every word."""
    weights = computed_once(recurrent.T)

    def step(state: tuple[jax.Array, jax.Array], word: tuple[jax.Array, jax.Array]) -> Any:
        hidden, cell = state
        contribution, is_word = word
        gates = computed_once(_opened(contribution + weights @ (hidden * kept)))
        into, forget, candidate, out = jnp.split(gates, 4)
        cell = computed_once(jnp.where(is_word, forget * cell + into * candidate, cell))
        hidden = jnp.where(is_word, out * jnp.tanh(cell), hidden)
        return (hidden, cell), (hidden, cell, gates)

    zero = jnp.zeros_like(kept)
    (hidden, _), states = lax.scan(step, (zero, zero), (inputs, is_word))
    return hidden, states


def _opened(gates: jax.Array) -> jax.Array:
    """The candidate's hyperbolic tangent and the gates' sigmoids, as one tangent of all four."""
    half = np.repeat(np.array([0.5, 0.5, 1, 0.5], np.float32), len(gates) // 4)[:, None]
    return jnp.tanh(gates * half) * half + (1 - half)


def _last_state_forward(*inputs: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    hidden, states = _states(*inputs)
    return hidden, (*inputs[1:], *states)


def _last_state_backward(values: tuple[jax.Array, ...], to_hidden: jax.Array) -> Any:
    """From the last word to the first.

    What does not depend on the gradient is computed before, for all words at once; the gradient of the weights after
    it, as one product.
    """
    is_word, recurrent, kept, hidden, cell, gates = values
    hidden, cell_before = (computed_once(jnp.pad(state[:-1], ((1, 0), (0, 0), (0, 0)))) for state in (hidden, cell))
    into, forget, candidate, out = jnp.split(gates, 4, axis=1)
    squashed = computed_once(jnp.tanh(cell))

    def of_words(slope: jax.Array) -> jax.Array:
        return computed_once(jnp.where(is_word, slope, 0))

    slopes = [
        of_words(candidate * into * (1 - into)),
        of_words(cell_before * forget * (1 - forget)),
        of_words(into * (1 - candidate * candidate)),
        of_words(squashed * out * (1 - out)),
    ]
    cell_slope, remembered = of_words(out * (1 - squashed * squashed)), jnp.where(is_word, forget, 1)
    of_cell = (jnp.arange(4) < 3)[:, None, None]  # the last gate's gradient is that of the hidden state

    def step(gradient: tuple[jax.Array, jax.Array], word: tuple[jax.Array, ...]) -> Any:
        to_hidden, to_cell = gradient
        is_word, slopes, cell_slope, remembered = word
        to_cell = computed_once(to_cell + to_hidden * cell_slope)
        to_gates = computed_once((jnp.where(of_cell, to_cell, to_hidden) * slopes).reshape(-1, to_cell.shape[1]))
        to_hidden = kept * (recurrent @ to_gates) + jnp.where(is_word, 0, to_hidden)
        return (to_hidden, to_cell * remembered), to_gates

    words = is_word, jnp.stack(slopes, axis=1), cell_slope, remembered
    _, to_gates = lax.scan(step, (to_hidden, jnp.zeros_like(to_hidden)), words, reverse=True)
    states, of_gates = (
        computed_once(each.swapaxes(0, 1)).reshape(each.shape[1], -1) for each in (hidden * kept, to_gates)
    )
    to_recurrent = computed_once(of_gates @ computed_once(states.T)).T
    return to_gates, None, to_recurrent, None


last_state.defvjp(_last_state_forward, _last_state_backward)


class EmbeddingMLP(nn.Module):
    """Embedding, flattened, a dense layer of 8 ReLU units, a classifier."""

    num_classes: int
    width: int = 8
    vocabulary: int = TOKENS
    vectors: WordVectors | None = None

    @nn.compact
    def __call__(self, tokens: jax.Array, train: bool, mask: jax.Array | None = None) -> jax.Array:
        x = _embed(tokens, self.vocabulary, self.vectors)
        x = nn.relu(Dense(self.width)(x.reshape(x.shape[0], -1)))
        return Dense(self.num_classes)(x)


def _embed(tokens: jax.Array, vocabulary: int, vectors: WordVectors | None) -> jax.Array:
    """The embeddings of tokens: a table that is trained, or given vectors, which stay as they are."""
    if tokens.ndim != 2 or not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise ClustPSIError(
            f"this model takes text as rows of token ids, not rows of shape {tokens.shape[1:]} and type {tokens.dtype}"
        )
    if vectors is not None:
        return jnp.asarray(vectors.table).at[tokens].get(mode="clip")
    return Embed(vocabulary, EMBEDDING)(tokens)


def _forget_bias(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """Ones for the forget gate, zeros for the others: at first, the cell remembers."""
    return jnp.zeros(shape, dtype).at[shape[0] // 4 : shape[0] // 2].set(1)
