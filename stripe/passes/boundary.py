"""boundary: separate full tiles from ragged ones, so that the interior has no constraints."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from hwconfigs.model import HwConfig, own_cache
from stripe.alike import kind, renaming, translated
from stripe.analysis.bounds import box_elements, leaves, operands
from stripe.analysis.cost_roofline import FEW_RESULTS
from stripe.analysis.cost_rows import box_bytes
from stripe.analysis.cost_sets import usable_bytes
from stripe.analysis.deps import accesses
from stripe.analysis.lanes import lane_candidates
from stripe.analysis.ragged import doubts
from stripe.analysis.stencils_groups import instructions
from stripe.diag import Remark, did_you_mean
from stripe.ir import Block, Direction, Program, Statement
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.boundary_chosen import Separated, Split
from stripe.passes.boundary_trimmed import with_plain_tests, without_empty_points, without_private_tests
from stripe.passes.choices import Choice
from stripe.rewrite import RewriteRefused, tile_block
from stripe.rewrite_split import split_index
from stripe.visit import View, map_roots, views_of, walk

# Points with a test can't be part of an instruction on registers that hold rows, and take some ten times as
# long without it. So this share of `min_gain` is enough to spare them the test.
TESTED_ROWS = 0.1
ABOUT = 0.9  # a gain counts as equal to the greatest if it is at least this share of it


@dataclass(frozen=True)
class Boundary(Pass):
    """Split a loop where a constraint below it starts or ceases to hold for every point inside.

    before:  block c [m:74] (in A[14*m] (14)  out C[14*m]:assign (14)) #tiled {
               block c [m:14, mo = 14*m] (1022 - m - mo >= 0  in A[m]  out C[m]:assign) {...} }
    after:   block c [m:73] (in A[14*m] (14)  out C[14*m]:assign (14)) #tiled {
               block c [m:14] (in A[m]  out C[m]:assign) {...} }
             block c_1 [] (in A[1022] (14)  out C[1022]:assign (14)) #tiled {
               block c [] (in A[0]  out C[0]:assign) {...} }

    Ragged tiles at the end of a range and the borders of a window that overhangs its input are
    found alike: for each loop, the values at which some point below violates a constraint. The loop
    and value that spare the most points a test come first, at any level of the nest, until the code
    is `max_variants` times as long or the next split would free less than `min_gain` percent of the
    points. Kernels that do little of the program's work stay as they are. Each part gets its ranges
    and constraints in their simplest form, so that the last tile is a smaller tile where it is the
    only ragged one. Once lanes are tagged (`#vector`) and what is written out (`#unroll`), a constraint
    costs nothing where it only says where loops begin and end, unless an instruction takes whole blocks of
    their points (`#group`, on registers that hold rows).

    The loops around the one that is split stay whole, and hold both parts, where each of these would bring in
    again more than the caches of a core hold, for few results: the last rows of a short matrix, here 64 in
    tiles of 6.

    before:  block t [k:64, m:11] (in B[k] ...) #tiled {...}
    after:   block t [k:64] { block t [m:10] (in B[k] ...) #tiled {...}
                              block t_1 [] (in B[k] ...) #tiled {...} }

    Then loops end where no block inside has a point any more, as in a triangle of tiles:

    after:   block t [m:4, n:4] (6*m + 5 - 6*n >= 0 ...) {
               block c [m:6, n:6, mo = 6*m, no = 6*n] (mo + m - no - n >= 0 ...) {...} }

    and where the results of written-out code stay in registers and nothing else writes there, those on the
    other side of a constraint are computed, too, if all that this reads is known to be there: nothing reads
    them, and it costs less than to ask. Whether any of them is on this side is asked once for all of a sum.
    Where not all of it is there, what is asked says how far rows or columns go, and no more, so that only
    the last tiles ask: of `i - j >= 0`, where i goes to 299, that is `299 - j >= 0`.

    Legal always where the parts write different elements. Where both aggregate into one, the
    second folds in what the first left (`inout`), if it finds every element written; else the loop
    stays whole. The points of a tile (`#tiled`) are not separated, only tiles are; nor is an index
    that lanes will run along, where the unit has masks (`masked_memory`).

    Stripe paper, section 2.3, "Separating Interior and Boundary Tiles".
    """

    name: ClassVar[str] = "boundary"
    tags_read: ClassVar[tuple[str, ...]] = ("tiled", "stencil", "unroll", "vector", "group")
    choice: ClassVar[type[Choice]] = Separated

    max_variants: int = option(5, "how many times as long the code of a kernel may become", "copies", least=1)
    min_gain: int = option(
        10, "the share of a kernel's points that a split must spare a test", "percent", least=0, most=100
    )
    min_share: int = option(
        5, "the least that a kernel must be of the one with the most points", "percent", least=0, most=100
    )

    def run(self, program: Program, context: PassContext) -> Program:
        return map_roots(program, lambda root: _Root(self, context, root).separated())


@dataclass(frozen=True, slots=True)
class _Cut:
    """A loop, found by the positions of statements that lead to it from the root, and a value. `within`: the
    loops around it stay whole."""

    path: tuple[int, ...]
    block: Block
    index: str
    at: int
    gain: float
    within: bool = False


# Why a block stays whole along an index: by the id of the block, which is kept with it, so that no other
# block gets that id when this one has been rewritten.
_Refusals: TypeAlias = dict[tuple[int, str], tuple[Block, str]]


@dataclass(frozen=True, slots=True)
class _Made:
    """What a kernel became, and what was said and chosen. `like` is what it has in common with those that are
    alike, by whose id it is found."""

    like: Block
    kernel: Block
    parts: tuple[Statement, ...]
    remark: Remark | None
    choice: Choice | None


class _Root:
    """The kernels of one root."""

    def __init__(self, options: Boundary, context: PassContext, root: Block) -> None:
        self._options = options
        self._context = context
        self._root = root
        self._names = Names(s.name for s in root.children)
        self._most = max(map(_points, root.children), default=0)
        self._known: dict[Hashable, _Made] = {}

    def separated(self) -> Block:
        statements: list[Statement] = []
        for statement in self._root.statements:
            statements += (
                self._trimmed(statement, statements) if isinstance(statement, Block) else [statement]
            )
        if all(new is old for new, old in zip(statements, self._root.statements, strict=False)):
            return self._root
        return replace(self._root, statements=tuple(statements))

    def _trimmed(self, kernel: Block, before: Sequence[Statement]) -> list[Statement]:
        """The parts of a kernel without what nobody needs: points with nothing below them, tests of results
        that are not read."""
        made: list[Statement] = []
        plain = with_plain_tests(replace(self._root, statements=tuple(before)), kernel, self._context.hw)
        if plain is not kernel:
            text = "what is written out asks for the ends of rows and columns alone"
            self._context.remark(f"{self._root.name}/{kernel.name}", True, text)
        for part in self._parts(plain):
            assert isinstance(part, Block)
            frame = replace(self._root, statements=(*before, *made))
            short = without_empty_points(part)
            free = without_private_tests(frame, short, self._context.hw)
            if free is not part:
                done = "loops end where nothing is left" if short is not part else ""
                if free is not short:
                    done += (" and " if done else "") + "results that nothing reads are computed untested"
                self._context.remark(f"{self._root.name}/{part.name}", True, done)
            made.append(free)
        return made

    def _parts(self, kernel: Block) -> Sequence[Statement]:
        """What a kernel becomes; one that is like another before it goes the same way."""
        if not any(block.constraints for _, block in walk(kernel)):
            return (kernel,)
        where = f"{self._root.name}/{kernel.name}"
        said = self._context.key(where)
        given = self._context.explicit(said, Separated)
        if given is None and not self._context.searches:
            self._context.undecided(where)
            return (kernel,)
        common = kind(kernel).block
        key = (
            given,
            id(common),
            tuple(
                replace(self._root.refinement(r.source), name="", source="", span=None)
                for r in kernel.refinements
                if r.direction is not Direction.NEW
            ),
        )
        if key not in self._known:
            known = len(self._context.remarks)
            parts = tuple(self._given(kernel, given, said) if given else self._kernel(kernel, said))
            remark = self._context.remarks[known] if len(self._context.remarks) > known else None
            self._known[key] = _Made(common, kernel, parts, remark, self._context.choices.get(said))
            return parts
        made = self._known[key]
        like, parts = made.kernel, made.parts
        if made.remark is not None:
            self._context.remarks.append(replace(made.remark, block=where))
        if made.choice is not None:
            self._context.chose(said, made.choice)
        if parts == (like,):
            return (kernel,)
        names = renaming(like, kernel)
        found = [translated(part, names, kernel) for part in parts if isinstance(part, Block)]
        return [found[0], *(replace(part, name=self._names.fresh(kernel.name)) for part in found[1:])]

    def _given(self, kernel: Block, given: Separated, key: str) -> Sequence[Statement]:
        """What a kernel becomes by the splits that are given. Raises CompileError P009 for one that there
        can't be."""
        frame = replace(self._root, statements=(kernel,))
        made: list[_Cut] = []
        for number, split in enumerate(given.splits):
            field, chain = f"splits[{number}]", [frame]
            for at in split.path:
                inside = chain[-1].statements
                child = inside[at] if at < len(inside) else None
                if not isinstance(child, Block):
                    reason = f"'{chain[-1].name}' has {len(inside)} statements, and no block at {at}"
                    if chain[-1] is frame:
                        reason = f"the kernel has {len(inside)} parts, from 0 on, and not {at}"
                    raise self._context.refused(key, reason, f"{field}.path")
                chain.append(child)
            *_, block = chain
            size = block.ranges.get(split.index, 0) if split.path else 0
            if not size:
                notes = did_you_mean(split.index, block.ranges) if split.path else ()
                reason = f"'{block.name}' has no loop '{split.index}'"
                raise self._context.refused(key, reason, f"{field}.index", *notes)
            if split.at >= size:
                reason = f"{split.index} has {size} points: a split at {split.at} leaves nothing to split"
                raise self._context.refused(key, reason, f"{field}.at")
            if not _may_cut(chain[1:], split.index):
                reason = "tiles are separated, not the points of one, nor what one instruction does"
                raise self._context.refused(key, reason, field)
            made.append(_Cut(split.path, block, split.index, split.at, 0.0, split.within))
            try:
                frame = _apply(frame, made[-1], (), self._names)
            except RewriteRefused as error:
                raise self._context.refused(key, error.reason, field) from None
        self._remark(kernel, frame, made, max(1, _points(kernel)), "no other is given", key)
        return frame.statements

    def _kernel(self, kernel: Block, key: str) -> Sequence[Statement]:
        if _points(kernel) < self._options.min_share / 100 * self._most:
            share = _points(kernel) / self._most
            self._decline(kernel, f"it has {share:.1%} of the points of the greatest kernel")
            return (kernel,)
        frame, total = replace(self._root, statements=(kernel,)), max(1, _points(kernel))
        whole, groups = self._masked(kernel), self._in_rows()
        least, most = self._options.min_gain / 100, self._options.max_variants * _length(kernel)
        if groups and any(block.has_tag("group") for _, block in walk(kernel)):
            least *= TESTED_ROWS
        refused: _Refusals = {}
        made: list[_Cut] = []
        while cut := _best(frame, refused, whole, least * total, groups):
            if cut.gain < least * total:
                reason = (
                    f"the best split, of {_text(cut)}, spares {cut.gain / total:.1%} of the points a test"
                )
                break
            if _length(frame) + _length(cut.block) > most:
                limit = f"more than {self._options.max_variants} times as long"
                reason = f"a split of {_text(cut)} makes the code {limit}"
                break
            cut = replace(cut, within=_shared(frame, cut, self._context.hw))
            try:
                frame = _apply(frame, cut, (), self._names)
                made.append(cut)
            except RewriteRefused as error:
                refused[id(cut.block), cut.index] = cut.block, f"'{cut.index}' stays whole: {error.reason}"
        else:
            reason = "no loop around a constraint has values at which it surely holds"
            if whole:
                reason = f"tests along '{whole}' are masks of whole vectors, which cost nothing"
            reason = next((why for _, why in refused.values()), reason)
        self._remark(kernel, frame, made, total, reason, key)
        return frame.statements

    def _masked(self, kernel: Block) -> str:
        """The index of a kernel whose tests become masks at no cost: that which its lanes will run
        along, on a target with masked vectors. Split there, all vectors would begin off their place."""
        unit = self._context.hw.compute_unit
        if unit is None or "masked_memory" not in unit.capabilities:
            return ""
        found = leaves(kernel, views_of(self._root, {}))
        lead = max(found, key=lambda leaf: leaf.points, default=None)
        lanes = lane_candidates(lead, unit.vector_bytes) if lead is not None else ()
        return lanes[0].index if lanes and lanes[0].index in kernel.ranges else ""

    def _in_rows(self) -> bool:
        """Whether the target has instructions on registers that hold rows: they take whole blocks of the
        points of groups, and no test."""
        return any(made.tiles is not None for made in instructions(self._context.hw))

    def _decline(self, kernel: Block, reason: str) -> None:
        self._context.remark(f"{self._root.name}/{kernel.name}", False, f"not separated: {reason}")

    def _remark(
        self, kernel: Block, frame: Block, made: Sequence[_Cut], total: int, reason: str, key: str
    ) -> None:
        if not made:
            self._decline(kernel, reason)
            return
        self._context.chose(key, Separated(tuple(Split(c.path, c.index, c.at, c.within) for c in made)))
        free = sum(_free_points(block, self._in_rows()) for block in frame.children) / total
        self._context.remark(
            f"{self._root.name}/{kernel.name}", True,
            f"split {', '.join(map(_text, made))}: {free:.0%} of the points have no test",
            splits=[{"block": c.block.name, "index": c.index, "at": c.at} for c in made],
            free=free, length=_length(frame) / _length(kernel), left=reason,
        )  # fmt: skip


def _text(cut: _Cut) -> str:
    return f"{cut.index} at {cut.at}"


def _best(frame: Block, refused: _Refusals, whole: str, least: float, groups: bool) -> _Cut | None:
    """The split that spares the most points a test; `whole` is an index of the kernel whose
    tests cost nothing, `groups`: each constraint on points with `#group` is a test.

    A reduction is split only where nothing else reaches `least`: what it adds up would go to memory
    in between.
    """
    reduction: _Cut | None = None
    for cut in _cuts(frame, whole, groups):
        if (id(cut.block), cut.index) in refused:
            continue
        if not _reduces(_chain(frame, cut.path[:-1])[-1], cut.block, cut.index):
            return cut if cut.gain >= least or reduction is None else reduction
        reduction = reduction or cut
    return reduction


def _cuts(frame: Block, whole: str, groups: bool) -> list[_Cut]:
    """Every split that spares some points a test: the most first, of about equals the outermost, of
    these that of the first index, so that both ends of one are split before another."""
    gains: dict[tuple[tuple[int, ...], str, int], float] = {}
    for number, kernel in enumerate(frame.children):
        about = doubts(kernel, (frame,))
        masks = {doubt.constraint for doubt in about if not doubt.path and doubt.index == whole}
        found = [
            replace(d, path=(number, *d.path))
            for d in about
            if d.constraint not in masks
            and _is_test(_chain(kernel, d.constraint[:-1])[-1], d.constraint[-1], groups)
        ]
        keys = dict.fromkeys((doubt.path, doubt.index, at) for doubt in found for at in doubt.cuts)
        for path, index, at in keys:
            gains[path, index, at] = sum(d.freed(at) for d in found if (d.path, d.index) == (path, index))
    most = max(gains.values(), default=0.0)
    cuts: list[tuple[tuple[float, int, int, tuple[int, ...], int], _Cut]] = []
    for (path, index, at), gain in gains.items():
        chain = _chain(frame, path)
        if _may_cut(chain[1:], index):
            less = 0.0 if gain >= ABOUT * most else most - gain
            rank = (round(less, 6), len(path), tuple(chain[-1].ranges).index(index), path, at)
            cuts.append((rank, _Cut(path, chain[-1], index, at, gain)))
    return [cut for _, cut in sorted(cuts, key=lambda entry: entry[0])]


def _chain(frame: Block, path: Sequence[int]) -> list[Block]:
    """The blocks from the frame to the one at the end of the path."""
    found = [frame]
    for number in path:
        child = found[-1].statements[number]
        assert isinstance(child, Block)
        found.append(child)
    return found


def _is_test(block: Block, number: int, groups: bool) -> bool:
    """Whether a constraint costs something at each point. It does not if it only says where loops, in
    steps of vectors or not, begin and end, or is decided when its indexes are written out. So long as
    nothing tells which indexes are loops, each constraint is a test."""
    if not block.has_tag("unroll") and not block.has_tag("vector"):
        return True
    if groups and block.has_tag("group"):
        return True
    names, written_out = set(block.constraints[number].expr.names), set(block.tag_values("unroll"))
    return bool(names & written_out) and not names <= written_out


def _may_cut(chain: Sequence[Block], index: str) -> bool:
    """Tiles are separated, not the points of one, but where code for several of its points is written
    out: there the loops around these are. What one instruction does stays together."""
    block = chain[-1]
    if any(tag.value == index for tag in block.tags) or any(b.has_tag("stencil") for b in chain):
        return False
    if block.has_tag("unroll"):
        return True
    in_tile = any(level.has_tag("tiled") for level in chain[:-1])
    return not in_tile or any(inner.has_tag("tiled") for _, inner in walk(block))


def _reduces(parent: Block, block: Block, index: str) -> bool:
    """Whether the place of some result that the block aggregates does not depend on an index."""
    return any(
        access.combines and not any(f".{index}" in expr.names for expr in access.element)
        for access in accesses(parent, block)
        if access.writes
    )


def _around(block: Block, index: str) -> list[str]:
    """The loops of a block around that over an index."""
    loops = [name for name, size in block.ranges.items() if size > 1]
    return loops[: loops.index(index)]


def _shared(frame: Block, cut: _Cut, hw: HwConfig) -> bool:
    """Whether the loops around an index had better stay whole, and hold both parts: each of them would bring
    in again what both read, which is more than the caches of a core hold, but not for one step of these
    loops, and for few results."""
    cache, around = own_cache(hw.memories), _around(cut.block, cut.index)
    capacity = None if cache is None else usable_bytes(cache)
    if cache is None or capacity is None or not around:
        return False
    views: Mapping[str, View] = {}
    for block in _chain(frame, cut.path[:-1]):
        views = views_of(block, views)
    whole, points = cut.block.ranges, _points(cut.block)
    both = [
        operand
        for operand in operands(cut.block, views)
        if operand.direction.reads and not operand.local and cut.index not in operand.indexes
        if points <= FEW_RESULTS * int(box_elements(operand, whole))
    ]
    every, step = (
        sum(box_bytes(operand, ranges, cache.line_bytes) for operand in both)
        for ranges in (whole, whole | dict.fromkeys(around, 1))
    )
    return step <= capacity < every


def _apply(block: Block, cut: _Cut, above: tuple[Block, ...], names: Names | None) -> Block:
    """The block with the loop that `cut.path` leads to as two. `names`: those of its statements."""
    here, (number, *rest) = (*above, block), cut.path
    child = block.statements[number]
    assert isinstance(child, Block)
    if cut.within and not rest:
        child, rest = tile_block(child, dict.fromkeys(_around(child, cut.index), 1)), [0]
        cut = replace(cut, within=False)
    if rest:
        parts: list[Block] = [_apply(child, replace(cut, path=tuple(rest)), here, None)]
    else:
        names = names or Names(s.name for s in block.children)
        found = [part.block for part in split_index(here, child, cut.index, cut.at)]
        parts = [part for part in found if part is not None]
        stem = _stem(child.name, {s.name for s in block.children})
        parts[1:] = [replace(part, name=names.fresh(stem)) for part in parts[1:]]
    statements = (*block.statements[:number], *parts, *block.statements[number + 1 :])
    return replace(block, statements=statements)


def _stem(name: str, siblings: set[str]) -> str:
    """The name of the block that `c_2` was split off from, where it is still there."""
    head, _, tail = name.rpartition("_")
    return head if tail.isdigit() and head in siblings else name


# -- measures -------------------------------------------------------------------------------


def _leaves(
    block: Block, groups: bool = False, points: int = 1, tested: bool = False
) -> Iterator[tuple[int, bool]]:
    """For each block that holds more than blocks: its points in the nest, and whether a constraint
    is tested on the way to them."""
    points *= block.points
    tested = tested or any(_is_test(block, number, groups) for number in range(len(block.constraints)))
    if any(not isinstance(s, Block) for s in block.statements):
        yield points, tested
    for child in block.children:
        yield from _leaves(child, groups, points, tested)


def _points(block: Block) -> int:
    return sum(points for points, _ in _leaves(block))


def _free_points(block: Block, groups: bool) -> int:
    return sum(points for points, tested in _leaves(block, groups) if not tested)


def _length(block: Block) -> int:
    """How many blocks there are below and with a block that hold more than blocks."""
    return sum(1 for _ in _leaves(block))
