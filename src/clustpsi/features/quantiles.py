"""Quantiles of numbers that are spread over many clients, from counts of values or of narrow ranges.

Counts add up, so the result does not depend on the order in which they are merged.  With up to `MOST_VALUES` different
values, quantiles are exact.  With more, each value counts as the middle of a range whose width is 2**-12 of the value,
so a quantile is off by at most 0.013 %.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_VALUES = 4096
KEPT_BITS = 12  # of the 52 behind the point of a mantissa


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each of some numbers occurs.

    Attributes
    ----------
    values
        Different numbers, ascending.
    counts
        How often each occurs.
    is_exact
        Whether the values are the numbers themselves instead of the middles of their ranges.
    is_noisy
        Whether counts have been changed at random, so that some may be negative.
    """

    values: NDArray[np.float64]
    counts: NDArray[np.int64]
    is_exact: bool = True
    is_noisy: bool = False

    @classmethod
    def of(cls, numbers: NDArray[Any]) -> "Counts":
        """Count finite numbers."""
        if numbers.dtype.kind not in "iu" or numbers.dtype.itemsize > 4:  # small whole numbers are sorted faster
            numbers = numbers.astype(np.float64)
        values, counts = np.unique(numbers, return_counts=True)
        return cls(values.astype(np.float64), counts).bounded()

    def bounded(self) -> "Counts":
        return self if not self.is_exact or len(self.values) <= MOST_VALUES else self.rounded()

    def rounded(self) -> "Counts":
        """The same counts over ranges."""
        return self if not self.is_exact else _added(_middles(self.values), self.counts, is_exact=False)

    def merge(self, other: "Counts") -> "Counts":
        """The counts of both together."""
        is_exact = self.is_exact and other.is_exact
        parts = (self, other) if is_exact else (self.rounded(), other.rounded())
        values = np.concatenate([part.values for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        added = _added(values, counts, is_exact=is_exact).bounded()
        return replace(added, is_noisy=True) if self.is_noisy or other.is_noisy else added

    def believed(self) -> NDArray[np.int64]:
        """The counts; if they are noisy, only those that stand out, because most ranges hold nothing but noise."""
        if not self.is_noisy:
            return self.counts
        return np.where(self.counts > 4 * np.median(np.abs(self.counts)), self.counts, 0)

    def mean_and_deviation(self) -> tuple[float, float]:
        """Mean and population standard deviation of the numbers.

        >>> Counts.of(np.array([1.0, 4.0])).mean_and_deviation()
        (2.5, 1.5)
        """
        share = self.believed() / self.believed().sum()
        mean = float(share @ self.values)
        return mean, float(np.sqrt(share @ (self.values - mean) ** 2))

    def quantiles(self, shares: ArrayLike) -> NDArray[np.float64]:
        """Quantiles by linear interpolation between neighbours, as in NumPy.

        >>> Counts.of(np.array([1.0, 2.0, 3.0, 10.0])).quantiles([0.25, 0.5, 0.75]).tolist()
        [1.75, 2.5, 4.75]
        """
        ends = np.cumsum(self.believed())
        if self.is_noisy:  # spread evenly over their ranges, which are wide
            edges = np.concatenate([self.values[:1], (self.values[1:] + self.values[:-1]) / 2, self.values[-1:]])
            places = np.asarray(shares, np.float64) * ends[-1]
            return np.asarray(np.interp(places, np.concatenate([[0], ends]), edges), np.float64)
        at = np.asarray(shares, np.float64) * (ends[-1] - 1)
        below = np.floor(at)
        low, high = (
            self.values[np.searchsorted(ends, place, side="right").clip(max=len(ends) - 1)]
            for place in (below, below + 1)
        )
        gap, part = high - low, at - below
        found: NDArray[np.float64] = np.where(part < 0.5, low + gap * part, high - gap * (1 - part))  # as NumPy rounds
        return found

    def as_dict(self) -> dict[str, Any]:
        plain = {"values": self.values.tolist(), "counts": self.counts.tolist(), "exact": self.is_exact}
        return {**plain, "noisy": True} if self.is_noisy else plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Counts":
        numbers, counts = np.array(values["values"], np.float64), np.array(values["counts"], np.int64)
        return cls(numbers, counts, bool(values["exact"]), bool(values.get("noisy", False)))


def _added(values: NDArray[np.float64], counts: NDArray[np.int64], *, is_exact: bool) -> Counts:
    different, place = np.unique(values, return_inverse=True)
    return Counts(different, np.bincount(place, counts, len(different)).astype(np.int64), is_exact)


def _middles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The middle of every number's range; a middle stays as it is."""
    bits = np.ascontiguousarray(values).view(np.int64)
    lost = 52 - KEPT_BITS
    return np.where(values == 0, 0.0, ((bits >> lost << lost) | 1 << lost - 1).view(np.float64))
