"""All commands as one program."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from clustpsi.cli import (
    data,
    describe,
    diagnose,
    explore,
    export,
    federation,
    figure,
    methods,
    predict,
    report,
    run,
    study,
    sweep,
    table,
    tune,
)
from clustpsi.printing import printable


class _Program(TyperGroup):
    """All commands; what is wrong with an argument is said once, and without its control characters."""

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        with _plain_errors():
            return super().make_context(*given, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _plain_errors():
            return super().invoke(ctx)


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        said = error.format_message()
        if getattr(error, "possibilities", None) and " Did you mean " in error.message:
            said = error.message  # Typer's suggestion, which Click would repeat
        elif said == printable(said):
            raise
        raise click.UsageError(printable(said), error.ctx) from None


app = typer.Typer(
    cls=_Program,
    name="clustpsi",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"clustpsi {version('clustpsi')}")
        raise typer.Exit


@app.callback()
def clustpsi(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Federated learning when clients' data differ: measure label skew, cluster clients by PSI, train, compare."""


app.command("run")(run.command)
app.command("predict")(predict.command)
app.command("describe")(describe.command)
app.command("export")(export.command)
app.command("diagnose")(diagnose.command)
app.command("sweep")(sweep.command)
app.command("tune")(tune.command)
app.command("explore")(explore.command)
app.command("methods")(methods.command)
app.command("figure")(figure.command)
app.command("report")(report.command)
app.add_typer(federation.app, name="federation")
app.add_typer(study.app, name="study")
app.add_typer(table.app, name="table")
app.add_typer(data.app, name="data")


@cache
def program() -> Any:
    """All commands, built once: Typer would build their hundreds of options again for every call."""
    return typer.main.get_command(app)
