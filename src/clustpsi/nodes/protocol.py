"""What a server and its nodes say to each other: one call and one answer for each step of a run.

1. ``Describe``: a node tells its name and what its rows are like (:class:`Description`).
2. ``Prepare``: the node gets the classes and columns that all nodes have agreed on.  It counts its labels and
   summarizes its rows (:class:`Prepared`).
3. ``Serve``: the node gets the features fitted from all summaries, and serves orders (:class:`Served`).

Instead of each of these answers a node may give a :class:`Refusal`: one sentence with the reason.
"""

from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.nodes.codec import Codec, Envelope, Undecodable

#: Grows by one whenever messages change their meaning; nodes and servers with different numbers refuse each other.
PROTOCOL = 3


@dataclass(frozen=True)
class Speaker:
    """The version of the sender of a message."""

    version: str
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class Describe:
    """Ask a node who it is.

    Attributes
    ----------
    private
        Whether the node must keep its number of rows to itself.
    """

    private: bool = False


@dataclass(frozen=True)
class Description:
    """What a node tells about itself.

    Attributes
    ----------
    name
        Name of the client.
    kind
        Kind of its data: table, array, text, or own for clients with a model of their own.
    features
        How features are made from the rows, as plain data.  It must be the same at all nodes, except for the columns.
    columns
        For a table that was read from a file, the kind of each column by name: number, category, empty or omitted.
    classes
        Classes of its rows, in their order; for a named data set all classes of that data set.
    fixed_classes
        Whether the classes are those of a data set that all nodes share, and not only those of the rows.
    rows
        Number of rows, for the split into training and test rows; None if the node has split them or keeps it secret.
    model, model_reason
        The model that suits its rows, and why.
    seal
        For a node that adds noise, a hash of its secret and its rows: with another one, noise and split are others.
    """

    name: str
    kind: str
    features: dict[str, Any]
    columns: dict[str, str]
    classes: tuple[str, ...]
    fixed_classes: bool
    rows: int | None
    model: str
    model_reason: str = ""
    seal: str = ""


@dataclass(frozen=True)
class Terms:
    """What all nodes have agreed on, and one node's place in the federation.

    Attributes
    ----------
    number
        Number of the client in the federation; its random numbers depend on it.
    classes
        All classes, in their order.
    features
        As in :class:`Description`, with the agreed columns.
    order
        Order of the node's rows, of which the first fifth is for testing; None if the node splits its rows itself.
    seed
        Seed of the run.
    dp_epsilon, min_count
        How counts and summaries are protected before they leave the node.
    """

    number: int
    classes: tuple[str, ...]
    features: dict[str, Any]
    order: NDArray[np.int64] | None
    seed: int
    dp_epsilon: float | None = None
    min_count: int | None = None

    @property
    def is_private(self) -> bool:
        """Whether counts and summaries are changed before they leave the node."""
        return self.dp_epsilon is not None or self.min_count is not None

    def secret(self, of_node: str) -> str:
        """The secret from which a node makes its noise on these terms, derived from the node's own secret.

        On the same terms the node gives the same answer again.  On other terms, such as those of another run, the noise
        is new: two answers with the same noise could be subtracted from each other.
        """
        return f"{of_node} {CODEC.write(replace(self, number=0, order=None)).text}"


@dataclass(frozen=True)
class Prepare:
    """Ask a node for its label counts and the summary of its training rows."""

    terms: Terms


@dataclass(frozen=True)
class Prepared:
    """Label counts of training and test rows, each of shape (1, C), and the summary of the training rows."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    summary: dict[str, Any]


@dataclass(frozen=True)
class Training:
    """The model and how it is trained.

    Attributes
    ----------
    fitted
        Fitted features, as plain data.
    model
        Name of the model.
    vectors
        Table of word vectors, for text models that use them.
    settings
        Settings of :class:`~clustpsi.engine.local.LocalWork`.
    """

    fitted: dict[str, Any]
    model: str
    vectors: NDArray[np.float32] | None
    settings: dict[str, Any]


@dataclass(frozen=True)
class Initial:
    """Ask a node with its own model for the index-th random initial model; the answer holds it in ``models``."""

    index: int
    seed: int


@dataclass(frozen=True)
class Agreement:
    """What stays the same for a node throughout a run."""

    terms: Terms
    training: Training


@dataclass(frozen=True)
class Serve:
    """Have a node serve orders of round t, which concern this client only.

    Attributes
    ----------
    agreed
        The :class:`Agreement`, as a message of its own.
    orders
        For this client alone.
    t
        The round.
    """

    agreed: Envelope
    orders: tuple[Any, ...]
    t: int

    @property
    def agreement(self) -> Agreement:
        read = CODEC.read(self.agreed)
        if not isinstance(read, Agreement):
            raise Undecodable("the message does not say what was agreed on")
        return read


@dataclass(frozen=True)
class Served:
    """The replies, and the number of rows that the node trains on."""

    replies: tuple[Any, ...]
    examples: int


@dataclass(frozen=True)
class Refusal:
    """Why a node cannot do what the server asks: one sentence; and the node's name, if it has one."""

    reason: str
    name: str = ""


@dataclass(frozen=True)
class Lacking:
    """Arrays that the server believed the node to hold, and that it does not hold."""

    hashes: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A message from the server."""

    speaker: Speaker
    body: Any


@dataclass(frozen=True)
class Answer:
    """A message from a node."""

    speaker: Speaker
    body: Any


CODEC = Codec(
    Speaker, Describe, Description, Terms, Prepare, Prepared, Training, Agreement, Initial, Serve, Served, Refusal,
    Lacking, Call, Answer,
)  # fmt: skip


@cache  # the version is in a file, which every message would read
def speaker() -> Speaker:
    return Speaker(version("clustpsi"))
