"""FedLab's serial simulation: clients one after the other in one process, its documented way on one machine."""

import sys

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

# FedLab imports torchvision, whose wheels expect PyTorch's CUDA build; these two operators are all that is missing.
for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: E402

from peers.protocol import BATCH, EPOCHS, LEARNING_RATE, PER_ROUND, Gate, Task, chosen  # noqa: E402
from peers.torch_models import accuracy, adam, build, tensors  # noqa: E402

MANY = 10**6


class Rows:
    """FedLab's interface of a data set."""

    def __init__(self, task: Task) -> None:
        self._train, (self._features, self._labels) = task.train, tensors(task)

    def get_dataloader(self, client: int, batch_size: int) -> DataLoader:
        rows = torch.from_numpy(self._train[client])
        return DataLoader(TensorDataset(self._features[rows], self._labels[rows]), batch_size, shuffle=True)


class Trainer(SGDSerialClientTrainer):
    """Its own training, with a fresh Adam for every client in place of one SGD for all."""

    def train(self, model_parameters, train_loader):  # type: ignore[no-untyped-def]
        self.optimizer = adam(self._model.parameters())
        return super().train(model_parameters, train_loader)


def contiguous(task: Task) -> torch.nn.Module:
    """The model as FedLab can send it: it flattens parameters, which channels last does not allow."""
    return build(task).to(memory_format=torch.contiguous_format)


def main(path: str) -> None:
    gate, task = Gate(), Task.load(path)
    handler = SyncServerHandler(contiguous(task), MANY, PER_ROUND / task.num_clients)
    handler.num_clients = task.num_clients
    trainer = Trainer(contiguous(task), task.num_clients)
    trainer.setup_dataset(Rows(task))
    trainer.setup_optim(EPOCHS, BATCH, LEARNING_RATE)
    rng = np.random.default_rng(0)
    while gate.wait():
        trainer.local_process(handler.downlink_package, [int(client) for client in chosen(rng, task)])
        for package in trainer.uplink_package:
            handler.load(package)
        gate.trained(accuracy(handler.model, task))


if __name__ == "__main__":
    main(sys.argv[1])
