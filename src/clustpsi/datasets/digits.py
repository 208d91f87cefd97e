"""scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels, 10 classes, shipped with scikit-learn itself."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from clustpsi.datasets.base import Dataset


def load(folder: Path | None = None) -> Dataset:
    """Load the digits; ``folder`` is there for the loaders' common signature."""
    pixels, labels = load_digits(return_X_y=True)
    features: NDArray[np.float32] = (pixels / 16).astype(
        np.float32
    )  # pixels are 0..16: a fixed scale, nothing is fitted

    def prepare(train_rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return features

    return Dataset(
        "digits",
        labels.astype(np.int32),
        tuple(map(str, range(10))),
        prepare,
        model="logistic",
        model_reason="64 pixels: a linear model",
        source=(features,),
    )
