"""separate: sums that overlap between points get loops over their results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.diag import CompileError, Diagnostic
from stripe.ir import Block, Constraint, Direction, Index, Program, Refinement
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, option
from stripe.rewrite import drop_unused_passed
from stripe.rewrite_points import simplify_points
from stripe.visit import map_children, map_roots, substitute_indexes

MOST_POINTS = 4  # what the box of the points may grow by where a kernel is only to be dealt out to units


@dataclass(frozen=True)
class Separate(Pass):
    """Exchange indexes so that a kernel's sums into one element lie at one value of an index.

    before:  block r [y:40, r:3] (in I[y]  in F[r]  out O[2*y + r]:add) {...}
    after:   block r [y:41, r:2, r_1:2] (y - r >= 0  39 - y + r >= 0  2 - 2*r - r_1 >= 0
               in I[y - r]  in F[2*r + r_1]  out O[2*y + r_1]:add) {...}

    Where several indexes together say which element a sum goes to, `2*y + r`, tiles along any of them
    overlap in their results, and would have to be combined in far memory, or by units that don't see each
    other's. The one with the largest step s comes to stand for all of it: an index whose step is a multiple
    of s goes into it; one whose step divides s is split first, `r = 2*u + p`. Then tiles and units along it
    have results of their own. Its box holds points that do not exist, which constraints mask.

    It is done where the results that overlap take more than half of `memory`; where each unit has an
    instance of it, also where no other index can be dealt out, if the box of points grows little.

    Legal because old and new points correspond one to one, and the points of a block are independent.
    Stripe paper, section 2.3, "Banking and Partitioning": without conflicts.
    """

    name: ClassVar[str] = "separate"
    by_kernel: ClassVar[bool] = True

    memory: str = option("", "the memory that results lie in; empty: the target's nearest explicit one")

    def check(self, hw: HwConfig) -> None:
        if hw.is_registers(self.memory):
            message = f"separate: {self.memory} holds registers; name a memory"
            raise CompileError(Diagnostic("P180", message))

    def run(self, program: Program, context: PassContext) -> Program:
        memory = context.hw.memory(self.memory) or context.hw.nearest_explicit
        if memory is None or memory.bytes is None:
            reason = "the target has no near memory of a limited size"
            context.remark(program.root.name, False, reason)
            return program
        run = _Run(context, memory)
        return map_roots(program, lambda root: map_children(root, lambda c: run.kernel(root, c)))


@dataclass(frozen=True, slots=True)
class _Run:
    context: PassContext
    memory: Memory

    def kernel(self, root: Block, block: Block) -> Block:
        path = f"{root.name}/{block.name}"
        made, exchanged = block, list[str]()
        order = [(r.name, dim) for r in block.refinements for dim in range(len(r.access))]
        reached = 0
        while (found := next(_mixed(made), None)) is not None:
            ref, dim, terms = found
            at = order.index((ref.name, dim))
            if at < reached:  # to set it right again would undo what was done behind it, without end
                after = "'{}' in dimension {}".format(*order[reached])
                text = f"'{ref.name}' overlaps in dimension {dim} again where {after} does not"
                self.context.remark(path, False, text)
                return block
            reached = at
            if not exchanged and (reason := self._refusal(root, block, ref)):
                self.context.remark(path, False, f"'{ref.name}' overlaps: {reason}")
                return block
            try:
                made = _exchanged(made, terms)
            except _Refused as refused:
                self.context.remark(path, False, f"'{ref.name}' overlaps in dimension {dim}: {refused}")
                return block
            exchanged.append(f"dimension {dim} of '{ref.name}' along '{terms[0][0]}'")
        if not exchanged:
            return block
        grown = made.points / max(1, block.points)
        if self._fits(root, _overlapping(block)) and grown > MOST_POINTS:
            self.context.remark(path, False, f"the box of its points would grow {grown:.1f} times")
            return block
        simple = simplify_points(made, (root,))
        if simple is None:
            return block
        self.context.remark(
            path, True, "; ".join(exchanged) + f": {grown:.2f} times the box of points",
            grown=grown,
        )  # fmt: skip
        return drop_unused_passed(simple)

    def _refusal(self, root: Block, block: Block, ref: Refinement) -> str:
        """Why overlapping results may stay, if so."""
        if not self._fits(root, _overlapping(block)):
            return ""
        if self.memory.count == 1:
            return f"it fits in {self.memory.name}, where its sums are combined"
        mixed = {name for _, _, terms in _mixed(block) for name, _ in terms}
        written = {n for r in _summed(block) for e in r.access for n in e.names}
        if any(name in written - mixed and size > 1 for name, size in block.ranges.items()):
            return f"it fits in {self.memory.name}, and other indexes are dealt out to units"
        return ""

    def _fits(self, root: Block, buffers: set[str]) -> bool:
        """Whether results, whole and beside as much again of what goes into them, fit in the memory."""
        assert self.memory.bytes is not None
        bytes_ = sum(r.bytes for r in root.refinements if r.name in buffers)
        return 2 * bytes_ <= self.memory.bytes


class _Refused(Exception):
    """Why indexes can't be exchanged."""


