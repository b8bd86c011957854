"""symmetry: of a symmetric result one half is computed, and the other copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import ClassVar

from hwconfigs.model import Unit
from stripe.affine import Affine
from stripe.analysis.bounds import leaves
from stripe.analysis.cost_sets import holding_rate
from stripe.analysis.lanes import vector_width
from stripe.analysis.symmetry import Symmetric, symmetries
from stripe.analysis.units import claimed
from stripe.analysis.work import vector_operations
from stripe.ir import Aggregation, Block, Constraint, Direction, Load, Program, Refinement, Store
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, is_worth, option
from stripe.passes.choices import Choice
from stripe.passes.rewriter import Rewriter
from stripe.poly import Domain, Piece, PolyhedralLimit, as_inequalities, block_domain
from stripe.visit import map_roots, views_of

COPIED = 2.0  # cycles to load an element and store it across, as on Zen 4
ACROSS = 3.0  # height and width of a tile of registers together, in sides of a square of as many results


class Mirrored(Choice, frozen=True):
    """Of a kernel: the two `indexes` of its result that may change places. Where the first is less than
    the second, results are copied.
    """

    indexes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Symmetry(Pass):
    """Compute one half of a symmetric result, and copy the other half from it, where that saves time.

    before:  block T [i:900, j:900, n:500] (in D[n, i]  in D_1 = D[n, j]  out T[i, j]:add) {
               $a = load(D)  $b = load(D_1)  $p = mul($a, $b)  T = store($p) }
    after:   block T [i:900, j:900, n:500] (i - j >= 0  in D[n, i]  in D_1 = D[n, j]  out T[i, j]:add) {
               $a = load(D)  $b = load(D_1)  $p = mul($a, $b)  T = store($p) }
             block T_mirror [i:900, j:900] (i - j - 1 >= 0  in T[i, j]  out T_1 = T[j, i]:assign) {
               $t = load(T)  T_1 = store($t) }

    So does a library where a program names the product of a matrix with its own transpose (`syrk`):
    covariances, correlations, Gram matrices, batches of them. Here the block tells: it stays the same when
    two indexes of its result change places.

    Weighed are the instructions that are saved against those of the copies, and against the bytes that these
    move, from the memory that the result fits in. A tile of registers that lies across the diagonal is
    computed whole, so that small results save little. What comes next to a buffer of the program could be
    computed before its elements leave the registers; behind a copy it reads them again, which is counted.

    Legal where both halves are equal to the bit: with the two indexes exchanged in what the block loads
    and in its constraints, it combines the same values in the same order. Statements may change places, and
    operands of functions that commute; factors in another order are other values. What combines may be any
    operation but `assign`. Acts on leaf blocks of the root with one result, each dimension of which is one
    index or constant. What `#group` or `#stencil` names is left as the instruction takes it.
    Dongarra et al., "A Set of Level 3 Basic Linear Algebra Subprograms" (1990); the half that is left is a
    polyhedron, Stripe paper, section 3.
    """

    name: ClassVar[str] = "symmetry"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil", "group")
    choice: ClassVar[type[Choice]] = Mirrored

    least_gain: int = option(
        10, "the share of a kernel's cycles that must be saved", "percent", least=0, most=100
    )

    def run(self, program: Program, context: PassContext) -> Program:
        unit = context.hw.compute_unit
        if unit is None:
            context.remark(program.root.name, False, "the target has no unit that computes")
            return program
        return map_roots(program, lambda root: _Root(self, context, unit, root).halved())


@dataclass(frozen=True, slots=True)
class _Weighed:
    """Cycles of all of a block, those that are saved, and those of the copies."""

    total: float
    saved: float
    paid: float

    def __str__(self) -> str:
        return f"saves {self.saved:.4g} of {self.total:.4g} cycles, copies take {self.paid:.4g}"


@dataclass(frozen=True, slots=True)
class _Root:
    options: Symmetry
    context: PassContext
    unit: Unit
    root: Block

    def halved(self) -> Block:
        """The root where halves of symmetric results are copied."""
        rewriter = Rewriter(self.root)
        return rewriter.replaced(lambda block: self._kernel(block, rewriter.blocks))

    def _kernel(self, block: Block, names: Names) -> tuple[Block, ...]:
        """The blocks that a kernel becomes."""
        path = f"{self.root.name}/{block.name}"
        key = self.context.key(path)
        given = self.context.explicit(key, Mirrored)
        found = [self._lower(one) for one in symmetries(block)]
        if given is None and not found:
            return (block,)
        if given is None:
            chosen = max(found, key=lambda one: (one.points, block.ranges[one.indexes[0]]))
        else:
            chosen = self._given(found, key, given)
        cells = self._cells(block, chosen)
        if isinstance(cells, str) and given is not None:
            raise self.context.refused(key, cells)
        if isinstance(cells, str):
            return self._left(block, path, chosen, cells)
        if given is None and not self.context.searches:
            self.context.undecided(path)
            return (block,)
        weighed = self._weighed(block, chosen)
        if given is None and not (weighed is not None and self._pays(weighed)):
            return self._left(block, path, chosen, str(weighed or "what it saves is too hard to count"))
        first, second = chosen.indexes
        text = f"computes '{chosen.result.source}' where {first} >= {second}, and copies what mirrors it"
        self.context.remark(path, True, text if weighed is None else f"{text}: {weighed}")
        self.context.chose(key, Mirrored(chosen.indexes))
        half = replace(block, constraints=(*block.constraints, Constraint(_below(chosen, 0))))
        return half, _mirror(block, chosen, cells, names)

    def _left(self, block: Block, path: str, found: Symmetric, why: str) -> tuple[Block]:
        """The block as it is, with the reason."""
        first, second = found.indexes
        text = f"both halves of '{found.result.source}', which {first} and {second} mirror, are computed"
        self.context.remark(path, False, f"{text}: {why}")
        return (block,)

    def _lower(self, found: Symmetric) -> Symmetric:
        """The same, with the index first whose elements of the result lie farther apart: the halves of rows
        that are computed begin where they do."""
        strides = self.root.refinement(found.result.source).strides
        assert strides is not None
        far = {
            expr.names[0]: abs(expr.terms[0][1] * stride)
            for expr, stride in zip(found.result.access, strides, strict=True)
            if expr.names
        }
        first, second = found.indexes
        return found if far[first] >= far[second] else replace(found, indexes=(second, first))

    def _given(self, found: Sequence[Symmetric], key: str, given: Mirrored) -> Symmetric:
        """The symmetry that a choice names. Raises CompileError P009 if there is none."""
        for one in found:
            if sorted(one.indexes) == sorted(given.indexes):
                return replace(one, indexes=(given.indexes[0], given.indexes[1]))
        named = ", ".join(given.indexes) or "no indexes"
        reason = f"it does not stay the same when {named} change places"
        pairs = [f"help: {' and '.join(one.indexes)} may" for one in found]
        raise self.context.refused(key, reason, "indexes", *pairs)

    def _cells(self, block: Block, found: Symmetric) -> Piece | str:
        """Which results of the half that is computed a block writes; or why it is left as it is, as a
        clause."""
        buffer = self.root.refinement(found.result.source)
        if reason := claimed(block):
            return reason
        if buffer.combines:
            return f"what is added to '{buffer.name}' can't be read"
        if not found.points:
            return "its constraints leave points without those that mirror them"
        if not block.constraints:
            return [], []
        names = [name for expr in found.result.access for name in expr.names]
        try:
            known = Domain.box({name: block.ranges[name] for name in names})
            cells = block_domain(block).piece_beyond(known.with_constraints([_below(found, 1)]))
        except PolyhedralLimit:
            cells = None
        return "what it writes is no single piece" if cells is None else cells

    def _weighed(self, block: Block, found: Symmetric) -> _Weighed | None:
        """What it is worth to compute one half alone; None if that can't be told."""
        (leaf,) = leaves(block, views_of(self.root, {}))
        ranges, buffer = block.ranges, self.root.refinement(found.result.source)
        side, size = ranges[found.indexes[0]], buffer.dtype.bytes
        width = vector_width(block, self.unit.vector_bytes)
        issued = vector_operations(leaf) / width / self.unit.fma_per_cycle
        points = block_domain(block)
        try:
            every, half = points.count(), points.with_constraints([_below(found, 1)]).count()
            names = [name for expr in found.result.access for name in expr.names]
            cells = points.project_onto(names).with_constraints([_below(found, 1)]).count()
        except PolyhedralLimit:
            return None
        across = ACROSS * sqrt(self.unit.registers * width)
        saved = half * issued * max(0.0, 1 - across / side)
        rate = holding_rate(self.context.hw, buffer.bytes)
        paid = cells * (COPIED + 2 * size / rate)
        if buffer.direction is Direction.NEW:
            paid += 2 * buffer.bytes / rate
        return _Weighed(every * issued, saved, paid)

    def _pays(self, weighed: _Weighed) -> bool:
        return is_worth(weighed.saved - weighed.paid, weighed.total, self.options.least_gain)


def _below(found: Symmetric, apart: int) -> Affine:
    """At least 0 where the first index is greater than the second by so much."""
    first, second = (Affine.index(name) for name in found.indexes)
    return first - second - apart


def _mirror(block: Block, found: Symmetric, cells: Piece, names: Names) -> Block:
    """The block that copies the results at which the first index is greater to where these mirror them."""
    result = found.result
    written = Names([result.name]).fresh(result.name)
    along = {name for expr in result.access for name in expr.names}
    ones = (1,) * len(result.shape)
    exprs = (*as_inequalities(cells), _below(found, 1))
    return Block(
        names.fresh(f"{block.name}_mirror"),
        tuple(index for index in block.indexes if index.name in along),
        tuple(Constraint(expr) for expr in exprs),
        (
            Refinement(Direction.IN, result.name, ones, result.dtype, result.source, result.access),
            Refinement(
                Direction.OUT, written, ones, result.dtype, result.source, found.mirrored, Aggregation.ASSIGN
            ),
        ),
        (Load("v", result.name, result.dtype), Store(written, "v")),
        span=block.span,
    )
