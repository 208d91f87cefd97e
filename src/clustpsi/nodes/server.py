"""The server of a federation whose clients are on other machines: orders become messages, answers become replies.

A node that does not answer in time, or not properly, is left out of that exchange.  The log says which node and why.
The work of all others counts.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.nodes.codec import Envelope, Held, Undecodable, without
from clustpsi.nodes.data import features_of
from clustpsi.nodes.protocol import (
    CODEC,
    PROTOCOL,
    Agreement,
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
    Training,
    speaker,
)
from clustpsi.orders import (
    Answers,
    Clients,
    Evaluate,
    Evaluated,
    LabelCounts,
    LabelPresence,
    Ledger,
    Model,
    Order,
    Together,
    Train,
    Trained,
    TrainPooled,
    Unusable,
    part,
    traffic,
)
from clustpsi.orders.answers import Line, check_model, check_numbers, checking
from clustpsi.printing import counted

log = logging.getLogger("clustpsi.federation")

MOST_ROWS = 10**8  # of a node that does not split its rows itself: the server sends it their order
OTHER_NODE = (
    "its secret or its rows are not those with which the run began, so it would test on rows that it has trained on: "
    "start it again with the same file and the same --secret, or start the run afresh with --fresh"
)
# Seconds between two checks for answers: a twentieth of the time waited so far, so that checking costs little.
POLL, LONGEST_POLL, POLL_SHARE = 0.1, 1.0, 0.05


class Transport(Protocol):
    """Brings envelopes to nodes and answers back."""

    def nodes(self) -> set[int]:
        """The nodes that are connected now, as the transport numbers them."""

    def send(self, messages: Mapping[int, Envelope], kind: str, group: str) -> dict[str, int]:
        """Send one message to each of these nodes; gives a ticket for each answer, with the node it belongs to.

        ``kind`` is query, train or evaluate; ``group`` is the round.
        """

    def receive(self, tickets: Iterable[str]) -> dict[str, Envelope | str]:
        """The answers that have come so far; a text says why no answer will come."""


@dataclass(frozen=True)
class Patience:
    """How long a server waits, and for how many.

    Attributes
    ----------
    connect
        Seconds to wait for nodes before the first round.
    deadline
        Seconds within which nodes must answer.
    min_answers
        Smallest share of the asked nodes that must answer; with fewer the run stops.
    """

    connect: float = 120.0
    deadline: float = 600.0
    min_answers: float = 0.5

    def needed(self, asked: int) -> int:
        """How many of the asked nodes must answer."""
        return max(1, math.ceil(self.min_answers * asked - 1e-9))

    def __post_init__(self) -> None:
        if not 0 < self.min_answers <= 1:
            raise ClustPSIError(f"--min-answers must be a number above 0 and at most 1, not {self.min_answers:g}")
        for flag, seconds in (("--deadline", self.deadline), ("--connect", self.connect)):
            if not 0 < seconds < math.inf:
                raise ClustPSIError(f"{flag} must be a number of seconds above 0, not {seconds:g}")


class Exchange:
    """Asks nodes and waits for their answers."""

    def __init__(self, transport: Transport, patience: Patience) -> None:
        self.transport, self.patience = transport, patience
        self._believed: dict[int, Held] = {}  # arrays that each node probably holds
        self._names: dict[int, str] = {}  # of the nodes that have told theirs
        self.silent: set[int] = set()  # nodes that missed a deadline: asked, but not waited for until they answer
        self._late: dict[str, int] = {}  # the tickets they have not answered

    def wait_for_nodes(self, wanted: int, needed: int) -> set[int]:
        """The connected nodes, once there are as many as wanted or, when time is up, at least as many as needed."""
        end = time.monotonic() + self.patience.connect
        while len(nodes := self.transport.nodes()) < wanted:
            if time.monotonic() > end:
                if len(nodes) >= needed:
                    break
                raise ClustPSIError(
                    f"{counted(len(nodes), 'node')} connected within {self.patience.connect:g} s, and the run needs "
                    f"{needed}: start the others, or ask for fewer with --nodes"
                )
            time.sleep(POLL)
        return nodes

    def ask(
        self, bodies: Mapping[int, Any], group: str, heard: Callable[[int], None] = lambda node: None
    ) -> dict[int, Any]:
        """Ask each node its own question; gives each node's answer, or :class:`Unusable` with the reason."""
        whole = {node: CODEC.write(Call(speaker(), body)) for node, body in bodies.items()}
        connected = self.transport.nodes()
        self._late = {ticket: node for ticket, node in self._late.items() if node in connected}
        answers: dict[int, Any] = {
            node: Unusable("it is not connected") for node in bodies if node not in connected
        }  # the server does not wait for nodes that are gone
        lean = {
            node: without(each, self._believed.setdefault(node, Held()))
            for node, each in whole.items()
            if node not in answers
        }
        kind = _kind(next(iter(bodies.values()))) if bodies else "query"
        answers |= self._ask(lean, kind, group, heard)
        lacking = {node: whole[node] for node, answer in answers.items() if isinstance(answer, Lacking)}
        if lacking:  # a node that was started again has forgotten what it held
            for node in lacking:
                self._believed[node] = Held()
            answers |= self._ask(lacking, kind, group, heard)
        for node, answer in answers.items():
            if isinstance(answer, Lacking):
                answers[node] = Unusable("it keeps nothing of what it is sent")
            elif not isinstance(answer, Unusable):
                self._believed[node].note(whole[node].arrays)
        return answers

    def describe(self, nodes: Iterable[int], private: bool, t: int) -> dict[int, Description]:
        """The descriptions of the nodes that give a usable one; the log says why the others cannot take part."""
        described: dict[int, Description] = {}
        for node, answer in sorted(self.ask({node: Describe(private) for node in nodes}, str(t)).items()):
            try:
                with checking():
                    described[node] = check_description(answer)
            except Unusable as problem:
                name = self._names.get(node)
                who = f"the node with Flower's number {node}" if name is None else f"node {name!r}"
                log.warning("round %d: %s is left out: %s", t, who, problem)
        return described

    def _ask(
        self, messages: Mapping[int, Envelope], kind: str, group: str, heard: Callable[[int], None]
    ) -> dict[int, Any]:
        answers: dict[int, Any] = {}
        pending = self.transport.send(messages, kind, group) if messages else {}
        start = time.monotonic()
        while pending:
            for ticket, came in self.transport.receive([*pending, *self._late]).items():
                if ticket in self._late:  # too late to count, but it shows that the node is alive
                    node = self._late.pop(ticket)
                    if isinstance(came, Envelope):
                        self.silent.discard(node)
                    continue
                node = pending.pop(ticket)
                self.silent.discard(node)
                answers[node] = self._read(node, came)
                heard(node)
            waited_for = {node for node in pending.values() if node not in self.silent}
            if not pending or (not waited_for and answers):
                break
            if (waited := time.monotonic() - start) > self.patience.deadline:
                break
            time.sleep(min(max(POLL, POLL_SHARE * waited), LONGEST_POLL))
        for ticket, node in pending.items():
            self._late[ticket] = node
            self.silent.add(node)
            answers[node] = Unusable(f"it did not answer within {self.patience.deadline:g} s")
        return answers

    def _read(self, node: int, came: Envelope | str) -> Any:
        if isinstance(came, str):
            return Unusable(came)
        try:
            answer = CODEC.read(came)
        except Undecodable as error:
            return Unusable(f"its answer is malformed: {error}")
        if not isinstance(answer, Answer) or not isinstance(answer.speaker, Speaker):
            return Unusable("its answer is malformed: it is no answer")
        name = getattr(answer.body, "name", None)  # of a description or of a refusal
        if isinstance(name, str) and name:
            self._names[node] = name
        if answer.speaker.protocol != PROTOCOL or answer.speaker.version != speaker().version:
            return Unusable(
                f"it runs clustpsi {answer.speaker.version} and the server {speaker().version}: install the same"
            )
        if isinstance(answer.body, Refusal):
            return Unusable(f"it says: {answer.body.reason}")
        self._believed.setdefault(node, Held()).note(came.arrays)
        return answer.body


