"""What the next tile of a cache will read is asked for while this one is used.

A tile whose rows lie far apart is read by tiles in registers, one after the other:

    block t [n:4, k:64] (in B[64*k, 1024*n] f32(64, 1024):(4096, 1) ...) {
      block c [j:32, m:3] (in B[0, 32*j] f32(64, 32) ...) { block sum [k:64, m:11, n:32] (in B[k, n] ...) } }

Each of these takes a short piece of many rows, and a core fetches ahead only along a row. What comes from
beyond all caches is waited for then, while nothing computes. So all steps of the tiles in registers together
ask for the tile of `t` that follows: evenly, and line after line along its rows, as memory gives the lines of
one page faster than those of many.

What comes from a cache that others use, too, is asked for where a core fetches on along one run of memory,
the next tile is such a run, and tiles in registers take many pieces of it again and again, each on a page of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from codegen_cpu.ahead_copies import following
from codegen_cpu.ahead_squares import APART, reach
from codegen_cpu.layout import View
from codegen_cpu.ll import I64, Value, constant
from codegen_cpu.tools import Tools
from stripe.affine import Affine
from stripe.ir import Block

_ROOM = 3  # tiles that a core's own caches hold: this one, the next, and what else is used
_SHARE = 2  # so large a part of a cache that others use, too, is not there when it is read again
_FEW = 8  # rows side by side, which cores fetch ahead by themselves: some of them if these go past once


@dataclass(frozen=True, slots=True)
class NextTile:
    """The tile behind this one.

    It begins at `start`; its `rows` lie so far apart, and are so many, along each dimension, outermost first,
    and have so many `lines`. It is asked for in `steps` steps, of which `done` were made before those that
    move by `strides` along the loops of a leaf.
    """

    start: Affine
    rows: tuple[tuple[int, int], ...]
    lines: int
    steps: int
    done: Affine
    strides: Mapping[str, int]

    def step(self, indexes: Mapping[str, Affine]) -> Affine:
        """The number of the step at a point of the leaf."""
        return sum((indexes[loop] * stride for loop, stride in self.strides.items()), start=self.done)

    def wanted(self, tools: Tools, step: Affine, width: int) -> Iterator[Affine]:
        """Where the lines begin that one step asks for, of elements of `width` bytes."""
        total = self.lines * prod(count for _, count in self.rows)
        shared = gcd(total, self.steps)
        scaled, parts = step * (total // shared), self.steps // shared
        first = tools.indexing.name(_over(tools, scaled, parts), (0, total))
        for line in range(-(-total // self.steps)):
            left, offset, inner = first + line, self.start, total
            for apart, count in self.rows:
                inner //= count
                at = tools.indexing.name(_over(tools, left, inner), (0, count))
                offset, left = offset + at * apart, left - at * inner
            yield offset + left * (tools.target.line_bytes // width)


def _over(tools: Tools, number: Affine, divisor: int) -> Value:
    """A number that is not negative, divided."""
    value = tools.indexing.value(number)
    return value if divisor == 1 else tools.f.binary("udiv", value, constant(I64, divisor))


def next_tile(
    tools: Tools, block: Block, name: str, view: View, run: int, rows: Mapping[str, int], loops: Sequence[str]
) -> NextTile | None:
    """The tile that follows, of an operand of which a leaf with these `loops` takes `rows`, so far apart, of
    `run` elements. None if it comes from a cache, if the core's own have no room for it, or if it is fetched
    ahead anyway."""
    indexing, target, width, ranges = tools.indexing, tools.target, view.buffer.dtype.bytes, block.ranges
    spans = {loop: indexing.ranges[loop][1] + 1 for loop in indexing.opened}
    moves = {loop: view.offset.coefficient(loop) for loop in spans}
    inside, piece = list[str](), run
    for loop in reversed(spans):
        if moves[loop] == run:
            run *= spans[loop]
        elif moves[loop] and spans[loop] > 1:
            break
        inside.insert(0, loop)
    count, lines = prod(ranges[row] for row in rows), -(-run * width // target.line_bytes)
    around = indexing.opened[: len(spans) - len(inside)]
    once = all(moves[loop] or spans[loop] == 1 for loop in inside)
    reached = reach(tools, block, name, view) + width
    far = reached >= target.shared_cache // _SHARE > 0
    follows = not target.fetches_on or once or count <= _FEW
    if not follows and _in_one_run(rows, ranges, run, max(piece, APART // width)):
        far = far or reached >= target.own_caches > 0
    if not rows or not around or not far or _ROOM * count * run * width > target.own_caches:
        return None
    if target.fetches_rows and once and count <= _FEW:
        return None
    start = sum((Affine.index(loop) * -moves[loop] for loop in inside), start=view.offset)
    strides, done, steps = dict[str, int](), Affine(), 1
    for loop in reversed(loops):
        strides[loop] = steps
        steps *= ranges[loop]
    for loop in reversed(inside):
        done, steps = done + Affine.index(loop) * steps, steps * spans[loop]
    apart = sorted(((step, ranges[row]) for row, step in rows.items()), reverse=True)
    start = start.substitute(following(tools, around))
    return NextTile(start, tuple(apart), lines, steps, done, strides)


def _in_one_run(rows: Mapping[str, int], ranges: Mapping[str, int], run: int, apart: int) -> bool:
    """Whether rows follow each other without a gap, of which the leaf takes pieces more than `apart` elements
    from each other."""
    for row, step in sorted(rows.items(), key=lambda entry: entry[1]):
        if step != run or step <= apart:
            return False
        run *= ranges[row]
    return True
