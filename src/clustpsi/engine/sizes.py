"""Sizes that arrays are padded to: only a few, so that programs are compiled only a few times."""


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below a positive number."""
    return 1 << (number - 1).bit_length()


def round_up(length: int) -> int:
    """The next power of two, or three quarters of it."""
    power = power_of_two(max(length, 2))
    return power * 3 // 4 if length <= power * 3 // 4 else power
