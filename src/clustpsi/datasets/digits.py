"""scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels, 10 classes, shipped with scikit-learn itself."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from clustpsi.datasets.base import Dataset
from clustpsi.features import ArrayFeatures, ArrayRows


def load(folder: Path | None = None) -> Dataset:
    """Load the digits; ``folder`` is there for the loaders' common signature."""
    pixels, labels = load_digits(return_X_y=True)
    return Dataset(
        "digits",
        labels.astype(np.int32),
        tuple(map(str, range(10))),
        ArrayRows(pixels),
        ArrayFeatures((64,), divisor=16.0),  # pixels are 0..16: a fixed scale, nothing is fitted
        model="logistic",
        model_reason="64 pixels: a linear model",
    )
