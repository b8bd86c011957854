"""Mechanical rewrites that several passes share. They decide nothing; passes decide.

    tile_block   one block becomes an outer block over tiles and an inner one over a tile's points
    tile_nest    the same for a nest: below the outer block, each statement gets its own points
    flatten      a block and its only child become one

Each keeps the meaning of a verified program (floating-point sums may be reassociated), and raises
`RewriteRefused` with a reason where it can't. Stripe paper, section 3.3 and Figure 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.ir import (
    Aggregation,
    Block,
    Constant,
    Constraint,
    Direction,
    Index,
    IndexValue,
    Load,
    Location,
    Refinement,
    Scalar,
    Special,
    Statement,
    Store,
    Tag,
    contiguous,
)
from stripe.names import Names
from stripe.tags import TAGS
from stripe.visit import (
    buffers_used,
    map_statements,
    parted,
    scalars_read,
    statement_groups,
    substitute_indexes,
)

Ranges = Mapping[str, int]


class RewriteRefused(Exception):
    """A rewrite does not apply to a block; `reason` is a clause such as `the block has ...`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# ------------------------------------------------------------------------------- questions


def _location_exprs(location: Location | None) -> Iterator[Affine]:
    if location is not None:
        yield from (expr for expr in (location.bank, location.address) if expr is not None)


def statement_exprs(block: Block) -> Iterator[Affine]:
    """Every affine expression over the block's indexes outside its refinements' accesses."""
    yield from (c.expr for c in block.constraints)
    yield from _location_exprs(block.location)
    for ref in block.refinements:
        yield from _location_exprs(ref.location)
    for statement in block.statements:
        match statement:
            case Block(indexes=indexes):
                yield from (i.passed for i in indexes if i.passed is not None)
            case IndexValue(expr=expr):
                yield expr
            case Special(operands=operands, location=location):
                yield from _location_exprs(location)
                for operand in operands:
                    yield from operand.access or ()


def used_indexes(block: Block) -> frozenset[str]:
    """The indexes that anything in the block mentions."""
    names = {name for expr in statement_exprs(block) for name in expr.names}
    names.update(n for ref in block.refinements for expr in ref.access for n in expr.names)
    return frozenset(names)


def used_buffers(block: Block) -> frozenset[str]:
    """The refinements of the block that its statements use."""
    return frozenset(name for statement in block.statements for name, _ in buffers_used(statement))


# ------------------------------------------------------------------------ small rewrites


def reorder_indexes(block: Block, order: Sequence[str]) -> Block:
    """Put the ranged indexes into `order` (those not named keep their order, in front of them);
    passed indexes go last."""
    position = {name: at for at, name in enumerate(order)}
    ranged = sorted((i for i in block.indexes if i.passed is None), key=lambda i: position.get(i.name, -1))
    indexes = (*ranged, *(i for i in block.indexes if i.passed is not None))
    return block if indexes == block.indexes else replace(block, indexes=indexes)


def rename_indexes(block: Block, new_names: Mapping[str, str]) -> Block:
    """Rename indexes of the block (not of its children). The new names must be free."""
    changed = {old: new for old, new in new_names.items() if old != new}
    if not changed:
        return block
    indexes = tuple(replace(i, name=changed.get(i.name, i.name)) for i in block.indexes)
    if len({i.name for i in indexes}) != len(indexes):
        raise InvariantError(f"renaming {changed} gives one index name twice in block '{block.name}'")
    values = {old: Affine.index(new) for old, new in changed.items()}
    return replace(substitute_indexes(block, values), indexes=indexes, tags=_retagged(block.tags, changed))


def inline_indexes(block: Block, values: Mapping[str, Affine]) -> Block:
    """Remove indexes from the index list, each replaced by the expression given for it."""
    if not values:
        return block
    kept = tuple(i for i in block.indexes if i.name not in values)
    tags = _retagged(block.tags, dict.fromkeys(values))
    return replace(substitute_indexes(block, values), indexes=kept, tags=tags)


