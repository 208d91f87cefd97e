"""What an order sends over the network: a function of the order alone, the same for every server.

It counts what the method needs to be sent.  A server of real nodes may have more sent, to score models or to keep them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from clustpsi.orders.models import Model
from clustpsi.orders.orders import (
    HeldOutLosses,
    LabelCounts,
    LabelPresence,
    Losses,
    NearestModel,
    Order,
    Together,
    Train,
)


class Traffic(NamedTuple):
    """Bytes sent by clients (up) and to clients (down)."""

    up: int
    down: int


def traffic(order: Order, num_classes: int) -> Traffic:
    """The bytes of an order if every client answers.

    A model counts with all its float32 values.  Counts and losses are 32-bit numbers.  Labels are one bit per class, in
    whole bytes.  Evaluation serves the people who watch a run and not the method, so it costs nothing here.

    >>> import numpy as np
    >>> traffic(LabelCounts(np.arange(5)), num_classes=3)
    Traffic(up=60, down=0)
    """
    match order:
        case Together(orders):
            parts = [traffic(each, num_classes) for each in orders]
            return Traffic(sum(each.up for each in parts), sum(each.down for each in parts))
        case LabelCounts(clients):
            return Traffic(4 * num_classes * len(clients), 0)
        case LabelPresence(clients):
            return Traffic(-(-num_classes // 8) * len(clients), 0)
        case Losses(clients, model):
            return Traffic(4 * len(clients), model.num_bytes * len(clients))
        case HeldOutLosses(clients, model):
            number, readings = len(clients), len(order.scales)
            size = 0 if order.holds_model or not number else _one(model).num_bytes
            # Each client gets its own prior, and all get the readings.
            return Traffic(4 * readings * number, (size + 4 * (num_classes + readings * (1 + num_classes))) * number)
        case NearestModel(clients, models):
            return Traffic(4 * len(models) * len(clients), sum(model.num_bytes for model in models) * len(clients))
        case Train(clients):
            return _training(order, len(clients))
    return Traffic(0, 0)


def _training(order: Train, clients: int) -> Traffic:
    size = _one(order.start).num_bytes if clients else 0
    sent = 0 if order.holds_start else size
    if order.mixed_of:
        sent += sum(model.num_bytes for model in order.mixed_of)
    elif order.anchors is not None:
        sent += size
    return Traffic(0 if order.keeps_model else size * clients, sent * clients)


def _one(models: Model | Sequence[Model]) -> Model:
    """Any one of several models of the same size."""
    return models if isinstance(models, Model) else models[0]
