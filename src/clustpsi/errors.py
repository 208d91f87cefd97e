"""Errors are part of the interface: each message is one sentence that says what is wrong and what would be right."""

import difflib
from collections.abc import Iterable


class ClustPSIError(ValueError):
    """Something the caller gave cannot be used; the command line prints the message and exits with code 2."""


class InfeasiblePartition(ClustPSIError):
    """No partition with these settings gives every client enough samples."""


class ClustPSIWarning(UserWarning):
    """Something worth knowing that does not stop the work."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ClustPSIError:
    """An error for a name that is not in a list, with the nearest known one.

    >>> str(unknown_name("method", "fedavgg", ["fedavg", "local"]))
    "unknown method 'fedavgg': did you mean 'fedavg'? (known: fedavg, local)"
    """
    choices = sorted(known)
    near = nearest(name, choices)
    hint = f"choose one of {', '.join(choices)}" if near is None else f"{near} (known: {', '.join(choices)})"
    return ClustPSIError(f"unknown {kind} {name!r}: {hint}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Ask whether the nearest known name was meant, or None if no name is near; upper and lower case do not matter.

    >>> nearest("INCOM", ["age", "income"])
    "did you mean 'income'?"
    """
    choices = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.6)
    return f"did you mean {choices[near[0]]!r}?" if near else None