def _retagged(tags: tuple[Tag, ...], names: Mapping[str, str | None]) -> tuple[Tag, ...]:
    """Tags for renamed indexes (None: removed): one that named a removed index goes with it."""
    found = []
    for tag in tags:
        new = names.get(tag.value, tag.value) if _names_index(tag) else tag.value
        if new is not None:
            found.append(tag if new == tag.value else Tag(tag.name, new))
    return tuple(found)


def _names_index(tag: Tag) -> bool:
    return tag.name in TAGS and TAGS[tag.name].value == "index"


def drop_unused_passed(block: Block) -> Block:
    """Leave out the passed indexes that nothing in the block mentions."""
    used = used_indexes(block)
    kept = tuple(i for i in block.indexes if i.passed is None or i.name in used)
    return block if len(kept) == len(block.indexes) else replace(block, indexes=kept)


def fold_unit_indexes(block: Block) -> Block:
    """Leave out the indexes of range 1: they are always 0."""
    units = {name for name, size in block.ranges.items() if size == 1}
    return inline_indexes(block, dict.fromkeys(units, Affine()))


def compose(outer: Refinement, inner: Refinement) -> Refinement:
    """The view `inner` of the view `outer` as a view of the buffer that `outer` views.

    Both accesses must be over the same indexes. An inner aggregation stands; an inner `assign`
    below an aggregating view takes that one's operation and direction.
    """
    direction, aggregation = inner.direction, inner.aggregation
    aggregates = outer.combines
    if inner.direction.writes and aggregates:
        direction, aggregation = outer.direction, outer.aggregation
    access = tuple(o + i for o, i in zip(outer.access, inner.access, strict=True))
    return replace(inner, direction=direction, aggregation=aggregation, source=outer.source, access=access)


# -------------------------------------------------------------------------------- flatten


def flatten(block: Block) -> Block:
    """Merge a block and its only child into one block over the points of both.

        before:  block a [m:8] (in X[m, 0] (1, 4)) { block b [k:4] (in X[0, k] (1, 1)) {...} }
        after:   block b [m:8, k:4] (in X[m, k] (1, 1)) {...}

    The child's name, tags and attributes stay. Refuses where the outer block holds anything else:
    other statements, buffers that live for one of its points, points in flight; and where only
    the last of several writes of the child counts in what the outer block aggregates.
    """
    if len(block.statements) != 1 or not isinstance(block.statements[0], Block):
        raise RewriteRefused("it does not consist of exactly one block")
    child = block.statements[0]
    if block.inflight != 1 or child.inflight != 1:
        raise RewriteRefused("points in flight are counted at one of the two levels")
    if block.location is not None and child.location is not None:
        raise RewriteRefused("both levels name the unit that they run on")
    outer = {r.name: r for r in block.refinements}
    if any(outer[r.source].direction is Direction.NEW for r in child.refinements if r.source):
        raise RewriteRefused("a buffer lives for one point of the outer block")
    if any(_replaces_below(outer[r.source], r, child) for r in child.refinements if r.source):
        raise RewriteRefused("the inner level replaces or reads what it wrote, the outer one aggregates")

    names = Names(i.name for i in block.indexes)
    child = _rename_apart(child, names)
    child = inline_indexes(child, {i.name: i.passed for i in child.indexes if i.passed is not None})
    refinements = tuple(compose(outer[r.source], r) if r.source else r for r in child.refinements)
    indexes = (
        *(i for i in block.indexes if i.passed is None),
        *child.indexes,
        *(i for i in block.indexes if i.passed is not None),
    )
    merged = replace(
        child,
        indexes=indexes,
        constraints=(*block.constraints, *child.constraints),
        refinements=refinements,
        location=child.location or block.location,
        span=child.span or block.span,
    )
    return drop_unused_passed(merged)


