"""CIFAR-10: 60,000 colour images of 32 x 32 pixels, ten kinds of objects.

Krizhevsky: Learning multiple layers of features from tiny images. 2009.

Layouts: the official binary release (``cifar-10-batches-bin/``) or the Python one (``cifar-10-batches-py/``). Features
are the pixels as they are (uint8, height x width x RGB; the model divides by 255), the label is the official class.
Nothing is fitted. The official test part follows the training part.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.base import Dataset
from clustpsi.datasets.cache import Arrays, cached
from clustpsi.datasets.files import find, missing, read_bytes, reading
from clustpsi.errors import ClustPSIError
from clustpsi.features import ArrayFeatures, ArrayRows

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
PIXELS = 32 * 32 * 3


def load(folder: Path) -> Dataset:
    paths = _batches(folder)
    arrays = cached(folder, paths, 1, lambda: _parse(paths))
    return Dataset(
        "cifar10",
        np.asarray(arrays["labels"]),
        CLASSES,
        ArrayRows(arrays["images"]),
        ArrayFeatures((32, 32, 3), "uint8"),
        model="cifar_cnn",
        official_test=np.arange(int(arrays["train_size"][0]), len(arrays["images"])),
        model_reason="the paper's model for CIFAR-10",
    )


def _batches(folder: Path) -> list[Path]:
    binary = [find(folder, f"{name}.bin") for name in BATCHES]
    pickled = [find(folder, name) for name in BATCHES]
    for paths in (binary, pickled):
        present = [path for path in paths if path is not None]
        if len(present) == len(BATCHES):
            return present
    lacking = next(name for name, path in zip(BATCHES, binary, strict=True) if path is None)
    raise missing(folder, f"cifar-10-batches-bin/{lacking}.bin", f"cifar-10-batches-py/{lacking}")


def _parse(paths: list[Path]) -> Arrays:
    images, labels = [], []
    for path in paths:
        batch, classes = _read_binary(path) if path.suffix == ".bin" else _read_pickle(path)
        if classes.size and not 0 <= classes.min() <= classes.max() < len(CLASSES):
            row = int(np.flatnonzero((classes < 0) | (classes >= len(CLASSES)))[0])
            raise ClustPSIError(f"{path} has label {classes[row]} in row {row + 1}: 0 to 9 are known")
        planes = batch.reshape(-1, 3, 32, 32)  # the files store one plane a colour
        images.append(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)))
        labels.append(classes.astype(np.int32))
    return {
        "images": np.concatenate(images),
        "labels": np.concatenate(labels),
        "train_size": np.array([sum(map(len, labels[:-1]))]),
    }


def _read_binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.integer[Any]]]:
    content = np.frombuffer(read_bytes(path), np.uint8)
    if content.size == 0 or content.size % (1 + PIXELS):
        raise ClustPSIError(
            f"{path} has {content.size} bytes, which is no multiple of {1 + PIXELS} (a label and an image): "
            "it is truncated or another file"
        )
    records = content.reshape(-1, 1 + PIXELS)
    return records[:, 1:], records[:, 0]


def _read_pickle(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.integer[Any]]]:
    content = read_bytes(path)
    with reading(path, "a CIFAR-10 batch"):
        try:
            batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
            images, labels = batch[b"data"], np.array(batch[b"labels"])
        except (KeyError, TypeError, IndexError, AttributeError, ImportError) as error:
            raise ClustPSIError(f"{path} is not a CIFAR-10 batch: it holds no 'data' and 'labels'") from error
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape != (len(labels), PIXELS):
        raise ClustPSIError(f"{path} is not a CIFAR-10 batch: 'data' is not one row of {PIXELS} bytes a label")
    return images, labels


class _ArrayUnpickler(pickle.Unpickler):
    """Builds arrays and plain containers only: a pickle from elsewhere may otherwise run any code."""

    ALLOWED = frozenset({("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")})

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return super().find_class("numpy._core.multiarray", name)
        if (module, name) in self.ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a CIFAR-10 batch does not need {module}.{name}")
