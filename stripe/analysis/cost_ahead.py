"""How far ahead of its use a line can be asked for, so that it is near when code comes to it.

A line that was asked for waits in the nearest cache. Lines that are a power of two apart share few sets of
it: were more on their way than these have room for, each would push out one that nobody has used yet. Half
of the room is for those; in the other half lies what is being used.
"""

from __future__ import annotations

from collections.abc import Collection
from math import gcd

from hwconfigs.model import LINE_BYTES, Memory

AHEAD = 2048  # bytes: what a loop takes while a line comes from the caches behind the nearest


def steps_ahead(lines: int, apart: Collection[int], near: Memory | None) -> int:
    """How many steps of a loop ahead a line is asked for, at least one: each step takes so many `lines`,
    along operands whose steps are so many bytes `apart`."""
    line = near.line_bytes if near is not None else LINE_BYTES
    wanted = max(1, AHEAD // (max(lines, 1) * line))
    if near is None or not near.bytes or not near.ways:
        return wanted
    way = near.bytes // near.ways
    room = (near.ways // 2 * (way // gcd(step, way)) for step in apart if step)
    return max(1, min((wanted, *room)))
