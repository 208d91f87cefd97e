"""Softmax regression as plain compiled loops, for training and scoring.

One step of such a small model needs about a thousand multiplications, which the general program spreads over about
forty operations.  Here a client's whole training is one loop, which is a few times faster (docs/benchmarks.md).  It
takes the same steps in the same precision as :func:`clustpsi.engine.training.local_training` and differs only in
rounding.
"""

from collections.abc import Callable
from decimal import Decimal
from math import exp, log, sqrt
from typing import Any

import jax
import numpy as np
from numba import njit
from numpy.typing import NDArray

from clustpsi.engine.adam import ADAM
from clustpsi.engine.network import Network
from clustpsi.engine.training import Job, Result
from clustpsi.models.dense import Logistic
from clustpsi.models.vectors import BYTES, LANES, transpose

# Larger models use matrix products; from which size on these are faster was not measured.
MOST_PARAMETERS = 1024

B1, B2, EPS = (np.float32(ADAM[name]) for name in ("b1", "b2", "eps"))
ONE = np.float32(1)

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]

# For exp(x) = 2^(k/32) 2^(r/32) with a whole k and |r| <= 1/2: what turns x into k + r, the bits of 2^(i/32) without
# the share of i in the exponent, and a polynomial in r for the second factor.  Its coefficients are those of the C
# library's expf, which come from Arm's optimized routines.
PER_OCTAVE = 32
FACTOR = float.fromhex("0x1.71547652b82fep+0") * PER_OCTAVE  # 32 / log 2
ROUNDS = 1.5 * 2.0**52  # adding it leaves a whole number, in the lowest bits
POWERS = np.array([float(Decimal(2) ** (Decimal(i) / PER_OCTAVE)) for i in range(PER_OCTAVE)]).view(np.int64)
POWERS -= np.arange(PER_OCTAVE) << 47  # 52 bits of mantissa, 5 bits of i
R1 = float.fromhex("0x1.62e42ff0c52d6p-1") / PER_OCTAVE
R2 = float.fromhex("0x1.ebfce50fac4f3p-3") / PER_OCTAVE**2
R3 = float.fromhex("0x1.c6af84b912394p-5") / PER_OCTAVE**3
LEAST = np.float32(-104)  # exp of less is zero in single precision

LOGS = 32  # how many totals are multiplied before the logarithm: MOST_PARAMETERS to this power is a finite number

# The compiler may reorder sums to use vector registers; NaN and infinity keep their meaning.
_compiled = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


@njit(nogil=True, cache=True, error_model="numpy", fastmath=False)  # said, or it would be the caller's
def _exp(x: np.float32) -> np.float32:
    """``expf`` of a number that is not positive, written so that a loop over it uses vector registers.

    It has the bits of the C library's, on any machine: the compiler may not reorder or contract anything here.
    """
    z = FACTOR * np.float64(LEAST if x < LEAST else x)
    shifted = z + ROUNDS
    k = np.float64(shifted).view(np.int64)
    r = z - (shifted - ROUNDS)
    power = np.int64(POWERS[k & (PER_OCTAVE - 1)] + (k << 47)).view(np.float64)
    return np.float32(((R3 * r + R2) * (r * r) + (R1 * r + 1.0)) * power)


def applies(network: Network) -> bool:
    """Whether the model is a small softmax regression over floating-point features, on the CPU."""
    return (
        isinstance(network.module, Logistic)
        and network.input_dtype == np.float32
        and network.num_parameters <= MOST_PARAMETERS
        and jax.default_backend() == "cpu"
    )