def _kind(body: Any) -> str:
    """The kind of a message: that of its first order."""
    first = body.orders[0] if isinstance(body, Serve) else None
    return "train" if isinstance(first, Train) else "evaluate" if isinstance(first, Evaluate) else "query"


@dataclass(frozen=True)
class Member:
    """A client of the federation: its description and its terms."""

    description: Description
    terms: Terms


class NodeServer:
    """A federation of nodes: a :class:`~clustpsi.orders.Server`.

    Parameters
    ----------
    exchange
        How nodes are asked.
    members
        The clients, in the order of their numbers.
    clients
        What is known of them.
    training
        The model and how it is trained.
    initial
        Gives the index-th random initial model.
    node_of
        The transport's number of each connected client's node, by the client's name.
    met
        Other nodes that are known already, and that cannot take part.
    """

    def __init__(
        self,
        exchange: Exchange,
        members: Sequence[Member],
        clients: Clients,
        training: Training,
        initial: Callable[[int], Model],
        node_of: Mapping[str, int],
        met: Iterable[int] = (),
    ) -> None:
        self.exchange, self.members, self.clients, self.training = exchange, list(members), clients, training
        self.newcomers: Clients | None = None
        self.initial = initial
        self.ledger = Ledger()
        self.watch: Callable[[float], None] | None = None
        self._node_of = dict(node_of)  # by the client's name
        self._met = {*self._node_of.values(), *met}
        self._written: dict[int, Envelope] = {}
        self._refused: dict[str, str] = {}  # clients that are there and cannot take their place, and why

    def take_ledger(self) -> Ledger:
        """The cost of all orders since the last call."""
        taken, self.ledger = self.ledger, Ledger()
        return taken

    def close(self) -> None:
        """Nothing to do: the nodes keep running."""

    # ---------------------------------------------------------------------------------------------------- orders

    def serve(self, order: Order, t: int) -> Any:
        """Serve an order of round t (0: before the first round)."""
        match order:
            case Together(orders):
                return self._together(orders, t)
            case TrainPooled():
                raise ClustPSIError("no federation can train on pooled data: take another method than centralized")
        return self._together((order,), t)[0]

    def _together(self, orders: tuple[Any, ...], t: int) -> tuple[Any, ...]:
        """Serve orders in one exchange."""
        replies: list[Any] = [self._known(order) for order in orders]
        asked = [i for i, reply in enumerate(replies) if reply is None]
        if asked:
            with self.ledger.timed(orders[asked[0]].purpose):
                for i, reply in zip(asked, self._ask([orders[i] for i in asked], t), strict=True):
                    replies[i] = reply
        for order in orders:
            self.ledger.add(traffic(order, self.clients.num_classes))
        return tuple(replies)

    def _known(self, order: Order) -> Any:
        """The reply to an order that asks only for what the nodes told when the federation was built."""
        counts = self.clients.train_counts
        if isinstance(order, LabelCounts) and order == LabelCounts(order.clients):
            return counts[order.clients]
        return counts[order.clients] > 0 if isinstance(order, LabelPresence) else None

    def _ask(self, orders: Sequence[Any], t: int) -> Iterator[Any]:
        """Send every client its part of the orders, and combine the answers."""
        self.meet_nodes(t)
        parts: dict[int, list[tuple[int, int]]] = {}
        for i, order in enumerate(orders):
            for position, client in enumerate(order.clients):
                parts.setdefault(int(client), []).append((i, position))
        bodies, client_of, answers = {}, {}, dict[int, Any]()
        for client, own in sorted(parts.items()):
            node = self._node_of.get(self._name(client))
            if node is None:
                answers[client] = self._absent(self._name(client))
                continue
            own_orders = tuple(part(orders[i], position) for i, position in own)
            bodies[node] = Serve(self._agreed(client), own_orders, t)
            client_of[node] = client
        done = 0

        def heard(node: int) -> None:
            nonlocal done
            done += 1
            if self.watch is not None and isinstance(orders[0], Train):
                self.watch(done / len(parts))

        answers |= {client_of[node]: answer for node, answer in self.exchange.ask(bodies, str(t), heard).items()}
        collectors = [_collector(order, self.clients) for order in orders]
        reasons: dict[int, str] = {}
        for client, own in sorted(parts.items()):
            try:
                with checking():
                    replies = _replies(answers[client], len(own))
                    checked = [collectors[i].checked(reply, at) for (i, at), reply in zip(own, replies, strict=True)]
                    if any(isinstance(orders[i], Train) for i, _ in own) and answers[client].examples < 1:
                        raise Unusable(f"it trained on {answers[client].examples} examples")
            except Unusable as problem:
                reasons[client] = str(problem)
                log.warning("round %d: node %r is left out: %s", t, self._name(client), problem)
                continue
            for (i, position), value in zip(own, checked, strict=True):
                collectors[i].add(position, value)
        if any(client < len(self.clients.names) for client in parts):  # newcomers alone need not answer
            self._check_enough(len(parts), reasons, t)
        for order, collector in zip(orders, collectors, strict=True):
            reply = collector.reply()
            if isinstance(order, Train):
                self.ledger.trained += len(order.clients)
                self.ledger.left_out.extend(int(client) for client in order.clients[~reply.kept])
            yield reply

    def _agreed(self, client: int) -> Envelope:
        """What stays the same for a client, written once."""
        if client not in self._written:
            self._written[client] = CODEC.write(Agreement(self.members[client].terms, self.training))
        return self._written[client]

    def _name(self, client: int) -> str:
        return self.members[client].description.name

    def _check_enough(self, asked: int, reasons: Mapping[int, str], t: int) -> None:
        needed = self.exchange.patience.needed(asked)
        if asked - len(reasons) >= needed or not asked:
            return
        client, reason = next(iter(reasons.items()))
        raise ClustPSIError(
            f"round {t}: {asked - len(reasons)} of {counted(asked, 'node')} gave a usable answer, and at least "
            f"{needed} must (node {self._name(client)!r}, for one: {reason}); go on with --resume when they "
            "are back, or ask for less with --min-answers"
        )

    # ----------------------------------------------------------------------------------------- coming and going

    def ask_client(self, name: str, body: Any) -> Any:
        """One client's answer, or :class:`Unusable`."""
        node = self._node_of.get(name)
        return self._absent(name) if node is None else self.exchange.ask({node: body}, "0")[node]

    def _absent(self, name: str) -> Unusable:
        return Unusable(self._refused.get(name, "it is not connected"))

    def meet_nodes(self, t: int) -> None:
        """Ask nodes that have connected since to describe themselves.

        A node that has come back takes its old place.  A new node is a newcomer: it tells how many rows of each class
        it has, and does not train in this run.
        """
        strangers = self.exchange.transport.nodes() - self._met - self.exchange.silent
        if not strangers:
            return
        described = self.exchange.describe(strangers, self.members[0].terms.dp_epsilon is not None, t)
        self._met |= strangers - self.exchange.silent  # a node that was too slow is asked again once it answers
        for node, description in sorted(described.items()):
            before = [member.description for member in self.members if member.description.name == description.name]
            self._refused.pop(description.name, None)
            if before and description.seal != before[0].seal:
                self._refused[description.name] = OTHER_NODE
                log.warning("round %d: node %r is left out: %s", t, description.name, OTHER_NODE)
                continue
            if before:
                log.warning("round %d: node %r has come back", t, description.name)
            elif not self._take_in(node, description, t):
                continue
            self._node_of[description.name] = node

    def _take_in(self, node: int, described: Description, t: int) -> bool:
        """Take a node in as a newcomer if its rows fit; gives whether they do."""
        terms = replace(self.members[0].terms, number=len(self.members), order=None)
        answer = self.exchange.ask({node: Prepare(terms)}, str(t))[node]
        try:
            with checking():
                train, test = check_prepared(answer, self.clients.num_classes)
        except Unusable as problem:
            log.warning("round %d: node %r cannot join: %s", t, described.name, problem)
            return False
        self.members.append(Member(described, terms))
        before = self.newcomers or Clients((), self.clients.class_names, train[:0], test[:0])
        self.newcomers = Clients(
            (*before.names, described.name),
            before.class_names,
            np.concatenate([before.train_counts, train]),
            np.concatenate([before.test_counts, test]),
        )
        log.warning("round %d: node %r has joined: it is placed by its label counts", t, described.name)
        return True


