"""The models, by name; each is a Flax module called as ``module(x, train=..., mask=...)`` and giving logits.

``mask`` marks the real rows of a batch: a client's last batch is filled up with rows that must not count, which matters
to whatever looks across a batch (BatchNorm).
"""

from collections.abc import Callable

from flax import linen as nn

from clustpsi.errors import unknown_name
from clustpsi.models.dense import MLP, Logistic
from clustpsi.models.images import CIFARCNN, FMNISTCNN
from clustpsi.models.text import LSTM, EmbeddingMLP

MODELS: dict[str, Callable[[int], nn.Module]] = {
    "logistic": Logistic,
    "mlp": MLP,
    "fmnist_cnn": FMNISTCNN,
    "cifar_cnn": CIFARCNN,
    "lstm": LSTM,
    "embedding_mlp": EmbeddingMLP,
}


def build_model(name: str, num_classes: int) -> nn.Module:
    """The named model with one output a class."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[name](num_classes)
