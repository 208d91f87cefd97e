"""Softmax regression as plain compiled loops, for training and scoring.

One step of such a small model needs about a thousand multiplications, which the general program spreads over about
forty operations.  Here a client's whole training is one loop over vector registers, which is many times faster
(docs/benchmarks.md).  It takes the same steps in the same precision as
:func:`clustpsi.engine.training.local_training` and differs only in rounding.
"""

from collections.abc import Callable
from math import exp, log
from typing import Any, NamedTuple

import jax
import numpy as np
from numba import njit
from numpy.typing import NDArray

from clustpsi.engine.adam import ADAM
from clustpsi.engine.network import Network
from clustpsi.engine.registers import (
    COPIED,
    ROWS,
    SUMMED,
    as_doubles,
    copy_columns,
    exponential,
    larger,
    load,
    load_eight,
    ones,
    product_of,
    root,
    row_starts,
    same,
    same_eight,
    smaller,
    start_of,
    store,
    store_sums,
    sum_of,
    times_plus,
    where_equal,
)
from clustpsi.engine.training import Job, Result
from clustpsi.models.dense import Logistic

# Larger models use matrix products; from which size on these are faster was not measured.
MOST_PARAMETERS = 1024

B1, B2, EPS = (np.float32(ADAM[name]) for name in ("b1", "b2", "eps"))
REST1, REST2 = np.float32(1) - B1, np.float32(1) - B2
ZERO, ONE = np.float32(0), np.float32(1)

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]

# Totals are multiplied up to this before the logarithm; times MOST_PARAMETERS to the power of ROWS it is still finite.
MOST_PRODUCT = 1e200

# What is said is done, in this order.  Where vector registers are not spelled out, the compiler may reorder sums to use
# them; NaN and infinity keep their meaning.
_exact = njit(nogil=True, cache=True, error_model="numpy")
_compiled = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})


def applies(network: Network) -> bool:
    """Whether the model is a small softmax regression over floating-point features, on the CPU."""
    return (
        isinstance(network.module, Logistic)
        and network.input_dtype == np.float32
        and network.num_parameters <= MOST_PARAMETERS
        and jax.default_backend() == "cpu"
    )


def local_training(optimizer: str, lr: float, batch_size: int) -> Callable[[Any, Any, Job], Result]:
    """Like the general :func:`~clustpsi.engine.training.local_training`, for one lane and rows :func:`side_by_side`."""
    adam, rate = optimizer == "adam", np.float32(lr)

    def train(features: Any, labels: Any, job: Job) -> Result:
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
            features, job.order[0], int(job.size[0]), int(job.epochs[0]), batch_size, parameters, state,
            np.float32(job.proximal[0]), anchor, job.log_prior[0], scale, trains, rate,
        )  # fmt: skip
        kept = state if given.size else given
        return Result(parameters[None], np.asarray(job.buffers), kept[None], np.array([loss], np.float32))

    return train


def side_by_side(features: Any, labels: Any, rows: NDArray[np.int64]) -> tuple[Floats, Integers]:
    """A client's rows as training takes them; scattered ones would have it wait for memory.

    A row is its features, its label and zeros.
    """
    table = read_only(features)
    own = _copied(table.reshape(len(table), -1), read_only(labels), rows)
    return own, labels


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


