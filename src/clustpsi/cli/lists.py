"""Comma-separated lists on the command line."""

from typing import Annotated, TypeVar

import typer

from clustpsi.errors import ClustPSIError
from clustpsi.limits import LARGEST

Number = TypeVar("Number", int, float)
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SETTING=VALUE,...",
        help="Only runs whose setting has one of these values (none: no value); repeatable, once per setting.",
    ),
]


def texts(flag: str, text: str) -> list[str]:
    """Names.

    >>> texts("--models", "svm, tree")
    ['svm', 'tree']
    """
    values = [each.strip() for each in text.split(",") if each.strip()]
    if not values or len(set(values)) < len(values):
        raise ClustPSIError(f"{flag} must be one or more different names with commas between them, not {text!r}")
    return values


def numbers(flag: str, text: str, kind: type[Number]) -> tuple[Number, ...]:
    """Numbers.

    >>> numbers("--num-clients", "10,50", int)
    (10, 50)
    """
    try:
        values = tuple(kind(each) for each in text.split(",") if each.strip())
    except ValueError:
        values = ()
    if not values or len(set(values)) < len(values):
        plural = "whole numbers" if kind is int else "numbers"
        raise ClustPSIError(f"{flag} must be one or more different {plural} with commas between them, not {text!r}")
    return values


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds.

    >>> parse_seeds("42,0")
    (42, 0)
    """
    values = numbers("--seeds-list", text, int)
    if min(values) < 0 or max(values) > LARGEST:
        raise ClustPSIError(f"--seeds-list must be numbers from 0 to {LARGEST:,}, not {text!r}")
    return values


def joined(values: tuple[float, ...]) -> str:
    """The text from which :func:`numbers` gives these values.

    >>> joined((50, 0.7))
    '50,0.7'
    """
    return ",".join(f"{value:g}" for value in values)
