"""Loops that are written for vector registers, because the compiler finds no use for them there by itself.

They are used in functions that Numba compiles, which work on addresses of single-precision numbers.
"""

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.extending import intrinsic

# Numbers in a vector register, and rows of a product that are summed at a time, in two registers each.
LANES, ROWS = (16, 8) if binding.get_host_cpu_features().get("avx512f") else (8, 4)
COLUMNS = 2 * LANES
BYTES = 4  # of a number


class Lanes:
    """Numbers side by side in a vector register, in a program that is being written."""

    type = ir.VectorType(ir.FloatType(), LANES)
    zero = ir.Constant(type, [ir.Constant(ir.FloatType(), 0.0)] * LANES)

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: "Lanes") -> "Lanes":
        return Lanes(self.builder, self.builder.fadd(self.value, other.value, flags=("contract",)))

    def __sub__(self, other: "Lanes") -> "Lanes":
        return Lanes(self.builder, self.builder.fsub(self.value, other.value, flags=("contract",)))

    def __rmul__(self, factor: float) -> "Lanes":
        same = ir.Constant(self.type, [ir.Constant(ir.FloatType(), float(np.float32(factor)))] * LANES)
        return Lanes(self.builder, self.builder.fmul(same, self.value, flags=("contract",)))


def constant(value: int) -> ir.Constant:
    return ir.Constant(ir.IntType(64), value)


def _product_of_a_few_rows(_, a, row, step, b, steps, total, width, add):  # type: ignore[no-untyped-def]
    """Rows of a product that fit into registers: ROWS of them, two vectors each; the sum runs over the steps.

    ``a`` is a matrix whose rows and steps are so many bytes apart; a step of ``b`` and a row of ``total`` have so much
    ``width``.  Either what is there is added to, or it is written over.
    """

    def write(_: Any, builder: ir.IRBuilder, __: Any, arguments: Any) -> ir.Value:
        a, row, step, b, steps, total, width, add = arguments
        vector, single = Lanes.type.as_pointer(), ir.FloatType().as_pointer()
        cells = [(i, j) for i in range(ROWS) for j in range(2)]

        def at(base: ir.Value, stride: ir.Value, times: int, beyond: int = 0) -> ir.Value:
            line = builder.add(base, builder.mul(stride, constant(times)))
            return builder.add(line, constant(beyond * LANES * BYTES))

        places = {(i, j): builder.inttoptr(at(total, width, i, j), vector) for i, j in cells}
        rows = [at(a, row, i) for i in range(ROWS)]
        with builder.if_else(builder.icmp_signed("!=", add, constant(0))) as (there, over):
            with there:
                loaded = {cell: builder.load(places[cell], align=BYTES) for cell in cells}
                from_there = builder.block
            with over:
                from_over = builder.block
        sums = {}
        for cell in cells:
            sums[cell] = builder.phi(Lanes.type)
            sums[cell].add_incoming(loaded[cell], from_there)
            sums[cell].add_incoming(Lanes.zero, from_over)

        before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        builder.branch(loop)
        builder.position_at_end(loop)

        def carried(kind: ir.Type, start: ir.Value) -> Any:
            value = builder.phi(kind)
            value.add_incoming(start, before)
            return value

        count, along, line = (carried(ir.IntType(64), start) for start in (constant(0), constant(0), b))
        so_far = {cell: carried(Lanes.type, sums[cell]) for cell in cells}
        right = [builder.load(builder.inttoptr(at(line, width, 0, j), vector), align=BYTES) for j in range(2)]
        undefined = ir.Constant(Lanes.type, ir.Undefined)
        first = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
        summed = {}
        for i in range(ROWS):
            left = builder.load(builder.inttoptr(builder.add(rows[i], along), single), align=BYTES)
            left = builder.insert_element(undefined, left, ir.Constant(ir.IntType(32), 0))
            left = Lanes(builder, builder.shuffle_vector(left, undefined, first))
            for j in range(2):
                times = builder.fmul(left.value, right[j], flags=("contract",))
                summed[i, j] = builder.fadd(times, so_far[i, j], flags=("contract",))
        counted = builder.add(count, constant(1))
        count.add_incoming(counted, loop)
        along.add_incoming(builder.add(along, step), loop)
        line.add_incoming(builder.add(line, width), loop)
        for cell in cells:
            so_far[cell].add_incoming(summed[cell], loop)
        builder.cbranch(builder.icmp_signed("<", counted, steps), loop, after)
        builder.position_at_end(after)
        for cell in cells:
            builder.store(summed[cell], places[cell], align=BYTES)
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
