"""Convolutions by Winograd's minimal filtering F(4 x 4, 3 x 3), on the CPU (Lavin and Gray, arXiv:1509.09308).

A square of 4 x 4 results takes 36 multiplications per pair of channels instead of 144: the 6 x 6 pixels under it, the
kernel and the result each go through a small linear transform, and in between each of the 36 transformed positions is a
matrix product over the channels.

XLA would go over memory many times for the transforms.  So these are loops that Numba compiles: a few squares at a time
are transformed, multiplied and transformed back while they are in the processor's cache.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from clustpsi.models.vectors import BYTES, LANES, ROWS, Lanes, constant, filled, product
from clustpsi.xla_calls import (
    ARGUMENTS,
    RESULTS,
    address,
    asks_for_version,
    called,
    called_by_xla,
    lengths,
    structure,
    words,
)

# Results and pixels along the side of a square, and positions that they are transformed to.
SQUARE, PIXELS, POSITIONS = 4, 6, 36
# Squares that are worked on at a time: what becomes of them should stay in the cache.
AT_A_TIME = 64
# Channels are filled up to a multiple of this.
CHANNELS = 32
# Polynomials are evaluated at 0, at plus and minus these two, and at infinity.  With 1 and 2, as is usual, rounding
# errors are three to four times as large.
NEAR, FAR = math.sqrt(0.5), math.sqrt(2)


@jax.custom_vjp
def winograd_convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """The 3 x 3 convolution with zero padding to the same size.

    Parameters
    ----------
    x
        Rows, height, width, channels.
    kernel
        3, 3, channels in, channels out.
    """
    _, height, width, _ = x.shape
    features = kernel.shape[3]
    whole = filled(x, SQUARE, SQUARE, CHANNELS)
    matrices = filled(kernel, CHANNELS, CHANNELS)
    inputs, outputs = matrices.shape[2:]
    shapes = [(*whole.shape[:3], outputs), *_room(inputs, outputs)]
    convolved: jax.Array = called(_convolution, shapes, whole, matrices)[0]
    return convolved[:, :height, :width, :features]


def _forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return winograd_convolution(x, kernel), (x, kernel)


def _backward(inputs: tuple[jax.Array, jax.Array], cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The input's gradient is a convolution too; the kernel's goes through the transforms in the other direction."""
    x, kernel = inputs
    channels, features = kernel.shape[2:]
    whole, results = (filled(each, SQUARE, SQUARE, CHANNELS) for each in (x, cotangent))
    shapes = [(3, 3, whole.shape[3], results.shape[3]), *_room(whole.shape[3], results.shape[3])]
    to_kernel = called(_convolution_gradient, shapes, whole, results)[0]
    return winograd_convolution(cotangent, kernel[::-1, ::-1].swapaxes(2, 3)), to_kernel[:, :, :channels, :features]


winograd_convolution.defvjp(_forward, _backward)


def _room(inputs: int, outputs: int) -> list[tuple[int, ...]]:
    """Of what the loops work on: kernel, pixels and results, transformed."""
    return [(POSITIONS, inputs, outputs), (POSITIONS, AT_A_TIME, inputs), (POSITIONS, AT_A_TIME, outputs)]


# --------------------------------------------------------------------------------------- the transforms of one line


def transformed_pixels(a: Lanes, b: Lanes, c: Lanes, d: Lanes, e: Lanes, f: Lanes) -> list[Lanes]:
    near, far = e - 2 * c, e - 0.5 * c
    odd_near, odd_far = NEAR * (d - 2 * b), FAR * (d - 0.5 * b)
    return [a - 2.5 * c + e, near + odd_near, near - odd_near, far + odd_far, far - odd_far, b - 2.5 * d + f]


def transformed_kernel(a: Lanes, b: Lanes, c: Lanes) -> list[Lanes]:
    near, far = -2 / 3 * a - 1 / 3 * c, 1 / 6 * a + 1 / 3 * c
    odd_near, odd_far = -2 / 3 * NEAR * b, 1 / 6 * FAR * b
    return [a, near + odd_near, near - odd_near, far + odd_far, far - odd_far, c]


