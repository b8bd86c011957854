"""localize: move buffers to the innermost block that needs them, shrunk and near."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from hwconfigs.model import HwConfig, Memory
from stripe.analysis.footprint import touched_box
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import (
    Aggregation,
    Block,
    Direction,
    Location,
    Program,
    Refinement,
    contiguous,
)
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.localize_accumulators import Accumulators
from stripe.passes.localize_chosen import Kept, chose
from stripe.passes.localize_once import written_once
from stripe.passes.localize_parts import held_bytes, peak_bytes, rebased
from stripe.passes.localize_reuse import in_place
from stripe.poly import PolyhedralLimit
from stripe.visit import buffers_used, map_children, map_roots


@dataclass(frozen=True)
class Localize(Pass):
    """Give each buffer the innermost scope, the least size and the nearest memory that serve it.

    before:  block main [] (new T (8, 4)) {
               block r [m:8] (out T[m, 0]:assign (1, 4)) { ...writes and reads T[0, n]... } }
    after:   block main [] () {
               block r [m:8] (new T (1, 4)) { ...writes and reads T[0, n]... } }

    A `new` buffer that a single child block uses, and in which each of its points reads only what
    it wrote itself (`out T:assign`), becomes a buffer of that child, again and again; there it
    shrinks to the box that one point touches, and accesses are rebased.

    With `reuse`, a leaf block writes its result over an input of the same shape that nothing needs any
    more, where each point reads only the element that it replaces: one buffer, seen as `inout T:assign`,
    in place of two.

    With `memory`, the buffers of blocks below the root that have no location get that memory,
    innermost first, as long as all that is alive at a time fits. With `accumulators`, a
    reduction aggregates into a buffer in that register file or explicit memory, at the outermost block
    where the box that its points write fits (in an explicit memory: the outermost with `#tiled` around
    it), and a copy block behind it writes each element out once:

    before:  block t [i:4] (out C[8*i]:assign (8)) {
               block c [m:8, k:9] (in A[m, k]  out C[m]:add) {...} }
    after:   block t [i:4] (out C[8*i]:assign (8)  new C_acc (8) @REG) {
               block c [m:8, k:9] (in A[m, k]  out C_acc[m]:add) {...}
               block C_copy [m:8] (in C_acc[m]  out C[m]:assign) { $v = load(C_acc); C = store($v) } }

    The copy has constraints that leave exactly the cells that were written; where these are not
    one conjunction of affine constraints, the reduction stays as it is. Elements with gaps between them,
    such as every second one, lie side by side in the accumulator. A buffer that already is
    `new` at that block, such as one that an epilogue reads, gets the location and no copy; in registers not
    where a constraint on several of its dimensions cuts it (`i - j >= 0`): the accumulator beside it is
    added to without a test (`boundary`), and only the copy has one. Levels of a nest
    that write each element once say `assign`, with accumulators below them or not: what was there is
    replaced, not added to.

    A choice says for a block which sums gather there, and which of its buffers lie in `memory`; blocks
    without one get neither. The scopes and sizes of buffers, and `reuse`, are no choices: what can move in
    does, whatever it costs or the target has.

    Legal because nothing else sees the buffer, and because partial results may be combined in any
    order. Not touched: buffers with a location, the signature, and the order of statements.
    Stripe paper, section 2.3, "Scalarization and Memory Localization".
    """

    name = "localize"
    tags_read = ("fits", "tiled")
    choice = Kept

    memory: str = option("", "memory for the buffers of inner blocks; empty: none is given a location")
    accumulators: str = option(
        "", "memory of kind `registers` or `explicit` that reductions accumulate in; empty: they stay"
    )

    reuse: bool = option(False, "write the result of a leaf block over an input that nothing needs any more")

    def check(self, hw: HwConfig) -> None:
        self._memory(hw, self.memory, anything=True)
        self._memory(hw, self.accumulators, anything=False)

    def run(self, program: Program, context: PassContext) -> Program:
        near = self._memory(context.hw, self.memory, anything=True)
        accumulators = self._memory(context.hw, self.accumulators, anything=False)

        def localized(block: Block) -> Block:
            block = _sink(block, block.name, context)
            if self.reuse:
                block = in_place(block, block.name, context)
            if accumulators is not None:
                gathered = Accumulators(accumulators, context).place(block)
                block = written_once(gathered)
                if block is not gathered:  # what is written once may move in now
                    found = context.anew(None)
                    block = _sink(block, block.name, found)
                    context.remarks += [r for r in found.remarks if r.acted]
            return block if near is None else _locate(block, block.name, near, 0, context)

        return map_roots(program, localized)

    def _memory(self, hw: HwConfig, name: str, *, anything: bool) -> Memory | None:
        if not name:
            return None
        memory = hw.memory(name)
        fitting = [m.name for m in hw.memories if anything or m.kind != "cached"]
        if memory is None or name not in fitting:
            kind = "memory" if anything else "memory of kind 'registers' or 'explicit'"
            message = f"localize: target '{hw.name}' has no {kind} named '{name}'"
            raise CompileError(Diagnostic("P005", message, notes=did_you_mean(name, fitting)))
        return memory


# -- innermost scope, least size ----------------------------------------------------------------


def _sink(block: Block, path: str, context: PassContext) -> Block:
    """Move the block's buffers into children, and on from there."""
    users: dict[str, set[int]] = {}  # the positions of the statements that use a buffer
    for position, statement in enumerate(block.statements):
        for name, _ in buffers_used(statement):
            users.setdefault(name, set()).add(position)
    for ref in block.refinements:
        if ref.direction is Direction.NEW and len(users.get(ref.name, ())) == 1:
            (position,) = users[ref.name]
            block = _sunk(block, ref, position, path, context)
    return map_children(block, lambda child: _sink(child, f"{path}/{child.name}", context))


