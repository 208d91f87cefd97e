"""A plain PyTorch loop: what one writes without any framework."""

import sys

import numpy as np
import torch

import torch_reference
from peers.protocol import BATCH, EPOCHS, Gate, Task, chosen
from peers.torch_models import accuracy, adam, build, tensors


def main(path: str) -> None:
    gate, task = Gate(), Task.load(path)
    features, labels = tensors(task)
    server, local = build(task), build(task)
    rng = np.random.default_rng(0)
    while gate.wait():
        total = {key: torch.zeros_like(value, dtype=torch.float64) for key, value in server.state_dict().items()}
        clients = chosen(rng, task)
        for client in clients:
            local.load_state_dict(server.state_dict())
            order = np.concatenate([rng.permutation(task.train[client]) for _ in range(EPOCHS)])
            rows = torch.from_numpy(order)
            torch_reference.train(local, features, labels, rows, task.train.shape[1], BATCH, adam)
            for key, value in local.state_dict().items():
                total[key] += value / len(clients)
        server.load_state_dict(total)
        gate.trained(accuracy(server, task))


if __name__ == "__main__":
    main(sys.argv[1])
