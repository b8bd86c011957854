"""Sets of a cache: how much of it tiles may fill, and how many rows meet on one set."""

from __future__ import annotations

from collections import Counter
from math import gcd
from typing import Any

import numpy as np

from hwconfigs.model import HwConfig, Memory
from stripe.analysis.bounds import Operand, Sizes

PAGE_BYTES = 4096
NEAR = 32.0  # bytes a cycle, where a memory does not say
SCATTERED = 0.6  # of a cache whose sets depend on where pages lie in memory: what can be counted on


def usable_bytes(memory: Memory) -> int | None:
    """What tiles may fill of a memory. Of a cached one, a way is left to what streams past; where its
    ways are larger than a page, lines meet by chance, and less can be counted on."""
    if memory.bytes is None or memory.kind != "cached" or not memory.ways or memory.ways < 2:
        return memory.bytes
    if _by_chance(memory):
        return int(memory.bytes * SCATTERED)
    return memory.bytes * (memory.ways - 1) // memory.ways


def holding_rate(hw: HwConfig, size: int) -> float:
    """Bytes a cycle from the nearest memory that holds so many."""
    memories = [m for m in hw.memories if m.kind != "registers"]
    holding: Memory | None = next((m for m in memories if size <= (usable_bytes(m) or size)), None)
    found = holding or (memories[-1] if memories else None)
    return (found.bytes_per_cycle if found is not None else None) or NEAR


def _by_chance(memory: Memory) -> bool:
    """Whether the ways of a cache are larger than a page, so that it is chance on which sets a page lies."""
    return bool(memory.bytes and memory.ways and memory.bytes // memory.ways > PAGE_BYTES)


def crowd(operand: Operand, sizes: Sizes, memory: Memory) -> Any:
    """How many rows of a tile of an operand, at most, lie on the same sets of a cache; of sizes that are
    arrays, as many entries. Rows that a stride leaves out are none. Where the ways of a cache are larger than
    a page, on which of their sets a page lies is chance."""
    plain = all(isinstance(size, int) for size in sizes.values())
    least, most, common = (min, max, gcd) if plain else (np.minimum, np.maximum, np.gcd)
    by_chance, line = _by_chance(memory), memory.line_bytes
    crowded: Any = 1
    every: Any = 1
    spaced: Any = 0  # what all rows lie a multiple of apart
    for stride, expr, own in zip(operand.strides, operand.access, operand.extent, strict=True):
        terms = [(abs(factor), sizes[name]) for name, factor in expr.terms if name in sizes]
        step = gcd(*[factor for factor, _ in terms]) if own == 1 and terms else 1
        reached: Any = own
        touched: Any = own
        for factor, size in terms:
            reached = reached + factor // step * (size - 1)
            touched = touched * size
        rows = reached if len(terms) == own == 1 else least(reached, touched)
        apart = abs(stride) * step * operand.dtype.bytes
        if by_chance:
            apart = gcd(apart, PAGE_BYTES)
        if apart >= line:
            crowded = crowded * on_one_set(rows, apart, memory)
            every, spaced = every * rows, common(spaced, apart * (rows > 1))
    return most(crowded, on_one_set(every, spaced, memory))


def on_one_set(rows: Any, step: Any, memory: Memory) -> Any:
    """How many of some rows, `step` bytes apart, lie on the same set of a cache at most."""
    if memory.bytes is None or not memory.ways:
        return 1
    way = memory.bytes // memory.ways
    if isinstance(step, int):  # much sooner found than with arrays
        return 1 if step < memory.line_bytes else -(-rows // (way // gcd(step, way)))
    return np.where(step < memory.line_bytes, 1, -(-rows // (way // np.gcd(step, way))))


def crowds(rows: int, step: int, memory: Memory | None) -> bool:
    """Whether so many rows, `step` bytes apart, are more than some set of a cache has place for."""
    return memory is not None and memory.ways is not None and on_one_set(rows, step, memory) > memory.ways


def pieces_on_one_set(rows: int, step: int, piece: int, memory: Memory) -> int:
    """The same of pieces of rows, so many bytes long each, that begin anywhere within lines."""
    if memory.bytes is None or not memory.ways:
        return 1
    line, way = memory.line_bytes, memory.bytes // memory.ways
    found = Counter[int]()
    for start in (row * step % way for row in range(rows)):
        found.update({at % way // line for at in range(start // line * line, start + min(piece, way), line)})
    return max(found.values(), default=0)
