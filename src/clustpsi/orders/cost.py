"""What an order sends over the network: a function of the order alone, whoever serves it."""

from typing import NamedTuple

from clustpsi.orders.models import Model
from clustpsi.orders.orders import LabelCounts, LabelPresence, Losses, NearestModel, Order, Together, Train


class Traffic(NamedTuple):
    """Bytes that clients send, and bytes that are sent to clients."""

    up: int
    down: int


def traffic(order: Order, num_classes: int) -> Traffic:
    """The bytes of an order if every client answers.

    Models count in full, float32; counts and losses are 32-bit numbers; labels are one bit per class, in whole bytes.
    Evaluation serves whoever watches a run, not the method, and costs nothing here.

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
        case NearestModel(clients, models):
            return Traffic(4 * len(models) * len(clients), sum(model.num_bytes for model in models) * len(clients))
        case Train(clients):
            return _training(order, len(clients))
    return Traffic(0, 0)


def _training(order: Train, clients: int) -> Traffic:
    size = (order.start if isinstance(order.start, Model) else order.start[0]).num_bytes if clients else 0
    sent = 0 if order.holds_start else size
    if order.mixed_of:
        sent += sum(model.num_bytes for model in order.mixed_of)
    elif order.anchors is not None:
        sent += size
    return Traffic(0 if order.keeps_model else size * clients, sent * clients)
