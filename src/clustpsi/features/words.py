"""Texts as words, parsed once."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 100_000


def split_words(batches: "Iterable[pa.Array]") -> dict[str, NDArray[Any]]:
    """Split texts into words: word ids of all texts, where each text starts, and the words.

    A word is a run of letters, digits and apostrophes, in lower case. ``ids`` numbers words from 1 by first occurrence,
    ``starts`` has one entry more than there are texts. ``words`` is UTF-8 with one line per id; that of id 0 is empty.

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
