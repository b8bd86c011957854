"""Cuts of a nest into parts for units that share their memories, such as the cores of a CPU.

Such a nest has been tiled, vectorised and unrolled already, and each part of it is to be the same code over
fewer points. So an index is cut at the outermost block, or at one further in, which leaves the blocks
around it whole: where 5 tiles of 200 rows do not divide among 2 units, the rows of each tile do.
Since no sum is cut, and vectors stay whole, every element is computed as on one unit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hwconfigs.model import HwConfig, Unit
from stripe.affine import Affine, row_major
from stripe.analysis.bounds import operands
from stripe.analysis.deps import Access, accesses, relation
from stripe.ir import Aggregation, Block, Constraint, Direction, Index, Location, Refinement
from stripe.names import Names
from stripe.poly import PolyhedralLimit
from stripe.rewrite import RewriteRefused, flatten, tile_block
from stripe.visit import View, substitute_indexes

MAX_CUTS = 4096  # ways to cut the outermost block that are weighed
FINE = 20  # parts that differ by less than a 20th of a share are as good as equal
_ALIKE = 5  # what parts touch beside what the whole does, in fifths


@dataclass(frozen=True, slots=True)
class Piece:
    """What a unit runs of a nest that stands inside one which every unit runs.

    The range of `index` is cut into a piece for each unit. If it is an index of the nest, a unit runs the
    points of the nest that are in its piece. If it is one of the block `around` the nest, a unit runs all of
    the nest, at those points of that block that are in its piece. Without an index, the last unit alone runs
    the nest.
    """

    index: str = ""
    around: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Sizes of the pieces along indexes of the block at `level` of a nest (0 is the outermost).

    `share` is the part of all points that the largest piece has, `parts` how many pieces there are.
    """

    level: int
    sizes: tuple[tuple[str, int], ...]
    share: float
    parts: int


def cuts(block: Block, outer: Mapping[str, View], unit: Unit, hw: HwConfig) -> list[Cut]:
    """How a nest can be cut for the copies of a unit, the best first."""
    found: list[tuple[tuple[float, ...], Cut]] = []
    whole = max(1.0, touched(block, outer, {}))
    for level, inner in enumerate(spine(block)):
        if level and not _may_be_hoisted(block):
            break
        for sizes in _sizes(inner, _free(inner), unit, hw, single=level > 0):
            cut = cut_of(inner, sizes, level)
            share = cut.share
            places = [at for at, name in enumerate(inner.ranges) if name in sizes]
            # The rim of a window is no reason to cut further in than at the outermost loop.
            area = touched(block, outer, sizes) * cut.parts / whole if level == 0 else 0.0
            rank = (
                round(share * unit.count * FINE),
                level,
                len(sizes),
                round(area * _ALIKE),
                share,
                *places,
            )
            found.append((rank, cut))
    return [cut for _, cut in sorted(found, key=lambda pair: pair[0])]


