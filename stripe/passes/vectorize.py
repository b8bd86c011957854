"""vectorize: choose the index of each leaf block that runs along the lanes of a vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import ClassVar

from hwconfigs.model import HwConfig, Memory, Unit, own_cache
from stripe.affine import Affine
from stripe.analysis.bounds import leaves
from stripe.analysis.cost_sets import PAGE_BYTES, crowds, on_one_set, usable_bytes
from stripe.analysis.groups import grouped, moved_groups, moves_only
from stripe.analysis.lanes import Lane, Square, lane_candidates, lane_index
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import Aggregation, Block, Direction, Load, Program, Refinement, Special, Store, Tag
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.choices import Choice
from stripe.rewrite import reorder_indexes
from stripe.rewrite_packed import permuted
from stripe.visit import View, map_children, map_roots, views_of

LEAST_OF_PAGE = PAGE_BYTES // 8  # that a copy reads, or writes, of each page where it goes along memory
CROWDED = 2  # lines for each way of a cache: with fewer, most stay until their neighbours are wanted
FETCHED_ROWS = 24  # that a copy reads in turn, a piece of each: as many as are fetched ahead well
PIECE = 2  # lines at most that squares write before they go on elsewhere
FEW_LANES = 8  # of squares that had better follow one another along what they read
SUMMED = frozenset(Aggregation) - {Aggregation.ASSIGN}


class Lanes(Choice, frozen=True):
    """Of a leaf block: the `index` that runs along the lanes, and, where squares are turned in registers, the
    index `across`; where it moves words of several elements, the index `group` that runs through each."""

    index: str
    across: str = ""
    group: str = ""


@dataclass(frozen=True)
class Vectorize(Pass):
    """Put the lane index of a leaf block innermost and tag it, so that code runs on whole vectors.

    The index is the one along which the fewest vector instructions do the work of a point:
    operands that move by one element are vector accesses, those that stay are splats, others
    are taken apart; a store that stays is summed across the lanes (see stripe.analysis.lanes).

    before:  block o [n:64, m:8] (in X[m, n]  out Y[m, n]:assign)
    after:   block o [m:8, n:64] (in X[m, n]  out Y[m, n]:assign) #vector=n

    Where the elements of an operand lie apart along every lane index that others like, but side by side
    along another index, squares of both are turned in registers, which `#across` asks for. The two go
    innermost in the order in which they stand, or the other way round where lines that are read one after
    the other would push each other out of the core's own caches, but for long rows that go past these.
    Squares of few rows that go past the caches follow one another along what they read, where vectors are
    parts of lines and these do not crowd into few sets of the nearest cache:

    before:  block o [n:64, m:64, k:8] (in X[m, k, n]  out Y[n, k, m]:assign)
    after:   block o [k:8, n:64, m:64] (in X[m, k, n]  out Y[n, k, m]:assign) #across=n #vector=m

    Short rows are summed up in squares, too: the lanes go across the rows, of which each is a column of
    registers, and nothing is folded across lanes:

    before:  block o [n:20000, c:5] (in X[n, c]  out Y[n]:add)
    after:   block o [n:20000, c:5] (in X[n, c]  out Y[n]:add) #across=c #vector=n

    A copy whose elements lie side by side in groups, in what it reads and in what it writes, moves words that
    hold a group each, which `#group` asks for, if that takes fewer instructions and none of it lies in
    registers:

    before:  block o [n:64, k:32, p:2] (in X[n, 2*k + p] bf16  out Y[k, n, p]:assign bf16)
    after:   block o [p:2, k:32, n:64] (...) #across=k #group=p #vector=n

    A buffer in registers gets the strides under which the lanes of the block that sums into it lie side by
    side: it is held in the vectors in which it was summed.

    A copy of what is larger than a core's own caches, into a buffer that is not, or to so few rows in turn
    that the nearest cache keeps them, goes along what it reads, row by row, so that memory is met where it
    was left; unless it reads less than an eighth of each page so, or reads few rows in turn where it goes
    along what it writes, which it can not write past the caches.
    In squares, it takes rows of squares along what it reads, one after the other along what it writes. Where
    squares write short pieces to few sets of the nearest cache, those beside each other in memory come first.

    Always legal: the points of a block are independent, and the order of indexes, tags and the strides of
    buffers of the program's own have no meaning. Blocks that hold blocks or specials are not touched, nor
    are those that have a lane index. Stripe paper, section 2.3 (microarchitectural stenciling), for one
    dimension.
    """

    name: ClassVar[str] = "vectorize"
    by_kernel: ClassVar[bool] = True
    tags_read: ClassVar[tuple[str, ...]] = ("vector", "group")
    tags_set: ClassVar[tuple[str, ...]] = ("vector", "across", "group")
    choice: ClassVar[type[Choice]] = Lanes

    unit: str = option("", "the compute unit whose vectors are filled; empty: the target's first")

    def check(self, hw: HwConfig) -> None:
        self._unit(hw)

    def run(self, program: Program, context: PassContext) -> Program:
        unit = self._unit(context.hw)
        if unit is None:
            context.remark(program.root.name, False, "the target has no compute unit")
            return program
        near = own_cache(context.hw.memories)

        def visited(root: Block) -> Block:
            run = _Run(unit, context, near, _goes_past(root, unit, context.hw))
            return run.visit(root, {}, frozenset(), frozenset(), (), run.key(root, ()))

        return map_roots(program, visited)

    def _unit(self, hw: HwConfig) -> Unit | None:
        units = hw.compute_units
        if not self.unit:
            return units[0] if units else None
        for unit in units:
            if unit.name == self.unit:
                return unit
        message = f"vectorize: the target '{hw.name}' has no compute unit '{self.unit}'"
        raise CompileError(
            Diagnostic("P103", message, None, did_you_mean(self.unit, (u.name for u in units)))
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the pass over a program."""

    unit: Unit
    context: PassContext
    near: Memory | None  # the largest of a core's own caches
    past: bool  # whether large results of the program may go past the caches

    def visit(
        self, block: Block, outer: Mapping[str, View], far: frozenset[str], held: frozenset[str],
        path: tuple[str, ...], key: str | None,
    ) -> Block:  # fmt: skip
        """The block with lane indexes. `far`: the names of its parent for what lies in buffers that a core's
        own caches do not hold; `held`: for what lies in registers. `key`: what a leaf is called among
        choices."""
        here = (*path, block.name)
        if not block.children:
            if key is not None:
                block = self._by_words(block, outer, held, key)
            return self._vectorized(block, outer, far, "/".join(here), key)
        views = views_of(block, outer)
        inside = frozenset(ref.name for ref in block.refinements if self._is_far(ref, far))
        kept = frozenset(ref.name for ref in block.refinements if ref.source in held or self._is_held(ref))
        keys = {at: self.key(child, here) for at, child in enumerate(block.children)}
        turned = {
            ref.name: replace(ref, strides=strides)
            for ref in block.refinements
            if (strides := self._along_lanes(block, ref, views, keys)) != ref.strides
        }
        if turned:
            block = replace(block, refinements=tuple(turned.get(r.name, r) for r in block.refinements))
            views = views_of(block, outer)
        own = iter(keys.values())
        return map_children(block, lambda child: self.visit(child, views, inside, kept, here, next(own)))

    def _is_held(self, ref: Refinement) -> bool:
        """Whether a buffer lies in registers."""
        if ref.direction is not Direction.NEW or ref.location is None:
            return False
        return self.context.hw.is_registers(ref.location.unit)

    def _is_far(self, ref: Refinement, far: frozenset[str]) -> bool:
        if ref.strides is None:
            return ref.source in far
        near = None if self.near is None else usable_bytes(self.near)
        return near is not None and ref.bytes > near

    def key(self, child: Block, path: tuple[str, ...]) -> str | None:
        """What a leaf that has no lane index yet is called among choices; each is asked for once."""
        open_leaf = not child.children and not child.has_tag("vector") and child.ranges
        return self.context.key("/".join((*path, child.name))) if open_leaf else None

    def _lanes(self, block: Block, outer: Mapping[str, View], key: str) -> Lane | Square | None:
        """The lanes of a leaf: those that are given, or the best ones."""
        given = self.context.explicit(key, Lanes)
        if given is not None:
            return self._given(block, outer, key, given)
        return lane_index(block, outer, self.unit.vector_bytes) if self.context.searches else None

    def _by_words(self, block: Block, outer: Mapping[str, View], held: frozenset[str], key: str) -> Block:
        """A leaf with the tag for it if it is to move words: as a choice says, or since that takes the fewest
        instructions; else the same. Raises CompileError P009 for a group that there can't be."""
        leaf = next((leaf for leaf in leaves(block, outer) if leaf.block is block), None)
        apart = leaf is None or any(ref.source in held for ref in block.refinements)
        known = () if leaf is None or apart else moved_groups(leaf)
        tagged = {name: replace(block, tags=(*block.tags, Tag("group", name))) for name in known}
        given = self.context.explicit(key, Lanes)
        if given is not None:
            if given.group and given.group not in (*tagged, *block.tag_values("group")):
                reason = f"it moves no words of elements along '{given.group}'"
                notes = did_you_mean(given.group, tagged)
                raise self.context.refused(key, reason, "group", *notes)
            return tagged.get(given.group, block)
        if not tagged or not self.context.searches:
            return block

        def cost(name: str) -> float:
            found = lane_index(tagged.get(name, block), outer, self.unit.vector_bytes)
            return inf if found is None else found.cost / block.ranges.get(name, 1)

        return tagged.get(min(("", *tagged), key=cost), block)

    def _given(self, block: Block, outer: Mapping[str, View], key: str, given: Lanes) -> Lane | Square:
        """Raises CompileError P009 for lanes that there can't be."""

        def refused(reason: str, field: str, *notes: str) -> CompileError:
            return self.context.refused(key, reason, field, *notes)

        leaf = next((leaf for leaf in leaves(block, outer) if leaf.block is block), None)
        if leaf is None or any(isinstance(s, Special) for s in block.statements):
            raise refused("it has no scalar statements, or a special, which works on whole views", "index")
        own = grouped(leaf)
        known = [name for name, size in own.block.ranges.items() if size > 1]
        for name, field in ((given.index, "index"), (given.across or given.index, "across")):
            if block.ranges.get(name, 1) > 1 and name not in known:
                raise refused(f"an instruction takes all values of '{name}' at once", field)
            if name not in known:
                raise refused(
                    f"it has no index '{name}' of several values", field, *did_you_mean(name, known)
                )
        found = lane_candidates(leaf, self.unit.vector_bytes, (given.index,))
        if not given.across:
            return found[0]
        if given.across == given.index:
            raise refused(f"'{given.across}' runs along the lanes already", "across")
        again = any(o.direction.writes and o.direction.reads for o in own.operands)
        if again or not {given.across}.issuperset(own.reductions):
            raise refused("squares are turned only where nothing is summed up along other indexes", "across")
        if not any(o.stride(given.across) == 1 and abs(o.stride(given.index)) > 1 for o in own.operands):
            reason = f"no operand lies side by side along '{given.across}' and apart along '{given.index}'"
            raise refused(reason, "across")
        return Square(found[0], given.across, found[0].cost)

    def _vectorized(
        self, block: Block, outer: Mapping[str, View], far: frozenset[str], path: str, key: str | None
    ) -> Block:
        if key is None:
            return block
        found = self._lanes(block, outer, key)
        if found is None:
            if not self.context.searches and lane_index(block, outer, self.unit.vector_bytes) is not None:
                self.context.undecided(path)
                return block
            special = any(isinstance(s, Special) for s in block.statements)
            reason = (
                "it holds a special, which works on whole views" if special else "every index has one value"
            )
            self.context.remark(path, False, f"no lane index: {reason}")
            return block
        lane = found.lane if isinstance(found, Square) else found
        across = (found.across,) if isinstance(found, Square) else ()
        how = f", in squares along {across[0]}" if across else ", summed at the end" if lane.reduces else ""
        words = self._words(block, outer)
        how += f", as words along {words}" if words else ""
        self.context.remark(
            path, True, f"{lane.index} runs along {lane.width} lanes{how}",
            index=lane.index, lanes=lane.width, cost=found.cost,
        )  # fmt: skip
        self.context.chose(key, Lanes(lane.index, across[0] if across else "", words))
        new = (Tag("vector", lane.index), *(Tag("across", name) for name in across))
        tags = tuple(sorted((*block.tags, *new), key=str))
        sides = tuple(name for name in block.ranges if name in (lane.index, *across))
        written = frozenset(ref.source in far for ref in block.refinements if ref.direction.writes)
        past = self.past and True in written
        streams = past and _in_long_rows(block, sides[-1])
        lost = not streams and self.near is not None and _crowds(block, outer, sides[-1], self.near)
        few = past and lane.width <= FEW_LANES
        summed = any(_sums_along(block, outer, name) for name in across)
        if summed:
            sides = (lane.index, *across)
        elif across and (lost or (few and self._goes_along(block, outer, sides[::-1]))):
            sides = sides[::-1]
        # A result that goes past the caches is not waited for, as one that lies near is not.
        free = {False, True} if self.past and not across else {False}
        order: tuple[str, ...] = ()
        if _copies_from(block, far):
            if across and written <= free:
                order = _in_rows(block, outer, sides)
            elif not across and (written <= free or self._comes_back(block, outer)):
                written_first = self._along_results(block, outer, lane.index) if past else ()
                order = written_first or _along(block, outer)
        block = reorder_indexes(block, order or sides)
        first = self._scatters(block, outer, sides) if across and not past and not summed else ""
        if first:
            block = reorder_indexes(block, [name for name in block.ranges if name != first])
        return replace(block, tags=tags)

    def _scatters(self, block: Block, outer: Mapping[str, View], sides: tuple[str, ...]) -> str:
        """The side of squares along which they write short pieces to so few sets of the nearest cache that
        these are gone when their neighbours along another index come; empty if there is none."""
        near, put = self.context.hw.nearest_cache, [r for r in block.refinements if r.direction.writes]
        if near is None or len(put) != 1 or put[0].source not in outer:
            return ""
        moves, size = _moves(put[0], outer), put[0].dtype.bytes
        steps = {name: abs(moves.coefficient(name)) for name in block.ranges}
        rest = {step for name, step in steps.items() if name not in sides}
        pieces = {block.ranges[name] for name in sides if steps[name] == 1} & rest
        if not any(piece * size <= PIECE * near.line_bytes for piece in pieces):
            return ""
        return next((name for name in sides if _crowds(block, outer, name, near, writes=True)), "")

    @staticmethod
    def _words(block: Block, outer: Mapping[str, View]) -> str:
        """The index that runs through the words which a leaf moves; empty if it moves none."""
        if not (block.has_tag("group") and moves_only(block)):
            return ""
        leaf = next(leaf for leaf in leaves(block, outer) if leaf.block is block)
        return "" if grouped(leaf) is leaf else block.tag_values("group")[0]

    def _goes_along(self, block: Block, outer: Mapping[str, View], sides: tuple[str, ...]) -> bool:
        """Whether squares of few rows that go past the caches had better follow one another along what they
        read, with these `sides`, the inner one last: where vectors are parts of lines, unless rows crowd into
        few sets of the nearest cache."""
        near, read = self.context.hw.nearest_cache, [r for r in block.refinements if r.direction.reads]
        if near is None or near.ways is None or self.unit.vector_bytes >= near.line_bytes or len(read) != 1:
            return False
        moves = _moves(read[0], outer)
        apart = abs(moves.coefficient(sides[0])) * read[0].dtype.bytes
        crowded = crowds(block.ranges[sides[0]], apart, near)
        return moves.coefficient(sides[-1]) == 1 and not crowded

    def _comes_back(self, block: Block, outer: Mapping[str, View]) -> bool:
        """Whether a copy that goes along what it reads writes to few rows in turn: the nearest cache keeps
        two lines of each in half of it, and they do not crowd into few of its sets."""
        near = self.context.hw.nearest_cache
        put = next(ref for ref in block.refinements if ref.direction.writes)
        found = None if near is None else _in_turn(put, outer, block.ranges, _along(block, outer), near)
        if near is None or near.rows_in_turn is None or near.ways is None or found is None:
            return False
        rows, crowd = found
        return rows <= near.rows_in_turn and crowd <= near.ways

    def _along_results(self, block: Block, outer: Mapping[str, View], lane: str) -> tuple[str, ...]:
        """The indexes of a copy in the order in which what it writes lies in memory, where that is better: it
        then reads no more rows in turn than are fetched ahead well, from whichever sets, and what it writes
        can't go past the caches, since its rows do not begin at lines. Else none."""
        near = self.context.hw.nearest_cache
        put = next(ref for ref in block.refinements if ref.direction.writes)
        if near is None:
            return ()
        moves = _moves(put, outer)
        steps = {name: abs(moves.coefficient(name)) * put.dtype.bytes for name in block.ranges}
        if all(step % near.line_bytes == 0 for name, step in steps.items() if name != lane):
            return ()
        order = sorted(block.ranges, key=lambda name: -steps[name])
        read = next(ref for ref in block.refinements if ref.direction.reads)
        found = _in_turn(read, outer, block.ranges, order, near)
        if found is None or order[-1] != lane:
            return ()
        rows, _ = found
        return tuple(order) if rows <= FETCHED_ROWS else ()

    def _along_lanes(
        self, block: Block, ref: Refinement, views: Mapping[str, View], keys: Mapping[int, str | None]
    ) -> tuple[int, ...] | None:
        """The strides of a buffer, with the dimension innermost that the lanes run along of the leaf which
        sums into it, if it lies in registers."""
        if not self._is_held(ref) or prod(ref.shape) == 1:
            return ref.strides
        for at, child in enumerate(block.children):
            into = [r for r in child.refinements if r.source == ref.name and r.aggregation in SUMMED]
            if child.children or len(into) != 1:
                continue
            # Which way it lies is open: all of its dimensions count as side by side.
            side_by_side = {**views, ref.name: replace(views[ref.name], strides=(1,) * len(ref.shape))}
            key = keys[at]
            found = self._lanes(child, side_by_side, key) if key is not None else None
            if found is None:
                return ref.strides
            lane = found.lane.index if isinstance(found, Square) else found.index
            dims = [dim for dim, expr in enumerate(into[0].access) if expr.coefficient(lane)]
            if len(dims) != 1:
                return ref.strides
            order = sorted(range(len(ref.shape)), key=lambda dim: dim == dims[0])
            return permuted(ref.shape, order)
        return ref.strides


