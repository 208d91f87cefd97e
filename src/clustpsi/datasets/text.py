"""Text as word ids: parsed once over every word, then cut to the most frequent words of the training rows."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
VOCABULARY = 10_000  # words that have an id of their own
BATCH_ROWS = 100_000


def split_words(batches: Iterable[pa.Array]) -> dict[str, NDArray[Any]]:
    """Word ids of every text, one after the other, and where each text starts.

    A word is a run of letters, digits and apostrophes, in lower case. ``ids`` numbers words from 1 by first occurrence,
    ``starts`` has one entry more than there are texts.

    >>> words = split_words([pa.array(["Good, good day!", ""]), pa.array(["A day"])])
    >>> words["ids"].tolist(), words["starts"].tolist()
    ([1, 1, 2, 3, 2], [0, 3, 3, 5])
    """
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
    return {"ids": np.concatenate(ids), "starts": np.concatenate([[0], np.cumsum(np.concatenate(lengths))])}


def token_ids(
    ids: NDArray[np.int32],
    starts: NDArray[np.int64],
    train_rows: NDArray[np.int64],
    *,
    vocabulary: int = VOCABULARY,
    length: int,
) -> NDArray[np.int32]:
    """The first ``length`` words of every text as tokens, for a vocabulary of the training rows' most frequent words.

    Token 0 pads, 1 is any word outside the vocabulary, 2, 3, ... are the words from the most frequent one down, so the
    largest token is ``vocabulary + 1``.
    """
    lengths = np.diff(starts)
    in_training = np.zeros(lengths.size, dtype=bool)
    in_training[train_rows] = True
    counts = np.bincount(ids[np.repeat(in_training, lengths)], minlength=int(ids.max(initial=-1)) + 1)
    frequent = np.argsort(-counts, kind="stable")[:vocabulary]
    frequent = frequent[counts[frequent] > 0]
    token = np.full(counts.size, UNKNOWN, dtype=np.int32)
    token[frequent] = np.arange(FIRST_WORD, FIRST_WORD + frequent.size)

    tokens = np.full((lengths.size, length), PADDING, dtype=np.int32)
    for first in range(0, lengths.size, BATCH_ROWS):  # in batches, so that the position table stays small
        rows = slice(first, first + BATCH_ROWS)
        present = np.arange(length) < lengths[rows, None]
        position = starts[:-1][rows, None] + np.arange(length)
        tokens[rows][present] = token[ids[position[present]]]
    return tokens
