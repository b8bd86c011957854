"""What plans of fusions ask of one block, worked out once for all pairs that it is part of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain

from stripe.affine import Affine
from stripe.analysis.deps import Access, accesses
from stripe.ir import Aggregation, Block, Direction, Refinement, Special, contiguous
from stripe.locks import cached_property
from stripe.poly import Domain
from stripe.visit import View, views_of


@dataclass(frozen=True)
class Scope:
    """The block whose children are fused."""

    block: Block

    @cached_property
    def _refinements(self) -> Mapping[str, Refinement]:
        return {ref.name: ref for ref in self.block.refinements}

    @cached_property
    def aliased(self) -> frozenset[str]:
        """Buffers that are views of a buffer of which there are other views."""
        sources = Counter(ref.source for ref in self.block.refinements)
        refs = self._refinements.values()
        return frozenset(ref.name for ref in refs if ref.source and sources[ref.source] > 1)

    @cached_property
    def names(self) -> frozenset[str]:
        """Its indexes."""
        return frozenset(index.name for index in self.block.indexes)

    def refinement(self, buffer: str) -> Refinement:
        return self._refinements[buffer]

    @cached_property
    def views(self) -> Mapping[str, View]:
        """What its names mean; strides that it leaves to the blocks around it are taken as dense."""
        inherited = (ref for ref in self.block.refinements if ref.source and ref.strides is None)
        outer = {ref.source: View(ref.dtype, ref.shape, contiguous(ref.shape)) for ref in inherited}
        return views_of(self.block, outer)

    @cached_property
    def bytes(self) -> Mapping[str, int]:
        """The size of each buffer."""
        return {name: ref.bytes for name, ref in self._refinements.items()}


class Candidate:
    """A child of the scope that may be fused with others; it has no index of range 1.

    It may be the first or the second of a pair: as such it is a `Side`, with index names of its own.
    """

    def __init__(self, scope: Scope, block: Block) -> None:
        self.scope = scope
        self.block = block
        self.views = _by_source(block)
        self.uses = {name: any(r.direction.writes for r in refs) for name, refs in self.views.items()}
        self.first = Side(scope, block, "a.", self.views)
        self.second = Side(scope, block, "b.", self.views)
        self._moving: dict[str, frozenset[str]] = {}

    def joined(self, second: Candidate, block: Block) -> Candidate:
        """This and another as one leaf, in which they run one after the other: their indexes have the
        same names, and they use what is written through the same view. `block` needs no content:
        what is known of the two is not worked out again, and what only one of them uses not
        looked at."""
        made = copy(self)  # it has this one's indexes, and what follows from them
        made.block = block
        made.views = {**self.views, **second.views}
        made.uses = {**second.uses, **self.uses}
        for name in self.views.keys() & second.views.keys():
            made.views[name] = self.views[name]
            if not self.uses[name]:
                made.views[name] = tuple(dict.fromkeys((*self.views[name], *second.views[name])))
        made.first = self.first.joined(second.first, block, made.views)
        made.second = self.second.joined(second.second, block, made.views)
        made._moving = {}
        return made

    @cached_property
    def is_leaf(self) -> bool:
        return not self.block.children

    @cached_property
    def sizes(self) -> list[int]:
        """The ranges of its indexes, in ascending order."""
        return sorted(self.block.ranges.values())

    def covers(self, buffers: Iterable[str]) -> bool:
        """Whether its views of the buffers, together, move along each of its indexes."""
        moving = (self._indexes_in_views(buffer) for buffer in buffers)
        return self._ranges <= frozenset[str]().union(*moving)

    @cached_property
    def _ranges(self) -> frozenset[str]:
        return frozenset(self.block.ranges)

    def _indexes_in_views(self, buffer: str) -> frozenset[str]:
        if buffer not in self._moving:
            exprs = (expr for ref in self.views[buffer] for expr in ref.access)
            self._moving[buffer] = frozenset(name for expr in exprs for name in expr.names)
        return self._moving[buffer]


def settled(block: Block) -> bool:
    """Whether tags of an earlier pass ask that a block stays as it is; a group only asks for its index."""
    return any(tag.name != "group" for tag in block.tags)


def _by_source(block: Block) -> dict[str, tuple[Refinement, ...]]:
    """The block's views of each buffer of the enclosing block."""
    found: dict[str, tuple[Refinement, ...]] = {}
    for ref in block.refinements:
        if ref.direction is not Direction.NEW:
            found[ref.source] = (*found.get(ref.source, ()), ref)
    return found


