"""Results that go past the caches: written once, line by line, and too large to stay in one that is fast.

A store to a line that no cache holds fetches the line first, and pushes out another one. A streaming
store does neither. It takes whole aligned lines, or parts of them by vectors that fill one line after
the other, so that code for it runs where the caller's array starts at a line; the same code without it
stands beside it: of a whole nest that is short, else of the leaf that stores alone.

Only a result of the program streams, and only one that no block loads: who uses it next is not known. One
that a shared cache would take faster stays, unless squares of it are written to rows that crowd into few
sets. And only from blocks that do little work for each element, which memory binds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from codegen_cpu.layout import ALIGNMENT, Buffer, View
from codegen_cpu.ll import I64, VOID, Function, Value, constant
from codegen_cpu.llvm import architecture
from codegen_cpu.scope import step_along
from codegen_cpu.target import Target
from stripe.analysis.cost_sets import crowds
from stripe.analysis.groups import moves_only
from stripe.intrinsics import INTRINSICS
from stripe.ir import Aggregation, Block, Direction, Intrinsic, Refinement
from stripe.rewrite_merged import merged
from stripe.visit import View as Described
from stripe.visit import buffers_used, views_of

_PASSES = 256  # points of the block for each element, up to which waiting for lines of results shows


def streamed(root: Block, kernel: Block, target: Target) -> tuple[str, ...]:
    """The results of the root that a child of it should write past the caches."""
    if target.past_caches is None:
        return ()
    past, line = target.past_caches, target.line_bytes
    results = (prod(ref.shape) for ref in root.refinements if ref.direction is Direction.OUT)
    slow = _elementary(kernel) >= max(results, default=0)
    stays = sum(ref.bytes for ref in root.refinements) <= (past.slow if slow else past.program)
    if stays and not target.sets_are_slow:
        return ()
    points, views = sum(_points(kernel)), views_of(root, {})
    read = {name for s in root.statements for name, how in buffers_used(s) if how.reads}
    return tuple(
        ref.name
        for ref in root.refinements
        if ref.direction is Direction.OUT
        and ref.name not in read
        and ref.bytes > past.result
        and points <= _PASSES * prod(ref.shape)
        and _in_lines(root, kernel, ref, line)
        and _replaces(kernel, ref.name)
        and (target.vector_bytes >= line or _row_by_row(kernel, views, ref.name, line))
        and (not stays or _crowds(kernel, views, ref.name, target))
    )


def _elementary(block: Block) -> int:
    """How many elementary functions a nest computes."""
    own = sum(isinstance(s, Intrinsic) and INTRINSICS[s.op].elementary for s in block.statements)
    return block.points * (own + sum(map(_elementary, block.children)))


def _in_lines(root: Block, kernel: Block, ref: Refinement, line_bytes: int) -> bool:
    """Whether rows that code writes one after the other start at lines, if the array does."""
    line = line_bytes // ref.dtype.bytes
    return all(step % line == 0 for step in _apart(kernel, views_of(root, {}), ref.name))


def _crowds(block: Block, outer: Mapping[str, Described], name: str, target: Target) -> bool:
    """Whether a buffer of the parent is written in squares whose rows fall into few sets of the nearest
    cache."""
    near, views = target.nearest, views_of(block, outer)
    sides = (*block.tag_values("across"), *block.tag_values("vector")) if block.has_tag("across") else ()
    for ref in (ref for ref in block.refinements if ref.source == name):
        if any(_crowds(child, views, ref.name, target) for child in block.children):
            return True
        for index in sides:
            rows = min(block.ranges[index], target.vector_bytes // ref.dtype.bytes)
            step = abs(step_along(ref, views[ref.name].strides, index)) * ref.dtype.bytes
            if crowds(rows, step, near):
                return True
    return False


def _row_by_row(block: Block, outer: Mapping[str, Described], name: str, line: int) -> bool:
    """Whether all leaves that write a buffer of the parent fill one line of it after the other: parts of
    several lines at once would leave the core before the lines are whole."""
    own = [ref for ref in block.refinements if ref.source == name]
    views = views_of(block, outer)
    if block.children:
        return all(_row_by_row(child, views, ref.name, line) for ref in own for child in block.children)
    inner = [n for n, size in block.ranges.items() if size > 1][-1:]
    lanes = [*block.tag_values("vector")]
    if not lanes or any(block.ranges[lanes[0]] * ref.dtype.bytes % line for ref in own):
        return False
    if block.has_tag("across"):
        return moves_only(block) and all(step_along(r, views[r.name].strides, lanes[0]) == 1 for r in own)
    return inner == lanes


def _apart(block: Block, outer: Mapping[str, Described], name: str) -> Iterator[int]:
    """By how many elements rows of a buffer of the parent, whose views are `outer`, lie apart: all steps
    that lead from one place to another, but for those along the rows that a leaf writes."""
    views = views_of(block, outer)
    run = block if block.children else merged(block, {n: view.strides for n, view in views.items()})
    tags = ("vector", "across", "group")
    along = set() if block.children else {name for tag in tags for name in run.tag_values(tag)}
    for ref in run.refinements:
        if ref.source != name:
            continue
        strides = views[ref.name].strides
        yield sum(expr.const * stride for expr, stride in zip(ref.access, strides, strict=True))
        for index in run.indexes:
            step = abs(step_along(ref, strides, index.name))
            if index.passed is not None:
                yield from (step * part for part in (index.passed.const, *(c for _, c in index.passed.terms)))
            elif index.range > 1 and not (step == 1 and index.name in along):
                yield step
        for child in block.children:
            yield from _apart(child, views, ref.name)


def offered(views: Mapping[str, View], names: tuple[str, ...], f: Function, holds: Value) -> dict[str, View]:
    """The views, with these to be written past the caches where `holds` says that they start at a line."""
    suffix = f", !nontemporal {f.module.metadata('!{i32 1}')}"
    found = dict(views)
    for name in names:
        found[name] = replace(views[name], buffer=replace(views[name].buffer, streams=suffix, at_line=holds))
    return found


def decided(buffer: Buffer, streams: bool) -> Buffer:
    """A buffer in code that runs only where arrays start at lines, or only where they do not."""
    if buffer.at_line is None:
        return buffer
    if streams:
        return replace(buffer, align=ALIGNMENT, at_line=None)
    return replace(buffer, streams="", at_line=None)


def undecided(views: Mapping[str, View]) -> tuple[str, ...]:
    """The views that may be written past the caches."""
    return tuple(name for name, view in views.items() if view.buffer.at_line is not None)


@contextmanager
def either_way(f: Function, holds: Value) -> Iterator[Iterator[bool]]:
    """Code twice: where arrays start at lines (True), and where not."""
    yes, no, end = f.fresh("lines"), f.fresh("others"), f.fresh("written")
    f.branch_if(holds, yes, no)
    f.leads_to(yes, no, end)

    def ways() -> Iterator[bool]:
        for label in (yes, no):
            f.start(label)
            yield label == yes
            f.branch(end)

    yield ways()
    f.start(end)


def at_lines(f: Function, views: Mapping[str, View], names: tuple[str, ...], line: int) -> Value:
    """Whether the arrays start at a line of so many bytes, and are aligned as `decided` says."""
    bits: Value | None = None
    for name in names:
        address = f.convert("ptrtoint", views[name].buffer.pointer, I64)
        bits = address if bits is None else f.binary("or", bits, address)
    assert bits is not None
    below = constant(I64, max(line, ALIGNMENT) - 1)
    return f.compare("icmp eq", f.binary("and", bits, below), constant(I64, 0))


def settle(f: Function, target: Target) -> None:
    """What was streamed comes before all that follows, for other threads too."""
    if architecture(target.triple) == "x86_64":
        f.module.declare("llvm.x86.sse.sfence", VOID, [])
        f.line("call void @llvm.x86.sse.sfence()")


def _points(block: Block, around: int = 1) -> list[int]:
    """The points of each leaf of a nest."""
    here = around * block.points
    inner = [count for child in block.children for count in _points(child, here)]
    return inner or [here]


def _replaces(block: Block, name: str) -> bool:
    """Whether a nest stores vectors to a buffer of its parent, and they only replace what was there."""
    own = [ref for ref in block.refinements if ref.source == name]
    if not own or any(
        ref.direction is not Direction.OUT or ref.aggregation is not Aggregation.ASSIGN for ref in own
    ):
        return False
    if not block.children:
        return block.has_tag("vector")
    found = []
    for ref in own:
        users = [c for c in block.children if any(r.source == ref.name for r in c.refinements)]
        found.append(all(_replaces(child, ref.name) for child in users))
    return all(found)
