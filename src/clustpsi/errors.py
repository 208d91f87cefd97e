"""Errors are part of the interface: each message is one sentence that says what is wrong and what would be right."""

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator


class ClustPSIError(ValueError):
    """Something the caller gave cannot be used; the command line prints the message and exits with code 2."""


class InfeasiblePartition(ClustPSIError):
    """No partition with these settings gives every client enough samples."""


class ClustPSIWarning(UserWarning):
    """Something worth knowing that does not stop the work."""


_OPTION = re.compile(r"`[^`]*`|(?<![^\s(])--([a-z]+(?:-[a-z]+)*)(?: \((\w+=True) in Python\))?")


@contextlib.contextmanager
def in_python(**other: str) -> Iterator[None]:
    """Errors within name arguments instead of options of the command line; ``other`` are those with other names.

    >>> with in_python(agg_method="methods"):
    ...     raise ClustPSIError("--agg-method and --num-clients are wrong: see `clustpsi run --help`")
    Traceback (most recent call last):
        ...
    clustpsi.errors.ClustPSIError: methods and num_clients are wrong: see `clustpsi run --help`
    """

    def name(option: re.Match[str]) -> str:
        if option[1] is None:  # a command line
            return option[0]
        plain = option[1].replace("-", "_")
        return option[2] or other.get(plain, plain)

    try:
        yield
    except ClustPSIError as error:
        error.args = (_OPTION.sub(name, str(error)), *error.args[1:])
        raise


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
