"""What turns rows of data into the numbers that a model takes, in three steps that can happen in three places.

Each client *summarizes* its own rows; summaries *merge*, in any order with the same result; the merged summary is
*fitted* into an object of plain data, whose ``transform`` gives the features of any rows of that kind: on every client,
in the simulator, and for rows that come later.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
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
        """Everything that can change a feature, as arrays, for a hash of the content."""


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
    """Features that know everything they need; plain data."""

    kind: str

    @abstractmethod
    def transform(self, rows: R) -> NDArray[Any]:
        """The features of rows, one line each."""

    @abstractmethod
    def read(self, data: Any, where: str = "the data") -> R:
        """Rows from a table, an array, images or texts; ``where`` is what they are called in an error."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, from which :func:`clustpsi.features.fitted_from_dict` makes the same object."""

    @classmethod
    @abstractmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self: ...


class Features(ABC, Generic[R, S]):
    """What is to be learned from rows of one kind."""

    @abstractmethod
    def summarize(self, rows: R) -> S: ...

    @abstractmethod
    def summary_from_dict(self, values: Mapping[str, Any]) -> S:
        """A summary from what its ``as_dict`` gave."""

    @abstractmethod
    def fit(self, summary: S) -> Fitted[R]: ...

    def fit_clients(self, clients: Iterable[R]) -> Fitted[R]:
        """What a federation does: summaries of all clients, merged."""
        return self.fit(reduce(lambda one, other: one.merge(other), map(self.summarize, clients)))
