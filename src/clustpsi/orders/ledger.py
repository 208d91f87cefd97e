"""What serving orders has cost: bytes, clients, time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from clustpsi.orders.cost import Traffic


@dataclass
class Ledger:
    """Costs since the ledger was last taken.

    Attributes
    ----------
    bytes_up, bytes_down
        Bytes sent by clients, and to clients.
    trained
        How many clients trained (a client counts once for each order it trained for).
    left_out
        Clients that did not answer or whose update was not finite.
    seconds
        Wall-clock time by purpose.
    """

    bytes_up: int = 0
    bytes_down: int = 0
    trained: int = 0
    left_out: list[int] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    _booked_inside: float = field(default=0.0, init=False, repr=False)

    def add(self, traffic: Traffic) -> None:
        """Add the bytes of an order."""
        self.bytes_up += traffic.up
        self.bytes_down += traffic.down

    @contextmanager
    def timed(self, purpose: str) -> Iterator[None]:
        """Add the time of a block, without the time of inner timed blocks, so that no second counts twice."""
        start, booked_before = time.perf_counter(), self._booked_inside
        self._booked_inside = 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[purpose] = self.seconds.get(purpose, 0.0) + spent - self._booked_inside
            self._booked_inside = booked_before + spent
