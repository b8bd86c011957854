"""The part of stencil-pack that builds: kernels over groups, and copies whose groups are neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from stripe.affine import Affine
from stripe.ir import (
    Aggregation,
    Block,
    Constant,
    Constraint,
    Direction,
    Index,
    Load,
    Refinement,
    Statement,
    Store,
    Tag,
)
from stripe.names import Names


@dataclass(frozen=True, slots=True)
class Layout:
    """An index of a kernel, of `range` values, as groups of `size`; `inner` runs through a group. There are
    a multiple of `together` groups."""

    index: str
    inner: str
    range: int
    size: int
    together: int = 1

    @property
    def groups(self) -> int:
        return -(-self.range // (self.size * self.together)) * self.together

    @property
    def is_full(self) -> bool:
        """Whether there are no more places in the groups than values."""
        return self.range == self.groups * self.size


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of what a kernel reads through `view`, grouped along `index`. `lane`: the index along which
    groups lie side by side; empty: those of `index` do."""

    view: Refinement
    index: str
    lane: str


def grouped_place(expr: Affine, layout: Layout) -> Affine:
    """An expression over the index as one over groups and the places in them."""
    step = Affine.index(layout.index, layout.size) + Affine.index(layout.inner)
    return expr.substitute({layout.index: step})


def packed(
    root: Block, at: int, layout: Layout, copies: Sequence[Copy], line: int
) -> tuple[Block, frozenset[str]]:
    """The root with the kernel that is its statement number `at` over groups, behind the copies that it
    reads; and their names. Rows of copies longer than a cache line, of `line` bytes, each start at one."""
    kernel = root.statements[at]
    assert isinstance(kernel, Block)
    names = Names(r.name for r in root.refinements)
    ahead: list[Statement] = []
    buffers: list[Refinement] = []
    moved: dict[str, Refinement] = {}
    for copy in copies:
        source = root.refinement(copy.view.source)
        dims = _Dims.of(copy, layout, source)
        buffer = dims.buffer(names.fresh(f"{source.name}_packed"), line)
        buffers.append(buffer)
        ahead.append(dims.fill(buffer))
        ahead += dims.zeros(buffer)
        access = dims.place(copy.view.access)
        moved[copy.view.name] = replace(
            copy.view, source=buffer.name, access=access, shape=(1,) * len(access)
        )
    indexes: list[Index] = []
    for index in kernel.indexes:
        if index.name == layout.index:
            indexes += [Index(index.name, layout.groups), Index(layout.inner, layout.size)]
        else:
            indexes.append(index)
    refinements = tuple(
        moved.get(r.name) or replace(r, access=tuple(grouped_place(expr, layout) for expr in r.access))
        for r in kernel.refinements
    )
    tags = (*kernel.tags, Tag("group", layout.inner))
    kernel = replace(kernel, indexes=tuple(indexes), refinements=refinements, tags=tags)
    statements = (*root.statements[:at], *ahead, kernel, *root.statements[at + 1 :])
    made = replace(root, refinements=(*root.refinements, *buffers), statements=statements)
    return made, frozenset(b.name for b in buffers)


