"""The file of a saved model: safetensors, with everything else as JSON in its header.  It contains no code.

Header (metadata ``clustpsi``): format, versions, method, config, classes, clients, features, columns, network, and how
newcomers are placed.  Tensors, K clients, C classes, M models:

parameters, buffers     (M, ...)  the different models, one row each; the parameters as differences from the first
                                  model if that is smaller (parameters.first, .counts, .places, .values)
model_of_client         (K,)      which model each client uses
log_prior               (K, C)    added to each client's logits, if the method does so
scale                   (K,)      factor of each client's logits before that, if the method has one
label_counts            (K, C)    training rows of each class
clusters                (K,)      each client's cluster, if the method forms clusters
word_vectors            (T, D)    if the network has them
newcomers.*                       models that newcomers may use, and what decides between them
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.datasets.files import check_file, user_path
from clustpsi.datasets.labels import Parts
from clustpsi.datasets.word_vectors import WordVectors
from clustpsi.engine.architecture import Architecture
from clustpsi.errors import ClustPSIError
from clustpsi.features import fitted_from_dict
from clustpsi.files import write_atomically
from clustpsi.orders import Deployment, Model, Newcomers
from clustpsi.psi_space import PSICentres
from clustpsi.saved import NAME
from clustpsi.saved.differences import packed, unpacked
from clustpsi.saved.model import SavedModel

KEY = "clustpsi"  # key of the JSON in the metadata
# Grows by one when older versions can no longer read what is written.
FORMAT = 1

NEEDED = f"a saved model ({NAME}, which `clustpsi run --save-models` leaves in a run's folder)"
CENTRES = ("reference", "mean", "scale", "centres")

Arrays = dict[str, NDArray[Any]]


def versions() -> dict[str, str]:
    """Versions of clustpsi and of the packages that it computes with."""
    return {name: version(name) for name in ("clustpsi", "numpy", "jax", "flax")}


def save_model(model: SavedModel, path: str | Path) -> None:
    """Write a saved model; a failure leaves no partial file."""
    from safetensors.numpy import save

    arrays, header = _pack(model)
    text = json.dumps(header, allow_nan=False)
    write_atomically(user_path(path), lambda file: file.write(save(arrays, {KEY: text})))


def load_model(path: str | Path) -> SavedModel:
    """Read a saved model.

    Parameters
    ----------
    path
        The file, or the folder of a run with such a file.
    """
    from safetensors import SafetensorError, safe_open

    path = user_path(path)
    if path.is_dir():
        path = path / NAME
    check_file(path, NEEDED)
    if path.suffix == ".npz":
        raise ClustPSIError(
            f"{path} is no saved model that can be used: earlier versions of clustpsi left bare vectors in models.npz; "
            f"run it again with --save-models, for {NAME}"
        )
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise ClustPSIError(f"{path} is damaged, truncated or no saved model ({error}): {NEEDED} is needed") from None
    if KEY not in metadata:
        raise ClustPSIError(f"{path} is a safetensors file of something else: {NEEDED} is needed")
    try:
        header = json.loads(metadata[KEY])
        number = header["format"]
        if number != FORMAT:
            newer = isinstance(number, int) and number > FORMAT
            raise ClustPSIError(
                f"{path} is in format {number}, and this version of clustpsi reads format {FORMAT}: "
                + (f"it needs clustpsi {header['versions']['clustpsi']} or later" if newer else "save the model again")
            )
        model = _unpack(header, arrays)
        _check(model)
    except ClustPSIError as error:
        raise ClustPSIError(f"{path} cannot be used: {error}" if str(path) not in str(error) else str(error)) from None
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise ClustPSIError(f"{path} is damaged ({error!r}): save the model again with --save-models") from None
    return model


def _pack(model: SavedModel) -> tuple[Arrays, dict[str, Any]]:
    deployment, newcomers, architecture = model.deployment, model.newcomers, model.architecture
    distinct = _Distinct()
    places = distinct.add(deployment.models)
    arrays: Arrays = {
        "model_of_client": places[deployment.of_client],
        "label_counts": model.label_counts,
        "newcomers.models": distinct.add(newcomers.models),
        "newcomers.federation": newcomers.federation,
    }
    arrays |= {**packed("parameters", np.stack(distinct.parameters)), "buffers": np.stack(distinct.buffers)}
    optional: dict[str, NDArray[Any] | None] = {
        "log_prior": deployment.log_prior,
        "scale": deployment.scale,
        "clusters": model.clusters,
        "word_vectors": None if architecture.vectors is None else architecture.vectors.table,
        "newcomers.mixes": newcomers.mixes,
        "newcomers.prior_counts": newcomers.prior_counts,
        "newcomers.shifts": newcomers.shifts,
        "newcomers.scales": newcomers.scales,
    }
    centres = newcomers.centres
    if centres is not None:
        optional |= {f"newcomers.{key}": getattr(centres, key) for key in CENTRES}
    arrays |= {key: array for key, array in optional.items() if array is not None}
    header = {
        "format": FORMAT,
        "versions": dict(model.versions),
        "method": model.method,
        "config": dict(model.config),
        "classes": list(model.class_names),
        "clients": list(model.client_names),
        "features": model.features.as_dict(),
        "columns": {"label": model.parts.label, "client": model.parts.client, "text": list(model.parts.text)},
        "network": {
            "model": architecture.model,
            "input_shape": list(architecture.input_shape),
            "input_dtype": architecture.input_dtype,
            "words_with_vectors": None if architecture.vectors is None else architecture.vectors.found,
        },
        "clustering": None
        if centres is None
        else {"features": centres.features, "smoothing": centres.smoothing, "epsilon": centres.epsilon},
    }
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}, header


def _unpack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> SavedModel:
    models = tuple(Model(*each) for each in zip(unpacked("parameters", arrays), arrays["buffers"], strict=True))
    columns, network, clustering = header["columns"], header["network"], header["clustering"]
    vectors = None
    if "word_vectors" in arrays:
        vectors = WordVectors(arrays["word_vectors"], network["words_with_vectors"])
    centres = None
    if clustering is not None:
        centres = PSICentres(
            clustering["features"],
            clustering["smoothing"],
            clustering["epsilon"],
            *(arrays[f"newcomers.{key}"] for key in CENTRES),
        )
    newcomers = Newcomers(
        tuple(models[place] for place in arrays["newcomers.models"]),
        arrays["newcomers.federation"],
        centres,
        arrays.get("newcomers.mixes"),
        arrays.get("newcomers.prior_counts"),
        arrays.get("newcomers.shifts"),
        arrays.get("newcomers.scales"),
    )
    classes = tuple(header["classes"])
    return SavedModel(
        classes,
        tuple(header["clients"]),
        arrays["label_counts"],
        fitted_from_dict(header["features"]),
        Parts(columns["label"], columns["client"], tuple(columns["text"])),
        Architecture(network["model"], len(classes), tuple(network["input_shape"]), network["input_dtype"], vectors),
        Deployment(models, arrays["model_of_client"], arrays.get("log_prior"), arrays.get("scale")),
        newcomers,
        arrays.get("clusters"),
        header["method"],
        header["config"],
        header["versions"],
    )


def _check(model: SavedModel) -> None:
    """Raise if the parts of a saved model do not fit together."""
    clients, classes = len(model.client_names), len(model.class_names)
    deployment, newcomers, network = model.deployment, model.newcomers, model.architecture.network
    sizes = {(each.parameters.shape, each.buffers.shape) for each in deployment.models}
    if sizes != {((network.num_parameters,), (network.num_buffers,))}:
        found = " and ".join(f"{parameters[0]:,}" for parameters, _ in sizes)
        raise ClustPSIError(
            f"its models are of another network: they have {found} parameters, and {model.architecture.model} for "
            f"these features and classes has {network.num_parameters:,}"
        )
    if not all(np.isfinite(vector).all() for each in deployment.models for vector in each):
        raise ClustPSIError("a model in it is not finite")
    centres = newcomers.centres
    shapes: dict[str, tuple[NDArray[Any] | None, tuple[int, ...]]] = {
        "model_of_client": (deployment.of_client, (clients,)),
        "label_counts": (model.label_counts, (clients, classes)),
        "log_prior": (deployment.log_prior, (clients, classes)),
        "scale": (deployment.scale, (clients,)),
        "clusters": (model.clusters, (clients,)),
        "newcomers.federation": (newcomers.federation, (classes,)),
        "newcomers.mixes": (newcomers.mixes, (len(newcomers.models), classes)),
        "newcomers.prior_counts": (newcomers.prior_counts, (len(newcomers.models), classes)),
        "newcomers.shifts": (newcomers.shifts, (len(newcomers.models), classes)),
        "newcomers.scales": (newcomers.scales, (len(newcomers.models),)),
        "newcomers.reference": (None if centres is None else centres.reference, (classes,)),
    }
    for name, (array, shape) in shapes.items():
        if array is not None and array.shape != shape:
            raise ClustPSIError(f"it is damaged: {name} has shape {array.shape} in place of {shape}")
    if not 0 <= deployment.of_client.min() <= deployment.of_client.max() < len(deployment.models):
        raise ClustPSIError("it is damaged: a client uses a model that is not there")
    if len(newcomers.models) > 1 and centres is None and newcomers.mixes is None:
        raise ClustPSIError("it is damaged: nothing says which model a client uses that was not there")


class _Distinct:
    """Different models, each once."""

    def __init__(self) -> None:
        self.parameters: list[NDArray[np.float32]] = []
        self.buffers: list[NDArray[np.float32]] = []
        self._places: dict[bytes, int] = {}

    def add(self, models: Iterable[Model]) -> NDArray[np.int64]:
        """Add models; gives the position of each."""
        return np.array([self._add(model) for model in models], np.int64)

    def _add(self, model: Model) -> int:
        digest = hashlib.sha256(model.parameters.tobytes() + model.buffers.tobytes()).digest()
        if digest not in self._places:
            self._places[digest] = len(self.parameters)
            self.parameters.append(model.parameters)
            self.buffers.append(model.buffers)
        return self._places[digest]
