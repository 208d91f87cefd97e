"""clustpsi: its simulator, as `clustpsi run` uses it."""

import sys

import numpy as np

from clustpsi.datasets.base import Dataset
from clustpsi.engine import Simulator, network_for
from clustpsi.features import as_they_are
from clustpsi.federation import Federation
from clustpsi.models import build_model
from clustpsi.orders import Deployment, Evaluate, Train
from peers.protocol import BATCH, EPOCHS, LEARNING_RATE, Gate, Task, chosen


def main(path: str) -> None:
    gate, task = Gate(), Task.load(path)
    classes, names = tuple(map(str, range(task.num_classes))), tuple(map(str, range(task.num_clients)))
    dataset = Dataset("case", task.labels.astype(np.int32), classes, *as_they_are(task.features), model=task.model)
    # The test rows are dealt out, because a federation's test rows belong to clients.
    federation = Federation(dataset, tuple(task.train), tuple(np.array_split(task.test, task.num_clients)), names)
    network = network_for(build_model(task.model, task.num_classes), task.features.shape[1:], task.features.dtype)
    simulator = Simulator(federation, network, lr=LEARNING_RATE, batch_size=BATCH, local_epochs=EPOCHS)
    everybody, rng = np.arange(task.num_clients), np.random.default_rng(0)
    model, t = simulator.initial(0), 0
    while gate.wait():
        t += 1
        model = simulator.serve(Train(chosen(rng, task), model), t).mean
        deployment = Deployment((model,), np.zeros(task.num_clients, np.int64))
        gate.trained(
            lambda d=deployment: float(simulator.serve(Evaluate(everybody, d), 0).correct.sum() / len(task.test))
        )
    simulator.close()


if __name__ == "__main__":
    main(sys.argv[1])
