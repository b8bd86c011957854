"""What copies will read is asked for while the copy made before is used.

A copy between loops stands in front of tiles that read it again and again:

    block t [d:48] (in X[0, d] ...  new X_packed) {
      block X_pack [...] (in X ...  out X_packed ...)
      block c [n:24] (in X_packed ...) { the tiles }

While the tiles compute, memory rests; while a copy is made, nothing computes. So each point of the loops
between copy and tiles asks for a part of what the copy reads at the next point of `t`, in the last cache that
a core has for itself. The parts are boxes: each of these loops cuts the dimension that it divides best into
as many pieces as it has steps. No loop goes on behind the last piece: what lies there is not wanted. A core
that fetches on behind what it is asked for would bring that, too, while tiles wait for lines of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, prod

from codegen_cpu.layout import View
from codegen_cpu.ll import I1, I64, constant
from codegen_cpu.scope import Coming, Scope, step_along, viewed
from codegen_cpu.tools import Tools
from stripe.affine import Affine
from stripe.ir import Block, Direction, Load, Store

_SECOND = 2  # the cache that a line is brought to, as LLVM counts
_WRITTEN_OUT = 16  # requests that stand side by side


def asks(block: Block) -> Block | None:
    """The child of a block whose loops ask for what copies beside it will read: the nest with most points."""
    nests = (child for child in block.children if child.children)
    return max(nests, key=_points, default=None)


def _points(block: Block) -> int:
    return block.points * sum(map(_points, block.children)) if block.children else 1


def coming(tools: Tools, block: Block, scope: Scope) -> Coming | None:
    """What a block that copies reads at the next point of the loops around it. None where all that these read
    stays in the core's own caches, where what is asked for would not stay there beside the copy, and on a
    core that fetches on by itself."""
    reads = [ref for ref in block.refinements if ref.direction is Direction.IN]
    copies = len(reads) == 1 and all(isinstance(s, Load | Store) for s in block.statements)
    own, indexing = tools.target.own_caches, tools.indexing
    if tools.target.fetches_on or block.children or not copies:
        return None
    if scope.views[reads[0].source].buffer.spare is not None:
        return None
    (ref,) = reads
    first = {**scope.enter(block).indexes, **dict.fromkeys(block.ranges, Affine())}
    view = viewed(ref, scope.views[ref.source], first)
    along = {
        abs(step_along(ref, view.strides, name)): size for name, size in block.ranges.items() if size > 1
    }
    steps = box_lines(along, view, tools.target.line_bytes)
    moving = [loop for loop in indexing.opened if loop in view.offset.names]
    once = prod(count for _, count in steps) * tools.target.line_bytes
    if 2 * once > own or once * prod(indexing.ranges[loop][1] + 1 for loop in moving) <= own:
        return None
    within = indexing.opened[: indexing.opened.index(moving[-1]) + 1]
    return Coming(view.buffer, view.offset.substitute(following(tools, within)), steps, len(indexing.opened))


def box_lines(along: dict[int, int], view: View, line: int) -> tuple[tuple[int, int], ...]:
    """The lines, of so many bytes, of a box whose elements lie so far apart, and so many, along its
    dimensions."""
    size, run, rows = view.buffer.dtype.bytes, 1, list[tuple[int, int]]()
    for step, count in sorted(along.items()):
        if step <= run and not rows:
            run += step * (count - 1)
        elif step:
            rows.insert(0, (step, count))
    places = (*(step for step, _ in rows), *(factor for _, factor in view.offset.terms), view.offset.const)
    begins = line - gcd(line, *(size * place for place in places))  # in a line, at most
    return (*rows, (line // size, -(-(run * size + begins) // line)))


def following(tools: Tools, loops: Sequence[str]) -> dict[str, Affine]:
    """The values of loops, outermost first, at their next point."""
    f, indexing, found, carry = tools.f, tools.indexing, dict[str, Affine](), constant(I1, True)
    for loop in reversed(loops):
        value, (_, last) = indexing.value(Affine.index(loop)), indexing.ranges[loop]
        ends = f.compare("icmp eq", value, constant(I64, last))
        onward = f.select(ends, constant(I64, 0), f.binary("add nsw", value, constant(I64, 1)))
        found[loop] = indexing.name(f.select(carry, onward, value), (0, last))
        carry = f.binary("and", carry, ends)
    return found


def ask(tools: Tools, wanted: Coming) -> None:
    """At a point of the loops that were opened since: ask for a part."""
    indexing, start, left = tools.indexing, wanted.start, list(wanted.steps)
    for loop in indexing.opened[wanted.open :]:
        turns = indexing.ranges[loop][1] + 1
        at = max(range(len(left)), key=lambda number: left[number][1] / -(-left[number][1] // turns))
        step, count = left[at]
        piece = -(-count // turns)
        if piece == count:
            continue
        first = Affine.index(loop) * piece
        if turns * piece > count:
            least = tools.f.intrinsic("smin", [indexing.value(first), constant(I64, count - piece)])
            first = indexing.name(least, (0, count - piece))
        start, left[at] = start + first * step, (step, piece)
    for offset in each_line(tools, start, left):
        tools.accesses.ask(wanted.buffer, offset, _SECOND)


def each_line(tools: Tools, start: Affine, steps: Sequence[tuple[int, int]]) -> Iterator[Affine]:
    """Where the lines of a box lie; what the caller emits while it holds one is done for it."""
    steps = sorted((entry for entry in steps if entry[1] > 1), reverse=True)
    if prod(count for _, count in steps) <= _WRITTEN_OUT:
        offsets = [start]
        for step, count in steps:
            offsets = [offset + step * number for offset in offsets for number in range(count)]
        yield from offsets
        return
    (step, count), *inner = steps
    loop = tools.indexing.open("asked", constant(I64, 0), constant(I64, count), 1, (0, count - 1))
    yield from each_line(tools, start + loop.value * step, inner)
    tools.indexing.close(loop)
