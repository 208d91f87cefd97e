"""``clustpsi predict``: the classes of new rows, from a saved model."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from clustpsi.cli.notes import Quiet, notes
from clustpsi.cli.options import config_options, with_options
from clustpsi.datasets.files import user_path
from clustpsi.errors import ClustPSIError
from clustpsi.files import check_writable, write_atomically
from clustpsi.printing import counted, printable
from clustpsi.runs.config import column_names
from clustpsi.saved import NAME as MODEL

if TYPE_CHECKING:
    import pyarrow as pa

    from clustpsi.saved.model import SavedModel
    from clustpsi.saved.rows import FilePrediction, Predicted, Tally

READING = ("sep", "no_header")  # options that `clustpsi run` has too
SHOWN = 5  # most clients that a note names


def command(
    *,
    model: Annotated[Path, typer.Argument(help="Saved model: model.safetensors, or the folder of a run with one.")],
    rows: Annotated[
        Path, typer.Argument(help="Table of rows (CSV, Parquet, Feather, Arrow, JSON lines), or an NPZ file of arrays.")
    ],
    client: Annotated[
        str | None,
        typer.Option(
            help="Column that names the client of each row; or, if there is no such column, the name of one client for "
            "all rows.",
            show_default="the column that the model was trained with, if the file has it",
        ),
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(help="Label counts of new clients: a table with one row per client and one column per class."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column with the true class: for the accuracy, and for the label counts of new clients.",
            show_default="the column that the model was trained with, if the file has it",
        ),
    ] = None,
    ignore_label: Annotated[bool, typer.Option("--ignore-label", help="Ignore the column of labels.")] = False,
    text: Annotated[
        str | None,
        typer.Option(help="Columns of text, comma-separated.", show_default="those that the model was trained with"),
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of every class.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="File for the predictions: .csv, .parquet or .jsonl.", show_default="standard output, as CSV"
        ),
    ] = None,
    quiet: Quiet = False,
    **reading: Any,
) -> None:
    """Predict the class of every row of a file, with the model that each row's client uses.

    Files may be of any size. For a new client, one that was not in the federation, its label counts choose the model.
    """
    told = notes(quiet)
    for flag, name in (("--client", client), ("--label", label), ("--text", text)):
        if name is not None and not name.strip():
            raise ClustPSIError(f"{flag} is empty: give it a value, or leave it away")
    given = [user_path(path) for path in (rows, model, model / MODEL, counts) if path is not None]
    writer = _writer_for(output, given)
    if label is not None and ignore_label:
        raise ClustPSIError("--label names the column of labels and --ignore-label leaves it aside: give one of them")

    # Imported here because pandas and JAX are slow to load, and neither --help nor a mistake needs them.
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from clustpsi.saved.file import load_model
    from clustpsi.saved.rows import FilePrediction, Reading

    saved = load_model(model)
    asked = Reading(user_path(rows), client, label, column_names(text), ignore_label, **reading)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    live = told.is_terminal and not told.quiet
    with Progress(*columns, TimeElapsedColumn(), console=told, disable=not live, transient=True) as progress:
        task = progress.add_task("reading", total=1.0)
        prediction = FilePrediction(
            saved,
            asked,
            counts=None if counts is None else user_path(counts),
            probabilities=proba,
            watch=lambda what, share: progress.update(task, description=what, completed=share),
        )
        for note in prediction.notes:
            told.print(f"note: {printable(note)}", style="yellow")
        tables = (_table(saved, piece) for piece in prediction)
        if output is None:
            _print(tables)
        else:
            write_atomically(output, lambda file: writer(file, tables))
    saved.say_without(sorted(prediction.tally.without), {})
    _tell(prediction, output, told.print)


with_options(command, [each for each in config_options() if each.name in READING])


def _tell(prediction: "FilePrediction", output: Path | None, tell: Callable[..., None]) -> None:
    """Print the outcome in a line or two; accuracy goes to standard output, unless the predictions go there."""
    tally: Tally = prediction.tally
    if tally.strange:
        have = "has" if tally.strange == 1 else "have"
        tell(f"note: {counted(tally.strange, 'row')} {have} a label that is no class of the model", style="yellow")
    placed = tally.new - tally.without - {""}
    if placed:
        shown = ", ".join(repr(name) for name in sorted(placed)[:SHOWN]) + (", ..." if len(placed) > SHOWN else "")
        tell(printable(f"placed by label counts: {counted(len(placed), 'client')} ({shown})"), style="dim")
    where = "" if output is None else f" in {output}"
    tell(printable(f"{counted(tally.rows, 'prediction')}{where}"), style="dim")
    if tally.right is not None:
        line = f"accuracy {tally.right / tally.rows:.4f} ({tally.right:,} of {counted(tally.rows, 'row')})"
        if output is None:
            tell(line)
        else:
            print(line)


# ------------------------------------------------------------------------------------------------------------ output


def _table(model: "SavedModel", piece: "Predicted") -> "pa.Table":
    """Predictions as a table: row, client, prediction, probabilities."""
    import numpy as np
    import pyarrow as pa

    columns: dict[str, Any] = {"row": np.arange(piece.start + 1, piece.start + 1 + len(piece.classes))}
    if piece.client_names:
        columns["client"] = pa.array(piece.client_names, pa.string()).take(pa.array(piece.client_of_row))
    columns["prediction"] = pa.array(model.class_names, pa.string()).take(pa.array(piece.classes))
    if piece.probabilities is not None:
        for name, probability in zip(model.class_names, piece.probabilities.T, strict=True):
            columns[f"probability_{name}"] = np.ascontiguousarray(probability)
    return pa.table(columns)


Tables = Iterator["pa.Table"]


def _writer_for(output: Path | None, made_from: Iterable[Path]) -> Callable[[BinaryIO, Tables], None]:
    """The function that writes a file of that name; raises for a name that cannot be, before any work is done."""
    writers = {".csv": _write_csv, ".parquet": _write_parquet, ".jsonl": _write_json}
    if output is None:
        return _write_csv
    if output.suffix.lower() not in writers:
        raise ClustPSIError(f"--output {output} must end in {', '.join(writers)}, which says how it is written")
    check_writable(output, made_from)
    return writers[output.suffix.lower()]


def _write_csv(file: BinaryIO, tables: Tables) -> None:
    from pyarrow import csv

    options = csv.WriteOptions(include_header=True, quoting_style="needed")
    first = next(tables)
    with csv.CSVWriter(file, first.schema, write_options=options) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


def _write_parquet(file: BinaryIO, tables: Tables) -> None:
    from pyarrow import parquet

    first = next(tables)
    with parquet.ParquetWriter(file, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


def _write_json(file: BinaryIO, tables: Tables) -> None:
    for table in tables:
        for row in table.to_pylist():
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _print(tables: Tables) -> None:
    """Print predictions on standard output; the reader may stop before the end."""
    from pyarrow import csv

    is_first, shown = True, sys.stdout.isatty()
    try:
        for table in tables:
            text = io.BytesIO()
            csv.write_csv(table, text, csv.WriteOptions(include_header=is_first, quoting_style="needed"))
            written = text.getvalue().decode()
            # Control characters could harm a terminal; a file or a program gets names as they are.
            sys.stdout.write("".join(f"{printable(line)}\n" for line in written.splitlines()) if shown else written)
            is_first = False
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python complains when it ends
