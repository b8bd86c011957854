"""Operands of the other signedness: x * y as (x + d) * y - d * y, exact where integers wrap.

A[m, k] i8, u8 wanted     A'[m, k] = A[m, k] + 128           a copy in the other type
                          S[n] = sum of -128 * B[k, n]        once for all m
                          C[m, n] = sum of A'[m, k] * B[k, n]
                          C[m, n] += S[n]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hwconfigs.expressions import body_operands, parse_body
from stripe.affine import Affine
from stripe.analysis.bounds import Leaf, leaves
from stripe.analysis.deps import accesses
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Constraint,
    Direction,
    Index,
    Intrinsic,
    Load,
    Refinement,
    Statement,
    Store,
    contiguous,
)
from stripe.names import Names
from stripe.passes.stencil_build import level_names, ways
from stripe.passes.stencil_choice import Option
from stripe.poly import Domain, box_limits
from stripe.rewrite import RewriteRefused, used_buffers
from stripe.visit import View, views_of


def shift_operand(root: Block, at: int, picked: Option) -> Block:
    """The root with the first operand that a fit asks to shift in its other type, for the kernel
    that is its statement number `at`. Raises RewriteRefused."""
    return _Shift(root, at, picked).result()


def folded_behind(root: Block, at: int) -> Block:
    """The root of `shift_operand` with a buffer of its own for the sum of a flat kernel, where it has no
    old contents, and each of its elements is made up for at one point: the block that does so then assigns,
    as what fuses with the kernel."""
    kernel, fold = root.statements[at + 2 : at + 4]
    if not isinstance(kernel, Block) or not isinstance(fold, Block) or kernel.children:
        return root
    summed, (made, result) = kernel.refinement(_store_buffer([kernel], 0)), fold.refinements
    if summed.direction is not Direction.OUT or result.direction is not Direction.INOUT:
        return root
    if not _is_once(fold, result):
        return root
    whole = root.refinement(result.source)
    name = Names(r.name for r in root.refinements).fresh(f"{whole.name}_shifted")
    buffer = Refinement(Direction.NEW, name, whole.shape, whole.dtype, strides=contiguous(whole.shape))
    moved = tuple(replace(r, source=name) if r is summed else r for r in kernel.refinements)
    local = Names([made.name, result.name]).fresh(name)
    fold = replace(
        fold,
        refinements=(
            made,
            replace(result, direction=Direction.IN, name=local, source=name, aggregation=None),
            replace(result, direction=Direction.OUT, aggregation=Aggregation.ASSIGN),
        ),
        statements=(
            Load("v0", made.name, made.dtype),
            Load("v1", local, result.dtype),
            Intrinsic("v2", "add", ("v1", "v0"), result.dtype),
            Store(result.name, "v2"),
        ),
    )
    statements = (
        *root.statements[: at + 2],
        replace(kernel, refinements=moved),
        fold,
        *root.statements[at + 4 :],
    )
    return replace(root, refinements=(*root.refinements, buffer), statements=statements)


def _is_once(block: Block, view: Refinement) -> bool:
    """Whether no two points of a block have the same element of a view."""
    cells = [f"@{dim}" for dim in range(len(view.access))]
    points = Domain.box(block.ranges).with_constraints([c.expr for c in block.constraints]).extended(cells)
    there = [expr - Affine.index(cell) for expr, cell in zip(view.access, cells, strict=True)]
    return points.with_constraints((), there).determines(cells, list(block.ranges))


@dataclass(frozen=True, slots=True)
class _Shift:
    root: Block
    at: int
    picked: Option

    def result(self) -> Block:
        fit = self.picked.found.fit
        operand = fit.offset[0]
        wanted = DType(fit.stencil.types[operand])
        path = self._path()
        chain = _chain(path, fit.buffers[operand])
        source = self._source(chain[0])
        comp, reduced = self._compensation(wanted, operand)

        names = Names(r.name for block in (self.root, *path) for r in block.refinements)
        copied = Refinement(
            Direction.NEW, names.fresh(f"{source.name}_{wanted.value}"), source.shape, wanted,
            strides=source.strides,
        )  # fmt: skip
        buffer = Refinement(
            Direction.NEW, names.fresh(f"{path[0].name}_offset"), comp.shape, comp.dtype,
            strides=contiguous(comp.shape),
        )  # fmt: skip
        level = self._fold_level(path)
        fold = self._fold(path, level, buffer, reduced)
        block = _retyped(path, self.picked.way, chain, copied)
        if level:
            block = self._with_fold(block, level, buffer, reduced, fold)
        statements = (
            *self.root.statements[: self.at],
            _copy(source, copied),
            comp.block(buffer),
            block,
            *(() if level else (fold,)),
            *self.root.statements[self.at + 1 :],
        )
        return replace(self.root, refinements=(*self.root.refinements, copied, buffer), statements=statements)

    # -- the kernel ----------------------------------------------------------------------

    def _path(self) -> list[Block]:
        """The blocks from the kernel to the leaf."""
        block = self.root.statements[self.at]
        assert isinstance(block, Block)
        path = [block]
        for at in self.picked.way:
            child = path[-1].statements[at]
            assert isinstance(child, Block)
            path.append(child)
        return path

    def _source(self, view: Refinement) -> Refinement:
        """The buffer of the root that an operand comes from, which holds a value everywhere."""
        source = self.root.refinement(view.source)
        if view.direction is not Direction.IN:
            raise RewriteRefused(f"the nest writes '{source.name}', which it would shift")
        if source.direction is not Direction.IN and not _written_whole(self.root, self.at, source):
            raise RewriteRefused(f"'{source.name}', which it would shift, is not written whole before")
        return source

    # -- the compensation ----------------------------------------------------------------

    def _compensation(self, wanted: DType, operand: str) -> tuple[_Sum, dict[str, int]]:
        """The sum over the factors other than `operand`, and the indexes of the nest, with their
        ranges, that its results depend on."""
        fit, leaf = self.picked.found.fit, self.picked.leaf
        body = parse_body(fit.stencil.body)
        target = fit.operands[body.target]
        factors = [name for name in body_operands(body.value) if name != operand]
        if any(fit.operands[name].local for name in factors):
            raise RewriteRefused("what would make up for the shift is made inside the nest")
        used = {n for name in factors for n in fit.operands[name].indexes}
        used |= {n for expr in leaf.constraints for n in expr.names}
        own = {n: size for n, size in leaf.ranges.items() if n in used}
        reduced = {n: size for n, size in own.items() if n in target.indexes}
        points = Domain.box(own).with_constraints(leaf.constraints)
        flat = len(self._path()) == 1  # a nest has such indexes where its tiles are ragged
        if flat and not Domain.box(reduced).is_subset(points.project_onto(list(reduced))):
            # Made at load time, it would be an output, which is written whole.
            raise RewriteRefused("what would make up for the shift is no sum for some of its indexes")
        repeats = prod(s for n, s in leaf.ranges.items() if n not in used and n not in target.indexes)
        half = 1 << (wanted.bits - 1)
        factor = _wrapped((half if wanted.is_signed else -half) * repeats, target.dtype)
        kernel = self._path()[0]
        views = []
        for name in factors:
            found = fit.operands[name]
            source = kernel.refinement(found.name).source
            ones = (1,) * len(found.access)
            views.append(Refinement(Direction.IN, source, ones, found.dtype, source, found.access))
        made = _Sum(
            f"{kernel.name}_offset", tuple(Index(n, size) for n, size in own.items()),
            leaf.constraints, tuple(views), tuple(reduced.items()), target.dtype, factor,
        )  # fmt: skip
        return made, reduced

    def _fold_level(self, path: Sequence[Block]) -> int:
        """How many blocks of the path stand around the whole of each sum: those above the first
        with an index that the result does not depend on."""
        leaf, fit = self.picked.leaf, self.picked.found.fit
        target = fit.operands[parse_body(fit.stencil.body).target]
        own = level_names(path[0], self.picked.way)
        for level, names in enumerate(own):
            if any(n not in target.indexes and leaf.ranges[n] > 1 for n in names):
                return level
        return len(own) - 1

    def _fold(
        self, path: Sequence[Block], level: int, buffer: Refinement, reduced: Mapping[str, int]
    ) -> Block:
        """The block that adds the compensation to the results, beside the path's block of a level."""
        fit, way = self.picked.found.fit, self.picked.way
        target = parse_body(fit.stencil.body).target
        child = path[level]
        around: dict[str, View] = {}
        for block in (self.root, *path[:level]):
            around = views_of(block, around)
        below = dict(zip(ways(child), leaves(child, around, every_level=True), strict=True))[way[level:]]
        place = _store_place(below)
        inner_names = dict(
            zip(
                (n for names in level_names(path[0], way)[level:] for n in names),
                (n for names in level_names(child, way[level:]) for n in names),
                strict=True,
            )
        )
        written = [n for n in inner_names if n in fit.operands[target].indexes]
        constraints = [below.constraints[at] for at in self._fold_constraints(path[:level])]
        ranged = tuple(Index(inner_names[n], self.picked.leaf.ranges[n]) for n in written)
        passed = tuple(i for i in child.indexes if i.passed is not None)
        needed = {n for expr in (*place, *constraints) for n in expr.names}
        parent = path[level - 1] if level else self.root
        source = child.refinement(_store_buffer(path, level)).source
        above = parent.refinement(source)
        aggregates = above.combines
        ones = (1,) * len(place)
        access = tuple(Affine.index(inner_names[n]) if n in inner_names else Affine() for n in reduced) or (
            Affine(),
        )
        names = Names([source])
        own = names.fresh(buffer.name)
        return Block(
            f"{child.name}_shift",
            (*ranged, *(i for i in passed if i.name in needed)),
            tuple(map(Constraint, constraints)),
            (
                Refinement(Direction.IN, own, (1,) * len(access), buffer.dtype, buffer.name, access),
                Refinement(
                    Direction.OUT if aggregates else Direction.INOUT, source, ones, above.dtype, source,
                    place, Aggregation.ADD,
                ),
            ),
            (Load("v0", own, buffer.dtype), Store(source, "v0")),
        )  # fmt: skip

    def _fold_constraints(self, above: Sequence[Block]) -> tuple[int, ...]:
        """What limits the results that have a point, beyond the levels around: which of the
        constraints below those. Raises RewriteRefused where that is not all."""
        leaf, fit = self.picked.leaf, self.picked.found.fit
        indexes = fit.operands[parse_body(fit.stencil.body).target].indexes
        names = [n for n in leaf.ranges if n in indexes]
        box = box_limits(leaf.ranges)
        around = sum(len(block.constraints) for block in above)
        executed = Domain.of(tuple(leaf.ranges), (*box, *leaf.constraints)).project_onto(names)
        held = [c for c in leaf.constraints[:around] if indexes.issuperset(c.names)]
        inside = [expr for expr in box if indexes.issuperset(expr.names)]
        below = leaf.constraints[around:]
        own = tuple(at for at, c in enumerate(below) if indexes.issuperset(c.names))
        for limits in ((), own):
            limited = (*inside, *held, *(below[at] for at in limits))
            if Domain.of(tuple(names), limited).is_subset(executed):
                return limits
        raise RewriteRefused("some results have no point, and would be shifted")

    def _with_fold(
        self, kernel: Block, level: int, buffer: Refinement, reduced: Mapping[str, int], fold: Block
    ) -> Block:
        """The kernel with `fold` behind the block of the path at `level`, and its buffer handed down."""
        own = level_names(kernel, self.picked.way)
        name = buffer.name

        def handed(block: Block, depth: int) -> Block:
            later = {n for names in own[depth + 1 :] for n in names}
            inner = dict(zip(own[depth], block.ranges, strict=True))
            access = tuple(Affine.index(inner[n]) if n in inner else Affine() for n in reduced)
            shape = tuple(size if n in later else 1 for n, size in reduced.items())
            view = Refinement(Direction.IN, name, shape or (1,), buffer.dtype, name, access or (Affine(),))
            at = self.picked.way[depth]
            child = block.statements[at]
            assert isinstance(child, Block)
            below = (child, fold) if depth + 1 == level else (handed(child, depth + 1),)
            statements = (*block.statements[:at], *below, *block.statements[at + 1 :])
            return replace(block, refinements=(*block.refinements, view), statements=statements)

        return handed(kernel, 0)


