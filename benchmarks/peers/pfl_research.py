"""pfl-research: its simulated backend with federated averaging, in one process."""

import sys
from collections.abc import Iterator

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from peers.protocol import BATCH, EPOCHS, LEARNING_RATE, PER_ROUND, Gate, Task, chosen
from peers.torch_models import accuracy, adam, build, tensors

MANY = 10**6


class Rounds(TrainingProcessCallback):
    """Stops before every round until it is told to go on."""

    def __init__(self, gate: Gate, task: Task) -> None:
        self._gate, self._task = gate, task

    def on_train_begin(self, *, model):  # type: ignore[no-untyped-def]
        if not self._gate.wait():
            raise SystemExit
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # type: ignore[no-untyped-def]
        self._gate.trained(accuracy(model.pytorch_model, self._task))
        return not self._gate.wait(), Metrics()


def users(task: Task) -> Iterator[int]:
    rng = np.random.default_rng(0)
    while True:
        yield from map(int, chosen(rng, task))


def main(path: str) -> None:
    gate, task = Gate(), Task.load(path)
    features, labels = tensors(task)
    datasets = [
        PyTorchTensorDataset((features[rows], labels[rows]), user_id=str(client))
        for client, rows in enumerate(map(torch.from_numpy, task.train))
    ]
    module = build(task)

    def loss(x, y):  # type: ignore[no-untyped-def]
        module.train()
        return torch.nn.functional.cross_entropy(module(x), y)

    module.loss, module.metrics = loss, lambda x, y: {}
    model = PyTorchModel(
        module,
        local_optimizer_create=lambda parameters, lr: adam(parameters),
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    sampler = users(task)
    training = FederatedDataset(lambda client: datasets[client], lambda: next(sampler))
    FederatedAveraging().run(
        NNAlgorithmParams(MANY, evaluation_frequency=MANY, train_cohort_size=PER_ROUND, val_cohort_size=0),
        SimulatedBackend(training, training),
        model,
        NNTrainHyperParams(local_num_epochs=EPOCHS, local_learning_rate=LEARNING_RATE, local_batch_size=BATCH),
        NNEvalHyperParams(local_batch_size=BATCH),
        [Rounds(gate, task)],
    )


if __name__ == "__main__":
    main(sys.argv[1])
