"""How rows of data become the input of a model, in three steps that can happen in three places.

Each client *summarizes* its own rows.  Summaries *merge*: in any order the result is the same.  Features are *fitted*
from the merged summary, as an object of plain data.  Its ``transform`` gives the features of any rows of that kind: on
every client, in the simulator, and for new rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray


class Rows(ABC):
    """Rows of data as they were read."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Self:
        """Some of the rows."""

    @property
    @abstractmethod
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Everything that can change a feature, as arrays from which the content is hashed."""


class Summary(ABC):
    """What is learned from some rows; plain data."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """What is learned from the rows of both."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""


R = TypeVar("R", bound=Rows)
S = TypeVar("S", bound=Summary)


class Fitted(ABC, Generic[R]):
    """Fitted features: they hold everything they need as plain data."""

    kind: str

    @property
    @abstractmethod
    def row(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and type of the features of one row."""

    @abstractmethod
    def transform(self, rows: R) -> NDArray[Any]:
        """The features of rows, one entry per row."""

    @abstractmethod
    def read(self, data: Any, where: str = "the data") -> R:
        """Rows from a table, an array, images or texts; error messages name them by ``where``."""

    @abstractmethod
    def accept(self, features: "Features[Any, Any]", rows: Any) -> R:
        """Rows that were read for other features, in the form that these need; raises if they do not fit."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, from which :func:`clustpsi.features.fitted_from_dict` makes the same object."""

    @classmethod
    @abstractmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self: ...


class Features(ABC, Generic[R, S]):
    """Describes what is to be learned from rows of one kind."""

    @abstractmethod
    def summarize(self, rows: R) -> S: ...

    @abstractmethod
    def summary_from_dict(self, values: Mapping[str, Any]) -> S:
        """The summary from the result of its ``as_dict``."""

    @abstractmethod
    def fit(self, summary: S) -> Fitted[R]: ...

    def fit_clients(self, clients: Iterable[R]) -> Fitted[R]:
        """Fit as a federation does: merge the summaries of all clients."""
        return self.fit(reduce(lambda one, other: one.merge(other), map(self.summarize, clients)))


@dataclass(frozen=True)
class Nothing(Summary):
    """The summary for features that need nothing from the rows."""

    def merge(self, other: Self) -> Self:
        return self

    def as_dict(self) -> dict[str, Any]:
        return {}
