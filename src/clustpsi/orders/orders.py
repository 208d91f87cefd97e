"""Work orders: what a method asks of the clients, and what comes back.

A method never trains or evaluates anything itself.  Its generator yields orders; a server (the simulator, or a real
federation) serves each order and sends the reply into the generator.  So a method is written once and runs anywhere.

Some clients may not answer an order.  The description of each reply says what it holds for them.  The time that an
order takes is booked under its ``purpose``.

Most fields of an order mean the same to all of its clients.  A field that is :data:`~clustpsi.orders.parts.PerClient`
has one entry per client, so that :func:`~clustpsi.orders.parts.part` can give each client its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.orders.answers import Answer, Answers, Line
from clustpsi.orders.models import Deployment, Model, MoversMean, WeightedMean
from clustpsi.orders.parts import ForServer, PerClient


@dataclass(frozen=True)
class HoldOut:
    """Training rows that a client sets aside: it never trains on them, so a method can make choices with them.

    Attributes
    ----------
    share
        Share of a client's training rows; a fraction of a row is rounded at random, so that the share holds on average.
    most
        Largest number of rows that one client holds out.
    """

    share: float
    most: int

    def chosen(self, number: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Which of a client's rows are held out.  At least one is left to train on.

        >>> int(HoldOut(0.25, 100).chosen(40, np.random.default_rng(0)).sum())
        10
        """
        held = np.zeros(number, bool)
        wanted = int(self.share * number + rng.random())
        held[rng.permutation(number)[: max(0, min(wanted, self.most, number - 1))]] = True
        return held


@dataclass(frozen=True)
class LabelCounts:
    """Clients send how many training samples they have of each class; the reply is the (len(clients), C) array.

    A client that does not answer has a row of zeros.  The reply is None if the federation's clients keep their counts
    to themselves.  With ``hold_out``, rows that the client holds out do not count.
    """

    answer: ClassVar[Answer] = Line("counts")
    purpose: ClassVar[str] = "start"

    clients: PerClient[NDArray[np.int64]]
    hold_out: HoldOut | None = None


@dataclass(frozen=True)
class LabelPresence:
    """Clients send one bit per class: whether they hold it; the reply is a boolean (len(clients), C) array.

    A client that does not answer has a row of False.  The reply is None if the federation's clients keep their classes
    to themselves.
    """

    answer: ClassVar[Answer] = Line("flags")
    purpose: ClassVar[str] = "start"

    clients: PerClient[NDArray[np.int64]]


@dataclass(frozen=True)
class Train:
    """Clients train locally; the reply is a :class:`Trained`.

    Attributes
    ----------
    clients
        The clients that train.
    start
        The model all of them start from, or one model for each.
    weights
        Weights of the clients in the mean; by default their numbers of training samples.
    proximal
        Strength mu of the term (mu/2) ||theta - anchor||^2 in the local objective, one number or one for each client.
    anchors
        Models that the proximal term pulls towards, one per client; by default each client's start.
    log_prior
        (len(clients), C), added to the logits in training; -inf removes a class from the softmax.
    logit_scale
        (len(clients), C), factors of the logits in training, before the prior is added.
    trains
        Which parameters are trained, one truth value for each; by default all.  The others stay as they are.
    hold_out
        Rows that the clients do not train on.
    average_over
        Which clients the mean of a parameter is taken over: "all" that trained, or the "movers" that changed it (only
        with one start for all; see :class:`~clustpsi.orders.models.MoversMean`).
    each
        Whether the reply must have every client's model, not only the mean (memory grows with the number of clients).
    holds_start
        Whether every client already holds its start, so that it is not sent again.
    mixed_of
        If clients compute their anchors as mixtures of some models: these models, which are then sent instead.
    keeps_model
        Whether clients keep their models, so that nothing is sent back over the network.
    purpose
        The purpose to which the ledger adds the time.
    """

    clients: PerClient[NDArray[np.int64]]
    start: PerClient[Model | Sequence[Model]]
    weights: ForServer[NDArray[np.float64] | None] = None
    proximal: PerClient[float | NDArray[np.float64]] = 0.0
    anchors: PerClient[Sequence[Model] | None] = None
    log_prior: PerClient[NDArray[np.float64] | None] = None
    logit_scale: PerClient[NDArray[np.float64] | None] = None
    trains: NDArray[np.bool_] | None = None
    hold_out: HoldOut | None = None
    average_over: ForServer[str] = "all"
    each: bool = False
    holds_start: bool = False
    mixed_of: ForServer[Sequence[Model]] = ()
    keeps_model: bool = False
    purpose: str = "training"

    def running_mean(self) -> WeightedMean | MoversMean:
        """The mean that the order asks for, still empty."""
        if self.average_over == "all":
            return WeightedMean()
        if not isinstance(self.start, Model):
            raise ClustPSIError("who moved a parameter is known only where all clients start from one model")
        return MoversMean(self.start)


