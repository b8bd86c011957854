"""A program as its code will run it: blocks with their loops, and where each load and store goes.

    block C [m:3] {                          Nest C, loops m.1
      block C [k:64, n:16, mo = 8*m] {...}   Nest C, loops k.2, n.3; accesses over all three

Every index has a name of its own in the whole program, and every access is one affine expression: how
many elements from the start of its allocation. Where one instruction sums groups of neighbours (`#group`),
the leaf reads words that hold a group each, and has no loop over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.analysis.groups import moves_only, moving_words, place_in_words, without_group
from stripe.analysis.lanes import in_whole_vectors
from stripe.analysis.stencils_groups import Summing, instructions
from stripe.dtypes import DType
from stripe.ir import Block, Direction, Load, Refinement, Store
from stripe.locks import cached_property
from stripe.rewrite_merged import joins_rows, merged


@dataclass(frozen=True, slots=True)
class Buffer:
    """An allocation, by its number in the program; `near` if it lies in registers."""

    number: int
    dtype: DType
    near: bool


@dataclass(frozen=True, slots=True)
class Access:
    """A load or store of the element at `place`; `adds` if it aggregates into that."""

    buffer: Buffer
    place: Affine
    writes: bool
    adds: bool


@dataclass(frozen=True, eq=False)
class Nest:
    """A block with its `loops`, outermost first; `own` are their names in the block. `limits` are its
    constraints (each >= 0), `parts` the blocks inside, `accesses` those of its own statements. `summing` is
    the instruction that a leaf of groups becomes."""

    block: Block
    loops: Mapping[str, int]
    own: Mapping[str, str]
    limits: tuple[Affine, ...]
    parts: tuple[Nest, ...]
    accesses: tuple[Access, ...]
    summing: Summing | None = None

    @property
    def units(self) -> int:
        """How many units its points are dealt out to."""
        where = self.block.location
        dealt = where.bank.names if where is not None and where.bank is not None else ()
        return prod(self.loops[self.own[name]] for name in dealt if name in self.own)

    @cached_property
    def ways(self) -> tuple[tuple[Nest, ...], ...]:
        """Every way from here down to a block that loads or stores."""
        here = ((self,),) if self.accesses else ()
        return (*here, *((self, *way) for part in self.parts for way in part.ways))


@dataclass(frozen=True, slots=True)
class _View:
    buffer: Buffer
    place: Affine
    strides: tuple[int, ...]
    adds: bool


def nest_of(root: Block, hw: HwConfig) -> Nest:
    """The nest of a program's root."""
    near = {memory.name for memory in hw.memories if memory.kind == "registers"}
    vector = max((unit.vector_bytes for unit in hw.compute_units), default=1)
    return _Builder(near, vector, instructions(hw)).nest(root, {}, {})


class _Builder:
    def __init__(self, near: set[str], vector_bytes: int, known: tuple[Summing, ...]) -> None:
        self._near, self._vector_bytes, self._known = near, vector_bytes, known
        self._indexes = self._buffers = 0

    def nest(self, block: Block, outer: Mapping[str, Affine], views: Mapping[str, _View]) -> Nest:
        seen = {ref.name: views[ref.source].strides for ref in block.refinements if ref.source in views}
        if not block.children:
            block = merged(block, seen)
        own: dict[str, str] = {}
        values: dict[str, Affine] = {}
        loops: dict[str, int] = {}
        for index in block.indexes:
            if index.passed is not None:
                values[index.name] = index.passed.substitute(outer)
                continue
            self._indexes += 1
            name = f"{index.name}.{self._indexes}"
            own[index.name], loops[name] = name, index.range
            values[index.name] = Affine.index(name)
        seen |= {ref.name: ref.strides or () for ref in block.refinements if ref.direction is Direction.NEW}
        inner = {ref.name: self._view(ref, views, values, block, seen) for ref in block.refinements}
        parts = tuple(self.nest(child, values, inner) for child in block.children)
        limits = tuple(c.expr.substitute(values) for c in block.constraints)
        nest = Nest(block, loops, own, limits, parts, tuple(_accesses(block, inner)))
        return _by_words(nest, self._known, self._vector_bytes) or nest

    def _view(
        self, ref: Refinement, views: Mapping[str, _View], values: Mapping[str, Affine], block: Block,
        seen: Mapping[str, tuple[int, ...]],
    ) -> _View:  # fmt: skip
        source = views.get(ref.source) if ref.direction is not Direction.NEW else None
        if source is None:
            self._buffers += 1
            near = ref.location is not None and ref.location.unit in self._near
            strides = ref.strides or ()
            if near and not joins_rows(block, ref.name, seen):
                strides = in_whole_vectors(ref.shape, strides, max(1, self._vector_bytes // ref.dtype.bytes))
            return _View(Buffer(self._buffers, ref.dtype, near), Affine(), strides, False)
        place = source.place
        for expr, stride in zip(ref.access, source.strides, strict=True):
            place = place + expr.substitute(values) * stride
        adds = ref.combines
        return _View(source.buffer, place, source.strides, adds)


def _accesses(block: Block, views: Mapping[str, _View]) -> Iterator[Access]:
    for statement in block.statements:
        if isinstance(statement, Load | Store):
            view = views[statement.buffer]
            writes = isinstance(statement, Store)
            yield Access(view.buffer, view.place, writes, writes and view.adds)


def _by_words(nest: Nest, known: tuple[Summing, ...], vector_bytes: int) -> Nest | None:
    """The leaf with words for elements; None if no instruction sums its groups, and it does not move them."""
    named = nest.block.tag_values("group")
    if len(named) != 1 or named[0] not in nest.own:
        return None
    group, moves = nest.own[named[0]], moves_only(nest.block)
    size = nest.loops[group]
    types = sorted(access.buffer.dtype.value for access in nest.accesses)
    fits = (m for m in known if m.size == size and sorted(m.stencil.types.values()) == types)
    width = max(1, vector_bytes // max(access.buffer.dtype.bytes for access in nest.accesses))
    made = min(fits, key=lambda summing: summing.vector_cycles(width), default=None)
    found = [_in_words(access, group, size, moves) for access in nest.accesses]
    accesses = tuple(access for access in found if access is not None)
    if not (made or moves) or len(accesses) < len(found) or any(e.coefficient(group) for e in nest.limits):
        return None
    loops = {name: count for name, count in nest.loops.items() if name != group}
    own = {name: index for name, index in nest.own.items() if index != group}
    block = without_group(nest.block, named[0])
    if moves:
        block = moving_words(block, size)
    return replace(nest, block=block, loops=loops, own=own, accesses=accesses, summing=made)


def _in_words(access: Access, group: str, size: int, moves: bool) -> Access | None:
    """A load of whole words, or a store of such or one that does not depend on the group."""
    place = access.place
    if access.writes and not moves:
        return None if place.coefficient(group) else access
    found = place_in_words(place, group, size, access.buffer.dtype)
    if found is None:
        return None
    word, words = found
    return replace(access, buffer=replace(access.buffer, dtype=word), place=words)