def check_description(answer: Any) -> Description:
    """A node's description; raises the reason if it cannot be used."""
    if isinstance(answer, Unusable):
        raise answer
    if not isinstance(answer, Description):
        raise Unusable("its answer is malformed: it does not say what the node is")
    texts = (answer.name, answer.kind, answer.model, answer.model_reason, *answer.columns, *answer.columns.values())
    if not all(isinstance(text, str) for text in (*texts, *answer.classes, answer.seal)) or not answer.name:
        raise Unusable("its answer is malformed: a name is no text")
    if not answer.classes or len(set(answer.classes)) < len(answer.classes):
        raise Unusable("its answer is malformed: its classes are not named once each")
    if answer.rows is not None and check_numbers(np.asarray(answer.rows), "rows", are_counts=True) > MOST_ROWS:
        raise Unusable("its rows are more than a server can put in order")
    if answer.kind != "own":
        features_of(answer.kind, answer.features)
    return answer


def check_prepared(answer: Any, num_classes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Label counts of a node's training and test rows; raises the reason if they cannot be used."""
    if isinstance(answer, Unusable):
        raise answer
    if not isinstance(answer, Prepared):
        raise Unusable("its answer is malformed: it has no counts")
    counts = []
    for what, given in (("label counts", answer.train), ("test label counts", answer.test)):
        values = np.asarray(given)
        if values.shape != (1, num_classes):
            raise Unusable(f"its {what} have shape {values.shape} and not {(1, num_classes)}")
        counts.append(check_numbers(values, what, are_counts=True))
    if not counts[0].any():
        raise Unusable("it has no training rows")
    return counts[0], counts[1]


class _Lines:
    """The answers to an order that asks for arrays."""

    def __init__(self, order: Any, num_classes: int) -> None:
        self._order, self._num_classes = order, num_classes
        single = isinstance(order.answer, Line)
        self._lines: Mapping[str, Line] = {"": order.answer} if single else order.answer
        self._arrays = {name: line.empty(len(order.clients), order, num_classes) for name, line in self._lines.items()}
        self._record: type | None = None

    def checked(self, reply: Any, position: int) -> dict[str, Any]:
        if "" not in self._lines:
            if not hasattr(reply, "_asdict") or reply._fields != tuple(self._lines):
                raise Unusable("its answer is malformed: it is not what the order asks for")
            self._record = type(reply)
            values = {name: self._check(name, getattr(reply, name)) for name in self._lines}
            if isinstance(reply, Evaluated):
                _check_scores(**values)
            return values
        return {"": self._check("", reply)}

    def _check(self, name: str, value: Any) -> Any:
        what = name or {"counts": "counts", "flags": "labels", "numbers": "losses"}[self._lines[name].kind]
        return self._lines[name].checked(value, self._order, self._num_classes, what)[0]

    def add(self, position: int, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self._arrays[name][position] = value

    def reply(self) -> Any:
        if self._record is None:
            return self._arrays.get("")
        return self._record(**self._arrays)


def _check_scores(actual: Any, predicted: Any, correct: Any, loss: Any) -> None:
    if (correct > np.minimum(actual, predicted)).any() or actual.sum() != predicted.sum():
        raise Unusable("its test results contradict each other")


class _Models:
    """The answers to a training order."""

    def __init__(self, order: Train, sizes: Any) -> None:
        self._order = order
        weights = sizes[order.clients] if order.weights is None else order.weights
        self._answers = Answers(order.clients, weights, order.each, order.running_mean())

    def checked(self, reply: Any, position: int) -> tuple[Model, float]:
        start = self._order.start
        like = start if isinstance(start, Model) else start[position]
        if not isinstance(reply, Trained) or reply.models is None or len(reply.models) != 1:
            raise Unusable("its answer is malformed: it is not what the order asks for")
        if reply.models[0] is None:
            raise Unusable("its update is not finite")
        losses = np.asarray(reply.losses)
        if losses.shape != (1,) or losses.dtype.kind != "f":
            raise Unusable("its answer is malformed: it has no loss")
        return check_model(reply.models[0], like), float(losses[0])

    def add(self, position: int, value: tuple[Model, float]) -> None:
        self._answers.add(position, *value)

    def reply(self) -> Trained:
        return Trained.of(self._answers)


def _collector(order: Any, clients: Clients) -> Any:
    if isinstance(order, Train):
        return _Models(order, clients.sizes)
    if not hasattr(order, "answer"):
        raise ClustPSIError(f"nodes cannot serve an order of the type {type(order).__name__}")
    return _Lines(order, clients.num_classes)


def _replies(answer: Any, number: int) -> tuple[Any, ...]:
    if isinstance(answer, Unusable):
        raise answer
    if not isinstance(answer, Served) or not isinstance(answer.replies, tuple) or len(answer.replies) != number:
        raise Unusable("its answer is malformed: it is not what the order asks for")
    if isinstance(answer.examples, bool) or not isinstance(answer.examples, int):
        raise Unusable("its answer is malformed: it has no number of examples")
    return answer.replies
