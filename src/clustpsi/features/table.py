"""Tables: numbers are centred and scaled, gaps are marked, categories become one column per frequent kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError, nearest
from clustpsi.features.base import Features, Fitted, Rows, Summary
from clustpsi.features.exact import exact_sums, mean_and_deviation
from clustpsi.features.kinds import Frequencies
from clustpsi.features.quantiles import Counts

if TYPE_CHECKING:
    import pandas as pd

Scaling = Literal["standard", "robust"]


@dataclass(frozen=True, eq=False)
class Kinds:
    """A column of categories: the number of each row's kind, -1 for none, and the kinds in the order of the numbers.

    ``is_ranked`` says that the numbers belong to a data set that everybody has alike, so that they can decide between
    equally frequent kinds.
    """

    codes: NDArray[np.int32]
    names: tuple[str, ...]
    is_ranked: bool = False


@dataclass(frozen=True, eq=False)
class TableRows(Rows):
    """Typed columns.

    Attributes
    ----------
    numbers
        (rows, columns); NaN is a gap.
    categories
        The other columns.
    """

    numbers: NDArray[Any]
    categories: tuple[Kinds, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: NDArray[np.int64]) -> "TableRows":
        categories = tuple(Kinds(each.codes[rows], each.names, each.is_ranked) for each in self.categories)
        return TableRows(self.numbers[rows], categories)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        names = [np.array(each.names, dtype=object) for each in self.categories]
        return self.numbers, *(each.codes for each in self.categories), *names


@dataclass(frozen=True, eq=False)
class NumberSummary:
    """What is learned of a column of numbers: how many there are and how many gaps, and either sums or counts."""

    known: int
    gaps: int
    total: int = 0
    squares: int = 0
    counts: Counts | None = None

    @classmethod
    def of(cls, values: NDArray[Any], scaling: Scaling) -> "NumberSummary":
        known = values[~np.isnan(values)]
        gaps = len(values) - len(known)
        if scaling == "robust":
            return cls(len(known), gaps, counts=Counts.of(known))
        return cls(len(known), gaps, *exact_sums(known))

    def merge(self, other: "NumberSummary") -> "NumberSummary":
        counts = None if self.counts is None or other.counts is None else self.counts.merge(other.counts)
        known, gaps = self.known + other.known, self.gaps + other.gaps
        return NumberSummary(known, gaps, self.total + other.total, self.squares + other.squares, counts)

    @property
    def centre_and_spread(self) -> tuple[float, float]:
        """Mean and standard deviation, or median and interquartile range; a spread of 0 becomes 1."""
        if self.known == 0:
            return 0.0, 1.0
        if self.counts is None:
            centre, spread = mean_and_deviation(self.known, self.total, self.squares)
        else:
            low, centre, high = self.counts.quantiles([0.25, 0.5, 0.75]).tolist()
            spread = high - low
        return centre, spread or 1.0

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"known": self.known, "gaps": self.gaps}
        if self.counts is None:  # as text: JSON's readers may round whole numbers of more than 53 bits
            return plain | {"total": hex(self.total), "squares": hex(self.squares)}
        return plain | {"counts": self.counts.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "NumberSummary":
        if "counts" in values:
            return cls(values["known"], values["gaps"], counts=Counts.from_dict(values["counts"]))
        return cls(values["known"], values["gaps"], int(values["total"], 16), int(values["squares"], 16))


@dataclass(frozen=True, eq=False)
class TableSummary(Summary):
    """What is learned of every column."""

    numbers: tuple[NumberSummary, ...]
    categories: tuple[Frequencies, ...]

    def merge(self, other: Self) -> Self:
        numbers = (one.merge(two) for one, two in zip(self.numbers, other.numbers, strict=True))
        categories = (one.merge(two) for one, two in zip(self.categories, other.categories, strict=True))
        return type(self)(tuple(numbers), tuple(categories))

    def as_dict(self) -> dict[str, Any]:
        return {
            "numbers": [each.as_dict() for each in self.numbers],
            "categories": [each.as_dict() for each in self.categories],
        }


@dataclass(frozen=True)
class TableFeatures(Features[TableRows, TableSummary]):
    """What is to be learned of a table.

    Attributes
    ----------
    numbers, categories
        Names of the columns.
    scaling
        ``standard``: centre by the mean and divide by the standard deviation, which bounds the values of a column that
        is nearly always the same.  ``robust``: by the median and the interquartile range.
    marks_gaps
        Whether columns of numbers with gaps in the training rows get one more column that marks them.
    most_kinds
        The most kinds of a category with a column of their own; one more column takes all others.
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...] = ()
    scaling: Scaling = "standard"
    marks_gaps: bool = False
    most_kinds: int = 50

    def summarize(self, rows: TableRows) -> TableSummary:
        numbers = tuple(NumberSummary.of(column, self.scaling) for column in rows.numbers.T)
        kinds = (Frequencies.of(each.codes, each.names, is_ranked=each.is_ranked) for each in rows.categories)
        return TableSummary(numbers, tuple(kinds))

    def summary_from_dict(self, values: Mapping[str, Any]) -> TableSummary:
        numbers, categories = values["numbers"], values["categories"]
        return TableSummary(tuple(map(NumberSummary.from_dict, numbers)), tuple(map(Frequencies.from_dict, categories)))

    def fit(self, summary: TableSummary) -> "FittedTable":
        scales = [each.centre_and_spread for each in summary.numbers]
        marked = [self.marks_gaps and each.gaps > 0 for each in summary.numbers]
        numbers = [
            NumberColumn(name, *scale, is_marked)
            for name, scale, is_marked in zip(self.numbers, scales, marked, strict=True)
        ]
        kinds = [each.most_frequent(self.most_kinds) for each in summary.categories]
        return FittedTable(tuple(numbers), tuple(map(CategoryColumn, self.categories, kinds)))


