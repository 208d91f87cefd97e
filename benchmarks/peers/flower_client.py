"""Flower's side of a client; Ray's workers import it by its name."""

from functools import lru_cache

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import torch_reference
from peers.protocol import BATCH, EPOCHS, Task
from peers.torch_models import adam, build, tensors


@lru_cache
def loaded(path: str) -> tuple:
    """What a worker process keeps from one client to the next."""
    task = Task.load(path)
    return task, *tensors(task), build(task)


def client_app(path: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        task, features, labels, model = loaded(path)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        own = task.train[int(context.node_config["partition-id"])]
        rng = np.random.default_rng()
        order = np.concatenate([rng.permutation(own) for _ in range(EPOCHS)])
        torch_reference.train(model, features, labels, torch.from_numpy(order), len(own), BATCH, adam)
        metrics = MetricRecord({"num-examples": len(own)})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    return app