@dataclass(frozen=True, slots=True)
class _Dims:
    """The dimensions of a copy: `summed` is that of the groups. A woven copy has one more, innermost, for
    the places in a group, and in front of it in memory that of the lanes, `across`; in another one the
    summed dimension is innermost, and filled up to whole groups."""

    layout: Layout
    source: Refinement
    summed: int
    across: int | None

    @staticmethod
    def of(copy: Copy, layout: Layout, source: Refinement) -> _Dims:
        def held(index: str) -> int:
            return next(d for d, expr in enumerate(copy.view.access) if expr.coefficient(index))

        return _Dims(layout, source, held(layout.index), held(copy.lane) if copy.lane else None)

    def buffer(self, name: str, line: int) -> Refinement:
        layout, shape = self.layout, list(self.source.shape)
        last = [self.summed]
        if self.across is None:
            shape[self.summed] = layout.groups * layout.size
        else:
            shape[self.summed] = layout.groups
            last = [self.across, len(shape)]
            shape.append(layout.size)
        outer = sorted(
            (d for d in range(len(shape)) if d not in last),
            key=lambda d: (-abs((self.source.strides or ())[d]), d),
        )
        row, each = prod(max(shape[d], 1) for d in last), max(1, line // self.source.dtype.bytes)
        step = -(-row // each) * each if row > each else row
        strides = [1] * len(shape)
        for dim in reversed(outer):
            strides[dim] = step
            step *= max(shape[dim], 1)
        strides[last[0]] = prod(max(shape[d], 1) for d in last[1:])
        return Refinement(Direction.NEW, name, tuple(shape), self.source.dtype, strides=tuple(strides))

    def place(self, access: Sequence[Affine]) -> tuple[Affine, ...]:
        """Where the copy has what a kernel over groups reads at `access` of the source."""
        if self.across is None:
            return tuple(grouped_place(expr, self.layout) for expr in access)
        return (*access, Affine.index(self.layout.inner))

    def fill(self, buffer: Refinement) -> Block:
        """The copy of the elements that there are."""
        layout, names = self.layout, Names()
        own = [names.fresh(f"d{dim}") for dim in range(len(self.source.shape))]
        inner = names.fresh(layout.inner)
        sizes = dict(zip(own, self.source.shape, strict=True))
        read = [Affine.index(name) for name in own]
        written = list(read)
        constraints: tuple[Constraint, ...] = ()
        group = own[self.summed]
        if self.across is None:
            sizes[group] = layout.range
        else:
            sizes[group] = -(-layout.range // layout.size)
            sizes[inner] = layout.size
            read[self.summed] = Affine.index(group, layout.size) + Affine.index(inner)
            written.append(Affine.index(inner))
            if layout.range % layout.size:
                constraints = (Constraint(Affine(layout.range - 1) - read[self.summed]),)
        return Block(
            f"{self.source.name}_pack",
            self._ordered(sizes, buffer, [*own, inner] if self.across is not None else own),
            constraints,
            (
                Refinement(
                    Direction.IN, self.source.name, (1,) * len(read), self.source.dtype,
                    self.source.name, tuple(read),
                ),
                self._written(buffer, tuple(written)),
            ),
            (Load("v", self.source.name, self.source.dtype), Store(buffer.name, "v")),
        )  # fmt: skip

    def zeros(self, buffer: Refinement) -> Iterator[Block]:
        """What fills up the last group, and the groups behind it."""
        layout = self.layout
        if layout.is_full:
            return
        if self.across is None:
            yield self._fill_of(buffer, {self.summed: (layout.range, layout.groups * layout.size)})
            return
        whole, rest = divmod(layout.range, layout.size)
        if rest:
            yield self._fill_of(
                buffer, {self.summed: (whole, whole + 1), len(buffer.shape) - 1: (rest, layout.size)}
            )
            whole += 1
        if whole < layout.groups:
            yield self._fill_of(buffer, {self.summed: (whole, layout.groups)})

    def _fill_of(self, buffer: Refinement, limits: Mapping[int, tuple[int, int]]) -> Block:
        """Zeros from the first to before the second place along some dimensions."""
        own = [f"d{dim}" for dim in range(len(buffer.shape))]
        sizes, written = dict(zip(own, buffer.shape, strict=True)), [Affine.index(name) for name in own]
        for dim, (first, end) in limits.items():
            if end - first == 1:
                del sizes[own[dim]]
                written[dim] = Affine(first)
            else:
                sizes[own[dim]] = end - first
                written[dim] = written[dim] + first
        return Block(
            f"{buffer.name}_fill",
            self._ordered(sizes, buffer, own),
            (),
            (self._written(buffer, tuple(written)),),
            (Constant("z", 0, buffer.dtype) if buffer.dtype.is_integer else Constant("z", 0.0, buffer.dtype),
             Store(buffer.name, "z")),
        )  # fmt: skip

    @staticmethod
    def _written(buffer: Refinement, access: tuple[Affine, ...]) -> Refinement:
        ones = (1,) * len(access)
        return Refinement(
            Direction.OUT, buffer.name, ones, buffer.dtype, buffer.name, access, Aggregation.ASSIGN
        )

    @staticmethod
    def _ordered(sizes: dict[str, int], buffer: Refinement, names: Sequence[str]) -> tuple[Index, ...]:
        """Indexes in the order of the buffer's memory; `names` are those of its dimensions."""
        strides = dict(zip(names, buffer.strides or (), strict=True))
        return tuple(Index(n, sizes[n]) for n in sorted(sizes, key=lambda n: -strides[n]))
