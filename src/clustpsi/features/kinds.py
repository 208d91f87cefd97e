"""How often each name occurs: categories of a column, words of texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Counts of names, which can be added in any order.

    Attributes
    ----------
    counts
        How often each name occurs; None stands for a missing name.
    ranks
        The number of each name, if the data set numbers its names in the same way everywhere.  Equally frequent names
        are ordered by their number, then by the alphabet.
    """

    counts: Mapping[str | None, int]
    ranks: Mapping[str | None, int]

    @classmethod
    def of(
        cls, codes: NDArray[np.integer[Any]], names: "NDArray[Any] | tuple[str, ...]", *, is_ranked: bool
    ) -> "Frequencies":
        """Count the names that the codes stand for; -1 is a missing name."""
        counts = np.bincount(codes.astype(np.int64) + 1)
        present = np.flatnonzero(counts)
        named = [None if code == 0 else str(names[code - 1]) for code in present.tolist()]
        ranks = dict(zip(named, present.tolist(), strict=True)) if is_ranked else {}
        return cls(dict(zip(named, counts[present].tolist(), strict=True)), ranks)

    def merge(self, other: "Frequencies") -> "Frequencies":
        """The counts of both together."""
        counts, ranks = dict(self.counts), dict(self.ranks)
        for name, count in other.counts.items():
            counts[name] = counts.get(name, 0) + count
        for name, rank in other.ranks.items():
            ranks[name] = min(rank, ranks.get(name, rank))
        return Frequencies(counts, ranks)

    def most_frequent(self, number: int) -> tuple[str | None, ...]:
        """The most frequent names, the most frequent first.

        >>> codes = np.array([1, 1, 0, 2, -1])
        >>> Frequencies.of(codes, ("sea", "wood", "field"), is_ranked=False).most_frequent(3)
        ('wood', None, 'field')
        """

        def order(name: str | None) -> tuple[Any, ...]:
            return -self.counts[name], self.ranks.get(name, -1), name is not None, name

        if number >= len(self.counts):
            return tuple(sorted(self.counts, key=order))
        least = sorted(self.counts.values(), reverse=True)[number]  # most words are rarer and need no sorting
        return tuple(sorted((name for name, count in self.counts.items() if count >= least), key=order)[:number])

    def as_dict(self) -> dict[str, Any]:
        ranks = [self.ranks[name] for name in self.counts] if self.ranks else []
        return {"names": list(self.counts), "counts": list(self.counts.values()), "ranks": ranks}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Frequencies":
        names = values["names"]
        ranks = dict(zip(names, values["ranks"], strict=True)) if values["ranks"] else {}
        return cls(dict(zip(names, values["counts"], strict=True)), ranks)
