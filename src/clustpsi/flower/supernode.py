"""``python -m clustpsi.flower.supernode``: Flower's SuperNode, but it checks for messages more often during a run.

Flower's own SuperNode sleeps three seconds whenever it finds no message, twice in every round.  It has no setting for
this.
"""

import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from flwr.supernode import start_client_internal  # no public way to change how long it sleeps
from flwr.supernode.cli import flower_supernode

SHORTEST = 0.1  # seconds before the first check
GROWTH = 1.2  # factor after each check that finds nothing, up to Flower's sleep: idle nodes must not load a SuperLink
IDLE = 1.0  # a sleep of at least so many seconds waits for a message; a shorter one waits for the node's own answer


class Sleep:
    """Sleeps instead of Flower's sleep, for a shorter time.

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
    """Run as a SuperNode, with the arguments of Flower's command."""
    vars(start_client_internal)["time"] = SimpleNamespace(sleep=Sleep())
    sys.argv[0] = "flower-supernode"
    flower_supernode()


if __name__ == "__main__":
    main()
