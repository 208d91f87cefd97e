"""Loops that are written for vector registers, because the compiler finds no use for them there by itself.

They are used in functions that Numba compiles, which work on addresses of single-precision numbers.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.extending import intrinsic

# Numbers in a vector register, and rows of a product that are summed at a time, in two registers each.
LANES, ROWS = (16, 8) if binding.get_host_cpu_features().get("avx512f") else (8, 4)
COLUMNS = 2 * LANES
BYTES = 4  # of a number


def filled(array: jax.Array, *multiples: int) -> jax.Array:
    """With zeros at the end of its last axes, so that their lengths are multiples of these."""
    first = array.ndim - len(multiples)
    ends = [-length % multiple for length, multiple in zip(array.shape[first:], multiples, strict=True)]
    return jnp.pad(array, [(0, 0)] * first + [(0, end) for end in ends]) if any(ends) else array


class Lanes:
    """Numbers side by side in a vector register, in a program that is being written."""

    type = ir.VectorType(ir.FloatType(), LANES)

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder, self.value = builder, value

    @classmethod
    def of(cls, builder: ir.IRBuilder, number: float) -> "Lanes":
        """The same number in all lanes."""
        return cls(builder, ir.Constant(cls.type, [ir.Constant(ir.FloatType(), float(np.float32(number)))] * LANES))

    @classmethod
    def at(cls, builder: ir.IRBuilder, address: ir.Value) -> "Lanes":
        """What is there."""
        return cls(builder, builder.load(builder.inttoptr(address, cls.type.as_pointer()), align=BYTES))

    @classmethod
    def repeating(cls, builder: ir.IRBuilder, address: ir.Value) -> "Lanes":
        """The number that is there, in all lanes."""
        number = builder.load(number_at(builder, address), align=BYTES)
        undefined = ir.Constant(cls.type, ir.Undefined)
        first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
        return cls(builder, builder.shuffle_vector(first, undefined, _places(LANES * [0])))

    def store(self, address: ir.Value) -> None:
        self.builder.store(self.value, self.builder.inttoptr(address, self.type.as_pointer()), align=BYTES)

    def __add__(self, other: "Lanes") -> "Lanes":
        return Lanes(self.builder, self.builder.fadd(self.value, other.value, flags=("contract",)))

    def __sub__(self, other: "Lanes") -> "Lanes":
        return Lanes(self.builder, self.builder.fsub(self.value, other.value, flags=("contract",)))

    def __mul__(self, other: "Lanes") -> "Lanes":
        return Lanes(self.builder, self.builder.fmul(self.value, other.value, flags=("contract",)))

    def __rmul__(self, factor: float) -> "Lanes":
        return Lanes.of(self.builder, factor) * self

    def where(self, condition: ir.Value, other: "Lanes") -> "Lanes":
        """Each number where the condition holds, and the other one elsewhere."""
        return Lanes(self.builder, self.builder.select(condition, self.value, other.value))

    def compared(self, comparison: str, other: "Lanes") -> ir.Value:
        """Where an ordered comparison holds."""
        return self.builder.fcmp_ordered(comparison, self.value, other.value)

    def total(self) -> ir.Value:
        """The sum of all lanes, of one half and the other again and again."""
        value, width = self.value, LANES
        while width > 1:
            width //= 2
            halves = [
                self.builder.shuffle_vector(value, value, _places(range(start, start + width))) for start in (0, width)
            ]
            value = self.builder.fadd(*halves)
        return self.builder.extract_element(value, ir.Constant(ir.IntType(32), 0))


def constant(value: int) -> ir.Constant:
    return ir.Constant(ir.IntType(64), value)


def number_at(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """A pointer to one number."""
    return builder.inttoptr(address, ir.FloatType().as_pointer())


def beyond(builder: ir.IRBuilder, address: ir.Value, *ways: tuple[ir.Value, int]) -> ir.Value:
    """An address after so many times some numbers of bytes."""
    for stride, times in ways:
        address = builder.add(address, builder.mul(stride, constant(times)))
    return address


def repeated(
    builder: ir.IRBuilder,
    steps: ir.Value,
    moving: list[tuple[ir.Value, ir.Value]],
    vectors: list[Lanes],
    step: Callable[[list[ir.Value], list[Lanes]], list[Lanes]],
) -> list[Lanes]:
    """What becomes of vectors after so many steps, at least one.

    Parameters
    ----------
    moving
        Addresses of the first step, and how many bytes further each is in the next one.
    step
        From addresses and vectors to the new vectors.
    """
    before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(loop)
    builder.position_at_end(loop)

    def carried(kind: ir.Type, start: ir.Value) -> Any:
        value = builder.phi(kind)
        value.add_incoming(start, before)
        return value

    count = carried(ir.IntType(64), constant(0))
    addresses = [carried(ir.IntType(64), start) for start, _ in moving]
    so_far = [carried(Lanes.type, vector.value) for vector in vectors]
    results = step(addresses, [Lanes(builder, value) for value in so_far])
    counted = builder.add(count, constant(1))
    count.add_incoming(counted, loop)
    for address, (_, by) in zip(addresses, moving, strict=True):
        address.add_incoming(builder.add(address, by), loop)
    for value, result in zip(so_far, results, strict=True):
        value.add_incoming(result.value, loop)
    builder.cbranch(builder.icmp_signed("<", counted, steps), loop, after)
    builder.position_at_end(after)
    return results


def _places(numbers: Iterable[int]) -> ir.Constant:
    listed = list(numbers)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(listed)), listed)


def _product_of_a_few_rows(_, a, row, step, b, steps, total, width, add):  # type: ignore[no-untyped-def]
    """Rows of a product that fit into registers: ROWS of them, two vectors each; the sum runs over the steps.

    ``a`` is a matrix whose rows and steps are so many bytes apart; a step of ``b`` and a row of ``total`` have so much
    ``width``.  Either what is there is added to, or it is written over.
    """

    def write(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> ir.Value:
        a, row, step, b, steps, total, width, add = arguments
        cells = [(i, j) for i in range(ROWS) for j in range(2)]
        vector = constant(LANES * BYTES)
        places = {(i, j): beyond(builder, total, (width, i), (vector, j)) for i, j in cells}
        with builder.if_else(builder.icmp_signed("!=", add, constant(0))) as (there, over):
            with there:
                loaded = {cell: Lanes.at(builder, places[cell]) for cell in cells}
                from_there = builder.block
            with over:
                from_over = builder.block
        start = []
        for cell in cells:
            value = builder.phi(Lanes.type)
            value.add_incoming(loaded[cell].value, from_there)
            value.add_incoming(Lanes.of(builder, 0).value, from_over)
            start.append(Lanes(builder, value))

        def added(addresses: list[ir.Value], sums: list[Lanes]) -> list[Lanes]:
            along, line = addresses
            right = [Lanes.at(builder, beyond(builder, line, (vector, j))) for j in range(2)]
            left = [Lanes.repeating(builder, beyond(builder, along, (row, i))) for i in range(ROWS)]
            return [left[i] * right[j] + so_far for (i, j), so_far in zip(cells, sums, strict=True)]

        for cell, summed in zip(cells, repeated(builder, steps, [(a, step), (b, width)], start, added), strict=True):
            summed.store(places[cell])
        return constant(0)

    return types.intp(*[types.intp] * 8), write


_product_of_rows: Any = intrinsic(_product_of_a_few_rows)


@njit
def product(a, row, step, b, total, rows, columns, steps, add):  # type: ignore[no-untyped-def]
    """Of two matrices; rows and columns are multiples of what is summed at a time."""
    width = BYTES * columns
    for column in range(0, width, COLUMNS * BYTES):
        for i in range(0, rows, ROWS):
            _product_of_rows(a + i * row, row, step, b + column, steps, total + i * width + column, width, add)
