"""Classes and probabilities of any rows, computed by the programs that score clients' test rows."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustpsi.engine import runtime
from clustpsi.engine.network import Network
from clustpsi.engine.programs import general_scoring, scoring_for
from clustpsi.engine.scoring import row_probabilities
from clustpsi.engine.training import NEVER
from clustpsi.limits import cpu_count
from clustpsi.orders import Deployment, Model

Batch = tuple[Model, NDArray[np.int64], int]


class Predictor:
    """Uses models on rows.

    Parameters
    ----------
    network
        The network of the models.
    num_classes
        C, the number of classes.
    """

    def __init__(self, network: Network, num_classes: int) -> None:
        runtime.use_compilation_cache()
        self.network, self.num_classes = network, num_classes

    def classes(
        self, features: NDArray[Any], deployment: Deployment, client_of_row: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """The class of every row under the model that its client uses; clients are positions in the deployment."""
        scoring = scoring_for(self.network)
        labels = np.zeros(len(features), np.int32)  # the programs also compute losses, which are not needed here
        predicted = np.empty(len(features), np.int32)

        def score(batch: Batch) -> None:
            model, rows, size = batch
            reading = self._reading(deployment, client_of_row[rows], size if scoring.one_size else len(rows))
            if scoring.one_size:
                table = _filled_up(features, rows, size)
                found, _ = scoring.score(
                    table, labels[:1].repeat(size), *model, np.arange(size, dtype=np.int32), *reading
                )
            else:
                found, _ = scoring.score(features, labels, *model, rows.astype(np.int32), *reading)
            predicted[rows] = np.asarray(found)[: len(rows)]

        self._each(score, _batches(deployment, client_of_row, scoring.size_for))
        return predicted

    def probabilities(
        self, features: NDArray[Any], deployment: Deployment, client_of_row: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """The probability of each class for every row, (rows, C), under the model that the row's client uses."""
        program = row_probabilities(self.network)
        found = np.empty((len(features), self.num_classes), np.float32)

        def score(batch: Batch) -> None:
            model, rows, size = batch
            reading = self._reading(deployment, client_of_row[rows], size)
            found[rows] = np.asarray(program(_filled_up(features, rows, size), *model, *reading))[: len(rows)]

        self._each(score, _batches(deployment, client_of_row, general_scoring(self.network).size_for))
        return found

    def _reading(
        self, deployment: Deployment, clients: NDArray[np.int64], size: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The factors of the rows' logits, and what is added to them after that, padded to a size."""
        scale, priors = np.ones(size, np.float32), np.zeros((size, self.num_classes), np.float32)
        if deployment.scale is not None:
            scale[: len(clients)] = deployment.scale[clients]
        if deployment.log_prior is not None:
            priors[: len(clients)] = np.maximum(deployment.log_prior[clients], NEVER)
        return scale, priors

    def _each(self, score: Callable[[Batch], None], batches: Iterator[Batch]) -> None:
        with ThreadPoolExecutor(cpu_count()) as pool:
            for _ in pool.map(score, batches):
                pass


def _batches(
    deployment: Deployment, client_of_row: NDArray[np.int64], size_for: Callable[[int], int]
) -> Iterator[Batch]:
    """The rows of every model in batches."""
    of_row = deployment.of_client[client_of_row]
    by_model = np.argsort(of_row, kind="stable")
    ends = np.cumsum(np.bincount(of_row, minlength=len(deployment.models)))
    for model, end, number in zip(deployment.models, ends, np.diff(ends, prepend=0), strict=True):
        size = size_for(int(number)) if number else 1
        for at in range(end - number, end, size):
            yield model, by_model[at : min(at + size, end)], size


def _filled_up(features: NDArray[Any], rows: NDArray[np.int64], size: int) -> NDArray[Any]:
    table = np.zeros((size, *features.shape[1:]), features.dtype)
    table[: len(rows)] = features[rows]
    return table
