"""``clustpsi explore``: a local web page to look at federations and to train on them."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from clustpsi.cli.data import DataDir
from clustpsi.cli.notes import Quiet, notes
from clustpsi.errors import ClustPSIError
from clustpsi.files import make_folder
from clustpsi.printing import printable


def command(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of this machine for the page; 0: any free one.")
    ] = 8050,
    output: Annotated[
        Path, typer.Option(help="Folder for the runs that the page starts, and for tables dropped on it.")
    ] = Path("explorer"),
    data_dir: DataDir = None,
    browser: Annotated[bool, typer.Option("--browser", help="Open the page in the browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Serve an interactive page on this machine only: it shows label skew and clusters, and trains.

    Open the address that it prints. Ctrl-C ends the page and its training; finished runs are kept.
    """
    if find_spec("dash") is None:
        raise ClustPSIError("the explorer needs Dash: install it with pip install 'clustpsi[explore]'")
    from clustpsi.explorer.app import Explorer
    from clustpsi.explorer.server import PageServer, bound

    listener = bound(port)
    make_folder(output)
    explorer = Explorer(output.resolve(), data_dir)
    try:
        server = PageServer(explorer.app(), listener)
        print(f"open {server.address}", flush=True)
        notes(quiet).print(printable(f"runs and tables are kept in {output}/; Ctrl-C ends the explorer"), style="dim")
        if browser:
            import webbrowser

            webbrowser.open(server.address)
        server.serve()
    finally:
        explorer.close()
