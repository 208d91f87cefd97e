"""The description of a network: enough to build it again without the data and without the run."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from clustpsi.datasets.word_vectors import WordVectors
from clustpsi.engine.network import Network, network_for
from clustpsi.models import build_model


@dataclass(frozen=True)
class Architecture:
    """A model, its input and its output.

    Attributes
    ----------
    model
        Name of the model.
    num_classes
        C, the number of classes.
    input_shape, input_dtype
        Shape and type of one row of features.
    vectors
        Word vectors, if a text model uses them instead of its own embeddings.
    """

    model: str
    num_classes: int
    input_shape: tuple[int, ...]
    input_dtype: str
    vectors: WordVectors | None = None

    @cached_property
    def network(self) -> Network:
        """The network: the same object for equal architectures."""
        module = build_model(self.model, self.num_classes, self.vectors)
        return network_for(module, self.input_shape, np.dtype(self.input_dtype))

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: the fields, without the network's compiled programs."""
        return {each.name: getattr(self, each.name) for each in fields(self)}
