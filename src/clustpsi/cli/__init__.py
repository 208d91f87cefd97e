"""The command line: ``clustpsi COMMAND``."""

import sys
import warnings
from typing import TextIO

import typer

from clustpsi.cli import data, diagnose, figure, methods, run, study, sweep, table, tune
from clustpsi.errors import ClustPSIError, ClustPSIWarning

app = typer.Typer(
    name="clustpsi",
    help="Federated learning when clients' data differ: measure label skew, cluster clients by PSI, train, compare.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.command)
app.command("diagnose")(diagnose.command)
app.command("sweep")(sweep.command)
app.command("tune")(tune.command)
app.command("methods")(methods.command)
app.command("figure")(figure.command)
app.add_typer(study.app, name="study")
app.add_typer(table.app, name="table")
app.add_typer(data.app, name="data")


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as one line; the place in the code is of no use to whoever reads it here."""
    print(f"note: {message}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a mistake of the user's is one sentence and exit code 2, never a traceback."""
    warnings.simplefilter("once", ClustPSIWarning)
    warnings.showwarning = _note
    try:
        app(args=arguments)
    except ClustPSIError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("interrupted: what is finished is kept (clustpsi run goes on with --resume)", file=sys.stderr)
        raise SystemExit(130) from None
