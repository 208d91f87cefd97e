"""Tables: numbers are centred and scaled, gaps are marked, a category becomes one column per frequent kind."""

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
from clustpsi.features.written import GAPS, PLAIN, Form

if TYPE_CHECKING:
    import pandas as pd

Scaling = Literal["standard", "robust"]

# Rows that are scaled at once: what becomes of them stays in the processor's cache.
ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Kinds:
    """A column of categories: for each row the number of its category (-1: missing), and the categories by number.

    ``is_ranked`` says that the numbers are the same at all clients, so that they can order equally frequent categories.
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
        return TableRows(self.numbers.take(rows, axis=0), categories)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        names = [np.array(each.names, dtype=object) for each in self.categories]
        return self.numbers, *(each.codes for each in self.categories), *names


@dataclass(frozen=True, eq=False)
class NumberSummary:
    """What is learned from a column of numbers: how many numbers and gaps it has, and either sums or counts."""

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

    def centre_and_spread(self, scaling: Scaling) -> tuple[float, float]:
        """Mean and standard deviation, or median and interquartile range; a spread of 0 becomes 1."""
        if self.known == 0 or (self.counts is not None and not self.counts.believed().any()):
            return 0.0, 1.0
        if self.counts is None:
            centre, spread = mean_and_deviation(self.known, self.total, self.squares)
        elif scaling == "standard":
            centre, spread = self.counts.mean_and_deviation()
        else:
            low, centre, high = self.counts.quantiles([0.25, 0.5, 0.75]).tolist()
            spread = high - low
        return centre, spread or 1.0

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"known": self.known, "gaps": self.gaps}
        if self.counts is None:  # as text: JSON readers may round whole numbers of more than 53 bits
            return plain | {"total": hex(self.total), "squares": hex(self.squares)}
        return plain | {"counts": self.counts.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "NumberSummary":
        if "counts" in values:
            return cls(values["known"], values["gaps"], counts=Counts.from_dict(values["counts"]))
        return cls(values["known"], values["gaps"], int(values["total"], 16), int(values["squares"], 16))


@dataclass(frozen=True, eq=False)
class TableSummary(Summary):
    """What is learned from every column."""

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
    """Describes what is to be learned from a table.

    Attributes
    ----------
    numbers, categories
        Names of the columns.
    scaling
        ``standard``: subtract the mean and divide by the standard deviation; this bounds the values of a nearly
        constant column.  ``robust``: use the median and the interquartile range instead.
    marks_gaps
        Whether columns of numbers with gaps in the training rows get one more column that marks them.
    most_kinds
        The most kinds of a category with a column of their own; one more column takes all others.
    forms
        How columns of numbers are written, if they may be texts.
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...] = ()
    scaling: Scaling = "standard"
    marks_gaps: bool = False
    most_kinds: int = 50
    forms: tuple[Form, ...] = ()

    def summarize(self, rows: TableRows) -> TableSummary:
        numbers = tuple(NumberSummary.of(column, self.scaling) for column in rows.numbers.T)
        kinds = (Frequencies.of(each.codes, each.names, is_ranked=each.is_ranked) for each in rows.categories)
        return TableSummary(numbers, tuple(kinds))

    def summary_from_dict(self, values: Mapping[str, Any]) -> TableSummary:
        numbers, categories = values["numbers"], values["categories"]
        return TableSummary(tuple(map(NumberSummary.from_dict, numbers)), tuple(map(Frequencies.from_dict, categories)))

    def fit(self, summary: TableSummary) -> "FittedTable":
        scales = [each.centre_and_spread(self.scaling) for each in summary.numbers]
        marked = [self.marks_gaps and each.gaps > 0 for each in summary.numbers]
        forms = self.forms or (PLAIN,) * len(self.numbers)
        numbers = [
            NumberColumn(name, *scale, is_marked, form)
            for name, scale, is_marked, form in zip(self.numbers, scales, marked, forms, strict=True)
        ]
        kinds = [each.most_frequent(self.most_kinds) for each in summary.categories]
        return FittedTable(tuple(numbers), tuple(map(CategoryColumn, self.categories, kinds)))


@dataclass(frozen=True)
class NumberColumn:
    """How a column of numbers is scaled, whether its gaps have a column of their own, and how it is written."""

    name: str
    centre: float
    spread: float
    is_marked: bool = False
    form: Form = PLAIN

    def as_list(self) -> list[Any]:
        """Plain data for JSON."""
        plain = [self.name, self.centre, self.spread, self.is_marked]
        form = [self.form.is_date, self.form.is_local, list(self.form.marks)]
        return plain if self.form == PLAIN else [*plain, form]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> "NumberColumn":
        name, centre, spread, is_marked, *form = values
        if not form:
            return cls(name, centre, spread, is_marked)
        ((is_date, is_local, marks),) = form
        return cls(name, centre, spread, is_marked, Form(is_date, is_local, tuple(marks)))


