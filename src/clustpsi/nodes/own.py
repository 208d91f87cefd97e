"""Nodes with a model of their own, in any framework: three plain functions, and one for the initial model."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clustpsi.datasets.base import fingerprint
from clustpsi.errors import ClustPSIError
from clustpsi.nodes.node import AnyNode
from clustpsi.nodes.protocol import (
    Describe,
    Description,
    Initial,
    Prepare,
    Prepared,
    Refusal,
    Serve,
    Served,
    Terms,
)
from clustpsi.orders import Evaluate, Evaluated, Losses, Model, NearestModel, Train, Trained
from clustpsi.privacy import private_counts
from clustpsi.streams import Stream, generator, raw_key

Arrays = list[NDArray[Any]]

NO_HOLDING_OUT = (
    "a client with a model of its own holds no rows out, which the method needs: choose another method, such as "
    "prior_pfl:plain"
)


@dataclass(frozen=True)
class Task:
    """What a client's function may need to know.

    Attributes
    ----------
    config
        The node's own configuration (Flower's ``--node-config``).
    classes
        All classes of the federation, in their order; empty before nodes have agreed on them.
    seed, round
        Seed of the run, and the current round.  ``rng`` gives a generator from both, a different one for each client.
    epochs, lr, batch_size, optimizer
        Settings of local training.
    proximal, anchor
        Strength of the term (proximal/2) ||weights - anchor||² that the method adds to the loss; 0 for none.
    log_prior
        What the method adds to the logits of the classes, or None.
    """

    config: Mapping[str, Any]
    classes: tuple[str, ...] = ()
    seed: int = 0
    round: int = 0
    epochs: int = 1
    lr: float = 0.001
    batch_size: int = 32
    optimizer: str = "adam"
    proximal: float = 0.0
    anchor: Arrays | None = None
    log_prior: NDArray[np.float64] | None = None
    number: int = field(default=0, repr=False)

    @property
    def rng(self) -> np.random.Generator:
        return generator(self.seed, Stream.OWN_TASK, self.round, self.number)


@dataclass(frozen=True)
class OwnClient:
    """What the server needs of a client.

    Attributes
    ----------
    label_counts
        ``label_counts(task)`` gives two mappings from class to number: of training rows and of test rows.
    train
        ``train(arrays, task)`` gives the trained arrays and the number of training rows.
    evaluate
        ``evaluate(arrays, task)`` gives the true classes of the test rows, the predicted classes (both as positions in
        ``task.classes``), and the mean loss.
    initial
        ``initial(seed)`` gives the arrays of a random initial model; seeds are whole numbers below 2**32.
    losses
        ``losses(arrays, task)`` gives the loss of every training row, for methods that choose clients or models by loss
        (poc, haccs, ifca, fedsoft).
    takes
        Which optional parts of a task the functions use: proximal, log_prior.
    model
        Name of the model; nodes with different models do not train together.
    """

    label_counts: Callable[[Task], tuple[Mapping[str, int], Mapping[str, int]]]
    train: Callable[[Arrays, Task], tuple[Sequence[ArrayLike], int]]
    evaluate: Callable[[Arrays, Task], tuple[ArrayLike, ArrayLike, float]]
    initial: Callable[[int], Sequence[ArrayLike]]
    losses: Callable[[Arrays, Task], ArrayLike] | None = None
    takes: tuple[str, ...] = ()
    model: str = "own"


class OwnNode(AnyNode):
    """A node whose client has a model of its own.

    Parameters
    ----------
    name
        Name of the client.
    client
        Its functions.
    config
        Given to the functions as ``task.config``.
    secret
        Secret from which the node makes its noise.
    """

    def __init__(self, name: str, client: OwnClient, config: Mapping[str, Any], secret: str | None = None) -> None:
        super().__init__(name)
        self._client = client
        self._secret = secret if secret is not None else secrets.token_hex(16)
        self._task = Task(dict(config))
        self._like: Arrays | None = None

    def answer(self, body: Any) -> Any:
        match body:
            case Describe():
                train, test = self._client.label_counts(self._task)
                classes = tuple(sorted({str(name) for name in (*train, *test)}))
                return Description(self.name, "own", {}, {}, classes, False, None, self._client.model, "the nodes' own")
            case Prepare(terms):
                return Prepared(*self._counts(terms), {})
            case Initial(index, seed):
                return Served((self._model(self._client.initial(int(raw_key(seed, Stream.OWN_START, index)[0]))),), 1)
            case Serve():
                return self._serve(body)
        return Refusal(f"a client with a model of its own cannot answer {type(body).__name__}", self.name)

    def _counts(self, terms: Terms) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Training and test rows of each class, each (1, C)."""
        counted = []
        for part in self._client.label_counts(self._task):
            told = {str(name): int(number) for name, number in part.items()}
            counted.append(np.array([[told.get(name, 0) for name in terms.classes]], np.int64))
        # Of other rows the noise is other noise: what is told of them could be subtracted otherwise.
        secret = terms.secret(f"{self._secret} {fingerprint(counted)}")
        return private_counts(counted[0], counted[1], terms.dp_epsilon, terms.min_count, secret)

    def _serve(self, call: Serve) -> Served:
        agreement = call.agreement
        settings, terms = agreement.training.settings, agreement.terms
        task = replace(
            self._task,
            classes=terms.classes,
            seed=terms.seed,
            round=call.t,
            epochs=settings["local_epochs"],
            lr=settings["lr"],
            batch_size=settings["batch_size"],
            optimizer=settings["optimizer"],
            number=terms.number,
        )
        examples, replies = 1, []
        for order in call.orders:
            if isinstance(order, Train):
                reply, examples = self._train(order, task)
                replies.append(reply)
            else:
                replies.append(self._other(order, task))
        # The server knows the number of rows from the label counts; here it only matters whether there are any.
        return Served(tuple(replies), min(examples, 1) if terms.is_private else examples)

    def _train(self, order: Train, task: Task) -> tuple[Trained, int]:
        start = order.start if isinstance(order.start, Model) else order.start[0]
        proximal = float(np.asarray(order.proximal).reshape(-1)[0])
        anchor = start if order.anchors is None else order.anchors[0]
        if order.hold_out is not None:
            raise ClustPSIError(NO_HOLDING_OUT)
        if order.logit_scale is not None or order.trains is not None:  # a Task has neither, so no function can use them
            raise ClustPSIError(
                "a client with a model of its own trains all of it on its own logits, and the method needs otherwise: "
                "choose another method"
            )
        self._refuse("proximal", "a proximal term", proximal > 0)
        self._refuse("log_prior", "a prior of the labels", order.log_prior is not None)
        task = replace(
            task,
            proximal=proximal,
            anchor=self._arrays(anchor) if proximal else None,
            log_prior=None if order.log_prior is None else order.log_prior[0],
        )
        arrays, examples = self._client.train(self._arrays(start), task)
        return Trained(None, np.full(1, np.nan), np.ones(1, bool), [self._model(arrays)]), int(examples)

    def _other(self, order: Any, task: Task) -> Any:
        match order:
            case Evaluate(_, deployment):
                log_prior = deployment.log_prior
                self._refuse("log_prior", "a prior of the labels", log_prior is not None)
                task = replace(task, log_prior=None if log_prior is None else log_prior[0])
                return self._evaluate(self._arrays(deployment.models[0]), task)
            case Losses(_, model):
                return self._losses(model, task).mean(keepdims=True)
            case NearestModel(_, models):
                nearest = np.stack([self._losses(model, task) for model in models]).argmin(axis=0)
                return np.bincount(nearest, minlength=len(models))[None]
        if getattr(order, "hold_out", None) is not None:
            raise ClustPSIError(NO_HOLDING_OUT)
        raise ClustPSIError(f"a client with a model of its own cannot serve {type(order).__name__} orders")

    def _evaluate(self, arrays: Arrays, task: Task) -> Evaluated:
        labels, predicted, loss = self._client.evaluate(arrays, task)
        actual, taken = np.asarray(labels, np.int64), np.asarray(predicted, np.int64)

        def counts(values: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.bincount(values, minlength=len(task.classes))[None]

        correct = counts(actual[actual == taken])
        return Evaluated(counts(actual), counts(taken), correct, np.array([float(loss) * len(actual)]))

    def _losses(self, model: Model, task: Task) -> NDArray[np.float64]:
        if self._client.losses is None:
            raise ClustPSIError("this client gives no losses, which the method asks for: choose another method")
        return np.asarray(self._client.losses(self._arrays(model), task), np.float64)

    def _refuse(self, name: str, what: str, needed: bool) -> None:
        if needed and name not in self._client.takes:
            raise ClustPSIError(f"this client trains without {what}, which the method needs: choose another method")

    def _model(self, arrays: Sequence[ArrayLike]) -> Model:
        """Arrays as one vector."""
        given = [np.asarray(each) for each in arrays]
        if self._like is None:
            self._like = given
        if [each.shape for each in given] != [each.shape for each in self._like]:
            raise ClustPSIError("the trained arrays have other shapes than the initial ones")
        flat = [each.astype(np.float32).ravel() for each in given]
        return Model(np.concatenate([np.empty(0, np.float32), *flat]), np.empty(0, np.float32))

    def _arrays(self, model: Model) -> Arrays:
        """The arrays that a vector stands for."""
        if self._like is None:
            self._like = [np.asarray(each) for each in self._client.initial(0)]
        if sum(each.size for each in self._like) != model.parameters.size:
            raise ClustPSIError(
                f"the federation's model has {model.parameters.size:,} parameters, and this client's "
                f"{sum(each.size for each in self._like):,}: all nodes need the same model"
            )
        ends = np.cumsum([each.size for each in self._like])[:-1]
        parts = np.split(model.parameters, ends)
        return [part.reshape(like.shape).astype(like.dtype) for part, like in zip(parts, self._like, strict=True)]