@dataclass(frozen=True, slots=True)
class _Sum:
    """results[indexes of it] = sum of factor * the product of what `views` show."""

    name: str
    indexes: tuple[Index, ...]
    constraints: tuple[Affine, ...]
    views: tuple[Refinement, ...]
    results: tuple[tuple[str, int], ...]
    dtype: DType
    factor: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size for _, size in self.results) or (1,)

    def block(self, buffer: Refinement) -> Block:
        names, scalars = Names([buffer.name]), Names()
        statements: list[Statement] = []
        views, product = [], scalars.fresh("d")
        statements.append(Constant(product, self.factor, self.dtype))
        for view in self.views:
            views.append(replace(view, name=names.fresh(view.source)))
            value = scalars.fresh("y")
            statements.append(Load(value, views[-1].name, view.dtype))
            if view.dtype is not self.dtype:
                wide = scalars.fresh("y")
                statements.append(Cast(wide, value, self.dtype))
                value = wide
            result = scalars.fresh("p")
            statements.append(Intrinsic(result, "mul", (product, value), self.dtype))
            product = result
        access = tuple(Affine.index(n) for n, _ in self.results) or (Affine(),)
        out = Refinement(
            Direction.OUT, buffer.name, (1,) * len(access), self.dtype, buffer.name, access, Aggregation.ADD
        )
        statements.append(Store(buffer.name, product))
        constraints = tuple(map(Constraint, self.constraints))
        return Block(self.name, self.indexes, constraints, (*views, out), tuple(statements))