def _goes_past(root: Block, unit: Unit, hw: HwConfig) -> bool:
    """Whether large results of a program go past the caches."""
    past = hw.past_caches(unit)
    return past is not None and sum(r.bytes for r in root.refinements) > past.program


def _copies_from(block: Block, far: frozenset[str]) -> bool:
    """Whether a leaf does no more than to copy what lies far off."""
    if [type(s) for s in block.statements] != [Load, Store] or len(block.refinements) != 2:
        return False
    return all(ref.source in far for ref in block.refinements if ref.direction.reads)


def _crowds(block: Block, outer: Mapping[str, View], name: str, cache: Memory, writes: bool = False) -> bool:
    """Whether lines that are read (or written) along an index lie on so few sets of a cache that their
    neighbours, which are fetched with them, are gone when the next squares want them."""
    return cache.ways is not None and any(
        on_one_set(block.ranges[name], abs(_moves(ref, outer).coefficient(name)) * ref.dtype.bytes, cache)
        >= CROWDED * cache.ways
        for ref in block.refinements
        if (ref.direction.writes if writes else ref.direction.reads) and ref.source in outer
    )


def _sums_along(block: Block, outer: Mapping[str, View], name: str) -> bool:
    """Whether something that a leaf writes is summed up along an index."""
    written = (ref for ref in block.refinements if ref.direction.writes and ref.source in outer)
    return any(not _moves(ref, outer).coefficient(name) for ref in written)


