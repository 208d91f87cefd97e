"""Models as servers and methods exchange them, and their weighted mean."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustpsi.orders.parts import PerClient, Role


class Model(NamedTuple):
    """A model as flat float32 vectors: trainable parameters, and buffers such as BatchNorm's running statistics."""

    parameters: NDArray[np.float32]
    buffers: NDArray[np.float32]

    @property
    def num_bytes(self) -> int:
        return int(self.parameters.nbytes + self.buffers.nbytes)


@dataclass(frozen=True)
class Deployment:
    """Which model each client uses and, for some methods, what is added to that client's logits.

    Attributes
    ----------
    models
        The distinct models.
    of_client
        For each client, the index of its model.
    log_prior
        (number of clients, C) or None; -inf rules a class out.
    scale
        (number of clients,) or None: factor of that client's logits before the prior is added; with 0 only the prior
        counts.
    """

    models: Annotated[tuple[Model, ...], Role("chosen", "of_client")]
    of_client: PerClient[NDArray[np.int64]]
    log_prior: PerClient[NDArray[np.float64] | None] = None
    scale: PerClient[NDArray[np.float64] | None] = None

    def of(self, clients: NDArray[np.int64]) -> "Deployment":
        """The deployment of some of the clients, given by their positions."""
        log_prior, scale = (None if each is None else each[clients] for each in (self.log_prior, self.scale))
        return Deployment(self.models, self.of_client[clients], log_prior, scale)


def joined(parts: Sequence[Deployment], part_of_client: NDArray[np.int64]) -> Deployment:
    """Join the deployments of groups of clients; within each group the clients keep their order.

    >>> model = Model(np.zeros(1, np.float32), np.zeros(0, np.float32))
    >>> alone, two = Deployment((model,), np.array([0, 0])), Deployment((model, model), np.array([1, 0]))
    >>> joined([alone, two], np.array([0, 1, 0, 1])).of_client.tolist()
    [0, 2, 0, 1]
    """
    number, first = len(part_of_client), 0
    of_client = np.empty(number, np.int64)
    columns: dict[str, NDArray[np.float64] | None] = {"log_prior": None, "scale": None}
    for name in columns:
        given = [getattr(part, name) for part in parts if getattr(part, name) is not None]
        if given:  # for a part that gives none, nothing is added or scaled
            columns[name] = np.full((number, *given[0].shape[1:]), 0.0 if name == "log_prior" else 1.0)
    for i, part in enumerate(parts):
        own = part_of_client == i
        of_client[own] = first + part.of_client
        first += len(part.models)
        for name, column in columns.items():
            if column is not None and getattr(part, name) is not None:
                column[own] = getattr(part, name)
    return Deployment(tuple(model for part in parts for model in part.models), of_client, **columns)


class WeightedMean:
    """The weighted mean of models, added one by one in double precision.  Memory does not grow with their number.

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
        """The mean; None if no model was added, or only models of weight zero."""
        total = math.fsum(self._weights)
        if self._sums is None or total <= 0:
            return None
        return Model(*((vector / total).astype(np.float32) for vector in self._sums))


class MoversMean:
    """A mean of models that averages each parameter only over the clients that changed it from a common start.

    A parameter that no client changed stays.  A client with texts changes only the words that it has; in a plain mean
    the unchanged copies of all other clients hold these words back.  Buffers get the plain mean.

    >>> none = np.array([], np.float32)
    >>> mean = MoversMean(Model(np.array([1, 1, 1], np.float32), none))
    >>> for values in ([3, 1, 1], [5, 2, 1]):
    ...     mean.add(Model(np.array(values, np.float32), none), 1)
    >>> mean.result().parameters.tolist()
    [4.0, 2.0, 1.0]
    """

    def __init__(self, start: Model) -> None:
        self._start = start.parameters
        self._change, self._weight = np.zeros(self._start.size), np.zeros(self._start.size)
        self._buffers = WeightedMean()

    def add(self, model: Model, weight: float) -> None:
        self._buffers.add(Model(model.buffers[:0], model.buffers), weight)
        if weight <= 0:
            return
        change = model.parameters - self._start
        moved = np.flatnonzero(change)
        if len(moved) < change.size // 4:  # few of many: update only these
            self._change[moved] += np.float64(weight) * change[moved]
            self._weight[moved] += weight
        else:
            self._change += np.float64(weight) * change
            self._weight += weight * (change != 0)

    def result(self) -> Model | None:
        """The mean; None if no model was added, or only models of weight zero."""
        buffers = self._buffers.result()
        if buffers is None:
            return None
        step = np.divide(self._change, self._weight, out=np.zeros_like(self._change), where=self._weight > 0)
        return Model((self._start + step).astype(np.float32), buffers.buffers)


def mean_model(models: Sequence[Model], weights: ArrayLike) -> Model:
    """The weighted mean of a list of models."""
    mean = WeightedMean()
    for model, weight in zip(models, np.asarray(weights, np.float64).tolist(), strict=True):
        mean.add(model, weight)
    result = mean.result()
    assert result is not None, "a mean needs a weight above zero"
    return result
