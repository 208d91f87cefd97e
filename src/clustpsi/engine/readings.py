"""Losses under several readings of a model's logits: a client's part in a calibration."""

import numpy as np
from numpy.typing import NDArray

from clustpsi.engine.training import NEVER
from clustpsi.orders import RULED_OUT_LOSS, HeldOutLosses

Doubles = NDArray[np.float64]


def reading_losses(
    order: HeldOutLosses, logits: NDArray[np.float32], labels: NDArray[np.int32], owner: NDArray[np.int64]
) -> Doubles:
    """Every client's summed loss under each reading of an order, (len(clients), R).

    ``logits`` and ``labels`` are those of all clients' held-out rows; ``owner`` is each row's client, as a position in
    the order.
    """
    prior = np.maximum(order.log_prior, NEVER)[owner]
    sums = np.zeros((len(order.clients), len(order.scales)))
    plain = logits.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # in case the model has diverged
        for r, (scale, shift) in enumerate(zip(order.scales, order.shifts, strict=True)):
            read = prior + shift if scale == 0 else scale * plain + (prior + shift)
            losses = np.minimum(_cross_entropy(read, labels), RULED_OUT_LOSS)
            losses = np.where(np.isnan(losses), RULED_OUT_LOSS, losses)
            sums[:, r] = np.bincount(owner, losses, minlength=len(sums))
    return sums


def _cross_entropy(logits: Doubles, labels: NDArray[np.int32]) -> Doubles:
    largest = logits.max(axis=1)
    total = np.exp(logits - largest[:, None]).sum(axis=1)
    losses: Doubles = np.log(total) + largest - logits[np.arange(len(labels)), labels]
    return losses