def local_training(optimizer: str, lr: float, batch_size: int) -> Callable[[Any, Any, Job], Result]:
    """Like the general :func:`~clustpsi.engine.training.local_training`, for one lane."""
    adam, rate = optimizer == "adam", np.float32(lr)

    def train(features: Any, labels: Any, job: Job) -> Result:
        rows = read_only(features)
        parameters = np.array(job.parameters[0])
        given = job.optimizer_state[0]  # as JAX flattens it: steps taken, first moments, second moments
        state = np.zeros(1 + 2 * parameters.size if adam else 0, np.float32)
        if given.size:
            state[:] = given
        # A copy: for a read-only anchor, such as an initial model, Numba would compile the program again.
        anchor = np.array(job.anchor[0] if job.anchor.shape[1] else parameters)
        scale = job.logit_scale[0] if job.logit_scale.shape[1] else np.ones_like(job.log_prior[0])
        trains = job.trains[0] if job.trains.shape[1] else np.ones_like(parameters)
        loss = _train(
            rows.reshape(len(rows), -1), read_only(labels), job.order[0], int(job.size[0]), int(job.epochs[0]),
            batch_size, parameters, state, np.float32(job.proximal[0]), anchor, job.log_prior[0], scale, trains, rate,
        )  # fmt: skip
        kept = state if given.size else given
        return Result(parameters[None], np.asarray(job.buffers), kept[None], np.array([loss], np.float32))

    return train


