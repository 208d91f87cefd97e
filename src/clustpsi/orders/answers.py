"""Clients' answers: checked if they come from another machine, and collected into the reply to an order.

An order declares the form of one client's answer (its ``answer``): one line of each array in the reply.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from clustpsi.limits import LARGEST
from clustpsi.orders.models import Model, MoversMean, WeightedMean

_DTYPES = {"counts": np.int64, "flags": np.bool_, "numbers": np.float64}


class Unusable(Exception):
    """An answer that cannot be used; the reason is a phrase that follows the client's name."""


@contextmanager
def checking() -> Iterator[None]:
    """Any error in this block makes the answer that is being checked unusable."""
    try:
        yield
    except Unusable:
        raise
    except Exception as error:  # an answer may hold anything
        raise Unusable(f"its answer is malformed ({error!r})") from None


@dataclass(frozen=True)
class Line:
    """One client's line of an array.

    Attributes
    ----------
    kind
        What the line holds: counts of rows, flags, or finite numbers.
    length
        What the line has one entry for: the classes, or an attribute of the order such as its models; None for a
        single number.
    absent
        The value for a client that does not answer.
    """

    kind: Literal["counts", "flags", "numbers"]
    length: str | None = "classes"
    absent: float = 0

    def shape(self, order: Any, num_classes: int) -> tuple[int, ...]:
        if self.length is None:
            return ()
        return (num_classes if self.length == "classes" else len(getattr(order, self.length)),)

    def empty(self, number: int, order: Any, num_classes: int) -> NDArray[Any]:
        """The lines of this many clients before any of them has answered."""
        return np.full((number, *self.shape(order, num_classes)), self.absent, _DTYPES[self.kind])

    def checked(self, value: Any, order: Any, num_classes: int, what: str) -> NDArray[Any]:
        """A client's line; raises the reason if it cannot be used."""
        line, shape = np.asarray(value), (1, *self.shape(order, num_classes))
        if line.shape != shape:
            raise Unusable(f"its {what} have shape {line.shape} and not {shape}")
        if self.kind == "flags":
            if line.dtype != np.bool_:
                raise Unusable(f"its {what} are not true or false")
            return line
        return check_numbers(line, what, are_counts=self.kind == "counts")


def check_numbers(values: NDArray[Any], what: str, *, are_counts: bool) -> NDArray[Any]:
    """Numbers that are finite and, if they are counts, whole, not negative and plausible; raises if they are not."""
    if values.dtype.kind not in "iuf":
        raise Unusable(f"its {what} are not numbers")
    if not np.isfinite(values).all():
        raise Unusable(f"its {what} are not finite")
    if not are_counts:
        return values.astype(np.float64)
    if (values < 0).any():
        raise Unusable(f"its {what} are negative")
    if (values != np.floor(values)).any():
        raise Unusable(f"its {what} are not whole numbers")
    if values.sum(dtype=np.float64) > LARGEST:  # whole numbers could overflow
        raise Unusable(f"its {what} are absurdly large")
    return values.astype(np.int64)


#: One line, or the lines of a record by the names of its fields.
Answer = Line | Mapping[str, Line]


class Answers:
    """The answers to a training order as they come in.

    Parameters
    ----------
    clients
        The clients that train.
    weights
        Weights of the clients in the mean.
    each
        Whether every client's model is kept.
    mean
        The running mean to which the models are added.
    """

    def __init__(
        self,
        clients: NDArray[np.int64],
        weights: NDArray[Any],
        each: bool,
        mean: WeightedMean | MoversMean,
    ) -> None:
        self.weights = np.asarray(weights, np.float64)
        self.losses, self.kept = np.full(len(clients), np.nan), np.zeros(len(clients), bool)
        self.models: list[Model | None] | None = [None] * len(clients) if each else None
        self.mean = mean

    def add(self, position: int, model: Model, loss: float) -> None:
        """Add a client's model; one that is not finite is left out."""
        if not is_finite(model):
            return
        self.kept[position], self.losses[position] = True, loss
        if self.models is not None:
            self.models[position] = Model(model.parameters.copy(), model.buffers.copy())
        self.mean.add(model, float(self.weights[position]))


def is_finite(model: Model) -> bool:
    return all(bool(np.isfinite(vector).all()) for vector in model)


def check_model(model: Any, like: Model) -> Model:
    """A model from another machine: finite, and as large as the model it started from; raises if it is not."""
    if not isinstance(model, Model):
        raise Unusable("its update is no model")
    for what, vector, size in zip(("parameters", "buffers"), model, _sizes(like), strict=True):
        if not isinstance(vector, np.ndarray) or vector.shape != (size,):
            raise Unusable(f"its update has {what} of shape {np.shape(vector)} and not {(size,)}")
        if vector.dtype.kind != "f":
            raise Unusable(f"its update has {what} of type {vector.dtype}")
    with np.errstate(over="ignore"):  # a number too large for 32 bits becomes infinite
        single = Model(*(vector.astype(np.float32, copy=False) for vector in model))
    if not is_finite(single):
        raise Unusable("its update is not finite")
    return single


def _sizes(model: Model) -> Sequence[int]:
    return [vector.size for vector in model]
