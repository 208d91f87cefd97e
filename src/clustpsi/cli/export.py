"""``clustpsi export``: saved models for programs without clustpsi."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from clustpsi.cli.notes import Quiet, notes
from clustpsi.files import check_no_input
from clustpsi.printing import counted, printable


class Format(StrEnum):
    onnx = "onnx"


def command(
    model: Annotated[Path, typer.Argument(help="Saved model: model.safetensors, or the folder of a run with one.")],
    format: Annotated[Format, typer.Option(help="What to write; onnx needs clustpsi's extra of that name.")],
    output: Annotated[
        Path | None, typer.Option(help="Folder for the files.", show_default="onnx, beside the saved model")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a saved model for programs without clustpsi: one file per different model, and model.json.

    model.json has the classes, how rows become features, and which file and label prior each client uses.
    """
    # Imported here because JAX is slow to load.
    from clustpsi.saved.file import load_model
    from clustpsi.saved.onnx_export import DESCRIPTION, export_onnx

    folder = output or (model if model.is_dir() else model.parent) / format.value
    for path in (folder / DESCRIPTION, *folder.glob("*.onnx")):
        check_no_input(path, [model])
    loaded = load_model(model)
    *models, description = export_onnx(loaded, folder)
    told = f"{counted(len(models), 'model')} of {counted(len(loaded.client_names), 'client')}, and {description.name}"
    notes(quiet).print(printable(f"{told}, in {folder}/"), style="dim")
