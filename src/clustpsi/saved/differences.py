"""Vectors that differ little, saved as the first of them and the values in which the others differ from it.

Personal text models are such vectors: a client changes only the words that it has, about a tenth of all.  The values
themselves are saved and not the differences, so that every bit comes back.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST, COUNTS, PLACES, VALUES = "first", "counts", "places", "values"


def packed(name: str, vectors: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """A matrix under a name or, if that is smaller, its rows' differences under names that begin with it.

    >>> few = np.zeros((3, 100), np.float32)
    >>> few[1, 7] = few[2, 8] = 1
    >>> {key: array.shape for key, array in packed("p", few).items()}
    {'p.first': (100,), 'p.counts': (2,), 'p.places': (2,), 'p.values': (2,)}
    >>> list(packed("p", few[:1]))
    ['p']
    """
    # Compared as bits, because 0 and -0 are equal as numbers.
    bits = np.ascontiguousarray(vectors).view(np.uint32)
    differs = [np.flatnonzero(line != bits[0]) for line in bits[1:]]
    number = sum(map(len, differs))
    if 2 * number + len(differs) + vectors.shape[1] >= vectors.size:
        return {name: vectors}
    return {
        f"{name}.{FIRST}": vectors[0],
        f"{name}.{COUNTS}": np.array([len(places) for places in differs], np.int32),
        f"{name}.{PLACES}": np.concatenate(differs).astype(np.int32),
        f"{name}.{VALUES}": np.concatenate([line[places] for line, places in zip(vectors[1:], differs, strict=True)]),
    }


def unpacked(name: str, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """The matrix that :func:`packed` was given."""
    if name in arrays:
        return arrays[name]
    first, counts, places, values = (arrays[f"{name}.{part}"] for part in (FIRST, COUNTS, PLACES, VALUES))
    if not len(places) == len(values) == counts.sum():
        raise ValueError(f"{counts.sum()} differences are announced, and {len(places)} are there")
    if len(places) and places.min() < 0:
        raise ValueError("a difference is at no place")
    vectors = np.tile(first, (len(counts) + 1, 1))
    vectors[1 + np.repeat(np.arange(len(counts)), counts), places] = values
    return vectors
