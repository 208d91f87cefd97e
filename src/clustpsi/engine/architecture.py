"""What a network is made from: enough to build it again where neither the data nor the run is at hand."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from clustpsi.datasets.word_vectors import WordVectors
from clustpsi.engine.network import Network, network_for
from clustpsi.models import build_model


@dataclass(frozen=True)
class Architecture:
    """A model and what goes into and comes out of it.

    Attributes
    ----------
    model
        Its name.
    num_classes
        C.
    input_shape, input_dtype
        Of one row of features.
    vectors
        Word vectors, where a model of text has them in place of its own embeddings.
    """

    model: str
    num_classes: int
    input_shape: tuple[int, ...]
    input_dtype: str
    vectors: WordVectors | None = None

    @cached_property
    def network(self) -> Network:
        """The network, always the same object for equal architectures."""
        module = build_model(self.model, self.num_classes, self.vectors)
        return network_for(module, self.input_shape, np.dtype(self.input_dtype))

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: what it is made from, without the network's compiled programs."""
        return {each.name: getattr(self, each.name) for each in fields(self)}
