"""The part of boundary that is about what lies beyond: points with nothing below them, and tests that
spare nothing but results that nobody reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from hwconfigs.model import HwConfig
from stripe.affine import Affine, box_of
from stripe.analysis.deps import Access, accesses
from stripe.ir import Block, Constraint, Direction, Special
from stripe.poly import Domain, PolyhedralLimit, nest_domain
from stripe.visit import buffers_used, map_children, walk


def without_empty_points(block: Block) -> Block:
    """The block and those below it without points at which no block inside has a point.

    before:  block t [m:4, n:4] (...) {
               block a [i:6, j:6, mo = 6*m, no = 6*n] (mo + i - no - j >= 0 ...) {...} }
    after:   block t [m:4, n:4] (6*m + 5 - 6*n >= 0 ...) { block a [...] (...) {...} }

    What is asked is the greatest value that a constraint has inside: bounds of loops, which cost nothing.
    """
    block = map_children(block, without_empty_points)
    if block.location is not None or block.inflight != 1:
        return block
    box = box_of(block.ranges)
    wanted = _inside(block) - {constraint.expr for constraint in block.constraints}
    found = [e for e in wanted if not box.keys().isdisjoint(e.names) and not _implied(e, box)]
    if not found:
        return block
    found.sort(key=lambda e: (e.terms, e.const))
    return replace(block, constraints=(*block.constraints, *(Constraint(expr) for expr in found)))


def _implied(expr: Affine, box: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the ranges alone say so."""
    return all(name in box for name in expr.names) and expr.bounds(box)[0] >= 0


def _inside(block: Block) -> set[Affine]:
    """Over its indexes: what must be >= 0 for one of its blocks to have a point, where it holds nothing
    else."""
    if not block.children or len(block.children) < len(block.statements):
        return set()
    return set.intersection(*map(_needed, block.children))


def _needed(block: Block) -> set[Affine]:
    """Over the indexes of its parent: what must be >= 0 for a block, and one in it, to have a point."""
    passed = {index.name: index.passed for index in block.indexes if index.passed is not None}
    box = box_of(block.ranges)
    limits = {constraint.expr for constraint in block.constraints} | _inside(block)
    return {_greatest(expr, box).substitute(passed) for expr in limits}


def _greatest(expr: Affine, box: Mapping[str, tuple[int, int]]) -> Affine:
    """The greatest value over a box, as an expression over the other indexes."""
    return expr.without(set(box)) + expr.only(set(box)).bounds(box)[1]


def without_private_tests(before: Block, kernel: Block, hw: HwConfig) -> Block:
    """A kernel with leaf blocks that compute a few results too many, where a test would cost more: results
    in registers that nothing reads, of code that is written out. `before`: the root with the statements in
    front of the kernel.

    Legal where nothing else writes that buffer, nothing reads what is added to it, and all that is read in
    addition lies in buffers that are inputs, or written before.
    """
    return _below((before,), kernel, (len(before.statements),), partial(_freed, hw))


def with_plain_tests(before: Block, kernel: Block, hw: HwConfig) -> Block:
    """A kernel where such leaf blocks ask for no more than what says how far rows and columns go: along one
    index, that is where tiles end, so that full tiles can be separated. Its loops end where nothing is left.

    before:  block t [i:10, j:4] (...) {
               block s [n:500, i:30, j:80, io = 30*i, jo = 80*j] (io + i - jo - j >= 0 ...) {...} ... }
    after:   block t [i:10, j:4] (30*i + 29 - 80*j >= 0 ...) {
               block s [n:500, i:30, j:80, jo = 80*j] (299 - jo - j >= 0 ...) {...} ... }

    Of `i - j >= 0`, where i goes to 299, that is `299 - j >= 0`. So it is where what lies beyond can't be
    read: else `without_private_tests` leaves no test at all.
    """
    if not any(_is_mixed(c.expr) for _, block in walk(kernel) for c in block.constraints):
        return kernel
    short = without_empty_points(kernel)
    plain = _below((before,), short, (len(before.statements),), partial(_plain, hw))
    return kernel if plain is short else plain


def _below(
    above: tuple[Block, ...],
    block: Block,
    path: tuple[int, ...],
    change: Callable[[Sequence[Block], Block, Sequence[int]], Block],
) -> Block:
    """The block with its leaves changed. `path`: the positions of statements that lead from the first block
    above to this one."""
    if not block.children:
        return change(above, block, path)
    here = (*above, block)
    statements = tuple(
        _below(here, s, (*path, at), change) if isinstance(s, Block) else s
        for at, s in enumerate(block.statements)
    )
    if all(a is b for a, b in zip(statements, block.statements, strict=True)):
        return block
    return replace(block, statements=statements)


def _freed(hw: HwConfig, above: Sequence[Block], leaf: Block, path: Sequence[int]) -> Block:
    """A leaf without its tests of what is written out, where nothing speaks against it. What says that none
    of the copies is there, for all loops of the leaf, is still asked, once."""
    copies = set(leaf.tag_values("unroll"))
    tests = [c for c in leaf.constraints if set(c.expr.names) & copies]
    if (
        not tests
        or any(isinstance(s, Special) for s in leaf.statements)
        or not _is_private(above[-1], leaf, hw)
    ):
        return leaf
    left = (*(c for c in leaf.constraints if c not in tests), *_any(above[-1], leaf, tests))
    freed = replace(leaf, constraints=left)
    return freed if _may_be_freed(above, leaf, freed, path) else leaf


def _may_be_freed(above: Sequence[Block], leaf: Block, freed: Block, path: Sequence[int]) -> bool:
    """Whether nobody reads the results that are added, and all that they are made of can be read."""
    try:
        return _is_unread(above[-1], leaf, freed) and _reads_safely(above, leaf, freed, path)
    except PolyhedralLimit:
        return False


