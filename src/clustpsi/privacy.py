"""What a client does to its counts and summaries before it tells them: noise, and silence about small numbers.

With a budget epsilon, label counts and summaries together are differentially private for adding or removing one row:
whatever is told would be told with a probability at most exp(epsilon) times as large (and, for names of categories and
words, except with probability :data:`DELTA` for each column) had the row not been there.  Half of the budget goes to
label counts and half to the summary, where there is one, in equal parts for its columns.  Noise is discrete Laplace: a
count changes by k with probability proportional to exp(-epsilon |k| / sensitivity).

A row changes one count by one only if no other row changes sides because of it: see :func:`private_split`.
"""

import hashlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.features import Features, Rows, Summary, TableFeatures, TextFeatures, TextRows
from clustpsi.features.kinds import Frequencies
from clustpsi.features.quantiles import Counts
from clustpsi.features.table import NumberSummary, TableRows, TableSummary
from clustpsi.features.text import TextSummary

#: With which probability, at most, one row makes a name of a category or a word known.
DELTA = 1e-6

# Numbers are counted in ranges that do not depend on the data: four for each power of two, from 2**-10 to 2**20.
_EXPONENTS, _PARTS = range(-10, 20), 4

Integers = NDArray[np.int64]


def discrete_laplace(rng: np.random.Generator, epsilon: float, shape: tuple[int, ...]) -> Integers:
    """Integer noise of which k is exp(-epsilon |k|) times as likely as 0.

    >>> noise = discrete_laplace(np.random.default_rng(0), 1.0, (100_000,))
    >>> bool(abs((np.abs(noise) == 1).mean() / (noise == 0).mean() - 2 * math.exp(-1)) < 0.02)
    True
    """
    # The difference of two geometric variables; below this their arithmetic would run out of digits.
    chance = -math.expm1(-max(epsilon, 1e-9))
    noise: Integers = rng.geometric(chance, shape) - rng.geometric(chance, shape)
    return noise


def noise_of(secret: str | None, purpose: str) -> np.random.Generator:
    """The stream of a node's noise for a purpose: the same whenever it is asked, so that asking twice tells no more."""
    if secret is None:
        return np.random.default_rng()
    return np.random.default_rng(int.from_bytes(hashlib.sha256(f"{secret} {purpose}".encode()).digest()))


def private_split(rows: int, secret: str | None) -> tuple[Integers, Integers]:
    """Training and test rows, by a coin for each row that falls for a test one time in five.

    A split that depended on the number of rows would give many rows another part if one was added.  The guarantee holds
    unless all coins fall alike, which has probability 0.8**rows: then one row takes the part that nobody has.

    >>> train, test = private_split(1_000, "secret")
    >>> bool(150 < len(test) < 250), sorted([*train, *test]) == list(range(1_000))
    (True, True)
    """
    coins = noise_of(secret, "split")
    is_test = coins.random(rows) < 0.2
    if rows and is_test.all() == is_test.any():
        is_test[coins.integers(rows)] ^= True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def learns(features: Features[Any, Any] | None) -> bool:
    """Whether features have anything to learn from rows."""
    return isinstance(features, TableFeatures | TextFeatures)


def private_counts(
    train: Integers,
    test: Integers,
    epsilon: float | None,
    min_count: int | None,
    secret: str | None,
    *,
    alone: bool = True,
) -> tuple[Integers, Integers]:
    """Label counts of a client as it tells them: training and test rows, each (1, C).

    Rows are in one of the two, so both have the same budget; ``alone`` says that no summary shares it.
    """
    told = []
    for what, counts in (("train", train), ("test", test)):
        if epsilon is not None:
            budget = epsilon if alone else epsilon / 2
            counts = counts + discrete_laplace(noise_of(secret, what), budget, counts.shape)
        kept = np.where(counts >= (min_count or 1), counts, 0)
        # A client without any training row would not be one, whatever the noise says; every client has some.
        if not kept.any() and (what == "train" or counts.any()):
            kept[0, counts.argmax()] = 1
        told.append(kept)
    return told[0], told[1]


def private_summary(
    features: Features[Any, Any], rows: Rows, epsilon: float | None, min_count: int | None, secret: str | None
) -> Summary:
    """The summary of a client's training rows as it tells it."""
    summary: Summary
    if isinstance(features, TableFeatures) and isinstance(rows, TableRows):
        summary = _table(features, rows, epsilon, secret)
    elif isinstance(features, TextFeatures) and isinstance(rows, TextRows) and epsilon is not None:
        summary = _words(features, rows, epsilon, noise_of(secret, "words"))
    else:
        summary = features.summarize(rows)
    return summary if min_count is None else _without_small(summary, min_count)