def _in_long_rows(block: Block, name: str) -> bool:
    """Whether an index goes so far along what is written that memory, which takes lines that follow one
    another faster than such that lie apart, gains from it."""
    written = (ref.dtype.bytes for ref in block.refinements if ref.direction.writes)
    return block.ranges[name] * min(written, default=0) >= LEAST_OF_PAGE


def _moves(ref: Refinement, outer: Mapping[str, View]) -> Affine:
    """The place of what a view begins at, in elements, over the indexes of its block."""
    return Affine.weighted(ref.access, outer[ref.source].strides)


def _in_rows(block: Block, outer: Mapping[str, View], sides: tuple[str, ...]) -> tuple[str, ...]:
    """The indexes of a copy in squares: innermost those that stay near in what it reads, so that whole rows
    of squares take whole rows of lines; then the sides of the squares, which keep near what it writes."""
    steps = _steps(block, outer)
    near = [name for name in block.ranges if steps[name] <= PAGE_BYTES // 2]
    apart = [name for name in block.ranges if name not in near]
    return (*sorted(apart, key=lambda name: name in sides), *sorted(near, key=lambda name: -steps[name]))


def _in_turn(
    ref: Refinement, outer: Mapping[str, View], ranges: Mapping[str, int], order: Sequence[str], near: Memory
) -> tuple[int, int] | None:
    """How many rows of a view are touched in turn, and how many lines of a set of a cache these take, where
    loops go in an order; None where no row goes on."""
    moves, run, rows, crowd = _moves(ref, outer), 1, 1, 1
    for name in reversed(order):
        step = abs(moves.coefficient(name))
        if step == run:  # the row goes on
            if rows > 1:
                return rows, crowd
            run *= ranges[name]
        elif ranges[name] > 1:
            rows *= ranges[name]
            crowd *= on_one_set(ranges[name], step * ref.dtype.bytes, near)
    return None


def _steps(block: Block, outer: Mapping[str, View]) -> dict[str, int]:
    """How many bytes each index of a copy moves on in what it reads."""
    read = next(ref for ref in block.refinements if ref.direction.reads)
    moves = _moves(read, outer)
    return {name: abs(moves.coefficient(name)) * read.dtype.bytes for name in block.ranges}


def _along(block: Block, outer: Mapping[str, View]) -> tuple[str, ...]:
    """The indexes of a copy in the order in which what it reads lies in memory; none where it reads so little
    of each page on its way that nothing is fetched ahead."""
    steps = _steps(block, outer)
    touched = next(ref.dtype.bytes for ref in block.refinements if ref.direction.reads)
    for name in sorted(steps, key=lambda name: steps[name]):
        step = steps[name]
        if 0 < step < PAGE_BYTES:
            touched *= min(block.ranges[name], -(-PAGE_BYTES // step))
    if touched < LEAST_OF_PAGE:
        return ()
    return tuple(sorted(block.ranges, key=lambda name: -steps[name]))
