"""Compiled loops that find the first pass of the Dirichlet partition in which every client gets enough samples.

A pass uses the same random numbers as NumPy's ``RandomState``: Mersenne Twister, ``shuffle``, ``dirichlet``.  Nothing
is shuffled here.  The numbers that shuffling would use are drawn and thrown away, which is several times faster.
"""

from math import log, sqrt

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
State = NDArray[np.uint32]

#: Words of the Mersenne Twister: its key, the next numbers it gives, and how many of these are used up.
WORDS = 624

_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def first_good_pass(
    class_sizes: Integers, num_clients: int, alpha: float, seed: int, begin: int, end: int, min_samples: int
) -> tuple[int, int]:
    """The first of the passes from `begin` up to `end` after which every client has `min_samples`, or -1.

    Also returns the largest size that the smallest client had in any pass so far.
    """
    classes, rows = len(class_sizes), 0
    for size in class_sizes:
        rows += size
    fair_share = rows / num_clients
    key, numbers, used = np.empty(WORDS, np.uint32), np.empty(WORDS, np.uint32), np.zeros(1, np.int64)
    held, shares = np.empty(num_clients, np.int64), np.empty(num_clients)
    most = 0
    for number in range(begin, end):
        for client in range(num_clients):
            held[client] = 0
        smallest = 0
        for label in range(classes):
            _seed(key, used, seed + 100 * (number * classes + label))
            _skip_shuffle(key, numbers, used, class_sizes[label])
            _dirichlet(key, numbers, used, alpha, shares)
            for client in range(num_clients):
                if held[client] >= fair_share:
                    shares[client] *= 0.0
            total = _pairwise_sum(shares)
            if not total > 0:  # the pass has failed
                smallest = 0
                break
            share, before, smallest = 0.0, 0, rows
            for client in range(num_clients):
                share += shares[client] / total
                after = class_sizes[label] if client == num_clients - 1 else int(share * class_sizes[label])
                held[client] += after - before
                before, smallest = after, min(smallest, held[client])
        most = max(most, smallest)
        if most >= min_samples:
            return number, most
    return -1, most


@_compiled
def _seed(key: State, used: Integers, seed: int) -> None:
    word = np.uint64(seed)
    for i in range(WORDS):
        key[i] = word
        word = (np.uint64(1812433253) * (word ^ (word >> np.uint64(30))) + np.uint64(i + 1)) & np.uint64(0xFFFFFFFF)
    used[0] = WORDS


@_compiled
def _refill(key: State, numbers: State, used: Integers) -> None:
    """The next 624 random numbers."""
    # In three stretches, each of which reads what the one before it has written, so that they fill vector registers.
    for begin, end, ahead in ((0, 227, 397), (227, 623, -227), (623, 624, -227)):
        for i in range(begin, end):
            mixed = (key[i] & np.uint32(0x80000000)) | (key[(i + 1) % WORDS] & np.uint32(0x7FFFFFFF))
            key[i] = key[i + ahead] ^ (mixed >> np.uint32(1)) ^ (np.uint32(0x9908B0DF) * (mixed & np.uint32(1)))
    for i in range(WORDS):
        word = key[i]
        word ^= word >> np.uint32(11)
        word ^= (word << np.uint32(7)) & np.uint32(0x9D2C5680)
        word ^= (word << np.uint32(15)) & np.uint32(0xEFC60000)
        numbers[i] = word ^ (word >> np.uint32(18))
    used[0] = 0


@_compiled
def _skip_shuffle(key: State, numbers: State, used: Integers, rows: int) -> None:
    """Throw away what shuffling draws: for each row i except row 0, numbers until one, cut to i's bits, is <= i."""
    row, mask = rows - 1, 1
    while mask < row:
        mask = 2 * mask + 1
    position = used[0]
    while row > 0:
        if position == WORDS:
            _refill(key, numbers, used)
            position = 0
        while position < WORDS and row > mask >> 1:
            row -= 1 if numbers[position] & mask <= row else 0
            position += 1
        if row <= mask >> 1:
            mask >>= 1
    used[0] = position


@_compiled
def _uniform(key: State, numbers: State, used: Integers) -> float:
    """53 random bits, from 0 up to but not including 1."""
    if used[0] >= WORDS - 1:  # a refill is due; apart, so that the rest stays short
        high = _number(key, numbers, used)
        low = _number(key, numbers, used)
    else:
        high, low = int(numbers[used[0]]), int(numbers[used[0] + 1])
        used[0] += 2
    return ((high >> 5) * 67108864.0 + (low >> 6)) / 9007199254740992.0


