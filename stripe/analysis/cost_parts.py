"""The statements of a nest as a programmer-managed memory sees them: what each brings in and takes out.

A tile of a nest gives each statement the points of the tile (`rewrite.tile_nest`); a statement may
then get a tile loop of its own, over reductions of its own, with a tile of each operand inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stripe.affine import Affine
from stripe.analysis.bounds import Leaf, Operand, Views, leaves
from stripe.ir import Aggregation, Block, Direction, Load, Refinement, Special, Statement, Store
from stripe.names import Names
from stripe.visit import buffers_used, parted, walk

# Which indexes of a statement get a tile loop below that of the nest.
Loops = Literal["none", "reductions", "all"]


@dataclass(frozen=True, slots=True)
class Use:
    """A use of a stencil below a statement: the block with the tag, its innermost leaf, and the
    ranges around it, by variable."""

    block: Block
    around: Mapping[str, int]
    leaf: Leaf


@dataclass(frozen=True, slots=True)
class Part:
    """One statement of a nest, or the scalar statements between two blocks.

    `own` are the variables of its own indexes with their ranges, `loops` those of its tile loop; a
    variable is an index of the nest or STATEMENT.INDEX for one of the statement's own. `operands` are
    over the variables. `uses` are the stencils below it, `leaves` its other leaves, `held` the
    bytes of buffers below it.
    """

    name: str
    own: Mapping[str, int]
    loops: Mapping[str, int]
    operands: tuple[Operand, ...]
    uses: tuple[Use, ...]
    leaves: tuple[Leaf, ...]
    held: int


@dataclass(frozen=True, slots=True)
class Nest:
    """A block by its parts. `outer` are the ranges that the tile of the nest is over."""

    block: Block
    outer: Mapping[str, int]
    parts: tuple[Part, ...]


def nest_of(
    block: Block, outer: Views, names: Sequence[str], loops: Loops, whole: frozenset[str] = frozenset()
) -> Nest:
    """The nest of a block whose parent has the views `outer`; only indexes in `names` are tiled, if any
    are given (variables of statements by the index or in full), and none of the block's in `whole`."""
    groups = parted(block.statements)
    ranges = block.ranges
    single = len(groups) <= 1
    reduced = _reduced(block, outer) if single and loops != "none" else frozenset()
    own = {n: s for n, s in ranges.items() if n in reduced and _named(names, n)}
    labels = Names()
    parts = tuple(
        _part(block, outer, labels.fresh(_name(block, group)), group, loops, names, own) for group in groups
    )
    among = {
        n: s for n, s in ranges.items() if s > 1 and n not in own and n not in whole and _named(names, n)
    }
    return Nest(block, among, parts)


def _name(block: Block, group: tuple[Statement, ...]) -> str:
    return group[0].name if isinstance(group[0], Block | Special) else block.name


def _named(names: Sequence[str], name: str, full: str = "") -> bool:
    return not names or name in names or full in names


def _reduced(block: Block, outer: Views) -> frozenset[str]:
    """The block's indexes that nothing it writes depends on, so that partial results stay put."""
    written = [r for r in block.refinements if r.direction.writes]
    if any(r.aggregation is Aggregation.ASSIGN for r in written):
        return frozenset()
    used = {n for r in written for e in r.access for n in e.names}
    return frozenset(n for n, size in block.ranges.items() if size > 1 and n not in used)


def _part(
    block: Block,
    outer: Views,
    label: str,
    group: tuple[Statement, ...],
    loops: Loops,
    names: Sequence[str],
    own: Mapping[str, int],
) -> Part:
    first = group[0]
    alone = replace(block, statements=group)
    found = leaves(alone, outer)
    if not isinstance(first, Block):
        return Part(label, {}, own, tuple(_direct(block, group)), (), found, 0)
    # The variables of the child's indexes: `leaves` puts them behind those of the block.
    fresh = _fresh_names(found, block, first)
    variables = {name: f"{label}.{name}" for name in first.ranges}
    mine = {variables[name]: size for name, size in first.ranges.items()}
    operands = tuple(_through(block, first, variables))
    split = {}
    if not first.has_tag("stencil") and loops != "none" and not own:
        reductions = _own_reductions(first, operands, variables)
        split = {
            variables[n]: size
            for n, size in first.ranges.items()
            if size > 1 and (loops == "all" or n in reductions) and _named(names, n, variables[n])
        }
    around = {} if first.has_tag("stencil") else mine
    uses = tuple(_uses(first, {**block.ranges, **around}, {id(leaf.block): leaf for leaf in found}))
    covered = {id(b) for use in uses for _, b in walk(use.block)}
    rest = tuple(_renamed(leaf, fresh, variables) for leaf in found if id(leaf.block) not in covered)
    return Part(label, mine, {**own, **split}, operands, uses, rest, _held(first))


