"""Text as word ids: parsed once over every word, then cut to the most frequent words of the training rows."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
VOCABULARY = 10_000  # words that have an id of their own
BATCH_ROWS = 100_000


def split_words(batches: "Iterable[pa.Array]") -> dict[str, NDArray[Any]]:
    """Word ids of every text, one after the other, where each text starts, and the words.

    A word is a run of letters, digits and apostrophes, in lower case. ``ids`` numbers words from 1 by first occurrence,
    ``starts`` has one entry more than there are texts, ``words`` is UTF-8: a line for every id from 0, which no word
    has.

    >>> import pyarrow as pa
    >>> split = split_words([pa.array(["Good, good day!", ""]), pa.array(["A day"])])
    >>> split["ids"].tolist(), split["starts"].tolist(), bytes(split["words"])
    ([1, 1, 2, 3, 2], [0, 3, 3, 5], b'\\ngood\\nday\\na')
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = {"": 0}  # splitting leaves empty parts around the outer separators
    ids, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    for batch in batches:
        for start in range(0, len(batch), BATCH_ROWS):
            texts = pc.utf8_lower(batch.slice(start, BATCH_ROWS).cast(pa.large_string()).fill_null(""))
            parts = pc.split_pattern_regex(texts, r"[^\pL\pN']+")
            flat = parts.flatten().dictionary_encode()
            known = np.array([numbers.setdefault(word, len(numbers)) for word in flat.dictionary.to_pylist()], np.int32)
            word_ids = known[flat.indices.to_numpy()]
            rows = np.repeat(np.arange(len(texts)), pc.list_value_length(parts).to_numpy())
            filled = word_ids != 0
            ids.append(word_ids[filled])
            lengths.append(np.bincount(rows[filled], minlength=len(texts)))
    return {
        "ids": np.concatenate(ids),
        "starts": np.concatenate([[0], np.cumsum(np.concatenate(lengths))]),
        "words": np.frombuffer("\n".join(numbers).encode(), np.uint8),
    }


class Texts:
    """Texts as tokens, for a vocabulary of the training rows' most frequent words.

    Token 0 pads, 1 is any word outside the vocabulary, 2, 3, ... are the words from the most frequent one down, so the
    largest token is ``vocabulary + 1``.

    Parameters
    ----------
    split
        The texts, as :func:`split_words` gives them.
    length
        How many words of a text are kept, the first ones.
    vocabulary
        The most words with a token of their own.
    """

    def __init__(self, split: Mapping[str, NDArray[Any]], *, length: int, vocabulary: int = VOCABULARY) -> None:
        self._ids, self._starts, self._words = split["ids"], split["starts"], split["words"]
        self._length, self._vocabulary = length, vocabulary

    def __call__(self, train_rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """The tokens of all texts, a line each."""
        frequent, length = self._frequent(train_rows), self._length
        token = np.full(int(self._ids.max(initial=-1)) + 1, UNKNOWN, dtype=np.int32)
        token[frequent] = np.arange(FIRST_WORD, FIRST_WORD + frequent.size)
        lengths = np.diff(self._starts)
        tokens = np.full((lengths.size, length), PADDING, dtype=np.int32)
        for first in range(0, lengths.size, BATCH_ROWS):  # in batches, so that the position table stays small
            rows = slice(first, first + BATCH_ROWS)
            present = np.arange(length) < lengths[rows, None]
            position = self._starts[:-1][rows, None] + np.arange(length)
            tokens[rows][present] = token[self._ids[position[present]]]
        return tokens

    def vocabulary(self, train_rows: NDArray[np.int64]) -> list[str]:
        """The words of the tokens from 2 on."""
        words = bytes(self._words).decode().split("\n")
        return [words[word] for word in self._frequent(train_rows)]

    def _frequent(self, train_rows: NDArray[np.int64]) -> NDArray[np.int64]:
        lengths = np.diff(self._starts)
        in_training = np.zeros(lengths.size, dtype=bool)
        in_training[train_rows] = True
        counts = np.bincount(self._ids[np.repeat(in_training, lengths)], minlength=int(self._ids.max(initial=-1)) + 1)
        frequent = np.argsort(-counts, kind="stable")[: self._vocabulary]
        return frequent[counts[frequent] > 0]
