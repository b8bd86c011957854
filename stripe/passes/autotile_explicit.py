"""autotile for programmer-managed memories: the nest rebuilt with its levels of tiles, and the error
where no tile fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stripe.analysis.cost_explicit import LEVEL, ExplicitRoofline
from stripe.analysis.cost_parts import Part
from stripe.analysis.search import Candidate, Found
from stripe.diag import CompileError, Diagnostic
from stripe.ir import Aggregation, Block, Special, Statement, Store, Tag
from stripe.rewrite import RewriteRefused, tile_block, tile_nest
from stripe.visit import walk


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
            for part, statement, child in zip(nest.parts, tiled.statements, _children(block), strict=True)
        ]
        tiled = replace(tiled, statements=tuple(statements))
    return _reductions_inside(model, tiled, sizes, tags)


def _whole(model: ExplicitRoofline, sizes: Mapping[str, int], order: Sequence[str]) -> Block:
    """The block with a level of tiles around it; its statements stay as they are."""
    tags = level_tags(model.problem.memory.name)
    tiled = tile_block(model.problem.block, {n: sizes[n] for n in model.nest.outer}, order, tags=tags)
    return _reductions_inside(model, tiled, sizes, tags)


def level_tags(memory: str) -> tuple[Tag, ...]:
    return Tag("tiled"), Tag("fits", memory)


def _several(loops: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the loops that have several tiles."""
    return {name: sizes[name] for name, size in loops.items() if sizes.get(name, size) < size}


def _children(block: Block) -> Iterator[Statement | None]:
    """For each part of a nest its block or special, None for scalar statements."""
    stores = False
    for statement in block.statements:
        if isinstance(statement, Block | Special):
            if stores:
                yield None
            yield statement
            stores = False
        else:
            stores = stores or isinstance(statement, Store)
    if stores:
        yield None


def _with_loop(
    model: ExplicitRoofline,
    part: Part,
    statement: Statement,
    child: Statement | None,
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
    aggregated = [r for r in statement.refinements if r.aggregation not in (None, Aggregation.ASSIGN)]
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


def too_small(path: str, found: Found, model: ExplicitRoofline) -> CompileError:
    """The error where not even the smallest tile of a block fits."""
    block, memory = model.problem.block, model.problem.memory.name
    least = smallest(found)
    capacity, resource = found.limits[least.exceeded]
    assert capacity is not None
    notes = []
    if any(b.has_tag("stencil") for _, b in walk(block)):
        notes.append("note: what a stencil takes in one use is never split")
    if any(_is_special(b) for _, b in walk(block)):
        notes.append("note: a special works on whole operands")
    if model.problem.names and not model.ranges:
        notes.append(f"note: no index that may be tiled is among 'indices': {', '.join(model.problem.names)}")
    if not model.splits and model.problem.reductions is None:
        notes.append(f"note: reductions are not split: no unit that computes reaches {memory}")
    notes.append("help: give the memory more bytes, or choose another one with the option 'memory'")
    return CompileError(
        Diagnostic(
            "P110",
            f"autotile: no tile of '{path}' fits: the smallest needs {least.needed} {resource}, of "
            f"which there are {capacity}: {least.needed - capacity} too many",
            block.span,
            tuple(notes),
        )
    )


def smallest(found: Found) -> Candidate:
    """The candidate that exceeds its limit by least; of none that fits."""
    return min(found.excluded, key=lambda c: c.needed - (found.limits[c.exceeded][0] or 0))
