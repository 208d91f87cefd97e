"""What a server and its nodes say to each other: a call and an answer for each step of a run.

1. ``Describe``: a node says who it is and what its rows are like (:class:`Description`).
2. ``Prepare``: with classes and columns that all have agreed on, it counts its labels and summarizes its rows
   (:class:`Prepared`).
3. ``Serve``: with features fitted from all summaries, it serves orders (:class:`Served`).

An answer may be a :class:`Refusal` instead: one sentence that says why.
"""

from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.nodes.codec import Codec

#: Raised when messages change their meaning; nodes and servers with different numbers do not understand each other.
PROTOCOL = 1


@dataclass(frozen=True)
class Speaker:
    """Whose message it is."""

    version: str
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class Describe:
    """Ask a node who it is.

    Attributes
    ----------
    private
        Whether it must not tell how many rows it has.
    """

    private: bool = False


@dataclass(frozen=True)
class Description:
    """What a node is.

    Attributes
    ----------
    name
        Of the client.
    kind
        What its features are made of: table, array, text, or own for clients with a model of their own.
    features
        What is to be learned of the rows, as plain data that must be the same everywhere, except for columns.
    columns
        Of a table that was read from a file: number, category, empty or omitted, by name.
    classes
        That its rows have, in their order; for a named data set all of its classes.
    fixed_classes
        Whether the classes are those of a data set that everybody has, and not only those of the rows.
    rows
        How many it has, for the split into training and test rows; None if it has split them, or does not tell.
    model, model_reason
        That suits its rows.
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


@dataclass(frozen=True)
class Terms:
    """What all nodes have agreed on, and what one of them is in it.

    Attributes
    ----------
    number
        Of the client in the federation, which decides its random numbers.
    classes
        All classes, in their order.
    features
        As in :class:`Description`, with agreed columns.
    order
        Of the node's rows in the split: the first fifth is for testing; None if the node decides that itself.
    seed
        Of the run.
    dp_epsilon, min_count
        What is done to counts and summaries before they leave the node.
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
        """What a node's noise is made from on these terms, given what all of it is made from.

        Whoever asks again on the same terms is told the same.  On other terms, as of another run, noise is new: answers
        with the same noise could be subtracted from each other.
        """
        return f"{of_node} {CODEC.write(replace(self, number=0, order=None)).text}"


@dataclass(frozen=True)
class Prepare:
    """Ask a node for its label counts and the summary of its training rows."""

    terms: Terms


@dataclass(frozen=True)
class Prepared:
    """Label counts of training and test rows, each (1, C), and the summary."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    summary: dict[str, Any]


@dataclass(frozen=True)
class Training:
    """The model and how it is trained.

    Attributes
    ----------
    fitted
        Features, as plain data.
    model
        Name of the model.
    vectors
        Table of word vectors, for a model of text that has any.
    settings
        Of :class:`~clustpsi.engine.local.LocalWork`.
    """

    fitted: dict[str, Any]
    model: str
    vectors: NDArray[np.float32] | None
    settings: dict[str, Any]


@dataclass(frozen=True)
class Initial:
    """Ask a node with a model of its own for the index-th random initial model; the answer has it as ``models``."""

    index: int
    seed: int


@dataclass(frozen=True)
class Serve:
    """Have a node serve orders of round t, each for this client alone."""

    terms: Terms
    training: Training
    orders: tuple[Any, ...]
    t: int


@dataclass(frozen=True)
class Served:
    """The replies, and how many rows the node trains on."""

    replies: tuple[Any, ...]
    examples: int


@dataclass(frozen=True)
class Refusal:
    """Why a node cannot do what it is asked to: one sentence."""

    reason: str


@dataclass(frozen=True)
class Lacking:
    """Arrays that the node was taken to hold and does not."""

    hashes: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """What a server says."""

    speaker: Speaker
    body: Any


@dataclass(frozen=True)
class Answer:
    """What a node says."""

    speaker: Speaker
    body: Any


CODEC = Codec(
    Speaker, Describe, Description, Terms, Prepare, Prepared, Training, Initial, Serve, Served, Refusal, Lacking, Call,
    Answer,
)  # fmt: skip


def speaker() -> Speaker:
    return Speaker(version("clustpsi"))
