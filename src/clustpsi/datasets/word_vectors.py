"""Pre-trained word vectors, such as GloVe's, for text models."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.files import open_binary, reading
from clustpsi.errors import ClustPSIError
from clustpsi.features.text import FIRST_WORD


class WordVectors:
    """The vectors of a vocabulary, as the table that a model looks tokens up in.

    Two objects are equal if their tables are. Compiled programs are found by the model that they were compiled for, and
    the table is part of the model.

    Attributes
    ----------
    table
        (tokens, dimensions), float32; zeros for padding, for words outside the vocabulary and for words without a
        vector.
    found
        How many words have a vector.
    """

    def __init__(self, table: NDArray[np.float32], found: int) -> None:
        self.table, self.found = table, found
        self._digest = hashlib.sha256(table.tobytes()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordVectors) and other._digest == self._digest

    def __hash__(self) -> int:
        return hash(self._digest)


def read_word_vectors(path: Path, vocabulary: Sequence[str]) -> WordVectors:
    """Read the vectors of a vocabulary's words from a plain or gzip file in GloVe's or fastText's text format.

    A line is a word and its numbers, separated by spaces. A first line of two numbers (how many words, how many
    dimensions) is skipped.
    """
    places = {word.encode(): FIRST_WORD + i for i, word in enumerate(vocabulary)}
    rows: dict[int, NDArray[np.float32]] = {}
    dimensions = 0
    with reading(path, "word vectors"), open_binary(path) as file:
        for number, line in enumerate(file, start=1):
            if number == 1 and len(line.split()) == 2:
                continue
            dimensions = dimensions or len(line.split()) - 1
            word, *values = line.rstrip().rsplit(b" ", dimensions)  # a few words have spaces in them
            if len(values) != dimensions or dimensions < 1:
                raise ClustPSIError(
                    f"{path}, line {number}: {max(dimensions, 1)} numbers after a word are needed, as in GloVe's text "
                    f"format, and there are {len(values)}"
                )
            place = places.get(word)
            if place is not None and place not in rows:
                rows[place] = _numbers(path, number, values)
    if not rows:
        raise ClustPSIError(f"{path} has a vector for none of the {len(places):,} words of the training data")
    table = np.zeros((FIRST_WORD + len(places), dimensions), np.float32)
    table[list(rows)] = list(rows.values())
    return WordVectors(table, len(rows))


def _numbers(path: Path, line: int, values: Sequence[bytes]) -> NDArray[np.float32]:
    try:
        vector = np.array(values, dtype=np.float32)
    except ValueError as error:
        raise ClustPSIError(f"{path}, line {line}: not all of {len(values)} values are numbers") from error
    if not np.isfinite(vector).all():
        raise ClustPSIError(f"{path}, line {line}: a number is not finite")
    return vector