def results(a: Lanes, b: Lanes, c: Lanes, d: Lanes, e: Lanes, f: Lanes) -> list[Lanes]:
    near, far, odd_near, odd_far = b + c, d + e, NEAR * (b - c), FAR * (d - e)
    return [a + near + far, odd_near + odd_far, 0.5 * near + 2 * far, 0.5 * odd_near + 2 * odd_far + f]


def to_results(a: Lanes, b: Lanes, c: Lanes, d: Lanes) -> list[Lanes]:
    """The transpose of :func:`results`."""
    near, far, odd_near, odd_far = a + 0.5 * c, a + 2 * c, NEAR * (b + 0.5 * d), FAR * (b + 2 * d)
    return [a, near + odd_near, near - odd_near, far + odd_far, far - odd_far, d]


def to_kernel(a: Lanes, b: Lanes, c: Lanes, d: Lanes, e: Lanes, f: Lanes) -> list[Lanes]:
    """The transpose of :func:`transformed_kernel`."""
    near, far = b + c, d + e
    odd = -2 / 3 * NEAR * (b - c) + 1 / 6 * FAR * (d - e)
    return [a - 2 / 3 * near + 1 / 6 * far, odd, 1 / 3 * (far - near) + f]


# ---------------------------------------------------------------------------------------------- what LLVM is told