class Trained(NamedTuple):
    """The reply to a training order.

    A client that does not answer, or whose update is not finite, is omitted.  ``kept`` says which clients remain.
    ``mean`` is their mean (None if no client remains, or all weights are zero).  ``models``, if asked for, has None for
    every omitted client.
    """

    mean: Model | None
    losses: NDArray[np.float64]
    kept: NDArray[np.bool_]
    models: list[Model | None] | None

    @classmethod
    def of(cls, answers: Answers) -> "Trained":
        return cls(answers.mean.result(), answers.losses, answers.kept, answers.models)


@dataclass(frozen=True)
class TrainPooled:
    """Train on all clients' data in one place, which only a simulator can do; the reply is a :class:`Pooled`."""

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

    answer: ClassVar[Answer] = Line("numbers", None, absent=np.nan)
    purpose: ClassVar[str] = "losses"

    clients: PerClient[NDArray[np.int64]]
    model: Model


@dataclass(frozen=True)
class HeldOutLosses:
    """Clients send how well several readings of a model fit the rows that they hold out.

    In reading r the probabilities of client k's classes are softmax(scales[r] logits + log_prior[k] + shifts[r]).  A
    scale of 0 leaves the logits out.  The reply is a (len(clients), number of readings) array.  It holds the sum of the
    losses of the client's held-out rows: 0 for a client without any, NaN for a client that does not answer.  A row
    whose loss is not finite counts :data:`RULED_OUT_LOSS`.

    Attributes
    ----------
    clients
        The clients that take part.
    model
        The model of all of them, or one for each.
    hold_out
        Which rows they hold out.
    log_prior
        (len(clients), C); -inf rules a class out.
    scales, shifts
        Scales and shifts of the readings: (R,) and (R, C).
    holds_model
        Whether every client already holds its model, so that it is not sent again.
    purpose
        The purpose to which the ledger adds the time.
    """

    answer: ClassVar[Answer] = Line("numbers", "scales", absent=np.nan)

    clients: PerClient[NDArray[np.int64]]
    model: PerClient[Model | Sequence[Model]]
    hold_out: HoldOut
    log_prior: PerClient[NDArray[np.float64]]
    scales: NDArray[np.float64]
    shifts: NDArray[np.float64]
    holds_model: bool = False
    purpose: str = "calibration"


@dataclass(frozen=True)
class NearestModel:
    """Clients count for how many of their training samples each of several models has the least loss (ties: the first).

    The reply is a (len(clients), len(models)) array of counts, with a row of zeros for a client that does not answer.
    """

    answer: ClassVar[Answer] = Line("counts", "models")
    purpose: ClassVar[str] = "estimation"

    clients: PerClient[NDArray[np.int64]]
    models: Sequence[Model]


# The loss of a row whose class the deployed prior rules out.  Its probability is 0, so its loss would be infinite.  The
# row counts as if the probability were the smallest normal float32, so that the mean loss stays readable.
RULED_OUT_LOSS = float(-np.log(np.finfo(np.float32).tiny))


@dataclass(frozen=True)
class Evaluate:
    """Clients score the models they use on their own test data; the reply is an :class:`Evaluated`.

    Attributes
    ----------
    clients
        The clients that take part.
    deployment
        The model that each of them uses, in the same order.
    """

    answer: ClassVar[Answer] = {
        "actual": Line("counts"),
        "predicted": Line("counts"),
        "correct": Line("counts"),
        "loss": Line("numbers", None),
    }
    purpose: ClassVar[str] = "evaluation"

    clients: PerClient[NDArray[np.int64]]
    deployment: Deployment


class Evaluated(NamedTuple):
    """The reply to an evaluation: one row per client, all zeros for a client without test data or without answer.

    Attributes
    ----------
    actual
        Test rows of each class, (len(clients), C).
    predicted
        Test rows for which the client's model predicts each class, (len(clients), C).
    correct
        Test rows of each class that are predicted correctly, (len(clients), C).
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


Order = LabelCounts | LabelPresence | Train | TrainPooled | Losses | HeldOutLosses | NearestModel | Evaluate | Together
