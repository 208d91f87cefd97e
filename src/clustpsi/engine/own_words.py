"""Local training of a text model that covers only the words of a client.

If a word occurs in no training text of a client, its row of the embedding table has the gradient 0 in every step.  SGD
and a fresh Adam do not change such a row, and neither does a proximal term around the start.  So a client trains the
same model with a table of only its own words, and then puts their rows back.  The result is the same, but gradient and
optimizer handle fewer rows.
"""

from collections.abc import Sequence
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from clustpsi.engine.network import Network, network_for
from clustpsi.engine.sizes import round_up
from clustpsi.features.text import PADDING

Vector = NDArray[np.float32]


class OwnWords:
    """The words of every client, and its model over them.

    Attributes
    ----------
    tokens
        The texts; a token is the position of a word in the list of the client that trains on the text.
    networks
        For every client, the model over its words.
    """

    def __init__(
        self,
        network: Network,
        table: tuple[slice, tuple[int, ...]],
        tokens: NDArray[Any],
        words: list[NDArray[np.int64]],
    ) -> None:
        self.tokens = jnp.asarray(tokens)
        self._words = words
        self._table, (self._rows, self._width) = table
        sizes = [min(round_up(len(own)), self._rows) for own in words]
        self.networks = [
            network_for(network.module.clone(vocabulary=size), tokens.shape[1:], tokens.dtype) for size in sizes
        ]

    @classmethod
    def of(cls, network: Network, tokens: NDArray[Any], clients: Sequence[NDArray[np.int64]]) -> Self | None:
        """Own words of clients with these training rows; None if no table is trained or clients have all words."""
        table = network.place_of("embedding")
        if table is None:
            return None
        vocabulary, words = table[1][0], []
        for rows in clients:
            has = np.zeros(vocabulary, bool)
            has[tokens[rows]] = True
            has[PADDING] = True  # models recognize it by its number, 0
            words.append(np.flatnonzero(has))
        if all(round_up(len(own)) >= vocabulary for own in words):
            return None
        places = np.zeros_like(tokens)
        for rows, own in zip(clients, words, strict=True):
            place = np.zeros(vocabulary, tokens.dtype)
            place[own] = np.arange(len(own))
            places[rows] = place[tokens[rows]]
        return cls(network, table, places, words)

    def cut(self, client: int, parameters: Vector) -> Vector:
        """The parameters of the client's model, from those of the whole; spare rows after its words do not matter."""
        table = parameters[self._table].reshape(self._rows, self._width)
        own = np.zeros((self.networks[client].module.vocabulary, self._width), np.float32)
        own[: len(self._words[client])] = table[self._words[client]]
        return np.concatenate([parameters[: self._table.start], own.ravel(), parameters[self._table.stop :]])

    def put_back(self, client: int, parameters: Vector, trained: Vector) -> Vector:
        """The parameters of the whole model, with those that the client has trained."""
        words, width = self._words[client], self._width
        end = trained.size - (parameters.size - self._table.stop)
        table = parameters[self._table].reshape(self._rows, width).copy()
        table[words] = trained[self._table.start : end].reshape(-1, width)[: len(words)]
        return np.concatenate([trained[: self._table.start], table.ravel(), trained[end:]])
