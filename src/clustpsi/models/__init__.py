"""The models, by name; each is a Flax module called as ``module(x, train=..., mask=...)`` and giving logits.

``mask`` marks the real rows of a batch.  A client's last batch is padded with rows that must not count.  This matters
to layers that look across a batch (BatchNorm).
"""

from collections.abc import Callable

from flax import linen as nn

from clustpsi.datasets.word_vectors import WordVectors
from clustpsi.errors import ClustPSIError, unknown_name
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


def build_model(name: str, num_classes: int, vectors: WordVectors | None = None) -> nn.Module:
    """The named model with one output per class; a text model may use word vectors instead of its own embeddings."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    model = MODELS[name](num_classes)
    if vectors is None:
        return model
    if not hasattr(model, "vectors"):
        raise ClustPSIError(f"--word-vectors are for models of text (embedding_mlp, lstm), not for {name}")
    return model.clone(vectors=vectors)