def _table(features: TableFeatures, rows: TableRows, epsilon: float | None, secret: str | None) -> TableSummary:
    summary = features.summarize(rows)
    if epsilon is None:
        return summary
    each = epsilon / 2 / (len(features.numbers) + len(features.categories))
    numbers = tuple(
        _noisy_numbers(column, each, noise_of(secret, f"number {i}")) for i, column in enumerate(rows.numbers.T)
    )
    categories = tuple(
        _noisy_names(names, each, 1, noise_of(secret, f"category {i}")) for i, names in enumerate(summary.categories)
    )
    return TableSummary(numbers, categories)


def _noisy_numbers(values: NDArray[Any], epsilon: float, rng: np.random.Generator) -> NumberSummary:
    """A column's numbers in ranges, and its gaps: every row is in one of these cells."""
    known = values[~np.isnan(values)].astype(np.float64)
    middles = range_middles()
    counts = np.bincount(_nearest(known, middles), minlength=len(middles))
    noisy = np.append(counts, len(values) - len(known)) + discrete_laplace(rng, epsilon, (len(middles) + 1,))
    told = Counts(middles, noisy[:-1], is_exact=False, is_noisy=True)
    return NumberSummary(max(int(noisy[:-1].sum()), 0), max(int(noisy[-1]), 0), counts=told)


def range_middles() -> NDArray[np.float64]:
    """The numbers that stand for ranges, ascending."""
    positive = [2.0**power * (1 + (part + 0.5) / _PARTS) for power in _EXPONENTS for part in range(_PARTS)]
    return np.array([*(-value for value in reversed(positive)), 0.0, *positive])


def _nearest(values: NDArray[np.float64], middles: NDArray[np.float64]) -> Integers:
    edges = (middles[1:] + middles[:-1]) / 2
    return np.searchsorted(edges, values, side="right")


def _noisy_names(names: Frequencies, epsilon: float, sensitivity: int, rng: np.random.Generator) -> Frequencies:
    """Names that occur so often that no single row makes the difference between telling them and not.

    A row has at most ``sensitivity`` names that no other row has.  One of them is told if its noise is at least
    ``least - 1``, which has a probability below exp(-epsilon (least - 1) / sensitivity) = DELTA / sensitivity.
    """
    least = 1 + sensitivity * math.log(sensitivity / DELTA) / epsilon
    noise = discrete_laplace(rng, epsilon / sensitivity, (len(names.counts),)).tolist()
    told = {name: count + extra for (name, count), extra in zip(names.counts.items(), noise, strict=True)}
    return _kept(names, {name: count for name, count in told.items() if count >= least})


def _words(features: TextFeatures, rows: TextRows, epsilon: float, rng: np.random.Generator) -> TextSummary:
    """How many texts have each word among their first ones; a text counts for at most as many words as are kept."""
    starts, lengths = rows.starts[:-1], np.minimum(np.diff(rows.starts), features.length)
    text = np.repeat(np.arange(len(rows)), lengths)
    places = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(lengths.sum())
    different = np.unique(np.stack([text, rows.ids[places]]), axis=1)[1]
    names = Frequencies.of(different - 1, rows.names, is_ranked=rows.is_ranked)
    return TextSummary(_noisy_names(names, epsilon / 2, features.length, rng))


def _without_small(summary: Summary, least: int) -> Summary:
    if isinstance(summary, TextSummary):
        return TextSummary(_frequent(summary.words, least))
    if not isinstance(summary, TableSummary):
        return summary
    numbers = tuple(_without_few(each, least) for each in summary.numbers)
    return TableSummary(numbers, tuple(_frequent(each, least) for each in summary.categories))


def _without_few(numbers: NumberSummary, least: int) -> NumberSummary:
    gaps = numbers.gaps if numbers.gaps >= least else 0
    if numbers.counts is None:
        return replace(numbers, gaps=gaps) if numbers.known >= least else NumberSummary(0, gaps)
    counts = numbers.counts
    enough = np.flatnonzero(counts.counts >= least)
    if counts.is_noisy:  # ranges stay, so that noise can be told from numbers
        kept = replace(counts, counts=np.where(np.abs(counts.counts) >= least, counts.counts, 0))
    else:
        kept = replace(counts, values=counts.values[enough], counts=counts.counts[enough])
    return NumberSummary(int(kept.counts.sum().clip(0)), gaps, counts=kept)


def _frequent(names: Frequencies, least: int) -> Frequencies:
    return _kept(names, {name: count for name, count in names.counts.items() if count >= least})


def _kept(names: Frequencies, counts: dict[str | None, int]) -> Frequencies:
    return Frequencies(counts, {name: rank for name, rank in names.ranks.items() if name in counts})
