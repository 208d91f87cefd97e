"""How nodes become a federation: they describe themselves, agree, count their labels and summarize their rows.

The federation can be saved to a file.  So a server that is started again continues with the same federation, whichever
of its nodes are connected then.
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
from clustpsi.features import Summary
from clustpsi.features.kinds import Frequencies
from clustpsi.features.table import NumberSummary, TableSummary
from clustpsi.features.text import TextSummary
from clustpsi.files import make_folder, write_atomically
from clustpsi.nodes.agreement import Agreement, agree, in_order, split_orders
from clustpsi.nodes.codec import Codec, Undecodable, pack, unpack
from clustpsi.nodes.data import features_of
from clustpsi.nodes.protocol import Description, Prepare, Terms
from clustpsi.nodes.server import Exchange, Member, check_prepared
from clustpsi.orders import Clients, Unusable
from clustpsi.orders.answers import check_numbers, checking
from clustpsi.printing import counted

log = logging.getLogger("clustpsi.federation")


@dataclass(frozen=True)
class Gathered:
    """A federation of nodes before training.

    Attributes
    ----------
    members
        The clients in the order of their numbers.
    model, model_reason
        The model that suits their rows, and why.
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
        """A hash of everything that the nodes have told: it stands for the data, which no one sees as a whole."""
        clients = self.clients
        fitted = _CODEC.write(self.fitted).text  # the same if the federation comes from a file
        own = [fitted, self.model]
        texts = [np.array(each, dtype=object) for each in (clients.names, clients.class_names, own)]
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
    """Build a federation; gives it, and the transport's number of every node by the node's name.

    Parameters
    ----------
    exchange
        How nodes are asked.
    wanted
        How many nodes the federation needs.
    seed
        Seed of the run.
    classes
        All classes, if they are known; no node may have others.
    dp_epsilon, min_count
        How nodes protect counts and summaries before they send them.
    """
    if wanted < 2:
        raise ClustPSIError(f"a federation needs at least two nodes, not {wanted}")
    is_noised = dp_epsilon is not None
    described = exchange.describe(exchange.wait_for_nodes(wanted, wanted), is_noised, 0)
    agreement: Agreement | None = None
    while True:
        if len(described) < max(wanted, 2):
            raise ClustPSIError(
                f"{counted(len(described), 'node')} can take part, and the run needs {max(wanted, 2)}: the log says "
                "why others cannot"
            )
        ordered = in_order(list(described.values()))
        node_of = {each.name: node for node, each in described.items()}
        if agreement is None or not is_noised:  # new terms would mean new noise, and new noise reveals more
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
                with checking():
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


def _checked(answer: Any, agreement: Agreement) -> tuple[Any, Any, Any]:
    """Counts and summary of a node; raises the reason if they cannot be used."""
    train, test = check_prepared(answer, len(agreement.classes))
    if agreement.kind == "own":
        return train, test, None
    features = features_of(agreement.kind, agreement.features)
    summary = features.summary_from_dict(answer.summary)
    _check_summary(features, summary)
    return train, test, summary


def _check_summary(features: Any, summary: Summary) -> None:
    """Raise if a summary would spoil the features that are fitted from all summaries."""
    names: tuple[Frequencies, ...] = ()
    if isinstance(summary, TextSummary):
        names = (summary.words,)
    if isinstance(summary, TableSummary):
        names = summary.categories
        if (len(summary.numbers), len(names)) != (len(features.numbers), len(features.categories)):
            raise Unusable("its summary is of other columns")
        for column in summary.numbers:
            _check_column(column, features.scaling)
        for scale in features.fit(summary).numbers:
            if not (np.isfinite(scale.centre) and np.isfinite(scale.spread) and scale.spread > 0):
                raise Unusable("its summary has numbers that are not finite")
    for frequencies in names:
        check_numbers(np.array([0, *frequencies.counts.values()]), "summary's counts", are_counts=True)
        if not all(name is None or isinstance(name, str) for name in frequencies.counts):
            raise Unusable("its summary has a name that is no text")


def _check_column(column: NumberSummary, scaling: str) -> None:
    check_numbers(np.array([column.known, column.gaps]), "summary's counts", are_counts=True)
    if (counts := column.counts) is None:
        if scaling == "robust":
            raise Unusable("its summary has no counts of numbers")
        return
    if counts.values.shape != counts.counts.shape or not np.isfinite(counts.values).all():
        raise Unusable("its summary has numbers that are not finite")
    size = np.abs(counts.counts) if counts.is_noisy else counts.counts  # noise may be negative
    check_numbers(size, "summary's counts", are_counts=True)


def save(path: Path, gathered: Gathered) -> None:
    """Save a federation to a file."""
    make_folder(path.parent)
    write_atomically(path, lambda file: file.write(pack(_CODEC.write(gathered))))


def load(path: Path) -> Gathered:
    """Read a federation from a file."""
    try:
        gathered = _CODEC.read(unpack(path.read_bytes()))
    except (OSError, Undecodable) as error:
        raise ClustPSIError(f"{path} cannot be read ({error}): start the run afresh with --fresh") from None
    if not isinstance(gathered, Gathered):
        raise ClustPSIError(f"{path} holds no federation: start the run afresh with --fresh")
    return gathered
