"""scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels, 10 classes, shipped with scikit-learn itself."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.base import Dataset
from clustpsi.features import ArrayFeatures, ArrayRows


def load(folder: Path | None = None) -> Dataset:
    """Load the digits; ``folder`` is there for the loaders' common signature."""
    rows = _rows()
    return Dataset(
        "digits",
        rows[:, -1].astype(np.int32),
        tuple(map(str, range(10))),
        ArrayRows(rows[:, :-1]),
        ArrayFeatures((64,), divisor=16.0),  # pixels are 0..16: a fixed scale, nothing is fitted
        model="logistic",
        model_reason="64 pixels: a linear model",
    )


@cache
def _rows() -> NDArray[np.float64]:
    """One row per image: its pixels, then its class.  They are read once in a process, and cannot be written to."""
    rows = np.loadtxt(_file(), delimiter=",")
    rows.flags.writeable = False
    return rows


def _file() -> Path:
    """What `sklearn.datasets.load_digits` reads; importing scikit-learn for it would take most of a second."""
    package = find_spec("sklearn")
    assert package is not None and package.origin is not None, "scikit-learn is a dependency"
    return Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"
