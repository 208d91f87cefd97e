"""Work orders: what a method asks of the clients, and what comes back.

A method never trains or evaluates anything itself.  Its generator yields orders; a server (the simulator, or a real
federation) serves each order and sends the reply back in.  That is why a method is written once and runs anywhere.

Any order may have clients that do not answer.  Each reply says what stands in their place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustpsi.orders.models import Deployment, Model


@dataclass(frozen=True)
class LabelCounts:
    """Clients send how many training samples they have of each class; the reply is the (len(clients), C) array.

    A client that does not answer has a row of zeros.  The reply is None where the federation's clients do not tell.
    """

    clients: NDArray[np.int64]


@dataclass(frozen=True)
class LabelPresence:
    """Clients send one bit per class: whether they hold it; the reply is a boolean (len(clients), C) array.

    A client that does not answer has a row of False.  The reply is None where the federation's clients do not tell.
    """

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
    holds_start
        Whether every client holds its start already, so that it is not sent again.
    mixed_of
        Where clients mix their anchors themselves, the models that they mix: these are sent, and not the anchors.
    keeps_model
        Whether the clients keep their models to themselves, so that nothing comes back over the network.
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
    holds_start: bool = False
    mixed_of: Sequence[Model] = ()
    keeps_model: bool = False
    purpose: str = "training"


class Trained(NamedTuple):
    """What comes back from local training.

    A client that does not answer, or whose update is not finite, is omitted: ``kept`` says which clients were not,
    ``mean`` is over those alone (None if nobody is left, or all weights are zero) and ``models``, where asked for, has
    None in its place.
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
    """Clients send the mean loss of a model over their training data; the reply is a (len(clients),) array.

    A client that does not answer has NaN.
    """

    clients: NDArray[np.int64]
    model: Model


@dataclass(frozen=True)
class NearestModel:
    """Clients count, over their training samples, which of several models has the least loss (ties: the first).

    The reply is a (len(clients), len(models)) array of counts, with a row of zeros for a client that does not answer.
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
