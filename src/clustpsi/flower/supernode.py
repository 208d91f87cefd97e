"""``python -m clustpsi.flower.supernode``: Flower's SuperNode, which looks for messages sooner while a run is on.

Flower's own sleeps three seconds whenever it finds no message, twice in every round, and has no setting for it.
"""

import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from flwr.supernode import start_client_internal  # no public way to change how long it sleeps
from flwr.supernode.cli import flower_supernode

SHORTEST = 0.1  # seconds between two looks, at first
GROWTH = 1.2  # with each that finds nothing, up to what Flower sleeps, so that idle nodes do not keep a SuperLink busy
IDLE = 1.0  # seconds of sleep from which on Flower waits for a message, and not for its own answer to one


class Sleep:
    """How long to sleep in the place of Flower's sleep.

    >>> slept = []
    >>> sleep = Sleep(slept.append)
    >>> for seconds in (3, 3, 0.5, 3): sleep(seconds)
    >>> [round(each, 3) for each in slept]
    [0.12, 0.144, 0.1, 0.12]
    """

    def __init__(self, really: Callable[[float], Any] = time.sleep) -> None:
        self._really = really
        self._last = SHORTEST

    def __call__(self, seconds: float) -> None:
        self._last = SHORTEST if seconds < IDLE else self._last * GROWTH
        self._really(min(seconds, self._last))


def main() -> None:
    """Serve as a SuperNode, with the arguments of Flower's command."""
    vars(start_client_internal)["time"] = SimpleNamespace(sleep=Sleep())
    sys.argv[0] = "flower-supernode"
    flower_supernode()


if __name__ == "__main__":
    main()
