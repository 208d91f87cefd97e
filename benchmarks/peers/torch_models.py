"""What all peers that train with PyTorch share: the model, the rows as tensors, the test."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

import torch_reference
from peers.protocol import LEARNING_RATE, Task

torch.set_num_threads(1)  # clients are small: more threads are slower, and processes use the other cores

# Standard deviation of a normal distribution that is cut at two of its standard deviations.
CUT_AT_TWO = 0.8796
# On a CPU the fused form is the fastest of the three that PyTorch documents.
adam = partial(torch.optim.Adam, lr=LEARNING_RATE, fused=True)


def build(task: Task) -> nn.Module:
    """The model, with its weights laid out as PyTorch's guide advises for convolutions on a CPU."""
    torch.manual_seed(0)
    model = torch_reference.MODELS[task.model](task.features.shape[1:], task.num_classes)
    model.apply(_initialize)
    return model.to(memory_format=torch.channels_last)


def _initialize(module: nn.Module) -> None:
    """Draw the weights from clustpsi's distributions: from PyTorch's own, a few rounds lead to another accuracy."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        _lecun_normal(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    elif isinstance(module, nn.LSTM):
        _lecun_normal(module.weight_ih_l0)
        nn.init.orthogonal_(module.weight_hh_l0)
        for bias in (module.bias_ih_l0, module.bias_hh_l0):
            nn.init.zeros_(bias)
        with torch.no_grad():
            module.bias_ih_l0[module.hidden_size : 2 * module.hidden_size] = 1  # the forget gate's


def _lecun_normal(weight: torch.Tensor) -> None:
    deviation = weight[0].numel() ** -0.5 / CUT_AT_TWO
    nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)


def tensors(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(task.features), torch.from_numpy(task.labels)


def accuracy(model: nn.Module, task: Task) -> Callable[[], float]:
    """The share of test rows that the model is right about."""

    def test() -> float:
        features, labels = tensors(task)
        model.eval()
        with torch.no_grad():
            right = [
                (model(features[rows]).argmax(1) == labels[rows]).sum()
                for rows in torch.from_numpy(task.test).split(500)
            ]
        return float(sum(right)) / len(task.test)

    return test
