"""What trains and scores a model: programs for any network or, for a small softmax regression, loops written out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from clustpsi.engine import softmax_regression
from clustpsi.engine.network import Network
from clustpsi.engine.scoring import row_scores
from clustpsi.engine.training import Result, local_training, make_optimizer

# Up to this many parameters a step is so short that it pays to run clients side by side (docs/benchmarks.md).
SMALL_MODEL = 4096
# More lanes save little more and wait for the largest client longer; an accelerator wants many, whatever the model.
LANES = 4
ACCELERATOR_LANES = 32


@dataclass(frozen=True)
class Programs:
    """Training and scoring, and in what portions they take clients and rows.

    Attributes
    ----------
    training
        Of a network: a function of features, labels and a :class:`~clustpsi.engine.training.Job`, made for given
        ``proximal``, ``keep_optimizer`` and ``lanes``.
    score
        A function of features, labels, parameters, buffers, rows and a log-prior for each row; it gives the class that
        the model takes each row for, and the row's loss.
    lanes
        Clients that are trained side by side.
    most_rows
        Rows that are scored at once.
    one_size
        Whether ``score`` is compiled for one number of rows, to which fewer must be filled up.
    """

    training: Callable[..., Callable[..., Result]]
    score: Callable[..., tuple[Any, Any]]
    lanes: int
    most_rows: int
    one_size: bool


def general(network: Network, optimizer: str, lr: float, batch_size: int, lanes: int | None = None) -> Programs:
    """Programs that XLA compiles, for any network."""
    rule = make_optimizer(optimizer, lr)

    def training(network: Network, *, proximal: bool, keep_optimizer: bool, lanes: int) -> Callable[..., Result]:
        return local_training(network, rule, batch_size, proximal=proximal, keep_optimizer=keep_optimizer, lanes=lanes)

    if lanes is None:
        lanes = LANES if network.num_parameters <= SMALL_MODEL else 1
        lanes = lanes if jax.default_backend() == "cpu" else ACCELERATOR_LANES
    return Programs(training, row_scores(network), lanes, most_rows=2048, one_size=True)


def written_out(optimizer: str, lr: float, batch_size: int) -> Programs:
    """Loops that Numba compiles, for a softmax regression."""

    def training(network: Network, *, proximal: bool, keep_optimizer: bool, lanes: int) -> Callable[..., Result]:
        return softmax_regression.local_training(optimizer, lr, batch_size)

    return Programs(training, softmax_regression.row_scores, lanes=1, most_rows=2**14, one_size=False)


def programs_for(network: Network, optimizer: str, lr: float, batch_size: int, lanes: int | None) -> Programs:
    """The fastest; the general ones if a number of lanes is asked for."""
    if lanes is None and softmax_regression.applies(network):
        return written_out(optimizer, lr, batch_size)
    return general(network, optimizer, lr, batch_size, lanes)
