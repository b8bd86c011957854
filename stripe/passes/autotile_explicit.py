"""autotile for programmer-managed memories: the nest rebuilt with its levels of tiles, and the error
where no tile fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.analysis.cost_explicit import LEVEL, ExplicitRoofline
from stripe.analysis.cost_parts import Part
from stripe.analysis.liveness import enough_text
from stripe.analysis.search import Candidate, Found, search
from stripe.diag import CompileError, Diagnostic, Span
from stripe.ir import Block, Direction, Special, Statement, Tag
from stripe.rewrite import RewriteRefused, tile_block, tile_nest
from stripe.visit import parted, walk


def tiled_with(model: ExplicitRoofline, sizes: Mapping[str, int], order: Sequence[str], whole: bool) -> Block:
    """The block with its levels of tiles, whose loops are in `order`; `whole`: around statements that
    stay as they are. Raises RewriteRefused."""
    tiled = (_whole if whole else _levels)(model, sizes, [n for n in order if n != LEVEL])
    around = order[: order.index(LEVEL)] if LEVEL in order else ()
    several = {n: 1 for n in tiled.ranges if n in around}
    if not several or len(several) == len(tiled.ranges):
        return tiled
    return tile_block(tiled, several, tags=level_tags(model.problem.memory.name))


def _levels(model: ExplicitRoofline, sizes: Mapping[str, int], order: Sequence[str]) -> Block:
    """The block with a level of tiles over the nest's indexes, one below it over those that results
    do not depend on, and one for each statement with loops of its own. The first is there even if it has
    one tile, so that copies have a place.

    Raises RewriteRefused where the nest does not come apart into its statements.
    """
    block, nest = model.problem.block, model.nest
    tags = level_tags(model.problem.memory.name)
    split = {part.name: _several(part.loops, sizes) for part in nest.parts}
    tiled = tile_nest(block, {n: sizes[n] for n in nest.outer}, order, tags=tags)
    if any(split.values()):
        if len(tiled.statements) != len(nest.parts):
            raise RewriteRefused("its scalars connect its statements")
        statements = [
            _with_loop(model, part, statement, child, split[part.name], tags)
            for part, statement, (child, *_) in zip(
                nest.parts, tiled.statements, parted(block.statements), strict=True
            )
        ]
        tiled = replace(tiled, statements=tuple(statements))
    return _reductions_inside(model, tiled, sizes, tags)


def _whole(model: ExplicitRoofline, sizes: Mapping[str, int], order: Sequence[str]) -> Block:
    """The block with a level of tiles around it; its statements stay as they are."""
    tags = level_tags(model.problem.memory.name)
    tiled = tile_block(model.problem.block, {n: sizes[n] for n in model.nest.outer}, order, tags=tags)
    return _reductions_inside(model, tiled, sizes, tags)


def dealt_out(block: Block) -> Block:
    """A block whose points go to several units as a block over these, with what each of them executes in it.

    before:  block t [m:4, i:16] @CORE[m] (in A[m, i]  out R[m, i]:assign) {...}
    after:   block t [m:4] @CORE[m] (in A[m, 0] (1, 16)  out R[m, 0]:assign (1, 16)) {
               block t [i:16] (in A[0, i]  out R[0, i]:assign) {...} }

    It comes back as it is if each of its points is one block.
    """
    location = block.location
    assert location is not None and location.bank is not None
    number, ranges = location.bank, block.ranges
    units = [name for name, size in ranges.items() if size > 1 and name in number.names]
    alone = len(block.statements) == 1 and isinstance(block.statements[0], Block)
    if alone and len(units) == sum(size > 1 for size in ranges.values()):
        return block
    made = tile_block(replace(block, location=None), dict.fromkeys(units, 1))
    known = {index.name for index in made.indexes}
    passed = (i for i in block.indexes if i.passed is not None and i.name in number.names)
    number = number.substitute({name: Affine() for name, size in ranges.items() if size == 1})
    return replace(
        made,
        indexes=(*made.indexes, *(i for i in passed if i.name not in known)),
        location=replace(location, bank=number),
    )


def level_tags(memory: str) -> tuple[Tag, ...]:
    """The tags of a block whose points are tiles that fit in a memory."""
    return Tag("tiled"), Tag("fits", memory)


def _several(loops: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the loops that have several tiles."""
    return {name: sizes[name] for name, size in loops.items() if sizes.get(name, size) < size}


def _with_loop(
    model: ExplicitRoofline,
    part: Part,
    statement: Statement,
    child: Statement,
    split: Mapping[str, int],
    tags: tuple[Tag, ...],
) -> Statement:
    """A statement of the tiled nest with its own tile loop."""
    if not split:
        return statement
    assert isinstance(statement, Block)
    names = {name: name for name in model.problem.block.ranges}
    ranges = list(statement.ranges.items())
    if isinstance(child, Block) and not child.has_tag("stencil"):
        below = ranges[len(ranges) - len(child.ranges) :]
        if [size for _, size in below] != list(child.ranges.values()) or len(below) < len(child.ranges):
            raise RewriteRefused(f"'{part.name}' keeps its points apart from those of the tile")
        names |= {f"{part.name}.{own}": name for own, (name, _) in zip(child.ranges, below, strict=True)}
    sizes = {names[variable]: size for variable, size in split.items()}
    aggregated = [r for r in statement.refinements if r.combines]
    used = {n for r in aggregated for e in r.access for n in e.names}
    return tile_block(statement, sizes, [n for n in sizes if n not in used], tags=tags)


