"""Models for text, given as token ids: the paper's LSTM for Sent140 and its small network for Amazon reviews."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from clustpsi.datasets.word_vectors import WordVectors
from clustpsi.errors import ClustPSIError
from clustpsi.features.text import FIRST_WORD, PADDING, VOCABULARY
from clustpsi.models.layers import Dense, Dropout, Embed

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
        from clustpsi.models.recurrence import last_state  # no other model needs it, and it has to be compiled

        x = Dropout(self.dropout)(_embed(tokens, self.vocabulary, self.vectors), train)
        x = Dropout(self.input_dropout, broadcast=(1,))(x, train)  # one mask per sequence, shared by its words
        rows, length, _ = x.shape
        # What the words contribute to the four gates does not depend on the state: one product for the whole sequence.
        inputs = Dense(4 * self.units, bias_init=_forget_bias)(x.reshape(rows * length, -1))
        recurrent = self.param("recurrent", nn.initializers.orthogonal(), (self.units, 4 * self.units))
        kept = Dropout(self.recurrent_dropout)(jnp.ones((rows, self.units)), train)  # one mask per sequence here too
        # Rows come last, so that vector registers run along them.
        gates = inputs.reshape(rows, length, -1).transpose(1, 2, 0)
        hidden = last_state(gates, (tokens != PADDING).T, recurrent, kept.T).T
        return Dense(self.num_classes)(hidden)


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
