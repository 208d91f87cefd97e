"""Images, and numbers on a known scale: nothing is learned from the rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.features.base import Features, Fitted, Nothing, Rows


@dataclass(frozen=True, eq=False)
class ArrayRows(Rows):
    """An array with one entry per row; it may be a read-only view of a file."""

    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: NDArray[np.int64]) -> "ArrayRows":
        return ArrayRows(self.values.take(rows, axis=0))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return (self.values,)


@dataclass(frozen=True)
class ArrayFeatures(Fitted[ArrayRows], Features[ArrayRows, Nothing]):
    """Rows of one shape and type, divided by a constant; fitted from the start.

    Images stay bytes, 0 to 255, and become 0 to 1 inside the model.

    Attributes
    ----------
    shape
        Shape of one row.
    dtype
        Type of the features.
    divisor
        Every value is divided by this number.
    """

    kind = "array"
    shape: tuple[int, ...]
    dtype: str = "float32"
    divisor: float = 1.0

    def summarize(self, rows: ArrayRows) -> Nothing:
        return Nothing()

    def summary_from_dict(self, values: Mapping[str, Any]) -> Nothing:
        return Nothing()

    def fit(self, summary: Nothing) -> "ArrayFeatures":
        return self

    @property
    def row(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        return self.shape, np.dtype(self.dtype)

    def transform(self, rows: ArrayRows) -> NDArray[Any]:
        if rows.values.dtype == self.dtype and self.divisor == 1:
            return rows.values
        divided: NDArray[Any] = (rows.values / self.divisor).astype(self.dtype)
        return divided

    def read(self, data: Any, where: str = "the data") -> ArrayRows:
        values = np.asarray(data)
        if self.dtype == "uint8" and values.dtype != np.uint8:
            raise ClustPSIError(f"{where} has pixels of type {values.dtype}: bytes (uint8, 0 to 255) are needed")
        if values.shape[1:] == self.shape[:-1] and self.shape[-1:] == (1,):  # grey images without an axis for colours
            values = values[..., None]
        if values.ndim == 0 or values.shape[1:] != self.shape:
            raise ClustPSIError(f"{where} has shape {values.shape}: rows of shape {self.shape} are needed")
        if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            raise ClustPSIError(f"{where} must hold finite numbers only")
        return ArrayRows(values)

    def accept(self, features: Features[Any, Any], rows: Any) -> ArrayRows:
        if features != self or not isinstance(rows, ArrayRows):
            raise ClustPSIError(f"rows of shape {self.shape} and type {self.dtype} are needed, on the same scale")
        return rows

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "shape": list(self.shape), "dtype": self.dtype, "divisor": self.divisor}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(tuple(values["shape"]), values["dtype"], values["divisor"])


def as_they_are(values: NDArray[Any]) -> tuple[ArrayRows, ArrayFeatures]:
    """Rows and features of an array that is used as it is.

    >>> rows, features = as_they_are(np.zeros((3, 2), np.float32))
    >>> features.transform(rows) is rows.values
    True
    """
    return ArrayRows(values), ArrayFeatures(values.shape[1:], values.dtype.name)