def _replaces_below(outer: Refinement, inner: Refinement, child: Block) -> bool:
    """Whether a child's `assign` under an aggregating view is more than one write of an element."""
    if not outer.combines or inner.aggregation is not Aggregation.ASSIGN:
        return False
    uses = [d for s in child.statements for name, d in buffers_used(s) if name == inner.name]
    return len(uses) > 1


def _rename_apart(child: Block, names: Names) -> Block:
    """Give the child's own ranged indexes names that `names` has not handed out.

    Passed indexes are about to be inlined by expressions over the parent's indexes, so they get
    names that no expression of the parent can mention.
    """
    ranged = {i.name: names.fresh(i.name) for i in child.indexes if i.passed is None}
    passed = {i.name: f"\0{i.name}" for i in child.indexes if i.passed is not None}
    return rename_indexes(child, {**ranged, **passed})


# ---------------------------------------------------------------------------------- tiling


@dataclass(frozen=True, slots=True)
class _Split:
    """An index cut into tiles: `size` of its `range` points, `passed` the name of the offset.

    The points of a tile lie side by side, or, `interleaved`, as far from each other as there are tiles."""

    name: str
    range: int
    size: int
    passed: str
    interleaved: bool = False

    @property
    def count(self) -> int:
        return -(-self.range // self.size)

    @property
    def is_ragged(self) -> bool:
        return self.range % self.size != 0

    @property
    def step(self) -> int:
        """How far apart the first points of two tiles are."""
        return 1 if self.interleaved else self.size

    @property
    def inside(self) -> Affine:
        """What the inner block sees of the index within the tile."""
        return Affine.index(self.name, self.count if self.interleaved else 1) if self.size > 1 else Affine()

    @property
    def whole(self) -> Affine:
        """The index itself, as the inner block knows it."""
        return Affine.index(self.passed) + self.inside


def tile_block(
    block: Block,
    sizes: Mapping[str, int],
    outer_order: Sequence[str] | None = None,
    inner_order: Sequence[str] | None = None,
    tags: tuple[Tag, ...] = (),
    interleave: bool = False,
) -> Block:
    """Cut a block's points into tiles: an outer block over the tiles, an inner over one tile.

        before:  block b [x:12, i:3] (-1 + x + i >= 0  in I[x + i - 1] (1))
        after:   block b [x:4] (in I[3*x - 1] (5)) {
                   block b [x:3, i:3, xo = 3*x] (-1 + xo + x + i >= 0  in I[x + i] (1)) }

    `sizes` gives the points of a tile along ranged indexes; an index that is missing, or whose
    size reaches its range, stays whole in the inner block. The outer views are bounding boxes of
    what a tile touches. Constraints move inside and are rewritten over offset and inner index;
    a size that does not divide its range adds one. Indexes of range 1 are left out. Orders name
    indexes outermost first (those not named come first, in their own order); `tags` go to the
    outer block. Stripe paper, section 3.3 and Figure 5.

    With `interleave` a tile takes every n-th point, where there are n tiles (Figure 2, lower half):

        after:   block b [x:4] (in I[x - 1] (11)) {
                   block b [x:3, i:3, xo = x] (-1 + xo + 4*x + i >= 0  in I[4*x + i] (1)) }
    """
    splits, block = _splits(block, sizes, interleave), fold_unit_indexes(block)
    inner = reorder_indexes(_inner_block(block, splits), inner_order or ())
    outer = _outer_block(block, splits, (inner,), tags)
    return reorder_indexes(outer, outer_order or ())


def tile_nest(
    block: Block,
    sizes: Mapping[str, int],
    outer_order: Sequence[str] | None = None,
    inner_order: Sequence[str] | None = None,
    tags: tuple[Tag, ...] = (),
) -> Block:
    """Tile a block and give each of its statements the points of a tile.

        before:  block a [m:28] (new C (1)) { block dot [k:9] (out C[0]:add) {...}
                                              block ep [] (in C[0]  out R[0]:assign) {...} }
        after:   block a [m:2] (new C (14)) { block dot [m:14, k:9] (out C[m]:add) {...}
                                              block ep [m:14] (in C[m]  out R[m]:assign) {...} }

    The points of a block are independent, so all points may run the first statement before any
    runs the second. Buffers of one point get the tile's dimensions. For a leaf block, or a nest
    of one block, this is `tile_block` of the flat block.
    """
    if not any(isinstance(s, Block | Special) for s in block.statements):
        return tile_block(block, sizes, outer_order, inner_order, tags)
    splits, block = _splits(block, sizes), fold_unit_indexes(block)
    rank = len(_box(block, splits))
    inner = reorder_indexes(_inner_block(_demote_scalars(block, rank), splits), inner_order or ())
    buffers, parts = _distribute(inner)
    outer = _outer_block(block, splits, parts, tags)
    outer = replace(outer, refinements=(*outer.refinements, *buffers))
    return reorder_indexes(outer, outer_order or ())


def _splits(block: Block, sizes: Mapping[str, int], interleave: bool = False) -> tuple[_Split, ...]:
    ranges = block.ranges
    for name, size in sizes.items():
        if name not in ranges or size < 1:
            raise InvariantError(f"tile size {size} for '{name}', which is no range of '{block.name}'")
    names = Names(i.name for i in block.indexes)
    return tuple(
        _Split(name, range_, sizes[name], names.fresh(f"{name}o"), interleave)
        for name, range_ in ranges.items()
        if sizes.get(name, range_) < range_
    )


def _inner_block(block: Block, splits: tuple[_Split, ...]) -> Block:
    """The block over one tile's points; its views are relative to the tile's."""
    box, by_name = _box(block, splits), {s.name: s for s in splits}
    moved = substitute_indexes(block, {s.name: s.whole for s in splits})
    ragged = tuple(
        Constraint(Affine(s.range - 1) - s.whole, block.index(s.name).span) for s in splits if s.is_ragged
    )
    ranged = tuple(replace(i, range=box[i.name]) for i in block.indexes if i.passed is None and i.name in box)
    offsets = tuple(
        Index(s.passed, 1, Affine.index(s.name, s.step), block.index(s.name).span) for s in splits
    )
    handed_on = tuple(replace(i, passed=Affine.index(i.name)) for i in block.indexes if i.passed is not None)
    refinements = tuple(
        new if old.direction is Direction.NEW else _inner_view(old, new, by_name, box)
        for old, new in zip(block.refinements, moved.refinements, strict=True)
    )
    gone = {s.name: None for s in splits if s.size == 1}
    inner = replace(
        moved,
        tags=_retagged(block.tags, gone),
        indexes=(*ranged, *handed_on, *offsets),
        constraints=(*moved.constraints, *ragged),
        refinements=refinements,
    )
    return drop_unused_passed(inner)


def _box(block: Block, splits: tuple[_Split, ...]) -> dict[str, int]:
    """The ranges of the indexes inside a tile; those of one value are left out."""
    sizes = {**block.ranges, **{s.name: s.size for s in splits}}
    return {name: size for name, size in sizes.items() if size != 1}


def _inside(expr: Affine, splits: Mapping[str, _Split], box: Ranges) -> tuple[Affine, int, int]:
    """The part of an access that varies inside a tile, with its least and greatest value."""
    part = expr.only(frozenset(box)).substitute({name: s.inside for name, s in splits.items()})
    low, high = part.bounds({name: (0, max(size - 1, 0)) for name, size in box.items()})
    return part, low, high


def _inner_view(old: Refinement, moved: Refinement, splits: Mapping[str, _Split], box: Ranges) -> Refinement:
    access = []
    for expr in old.access:
        part, low, _ = _inside(expr, splits, box)
        access.append(part - low)
    below = old.aggregation is not Aggregation.ASSIGN and old.direction is Direction.INOUT
    return replace(
        moved,
        source=old.name,
        access=tuple(access),
        direction=Direction.OUT if below else old.direction,
    )


def _outer_view(ref: Refinement, splits: Mapping[str, _Split], box: Ranges) -> Refinement:
    access, shape = [], []
    for expr, extent in zip(ref.access, ref.shape, strict=True):
        _, low, high = _inside(expr, splits, box)
        origin = Affine(expr.const + low) + Affine.of(
            {
                n: c * splits[n].step if n in splits else c
                for n, c in expr.terms
                if n in splits or n not in box
            }
        )
        access.append(origin)
        shape.append(high - low + extent)
    location = ref.location
    if location is not None and any(expr.terms for expr in _location_exprs(location)):
        location = None
    return replace(ref, access=tuple(access), shape=tuple(shape), location=location)


def _outer_block(
    block: Block, splits: tuple[_Split, ...], statements: tuple[Statement, ...], tags: tuple[Tag, ...]
) -> Block:
    by_name = {s.name: s for s in splits}
    box = _box(block, splits)
    outer = Block(
        block.name,
        indexes=(
            *(Index(s.name, s.count, None, block.index(s.name).span) for s in splits),
            *(i for i in block.indexes if i.passed is not None),
        ),
        refinements=tuple(
            _outer_view(r, by_name, box) for r in block.refinements if r.direction is not Direction.NEW
        ),
        statements=statements,
        tags=tags,
        span=block.span,
    )
    return drop_unused_passed(outer)


# ---------------------------------------------------------------------------- distribution


@dataclass(frozen=True, slots=True)
class _Widened:
    """A buffer of one point that gets the dimensions of a tile: `buffer` as it becomes, `view`
    as one point sees it. `raised` counts the dimensions that were put in front."""

    buffer: Refinement
    view: Refinement
    raised: int


def _distribute(inner: Block) -> tuple[tuple[Refinement, ...], tuple[Block, ...]]:
    """The widened buffers, and a block over all points of `inner` for each of its statements."""
    if inner.inflight != 1:
        raise RewriteRefused("its points in flight are counted")
    if inner.location is not None:
        raise RewriteRefused("it names the unit that its points run on")
    ranged = tuple(i for i in inner.indexes if i.passed is None)
    widened = {r.name: _widen(r, ranged) for r in inner.refinements if r.direction is Direction.NEW}
    names = Names()
    parts = []
    for group in parted(inner.statements):
        part = _part(inner, group, widened)
        parts.append(replace(part, name=names.fresh(part.name)))
    return tuple(w.buffer for w in widened.values()), tuple(parts)


def _part(inner: Block, group: tuple[Statement, ...], widened: Mapping[str, _Widened]) -> Block:
    """One group of statements over all points of `inner`, flat where the group is a block."""
    refinements = []
    for ref in inner.refinements:
        direction = _direction_in(group, ref.name)
        if direction is None:
            continue
        raised = 0
        if ref.name in widened:
            raised, ref = widened[ref.name].raised, widened[ref.name].view
        if raised:
            group = tuple(raise_rank(s, ref.name, raised) for s in group)
        aggregation = (ref.aggregation or Aggregation.ASSIGN) if direction.writes else None
        if direction is Direction.INOUT and aggregation is not Aggregation.ASSIGN:
            direction = Direction.OUT
        refinements.append(replace(ref, direction=direction, source=ref.name, aggregation=aggregation))
    first = group[0]
    name = first.name if isinstance(first, Block) else inner.name
    part = drop_unused_passed(
        replace(inner, name=name, refinements=tuple(refinements), statements=group, tags=())
    )
    if isinstance(first, Block) and first.has_tag("stencil"):
        return part  # its points are one use of the stencil
    try:
        return flatten(part)
    except RewriteRefused:
        return part


def _direction_in(group: tuple[Statement, ...], buffer: str) -> Direction | None:
    """How a group uses a buffer; a load of what the same point stored before is no input."""
    reads = writes = False
    for statement in group:
        for name, direction in buffers_used(statement):
            if name == buffer:
                reads = reads or (direction.reads and not (writes and isinstance(statement, Load)))
                writes = writes or direction.writes
    if not reads and not writes:
        return None
    if reads and writes:
        return Direction.INOUT
    return Direction.OUT if writes else Direction.IN


def _widen(ref: Refinement, ranged: Sequence[Index]) -> _Widened:
    """Give a one-point buffer a dimension for each index: its own dimensions of extent 1 if there
    are enough of them (the last ones, in the order of the indexes), else new ones in front."""
    if any(expr.terms for expr in _location_exprs(ref.location)):
        raise RewriteRefused(f"the location of buffer '{ref.name}' depends on an index")
    units = [d for d, extent in enumerate(ref.shape) if extent == 1]
    raised = 0 if len(units) >= len(ranged) else len(ranged)
    shape = [*(1 for _ in range(raised)), *ref.shape]
    access = [Affine()] * len(shape)
    at = range(raised) if raised else units[len(units) - len(ranged) :]
    view_shape = tuple(shape)
    for dimension, index in zip(at, ranged, strict=True):
        shape[dimension] = index.range
        access[dimension] = Affine.index(index.name)
    buffer = replace(ref, shape=tuple(shape), strides=contiguous(tuple(shape)))
    view = replace(
        ref,
        direction=Direction.INOUT,
        source=ref.name,
        access=tuple(access),
        shape=view_shape,
        aggregation=Aggregation.ASSIGN,
        strides=None,
        location=None,
    )
    return _Widened(buffer, view, raised)


def raise_rank(statement: Statement, buffer: str, by: int) -> Statement:
    """Adapt a statement to a buffer whose views have `by` further dimensions in front."""
    if isinstance(statement, Special):
        if any(o.buffer == buffer for o in statement.operands):
            raise RewriteRefused(f"special '{statement.name}' depends on the rank of buffer '{buffer}'")
        return statement
    if not isinstance(statement, Block) or all(name != buffer for name, _ in buffers_used(statement)):
        return statement
    refinements = []
    for ref in statement.refinements:
        if ref.source == buffer and ref.direction is not Direction.NEW:
            statement = map_statements(statement, partial(raise_rank, buffer=ref.name, by=by))
            ref = replace(ref, access=(*[Affine()] * by, *ref.access), shape=(*[1] * by, *ref.shape))
        refinements.append(ref)
    return replace(statement, refinements=tuple(refinements))


def _demote_scalars(block: Block, rank: int) -> Block:
    """Make the groups of statements free of each other's scalars.

    What one group defines and another uses goes through a buffer of `rank` dimensions of extent
    1; constants, index values and loads from inputs are copied instead.
    """
    groups = statement_groups(block.statements)
    defined: dict[str, tuple[int, Scalar]] = {}
    crossing: dict[str, set[int]] = {}
    for number, group in enumerate(groups):
        for statement in group:
            for scalar in scalars_read(statement):
                if defined[scalar][0] != number:
                    crossing.setdefault(scalar, set()).add(number)
            if isinstance(statement, Scalar):
                defined[statement.result] = (number, statement)
    if not crossing:
        return block
    inputs = {r.name for r in block.refinements if r.direction is Direction.IN}
    buffer_names = Names(r.name for r in block.refinements)
    heads: list[list[Statement]] = [[] for _ in groups]
    tails: list[list[Statement]] = [[] for _ in groups]
    buffers: list[Refinement] = []
    for scalar, users in crossing.items():
        number, copied = defined[scalar]
        again = isinstance(copied, Constant | IndexValue)
        if not again and not (isinstance(copied, Load) and copied.buffer in inputs):
            name = buffer_names.fresh(scalar)
            shape = (1,) * max(rank, 1)
            buffers.append(Refinement(Direction.NEW, name, shape, copied.dtype, strides=contiguous(shape)))
            tails[number].append(Store(name, scalar))
            copied = Load(scalar, name, copied.dtype)
        for user in users:
            heads[user].append(copied)
    statements = tuple(
        s for head, group, tail in zip(heads, groups, tails, strict=True) for s in (*head, *group, *tail)
    )
    return replace(block, refinements=(*block.refinements, *buffers), statements=statements)
