"""Texts as tokens of a vocabulary: the most frequent words of the training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.features.base import Features, Fitted, Rows, Summary
from clustpsi.features.kinds import Frequencies
from clustpsi.features.words import split_words

PADDING, UNKNOWN, FIRST_WORD = 0, 1, 2
VOCABULARY = 10_000  # words that have their own token
BATCH_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class TextRows(Rows):
    """Texts as numbers of words.

    Attributes
    ----------
    ids
        The words of all texts, one after the other.
    starts
        Where each text starts, and where the last one ends.
    words
        The words as UTF-8, one line per id; the line of id 0 is empty.
    is_ranked
        Whether the ids are the same at all clients, so that they can order equally frequent words.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    words: NDArray[np.uint8]
    is_ranked: bool = False

    @classmethod
    def of(cls, texts: Sequence[str]) -> "TextRows":
        import pyarrow as pa

        split = split_words([pa.array(texts, pa.large_string())])
        return cls(split["ids"], split["starts"], split["words"])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: NDArray[np.int64]) -> "TextRows":
        lengths = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.starts[:-1][rows] - starts[:-1], lengths) + np.arange(starts[-1])
        return TextRows(self.ids[places], starts, self.words, self.is_ranked)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self.ids, self.starts, self.words

    @cached_property
    def names(self) -> NDArray[Any]:
        """The word of every id from 1."""
        return np.array(bytes(self.words).decode().split("\n")[1:], dtype=object)


@dataclass(frozen=True, eq=False)
class TextSummary(Summary):
    """How often each word occurs."""

    words: Frequencies

    def merge(self, other: Self) -> Self:
        return type(self)(self.words.merge(other.words))

    def as_dict(self) -> dict[str, Any]:
        return {"words": self.words.as_dict()}


@dataclass(frozen=True)
class TextFeatures(Features[TextRows, TextSummary]):
    """Tokens: 0 is padding, 1 is any word outside the vocabulary, 2, 3, ... are the words by falling frequency.

    Attributes
    ----------
    length
        How many words of a text are kept, from its start.
    vocabulary
        At most this many words get their own token.
    """

    length: int
    vocabulary: int = VOCABULARY

    def summarize(self, rows: TextRows) -> TextSummary:
        return TextSummary(Frequencies.of(rows.ids - 1, rows.names, is_ranked=rows.is_ranked))

    def summary_from_dict(self, values: Mapping[str, Any]) -> TextSummary:
        return TextSummary(Frequencies.from_dict(values["words"]))

    def fit(self, summary: TextSummary) -> "FittedText":
        return FittedText(self.length, tuple(map(str, summary.words.most_frequent(self.vocabulary))))


@dataclass(frozen=True, eq=False)
class FittedText(Fitted[TextRows]):
    """Texts as tokens of a vocabulary.

    Attributes
    ----------
    length
        Number of tokens per text.
    words
        The words of the tokens from 2 on.
    """

    kind = "text"
    length: int
    words: tuple[str, ...]

    @property
    def row(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return (self.length,), np.dtype(np.int32)

    def transform(self, rows: TextRows) -> NDArray[np.int32]:
        tokens_of = {word: FIRST_WORD + i for i, word in enumerate(self.words)}
        token = np.full(len(rows.names) + 1, UNKNOWN, dtype=np.int32)
        token[1:] = [tokens_of.get(word, UNKNOWN) for word in rows.names]
        lengths = np.diff(rows.starts)
        tokens = np.full((len(rows), self.length), PADDING, dtype=np.int32)
        for first in range(0, len(rows), BATCH_ROWS):  # in batches, so that the position table stays small
            part = slice(first, first + BATCH_ROWS)
            present = np.arange(self.length) < lengths[part, None]
            position = rows.starts[:-1][part, None] + np.arange(self.length)
            tokens[part][present] = token[rows.ids[position[present]]]
        return tokens

    def read(self, data: Any, where: str = "the data") -> TextRows:
        texts = list(data)
        wrong = next((text for text in texts if not isinstance(text, str)), None)
        if wrong is not None:
            raise ClustPSIError(f"{where} must hold texts only, not {type(wrong).__name__} ({wrong!r})")
        return TextRows.of(texts)

    def accept(self, features: Features[Any, Any], rows: Any) -> TextRows:
        if not isinstance(rows, TextRows):
            raise ClustPSIError("texts are needed")
        return rows

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "length": self.length, "words": list(self.words)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(values["length"], tuple(values["words"]))
