"""Bringing nodes together: they describe themselves, agree, count and summarize; then there is a federation.

What came out can be kept in a file, so that a server that is started again goes on with the same federation, whoever of
it is connected by then.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from clustpsi.datasets.base import fingerprint
from clustpsi.errors import ClustPSIError
from clustpsi.files import make_folder, write_atomically
from clustpsi.nodes.agreement import Agreement, agree, in_order, split_orders
from clustpsi.nodes.codec import Codec, Undecodable, pack, unpack
from clustpsi.nodes.data import features_of
from clustpsi.nodes.protocol import Describe, Description, Prepare, Terms
from clustpsi.nodes.server import Exchange, Member, check_prepared
from clustpsi.orders import Clients, Unusable
from clustpsi.printing import counted

log = logging.getLogger("clustpsi.federation")


@dataclass(frozen=True)
class Gathered:
    """A federation of nodes before anything is trained.

    Attributes
    ----------
    members
        The clients in the order of their numbers.
    model, model_reason
        That suits their rows.
    fitted
        Features fitted from all summaries, as plain data; empty for clients with a model of their own.
    train, test
        Label counts.
    """

    members: tuple[Member, ...]
    model: str
    model_reason: str
    fitted: dict[str, Any]
    train: Any
    test: Any

    @property
    def clients(self) -> Clients:
        names = tuple(member.description.name for member in self.members)
        return Clients(names, self.members[0].terms.classes, self.train, self.test)

    @property
    def content(self) -> str:
        """A hash of all that nodes have told: what stands for the data, which nobody sees as a whole."""
        clients = self.clients
        texts = [np.array(each, dtype=object) for each in (clients.names, clients.class_names, [repr(self.fitted)])]
        return fingerprint([*texts, clients.train_counts, clients.test_counts])


_CODEC = Codec(Gathered, Member, Description, Terms)


def gather(
    exchange: Exchange,
    wanted: int,
    *,
    seed: int,
    classes: Sequence[str] = (),
    dp_epsilon: float | None = None,
    min_count: int | None = None,
) -> tuple[Gathered, dict[str, int]]:
    """Bring so many nodes together; gives the federation, and the transport's number of every node by its name.

    Parameters
    ----------
    exchange
        How nodes are asked.
    wanted
        How many nodes must be there.
    seed
        Of the run.
    classes
        All that there may be, if that is known.
    dp_epsilon, min_count
        What nodes do to counts and summaries before they tell them.
    """
    if wanted < 2:
        raise ClustPSIError(f"a federation needs at least two nodes, not {wanted}")
    connected = exchange.wait_for_nodes(wanted, wanted)
    described = _usable(exchange.ask({node: Describe(dp_epsilon is not None) for node in connected}, "0"), "a node")
    described = {node: each for node, each in described.items() if isinstance(each, Description)}
    while True:
        if len(described) < max(wanted, 2):
            raise ClustPSIError(
                f"{counted(len(described), 'node')} can take part, and the run needs {max(wanted, 2)}: the log says "
                "why others cannot"
            )
        ordered = in_order(list(described.values()))
        node_of = {each.name: node for node, each in described.items()}
        agreement = agree(ordered, classes)
        orders = split_orders(ordered, seed)
        members = tuple(
            Member(each, Terms(k, agreement.classes, agreement.features, order, seed, dp_epsilon, min_count))
            for k, (each, order) in enumerate(zip(ordered, orders, strict=True))
        )
        asked = {node_of[member.description.name]: Prepare(member.terms) for member in members}
        name_of = {node: name for name, node in node_of.items()}
        answers = exchange.ask(asked, "0")
        prepared: dict[str, tuple[Any, Any, Any]] = {}
        for node, answer in answers.items():
            try:
                prepared[name_of[node]] = _checked(answer, agreement)
            except Unusable as problem:
                log.warning("node %r is left out of the federation: %s", name_of[node], problem)
                del described[node]
        if len(described) == len(members):
            return _together(members, agreement, prepared), node_of


def _together(members: tuple[Member, ...], agreement: Agreement, prepared: Mapping[str, Any]) -> Gathered:
    train, test, summaries = zip(*(prepared[member.description.name] for member in members), strict=True)
    fitted: dict[str, Any] = {}
    if agreement.kind != "own":
        features = features_of(agreement.kind, agreement.features)
        fitted = features.fit(reduce(lambda one, other: one.merge(other), summaries)).as_dict()
    counts = np.concatenate(train)
    if np.count_nonzero(counts.sum(axis=0)) < 2:
        raise ClustPSIError(
            "all training samples have the same label: there is nothing to learn; at least two classes are needed"
        )
    return Gathered(members, agreement.model, agreement.model_reason, fitted, counts, np.concatenate(test))


def _usable(answers: Mapping[int, Any], what: str) -> dict[int, Any]:
    for answer in answers.values():
        if isinstance(answer, Unusable):
            log.warning("%s is left out of the federation: %s", what, answer)
    return {node: answer for node, answer in answers.items() if not isinstance(answer, Unusable)}


def _checked(answer: Any, agreement: Agreement) -> tuple[Any, Any, Any]:
    """Counts and summary of a node, or why they cannot be used."""
    train, test = check_prepared(answer, len(agreement.classes))
    if agreement.kind == "own":
        return train, test, None
    try:
        summary = features_of(agreement.kind, agreement.features).summary_from_dict(answer.summary)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unusable(f"its summary is malformed ({error!r})") from None
    return train, test, summary


def save(path: Path, gathered: Gathered) -> None:
    """Keep a federation in a file."""
    make_folder(path.parent)
    write_atomically(path, lambda file: file.write(pack(_CODEC.write(gathered))))


def load(path: Path) -> Gathered:
    """A federation from a file."""
    try:
        gathered = _CODEC.read(unpack(path.read_bytes()))
    except (OSError, Undecodable) as error:
        raise ClustPSIError(f"{path} cannot be read ({error}): start the run afresh with --fresh") from None
    if not isinstance(gathered, Gathered):
        raise ClustPSIError(f"{path} holds no federation: start the run afresh with --fresh")
    return gathered