@_exact
def _filled_up(number, multiple):  # type: ignore[no-untyped-def]
    return -(-number // multiple) * multiple


@_exact
def _copied(features, labels, rows):  # type: ignore[no-untyped-def]
    width = features.shape[1]
    own = np.zeros((rows.size, _filled_up(width + 1, COPIED)), np.float32)
    for i, row in enumerate(rows):
        for f in range(width):
            own[i, f] = features[row, f]
        own[i, width] = labels[row]
    return own


class _Layout(NamedTuple):
    """Where things are while a model trains: all biases, then each class's weights; a column for a batch's rows."""

    classes: int
    width: int
    weights: int  # where those of the first class start
    between: int  # the weights of two classes, and in a row of the table, which ends with the label
    size: int  # of all parameters, in whole registers
    rows: int  # of a batch, likewise


class _Room(NamedTuple):
    """What is written anew in each step.

    Of some rows of a batch: their numbers, where they start in the table, how far the label's logit is below the
    largest, and the exponentials' sum.  Of the batch: its columns, the last of them the labels, and by class the
    differences between probabilities and labels.  Of the model: its scaled parameters and their gradient.
    """

    numbers: Integers
    starts: NDArray[np.int64]
    gaps: Floats
    totals: Floats
    columns: Floats
    differences: Floats
    scaled: Floats
    gradient: Floats


@_exact
def _layout(classes, width, batch_size):  # type: ignore[no-untyped-def]
    weights, between = _filled_up(classes, COPIED), _filled_up(width + 1, COPIED)
    size = _filled_up(weights + classes * between, ROWS)
    return _Layout(classes, width, weights, between, size, _filled_up(batch_size, ROWS))


@_exact
def _room(layout):  # type: ignore[no-untyped-def]
    rows = layout.rows
    return _Room(
        np.zeros(ROWS, np.int32),
        np.zeros(ROWS, np.int64),
        np.zeros(ROWS, np.float32),
        np.zeros(ROWS, np.float32),
        np.zeros(layout.between * rows, np.float32),
        np.zeros(layout.classes * rows, np.float32),
        np.zeros(layout.size, np.float32),
        np.zeros(layout.size, np.float32),
    )


@_exact
def _laid_out(vector, layout):  # type: ignore[no-untyped-def]
    """Biases, then weights by feature and class, in this layout."""
    into = np.zeros(layout.size, np.float32)
    into[: layout.classes] = vector[: layout.classes]
    for c in range(layout.classes):
        own = layout.weights + layout.between * c
        into[own : own + layout.width] = vector[layout.classes + c :: layout.classes]
    return into


@_exact
def _back(laid_out, layout, vector):  # type: ignore[no-untyped-def]
    vector[: layout.classes] = laid_out[: layout.classes]
    for c in range(layout.classes):
        own = layout.weights + layout.between * c
        vector[layout.classes + c :: layout.classes] = laid_out[own : own + layout.width]


@_exact
def _train(
    table: Floats, order: Integers, size: int, epochs: int, batch_size: int,
    parameters: Floats, state: Floats, proximal: np.float32, anchor: Floats, log_prior: Floats, scale: Floats,
    trains: Floats, lr: np.float32,
) -> float:  # fmt: skip
    """Train ``parameters`` (biases, then weights by feature and class) and ``state`` in place; give the mean loss."""
    classes, number = log_prior.size, parameters.size
    layout = _layout(classes, number // classes - 1, min(batch_size, size))
    adam = state.size > 0
    moments = state if adam else np.zeros(1 + 2 * number, np.float32)
    factors = np.empty(number, np.float32)
    for c in range(classes):
        factors[c::classes] = scale[c]
    model = _laid_out(parameters, layout)
    first, second = _laid_out(moments[1 : 1 + number], layout), _laid_out(moments[1 + number :], layout)
    loss = _steps(
        table, order, size, epochs, batch_size, layout, _room(layout), model, first, second, moments[0], adam,
        lr, proximal, _laid_out(anchor, layout), log_prior, _laid_out(factors, layout), _laid_out(trains, layout),
    )  # fmt: skip
    _back(model, layout, parameters)
    if adam:
        state[0] += np.float32(epochs * -(-size // batch_size))
        _back(first, layout, state[1 : 1 + number])
        _back(second, layout, state[1 + number :])
    mean: float = loss / max(size * epochs, 1)
    return mean


# Below, arrays are given as where they start: counting who uses them would take as long as a part of a step.


@_exact
def _steps(  # type: ignore[no-untyped-def]
    table, order, size, epochs, batch_size, layout, room, model, first, second, taken, adam, lr, proximal, anchor,
    log_prior, factors, trains,
):  # fmt: skip
    """Take the steps; give the sum of all losses."""
    table, order, numbers, starts = start_of(table), start_of(order), start_of(room.numbers), start_of(room.starts)
    x, p, scaled = start_of(room.columns), start_of(room.differences), start_of(room.scaled)
    gaps, totals, gradient = start_of(room.gaps), start_of(room.totals), start_of(room.gradient)
    model, first, second, anchor = start_of(model), start_of(first), start_of(second), start_of(anchor)
    log_prior, factors, trains = start_of(log_prior), start_of(factors), start_of(trains)
    power1, power2 = float(B1) ** taken, float(B2) ** taken
    loss, product = 0.0, 1.0
    for epoch in range(epochs):
        for start in range(0, size, batch_size):
            n = min(batch_size, size - start)
            for i in range(0, layout.size, ROWS):
                store(scaled, i, load(model, i) * load(factors, i))
            for j in range(0, n, ROWS):
                at = epoch * size + start + j
                if n - j >= ROWS:
                    row_starts(order, at, layout.between, starts)
                else:
                    for i in range(n - j):  # rows from before fill the rest, and do not count
                        numbers[i] = order[at + i]
                    row_starts(numbers, 0, layout.between, starts)
                for f in range(0, layout.between, COPIED):
                    copy_columns(starts, table, f, x, f * layout.rows + j, layout.rows)
                _differences(x, scaled, log_prior, layout, n, j, p, gaps, totals)
                counted = min(n - j, ROWS)
                loss += _sum(gaps, counted)
                product *= _product(totals, counted)
                if product > MOST_PRODUCT:
                    loss += log(product)
                    product = 1.0
            _gradient(x, p, layout, n, gradient)
            for i in range(0, layout.size, ROWS):
                g = load(gradient, i) * load(factors, i)
                if proximal > 0:
                    g = times_plus(same(proximal), load(model, i) - load(anchor, i), g)
                store(gradient, i, g * load(trains, i))
            if adam:
                power1, power2 = power1 * float(B1), power2 * float(B2)
                rate, unbias2 = same(lr * np.float32(1 / (1 - power1))), same(np.float32(1 / (1 - power2)))
                for i in range(0, layout.size, ROWS):
                    g = load(gradient, i)
                    m = times_plus(same(REST1), g, same(B1) * load(first, i))
                    v = times_plus(same(REST2), g * g, same(B2) * load(second, i))
                    store(first, i, m)
                    store(second, i, v)
                    store(model, i, load(model, i) - rate * m / (root(v * unbias2) + same(EPS)))
            else:
                for i in range(0, layout.size, ROWS):
                    store(model, i, times_plus(same(-lr), load(gradient, i), load(model, i)))
    return loss + log(product)


@_exact
def _differences(x, scaled, log_prior, layout, n, j, p, gaps, totals):  # type: ignore[no-untyped-def]
    """What softmax gives for some rows of a batch of n beyond their labels, over n."""
    rows = layout.rows
    label = load(x, layout.width * rows + j)
    largest = of_label = same(ZERO)
    for c in range(layout.classes):
        logit = same(scaled[c] + log_prior[c])
        own = layout.weights + layout.between * c
        for f in range(layout.width):
            logit = times_plus(same(scaled[own + f]), load(x, f * rows + j), logit)
        store(p, c * rows + j, logit)
        largest = logit if c == 0 else larger(largest, logit)
        of_label = where_equal(label, same(np.float32(c)), logit, of_label)
    store(gaps, 0, largest - of_label)
    total = same(ZERO)
    if layout.classes == 2:  # the larger one's is 1
        power = exponential(smaller(load(p, j), load(p, rows + j)) - largest)
        for c in range(2):
            store(p, c * rows + j, where_equal(load(p, c * rows + j), largest, same(ONE), power))
        total = same(ONE) + power
    else:
        for c in range(layout.classes):
            power = exponential(load(p, c * rows + j) - largest)
            store(p, c * rows + j, power)
            total = total + power
    store(totals, 0, total)
    share, inverse = same(ONE / np.float32(n)), same(ONE) / (total * same(np.float32(n)))
    for c in range(layout.classes):
        probability = load(p, c * rows + j) * inverse
        store(p, c * rows + j, where_equal(label, same(np.float32(c)), probability - share, probability))


@_exact
def _product(totals, n):  # type: ignore[no-untyped-def]
    whole, eight = n // SUMMED * SUMMED, ones()
    for j in range(0, whole, SUMMED):
        eight = eight * as_doubles(load_eight(totals, j))
    product = product_of(eight)
    for j in range(whole, n):
        product *= totals[j]
    return product


@_exact
def _sum(numbers, n):  # type: ignore[no-untyped-def]
    whole, eight = n // SUMMED * SUMMED, same_eight(ZERO)
    for j in range(0, whole, SUMMED):
        eight = eight + load_eight(numbers, j)
    summed = sum_of(eight)
    for j in range(whole, n):
        summed += numbers[j]
    return summed


@_exact
def _gradient(x, p, layout, n, into):  # type: ignore[no-untyped-def]
    """The sums over a batch of the differences, and of their products with each column; COPIED columns at a time."""
    rows, whole = layout.rows, n // SUMMED * SUMMED
    for c in range(layout.classes):
        first, own = c * rows, layout.weights + layout.between * c
        eight = same_eight(ZERO)
        for j in range(0, whole, SUMMED):
            eight = eight + load_eight(p, first + j)
        into[c] = sum_of(eight)
        for f in range(0, layout.width, COPIED):
            line = f * rows
            a0 = a1 = a2 = a3 = same_eight(ZERO)
            for j in range(0, whole, SUMMED):
                difference = load_eight(p, first + j)
                a0 = times_plus(difference, load_eight(x, line + j), a0)
                a1 = times_plus(difference, load_eight(x, line + rows + j), a1)
                a2 = times_plus(difference, load_eight(x, line + 2 * rows + j), a2)
                a3 = times_plus(difference, load_eight(x, line + 3 * rows + j), a3)
            store_sums(into, own + f, a0, a1, a2, a3)
        for j in range(whole, n):  # what does not fill a register
            into[c] += p[first + j]
            for f in range(layout.width):
                into[own + f] = times_plus(p[first + j], x[f * rows + j], into[own + f])


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