def _chain(path: Sequence[Block], buffer: str) -> list[Refinement]:
    """The views of a buffer of the leaf, from the kernel's down to the leaf's."""
    found: list[Refinement] = []
    for block in reversed(path):
        found.append(block.refinement(found[-1].source if found else buffer))
        if found[-1].direction is Direction.NEW:
            raise RewriteRefused(f"'{found[-1].name}', which it would shift, is made inside the nest")
    return found[::-1]


def _store_buffer(path: Sequence[Block], level: int) -> str:
    """What the block of the path at a level calls the buffer that the leaf stores to."""
    name = next(s.buffer for s in path[-1].statements if isinstance(s, Store))
    for block in reversed(path[level + 1 :]):
        name = block.refinement(name).source
    return name


def _store_place(leaf: Leaf) -> tuple[Affine, ...]:
    return next(o.access for o in leaf.operands if o.direction.writes)


def _retyped(
    path: Sequence[Block], way: Sequence[int], chain: Sequence[Refinement], copied: Refinement
) -> Block:
    """The kernel whose leaf loads the copy in place of the buffer that `chain` shows."""
    names, source = [], copied.name
    for block in path:
        names.append(Names(r.name for r in block.refinements).fresh(copied.name))
    below: Block | None = None
    for depth in reversed(range(len(path))):
        block, old = path[depth], chain[depth]
        source = names[depth - 1] if depth else copied.name
        view = replace(old, name=names[depth], source=source, dtype=copied.dtype)
        statements = list(block.statements)
        if below is not None:
            statements[way[depth]] = below
        else:
            statements = [
                replace(s, buffer=view.name, dtype=view.dtype)
                if isinstance(s, Load) and s.buffer == old.name
                else s
                for s in statements
            ]
        at = block.refinements.index(old)
        refinements = (*block.refinements[:at], view, *block.refinements[at:])
        below = replace(block, refinements=refinements, statements=tuple(statements))
        if old.name not in used_buffers(below):
            below = replace(below, refinements=tuple(r for r in refinements if r is not old))
    assert below is not None
    return below


