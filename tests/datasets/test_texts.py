"""Vocabularies: vectorised token ids agree with a plain word count, and look at training rows only."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clustpsi.features import text, words
from clustpsi.features.text import FittedText, TextFeatures, TextRows
from clustpsi.features.words import split_words


def fitted(split: dict[str, Any], rows: NDArray[np.int64], **settings: int) -> tuple[FittedText, TextRows]:
    """Features of texts of a data set that numbers its words, learned from some rows."""
    texts = TextRows(split["ids"], split["starts"], split["words"], is_ranked=True)
    features = TextFeatures(**settings)
    return features.fit(features.summarize(texts.take(rows))), texts


WORDS = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d's", "é"]), max_size=6), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(WORDS, st.integers(0, 4), st.integers(1, 5), st.data())
def test_tokens_agree_with_counting_by_hand(
    texts: list[list[str]], vocabulary: int, length: int, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), unique=True))
    split = split_words([pa.array(["... ".join(line).upper() for line in texts])])
    learned, given_texts = fitted(split, np.array(rows, dtype=np.int64), length=length, vocabulary=vocabulary)
    tokens = learned.transform(given_texts)

    seen = list(dict.fromkeys(word for line in texts for word in line))
    counts = Counter(word for row in rows for word in texts[row])
    ranked = sorted(counts, key=lambda word: (-counts[word], seen.index(word)))[:vocabulary]
    assert list(learned.words) == ranked
    for line, found in zip(texts, tokens.tolist(), strict=True):
        expected = [ranked.index(word) + 2 if word in ranked else 1 for word in line[:length]]
        assert found == expected + [0] * (length - len(expected))


def test_batches_do_not_change_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["one two", "", "two three!", "one", "four four one"]
    whole = split_words([pa.array(texts)])
    learned, rows = fitted(whole, np.arange(4), length=3, vocabulary=2)
    tokens = learned.transform(rows)
    monkeypatch.setattr(text, "BATCH_ROWS", 2)
    monkeypatch.setattr(words, "BATCH_ROWS", 2)
    pieces = split_words([pa.array(texts[:3]), pa.array(texts[3:])])
    assert pieces["ids"].tolist() == whole["ids"].tolist() and pieces["starts"].tolist() == whole["starts"].tolist()
    learned, rows = fitted(pieces, np.arange(4), length=3, vocabulary=2)
    assert learned.transform(rows).tolist() == tokens.tolist()


def test_missing_texts_are_empty() -> None:
    words = split_words([pa.array([None, "x"], pa.string())])
    assert words["starts"].tolist() == [0, 0, 1]
