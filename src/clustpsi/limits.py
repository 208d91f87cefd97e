"""What this machine has: its cores, and what fits into its memory, so that too much gives an error and no crash."""

import os
from contextlib import suppress
from pathlib import Path

from clustpsi.errors import ClustPSIError

LARGEST = 2**31 - 1  # rows are numbered, and visits counted, in 32 bits
COPIES = 2  # of an order of visits: the one that is made, and the device's


def cpu_count() -> int:
    """The cores this process may use (a container or a batch system may allow fewer than the machine has)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int | None:
    """Bytes of memory that are to spare here (on Linux), or all there are; None where the system does not say."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:")))
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def check_visits(rows: int, epochs: int, whose: str, at_once: int = 1) -> None:
    """Raise if the lists of rows to visit (epochs x rows, ``at_once`` lists) do not fit into memory.

    >>> check_visits(1_000, 5, "the largest client")
    """
    visits, limit = rows * epochs, memory()
    needed = 4 * COPIES * at_once * visits
    if visits <= LARGEST and (limit is None or needed <= limit):
        return
    raise ClustPSIError(
        f"{epochs:,} epochs over the {rows:,} training rows of {whose} are more than one round can hold here "
        f"({needed / 1e9:,.0f} GB): take fewer epochs"
    )