@_compiled
def _number(key: State, numbers: State, used: Integers) -> int:
    if used[0] == WORDS:
        _refill(key, numbers, used)
    used[0] += 1
    return int(numbers[used[0] - 1])


@_compiled
def _dirichlet(key: State, numbers: State, used: Integers, alpha: float, shares: Floats) -> None:
    """A symmetric Dirichlet draw, from gamma variates."""
    spare = np.full(1, np.nan)
    total = 0.0
    for client in range(len(shares)):
        if alpha == 1.0:
            shares[client] = _exponential(key, numbers, used)
        elif alpha < 1.0:
            shares[client] = _small_gamma(key, numbers, used, alpha)
        else:
            shares[client] = _large_gamma(key, numbers, used, alpha, spare)
        total += shares[client]
    inverse = 1.0 / total
    for client in range(len(shares)):
        shares[client] *= inverse


@_compiled
def _exponential(key: State, numbers: State, used: Integers) -> float:
    return -log(1.0 - _uniform(key, numbers, used))


@_compiled
def _small_gamma(key: State, numbers: State, used: Integers, shape: float) -> float:
    """NumPy's gamma variate of a shape below 1, by rejection from two pieces."""
    while True:
        uniform, limit = _uniform(key, numbers, used), _exponential(key, numbers, used)
        if uniform <= 1.0 - shape:
            found = uniform ** (1.0 / shape)
        else:
            tail = -log((1.0 - uniform) / shape)
            found = (1.0 - shape + shape * tail) ** (1.0 / shape)
            limit += tail
        if found <= limit:
            return float(found)


@_compiled
def _large_gamma(key: State, numbers: State, used: Integers, shape: float, spare: Floats) -> float:
    """NumPy's gamma variate of a shape above 1: Marsaglia and Tsang's cube of a normal variate."""
    mode = shape - 1.0 / 3.0
    width = 1.0 / sqrt(9.0 * mode)
    while True:
        normal = _normal(key, numbers, used, spare)
        cube = 1.0 + width * normal
        if cube <= 0.0:
            continue
        cube = cube * cube * cube
        uniform = _uniform(key, numbers, used)
        if uniform < 1.0 - 0.0331 * (normal * normal) * (normal * normal):
            return mode * cube
        if log(uniform) < 0.5 * normal * normal + mode * (1.0 - cube + log(cube)):
            return mode * cube


@_compiled
def _normal(key: State, numbers: State, used: Integers, spare: Floats) -> float:
    """A normal variate by the polar method, which makes two at a time: the other is kept in `spare`."""
    if spare[0] == spare[0]:
        normal, spare[0] = spare[0], np.nan
        return float(normal)
    while True:
        first = 2.0 * _uniform(key, numbers, used) - 1.0
        second = 2.0 * _uniform(key, numbers, used) - 1.0
        squared = first * first + second * second
        if 0.0 < squared < 1.0:
            factor = sqrt(-2.0 * log(squared) / squared)
            spare[0] = factor * first
            return factor * second


@_compiled
def _pairwise_sum(values: Floats) -> float:
    """NumPy's sum, to the last bit: of stretches of up to 128 numbers, then of pairs of sums.

    Without recursion, which Numba's cache does not survive.
    """
    begins, ends, sums = np.empty(64, np.int64), np.empty(64, np.int64), np.empty(64)
    begins[0], ends[0] = 0, len(values)
    waiting, done = 1, 0
    while waiting:
        waiting -= 1
        begin, number = begins[waiting], ends[waiting] - begins[waiting]
        if number < 0:  # both halves are summed
            done -= 1
            sums[done - 1] += sums[done]
        elif number <= 128:
            sums[done] = _short_sum(values[begin : begin + number])
            done += 1
        else:
            middle = begin + number // 2 - number // 2 % 8
            begins[waiting], ends[waiting] = 1, 0
            begins[waiting + 1], ends[waiting + 1] = middle, begin + number
            begins[waiting + 2], ends[waiting + 2] = begin, middle
            waiting += 3
    return float(sums[0])


@_compiled
def _short_sum(values: Floats) -> float:
    parts, whole = np.zeros(8), len(values) - len(values) % 8
    for i in range(whole):
        parts[i % 8] += values[i]
    total = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]))
    for i in range(whole, len(values)):
        total += values[i]
    return float(total)
