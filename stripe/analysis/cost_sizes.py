"""The sizes of tiles that a search may try."""

from __future__ import annotations

from math import isqrt
from typing import Literal, TypeAlias

SizeRule: TypeAlias = Literal["all", "divisors", "powers_of_two"]
EVERY_SIZE = 4096  # up to here a search may try each size of a range


def possible_sizes(size: int, rule: SizeRule) -> tuple[int, ...]:
    """The tile sizes for a range under a rule, ascending, the whole range always among them.

    Of a range beyond EVERY_SIZE, "all" gives every size up to that, then the balanced ones.
    """
    match rule:
        case "divisors":
            low = [n for n in range(1, _root(size) + 1) if size % n == 0]
            return tuple(sorted({*low, *(size // n for n in low)}))
        case "powers_of_two":
            return tuple(sorted({size, *(1 << k for k in range(size.bit_length()) if 1 << k < size)}))
        case _:
            every = range(1, min(size, EVERY_SIZE) + 1)
            return tuple(every) if size <= EVERY_SIZE else tuple(sorted({*every, *balanced_sizes(size)}))


def balanced_sizes(size: int) -> tuple[int, ...]:
    """For each number of tiles, the least size that gives no more tiles: the rest only waste."""
    # A small count gives a large size, a small size v is reached from the count ceil(size / v).
    small = range(1, _root(size) + 2)
    large = {-(-size // count) for count in small}
    return tuple(sorted(large | {-(-size // -(-size // v)) for v in small}))


def _root(size: int) -> int:
    """The square root, bounded so that absurd ranges take no time: then some sizes are missed."""
    return min(isqrt(size), 1 << 16)
