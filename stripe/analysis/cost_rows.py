"""Rows of tiles in memory: how many there are, how long, and the lines that they touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from operator import itemgetter

import numpy as np

from stripe.analysis.bounds import Counts, Operand, Sizes, box, extents
from stripe.analysis.cost_problem import Costs

BESIDE = 4  # elements: where these are no farther apart, every line between them has some


def runs(operand: Operand, sizes: Sizes, upto: Sizes | None = None) -> tuple[Counts, Counts]:
    """Rows of a tile, and how many places of elements one takes in memory, one after the other: those that
    narrow gaps leave out, too.

    With `upto`, rows that join at any size up to that count as joined.
    """
    rows, run, _ = _rows(operand, sizes, upto)
    return rows, run


def _rows(operand: Operand, sizes: Sizes, upto: Sizes | None) -> tuple[Counts, Counts, Counts]:
    """`runs`, and the elements of which all rows lie a multiple apart; 0 for one row."""
    run = most = np.asarray(1, np.int64)
    rows = np.asarray(1, np.int64)
    apart = np.asarray(0, np.int64)
    whole = np.asarray(True)
    small = extents(operand, sizes)
    large = small if upto is None else extents(operand, upto)
    every = zip(operand.strides, small, large, strict=True)
    for stride, extent, greatest in sorted(every, key=itemgetter(0)):
        if upto is None:
            joined = whole & ((stride == run) | (run == 1) & (stride <= BESIDE))
            longer = np.where(extent > 1, stride * extent, run)
        else:
            joined, longer = whole & (stride <= np.maximum(most, BESIDE)), run * extent
        longest = np.where(greatest > 1, np.maximum(most, stride) * greatest, most)
        joining = np.count_nonzero(joined)
        if joining == joined.size:  # as mostly, of all tiles or of none: then there is less to work out
            run, most = longer, longest
            continue
        apart = np.gcd(apart, np.where(joined | (extent == 1), 0, stride))
        if not joining:
            rows, whole = rows * extent, whole & (extent == 1)
        else:
            rows = rows * np.where(joined, 1, extent)
            whole = joined | (whole & (extent == 1))
            run, most = np.where(joined, longer, run), np.where(joined, longest, most)
    return rows, run, apart


def fetched_bytes(
    operand: Operand,
    sizes: Sizes,
    line: int,
    upto: Sizes | None = None,
    among: Mapping[str, int] | None = None,
) -> Costs:
    """Bytes of a tile in whole lines, where its rows start at a line; with `upto`, at least. One of tiles
    that lie side by side `among` the points of some ranges has rows that start anywhere in a line that their
    strides lead to: so many on average."""
    rows, run, apart = _rows(operand, sizes, upto)
    size = operand.dtype.bytes
    begin: Counts = np.asarray(line, np.int64)
    if among is not None and upto is None:
        begin = np.gcd(begin, apart * size)
        for name, count in among.items():
            tile = np.asarray(sizes.get(name, count), np.int64)
            begin = np.gcd(begin, np.where(tile < count, operand.stride(name) * size * tile, 0))
    return np.asarray(rows * in_lines(run * size, begin, line), float)


def in_lines(length: Counts | int, begin: Counts | int, line: int) -> Counts | int:
    """Bytes in whole lines of so many that lie side by side, on average, where they begin at any multiple of
    `begin`, which divides a line."""
    return -(-length // begin) * begin + line - begin


def runs_of_box(operand: Operand, sizes: Mapping[str, int]) -> tuple[int, int]:
    """`runs` of one tile, in plain integers."""
    run, rows, whole = 1, 1, True
    for stride, extent in sorted(zip(operand.strides, box(operand, sizes), strict=True), key=itemgetter(0)):
        if whole and (stride == run or (run == 1 and stride <= BESIDE)):
            run = stride * extent if extent > 1 else run
        else:
            rows *= extent
            whole = whole and extent == 1
    return rows, run


def jumps(
    operand: Operand, loops: Sequence[str], ranges: Mapping[str, int], run: int = 1, staying: int = 0
) -> int:
    """How often loops, outermost first, come to a place of an operand that is not beside the last one;
    `run` elements that lie one after the other are touched at each step. What so many of the innermost loops
    touch is still near when they begin again: the loop around these goes on at each place where it was left.
    """
    count, joined, beside = 1, True, run
    for inside, name in enumerate(reversed(loops)):
        stride = abs(operand.stride(name))
        joined = joined and stride <= run
        if joined:
            run += stride * (ranges[name] - 1)
        elif stride and not (stride <= beside and inside <= staying):
            count *= ranges[name]
    return count


def box_bytes(operand: Operand, sizes: Mapping[str, int], line: int) -> float:
    """`fetched_bytes` of one of tiles that lie side by side, in plain integers: its rows start anywhere in a
    line that the strides of the operand lead to."""
    rows, run = runs_of_box(operand, sizes)
    size = operand.dtype.bytes
    begin = gcd(line, *(abs(s) * size for s in operand.strides if abs(s) >= run))
    return float(rows * in_lines(run * size, begin, line))


def bytes_again(operands: Sequence[Operand], ranges: Mapping[str, int], line: int) -> float | None:
    """For a walk through `ranges`, outermost first, that takes the elements of each operand in the order of
    their addresses: the bytes that it takes again and again. None if it goes back and forth."""
    total = 0.0
    for operand in operands:
        end = 0
        inside: dict[str, int] = {}
        again: dict[str, int] = {}
        for name, size in reversed(tuple(ranges.items())):
            step = abs(operand.stride(name))
            if step and step < end:
                return None
            if step:
                inside[name], end = size, step * size
            elif inside and size > 1:
                again = dict(inside)
        if again:
            total += box_bytes(operand, {**dict.fromkeys(ranges, 1), **again}, line)
    return total
