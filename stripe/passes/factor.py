"""factor: sums of products in parts, each of which multiplies a few of the factors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from hwconfigs.model import Unit
from stripe.analysis.cost_factors import FactorCosts
from stripe.analysis.factors import Product, Some, product_of
from stripe.ir import Block, Program
from stripe.passes.base import Pass, PassContext, is_worth, option
from stripe.passes.choices import Choice
from stripe.passes.factor_build import Builder
from stripe.passes.rewriter import Rewriter
from stripe.poly import PolyhedralLimit
from stripe.visit import map_roots


class Parts(Choice, frozen=True):
    """Of a sum of a product: the factors, by their scalars, of each part that has a block of its own. A part
    may hold all factors of another.
    """

    parts: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Factor(Pass):
    """Sum up some factors of a product by themselves, so that the others are not multiplied with each term.

    before:  block O [i:64, r:64, j:64, k:64] (in A[i, j]  in B[j, k]  in C[k, r]  out O[i, r]:add) {
               $a = load(A)  $b = load(B)  $c = load(C)  $p = mul($a, $b)  $q = mul($p, $c)  O = store($q) }
    after:   new O_part f32(64, 64)
             block O_part [i:64, k:64, j:64] (in A[i, j]  in B[j, k]  out O_part[i, k]:add) {
               $a = load(A)  $b = load(B)  $product = mul($a, $b)  O_part = store($product) }
             block O [i:64, r:64, k:64] (in O_part[i, k]  in C[k, r]  out O[i, r]:add) {
               $part = load(O_part)  $c = load(C)  $product = mul($part, $c)  O = store($product) }

    Chains of matrices, products of tensors with several factor matrices, quadratic forms and scale
    factors are written as one sum. A part is summed up over the indexes on which no other factor, no result
    and no constraint with further indexes depends; one factor alone may be a part, and a part of others. A
    factor is whatever is multiplied: elements, functions of them, conversions.

    Of all orders, that is taken which costs least: instructions of the vector unit, and the bytes that each
    block reads and writes, from the nearest memory that holds them. What parts hold is written and read
    again, and must save a share of the cycles nevertheless. What fits in no cache may be a few times as large
    as all that the sum uses, and no larger.

    Legal by the distributive law, for sums (`add`) of what is multiplied in the type that is summed up. It
    holds of integers, which wrap around; floats are multiplied and added in another order, always the same
    on a target, and a part may leave their range where the whole does not. Sums that are rounded in between,
    as `f16`, stay whole, and what `#group` or `#stencil` names is left as the instruction takes it. Each
    block has the points of the sum, as far as it has its indexes; where these are no single polyhedron,
    nothing is done. Acts on leaf blocks of the root that store one value, and have no tags.

    Aji and McEliece, "The Generalized Distributive Law" (2000); Lam, Sadayappan and Wenger, "On Optimizing a
    Class of Multi-Dimensional Loops with Reductions for Parallel Execution" (1997). That terms may be
    aggregated in any order: Stripe paper, section 3.
    """

    name: ClassVar[str] = "factor"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil", "group")
    choice: ClassVar[type[Choice]] = Parts

    least_gain: int = option(
        15, "the share of a sum's cycles that must be saved", "percent", least=0, most=100
    )

    def run(self, program: Program, context: PassContext) -> Program:
        unit = context.hw.compute_unit
        if unit is None:
            context.remark(program.root.name, False, "the target has no unit that computes")
            return program
        return map_roots(program, lambda root: _Root(self, context, unit, root).factored())


@dataclass(slots=True)
class _Root:
    options: Factor
    context: PassContext
    unit: Unit
    root: Block
    rewriter: Rewriter = field(init=False)

    def __post_init__(self) -> None:
        self.rewriter = Rewriter(self.root)

    def factored(self) -> Block:
        """The root where sums of products are in parts."""
        return self.rewriter.replaced(self._kernel)

    def _kernel(self, block: Block) -> list[Block]:
        """The blocks that a kernel becomes."""
        path = f"{self.root.name}/{block.name}"
        key = self.context.key(path)
        given = self.context.explicit(key, Parts)
        product = product_of(block)
        if not isinstance(product, Product):
            reason = product or "it is no sum of a product that has parts"
            if given is not None:
                raise self.context.refused(key, reason)
            if product is not None:
                self.context.remark(path, False, f"one sum: {reason}")
            return [block]
        if given is None and not self.context.searches:
            self.context.undecided(path)
            return [block]
        costs = FactorCosts(product, self.root, self.context.hw, self.unit)
        parts = None if given is None else self._given(product, key, given)
        try:
            made = self._made(costs, parts)
        except PolyhedralLimit:
            made = "its points are too hard to describe"
        if isinstance(made, str):
            if given is not None:
                raise self.context.refused(key, made)
            self.context.remark(path, False, f"one sum: {made}")
            return [block]
        parts, text, blocks = made
        self.context.remark(path, True, text)
        self.context.chose(key, Parts(tuple(_scalars(product, part) for part in parts)))
        return blocks

    def _made(
        self, costs: FactorCosts, given: tuple[Some, ...] | None
    ) -> tuple[tuple[Some, ...], str, list[Block]] | str:
        """The parts of a sum, what is said of them, and the blocks; or why it has none, as a clause."""
        product = costs.product
        parts = costs.least() if given is None else given
        if not parts:
            return f"no parts take less than {costs.cycles(()):.4g} cycles"
        whole, cut = costs.cycles(()), costs.cycles(parts)
        text = f"{cut:.4g} cycles instead of {whole:.4g}"
        shown = ", ".join(_shown(product, part) for part in parts)
        if given is None and not is_worth(whole - cut, whole, self.options.least_gain):
            return f"with {shown} ahead it would take {text}"
        blocks = Builder(self.rewriter).in_parts(product, parts)
        if blocks is None:
            return f"the points of {shown} are no single piece"
        return parts, f"sums up {shown} ahead: {text}", blocks

    def _given(self, product: Product, key: str, given: Parts) -> tuple[Some, ...]:
        """The parts that a choice names, each behind those in it. Raises CompileError P009 if there are none
        such."""
        numbers = {factor.scalar: number for number, factor in enumerate(product.factors)}
        known = f"help: its factors are {', '.join(numbers)}"
        if not given.parts:
            raise self.context.refused(key, "it has no parts", "parts", known)
        found: list[Some] = []
        for names in given.parts:
            if left := [name for name in names if name not in numbers]:
                raise self.context.refused(key, f"it has no factor '{left[0]}'", "parts", known)
            part = frozenset(numbers[name] for name in names)
            shown = "*".join(names) or "nothing"
            if not part or not product.may_be_a_part(part):
                raise self.context.refused(key, f"{shown} can be no part of it", "parts", known)
            if any(part == other or part & other not in (frozenset(), part, other) for other in found):
                raise self.context.refused(key, f"{shown} is in another part already", "parts")
            found.append(part)
        return tuple(sorted(found, key=len))


def _scalars(product: Product, part: Some) -> tuple[str, ...]:
    return tuple(product.factors[number].scalar for number in sorted(part))


def _shown(product: Product, part: Some) -> str:
    """Some factors, by the buffers that they are made of, and the indexes over which they are summed up."""
    block = product.block
    factors = (product.factors[number] for number in sorted(part))
    texts = [
        "*".join([block.refinement(load.buffer).source for load in f.loads] or [f.scalar]) for f in factors
    ]
    over = [name for name in block.ranges if name in product.summed(part)]
    return "*".join(texts) + (f" over {', '.join(over)}" if over else "")
