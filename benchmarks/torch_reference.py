"""The paper's models in plain PyTorch, and the usual training loop: what the benchmarks compare with."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import nn

VOCABULARY, EMBEDDING = 10_002, 50


class Images(nn.Module):
    """Bytes to [0, 1], channels first, as PyTorch's convolutions take them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.float() / 255
        return x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2)


class LSTM(nn.Module):
    """PyTorch's own LSTM, which has no recurrent dropout and so less to do; the last real state is classified."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, 10, batch_first=True)
        self.classifier = nn.Linear(10, num_classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = nn.functional.dropout(self.embedding(tokens), 0.5, self.training)
        x = x * nn.functional.dropout(torch.ones(len(x), 1, EMBEDDING), 0.2, self.training)
        states, _ = self.lstm(x)
        last = (tokens != 0).sum(1).clamp(min=1) - 1
        return self.classifier(states[torch.arange(len(x)), last])


def logistic(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Linear(shape[0], num_classes)


def mlp(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    widths = (shape[0], 500, 500, 500)
    hidden = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(500, num_classes))


def fmnist_cnn(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    maps = (1, 8, 16, 32)
    stages = [m for a, b in pairwise(maps) for m in (nn.Conv2d(a, b, 3, padding="same"), nn.ReLU(), nn.MaxPool2d(2))]
    flat = 32 * (shape[0] // 8) * (shape[1] // 8)
    return nn.Sequential(
        Images(), *stages, nn.Flatten(), nn.Linear(flat, 2048), nn.ReLU(), nn.Linear(2048, num_classes)
    )


def cifar_cnn(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    layers: list[nn.Module] = [Images()]
    channels = shape[2]
    for filters, rate in ((32, 0.2), (64, 0.3), (128, 0.4)):
        for _ in range(2):
            layers += [nn.Conv2d(channels, filters, 3, padding="same"), nn.ReLU(), nn.BatchNorm2d(filters)]
            channels = filters
        layers += [nn.MaxPool2d(2), nn.Dropout(rate)]
    flat = 128 * (shape[0] // 8) * (shape[1] // 8)
    head = [nn.Flatten(), nn.Linear(flat, 128), nn.ReLU(), nn.BatchNorm1d(128), nn.Dropout(0.5)]
    return nn.Sequential(*layers, *head, nn.Linear(128, num_classes))


def lstm(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return LSTM(num_classes)


def embedding_mlp(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    flat = shape[0] * EMBEDDING
    return nn.Sequential(
        nn.Embedding(VOCABULARY, EMBEDDING), nn.Flatten(), nn.Linear(flat, 8), nn.ReLU(), nn.Linear(8, num_classes)
    )


MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "logistic": logistic,
    "mlp": mlp,
    "fmnist_cnn": fmnist_cnn,
    "cifar_cnn": cifar_cnn,
    "lstm": lstm,
    "embedding_mlp": embedding_mlp,
}


def batches(order: torch.Tensor, size: int, batch_size: int) -> Iterator[torch.Tensor]:
    """The batches of all epochs, each epoch's last one kept even if short."""
    for epoch in order.split(size):
        yield from epoch.split(batch_size)


def train(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    order: torch.Tensor,
    size: int,
    batch_size: int = 32,
    adam: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
) -> int:
    """Train with a fresh Adam on the rows of an order; give the number of steps."""
    optimizer = adam(model.parameters(), lr=1e-3)
    model.train()
    steps = 0
    for rows in batches(order, size, batch_size):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        steps += 1
    return steps