@dataclass(frozen=True)
class NumberColumn:
    """How a column of numbers is scaled, and whether its gaps have a column of their own."""

    name: str
    centre: float
    spread: float
    is_marked: bool = False


@dataclass(frozen=True)
class CategoryColumn:
    """The kinds of a category that have a column of their own, None for a missing one."""

    name: str
    kinds: tuple[str | None, ...]


@dataclass(frozen=True)
class FittedTable(Fitted[TableRows]):
    """Features of a table: scaled numbers, marks of gaps, and one column per kind, and one for other kinds."""

    kind = "table"
    numbers: tuple[NumberColumn, ...]
    categories: tuple[CategoryColumn, ...]

    @property
    def names(self) -> list[str]:
        """The columns that are needed."""
        return [*(column.name for column in self.numbers), *(column.name for column in self.categories)]

    def transform(self, rows: TableRows) -> NDArray[np.float32]:
        scaled = np.zeros(rows.numbers.shape, dtype=np.float32)
        for index, column in enumerate(self.numbers):
            values = rows.numbers[:, index].astype(np.float64)
            scaled[:, index] = np.nan_to_num((values - column.centre) / column.spread, nan=0.0)
        marked = [index for index, column in enumerate(self.numbers) if column.is_marked]
        marks = np.isnan(rows.numbers[:, marked]).astype(np.float32)
        hot = [_one_hot(kinds, column) for kinds, column in zip(rows.categories, self.categories, strict=True)]
        return np.hstack([scaled, marks, *hot])

    def read(self, data: Any, where: str = "the data") -> TableRows:
        import pandas as pd

        if isinstance(data, pd.DataFrame):
            return self._read_frame(data, where)
        values = np.asarray(data)
        if self.categories or values.ndim != 2 or values.shape[1] != len(self.numbers):
            names = ", ".join(self.names)
            raise ClustPSIError(f"{where} has shape {values.shape}: a table with the columns {names} is needed")
        if values.dtype.kind not in "biuf" or np.isinf(values).any():
            raise ClustPSIError(f"{where} must hold finite numbers only, or NaN for a gap")
        return TableRows(values)

    def _read_frame(self, frame: "pd.DataFrame", where: str) -> TableRows:
        from clustpsi.features.columns import kinds_of, numbers_of

        named = {str(name): frame[name] for name in frame.columns}
        for name in self.names:
            if name not in named:
                hint = nearest(name, named) or f"there are {', '.join(named)}"
                raise ClustPSIError(f"{where} has no column {name!r}, which the features need: {hint}")
        numbers = [numbers_of(named[column.name], column.name, where) for column in self.numbers]
        stacked = np.column_stack([np.empty((len(frame), 0)), *numbers])
        return TableRows(stacked, tuple(Kinds(*kinds_of(named[column.name])) for column in self.categories))

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "numbers": [[each.name, each.centre, each.spread, each.is_marked] for each in self.numbers],
            "categories": [[each.name, list(each.kinds)] for each in self.categories],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        numbers = tuple(NumberColumn(*each) for each in values["numbers"])
        return cls(numbers, tuple(CategoryColumn(name, tuple(kinds)) for name, kinds in values["categories"]))


def _one_hot(kinds: Kinds, column: CategoryColumn) -> NDArray[np.float32]:
    """One column for each kind that has one, and a last one for all the others.

    >>> _one_hot(Kinds(np.array([1, 0, -1, 2]), ("sea", "wood", "moor")), CategoryColumn("habitat", ("wood", None)))
    array([[1., 0., 0.],
           [0., 0., 1.],
           [0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    place = {kind: index for index, kind in enumerate(column.kinds)}
    others = len(column.kinds)
    names: Sequence[str | None] = (None, *kinds.names)
    places = np.array([place.get(name, others) for name in names])
    hot = np.zeros((len(kinds.codes), others + 1), dtype=np.float32)
    hot[np.arange(len(kinds.codes)), places[kinds.codes + 1]] = 1.0
    return hot
