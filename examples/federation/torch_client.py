"""A client of a clustpsi federation in PyTorch: one site's table of numbers, a small network.

The site's file is named in its node configuration: ``--node-config 'name="a" data="site-1.csv" label="species"'``.
"""

from functools import cache

import numpy as np
import pandas as pd

from clustpsi.flower import client_app

FEATURES = ["length", "width", "depth"]
SCALE = 5.0  # known beforehand: nothing is learned from rows


@cache
def rows(path, label):
    """Training and test rows of the site: every fifth row is for testing."""
    table = pd.read_csv(path)
    is_test = np.arange(len(table)) % 5 == 0
    return table[~is_test], table[is_test]


def own_rows(task):
    return rows(task.config["data"], task.config["label"])


def features_and_classes(table, task):
    import torch  # here, because Flower starts a process for each message, and not all messages train

    number = {name: place for place, name in enumerate(task.classes)}
    classes = [number[name] for name in table[task.config["label"]].astype(str)]
    return torch.tensor(table[FEATURES].to_numpy(np.float32) / SCALE), torch.tensor(classes)


def network(seed=0):
    import torch

    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(len(FEATURES), 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def loaded(arrays):
    import torch

    model = network()
    model.load_state_dict({key: torch.tensor(each) for key, each in zip(model.state_dict(), arrays, strict=True)})
    return model


def arrays_of(model):
    return [each.numpy() for each in model.state_dict().values()]


def initial(seed):
    return arrays_of(network(seed))


def label_counts(task):
    train, test = (part[task.config["label"]].astype(str).value_counts().to_dict() for part in own_rows(task))
    return train, test


def train(arrays, task):
    import torch

    x, y = features_and_classes(own_rows(task)[0], task)
    model, rng = loaded(arrays), task.rng
    optimizer = torch.optim.Adam(model.parameters(), lr=task.lr)
    for _ in range(task.epochs):
        for batch in np.array_split(rng.permutation(len(y)), max(1, len(y) // task.batch_size)):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return arrays_of(model), len(y)


def evaluate(arrays, task):
    import torch

    x, y = features_and_classes(own_rows(task)[1], task)
    with torch.no_grad():
        logits = loaded(arrays)(x)
        loss = torch.nn.functional.cross_entropy(logits, y)
    return y.numpy(), logits.argmax(dim=1).numpy(), float(loss)


app = client_app(label_counts=label_counts, train=train, evaluate=evaluate, initial=initial, model="torch-16")
