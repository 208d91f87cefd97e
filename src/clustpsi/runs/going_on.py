"""Continuing from a saved model: its features, classes and network, with new rounds, new clients or new data."""

from dataclasses import replace

import numpy as np

from clustpsi.engine.architecture import Architecture
from clustpsi.errors import ClustPSIError
from clustpsi.federation import Federation
from clustpsi.orders import Deployment
from clustpsi.runs.config import Config
from clustpsi.saved.model import SavedModel

# Besides the data, these settings decide which rows a client of a partition has: its name is only a number.
PARTITION = ("partitioner", "non_iid_param", "num_clients", "split", "seed")


def going_on(federation: Federation, saved: SavedModel) -> Federation:
    """The federation with the saved model's features and classes; raises if its data does not have them."""
    dataset = federation.dataset
    place = {name: at for at, name in enumerate(saved.class_names)}
    for name in dataset.class_names:
        if name not in place:
            raise ClustPSIError(
                f"{dataset.name} has the class {name!r}, which the saved model to start from does not have: it has "
                f"{', '.join(saved.class_names)}"
            )
    try:
        saved.features.accept(dataset.features, dataset.rows)
    except ClustPSIError as error:
        raise ClustPSIError(f"{dataset.name} has other features than the saved model to start from: {error}") from None
    labels = np.array([place[name] for name in dataset.class_names], np.int32)[dataset.labels]
    known = replace(dataset, labels=labels, class_names=saved.class_names)
    return replace(federation, dataset=known, fitted_before=saved.features)


def saved_architecture(saved: SavedModel, config: Config) -> Architecture:
    """The saved model's network; raises if the user asks for another one."""
    if config.model not in (None, saved.architecture.model):
        raise ClustPSIError(
            f"the saved model to start from is of the network {saved.architecture.model}, not of --model "
            f"{config.model}: leave --model away"
        )
    if config.word_vectors is not None:
        raise ClustPSIError("the saved model to start from has its own word vectors or none: leave --word-vectors away")
    return saved.architecture


def used_before(saved: SavedModel, federation: Federation, config: Config, data: str) -> Deployment:
    """What each client uses under the saved model: its own model if it took part, else the one its label counts choose.

    Clients of a partition are only numbered, so they are the same clients only if the partition and the data (by their
    hash) are the same.
    """
    names, now = federation.client_names, config.as_dict()
    is_same = str(saved.config.get("content")).startswith(data) and all(
        saved.config.get(key) == now.get(key) for key in PARTITION
    )
    if config.partitioner == "natural" or is_same:
        return saved.serve(names, dict(zip(names, federation.label_counts, strict=True)))
    return saved.newcomers.place(federation.label_counts)
