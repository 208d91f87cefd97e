"""Models in two parts: a body that clients share, and a head, the last layer, that each may have of its own."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from clustpsi.errors import ClustPSIError
from clustpsi.methods.base import Setting
from clustpsi.orders import Model


def head_of(setting: Setting, method: str) -> NDArray[np.bool_]:
    """Which parameters are the head's."""
    if setting.head is None:
        raise ClustPSIError(
            f"{method} needs to know which parameters are the last layer's: this federation does not tell"
        )
    return setting.head


def own_heads(setting: Setting, head: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The head that each of the clients starts from: (len(clients), size of a head)."""
    return np.stack([model.parameters[head] for model in setting.own_starts])


def with_heads(shared: Model, head: NDArray[np.bool_], heads: Iterable[NDArray[np.float32]]) -> list[Model]:
    """The shared model with each of several heads in the place of its own."""
    models = []
    for own in heads:
        parameters = shared.parameters.copy()
        parameters[head] = own
        models.append(Model(parameters, shared.buffers))
    return models