def read_only(array: Any) -> NDArray[Any]:
    """A view of an array, always of the one type that the loops are compiled for."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def row_scores(
    features: Any, labels: Any, parameters: Any, buffers: Any, rows: Integers, scale: Floats, log_prior: Floats
) -> tuple[Integers, Floats]:
    """Like the general :func:`~clustpsi.engine.scoring.row_scores`."""
    table = np.asarray(features)
    predicted, losses = np.empty(len(rows), np.int32), np.empty(len(rows), np.float32)
    flat = table.reshape(len(table), -1)
    _score(flat, np.asarray(labels), np.asarray(parameters), rows, scale, log_prior, predicted, losses)
    return predicted, losses


def row_logits(features: Any, parameters: Any, buffers: Any, rows: Integers) -> Floats:
    """Like the general :func:`~clustpsi.engine.scoring.row_logits`."""
    table, weights = np.asarray(features), np.asarray(parameters)
    flat = table.reshape(len(table), -1)
    classes = weights.size // (1 + flat.shape[1])
    with np.errstate(invalid="ignore", over="ignore"):  # in case the model has diverged
        logits: Floats = flat[rows] @ weights[classes:].reshape(-1, classes) + weights[:classes]
    return logits


@_compiled
def _columns(features: Floats, rows: Integers, columns: Floats) -> None:
    """The rows of a batch, as columns.  Most of them are copied by the registerful, which takes half of the time."""
    (number, width), length = features.shape, columns.shape[1]
    last = (number * width - len(columns)) // width  # of a later row, a register would go beyond the table
    largest = 0
    for row in rows:
        largest = max(largest, row)
    done = rows.size // LANES * LANES if largest <= last else 0
    for j in range(0, done, LANES):
        for f in range(0, width, LANES):
            into = columns.ctypes.data + BYTES * (f * length + j)
            start = features.ctypes.data + BYTES * f
            transpose(start, rows.ctypes.data + BYTES * j, BYTES * width, into, BYTES * length)
    for j in range(done, rows.size):
        row = rows[j]
        for f in range(width):
            columns[f, j] = features[row, f]


@_compiled
def _train(
    features: Floats, labels: Integers, order: Integers, size: int, epochs: int, batch_size: int,
    parameters: Floats, state: Floats, proximal: np.float32, anchor: Floats, log_prior: Floats, scale: Floats,
    trains: Floats, lr: np.float32,
) -> float:  # fmt: skip
    """Train ``parameters`` (biases, then weights by feature and class) and ``state`` in place; give the mean loss."""
    width, classes = features.shape[1], log_prior.size
    # Column-wise, so that the inner loops run over the rows of a batch.
    x = np.empty(((width + LANES - 1) // LANES * LANES, batch_size), np.float32)
    p = np.empty((classes, batch_size), np.float32)
    largest, total = np.empty(batch_size, np.float32), np.empty(batch_size, np.float32)
    y = np.empty(batch_size, np.int32)
    gradient = np.empty(parameters.size, np.float32)
    taken = state[0] if state.size else np.float32(0)
    power1, power2 = float(B1) ** taken, float(B2) ** taken
    loss_sum = 0.0
    for epoch in range(epochs):
        for start in range(0, size, batch_size):
            n = min(batch_size, size - start)
            at = epoch * size + start
            rows = order[at : at + n]
            _columns(features, rows, x)
            for j in range(n):
                y[j] = labels[rows[j]]
            for c in range(classes):
                bias = parameters[c] * scale[c] + log_prior[c]
                for j in range(n):
                    p[c, j] = bias
                for f in range(width):
                    weight = parameters[classes * (1 + f) + c] * scale[c]
                    for j in range(n):
                        p[c, j] += weight * x[f, j]
            for j in range(n):
                largest[j], total[j] = p[0, j], 0
            for c in range(1, classes):
                for j in range(n):
                    largest[j] = max(largest[j], p[c, j])
            loss = np.float32(0)
            for j in range(n):
                loss += largest[j] - p[y[j], j]
            for c in range(classes):
                for j in range(n):
                    p[c, j] = _exp(p[c, j] - largest[j])
                    total[j] += p[c, j]
            for first_of in range(0, n, LOGS):
                product = 1.0
                for j in range(first_of, min(first_of + LOGS, n)):
                    product *= np.float64(total[j])
                loss_sum += log(product)
            for j in range(n):
                total[j] = ONE / (total[j] * np.float32(n))
            for c in range(classes):
                for j in range(n):
                    p[c, j] *= total[j]
            for j in range(n):
                p[y[j], j] -= ONE / np.float32(n)
            for c in range(classes):
                summed = np.float32(0)
                for j in range(n):
                    summed += p[c, j]
                gradient[c] = summed * scale[c]
                for f in range(width):
                    summed = np.float32(0)
                    for j in range(n):
                        summed += p[c, j] * x[f, j]
                    gradient[classes * (1 + f) + c] = summed * scale[c]
            loss_sum += float(loss)
            if proximal > 0:
                for i in range(parameters.size):
                    gradient[i] += proximal * (parameters[i] - anchor[i])
            for i in range(parameters.size):
                gradient[i] *= trains[i]
            if state.size:
                power1, power2 = power1 * float(B1), power2 * float(B2)
                unbias1, unbias2 = np.float32(1 / (1 - power1)), np.float32(1 / (1 - power2))
                first, second = state[1 : 1 + parameters.size], state[1 + parameters.size :]
                for i in range(parameters.size):
                    first[i] = B1 * first[i] + (ONE - B1) * gradient[i]
                    second[i] = B2 * second[i] + (ONE - B2) * gradient[i] * gradient[i]
                    parameters[i] -= lr * (first[i] * unbias1) / (sqrt(second[i] * unbias2) + EPS)
                state[0] += ONE
            else:
                for i in range(parameters.size):
                    parameters[i] -= lr * gradient[i]
    return loss_sum / max(size * epochs, 1)


@_compiled
def _score(
    features: Floats, labels: Integers, parameters: Floats, rows: Integers, scale: Floats, log_prior: Floats,
    predicted: Integers, losses: Floats,
) -> None:  # fmt: skip
    width, classes = features.shape[1], log_prior.shape[1]
    logits = np.empty(classes, np.float32)
    for i in range(rows.size):
        row = rows[i]
        for c in range(classes):
            logits[c] = log_prior[i, c]
        if scale[i] != 0:  # with scale 0 only the prior counts
            for c in range(classes):
                logits[c] += parameters[c] * scale[i]
            for f in range(width):
                value = features[row, f] * scale[i]
                for c in range(classes):
                    logits[c] += value * parameters[classes * (1 + f) + c]
        best = 0
        for c in range(1, classes):
            if logits[c] > logits[best]:
                best = c
        total = ONE  # the term of the best class
        for c in range(classes):
            if c != best:
                total += exp(logits[c] - logits[best])
        predicted[i] = best
        losses[i] = log(total) + logits[best] - logits[labels[row]]