def _overlapping(block: Block) -> set[str]:
    """The buffers around the block whose sums overlap between its points."""
    return {ref.source for ref, _, _ in _mixed(block)}


def _summed(block: Block) -> Iterator[Refinement]:
    for ref in block.refinements:
        out = ref.direction.writes and ref.direction is not Direction.NEW
        if out and ref.combines:
            yield ref


def _mixed(block: Block) -> Iterator[tuple[Refinement, int, list[tuple[str, int]]]]:
    """The dimensions of results in which points that differ in an index may meet, though the element
    depends on it: that index, with its step, and those with smaller ones that together reach over it.

    The smallest steps come first, so that what is below an index is apart in itself."""
    ranges = {name: size for name, size in block.ranges.items() if size > 1}
    for ref in _summed(block):
        for dim, (expr, extent) in enumerate(zip(ref.access, ref.shape, strict=True)):
            terms = [(n, c) for n, c in expr.terms if n in ranges]
            terms.sort(key=lambda t: (-abs(t[1]), -ranges[t[0]]))
            for at in reversed(range(len(terms))):
                step, below = terms[at][1], terms[at + 1 :]
                span = sum(abs(c) * (ranges[n] - 1) for n, c in below)
                if below and extent == 1 and span >= abs(step):
                    yield ref, dim, terms[at:]
                    break


def _exchanged(block: Block, terms: list[tuple[str, int]]) -> Block:
    """The block where the first of the terms' indexes stands for the sum of all, as far as steps allow.

    s*y + c*r + ...: with r = m*u + p, where m = s / c if c divides s, and m = 1 if s divides c, it is
    s*(y + (c*m/s)*u + ...) + c*p + ...; the parenthesis is the new y.
    """
    (main, step), *others = terms
    ranges, names = block.ranges, Names(i.name for i in block.indexes)
    values: dict[str, Affine] = {}
    added: dict[str, list[Index]] = {}
    constraints: list[Affine] = []
    moved = Affine()
    low, high = 0, ranges[main] - 1
    for name, other in others:
        if other % step == 0:
            factor, inner, size = other // step, name, ranges[name]
        elif step % other == 0:
            parts = abs(step // other)
            if ranges[name] <= parts:
                continue
            inner, size, factor = name, -(-ranges[name] // parts), 1 if other * step > 0 else -1
            rest = names.fresh(name)
            values[name] = Affine.index(name, parts) + Affine.index(rest)
            added[name] = [Index(name, size), Index(rest, parts)]
            if ranges[name] % parts:
                constraints.append(Affine(ranges[name] - 1) - values[name])
        else:
            raise _Refused(f"the steps {step} of '{main}' and {other} of '{name}' do not divide each other")
        moved = moved + Affine.index(inner, factor)
        reach = factor * (size - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    if not moved.terms:
        raise _Refused(f"no index goes into '{main}'")
    before = Affine.index(main) + low - moved
    values[main] = before
    added[main] = [Index(main, high - low + 1)]
    indexes = tuple(new for i in block.indexes for new in added.get(i.name, [i]))
    made = substitute_indexes(block, values)
    limits = (before, Affine(ranges[main] - 1) - before, *constraints)
    return replace(made, indexes=indexes, constraints=(*made.constraints, *(Constraint(e) for e in limits)))