def _fresh_names(found: Sequence[Leaf], block: Block, child: Block) -> dict[str, str]:
    if not found:
        return {}
    below = list(found[0].ranges)[len(block.ranges) : len(block.ranges) + len(child.ranges)]
    return dict(zip(below, child.ranges, strict=True))


def _renamed(leaf: Leaf, fresh: Mapping[str, str], variables: Mapping[str, str]) -> Leaf:
    """The leaf over the variables of the nest."""
    new = {name: variables[own] for name, own in fresh.items()}
    values = {name: Affine.index(variable) for name, variable in new.items()}
    operands = tuple(replace(o, access=tuple(e.substitute(values) for e in o.access)) for o in leaf.operands)
    return replace(leaf, ranges={new.get(n, n): s for n, s in leaf.ranges.items()}, operands=operands)


def _through(block: Block, child: Block, variables: Mapping[str, str]) -> Iterator[Operand]:
    """What one point of a child touches, over the variables."""
    values = {n: Affine.index(v) for n, v in variables.items()}
    values |= {i.name: i.passed for i in child.indexes if i.passed is not None}
    seen = set()
    for ref in child.refinements:
        if ref.direction is Direction.NEW:
            continue
        outer = block.refinement(ref.source)
        access = tuple(e.substitute(values) for e in ref.access)
        made = _operand(outer, access, ref.shape, ref.direction, ref.aggregation)
        key = (made.name, made.access, made.extent, made.direction.writes)
        if key not in seen:
            seen.add(key)
            yield made


def _direct(block: Block, group: tuple[Statement, ...]) -> Iterator[Operand]:
    """What scalar statements and specials touch: whole views, or the parts that a special names."""
    seen = set()
    for statement in group:
        for name, direction in buffers_used(statement):
            outer = block.refinement(name)
            origin = (Affine(),) * len(outer.shape)
            shape = (1,) * len(outer.shape) if isinstance(statement, Load | Store) else outer.shape
            if (name, direction.writes) in seen:
                continue
            seen.add((name, direction.writes))
            aggregation = outer.aggregation if direction.writes else None
            if direction.writes and outer.direction is Direction.INOUT:
                direction = Direction.INOUT
            yield _operand(outer, origin, shape, direction, aggregation)


def _operand(
    outer: Refinement,
    access: tuple[Affine, ...],
    shape: tuple[int, ...],
    direction: Direction,
    aggregation: Aggregation | None,
) -> Operand:
    local = outer.direction is Direction.NEW
    if not local:
        access = tuple(o + e for o, e in zip(outer.access, access, strict=True))
        if direction.writes and outer.aggregation is not None:
            aggregation = outer.aggregation if outer.aggregation is not Aggregation.ASSIGN else aggregation
    strides = (0,) * len(shape)
    return Operand(outer.name, direction, outer.dtype, access, shape, strides, aggregation, local)


def _own_reductions(
    child: Block, operands: Sequence[Operand], variables: Mapping[str, str]
) -> frozenset[str]:
    """The child's indexes that an aggregated result does not depend on."""
    written = [o for o in operands if o.direction.writes and o.combines]
    return frozenset(n for n in child.ranges if any(variables[n] not in o.indexes for o in written))


def _uses(block: Block, around: Mapping[str, int], found: Mapping[int, Leaf]) -> Iterator[Use]:
    if block.has_tag("stencil"):
        inner = [found[id(b)] for _, b in walk(block) if id(b) in found]
        if inner:
            yield Use(block, around, inner[-1])
        return
    for number, child in enumerate(block.children):
        inside = {f"{len(around)}.{number}.{n}": s for n, s in child.ranges.items()}
        yield from _uses(child, around if child.has_tag("stencil") else {**around, **inside}, found)


def _held(block: Block) -> int:
    """Bytes of the buffers of the blocks of a statement that are alive at a time, without those that
    have a place."""
    own = sum(r.bytes for r in block.refinements if r.direction is Direction.NEW and r.location is None)
    return block.inflight * (own + max((_held(child) for child in block.children), default=0))
