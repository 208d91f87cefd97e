"""``clustpsi data``: list, get and check data sets."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.style import Style
from rich.table import Table
from rich.text import Text

from clustpsi.cli.notes import Quiet, notes
from clustpsi.cli.options import complete_datasets, is_given
from clustpsi.datasets import DATASETS, DataMissing, data_folder, load_dataset
from clustpsi.datasets.catalogue import Entry
from clustpsi.errors import ClustPSIError, unknown_name
from clustpsi.printing import console, print_table, printable

app = typer.Typer(help="List, get and check data sets.")

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar="CLUSTPSI_DATA", help="Folder with the data sets.", show_default="the user's cache"
    ),
]


@app.callback(invoke_without_command=True)
def table(
    context: typer.Context,
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """List the data sets: present or not, rows, classes, size, licence, source."""
    context.obj = data_dir  # the option may come before or after the sub-command
    if context.invoked_subcommand is not None:
        return
    folder = data_folder(data_dir)
    rows = [_describe(name, folder) for name in DATASETS]
    if as_json:
        print(json.dumps({"folder": str(folder), "datasets": rows}, indent=2))
        return
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=f"data sets in {folder}", title_justify="left")
    for heading in ("name", "here"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("rows", "classes", "size"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("licence", no_wrap=True)
    shown.add_column("source")
    for row in rows:
        shown.add_row(
            row["name"],
            row["status"],
            f"{row['rows']:,}",
            str(row["classes"]),
            _size(row["bytes"]),
            row["licence"],
            Text(row["source"], Style(link=row["origin"])),
        )
    print_table(shown, console())
    print("`clustpsi data get NAME` gets an absent set; its rows and classes are those of the complete one.")


@app.command()
def get(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Data set.", autocompletion=complete_datasets)],
    data_dir: DataDir = None,
    mirror: Annotated[
        str | None,
        typer.Option(envvar="CLUSTPSI_MIRROR", help="URL of a folder with the same files.", show_default="official"),
    ] = None,
    states: Annotated[
        str | None, typer.Option(help="acs_income: postal codes, e.g. CA,TX.", show_default="all states and PR")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Download a data set, or say what to fetch by hand. An interrupted download continues where it stopped."""
    # Imported here because bars are slow to load, and --help needs none.
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from clustpsi.datasets.download import fetch

    entry = _entry(name)
    folder = _folder(context, data_dir) / name
    if states is not None and name != "acs_income":
        raise ClustPSIError(f"--states is for acs_income: {name} comes as a whole")
    if not entry.base_url:
        print(f"{entry.title}: {printable(entry.by_hand.format(folder=folder))}")
        if name != "digits":
            print(f"Licence: {entry.licence}. Then run: clustpsi data check {name}")
        return
    chosen = [state.strip().upper() for state in states.split(",") if state.strip()] if states else []
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=notes(quiet),
    ) as bars:
        tasks: dict[str, Any] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file)
            bars.update(tasks[file], completed=done, total=total)

        new = fetch(name, folder, mirror=mirror, states=chosen, progress=show)
    for path in new:
        print(printable(f"got {path}"))
    if not new:
        print(printable(f"nothing to do: {name} is in {folder}"))


@app.command()
def check(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Data sets.", show_default="those present", autocompletion=complete_datasets),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Read data sets again from their files, and check the content of those whose content is known."""
    from clustpsi.datasets.verify import verify

    folder = _folder(context, data_dir)
    failed = []
    for name in names or DATASETS:
        _entry(name)
        try:
            print(printable(f"{name}: {verify(name, folder)}"))
        except DataMissing as error:
            if names:
                failed.append(name)
            print(printable(f"{name}: absent: {error}" if names else f"{name}: absent"))
        except ClustPSIError as error:
            failed.append(name)
            print(printable(f"{name}: not usable: {error}"))
    if failed:
        raise ClustPSIError(f"not usable: {', '.join(failed)} (see above)")


def _folder(context: typer.Context, data_dir: Path | None) -> Path:
    """The folder of a sub-command: its own option counts, then the one before it, then the environment variable."""
    return data_folder(data_dir if is_given(context, "data_dir") else context.obj)


def _entry(name: str) -> Entry:
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    return DATASETS[name]


def _describe(name: str, folder: Path) -> dict[str, Any]:
    entry = DATASETS[name]
    row = {"name": name, "status": "yes", "rows": entry.rows, "classes": entry.classes, "bytes": 0}
    row |= {"licence": entry.licence, "source": entry.source, "origin": entry.origin}
    try:
        dataset = load_dataset(name, data_dir=folder)
        row |= {"rows": len(dataset.labels), "classes": dataset.num_classes}
    except DataMissing:
        row["status"] = "no"
    except ClustPSIError:
        row["status"] = "damaged"
    files = [path for path in (folder / name).rglob("*") if path.is_file() and ".clustpsi" not in path.parts]
    row["bytes"] = sum(path.stat().st_size for path in files)
    return row


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size else ""
