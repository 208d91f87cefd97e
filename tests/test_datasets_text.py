"""Vocabularies: vectorised token ids agree with a plain word count, and look at training rows only."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustpsi.datasets import text
from clustpsi.datasets.text import split_words, token_ids

WORDS = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d's", "é"]), max_size=6), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None)
@given(WORDS, st.integers(0, 4), st.integers(1, 5), st.data())
def test_tokens_agree_with_counting_by_hand(
    texts: list[list[str]], vocabulary: int, length: int, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), unique=True))
    words = split_words([pa.array(["... ".join(line).upper() for line in texts])])
    tokens = token_ids(
        words["ids"], words["starts"], np.array(rows, dtype=np.int64), vocabulary=vocabulary, length=length
    )

    seen = list(dict.fromkeys(word for line in texts for word in line))
    counts = Counter(word for row in rows for word in texts[row])
    ranked = sorted(counts, key=lambda word: (-counts[word], seen.index(word)))[:vocabulary]
    for line, found in zip(texts, tokens.tolist(), strict=True):
        expected = [ranked.index(word) + 2 if word in ranked else 1 for word in line[:length]]
        assert found == expected + [0] * (length - len(expected))


def test_batches_do_not_change_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["one two", "", "two three!", "one", "four four one"]
    whole = split_words([pa.array(texts)])
    tokens = token_ids(whole["ids"], whole["starts"], np.arange(4), vocabulary=2, length=3)
    monkeypatch.setattr(text, "BATCH_ROWS", 2)
    pieces = split_words([pa.array(texts[:3]), pa.array(texts[3:])])
    assert pieces["ids"].tolist() == whole["ids"].tolist() and pieces["starts"].tolist() == whole["starts"].tolist()
    again = token_ids(pieces["ids"], pieces["starts"], np.arange(4), vocabulary=2, length=3)
    assert again.tolist() == tokens.tolist()


def test_missing_texts_are_empty() -> None:
    words = split_words([pa.array([None, "x"], pa.string())])
    assert words["starts"].tolist() == [0, 0, 1]
