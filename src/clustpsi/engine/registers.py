"""Numbers side by side in vector registers, as values in functions that Numba compiles.

A batch is worked on by :data:`ROWS` rows at a time: an operation is an instruction or a few, whatever the processor's
registers hold.  Left to itself, the compiler writes a dozen checks around every loop over so few rows.  Nothing is
reordered or contracted here unless a name says so, and so the results have the same bits wherever these are used.
Numba keeps compiled loops by the file that they stand in: after a change here, those of softmax_regression.py must be
compiled anew (remove ``__pycache__``).
"""

import operator
from collections.abc import Callable
from decimal import Decimal
from inspect import signature
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

# How many rows are worked on at a time, rows are summed side by side, and columns are copied at once.
ROWS, SUMMED, COPIED = 32, 8, 4

SINGLE, DOUBLE, WORD, INTEGER = ir.FloatType(), ir.DoubleType(), ir.IntType(64), ir.IntType(32)
BYTES = 4  # of a number
PERMUTES = bool(binding.get_host_cpu_features().get("avx512f"))

# For exp(x) = 2^(k/32) 2^(r/32) with a whole k and |r| <= 1/2: what turns x into k + r, the bits of 2^(i/32) without
# the share of i in the exponent, and a polynomial in r for the second factor.  Its coefficients are those of the C
# library's expf, which come from Arm's optimized routines.
PER_OCTAVE = 32
FACTOR = float.fromhex("0x1.71547652b82fep+0") * PER_OCTAVE  # 32 / log 2
WHOLE = 1.5 * 2.0**52  # adding it leaves a whole number, in the lowest bits
POWERS = np.array([float(Decimal(2) ** (Decimal(i) / PER_OCTAVE)) for i in range(PER_OCTAVE)]).view(np.int64)
POWERS -= np.arange(PER_OCTAVE) << 47  # 52 bits of mantissa, 5 bits of i
R1 = float.fromhex("0x1.62e42ff0c52d6p-1") / PER_OCTAVE
R2 = float.fromhex("0x1.ebfce50fac4f3p-3") / PER_OCTAVE**2
R3 = float.fromhex("0x1.c6af84b912394p-5") / PER_OCTAVE**3
LEAST = -104.0  # exp of less is zero in single precision


# Numba has no types for what it is made of.
utilities: Any = cgutils
pointer: Any = types.CPointer


class Numbers(types.Type):
    """The type of so many numbers side by side, single or double."""

    def __init__(self, width: int, element: ir.Type = SINGLE) -> None:
        self.vector = ir.VectorType(element, width)
        super().__init__(name=f"Numbers({self.vector})")


@register_model(Numbers)
class _InRegisters(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Numbers) -> None:
        super().__init__(manager, kind, kind.vector)  # type: ignore[no-untyped-call]


SIDE, EIGHT, DOUBLES = Numbers(ROWS), Numbers(SUMMED), Numbers(SUMMED, DOUBLE)
SINGLES, INTEGERS, WORDS = (pointer(kind) for kind in (types.float32, types.int32, types.int64))


def _instructions(result: Any, *expected: Any) -> Callable[[Callable[..., ir.Value | None]], Any]:
    """Decorates what writes the instructions of a function with these types.

    If there is no type of the result, it has the type of the arguments, which is the same for all.
    """

    def decorate(write: Callable[..., ir.Value | None]) -> Any:
        def typed(_: Any, *given: Any) -> Any:
            kinds = given[:1] * len(given) if result is None else expected

            def generate(_: Any, builder: ir.IRBuilder, __: Any, values: Any) -> ir.Value:
                return write(builder, *values) or ir.Constant(WORD, 0)

            return (result or kinds[0])(*kinds), generate

        typed.__name__, typed.__doc__ = write.__name__, write.__doc__
        typed.__signature__ = signature(write)  # type: ignore[attr-defined]  # after a first parameter, Numba's context
        return intrinsic(typed)

    return decorate


# --------------------------------------------------------------------------------------------- what LLVM's values need


def _all(kind: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)


def _places(numbers: Any) -> ir.Constant:
    numbers = list(numbers)
    return ir.Constant(ir.VectorType(INTEGER, len(numbers)), numbers)


def _picked(builder: ir.IRBuilder, numbers: Any, a: ir.Value, b: ir.Value | None = None) -> ir.Value:
    """Of the numbers of one or two vectors, counted on, those with these places."""
    return builder.shuffle_vector(a, ir.Constant(a.type, ir.Undefined) if b is None else b, _places(numbers))


