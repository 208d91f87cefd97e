"""Work orders: what a method asks of the clients, and what comes back.

A method never trains or evaluates anything itself.  Its generator yields orders; whoever drives it (the simulator, or a
real federation) serves each order and sends the reply back in.  That is why a method is written once and runs anywhere.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

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


def mean_model(models: Sequence[Model], weights: ArrayLike) -> Model:
    """The weighted mean of models, summed in double precision."""
    shares = np.asarray(weights, np.float64) / np.sum(weights)
    sums, products = ([np.zeros(part.size) for part in models[0]] for _ in range(2))
    for model, share in zip(models, shares, strict=True):
        for total, product, part in zip(sums, products, model, strict=True):
            total += np.multiply(part, share, out=product)
    return Model(*(total.astype(np.float32) for total in sums))


@dataclass(frozen=True)
class LabelCounts:
    """Clients send how many training samples they have of each class; the reply is the (len(clients), C) array.

    Where clients do not tell, the reply is None.
    """

    clients: NDArray[np.int64]


@dataclass(frozen=True)
class LabelPresence:
    """Clients send one bit per class: whether they hold it; the reply is a boolean (len(clients), C) array, or None."""

    clients: NDArray[np.int64]


@dataclass(frozen=True)
class Train:
    """Clients train locally; the reply is a :class:`Trained`.

    Attributes
    ----------
    clients
        Who trains.
    start
        The model all of them start from, or one model for each.
    weights
        Of the clients in the mean; by default their numbers of training samples.
    proximal
        Strength mu of the term (mu/2) ||theta - anchor||^2 in the local objective, one number or one for each client.
    anchors
        What the proximal term pulls towards, one model for each client; by default each client's start.
    log_prior
        (len(clients), C), added to the logits in training; -inf takes a class out of the softmax altogether.
    each
        Whether every client's model must come back besides the mean (memory grows with the number of clients).
    downloads, uploads
        How many models each client receives and sends for this order (0 received where it holds its start already).
    purpose
        Under which the time it takes is booked.
    """

    clients: NDArray[np.int64]
    start: Model | Sequence[Model]
    weights: NDArray[np.float64] | None = None
    proximal: float | NDArray[np.float64] = 0.0
    anchors: Sequence[Model] | None = None
    log_prior: NDArray[np.float64] | None = None
    each: bool = False
    downloads: int = 1
    uploads: int = 1
    purpose: str = "training"


class Trained(NamedTuple):
    """What comes back from local training.

    A client whose update is not finite is left out: ``kept`` says which clients were not, ``mean`` is over those alone
    (None if nobody is left, or all weights are zero) and ``models``, where asked for, has None in its place.
    """

    mean: Model | None
    losses: NDArray[np.float64]
    kept: NDArray[np.bool_]
    models: list[Model | None] | None


@dataclass(frozen=True)
class TrainPooled:
    """Training on all clients' data in one place, which only a simulator can do; the reply is a :class:`Pooled`."""

    start: Model
    epochs: int
    optimizer_state: NDArray[np.float32] | None = None


class Pooled(NamedTuple):
    model: Model
    loss: float
    optimizer_state: NDArray[np.float32]


@dataclass(frozen=True)
class Losses:
    """Clients send the mean loss of a model over their training data; the reply is a (len(clients),) array."""

    clients: NDArray[np.int64]
    model: Model


@dataclass(frozen=True)
class NearestModel:
    """Clients count, over their training samples, which of several models has the least loss (ties: the first).

    The reply is a (len(clients), len(models)) array of counts.
    """

    clients: NDArray[np.int64]
    models: Sequence[Model]


# The loss of a row whose class the deployed prior rules out.  Its probability is 0 and its loss infinite; it counts as
# if the probability were the smallest that float32 holds in full precision, so that such a row leaves a mean readable.
RULED_OUT_LOSS = float(-np.log(np.finfo(np.float32).tiny))


@dataclass(frozen=True)
class Evaluate:
    """Clients score the models they use on their own test data; the reply is an :class:`Evaluated`.

    Attributes
    ----------
    clients
        Who takes part.
    deployment
        What each of them uses, in their order.
    """

    clients: NDArray[np.int64]
    deployment: Deployment


class Evaluated(NamedTuple):
    """What comes back from an evaluation, a row for each client; a row of zeros for one without test data or answer.

    Attributes
    ----------
    actual
        Test rows of each class, (len(clients), C).
    predicted
        Test rows that the client's model takes for each class, (len(clients), C).
    correct
        Test rows of each class that it takes for what they are, (len(clients), C).
    loss
        Sum of the rows' losses, (len(clients),); a row of a class that the prior rules out counts
        :data:`RULED_OUT_LOSS`.
    """

    actual: NDArray[np.int64]
    predicted: NDArray[np.int64]
    correct: NDArray[np.int64]
    loss: NDArray[np.float64]


@dataclass(frozen=True)
class Together:
    """Several orders that may be served at the same time; the reply is the tuple of their replies."""

    orders: tuple["Order", ...]


Order = LabelCounts | LabelPresence | Train | TrainPooled | Losses | NearestModel | Evaluate | Together

T = TypeVar("T")
# The reply's type follows from the order's, which a generator's type cannot say; hence Any.
Work = Generator[Order, Any, T]


def drive(work: Work[T], serve: Callable[[Order], Any]) -> T:
    """Run a method's generator to its end, serving every order it yields.

    >>> def ask():
    ...     counts = yield LabelCounts(np.array([0]))
    ...     return counts + 1
    >>> drive(ask(), lambda order: 41)
    42
    """
    try:
        order = next(work)
        while True:
            order = work.send(serve(order))
    except StopIteration as end:
        result: T = end.value
        return result


def together(works: Sequence[Work[T]]) -> Work[list[T]]:
    """Run several generators side by side: their current orders go out together, until each has ended."""
    results: dict[int, T] = {}
    pending: dict[int, Order] = {}

    def advance(i: int, reply: Any) -> None:
        try:
            pending[i] = next(works[i]) if reply is _FIRST else works[i].send(reply)
        except StopIteration as end:
            pending.pop(i, None)
            results[i] = end.value

    for i in range(len(works)):
        advance(i, _FIRST)
    while pending:
        asked = list(pending)
        replies = yield Together(tuple(pending[i] for i in asked))
        for i, reply in zip(asked, replies, strict=True):
            advance(i, reply)
    return [results[i] for i in range(len(works))]


_FIRST = object()