def _sunk(block: Block, ref: Refinement, position: int, path: str, context: PassContext) -> Block:
    """The block with one buffer moved into the statement that alone uses it, if that is a child."""
    child = block.statements[position]
    if not isinstance(child, Block):
        return block
    views = [r for r in child.refinements if r.direction is not Direction.NEW and r.source == ref.name]
    where = f"{path}/{child.name}"
    if len(views) != 1:
        context.remark(where, False, f"it has several views of '{ref.name}', which stays outside")
        return block
    view = views[0]
    if (view.direction, view.aggregation) != (Direction.OUT, Aggregation.ASSIGN):
        used = f"{view.direction}" + (f":{view.aggregation}" if view.aggregation else "")
        context.remark(where, False, f"'{ref.name}' outlives a point of it ({used}) and stays outside")
        return block
    if ref.location is not None and (ref.location.bank or ref.location.address):
        context.remark(where, False, f"'{ref.name}' has an address already and stays outside")
        return block
    inner = replace(
        view,
        direction=Direction.NEW,
        dtype=ref.dtype,
        source="",
        access=(),
        aggregation=None,
        strides=contiguous(view.shape),
        location=ref.location,
        tags=ref.tags,
    )
    refinements = (*(r for r in child.refinements if r is not view), inner)
    moved = _shrunk(replace(child, refinements=refinements), inner)
    shape = moved.refinement(inner.name).shape
    context.remark(
        where,
        True,
        f"'{ref.name}' moved in",
        bytes_before=ref.bytes,
        bytes_after=prod(shape) * ref.dtype.bytes,
    )
    return replace(
        block,
        refinements=tuple(r for r in block.refinements if r is not ref),
        statements=tuple(moved if s is child else s for s in block.statements),
    )


def _shrunk(block: Block, ref: Refinement) -> Block:
    """The block with a `new` buffer cut to what one point touches."""
    if prod(ref.shape) <= 1:
        return block
    try:
        box = touched_box(block, ref.name)
    except PolyhedralLimit:
        return block  # too hard to tell: it keeps its size
    if box is None or (box.shape == ref.shape and not any(e.terms or e.const for e in box.origin)):
        return block
    smaller = replace(ref, shape=box.shape, strides=contiguous(box.shape))
    return replace(
        block,
        refinements=tuple(smaller if r is ref else r for r in block.refinements),
        statements=tuple(rebased(s, ref.name, ref.name, box) for s in block.statements),
    )


# -- near memory --------------------------------------------------------------------------------


def _locate(block: Block, path: str, memory: Memory, taken: int, context: PassContext) -> Block:
    """Give buffers of the blocks below this one the memory; `taken` bytes of it are in use around."""
    used = taken + held_bytes(block, memory.name)

    def placed(child: Block) -> Block:
        where = f"{path}/{child.name}"
        key = context.key(where, "near")
        return _located(_locate(child, where, memory, used, context), where, key, memory, used, context)

    return map_children(block, placed)


def _located(block: Block, path: str, key: str, memory: Memory, taken: int, context: PassContext) -> Block:
    given = context.explicit(key, Kept)
    own = [r.name for r in block.refinements if r.direction is Direction.NEW and r.location is None]
    if given is None and not context.searches:
        if own:
            context.undecided(path)
        return block
    for name in () if given is None else given.near:
        if name not in own:
            reason = f"'{name}' is no buffer of its own without a location"
            raise context.refused(key, reason, "near", *did_you_mean(name, own))
    for name in own:
        if given is not None and name not in given.near:
            continue
        ref = block.refinement(name)
        free = None if memory.bytes is None else memory.bytes - taken - peak_bytes(block, memory.name)
        if free is not None and block.inflight * ref.bytes > free:
            reason = f"'{name}' ({ref.bytes} bytes) does not fit in {memory.name}"
            if given is not None:
                raise context.refused(key, f"{reason}: {free} are free", "near")
            context.remark(path, False, reason)
            continue
        placed = replace(ref, location=Location(memory.name))
        block = replace(block, refinements=tuple(placed if r is ref else r for r in block.refinements))
        chose(context, key, near=(name,))
        context.remark(path, True, f"'{name}' placed in {memory.name}", bytes=ref.bytes)
    return block
