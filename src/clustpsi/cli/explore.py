"""``clustpsi explore``: a page on this machine to look at federations and to train on them."""

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
        int, typer.Option(min=0, max=65535, help="Port of this machine to serve the page at; 0: any that is free.")
    ] = 8050,
    output: Annotated[
        Path, typer.Option(help="Folder for the runs that the page starts and for tables that are dropped on it.")
    ] = Path("explorer"),
    data_dir: DataDir = None,
    browser: Annotated[bool, typer.Option("--browser", help="Open the page in the browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Serve a page, for this machine only, that shows label skew and clusters as one moves controls, and trains.

    Open the address that it prints. Ctrl-C ends it, and the training that is under way; what is finished is kept.
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
