"""Models as servers and methods hand them around, and their mean, which is defined once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Model(NamedTuple):
    """A model as flat float32 vectors: trainable parameters, and buffers such as BatchNorm's running statistics."""

    parameters: NDArray[np.float32]
    buffers: NDArray[np.float32]

    @property
    def num_bytes(self) -> int:
        return int(self.parameters.nbytes + self.buffers.nbytes)


@dataclass(frozen=True)
class Deployment:
    """Which model each client uses, and, where the method has it, what is added to that client's logits.

    Attributes
    ----------
    models
        The distinct models.
    of_client
        For each client, the index of its model.
    log_prior
        (number of clients, C) or None; -inf rules a class out.
    """

    models: tuple[Model, ...]
    of_client: NDArray[np.int64]
    log_prior: NDArray[np.float64] | None = None


class WeightedMean:
    """The weighted mean of models as they come in, in double precision: memory does not grow with their number.

    >>> mean = WeightedMean()
    >>> for value, weight in ((1, 1), (4, 2)):
    ...     mean.add(Model(np.array([value], np.float32), np.array([], np.float32)), weight)
    >>> mean.result().parameters.tolist()
    [3.0]
    """

    def __init__(self) -> None:
        self._sums: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
        self._weights: list[float] = []

    def add(self, model: Model, weight: float) -> None:
        if self._sums is None:
            self._sums = np.zeros(model.parameters.size), np.zeros(model.buffers.size)
        self._weights.append(weight)
        if weight > 0:
            for total, vector in zip(self._sums, model, strict=True):
                total += np.float64(weight) * vector

    def result(self) -> Model | None:
        """The mean; None if nothing came in, or nothing that has a weight."""
        total = math.fsum(self._weights)
        if self._sums is None or total <= 0:
            return None
        return Model(*((vector / total).astype(np.float32) for vector in self._sums))


def mean_model(models: Sequence[Model], weights: ArrayLike) -> Model:
    """The weighted mean of models that are all there."""
    mean = WeightedMean()
    for model, weight in zip(models, np.asarray(weights, np.float64).tolist(), strict=True):
        mean.add(model, weight)
    result = mean.result()
    assert result is not None, "a mean needs a weight above zero"
    return result