@dataclass(frozen=True)
class CategoryColumn:
    """The kinds of a category that have their own column; None stands for a missing value."""

    name: str
    kinds: tuple[str | None, ...]


@dataclass(frozen=True)
class FittedTable(Fitted[TableRows]):
    """Features of a table: scaled numbers, marks of gaps, one column per frequent kind, and one for the other kinds."""

    kind = "table"
    numbers: tuple[NumberColumn, ...]
    categories: tuple[CategoryColumn, ...]

    @property
    def names(self) -> list[str]:
        """The columns that are needed."""
        return [*(column.name for column in self.numbers), *(column.name for column in self.categories)]

    @property
    def row(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        marks = sum(column.is_marked for column in self.numbers)
        return (len(self.numbers) + marks + sum(len(each.kinds) + 1 for each in self.categories),), np.dtype(np.float32)

    def transform(self, rows: TableRows) -> NDArray[np.float32]:
        (width,), kind = self.row
        features, at = np.empty((len(rows.numbers), width), kind), len(self.numbers)
        centres, spreads = np.array([(column.centre, column.spread) for column in self.numbers]).reshape(-1, 2).T
        for start in range(0, len(features), ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            values = rows.numbers[some].astype(np.float64)
            values -= centres
            values /= spreads
            features[some, :at] = np.nan_to_num(values, copy=False, nan=0.0)
        marked = [index for index, column in enumerate(self.numbers) if column.is_marked]
        features[:, at : at + len(marked)] = np.isnan(rows.numbers[:, marked])
        at += len(marked)
        for kinds, category in zip(rows.categories, self.categories, strict=True):
            hot = _one_hot(kinds, category)
            features[:, at : at + hot.shape[1]] = hot
            at += hot.shape[1]
        return features

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
        numbers = [numbers_of(named[column.name], column.name, column.form, where) for column in self.numbers]
        categories = (_as_known(Kinds(*kinds_of(named[column.name])), column) for column in self.categories)
        return TableRows(np.column_stack([np.empty((len(frame), 0)), *numbers]), tuple(categories))

    def accept(self, features: Features[Any, Any], rows: Any) -> TableRows:
        if not isinstance(features, TableFeatures) or not isinstance(rows, TableRows):
            raise ClustPSIError(f"a table with the columns {', '.join(self.names)} is needed")
        forms = features.forms or (PLAIN,) * len(features.numbers)
        are_dates = {name: form.is_date for name, form in zip(features.numbers, forms, strict=True)}
        for column in self.numbers:
            if are_dates.get(column.name) != column.form.is_date:
                raise _unlike(column.name, "dates" if column.form.is_date else "numbers")
        for each in self.categories:
            if each.name not in features.categories:
                raise _unlike(each.name, "categories")
        numbers = rows.numbers[:, [features.numbers.index(column.name) for column in self.numbers]]
        kinds = (rows.categories[features.categories.index(column.name)] for column in self.categories)
        return TableRows(numbers, tuple(_as_known(own, each) for own, each in zip(kinds, self.categories, strict=True)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "numbers": [each.as_list() for each in self.numbers],
            "categories": [[each.name, list(each.kinds)] for each in self.categories],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        numbers = tuple(map(NumberColumn.from_list, values["numbers"]))
        return cls(numbers, tuple(CategoryColumn(name, tuple(kinds)) for name, kinds in values["categories"]))


def _unlike(column: str, what: str) -> ClustPSIError:
    return ClustPSIError(f"the column {column!r} must be there and hold {what}")


def _as_known(kinds: Kinds, column: CategoryColumn) -> Kinds:
    """Categories under the names that they had when features were fitted.

    What a reader of files takes for a gap is a gap, unless it was a category then.
    """
    from clustpsi.features.columns import known_name

    known = frozenset(column.kinds)
    names = tuple(known_name(name, known) for name in kinds.names)
    is_gap = np.array([name in GAPS and name not in known for name in names] + [False], dtype=bool)
    if is_gap.any():
        return Kinds(np.where(is_gap[kinds.codes], np.int32(-1), kinds.codes), names)
    return Kinds(kinds.codes, names)


def _one_hot(kinds: Kinds, column: CategoryColumn) -> NDArray[np.float32]:
    """One column for each listed kind, and a last one for all others.

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
