"""What methods and servers share: models, orders and their replies, what an order costs, and what a server is."""

from clustpsi.orders.cost import Traffic, traffic
from clustpsi.orders.ledger import Ledger
from clustpsi.orders.models import Deployment, Model, WeightedMean, mean_model
from clustpsi.orders.orders import (
    RULED_OUT_LOSS,
    Evaluate,
    Evaluated,
    LabelCounts,
    LabelPresence,
    Losses,
    NearestModel,
    Order,
    Pooled,
    Together,
    Train,
    Trained,
    TrainPooled,
)
from clustpsi.orders.server import Clients, Server
from clustpsi.orders.work import Work, drive, together

__all__ = [
    "RULED_OUT_LOSS",
    "Clients",
    "Deployment",
    "Evaluate",
    "Evaluated",
    "LabelCounts",
    "LabelPresence",
    "Ledger",
    "Losses",
    "Model",
    "NearestModel",
    "Order",
    "Pooled",
    "Server",
    "Together",
    "Traffic",
    "Train",
    "TrainPooled",
    "Trained",
    "WeightedMean",
    "Work",
    "drive",
    "mean_model",
    "together",
    "traffic",
]