def _copy(source: Refinement, copied: Refinement) -> Block:
    """copied = source + 2^(bits - 1), in the other type."""
    indexes = tuple(Index(f"i{dim}", size) for dim, size in enumerate(source.shape))
    access = tuple(Affine.index(i.name) for i in indexes)
    ones = (1,) * len(access)
    half = 1 << (copied.dtype.bits - 1)
    return Block(
        copied.name,
        indexes,
        (),
        (
            Refinement(Direction.IN, source.name, ones, source.dtype, source.name, access),
            Refinement(
                Direction.OUT, copied.name, ones, copied.dtype, copied.name, access, Aggregation.ASSIGN
            ),
        ),
        (
            Load("v0", source.name, source.dtype),
            Cast("v1", "v0", copied.dtype),
            Constant("v2", _wrapped(half, copied.dtype), copied.dtype),
            Intrinsic("v3", "add", ("v1", "v2"), copied.dtype),
            Store(copied.name, "v3"),
        ),
    )


def _wrapped(value: int, dtype: DType) -> int:
    """The value modulo 2^bits, as the type has it."""
    value %= 1 << dtype.bits
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def _written_whole(root: Block, at: int, buffer: Refinement) -> bool:
    """Whether the statements before number `at` write every element of a buffer of the root."""
    cells = [f"@{dim}" for dim in range(len(buffer.shape))]
    left = Domain.box(dict(zip(cells, buffer.shape, strict=True)))
    for statement in root.statements[:at]:
        for access in accesses(root, statement):
            if access.buffer == buffer.name and access.writes and not access.conditional:
                left = left.subtract(access.domain().image(access.element, cells))
    return left.is_empty()
