"""A saved model for programs without clustpsi: one ONNX file per different model, and a JSON file with the rest.

model.json has the names of the classes, how rows become features, and which file and label prior each client uses.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from clustpsi.datasets.files import user_path
from clustpsi.engine.architecture import Architecture
from clustpsi.engine.training import NEVER
from clustpsi.errors import ClustPSIError
from clustpsi.features import Fitted, FittedTable
from clustpsi.features.table import NumberColumn
from clustpsi.features.written import MARKS
from clustpsi.files import make_folder, write_atomically, writing
from clustpsi.orders import Deployment, Model
from clustpsi.saved.model import SavedModel

# Grows by one when programs that read older files can no longer read what is written.
FORMAT = 2
DESCRIPTION = "model.json"
# Cells of a CSV file that are missing values, in any column.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
)


def export_onnx(model: SavedModel, folder: str | Path) -> list[Path]:
    """Write a saved model as ONNX files and a JSON file; gives their paths, the JSON file's last.

    Parameters
    ----------
    model
        A model from :func:`clustpsi.load_model`.
    folder
        Folder for the files; it is created if it does not exist.
    """
    try:
        from clustpsi.models.onnx_graph import INPUT, OUTPUT
    except ModuleNotFoundError as error:
        raise ClustPSIError(f"ONNX files need the package {error.name}: pip install 'clustpsi[onnx]'") from None
    folder = user_path(folder)
    make_folder(folder)
    with writing(folder / DESCRIPTION):
        (folder / DESCRIPTION).unlink(missing_ok=True)  # written last: if it exists, so do all files that it names
    # A client that did not take part and gives no label counts is treated as if it had the federation's label mix.
    others = model.newcomers.place(np.zeros((1, len(model.class_names)), np.int64))
    graphs = _Graphs(model.architecture, folder)
    clients, (other,) = graphs.served(model.deployment), graphs.served(others)
    architecture, parts = model.architecture, model.parts
    description = {
        "format": FORMAT,
        "versions": dict(model.versions),
        "method": model.method,
        "network": architecture.model,
        "input": {"name": INPUT, "shape": list(architecture.input_shape), "dtype": architecture.input_dtype},
        "output": {"name": OUTPUT, "shape": [len(model.class_names)], "dtype": "float32"},
        "classes": list(model.class_names),
        "columns": {"label": parts.label, "client": parts.client, "text": list(parts.text)},
        "features": _described(model.features),
        "models": graphs.names,
        "clients": dict(zip(model.client_names, clients, strict=True)),
        "others": other,
    }
    text = json.dumps(description, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / DESCRIPTION, lambda file: file.write(text.encode()))
    return [folder / name for name in (*graphs.names, DESCRIPTION)]


def _described(features: Fitted[Any]) -> dict[str, Any]:
    """How rows become features, in words that programs without clustpsi need no source to understand."""
    if not isinstance(features, FittedTable):
        return features.as_dict()
    return {
        "kind": features.kind,
        "gap_marks": sorted(MARKS | {text.lower() for text in MISSING}),
        "missing": list(MISSING),
        "numbers": [_described_numbers(column) for column in features.numbers],
        "categories": [{"name": column.name, "kinds": list(column.kinds)} for column in features.categories],
    }


def _described_numbers(column: NumberColumn) -> dict[str, Any]:
    form = column.form
    return {
        "name": column.name,
        "kind": "date" if form.is_date else "number",
        "day_first" if form.is_date else "decimal_comma": form.is_local,
        "gap_marks": list(form.marks),
        "marks_gaps": column.is_marked,
        "centre": column.centre,
        "spread": column.spread,
    }


class _Graphs:
    """The ONNX files of models, written as they are asked for; equal models share one.

    Attributes
    ----------
    names
        Names of the files.
    """

    def __init__(self, architecture: Architecture, folder: Path) -> None:
        self._architecture, self._folder = architecture, folder
        self._name_of: dict[bytes, str] = {}

    @property
    def names(self) -> list[str]:
        return list(self._name_of.values())

    def served(self, deployment: Deployment) -> list[dict[str, Any]]:
        """For each client: the file with its model, the factor of its logits, and what is added to them."""
        shape = len(deployment.of_client), self._architecture.num_classes
        prior = np.zeros(shape) if deployment.log_prior is None else np.maximum(deployment.log_prior, NEVER)
        scale = np.ones(len(prior)) if deployment.scale is None else deployment.scale
        return [
            {"model": self._name(deployment.models[model]), "scale": times, "log_prior": own}
            for model, times, own in zip(deployment.of_client, scale.tolist(), prior.tolist(), strict=True)
        ]

    def _name(self, model: Model) -> str:
        """The file of a model."""
        from clustpsi.models.onnx_graph import onnx_model

        digest = hashlib.sha256(model.parameters.tobytes() + model.buffers.tobytes()).digest()
        if digest not in self._name_of:
            network, architecture = self._architecture.network, self._architecture
            parameters = network.parameters_of(jnp.asarray(model.parameters))
            buffers = network.buffers_of(jnp.asarray(model.buffers))
            row = architecture.input_shape, np.dtype(architecture.input_dtype)
            graph = onnx_model(network.module, parameters, buffers, *row).SerializeToString()
            self._name_of[digest] = f"model-{len(self._name_of)}.onnx"
            write_atomically(self._folder / self._name_of[digest], lambda file: file.write(graph))
        return self._name_of[digest]
