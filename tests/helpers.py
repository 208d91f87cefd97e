"""Federations small enough for tests, and the command line."""

import signal

import numpy as np
import pytest

from clustpsi.cli import main
from clustpsi.cli.stopping import SIGNALS
from clustpsi.datasets.base import Dataset
from clustpsi.features import as_they_are
from clustpsi.federation import Federation


def clustpsi(*arguments: str) -> int:
    """Run the command line; its exit code."""
    handlers = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
    finally:  # a process that was stopped is about to end and leaves its handlers behind; this one goes on
        for each, handler in handlers.items():
            signal.signal(each, handler)
    return int(stopped.value.code or 0)


def make_federation(
    sizes: list[int], *, features: int = 6, classes: int = 3, seed: int = 0, test: int = 10
) -> Federation:
    """Clients of the given sizes with separable classes and different label mixes."""
    rng = np.random.default_rng(seed)
    total = sum(sizes) + test * len(sizes)
    centres = rng.normal(size=(classes, features)) * 2
    labels, train, held_out, at = np.empty(total, np.int32), [], [], 0
    for size in sizes:
        mix = rng.dirichlet(np.full(classes, 0.5))
        rows = np.arange(at, at + size + test)
        labels[rows] = rng.choice(classes, size=len(rows), p=mix)
        train.append(rows[:size])
        held_out.append(rows[size:])
        at += len(rows)
    labels[:classes] = np.arange(classes)
    x = (centres[labels] + rng.normal(size=(total, features))).astype(np.float32)

    dataset = Dataset("made", labels, tuple("abcdefghij"[:classes]), *as_they_are(x), model="logistic")
    return Federation(dataset, tuple(train), tuple(held_out), tuple(map(str, range(len(sizes)))))


def clients_of(dataset: Dataset) -> list[str]:
    """The name of every row's natural client."""
    assert dataset.client_ids is not None
    return [dataset.client_ids.names[code] for code in dataset.client_ids.codes]
