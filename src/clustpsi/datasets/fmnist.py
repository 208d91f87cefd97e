"""Fashion-MNIST: 70,000 grey images of 28 x 28 pixels, ten kinds of clothing.

Xiao, Rasul, Vollgraf: Fashion-MNIST, a novel image dataset for benchmarking machine learning algorithms. 2017.

Layout: the four official IDX files, gzip or plain. Features are the pixels as they are (uint8; the model divides by
255), the label is the official class. Nothing is fitted. The official test part follows the training part.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.base import Dataset
from clustpsi.datasets.cache import Arrays, cached
from clustpsi.datasets.files import find, missing, read_bytes
from clustpsi.errors import ClustPSIError
from clustpsi.features import ArrayFeatures, ArrayRows

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def load(folder: Path) -> Dataset:
    paths = [find(folder, name) or _absent(folder, name) for name in FILES]
    arrays = cached(folder, paths, 1, lambda: _parse(*paths))
    return Dataset(
        "fmnist",
        np.asarray(arrays["labels"]),
        CLASSES,
        ArrayRows(arrays["images"]),
        ArrayFeatures((28, 28, 1), "uint8"),
        model="fmnist_cnn",
        official_test=np.arange(int(arrays["train_size"][0]), len(arrays["images"])),
        model_reason="the paper's model for Fashion-MNIST",
    )


def _absent(folder: Path, name: str) -> Path:
    raise missing(folder, name, f"{name}.gz")


def _parse(train_images: Path, train_labels: Path, test_images: Path, test_labels: Path) -> Arrays:
    images, labels = [], []
    for image_path, label_path in ((train_images, train_labels), (test_images, test_labels)):
        images.append(read_idx(image_path, 3))
        labels.append(read_idx(label_path, 1))
        if images[-1].shape[1:] != (28, 28):
            raise ClustPSIError(f"{image_path} holds images of {images[-1].shape[1:]} pixels, not (28, 28)")
        if len(images[-1]) != len(labels[-1]):
            raise ClustPSIError(
                f"{image_path} holds {len(images[-1])} images but {label_path} {len(labels[-1])} labels"
            )
        if labels[-1].max(initial=0) >= len(CLASSES):
            row = int(labels[-1].argmax())
            raise ClustPSIError(f"{label_path} has label {labels[-1][row]} in row {row + 1}: 0 to 9 are known")
    return {
        "images": np.concatenate(images)[..., None],
        "labels": np.concatenate(labels).astype(np.int32),
        "train_size": np.array([len(labels[0])]),
    }


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes: two zero bytes, type 8, the number of dimensions, their big-endian sizes, data."""
    content = read_bytes(path)
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < 4 + 4 * dimensions:
        raise ClustPSIError(f"{path} is not an IDX file of unsigned bytes with {dimensions} dimension(s)")
    shape = tuple(np.frombuffer(content, ">u4", dimensions, offset=4).tolist())
    data = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
    if data.size != np.prod(shape, dtype=np.int64):
        raise ClustPSIError(
            f"{path} announces {' x '.join(map(str, shape))} bytes but holds {data.size}: it is truncated or damaged"
        )
    return data.reshape(shape)