def cut_of(inner: Block, sizes: Mapping[str, int], level: int) -> Cut:
    """A cut of the block at a level of a nest."""
    pieces = [-(-inner.ranges[name] // size) for name, size in sizes.items()]
    share = prod(sizes.values()) / prod(inner.ranges[name] for name in sizes)
    return Cut(level, tuple(sizes.items()), share, prod(pieces))


def uncut(block: Block, inner: Block, names: Collection[str]) -> str:
    """Why a nest can't be cut along indexes of one of its levels, as a clause; empty if it may be."""
    free = _free(inner)
    for name in names:
        if name not in free:
            return f"two units would write one element along {name}, or its loop is written out"
    if inner is not block and not _may_be_hoisted(block):
        return "what it writes is seen through two names, so that it can only be cut at its outermost block"
    return ""


def spine(block: Block) -> list[Block]:
    """The block, its only statement if that is a block, and so on; nothing else happens at these levels."""
    spine = [block]
    while len(spine[-1].statements) == 1 and isinstance(spine[-1].statements[0], Block):
        if any(r.direction is Direction.NEW for r in spine[-1].refinements) or spine[-1].inflight > 1:
            break
        spine.append(spine[-1].statements[0])
    return [b for b in spine if b.location is None]


def _may_be_hoisted(block: Block) -> bool:
    """Whether all parts may have views of whole buffers: none of these is seen through two names."""
    sources = [r.source for r in block.refinements if r.source]
    written = {r.source for r in block.refinements if r.direction.writes}
    return not any(sources.count(source) > 1 for source in written)


def _free(block: Block) -> list[str]:
    """Indexes along which points surely write different elements, as far as this block says."""
    summed = [r for r in block.refinements if r.direction.writes and r.aggregation is not Aggregation.ASSIGN]
    unrolled = set(block.tag_values("unroll"))

    def shows(ref: Refinement, name: str) -> bool:
        return any(expr.coefficient(name) for expr in ref.access)

    return [
        name
        for name, size in block.ranges.items()
        if size > 1 and name not in unrolled and all(shows(r, name) for r in summed)
    ]


def _loops(block: Block) -> list[str]:
    """Those of them that are loops, one point at a time."""
    tagged = {name for tag in ("vector", "unroll", "across") for name in block.tag_values(tag)}
    return [name for name in _free(block) if name not in tagged]


def _sizes(
    block: Block, free: Sequence[str], unit: Unit, hw: HwConfig, single: bool
) -> Iterator[dict[str, int]]:
    """Sizes of pieces along one index or, but for `single`, several: at least two pieces, at most one for
    each copy of the unit. Pieces along the lanes of vectors are whole vectors and cache lines."""
    lanes = set(block.tag_values("vector"))
    step = _whole(block, unit, hw)
    choices: dict[str, list[int]] = {}
    for name in free:
        length, least = block.ranges[name], step if name in lanes else 1
        even = (_up(length, parts) for parts in range(1, unit.count + 1))
        choices[name] = sorted({min(length, _up(size, least) * least) for size in even})
    if single:
        for name, pieces in choices.items():
            yield from ({name: size} for size in pieces if size < block.ranges[name])
        return
    count = 0
    pending: list[tuple[int, dict[str, int], int]] = [(0, {}, 1)]
    while pending and count < MAX_CUTS:
        at, cut, parts = pending.pop()
        if at == len(free):
            if parts > 1:
                count += 1
                yield cut
            continue
        name = free[at]
        for size in choices[name]:
            total = parts * _up(block.ranges[name], size)
            if total <= unit.count:
                more = cut if size == block.ranges[name] else {**cut, name: size}
                pending.append((at + 1, more, total))


def _up(value: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-value // divisor)


def _whole(block: Block, unit: Unit, hw: HwConfig) -> int:
    """Elements of a piece along the lanes: a multiple of vectors and of cache lines."""
    lines = [m.line_bytes for m in hw.caches]
    least = min((r.dtype.bytes for r in block.refinements), default=1)
    return max(1, max([unit.vector_bytes, *lines]) // least)


def touched(block: Block, outer: Mapping[str, View], sizes: Mapping[str, int]) -> float:
    """Bytes that one part touches, gaps included."""
    whole = {**block.ranges, **sizes}
    total = 0
    for operand in operands(block, outer):
        if operand.local:
            continue
        extents = [
            own + sum(abs(c) * (whole[n] - 1) for n, c in expr.terms if n in whole)
            for expr, own in zip(operand.access, operand.extent, strict=True)
        ]
        total += prod(extents) * operand.dtype.bytes
    return float(total)


# -- the cut nest ----------------------------------------------------------------------------


def cut_nest(root: Block, block: Block, outer: Mapping[str, View], cut: Cut, unit: Unit) -> Block | None:
    """The nest in parts, each on its copy of the unit; None if two parts would write one element."""
    sizes = dict(cut.sizes)
    whole = tile_block(block, sizes) if cut.level == 0 else _hoisted(block, outer, cut)
    number = row_major(whole.ranges)
    placed = replace(whole, location=Location(unit.name, number))
    return placed if _apart(root, placed, number) else None


def turns_of(region: Block, most: int) -> list[int]:
    """In how many turns the parts of a nest may be taken, about so many at most, the best first: 1 if they
    can't be cut along their outermost index. Where that has less than half as many points, as many for each
    of these as the next index can be cut into.

    Turns that are alike need no tests, so they are numbers that divide, if one is about as large."""
    cuts = _outermost(region)
    length = max((nest.ranges[index] for nest, index in cuts), default=1)
    least = _up(length, max(1, most))
    size = next((size for size in range(least, min(2 * least, length)) if length % size == 0), least)
    turns = _up(length, size)
    further = (_further(nest, index) for nest, index in cuts)
    deeper = max((found.length for found in further if found is not None), default=1)
    wanted = most // turns
    divisors = [n for n in range(2, 2 * wanted + 1) if deeper % n == 0]
    if turns < length or wanted < 2 or not divisors:
        return [turns]
    return [turns * min(divisors, key=lambda n: (n > wanted, abs(n - wanted))), turns]


def in_turns(root: Block, region: Block, turns: int) -> Block | None:
    """The block over the parts, each cut along its outermost index, and the next one if there are more turns
    than that has points; None if that is not possible. Further in, the points of a part run in the order that
    they had.

    before:  block t [m:2] @CORE[m] (out C[64*m]) { block t [m:64] (out C[m]) {...} }
    after:   block t [m:2, m_1:16] @CORE[m] (out C[64*m + 4*m_1]) { block t [m:4] (out C[m]) {...} }

    Where a part is one point of several nests, each of them is cut.
    """
    cuts = _outermost(region)
    if turns < 2 or not cuts:
        return None
    nest, index = cuts[0]
    length = max(nest.ranges[index] for nest, index in cuts)
    if nest is not region.statements[0]:
        places = [_Further(0, index, nest.ranges[index]) for nest, index in cuts]
        made = _cut_again(root, region, places, min(turns, length))
    else:
        try:
            tiled = tile_block(nest, {index: _up(length, turns)})
            made = replace(flatten(replace(region, statements=(tiled,))), name=region.name)
        except RewriteRefused:
            return None
    if made is None or turns < 2 * length:
        return made
    return _cut_again(root, made, [_further(nest) for nest in _nests(made)], turns // length)


@dataclass(frozen=True, slots=True)
class _Further:
    """Where a nest can be cut: its level, an index of the block there, and how many points that has."""

    level: int
    index: str
    length: int


def _nests(region: Block) -> list[Block]:
    """The nest of each part, or the nests of which its only point consists."""
    (inner,) = region.statements
    assert isinstance(inner, Block)
    several = all(size == 1 for size in inner.ranges.values()) and len(inner.children) > 1
    return list(inner.children) if several and len(inner.statements) == len(inner.children) else [inner]


def _outermost(region: Block) -> list[tuple[Block, str]]:
    """The nest of each part, or those of its only point, with the outermost index; none if one of them can't
    be cut along it."""
    nests = _nests(region)
    (inner,) = region.statements
    assert isinstance(inner, Block)
    if nests[0] is not inner and any(ref.direction is Direction.NEW for ref in inner.refinements):
        return []  # what one turn writes there, another would need
    found: list[tuple[Block, str]] = []
    for nest in nests:
        further = _further(nest)
        if further is None or further.level > 0:
            return []
        found.append((nest, further.index))
    return found


def _further(nest: Block, beside: str = "") -> _Further | None:
    """The outermost index of a nest, but for one of its first block; None if it can't be cut along it."""
    for level, block in enumerate(spine(nest)):
        index = next((n for n, size in block.ranges.items() if size > 1 and (level or n != beside)), "")
        if index:
            free = index in _loops(block) and (not level or _may_be_hoisted(nest))
            return _Further(level, index, block.ranges[index]) if free else None
    return None


def _cut_again(root: Block, region: Block, places: Sequence[_Further | None], turns: int) -> Block | None:
    """The block over the parts with one more index, of so many turns, in each of which nests have their
    pieces along the index given; one that can't be cut runs in the first. None if a turn reads or writes what
    another one writes."""
    nests, (inner,) = _nests(region), region.statements
    assert isinstance(inner, Block)
    name = next((place.index for place in places if place is not None), "")
    if not name:
        return None
    turn = Names(i.name for b in (region, inner) for i in b.indexes).fresh(name)
    pieces = tuple(_turn(nest, place, turn, turns) for nest, place in zip(nests, places, strict=True))
    several = nests[0] is not inner
    if several:
        own = Index(turn, 1, Affine.index(turn))
        inner = replace(inner, indexes=(*inner.indexes, own), statements=pieces)
    ranged = tuple(i for i in region.indexes if i.passed is None)
    passed = tuple(i for i in region.indexes if i.passed is not None)
    statements = (inner,) if several else pieces
    made = replace(region, indexes=(*ranged, Index(turn, turns), *passed), statements=statements)
    assert made.location is not None
    assert made.location.bank is not None
    number = made.location.bank
    for index, size in made.ranges.items():
        if index not in made.location.bank.names:
            number = number * size + Affine.index(index)
    return made if _apart(root, made, number, reads=several) else None


def _turn(nest: Block, place: _Further | None, turn: str, turns: int) -> Block:
    """The piece that a nest has in a turn."""
    if place is None:
        own = Names(i.name for i in nest.indexes).fresh(turn)
        indexes = (*nest.indexes, Index(own, 1, Affine.index(turn)))
        return replace(nest, indexes=indexes, constraints=(*nest.constraints, Constraint(-Affine.index(own))))
    size = _up(place.length, turns)
    levels = spine(nest)[: place.level + 1]
    first = Names(i.name for b in levels for i in b.indexes).fresh(f"{place.index}o")
    return _piece_below(levels, place.index, size, turns, Index(first, 1, Affine.index(turn, size)))


def _piece_below(levels: Sequence[Block], index: str, size: int, count: int, first: Index) -> Block:
    """One of so many pieces of the last of a few nested blocks: see `_piece`."""
    here = replace(first, passed=Affine.index(first.name))
    made = _piece(levels[-1], index, size, count, here if len(levels) > 1 else first)
    for at, level in reversed(list(enumerate(levels[:-1]))):
        made = replace(level, indexes=(*level.indexes, here if at else first), statements=(made,))
    return made


def _piece(nest: Block, index: str, size: int, count: int, first: Index) -> Block:
    """One of so many pieces of a nest along an index, that which begins at the value of a passed one."""
    here = Affine.index(index) + Affine.index(first.name)
    moved = substitute_indexes(nest, {index: here})
    length = nest.ranges[index]
    ragged = (Constraint(Affine(length - 1) - here),) if length != size * count else ()
    indexes = (replace(i, range=size) if i.name == index else i for i in nest.indexes)
    return replace(moved, indexes=(*indexes, first), constraints=(*moved.constraints, *ragged))


def _hoisted(block: Block, outer: Mapping[str, View], cut: Cut) -> Block:
    """A block over the parts around a nest, whose block at the level of the cut runs over one part."""
    ((index, size),) = cut.sizes
    levels = spine(block)[: cut.level + 1]
    names = Names(i.name for b in levels for i in b.indexes)
    part, first = names.fresh(index), names.fresh(f"{index}o")
    parts = _up(levels[-1].ranges[index], size)
    made = _piece_below(levels, index, size, parts, Index(first, 1, Affine.index(first)))
    return _over(block, outer, made, (part, parts), (first, size))


def _over(
    block: Block, outer: Mapping[str, View], made: Block, part: tuple[str, int], passed: tuple[str, int]
) -> Block:
    """A block over the parts of a nest, `part` its index and how many there are, around the nest `made` for
    one of them, which is `passed` an index: so many times the part."""
    top = tuple(
        replace(i, passed=Affine.index(part[0], passed[1])) if i.name == passed[0]
        else i if i.passed is None
        else replace(i, passed=Affine.index(i.name))
        for i in made.indexes
    )  # fmt: skip
    views = tuple(r for r in block.refinements if r.direction is not Direction.NEW)
    inside = tuple(
        r if r.direction is Direction.NEW
        else replace(r, source=r.name, direction=Direction.OUT if _folds(r) else r.direction)
        for r in made.refinements
    )  # fmt: skip
    around = tuple(
        replace(r, access=(Affine(),) * len(r.shape), shape=outer[r.source].shape, tags=()) for r in views
    )
    return Block(
        block.name,
        indexes=(Index(*part), *(i for i in block.indexes if i.passed is not None)),
        refinements=around,
        statements=(replace(made, indexes=top, refinements=inside),),
        span=block.span,
    )


def even_index(nest: Block, count: int) -> tuple[str, float]:
    """The index of a nest's outermost block that divides most evenly among units, and the share of the points
    that the largest piece has; ("", 1) if there is none."""
    shares = {name: _up(nest.ranges[name], count) / nest.ranges[name] for name in _loops(nest)}
    return min(shares.items(), key=lambda found: found[1], default=("", 1.0))


def divide_inside(
    root: Block, block: Block, outer: Mapping[str, View], pieces: Mapping[int, Piece], unit: Unit
) -> Block | None:
    """The nest once for each copy of a unit, which runs all of it but for some nests inside, by identity: of
    these it has a piece. None if two of them would write one element, or read what another one writes.

    before:  block t [k:8] (new P) { block pack (out P) {...}  block u [m:6] (in P  out C[m]) {...} }
    after:   block t [m:2] @CORE[m] { block t [k:8, m_1 = m] (new P) {
               block pack (out P) {...}  block u [m:3, mo = 3*m_1] (in P  out C[m + mo]) {...} } }
    """
    if not _may_be_hoisted(block):
        return None
    names, cut = Names(i.name for i in _indexes(block)), next(p.index for p in pieces.values() if p.index)
    part, mine = (names.fresh(cut) for _ in range(2))
    number = Affine.index(mine)
    own = Index(mine, 1, number)

    def divided(nest: Block, parent: Block, piece: Piece) -> Block:
        if not piece.index:
            last = Constraint(number - (unit.count - 1))
            return replace(nest, indexes=(*nest.indexes, own), constraints=(*nest.constraints, last))
        if not piece.around:
            return _turn(nest, _Further(0, piece.index, nest.ranges[piece.index]), mine, unit.count)
        size = _up(parent.ranges[piece.index], unit.count)
        name = Names([mine, *(i.name for i in nest.indexes)]).fresh(piece.index)
        at = Affine.index(name) - number * size
        bounds = (Constraint(at), Constraint(Affine(size - 1) - at))
        indexes = (*nest.indexes, own, Index(name, 1, Affine.index(piece.index)))
        return replace(nest, indexes=indexes, constraints=(*nest.constraints, *bounds))

    def inside(nest: Block) -> Block:
        statements = tuple(
            s if not isinstance(s, Block)
            else divided(s, nest, pieces[id(s)]) if id(s) in pieces
            else inside(s)
            for s in nest.statements
        )  # fmt: skip
        if all(one is other for one, other in zip(statements, nest.statements, strict=True)):
            return nest
        return replace(nest, indexes=(*nest.indexes, own), statements=statements)

    whole = _over(block, outer, inside(block), (part, unit.count), (mine, 1))
    placed = replace(whole, location=Location(unit.name, Affine.index(part)))
    return placed if _apart(root, placed, Affine.index(part), reads=True) else None


def _indexes(block: Block) -> Iterator[Index]:
    yield from block.indexes
    for child in block.children:
        yield from _indexes(child)


def _folds(ref: Refinement) -> bool:
    """Whether a view folds in what its parent's buffer held: the block over the parts does that."""
    return ref.direction is Direction.INOUT and ref.combines


def _apart(root: Block, block: Block, number: Affine, reads: bool = False) -> bool:
    """Whether points of a block with different numbers write different elements of the buffers around it;
    with `reads`, whether none of them reads either what another writes."""
    return _separate(root, (block, number), (block, number), reads)


def parts_apart(root: Block, one: Block, other: Block) -> bool:
    """Whether no unit reads or writes in one of two regions what another unit writes in the other."""
    assert one.location is not None
    assert other.location is not None
    numbers = one.location.bank or Affine(), other.location.bank or Affine()
    return _separate(root, (one, numbers[0]), (other, numbers[1]), reads=True)


def _separate(root: Block, first: tuple[Block, Affine], second: tuple[Block, Affine], reads: bool) -> bool:
    """Whether points of two blocks whose numbers differ write different elements, and read none of those."""
    sides = []
    for prefix, (block, number) in (("a.", first), ("b.", second)):
        own = number.substitute({name: Affine.index(prefix + name) for name in number.names})
        sides.append((accesses(root, block, prefix), own))
    (one, earlier), (other, later) = sides
    orders = (later - earlier - 1, earlier - later - 1) if reads else (later - earlier - 1,)
    same = first[0] is second[0]  # then each pair comes both ways round

    def matter(x: Access, y: Access) -> bool:
        if x.storage != y.storage:
            return False
        return (x.writes and (y.writes or reads)) or (y.writes and reads and not same)

    try:
        return all(
            relation(x, y).with_constraints([order]).is_empty()
            for x in one
            for y in other
            if matter(x, y)
            for order in orders
        )
    except PolyhedralLimit:
        return False
