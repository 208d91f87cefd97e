"""``clustpsi describe``: the contents of a saved model on one screen."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from clustpsi.printing import console, counted, printable

if TYPE_CHECKING:
    from clustpsi.saved.model import SavedModel

SHOWN = 8  # names shown of a list


def command(
    model: Annotated[Path, typer.Argument(help="Saved model: model.safetensors, or the folder of a run with one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything but the models as JSON.")] = False,
) -> None:
    """Describe a saved model: classes, clients, features, network, models, and what new clients use."""
    from clustpsi.saved.file import load_model

    saved = load_model(model)
    if as_json:
        print(json.dumps(as_dict(saved), indent=2))
    else:
        _print(saved, console())


def as_dict(model: "SavedModel") -> dict[str, Any]:
    """The contents of a saved model, as plain data."""
    network = model.architecture.network
    clusters = None if model.clusters is None else model.clusters.tolist()
    return {
        "method": model.method,
        "versions": dict(model.versions),
        "classes": list(model.class_names),
        "network": {
            "model": model.architecture.model,
            "input_shape": list(model.architecture.input_shape),
            "input_dtype": model.architecture.input_dtype,
            "parameters": network.num_parameters,
        },
        "models": len(model.deployment.models),
        "clients": [
            {
                "client": name,
                "model": int(own),
                "samples": int(counts.sum()),
                "counts": dict(zip(model.class_names, counts.tolist(), strict=True)),
                **({} if clusters is None else {"cluster": clusters[place]}),
            }
            for place, (name, own, counts) in enumerate(
                zip(model.client_names, model.deployment.of_client, model.label_counts, strict=True)
            )
        ],
        "label_prior": model.deployment.log_prior is not None,
        "new_clients": newcomers_in_words(model),
        "columns": {"label": model.parts.label, "client": model.parts.client, "text": list(model.parts.text)},
        "features": model.features.as_dict(),
        "config": dict(model.config),
    }


def newcomers_in_words(model: "SavedModel") -> str:
    """What clients that were not in the federation use."""
    newcomers = model.newcomers
    said = "the model of all"
    if newcomers.centres is not None and len(newcomers.models) > 1:
        said = "the model of the cluster with the nearest centre (PSI of their label counts)"
    elif newcomers.mixes is not None:
        said = "the model of the clients whose label mix is nearest to theirs"
    elif len(model.deployment.models) > 1:
        said = "one model for all of them, a mixture of the federation's"
    return said + (", with a label prior from their own counts" if newcomers.prior_counts is not None else "")


def _print(model: "SavedModel", to: Console) -> None:
    network, features = model.architecture, model.features.as_dict()
    lines: dict[str, str] = {
        "method": model.method,
        "trained": _trained(model),
        "classes": _names(model.class_names, "class"),
        "clients": _names(model.client_names, "client") + f", {counted(int(model.label_counts.sum()), 'training row')}",
        "rows": _rows(model, features),
        "network": f"{network.model}, {network.network.num_parameters:,} parameters, input "
        f"{' x '.join(map(str, network.input_shape))} {network.input_dtype}"
        + ("" if network.vectors is None else f", word vectors {' x '.join(map(str, network.vectors.table.shape))}"),
        "models": _models(model),
        "label prior": "each client's own" if model.deployment.log_prior is not None else "none",
        "new clients": newcomers_in_words(model),
        "written by": ", ".join(f"{name} {number}" for name, number in model.versions.items()),
    }
    width = max(map(len, lines))
    for key, value in lines.items():
        to.print(printable(f"{key:<{width}}  {value}"))


def _names(names: tuple[str, ...], noun: str) -> str:
    return f"{counted(len(names), noun)} ({_some(names)})"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _trained(model: "SavedModel") -> str:
    config = model.config
    parts = [
        f"{config[key]} {what}"
        for key, what in (("comm_rounds", "rounds"), ("local_epochs", "epochs"))
        if key in config
    ]
    on = f"on {Path(config['dataset']).name}" if "dataset" in config else ""
    return ", ".join(filter(None, [on, *parts, f"seed {config['seed']}" if "seed" in config else ""]))


def _rows(model: "SavedModel", features: dict[str, Any]) -> str:
    """What rows must contain."""
    if features["kind"] == "table":
        numbers, categories = ([each[0] for each in features[key]] for key in ("numbers", "categories"))
        kinds = {"numbers": numbers, "categories": categories}
        return "; ".join(f"{kind}: {len(names):,} ({_some(names)})" for kind, names in kinds.items() if names)
    if features["kind"] == "text":
        columns = f" in {', '.join(model.parts.text)}" if model.parts.text else ""
        return f"texts{columns}, {features['length']} words of a vocabulary of {len(features['words']):,}"
    return f"arrays of shape {' x '.join(map(str, features['shape']))}, {features['dtype']}"


def _models(model: "SavedModel") -> str:
    number = len(model.deployment.models)
    used = np.bincount(model.deployment.of_client, minlength=number)
    said = "1, for all clients" if number == 1 else f"{number:,}"
    if 1 < number <= SHOWN:
        said += f", used by {', '.join(map(str, used.tolist()))} clients"
    if model.clusters is not None:
        said += f"; {counted(int(model.clusters.max()) + 1, 'cluster')} of clients"
    return said
