"""Notes and progress of commands, on standard error; --quiet silences them."""

import warnings
from typing import Annotated

import typer
from rich.console import Console

from clustpsi.errors import ClustPSIWarning
from clustpsi.printing import console

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress on standard error, only errors.")]


def notes(quiet: bool) -> Console:
    """The console for notes and progress."""
    shown = console(stderr=True)
    shown.quiet = quiet
    if quiet:
        warnings.simplefilter("ignore", ClustPSIWarning)
    return shown
