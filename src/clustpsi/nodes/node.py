"""How a node answers what the server asks, from its own rows.  Nothing here knows how messages travel.

A node that trains one of the project's models is a simulator with one client.  It serves each order as the simulator
does, with the random numbers that belong to its number in the federation.
"""

import hashlib
import secrets
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.base import Dataset
from clustpsi.errors import ClustPSIError
from clustpsi.features import fitted_from_dict
from clustpsi.federation import Federation
from clustpsi.nodes.codec import Envelope, Held, Missing, Undecodable
from clustpsi.nodes.data import NodeData
from clustpsi.nodes.protocol import (
    CODEC,
    PROTOCOL,
    Answer,
    Call,
    Describe,
    Description,
    Lacking,
    Prepare,
    Prepared,
    Refusal,
    Serve,
    Served,
    Speaker,
    Terms,
    speaker,
)
from clustpsi.orders import Train
from clustpsi.partition import RowLists, Rows, client_80_20
from clustpsi.privacy import learns, private_counts, private_split, private_summary


class AnyNode(ABC):
    """Answers envelopes; an error becomes an answer too.

    Parameters
    ----------
    name
        Name of the client.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.held = Held()

    def handle(self, envelope: Envelope) -> Envelope:
        """The answer to an envelope."""
        body: Any
        try:
            call = CODEC.read(envelope, self.held)
            self.held.keep(envelope.arrays)
            if not isinstance(call, Call):
                body = Refusal("the message is no call", self.name)
            elif call.speaker.protocol != PROTOCOL:
                body = Refusal(_other_version(call.speaker), self.name)
            else:
                body = self.answer(call.body)
        except Missing as missing:
            self.held.keep(envelope.arrays)
            body = Lacking(tuple(missing.hashes))
        except (ClustPSIError, Undecodable) as error:
            body = Refusal(str(error), self.name)
        except Exception as error:  # the server gets an answer, whatever fails in a node's data or model
            body = Refusal(f"{type(error).__name__}: {error}", self.name)
        answer = CODEC.write(Answer(speaker(), body))
        self.held.keep(answer.arrays)
        return answer

    @abstractmethod
    def answer(self, body: Any) -> Any:
        """The answer to what a call says."""

    def close(self) -> None:  # noqa: B027  (most nodes have nothing to release)
        """Release what the node holds."""


class Node(AnyNode):
    """A node that trains one of the project's models on its own rows.

    Parameters
    ----------
    data
        The rows.
    workers
        As in :class:`~clustpsi.engine.local.LocalWork`.
    secret
        Secret from which the node makes its noise; nobody else may know it.  By default a new one.  A node that is
        started again with the same secret and the same rows is the same to the server.
    """

    def __init__(self, data: NodeData, workers: int | None = None, secret: str | None = None) -> None:
        super().__init__(data.name)
        self._data, self._workers = data, workers
        self._secret = secret if secret is not None else secrets.token_hex(16)
        self._ready: tuple[str, Any] | None = None

    def answer(self, body: Any) -> Any:
        match body:
            case Describe(private):
                return self.describe(private)
            case Prepare(terms):
                return self.prepare(terms)
            case Serve():
                return self.serve(body)
        return Refusal(f"a node with clustpsi's models cannot answer {type(body).__name__}", self.name)

    def describe(self, private: bool) -> Description:
        described = self._data.describe(private)
        if not private:
            return described
        sealed = f"{self._secret} {self._data.dataset.content} seal"
        return replace(described, seal=hashlib.sha256(sealed.encode()).hexdigest()[:32])

    def prepare(self, terms: Terms) -> Prepared:
        """Count labels and summarize the training rows."""
        federation = self._federation(terms)
        features, rows = federation.dataset.features, federation.dataset.rows.take(federation.train[0])
        secret = self._secret_for(terms, federation.dataset)
        summary = private_summary(features, rows, terms.dp_epsilon, terms.min_count, secret)
        return Prepared(*self._told(terms, federation), summary.as_dict())

    def _told(self, terms: Terms, federation: Federation) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Label counts as this node sends them: with its noise, if any."""
        counts = federation.label_counts, federation.test_label_counts
        alone = not learns(federation.dataset.features)
        secret = self._secret_for(terms, federation.dataset)
        return private_counts(*counts, terms.dp_epsilon, terms.min_count, secret, alone=alone)

    def _secret_for(self, terms: Terms, dataset: Dataset) -> str | None:
        """The secret of noise and split on these terms; None if there is no noise.

        It depends on the rows: the same noise on other rows could be subtracted, and would show how they differ.
        """
        return None if terms.dp_epsilon is None else terms.secret(f"{self._secret} {dataset.content}")

    def serve(self, call: Serve) -> Served:
        """Serve orders; the answer to a training order is the trained model."""
        simulator = self._simulator(call)
        replies = []
        for order in call.orders:
            own = replace(order, clients=np.zeros(1, np.int64))
            replies.append(simulator.serve(replace(own, each=True) if isinstance(own, Train) else own, call.t))
        return Served(tuple(replies), int(simulator.clients.sizes[0]))

    def close(self) -> None:
        if self._ready is not None:
            self._ready[1].close()
        self._ready = None

    def _federation(self, terms: Terms) -> Federation:
        """The federation of this client alone."""
        dataset = self._data.agreed(terms.features, terms.classes)
        train, test = self._data.split or _split(len(dataset.labels), terms, self._secret_for(terms, dataset))
        return Federation(dataset, RowLists.of([train]), RowLists.of([test]), (self._data.name,))

    def _simulator(self, call: Serve) -> Any:
        # Imported here because JAX is slow to load.
        from clustpsi.datasets.word_vectors import WordVectors
        from clustpsi.engine import Simulator
        from clustpsi.engine.architecture import Architecture

        if self._ready is None or self._ready[0] != call.agreed.text:  # which has the hashes of its arrays
            self.close()
            agreement = call.agreement
            terms, training = agreement.terms, agreement.training
            federation = self._federation(terms)
            told = self._told(terms, federation) if terms.is_private else None
            federation = replace(federation, fitted_before=fitted_from_dict(training.fitted))
            vectors = None if training.vectors is None else WordVectors(training.vectors, 0)
            shape, dtype = federation.features.shape[1:], federation.features.dtype.name
            network = Architecture(training.model, len(terms.classes), shape, dtype, vectors).network
            settings = {"numbers": (terms.number,), "workers": self._workers, "seed": terms.seed, **training.settings}
            self._ready = call.agreed.text, Simulator(federation, network, told=told, **settings)
        return self._ready[1]


def refusal(reason: str, name: str = "") -> Envelope:
    """The answer of a node that cannot be set up at all."""
    return CODEC.write(Answer(speaker(), Refusal(reason, name)))


def _split(rows: int, terms: Terms, secret: str | None) -> tuple[Rows, Rows]:
    """Training and test rows: in the server's order, or at random by the node if the server does not know its rows."""
    if terms.dp_epsilon is not None:
        return private_split(rows, secret)
    if terms.order is None:
        train, test = client_80_20([np.arange(rows)], terms.seed)
        return train[0], test[0]
    if not np.array_equal(np.sort(terms.order), np.arange(rows)):
        raise ClustPSIError("the rows of this node are not those that it described: start the run again")
    held_out = -(-rows // 5)
    return terms.order[held_out:], terms.order[:held_out]


def _other_version(other: Speaker) -> str:
    return f"the server speaks as clustpsi {other.version}, and this node as clustpsi {speaker().version}"
