"""A client of a clustpsi federation in scikit-learn: one site's table of numbers, a linear model.

The site's file is named in its node configuration: ``--node-config 'name="a" data="site-1.csv" label="species"'``.
"""

from functools import cache

import numpy as np
import pandas as pd

from clustpsi.flower import client_app

FEATURES = ["length", "width", "depth"]
SCALE = 5.0  # known beforehand: nothing is learned from rows
CLASSES = 3


@cache
def rows(path):
    """Training and test rows of the site: every fifth row is for testing."""
    table = pd.read_csv(path)
    is_test = np.arange(len(table)) % 5 == 0
    return table[~is_test], table[is_test]


def own_rows(task):
    return rows(task.config["data"])


def features_and_classes(table, task):
    number = {name: place for place, name in enumerate(task.classes)}
    classes = table[task.config["label"]].astype(str).map(number)
    return table[FEATURES].to_numpy() / SCALE, classes.to_numpy()


def model_of(arrays, task=None):
    from sklearn.linear_model import SGDClassifier  # here: not every message needs it

    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1, alpha=1e-4)
    model.random_state = 0 if task is None else int(task.rng.integers(2**31))
    model.coef_, model.intercept_ = (np.array(each) for each in arrays)
    model.classes_ = np.arange(CLASSES)
    return model


def initial(seed):
    return [np.zeros((CLASSES, len(FEATURES))), np.zeros(CLASSES)]


def label_counts(task):
    train, test = (part[task.config["label"]].astype(str).value_counts().to_dict() for part in own_rows(task))
    return train, test


def train(arrays, task):
    x, y = features_and_classes(own_rows(task)[0], task)
    model = model_of(arrays, task)
    for _ in range(task.epochs):
        model.partial_fit(x, y, classes=np.arange(CLASSES))
    return [model.coef_, model.intercept_], len(y)


def probabilities(arrays, x):
    logits = x @ np.asarray(arrays[0]).T + np.asarray(arrays[1])
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def losses(arrays, task):
    """The loss of every training row, for methods that choose clients or models by it."""
    x, y = features_and_classes(own_rows(task)[0], task)
    return -np.log(probabilities(arrays, x)[np.arange(len(y)), y] + 1e-12)


def evaluate(arrays, task):
    x, y = features_and_classes(own_rows(task)[1], task)
    found = probabilities(arrays, x)
    return y, found.argmax(axis=1), float(-np.log(found[np.arange(len(y)), y] + 1e-12).mean())


app = client_app(
    label_counts=label_counts, train=train, evaluate=evaluate, initial=initial, losses=losses, model="sklearn-linear"
)
