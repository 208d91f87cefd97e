"""Convolutions with bias, ReLU and pooling in one pass over memory, on the CPU, for layers with few channels.

There, a product of patches spends much of its time on copies, and pooling drops most of its results.  So these are
loops that Numba compiles: they read the images where they are, several images at a time in each vector register, and
keep the four results of a pooled square in registers until only the largest is left.

Images are framed: height, width, channels and images, with a frame of zeros, one pixel wide, around each image, and as
many images as fill vector registers.  The gradient of the frame itself means nothing, and nobody reads it.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from clustpsi.models.vectors import BYTES, LANES, Lanes, beyond, constant, filled, number_at, repeated
from clustpsi.xla_calls import (
    ARGUMENTS,
    RESULTS,
    address,
    asks_for_version,
    called,
    called_by_xla,
    floats,
    lengths,
    structure,
    words,
)

# The kernel's places, and those of the results in a pooled square; together they reach over a window of 4 x 4 pixels.
PLACES = [(i, j) for i in range(3) for j in range(3)]
CORNERS = [(i, j) for i in range(2) for j in range(2)]
WINDOW = 4
# What is summed in registers at a time: results of so many maps, the kernel's gradient of so many maps, the gradient of
# so many lines of a window.
MAPS, KERNELS, LINES = (4, 2, 4) if LANES == 16 else (2, 1, 2)
# Bytes of a vector, of the gradients of a square's results, and of the weights from one channel to one map.
VECTOR = BYTES * LANES
SQUARE = VECTOR * len(CORNERS)
WEIGHTS = BYTES * len(PLACES)
# Each result of a square has a mark, one bit: whether it is the largest and above zero.  Marks of so many bytes of
# pooled results take one byte.
MARKED = BYTES * 8 // len(CORNERS)


@jax.custom_vjp
def direct_convolution(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """The largest of every 2 x 2 square of a convolution with bias, or zero if that is below zero.

    Parameters
    ----------
    x
        Framed images; so is the result.
    kernel
        3, 3, channels in, channels out.
    """
    return _forward(x, kernel, bias)[0]


def _forward(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    height, width, channels, images = x.shape
    blocks = filled(kernel, MAPS).reshape(len(PLACES), channels, -1, MAPS).transpose(2, 1, 0, 3)
    shape = height // 2 + 1, width // 2 + 1, MAPS * len(blocks), images
    of_marks = jax.eval_shape(partial(jnp.zeros, (*shape[:3], images // MARKED), jnp.int32))
    pooled, marks = called(_convolution, [shape, of_marks], x, blocks, filled(bias, MAPS))
    return pooled[:, :, : len(bias)], (x, kernel, marks)


def _backward(values: tuple[jax.Array, ...], cotangent: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """In two calls, because nobody needs the gradient of a model's first images."""
    x, kernel, marks = values
    cotangent, whole = filled(cotangent, MAPS, 1), filled(kernel, MAPS)
    height, width, maps, images = cotangent.shape
    of_square = len(CORNERS), LANES
    room = (KERNELS, (height - 2) * (width - 2) * images // LANES, *of_square)
    to_kernel, to_bias, _ = called(_kernel_gradient, [whole.shape, (maps,), room], x, cotangent, marks)
    to_x, _ = called(_image_gradient, [x.shape, (maps, *of_square)], whole, cotangent, marks)
    own = kernel.shape[3]
    return to_x, to_kernel[..., :own], to_bias[:own]


direct_convolution.defvjp(_forward, _backward)


# ---------------------------------------------------------------------------------------------- what LLVM is told


def _largest_of_squares(_, x, line, pixel, channel, channels, kernel, bias, into, marks):  # type: ignore[no-untyped-def]
    """Results and marks of a square, for MAPS maps and as many images as a vector has."""

    def write(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> ir.Value:
        x, line, pixel, channel, channels, kernel, bias, into, marks = arguments
        cells = [(m, corner) for m in range(MAPS) for corner in CORNERS]
        zero, nan = Lanes.of(builder, 0), Lanes.of(builder, np.nan)

        def add_channel(addresses: list[ir.Value], sums: list[Lanes]) -> list[Lanes]:
            pixels, weights = addresses
            summed = dict(zip(cells, sums, strict=True))
            for place, (i, j) in enumerate(PLACES):
                every = [
                    Lanes.repeating(builder, builder.add(weights, constant(BYTES * (MAPS * place + m))))
                    for m in range(MAPS)
                ]
                for a, b in CORNERS:
                    under = Lanes.at(builder, beyond(builder, pixels, (line, i + a), (pixel, j + b)))
                    for m in range(MAPS):
                        summed[m, (a, b)] = every[m] * under + summed[m, (a, b)]
            return list(summed.values())

        moving = [(x, channel), (kernel, constant(MAPS * WEIGHTS))]
        sums = dict(zip(cells, repeated(builder, channels, moving, [zero] * len(cells), add_channel), strict=True))
        for m in range(MAPS):
            four = [sums[m, corner] for corner in CORNERS]
            pairs = [(four[0], four[1]), (four[2], four[3])]
            # A comparison with what is not a number is false, which would lose it: it is looked for apart.
            unknown = builder.or_(*(builder.fcmp_unordered("uno", a.value, b.value) for a, b in pairs))
            a, b = (a.where(a.compared(">", b), b) for a, b in pairs)
            largest = nan.where(unknown, a.where(a.compared(">", b), b))
            result = largest + Lanes.repeating(builder, builder.add(bias, constant(BYTES * m)))
            zero.where(zero.compared(">", result), result).store(beyond(builder, into, (channel, m)))
            positive = result.compared(">", zero)
            start = builder.add(marks, builder.udiv(builder.mul(channel, constant(m)), constant(MARKED)))
            for k, each in enumerate(four):
                mark = builder.bitcast(builder.and_(positive, each.compared("==", largest)), ir.IntType(LANES))
                place = builder.add(start, constant(k * LANES // 8))
                builder.store(mark, builder.inttoptr(place, mark.type.as_pointer()), align=1)
        return constant(0)

    return types.intp(*[types.intp] * 9), write


def _shares_of_squares(_, cotangent, marks, into):  # type: ignore[no-untyped-def]
    """The gradients of a square's results: those that are the largest share that of the pooled one alike, as in JAX."""

    def write(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> ir.Value:
        cotangent, marks, into = arguments
        zero, one = Lanes.of(builder, 0), Lanes.of(builder, 1)
        marked = []
        for k in range(len(CORNERS)):
            place = builder.inttoptr(builder.add(marks, constant(k * LANES // 8)), ir.IntType(LANES).as_pointer())
            marked.append(builder.bitcast(builder.load(place, align=1), ir.VectorType(ir.IntType(1), LANES)))
        number = zero
        for each in marked:
            number = number + one.where(each, zero)
        share = Lanes(builder, builder.fdiv(Lanes.at(builder, cotangent).value, number.value))
        for k, each in enumerate(marked):
            share.where(each, zero).store(builder.add(into, constant(VECTOR * k)))
        return constant(0)

    return types.intp(*[types.intp] * 3), write


def _gradient_of_weights(_, table, squares, x, line, pixel, shares, between, into, place):  # type: ignore[no-untyped-def]
    """Of those from one channel to KERNELS maps, summed over squares, of whose windows there is a table.

    The shares of one map and the next are so many bytes ``between``, and weights of one ``place`` and the next.
    """

    def write(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> ir.Value:
        table, squares, x, line, pixel, shares, between, into, place = arguments
        cells = [(m, where) for m in range(KERNELS) for where in PLACES]

        def add_square(addresses: list[ir.Value], sums: list[Lanes]) -> list[Lanes]:
            entry, of_maps = addresses
            window = builder.add(x, builder.load(builder.inttoptr(entry, ir.IntType(64).as_pointer())))
            summed = dict(zip(cells, sums, strict=True))
            four = {
                (m, corner): Lanes.at(builder, beyond(builder, of_maps, (between, m), (constant(VECTOR), k)))
                for m in range(KERNELS)
                for k, corner in enumerate(CORNERS)
            }
            for i in range(WINDOW):
                for j in range(WINDOW):
                    under = Lanes.at(builder, beyond(builder, window, (line, i), (pixel, j)))
                    for (m, (a, b)), share in four.items():
                        if (cell := (m, (i - a, j - b))) in summed:
                            summed[cell] = share * under + summed[cell]
            return list(summed.values())

        moving = [(table, constant(8)), (shares, constant(SQUARE))]
        start = [Lanes.of(builder, 0)] * len(cells)
        for (m, (i, j)), summed in zip(cells, repeated(builder, squares, moving, start, add_square), strict=True):
            to = beyond(builder, into, (place, 3 * i + j), (constant(BYTES), m))
            builder.store(summed.total(), number_at(builder, to), align=BYTES)
        return constant(0)

    return types.intp(*[types.intp] * 9), write


def _total_of_shares(_, shares, squares, into):  # type: ignore[no-untyped-def]
    """The sum of all numbers: the gradient of a map's bias."""

    def write(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> ir.Value:
        shares, squares, into = arguments

        def add_square(addresses: list[ir.Value], sums: list[Lanes]) -> list[Lanes]:
            starts = [builder.add(addresses[0], constant(VECTOR * k)) for k in range(len(CORNERS))]
            return [so_far + Lanes.at(builder, start) for so_far, start in zip(sums, starts, strict=True)]

        moving = [(shares, constant(SQUARE))]
        a, b, c, d = repeated(builder, squares, moving, [Lanes.of(builder, 0)] * len(CORNERS), add_square)
        builder.store((a + b + (c + d)).total(), number_at(builder, into), align=BYTES)
        return constant(0)

    return types.intp(*[types.intp] * 3), write


def _add_to_window(_, shares, maps, kernel, place, window, line, pixel):  # type: ignore[no-untyped-def]
    """Add, to the gradient of the pixels of one channel under a square, what all maps contribute."""

    def write(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> ir.Value:
        shares, maps, kernel, place, window, line, pixel = arguments
        for first in range(0, WINDOW, LINES):
            cells = [(i, j) for i in range(first, first + LINES) for j in range(WINDOW)]

            def add_map(addresses: list[ir.Value], sums: list[Lanes], cells: Any = cells) -> list[Lanes]:
                of_map, weights = addresses
                summed = dict(zip(cells, sums, strict=True))
                four = [Lanes.at(builder, builder.add(of_map, constant(VECTOR * k))) for k in range(len(CORNERS))]
                for number, (i, j) in enumerate(PLACES):
                    every = Lanes.repeating(builder, beyond(builder, weights, (place, number)))
                    for share, (a, b) in zip(four, CORNERS, strict=True):
                        if (cell := (i + a, j + b)) in summed:
                            summed[cell] = every * share + summed[cell]
                return list(summed.values())

            own = [beyond(builder, window, (line, i), (pixel, j)) for i, j in cells]
            start = [Lanes.at(builder, each) for each in own]
            moving = [(shares, constant(SQUARE)), (kernel, constant(BYTES))]
            for to, summed in zip(own, repeated(builder, maps, moving, start, add_map), strict=True):
                summed.store(to)
        return constant(0)

    return types.intp(*[types.intp] * 7), write


_largest: Any = intrinsic(_largest_of_squares)
_shares: Any = intrinsic(_shares_of_squares)
_to_weights: Any = intrinsic(_gradient_of_weights)
_total: Any = intrinsic(_total_of_shares)
_to_window: Any = intrinsic(_add_to_window)


# ----------------------------------------------------------------------------------------------- what Numba compiles


@njit
def _strides(array):  # type: ignore[no-untyped-def]
    """Bytes between lines, pixels and channels of framed images."""
    _, width, channels, images = lengths(array)
    channel = BYTES * images
    return width * channels * channel, channels * channel, channel


@njit
def _clear_frame(array):  # type: ignore[no-untyped-def]
    height, width, channels, images = lengths(array)
    lines, pixel = floats(array).reshape(height, width * channels * images), channels * images
    lines[0] = 0
    lines[-1] = 0
    lines[:, :pixel] = 0
    lines[:, -pixel:] = 0


@njit
def _squares(x, pooled):  # type: ignore[no-untyped-def]
    """Of every square and vector of images: bytes from the first pixel to its window, from the first result to its own.

    Both are framed.
    """
    (line, pixel, channel), (own_line, own_pixel, _) = _strides(x), _strides(pooled)
    height, width, _, _ = lengths(pooled)
    number = (height - 2) * (width - 2) * (channel // VECTOR)
    windows, results = np.empty(number, np.int64), np.empty(number, np.int64)
    number = 0
    for i in range(height - 2):
        for j in range(width - 2):
            for images in range(0, channel, VECTOR):
                windows[number] = 2 * i * line + 2 * j * pixel + images
                results[number] = (i + 1) * own_line + (j + 1) * own_pixel + images
                number += 1
    return windows, results


@called_by_xla
def _convolution(call):  # type: ignore[no-untyped-def]
    """From images, kernel and bias: pooled results and their marks."""
    call = structure(call)
    if asks_for_version(call):
        return 0
    arguments, given = words(call[ARGUMENTS], 3), words(call[RESULTS], 2)
    x, kernel, bias = address(arguments[0]), address(arguments[1]), address(arguments[2])
    pooled, marks = address(given[0]), address(given[1])
    channels, maps = lengths(arguments[0])[2], lengths(given[0])[2]
    line, pixel, channel = _strides(arguments[0])
    windows, results = _squares(arguments[0], given[0])
    _clear_frame(given[0])
    for square in range(windows.size):
        window = x + windows[square]
        for m in range(0, maps, MAPS):
            weights, own = kernel + WEIGHTS * channels * m, bias + BYTES * m
            to = results[square] + channel * m
            _largest(window, line, pixel, channel, channels, weights, own, pooled + to, marks + to // MARKED)
    return 0


@called_by_xla
def _kernel_gradient(call):  # type: ignore[no-untyped-def]
    """From images, the gradient of pooled results and their marks: that of kernel and bias, and room for shares."""
    call = structure(call)
    if asks_for_version(call):
        return 0
    arguments, given = words(call[ARGUMENTS], 3), words(call[RESULTS], 3)
    x, cotangent, marks = address(arguments[0]), address(arguments[1]), address(arguments[2])
    kernel, bias, shares = address(given[0]), address(given[1]), address(given[2])
    channels, maps = lengths(arguments[0])[2], lengths(arguments[1])[2]
    line, pixel, channel = _strides(arguments[0])
    windows, results = _squares(arguments[0], arguments[1])
    squares, between, place = windows.size, SQUARE * windows.size, BYTES * channels * maps
    for first in range(0, maps, KERNELS):
        for m in range(KERNELS):
            of_map = shares + between * m
            for square in range(squares):
                at = results[square] + channel * (first + m)
                _shares(cotangent + at, marks + at // MARKED, of_map + SQUARE * square)
            _total(of_map, squares, bias + BYTES * (first + m))
        for c in range(channels):
            to = kernel + BYTES * (c * maps + first)
            _to_weights(windows.ctypes.data, squares, x + channel * c, line, pixel, shares, between, to, place)
    return 0


@called_by_xla
def _image_gradient(call):  # type: ignore[no-untyped-def]
    """From kernel, the gradient of pooled results and their marks: that of images, and room for shares."""
    call = structure(call)
    if asks_for_version(call):
        return 0
    arguments, given = words(call[ARGUMENTS], 3), words(call[RESULTS], 2)
    kernel, cotangent, marks = address(arguments[0]), address(arguments[1]), address(arguments[2])
    x, shares = address(given[0]), address(given[1])
    channels, maps = lengths(given[0])[2], lengths(arguments[1])[2]
    line, pixel, channel = _strides(given[0])
    windows, results = _squares(given[0], arguments[1])
    place = BYTES * channels * maps
    floats(given[0])[:] = 0
    for square in range(windows.size):
        for m in range(maps):
            at = results[square] + channel * m
            _shares(cotangent + at, marks + at // MARKED, shares + SQUARE * m)
        window = x + windows[square]
        for c in range(channels):
            _to_window(shares, maps, kernel + BYTES * c * maps, place, window + channel * c, line, pixel)
    return 0
