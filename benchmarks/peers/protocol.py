"""A peer's side of the benchmark: its data, when to train, and what to tell.

A peer is a process.  It gets ready, then it trains one round each time it reads a line, says so, and says how accurate
its averaged model is.  What frameworks print goes to the error stream.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

PER_ROUND, EPOCHS, BATCH, LEARNING_RATE = 50, 5, 32, 1e-3


@dataclass(frozen=True)
class Task:
    """The data of a case; ``train`` has a line of row numbers for each client."""

    model: str
    num_classes: int
    features: NDArray[Any]
    labels: NDArray[np.int64]
    train: NDArray[np.int64]
    test: NDArray[np.int64]

    @classmethod
    def load(cls, path: str | Path) -> Self:
        with np.load(path) as arrays:
            scalars = {"model": str(arrays["model"]), "num_classes": int(arrays["num_classes"])}
            return cls(**scalars, **{key: arrays[key] for key in ("features", "labels", "train", "test")})

    @property
    def num_clients(self) -> int:
        return len(self.train)


class Gate:
    """Where a peer waits to be told to train."""

    def __init__(self) -> None:
        self._channel = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._said = False

    def wait(self) -> bool:
        """Whether to train another round."""
        if not self._said:
            self._tell(ready=True)
            self._said = True
        return sys.stdin.readline().strip() == "round"

    def trained(self, accuracy: Callable[[], float]) -> None:
        """A round has ended; testing comes after the clock has stopped."""
        self._tell(trained=True)
        self._tell(accuracy=accuracy())

    def _tell(self, **what: Any) -> None:
        print(json.dumps(what), file=self._channel, flush=True)


def chosen(rng: np.random.Generator, task: Task) -> NDArray[np.int64]:
    """The clients of a round."""
    return np.sort(rng.choice(task.num_clients, PER_ROUND, replace=False))
