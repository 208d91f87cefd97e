"""What methods and servers share: models, orders and their replies, the cost of an order, and the server protocol."""

from clustpsi.orders.answers import Answers, Unusable
from clustpsi.orders.cost import Traffic, traffic
from clustpsi.orders.ledger import Ledger
from clustpsi.orders.models import Deployment, Model, MoversMean, WeightedMean, joined, mean_model
from clustpsi.orders.newcomers import Newcomers, in_clusters, log_shares, near_users
from clustpsi.orders.orders import (
    RULED_OUT_LOSS,
    Evaluate,
    Evaluated,
    HeldOutLosses,
    HoldOut,
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
from clustpsi.orders.parts import part
from clustpsi.orders.server import Clients, Server
from clustpsi.orders.work import Work, drive, together

__all__ = [
    "RULED_OUT_LOSS",
    "Answers",
    "Clients",
    "Deployment",
    "Evaluate",
    "Evaluated",
    "HeldOutLosses",
    "HoldOut",
    "LabelCounts",
    "LabelPresence",
    "Ledger",
    "Losses",
    "Model",
    "MoversMean",
    "NearestModel",
    "Newcomers",
    "Order",
    "Pooled",
    "Server",
    "Together",
    "Traffic",
    "Train",
    "TrainPooled",
    "Trained",
    "Unusable",
    "WeightedMean",
    "Work",
    "drive",
    "in_clusters",
    "joined",
    "log_shares",
    "mean_model",
    "near_users",
    "part",
    "together",
    "traffic",
]