def _plain(hw: HwConfig, above: Sequence[Block], leaf: Block, path: Sequence[int]) -> Block:
    """A leaf whose tests are about one direction each, where nothing speaks against it."""
    copies, box = set(leaf.tag_values("unroll")), leaf.ranges.keys()
    mixed = [c for c in leaf.constraints if _is_mixed(c.expr) and copies & box & set(c.expr.names)]
    if (
        not mixed
        or any(isinstance(s, Special) for s in leaf.statements)
        or not _is_private(above[-1], leaf, hw)
    ):
        return leaf
    depth, weaker = len(above), list[Constraint]()
    try:
        points = nest_domain((*above, leaf))
        for test in mixed if not points.is_empty() else ():
            below = {name for name in test.expr.names if test.expr.coefficient(name) < 0}
            limits = points.bounds(test.expr.without(below).rename(lambda name: f"{depth}.{name}"))
            if limits is None:
                return leaf
            plain = replace(test, expr=test.expr.only(below) + limits[1])
            without = replace(leaf, constraints=tuple(c for c in leaf.constraints if c is not test))
            weaker += [] if _may_be_freed(above, leaf, without, path) else [plain]
    except PolyhedralLimit:
        return leaf
    left = (*(c for c in leaf.constraints if c not in mixed), *weaker, *_any(above[-1], leaf, mixed))
    freed = replace(leaf, constraints=left)
    return freed if weaker and _may_be_freed(above, leaf, freed, path) else leaf


def _is_mixed(expr: Affine) -> bool:
    """Whether it grows along some indexes and falls along others."""
    return len({factor > 0 for _, factor in expr.terms}) == 2


def _any(parent: Block, leaf: Block, tests: Sequence[Constraint]) -> Iterator[Constraint]:
    """What must hold around a leaf for any of its points to pass each of some tests that come to the same at
    every turn of its loops; unless its parent says so."""
    own, copies, box = box_of(leaf.ranges), set(leaf.tag_values("unroll")), box_of(parent.ranges)
    passed = {index.name: index.passed for index in leaf.indexes if index.passed is not None}
    said = {constraint.expr for constraint in parent.constraints}
    for test in tests:
        greatest = _greatest(test.expr, own)
        around = greatest.substitute(passed)
        if (
            copies.issuperset(own.keys() & set(test.expr.names))
            and around not in said
            and not _implied(around, box)
        ):
            yield Constraint(greatest)


def _is_private(parent: Block, leaf: Block, hw: HwConfig) -> bool:
    """Whether a leaf writes only to one buffer of its parent, in registers, which nothing else writes."""
    written = [ref for ref in leaf.refinements if ref.direction.writes]
    if len(written) != 1 or written[0].direction is not Direction.OUT:
        return False
    target = parent.refinement(written[0].source)
    if target.direction is not Direction.NEW or target.location is None:
        return False
    memory = hw.memory(target.location.unit)
    if memory is None or memory.kind != "registers":
        return False
    uses = [use for s in parent.statements for use in buffers_used(s) if use[0] == target.name]
    return sum(direction.writes for _, direction in uses) == 1


def _is_unread(parent: Block, leaf: Block, freed: Block) -> bool:
    """Whether no statement beside the leaf reads what it writes to at the points that are added."""
    outer = [index.name for index in parent.indexes]

    def cells(found: Access, points: Domain) -> Domain:
        names = [*outer, *(f"@{dim}" for dim in range(len(found.element)))]
        return points.image([*(Affine.index(name) for name in outer), *found.element], names)

    def written(block: Block) -> list[Access]:
        return [access for access in accesses(parent, block) if access.writes]

    read = [a for s in parent.statements if s is not leaf for a in accesses(parent, s) if a.reads]
    for old, new in zip(written(leaf), written(freed), strict=True):
        added = cells(new, new.domain().subtract(old.domain()))
        for access in read:
            if access.buffer == new.buffer and not added.intersect(cells(access, access.domain())).is_empty():
                return False
    return True


def _reads_safely(above: Sequence[Block], leaf: Block, freed: Block, path: Sequence[int]) -> bool:
    """Whether all that the leaf touches without its tests is there, in each view on the way too, and was
    written."""
    old, new = leaf, freed
    for block, at in zip(reversed(above), reversed(path), strict=True):
        before = set(accesses(block, old))
        for access in accesses(block, new):
            if access in before:
                continue
            domain, ref = access.domain(), block.refinement(access.buffer)
            for expr, size in zip(access.element, ref.shape, strict=True):
                limits = domain.bounds(expr)
                if limits is None or limits[0] < 0 or limits[1] >= size:
                    return False
            owns = ref.direction is Direction.NEW or (block is above[0] and ref.direction is not Direction.IN)
            if access.reads and owns and not _was_written(block, access, at):
                return False
        old, new = _with(block, at, old), _with(block, at, new)
    return True


def _with(block: Block, at: int, child: Block) -> Block:
    return replace(block, statements=(*block.statements[:at], child, *block.statements[at + 1 :]))


def _was_written(block: Block, access: Access, at: int) -> bool:
    """Whether statements in front of number `at` write all that an access reads, at each point."""
    outer = [index.name for index in block.indexes]
    names = [*outer, *(f"@{dim}" for dim in range(len(access.element)))]

    def cells(found: Access) -> Domain:
        return found.domain().image([*(Affine.index(name) for name in outer), *found.element], names)

    written = Domain.empty(names)
    for statement in block.statements[:at]:
        for other in accesses(block, statement):
            if other.buffer == access.buffer and other.writes and not other.conditional:
                written = written.union(cells(other))
    return cells(access).is_subset(written)
