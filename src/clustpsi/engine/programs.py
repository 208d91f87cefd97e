"""Programs that train and score a model: general ones for any network, plain loops for small softmax regressions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from clustpsi.engine import softmax_regression
from clustpsi.engine.network import Network
from clustpsi.engine.scoring import row_logits, row_scores
from clustpsi.engine.sizes import power_of_two
from clustpsi.engine.training import Result, local_training, make_optimizer

# Up to this many parameters a step is so short that it pays to run clients side by side (docs/benchmarks.md).
SMALL_MODEL = 4096
# More lanes save little and wait longer for the largest client.  An accelerator needs many lanes for every model.
LANES = 4
ACCELERATOR_LANES = 32
# Fewest rows that are scored at once, including padding.
LEAST_ROWS = 64


@dataclass(frozen=True)
class Scoring:
    """How rows are scored.

    Attributes
    ----------
    score
        A function of features, labels, parameters, buffers, rows, and one scale and one log-prior per row; it gives
        the predicted class and the loss of each row.
    logits
        A function of features, parameters, buffers and rows; it gives the rows' logits.
    most_rows
        Most rows that are scored at once.
    one_size
        Whether ``score`` and ``logits`` are compiled for one number of rows, to which fewer rows must be padded.
    place
        Puts a model's vector where they take it from: once for all batches.
    """

    score: Callable[..., tuple[Any, Any]]
    logits: Callable[..., Any]
    most_rows: int
    one_size: bool
    place: Callable[[Any], Any]

    def size_for(self, rows: int) -> int:
        """How many rows are scored at once for a model with this many rows."""
        # If they are few, the next power of two: few sizes mean few programs.
        return min(self.most_rows, max(LEAST_ROWS, power_of_two(rows)))


@dataclass(frozen=True)
class Programs:
    """Training and scoring, and how many clients and rows they handle at a time.

    Attributes
    ----------
    training
        Makes the training program of a network: a function of features, labels and a
        :class:`~clustpsi.engine.training.Job`, for given ``proximal``, ``keep_optimizer``, ``lanes``, ``scaled`` and
        ``partial``.
    lanes
        Clients that are trained side by side.
    scoring
        How rows are scored.
    side_by_side
        Copies rows as training takes them, from features, labels and the rows' numbers; None if it takes all rows as
        they are.  They come in another order in each epoch, and steps that are short would wait for memory if the rows
        were far apart.
    """

    training: Callable[..., Callable[..., Result]]
    lanes: int
    scoring: Scoring
    side_by_side: Callable[..., tuple[Any, Any]] | None = None


def general(network: Network, optimizer: str, lr: float, batch_size: int, lanes: int | None = None) -> Programs:
    """Programs that XLA compiles, for any network."""
    rule = make_optimizer(optimizer, lr)

    def training(network: Network, **kind: Any) -> Callable[..., Result]:
        return local_training(network, rule, batch_size, **kind)

    if lanes is None:
        lanes = LANES if network.num_parameters <= SMALL_MODEL else 1
        lanes = lanes if jax.default_backend() == "cpu" else ACCELERATOR_LANES
    return Programs(training, lanes, general_scoring(network))


def written_out(network: Network, optimizer: str, lr: float, batch_size: int) -> Programs:
    """Loops that Numba compiles, for a softmax regression."""

    def training(network: Network, **kind: Any) -> Callable[..., Result]:
        return softmax_regression.local_training(optimizer, lr, batch_size)

    return Programs(training, 1, scoring_for(network), softmax_regression.side_by_side)


def programs_for(network: Network, optimizer: str, lr: float, batch_size: int, lanes: int | None) -> Programs:
    """The fastest programs for this network; the general ones if a number of lanes is given."""
    if lanes is None and softmax_regression.applies(network):
        return written_out(network, optimizer, lr, batch_size)
    return general(network, optimizer, lr, batch_size, lanes)


def general_scoring(network: Network) -> Scoring:
    """A program that XLA compiles, for any network."""
    return Scoring(row_scores(network), row_logits(network), _rows_at_once(network, most=2048), True, jnp.asarray)


def scoring_for(network: Network) -> Scoring:
    """The fastest scoring program for this network."""
    if softmax_regression.applies(network):
        scores, logits = softmax_regression.row_scores, softmax_regression.row_logits
        return Scoring(scores, logits, _rows_at_once(network, most=2**14), False, softmax_regression.read_only)
    return general_scoring(network)


def _rows_at_once(network: Network, most: int) -> int:
    """Fewer rows for larger inputs: enough to use the whole machine without filling its memory."""
    return int(np.clip(2 ** int(np.log2(2**18 / network.input_size)), LEAST_ROWS, most))