def _reductions_inside(
    model: ExplicitRoofline, tiled: Block, sizes: Mapping[str, int], tags: tuple[Tag, ...]
) -> Block:
    """The tiles that add to the same results in a level of their own, so that these can stay there."""
    several = set(_several(model.nest.outer, sizes))
    around = several - set(model.reduced)
    if not around or around == several:
        return tiled
    return tile_block(tiled, dict.fromkeys((n for n in tiled.ranges if n in around), 1), tags=tags)


def descends(block: Block) -> bool:
    """Whether each statement of a block is a nest that can be tiled by itself."""
    return bool(block.statements) and all(
        isinstance(s, Block) and not s.has_tag("stencil") and not _is_special(s) for s in block.statements
    )


def _is_special(block: Block) -> bool:
    return any(isinstance(s, Special) for s in block.statements)


@dataclass(frozen=True, slots=True)
class TooSmall:
    """A block of which not even the smallest tile fits. `over`: what that needs of each memory that it
    exceeds, and what there is; beside it, `held` bytes of the memory of the step lie around the block."""

    message: str
    notes: tuple[str, ...]
    over: Mapping[str, tuple[int, int]]
    span: Span | None
    held: tuple[str, int] = ("", 0)

    @property
    def needs(self) -> dict[str, int]:
        """What would be enough of each of these memories."""
        name, held = self.held
        return {memory: needed + held * (memory == name) for memory, (needed, _) in self.over.items()}


def all_too_small(found: Sequence[TooSmall], hw: HwConfig) -> CompileError:
    """The error for all blocks that do not fit, with what would be enough for them."""
    needs: dict[str, int] = {}
    for one in found:
        for name, needed in one.needs.items():
            needs[name] = max(needed, needs.get(name, 0))
    advice = "help: " + enough_text(needs, hw)
    if len(found) > 1:
        advice = advice.removesuffix("it fits") + f"all {len(found)} of these fit"
    advice += "; or choose another memory with the option 'memory'"
    return CompileError(*(Diagnostic("P110", one.message, one.span, (*one.notes, advice)) for one in found))


def too_small(path: str, found: Found, model: ExplicitRoofline, held: int) -> TooSmall:
    """A block none of whose tiles fits; `held` bytes of buffers lie around it."""
    least = smallest(found)
    over = _over(found, least)
    shown = ", and ".join(f"{needed} bytes of {name}" for name, (needed, _) in over.items())
    short = ", and ".join(
        f"there are {capacity}: {needed - capacity} too many" for needed, capacity in over.values()
    )
    message = f"autotile: no tile of '{path}' fits: the smallest needs {shown}, of which {short}"
    reasons, memory = list(_reasons(model)), model.problem.memory.name
    if held and memory in over:
        reasons.append(f"note: {held} bytes of buffers around it lie in {memory}, too")
    return TooSmall(message, tuple(reasons), over, model.problem.block.span, (memory, held))


def claimed_bytes(block: Block, memory: Memory) -> int:
    """The bytes of a block's own buffers that lie in the memory, or may come to."""
    sizes = [
        ref.bytes
        for ref in block.refinements
        if ref.direction is Direction.NEW and (ref.location is None or ref.location.unit == memory.name)
    ]
    return sum(-(-size // memory.align_bytes) * memory.align_bytes for size in sizes)


def use_too_large(path: str, model: ExplicitRoofline) -> TooSmall | None:
    """One use of a stencil, where it does not fit."""
    found = search(model, 1, given=model.ranges)
    if found.best is not None:
        return None
    over = _over(found, smallest(found))
    name = model.problem.block.tag_values("stencil")[0]
    shown = ", and ".join(
        f"{needed} bytes of {memory}, of which there are {capacity}: {needed - capacity} too many"
        for memory, (needed, capacity) in over.items()
    )
    message = f"autotile: '{path}' does not fit: one use of '{name}' needs {shown}"
    return TooSmall(message, (f"note: {_SMALLER_USE}",), over, model.problem.block.span)


_SMALLER_USE = "what a stencil takes in one use is never split; a choice for 'stencil' can make uses smaller"


def _over(found: Found, least: Candidate) -> dict[str, tuple[int, int]]:
    """What a candidate needs of each memory that it exceeds, and the capacity."""
    over: dict[str, tuple[int, int]] = {}
    for needed, (capacity, resource) in zip(least.needs, found.limits, strict=True):
        if capacity is not None and needed > capacity:
            name = resource.removeprefix("bytes of ")
            over[name] = max((needed, capacity), over.get(name, (0, 0)))
    return over


def _reasons(model: ExplicitRoofline) -> Iterator[str]:
    """What is not split, and why."""
    block, memory = model.problem.block, model.problem.memory.name
    if any(b.has_tag("stencil") for _, b in walk(block)):
        yield f"note: {_SMALLER_USE}"
    if any(_is_special(b) for _, b in walk(block)):
        yield "note: a special works on whole operands"
    if model.problem.names and not model.ranges:
        yield f"note: no index that may be tiled is among 'indices': {', '.join(model.problem.names)}"
    if not model.splits:
        whole = {n: size for n, size in block.ranges.items() if n in model.problem.reduced and size > 1}
        points = ", ".join(f"{name} of {size} points" for name, size in whole.items())
        which = f" ({points})" if points else ""
        if model.problem.reductions is None:
            yield f"note: reductions{which} are not split: no unit that computes reaches {memory}"
        else:
            yield f"note: reductions{which} are not split: the option 'reductions' says so"


def smallest(found: Found) -> Candidate:
    """The candidate that exceeds the fewest limits, and these by least; of none that fits."""
    limits = [capacity for capacity, _ in found.limits]

    def beyond(candidate: Candidate) -> tuple[int, int]:
        over = [n - c for n, c in zip(candidate.needs, limits, strict=True) if c is not None and n > c]
        return len(over), sum(over)

    return min(found.excluded, key=beyond)