def _in_both_directions(transform: Callable[..., list[Lanes]], side: int) -> Any:
    """A square of side x side vectors, of which every line and then every column is transformed.

    Parameters of what is compiled
    ------------------------------
    addresses
        Where a table of the vectors' addresses is.
    offset
        Bytes that are added to all of them, and to the first of the results.
    into
        Where the first of the results goes.
    line, column
        Bytes between two of its lines and columns.
    """

    def write(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> ir.Value:
        addresses, offset, into, line, column = arguments
        pointer = Lanes.type.as_pointer()
        table = builder.inttoptr(addresses, ir.IntType(64).as_pointer())

        def load(place: int) -> Lanes:
            own = builder.add(builder.load(builder.gep(table, [constant(place)])), offset)
            return Lanes(builder, builder.load(builder.inttoptr(own, pointer), align=BYTES))

        lines = [transform(*(load(side * i + j) for j in range(side))) for i in range(side)]
        columns = [transform(*each) for each in zip(*lines, strict=True)]
        start = builder.add(into, offset)
        for j, each in enumerate(columns):
            for i, vector in enumerate(each):
                place = builder.add(builder.mul(line, constant(i)), builder.mul(column, constant(j)))
                to = builder.inttoptr(builder.add(start, place), pointer)
                builder.store(vector.value, to, align=BYTES)
        return ir.Constant(ir.IntType(64), 0)

    def typed(_: Any, addresses: Any, offset: Any, into: Any, line: Any, column: Any) -> Any:
        return types.intp(*[types.intp] * 5), write

    return intrinsic(typed)


_transform_pixels = _in_both_directions(transformed_pixels, PIXELS)
_transform_kernel = _in_both_directions(transformed_kernel, 3)
_transform_back = _in_both_directions(results, PIXELS)
_transform_cotangent = _in_both_directions(to_results, SQUARE)
_transform_kernel_back = _in_both_directions(to_kernel, PIXELS)


# ----------------------------------------------------------------------------------------------- what Numba compiles


@njit
def _place(square, height, width):  # type: ignore[no-untyped-def]
    """Image, line and column where a square of results starts."""
    across = width // SQUARE
    image, inside = divmod(square, height // SQUARE * across)
    return image, inside // across * SQUARE, inside % across * SQUARE


@njit
def _pixels_of(square, x, shape, nothing, table, into):  # type: ignore[no-untyped-def]
    """The pixels under a square of results, transformed; beyond the edge of an image there is nothing."""
    height, width, channels = shape[1], shape[2], BYTES * shape[3]
    image, top, left = _place(square, height, width)
    for i in range(PIXELS):
        for j in range(PIXELS):
            line, column = top + i - 1, left + j - 1
            if 0 <= line < height and 0 <= column < width:
                table[PIXELS * i + j] = x + channels * ((image * height + line) * width + column)
            else:
                table[PIXELS * i + j] = nothing
    between = channels * AT_A_TIME
    for offset in range(0, channels, BYTES * LANES):
        _transform_pixels(table.ctypes.data, offset, into, PIXELS * between, between)


@njit
def _all_positions(array, between, table):  # type: ignore[no-untyped-def]
    for position in range(POSITIONS):
        table[position] = array + between * position


@called_by_xla
def _convolution(call):  # type: ignore[no-untyped-def]
    """From images and kernel: images, and room for kernel, pixels and results, transformed."""
    call = structure(call)
    if asks_for_version(call):
        return 0
    arguments, given = words(call[ARGUMENTS], 2), words(call[RESULTS], 4)
    x, kernel, shape = address(arguments[0]), address(arguments[1]), lengths(arguments[0])
    y, matrices, pixels, products = address(given[0]), address(given[1]), address(given[2]), address(given[3])
    images, height, width, inputs = shape
    outputs = lengths(given[0])[3]
    table, nothing = np.empty(POSITIONS, np.int64), np.zeros(inputs, np.float32)
    entries = BYTES * inputs * outputs
    for i in range(9):
        table[i] = kernel + entries * i
    for offset in range(0, entries, BYTES * LANES):
        _transform_kernel(table.ctypes.data, offset, matrices, PIXELS * entries, entries)
    squares = images * (height // SQUARE) * (width // SQUARE)
    across = BYTES * outputs
    for first in range(0, squares, AT_A_TIME):
        number = min(AT_A_TIME, squares - first)
        for i in range(number):
            _pixels_of(first + i, x, shape, nothing.ctypes.data, table, pixels + BYTES * inputs * i)
        rows = (number + ROWS - 1) // ROWS * ROWS
        for position in range(POSITIONS):
            left, total = pixels + BYTES * inputs * AT_A_TIME * position, products + across * AT_A_TIME * position
            right = matrices + entries * position
            product(left, BYTES * inputs, BYTES, right, total, rows, outputs, inputs, 0)
        for i in range(number):
            _all_positions(products + across * i, across * AT_A_TIME, table)
            image, top, left = _place(first + i, height, width)
            into = y + across * ((image * height + top) * width + left)
            for offset in range(0, across, BYTES * LANES):
                _transform_back(table.ctypes.data, offset, into, across * width, across)
    return 0


@called_by_xla
def _convolution_gradient(call):  # type: ignore[no-untyped-def]
    """From images and the gradient of results: that of the kernel, and room for all three, transformed."""
    call = structure(call)
    if asks_for_version(call):
        return 0
    arguments, given = words(call[ARGUMENTS], 2), words(call[RESULTS], 4)
    x, cotangent, shape = address(arguments[0]), address(arguments[1]), lengths(arguments[0])
    kernel, matrices, pixels, results = address(given[0]), address(given[1]), address(given[2]), address(given[3])
    images, height, width, inputs = shape
    outputs = lengths(arguments[1])[3]
    table, nothing = np.empty(POSITIONS, np.int64), np.zeros(inputs, np.float32)
    squares = images * (height // SQUARE) * (width // SQUARE)
    across = BYTES * outputs
    between = across * AT_A_TIME
    for first in range(0, squares, AT_A_TIME):
        number = min(AT_A_TIME, squares - first)
        for i in range(number):
            _pixels_of(first + i, x, shape, nothing.ctypes.data, table, pixels + BYTES * inputs * i)
            image, top, left = _place(first + i, height, width)
            for line in range(SQUARE):
                for column in range(SQUARE):
                    pixel = (image * height + top + line) * width + left + column
                    table[SQUARE * line + column] = cotangent + across * pixel
            for offset in range(0, across, BYTES * LANES):
                _transform_cotangent(table.ctypes.data, offset, results + across * i, PIXELS * between, between)
        for position in range(POSITIONS):
            left, right = pixels + BYTES * inputs * AT_A_TIME * position, results + between * position
            total = matrices + across * inputs * position
            product(left, BYTES, BYTES * inputs, right, total, inputs, outputs, number, first)
    _all_positions(matrices, across * inputs, table)
    for offset in range(0, across * inputs, BYTES * LANES):
        _transform_kernel_back(table.ctypes.data, offset, kernel, 3 * across * inputs, across * inputs)
    return 0
