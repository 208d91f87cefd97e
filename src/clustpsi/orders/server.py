"""The protocol of servers: all that a run knows about the server of its orders."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clustpsi.orders.ledger import Ledger
from clustpsi.orders.models import Model
from clustpsi.orders.orders import Order


@dataclass(frozen=True, eq=False)
class Clients:
    """What is known about a federation's clients before training.

    Attributes
    ----------
    names, class_names
        Names of the clients and of the classes, in their order.
    train_counts, test_counts
        How many training and test rows of each class every client has (clients x classes).
    """

    names: tuple[str, ...]
    class_names: tuple[str, ...]
    train_counts: NDArray[np.int64]
    test_counts: NDArray[np.int64]

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of training rows of every client."""
        sizes: NDArray[np.int64] = self.train_counts.sum(axis=1)
        return sizes


class Server(Protocol):
    """Serves a method's orders: a simulator, or a real federation.

    Attributes
    ----------
    clients
        The clients of the federation; orders refer to them by position.
    newcomers
        Clients that came after the start, if there are any; their positions follow those of the others.
    ledger
        Costs of orders since the last :meth:`take_ledger`, including time.
    watch
        Called with the share of a training order that is done.
    """

    clients: Clients
    newcomers: Clients | None
    ledger: Ledger
    watch: Callable[[float], None] | None

    def initial(self, index: int) -> Model:
        """The index-th random initial model."""

    def serve(self, order: Order, t: int) -> Any:
        """Serve an order of round t (0: before the first round); raise ClustPSIError if this server cannot."""

    def take_ledger(self) -> Ledger:
        """The cost of all orders since the last call."""

    def close(self) -> None:
        """Release all resources."""
