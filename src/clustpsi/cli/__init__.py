"""The command line: ``clustpsi COMMAND``.

This module imports nothing slow, so that Ctrl-C gives one sentence even while the commands load.
"""

import io
import sys
import warnings
from typing import TextIO

from clustpsi.cli.stopping import Stopped, stoppable
from clustpsi.errors import ClustPSIError, ClustPSIWarning


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a mistake of the user gives one sentence and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # ± must not fail on a terminal that only knows ASCII
    try:
        with stoppable():
            _run(arguments)
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        raise SystemExit(stopped.exit_code) from None


def _run(arguments: list[str] | None) -> None:
    from clustpsi.cli.app import program
    from clustpsi.cli.report import with_file
    from clustpsi.printing import printable

    def note(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """Print a warning as one line, without its place in the code, which does not help a user."""
        print(f"note: {printable(str(message))}", file=sys.stderr)

    warnings.simplefilter("once", ClustPSIWarning)
    warnings.showwarning = note
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if any("\0" in each for each in arguments):
            raise ClustPSIError("an argument has a NUL character, which no name or number may have")
        program()(args=with_file(arguments), prog_name="clustpsi")
    except (ClustPSIError, OSError, MemoryError) as error:
        print(f"error: {printable(_sentence(error))}", file=sys.stderr)
        raise SystemExit(2) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory for this: take fewer clients, epochs or workers, or smaller batches"
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}"
    return str(error)