class Side:
    """One of two blocks, with its accesses at one point of the enclosing block."""

    def __init__(
        self, scope: Scope, block: Block, prefix: str, views: Mapping[str, tuple[Refinement, ...]]
    ) -> None:
        self.scope = scope
        self.block = block
        self.prefix = prefix
        self._views = views

    def joined(self, other: Side, block: Block, views: Mapping[str, tuple[Refinement, ...]]) -> Side:
        """See `Candidate.joined`."""
        side = Side(self.scope, block, self.prefix, views)
        found = {**self.by_buffer, **other.by_buffer}
        for name in self.by_buffer.keys() & other.by_buffer.keys():
            found[name] = tuple(dict.fromkeys((*self.by_buffer[name], *other.by_buffer[name])))
        side.by_buffer = found
        side.involved = self.involved | other.involved
        return side

    def twin(self, prefix: str) -> Side:
        """Another execution of the same block."""
        return Side(self.scope, self.block, prefix, self._views)

    @cached_property
    def by_buffer(self) -> Mapping[str, tuple[Access, ...]]:
        """The accesses to each buffer of the enclosing block."""
        found: dict[str, list[Access]] = {}
        for access in accesses(self.scope.block, self.block, self.prefix):
            found.setdefault(access.buffer, []).append(access)
        return {name: tuple(own) for name, own in found.items()}

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        return tuple(chain.from_iterable(self.by_buffer.values()))

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        return tuple(a for a in self.accesses if a.reads)

    @cached_property
    def writes(self) -> tuple[Access, ...]:
        return tuple(a for a in self.accesses if a.writes)

    def meeting(self, other: Side) -> list[Access]:
        """The accesses to a storage that the other side uses too."""
        if self.scope.aliased:
            storages = {a.storage for a in other.accesses}
            return [a for a in self.accesses if a.storage in storages]
        return [a for name, own in self.by_buffer.items() if name in other.by_buffer for a in own]

    def to(self, buffer: str) -> tuple[Access, ...]:
        """The accesses to one buffer of the enclosing block."""
        return self.by_buffer.get(buffer, ())

    def views(self, buffer: str) -> tuple[Refinement, ...]:
        """The block's views of a buffer of the enclosing block."""
        return self._views.get(buffer, ())

    @cached_property
    def involved(self) -> frozenset[str]:
        """Buffers that an outer block may have to declare otherwise, even if only this side uses
        them: all but those that are read, or assigned through one view."""

        def plain(buffer: str, refs: Sequence[Refinement]) -> bool:
            if not any(ref.direction.writes for ref in refs):
                return True
            alone = len(refs) == 1 and not self.scope.refinement(buffer).combines
            return alone and (refs[0].direction, refs[0].aggregation) == (Direction.OUT, Aggregation.ASSIGN)

        return frozenset(buffer for buffer, refs in self._views.items() if not plain(buffer, refs))

    @cached_property
    def _is_leaf(self) -> bool:
        return not any(isinstance(s, Block | Special) for s in self.block.statements)

    def all_shared(self, shared: Iterable[str]) -> bool:
        """Whether nothing has a dimension beside the shared indexes."""
        return self._is_leaf and self.block.ranges.keys() == set(shared)

    def dim(self, index: str) -> str:
        return self.prefix + index

    def depends(self, access: Access, index: str) -> bool:
        """Whether the element moves along an index of the block."""
        return any(expr.coefficient(self.dim(index)) for expr in access.element)

    def own(self, expr: Affine) -> Iterator[tuple[str, int]]:
        """The terms of the block's own ranged indexes: (index, coefficient)."""
        for name in self.block.ranges:
            if coefficient := expr.coefficient(self.dim(name)):
                yield name, coefficient

    def left(self, access: Access, shared: Iterable[str]) -> frozenset[str]:
        """Dimensions of the nest, not shared, that the element depends on."""
        fixed = self.scope.names.union(map(self.dim, shared))
        return frozenset(n for expr in access.element for n in expr.names if n not in fixed)

    def unused(self, access: Access, shared: Iterable[str]) -> frozenset[str]:
        """Dimensions of the nest, not shared, that the element does not depend on: for a write,
        those that it reduces over."""
        used = {n for expr in access.element for n in expr.names}
        fixed = self.scope.names.union(map(self.dim, shared))
        return frozenset(n for n in access.names if n not in used and n not in fixed)


def is_flat(side: Side, shared: Sequence[str]) -> bool:
    return not side.block.children and set(side.block.ranges) == set(shared)


def common_buffers(first: Side, second: Side) -> list[str]:
    return [buffer for buffer in first.by_buffer if buffer in second.by_buffer]


def meet(first: Side, second: Side, buffer: str) -> bool:
    """Whether two blocks use elements of a buffer in common: those that neither reads may differ."""
    found = (*first.to(buffer), *second.to(buffer))
    if first.scope.refinement(buffer).combines or any(access.reads for access in found):
        return True
    rank = len(first.scope.refinement(buffer).shape)
    one, other = (touched(side.to(buffer), (), first.scope, rank) for side in (first, second))
    return not one.intersect(other).is_empty()


def touched(found: Sequence[Access], point: Sequence[Affine], scope: Scope, rank: int) -> Domain:
    """The set of (index of the scope, shared point, element) that the accesses touch."""
    outer = [i.name for i in scope.block.indexes]
    names = [*outer, *(f"#{at}" for at in range(len(point))), *(f"@{at}" for at in range(rank))]
    total = Domain.empty(names)
    for access in found:
        values = (*(Affine.index(name) for name in outer), *point, *access.address)
        total = total.union(access.domain().image(values, names))
    return total
