"""prefix: running sums in pieces, each of which goes on from the sum of those ahead of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from hwconfigs.model import Unit
from stripe.affine import Affine
from stripe.analysis.lanes import vector_width
from stripe.analysis.prefix import Running, elements_moved, running_sum, terms_combined, vector_steps
from stripe.ir import Block, Program
from stripe.passes.base import Pass, PassContext, is_worth, option
from stripe.passes.choices import Choice, Count
from stripe.passes.prefix_build import Builder
from stripe.passes.rewriter import Rewriter
from stripe.visit import map_roots


class Pieces(Choice, frozen=True):
    """Of a running sum: the `sizes` of its pieces, in points; then those of the pieces in which the sums of
    pieces are summed up, and so on.
    """

    sizes: tuple[Count, ...] = ()


@dataclass(frozen=True)
class Prefix(Pass):
    """Cut running sums into pieces, so that a result combines a few terms and not all that are ahead of it.

    before:  block O [i:800, k:800] (i - k >= 0  in X[k]  out O[i]:add) { $x = load(X)  O = store($x) }
    after:   new O_part f32(199)  new O_ahead f32(199)
             block O_parts [k:199, k_1:4] (in X[4*k + k_1]  out O_part[k]:add) {...}
             block O_ahead [i:199, k:199] (i - k >= 0  in O_part[k]  out O_ahead[i]:add) {...}
             block O [i:200, i_1:4, k:4] (i_1 - k >= 0  in X[4*i + k]  out O[4*i + i_1]:add) {...}
             block O_rest [i:199, i_1:4] (in O_ahead[i]  inout O[4*i + i_1 + 4]:add) {...}

    The sums of pieces are a running sum themselves, which is cut in turn: so many terms in all grow with
    the results, and not with their square. `fuse` makes one block of these again where they fit. Terms that
    are computed are so once, ahead of all. Sums from the last term backwards (`k - i >= 0`) and those that
    end some terms earlier or later are cut as well; results behind the last term are copies.

    Sizes are powers of two, with which the fewest terms are combined. It pays where that saves a share of
    terms, loads and stores; where a vector holds several results of a sum, where it saves that share of
    vectors: there a triangle is whole vectors but for its diagonal.

    Legal where one constraint alone says which terms a result combines, the number of a term against that of
    a result; terms depend on no index of results but those of the batch, and results on none of the terms.
    The aggregation may be any but `assign`: floats are added in another order, always the same on a target.
    What would be rounded in between, as `f16`, stays whole, and what `#group` or `#stencil` names is left as
    the instruction takes it. Acts on leaf blocks of the root with one result, each dimension of which is one
    index or constant.

    Blelloch, "Prefix Sums and Their Applications" (1990), section 1.3, for pieces and the sums
    of these; that a triangle is a polyhedron, and so are its pieces: Stripe paper, section 3.
    """

    name: ClassVar[str] = "prefix"
    tags_read: ClassVar[tuple[str, ...]] = ("stencil", "group")
    choice: ClassVar[type[Choice]] = Pieces

    least_gain: int = option(
        10, "the share of what a running sum takes that must be saved", "percent", least=0, most=100
    )

    def run(self, program: Program, context: PassContext) -> Program:
        unit = context.hw.compute_unit
        if unit is None:
            context.remark(program.root.name, False, "the target has no unit that computes")
            return program
        return map_roots(program, lambda root: _Root(self, context, unit, root).in_pieces())


@dataclass(slots=True)
class _Root:
    options: Prefix
    context: PassContext
    unit: Unit
    root: Block
    rewriter: Rewriter = field(init=False)

    def __post_init__(self) -> None:
        self.rewriter = Rewriter(self.root)

    def in_pieces(self) -> Block:
        """The root with its running sums in pieces."""
        return self.rewriter.replaced(self._kernel)

    def _kernel(self, block: Block) -> list[Block]:
        """The blocks that a kernel becomes."""
        path = f"{self.root.name}/{block.name}"
        key = self.context.key(path)
        given = self.context.explicit(key, Pieces)
        found = running_sum(block)
        if isinstance(found, Running):
            found = self._readable(found) or found
        if not isinstance(found, Running):
            reason = found or "it is no running sum"
            if given is not None:
                raise self.context.refused(key, reason)
            if found is not None:
                self.context.remark(path, False, f"no running sum in pieces: {reason}")
            return [block]
        if given is None and not self.context.searches:
            self.context.undecided(path)
            return [block]
        sizes = given.sizes if given is not None else self._sizes(found.used)
        if given is not None and (wrong := _wrong(found.used, sizes)):
            raise self.context.refused(key, wrong, "sizes")
        whole, cut, what = self._weighed(found, sizes)
        if given is None and not self._pays(whole, cut):
            text = f"it would take {cut:.4g} {what} instead of {whole:.4g}" if sizes else "it is short"
            self.context.remark(path, False, f"no running sum in pieces: {text}")
            return [block]
        text = f"sums up in pieces of {', '.join(map(str, sizes))}"
        self.context.remark(path, True, f"{text}: {cut:.4g} {what} instead of {whole:.4g}")
        self.context.chose(key, Pieces(sizes))
        return Builder(self.rewriter).in_pieces(found, sizes)

    def _readable(self, found: Running) -> str:
        """Why results can't be read again, as a clause; empty if they can."""
        buffer = self.root.refinement(found.result.source)
        return f"what is added to '{buffer.name}' can't be read" if buffer.combines else ""

    def _sizes(self, terms: int) -> tuple[int, ...]:
        """Sizes of pieces with which the fewest terms are combined; none where that saves little."""
        sizes: list[int] = []
        while size := self._size(terms):
            sizes.append(size)
            terms = -(-terms // size) - 1
        return tuple(sizes)

    def _size(self, terms: int) -> int:
        """The size of pieces if their sums are in pieces of the same size; 0 if none is worth it."""
        best = min(_powers(terms), key=lambda size: _combined(terms, size), default=0)
        return best if best and self._pays(_combined(terms, 0), _combined(terms, best)) else 0

    def _weighed(self, found: Running, sizes: tuple[int, ...]) -> tuple[float, float, str]:
        """What a running sum takes whole and in pieces, and of what."""
        strides = self.root.refinement(found.result.source).strides
        assert strides is not None
        step = Affine.weighted(found.result.access, strides).coefficient(found.along)
        lanes = vector_width(found.block, self.unit.vector_bytes)
        if abs(step) >= lanes:
            whole, cut = (
                terms_combined(found.used, each) + elements_moved(found.used, each) for each in ((), sizes)
            )
            return whole, cut, "terms, loads and stores"
        return vector_steps(found.used, (), lanes), vector_steps(found.used, sizes, lanes), "vectors"

    def _pays(self, whole: float, cut: float) -> bool:
        return is_worth(whole - cut, whole, self.options.least_gain)


def _powers(terms: int) -> Iterator[int]:
    """The sizes of pieces that there are two or more of."""
    size = 2
    while 2 * size <= terms:
        yield size
        size *= 2


def _combined(terms: int, size: int) -> int:
    """How many terms are combined in pieces of this size, of sums, too; whole if it is 0."""
    sizes, left = list[int](), terms
    while size and left >= 2 * size:
        sizes.append(size)
        left = -(-left // size) - 1
    return terms_combined(terms, tuple(sizes))


def _wrong(terms: int, sizes: tuple[int, ...]) -> str:
    """Why a running sum can't be cut so, as a clause; empty if it can."""
    if not sizes:
        return "it has no sizes"
    for size in sizes:
        if not 1 < size < terms:
            return f"of {terms} terms there are no pieces of {size}"
        terms = -(-terms // size) - 1
    return ""