def _joined(builder: ir.IRBuilder, parts: list[ir.Value]) -> ir.Value:
    while len(parts) > 1:
        both = range(2 * parts[0].type.count)
        parts = [_picked(builder, both, *pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _everywhere(builder: ir.IRBuilder, value: ir.Value, width: int) -> ir.Value:
    empty = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    return _picked(builder, [0] * width, builder.insert_element(empty, value, ir.Constant(INTEGER, 0)))


def _at(builder: ir.IRBuilder, array: ir.Value, index: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.bitcast(builder.gep(array, [index]), kind.as_pointer())


def _word(value: int) -> ir.Constant:
    return ir.Constant(WORD, value)


def _called(builder: ir.IRBuilder, name: str, *arguments: ir.Value) -> ir.Value:
    """The result of one of LLVM's own functions, which has the type of the arguments."""
    kind = ir.FunctionType(arguments[0].type, [each.type for each in arguments])
    return builder.call(utilities.get_or_insert_function(builder.module, kind, name), arguments)


# --------------------------------------------------------------------------------------------------- from and to memory


def _start_of(_, array):  # type: ignore[no-untyped-def]
    """Where an array's numbers start.  Whoever uses this must keep the array."""

    def write(context: Any, builder: ir.IRBuilder, types_: Any, values: Any) -> ir.Value:
        return context.make_array(types_.args[0])(context, builder, values[0]).data

    return pointer(array.dtype)(array), write


start_of: Any = intrinsic(_start_of)


def _loads(kind: Numbers) -> Any:
    def load(builder: ir.IRBuilder, array: ir.Value, index: ir.Value) -> ir.Value:
        return builder.load(_at(builder, array, index, kind.vector), align=BYTES)

    return _instructions(kind, SINGLES, types.intp)(load)


load, load_eight = _loads(SIDE), _loads(EIGHT)


@_instructions(types.intp, SINGLES, types.intp, SIDE)
def store(builder: ir.IRBuilder, array: ir.Value, index: ir.Value, numbers: ir.Value) -> None:
    builder.store(numbers, _at(builder, array, index, SIDE.vector), align=BYTES)


@_instructions(SIDE, types.float32)
def same(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    """One number, everywhere."""
    return _everywhere(builder, number, ROWS)


@_instructions(EIGHT, types.float32)
def same_eight(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    return _everywhere(builder, number, SUMMED)


@_instructions(types.intp, INTEGERS, types.intp, types.intp, WORDS)
def row_starts(builder: ir.IRBuilder, numbers: ir.Value, index: ir.Value, stride: ir.Value, starts: ir.Value) -> None:
    """Where rows of a table start, by their numbers."""
    words = ir.VectorType(WORD, ROWS)
    number = builder.load(_at(builder, numbers, index, ir.VectorType(INTEGER, ROWS)), align=BYTES)
    found = builder.mul(builder.sext(number, words), _everywhere(builder, stride, ROWS))
    builder.store(found, builder.bitcast(starts, words.as_pointer()), align=2 * BYTES)


@_instructions(types.intp, WORDS, SINGLES, types.intp, SINGLES, types.intp, types.intp)
def copy_columns(
    builder: ir.IRBuilder, starts: ir.Value, table: ir.Value, column: ir.Value, into: ir.Value, place: ir.Value,
    between: ir.Value,
) -> None:  # fmt: skip
    """Of rows of a table, by where they start: COPIED columns, as lines with so much in between."""
    few, sixteen = ir.VectorType(SINGLE, COPIED), COPIED**2
    table = builder.gep(table, [column])

    def few_of(row: int) -> ir.Value:
        start = builder.load(builder.gep(starts, [_word(row)]))
        return builder.load(_at(builder, table, start, few), align=BYTES)

    def within(*picked: int) -> list[int]:
        """Places of two vectors, the same in each part of a few numbers."""
        return [p % COPIED + part + p // COPIED * sixteen for part in range(0, sixteen, COPIED) for p in picked]

    for first in range(0, ROWS, sixteen):
        # Every COPIED-th row is in the same vector, so each part holds a square, which is transposed.
        a, b, c, d = (
            _joined(builder, [few_of(row) for row in range(first + i, first + sixteen, COPIED)]) for i in range(COPIED)
        )
        low_halves = [_picked(builder, within(0, 4, 1, 5), *pair) for pair in ((a, b), (c, d))]
        high_halves = [_picked(builder, within(2, 6, 3, 7), *pair) for pair in ((a, b), (c, d))]
        lines = [
            _picked(builder, within(*places), *halves)
            for halves in (low_halves, high_halves)
            for places in ((0, 1, 4, 5), (2, 3, 6, 7))
        ]
        for i, line in enumerate(lines):
            start = builder.add(builder.add(place, _word(first)), builder.mul(between, _word(i)))
            builder.store(line, _at(builder, into, start, line.type), align=BYTES)


# ----------------------------------------------------------------------------------------------------------- arithmetic


def _operation(name: str, python: Any) -> None:
    def write(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
        return getattr(builder, name)(a, b)

    written = _instructions(None)(write)

    @overload(python)
    def operation(a, b):  # type: ignore[no-untyped-def]
        if isinstance(a, Numbers) and a == b:
            return lambda a, b: written(a, b)
        return None


for _name, _python in (
    ("fadd", operator.add),
    ("fsub", operator.sub),
    ("fmul", operator.mul),
    ("fdiv", operator.truediv),
):
    _operation(_name, _python)


@_instructions(None)
def times_plus(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """a b + c, rounded once if the processor can."""
    return builder.fadd(builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))


@_instructions(None)
def larger(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered(">", b, a), b, a)


@_instructions(None)
def smaller(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


@_instructions(None)
def root(builder: ir.IRBuilder, a: ir.Value) -> ir.Value:
    return _called(builder, f"llvm.sqrt.v{a.type.count}f32", a)


@_instructions(None)
def where_equal(builder: ir.IRBuilder, x: ir.Value, y: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """a where x is y, otherwise b."""
    return builder.select(builder.fcmp_ordered("==", x, y), a, b)


@_instructions(None)
def exponential(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """``expf`` of numbers that are not positive, with the bits of the C library's, on any machine."""
    width = x.type.count
    double, word = ir.VectorType(DOUBLE, width), ir.VectorType(WORD, width)
    least = _all(x.type, LEAST)
    x = builder.fpext(builder.select(builder.fcmp_ordered("<", x, least), least, x), double)
    scaled = builder.fmul(_all(double, FACTOR), x)
    shifted = builder.fadd(scaled, _all(double, WHOLE))
    r = builder.fsub(scaled, builder.fsub(shifted, _all(double, WHOLE)))
    k = builder.bitcast(shifted, word)
    power = builder.bitcast(builder.add(_powers_of(builder, k), builder.shl(k, _all(word, 47))), double)
    line = builder.fadd(builder.fmul(_all(double, R1), r), _all(double, 1.0))
    curve = builder.fmul(builder.fadd(builder.fmul(_all(double, R3), r), _all(double, R2)), builder.fmul(r, r))
    return builder.fptrunc(builder.fmul(builder.fadd(curve, line), power), ir.VectorType(SINGLE, width))


def _powers_of(builder: ir.IRBuilder, k: ir.Value) -> ir.Value:
    """POWERS[k % PER_OCTAVE].  AVX-512 picks them from registers, which takes half of the time of reading them."""
    powers = [_word(int(power)) for power in POWERS]
    if PERMUTES:
        eight, half = ir.VectorType(WORD, 8), PER_OCTAVE // 2
        tables = [ir.Constant(eight, powers[i : i + 8]) for i in range(0, PER_OCTAVE, 8)]
        permute, parts = "llvm.x86.avx512.vpermi2var.q.512", []
        for i in range(0, k.type.count, 8):
            own = _picked(builder, range(i, i + 8), k)
            low, high = (_called(builder, permute, tables[j], own, tables[j + 1]) for j in (0, 2))  # by the lowest bits
            upper = builder.icmp_signed("!=", builder.and_(own, _all(eight, half)), _all(eight, 0))
            parts.append(builder.select(upper, high, low))
        return _joined(builder, parts)
    index, found = builder.and_(k, _all(k.type, PER_OCTAVE - 1)), ir.Constant(k.type, ir.Undefined)
    table = utilities.global_constant(builder, "powers_of_two", ir.Constant(ir.ArrayType(WORD, PER_OCTAVE), powers))
    for i in range(k.type.count):
        place = builder.extract_element(index, ir.Constant(INTEGER, i))
        entry = builder.load(builder.gep(table, [_word(0), place]))
        found = builder.insert_element(found, entry, ir.Constant(INTEGER, i))
    return found


# ----------------------------------------------------------------------------------------------------------------- sums


@_instructions(types.float32, EIGHT)
def sum_of(builder: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    """The sum of eight: that of the halves' sum, and so on."""
    return _reduced(builder, builder.fadd, numbers)


@_instructions(types.float64, DOUBLES)
def product_of(builder: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    return _reduced(builder, builder.fmul, numbers)


def _reduced(builder: ir.IRBuilder, operation: Any, numbers: ir.Value) -> ir.Value:
    while numbers.type.count > 1:
        half = numbers.type.count // 2
        halves = (_picked(builder, range(first, first + half), numbers) for first in (0, half))
        numbers = operation(*halves)
    return builder.extract_element(numbers, ir.Constant(INTEGER, 0))


@_instructions(types.intp, SINGLES, types.intp, EIGHT, EIGHT, EIGHT, EIGHT)
def store_sums(
    builder: ir.IRBuilder, into: ir.Value, index: ir.Value, a: ir.Value, b: ir.Value, c: ir.Value, d: ir.Value
) -> None:
    """The sums of four times eight, each as :func:`sum_of`, side by side."""

    def added(x: ir.Value, y: ir.Value, first: list[int], second: list[int]) -> ir.Value:
        return builder.fadd(_picked(builder, first, x, y), _picked(builder, second, x, y))

    halves = ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])
    quarters = ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15])
    four = added(added(a, b, *halves), added(c, d, *halves), *quarters)  # two of a, of c, of b, of d
    sums = builder.fadd(_picked(builder, [0, 4, 2, 6], four), _picked(builder, [1, 5, 3, 7], four))
    builder.store(sums, _at(builder, into, index, sums.type), align=BYTES)


@_instructions(DOUBLES, EIGHT)
def as_doubles(builder: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    return builder.fpext(numbers, DOUBLES.vector)


@_instructions(DOUBLES)
def ones(builder: ir.IRBuilder) -> ir.Value:
    return _all(DOUBLES.vector, 1.0)
