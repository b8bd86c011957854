"""The way from a root to the innermost block of a kernel, and what each buffer on it is a copy of.

A kernel's nest branches: a tile holds copies, the arithmetic, an epilogue. The way leads to the leaf that
runs most; what stands beside it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from stripe.affine import Affine
from stripe.analysis.units import is_copy
from stripe.ir import Block, Direction, Load, Refinement, Special, Store


@dataclass(frozen=True, slots=True)
class Track:
    """What a buffer in scope is: the tensor whose elements it holds, and the memory that it lies in."""

    row: str
    memory: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """A buffer as a block sees it. `ref` is the refinement, `track` the tensor and memory; `origin` is the
    view's in the tensor, over the block's indexes (`depth.name` for those of outer levels); None if it is
    not a part of it."""

    ref: Refinement
    track: Track
    box: tuple[int, ...]
    origin: tuple[Affine, ...] | None


@dataclass(frozen=True, slots=True)
class Step:
    """A block on the way: what it sees, the unit that executes it, and the ranges of all indexes so far."""

    block: Block
    depth: int
    unit: str
    seen: tuple[Seen, ...]
    ranges: Mapping[str, int]


def points_below(block: Block) -> int:
    """The points of the leaf that runs most, per point of the block around."""
    here = prod(block.ranges.values())
    return here * max((points_below(child) for child in block.children), default=1)


def hottest(block: Block) -> Block | None:
    """The child that runs most; of equals one that computes, then the first."""
    children = block.children
    return max(children, key=lambda c: (points_below(c), not _only_copies(c)), default=None)


def _only_copies(block: Block) -> bool:
    return all(_only_copies(c) for c in block.children) if block.children else is_copy(block)


def named(name: str, depth: int) -> str:
    """The index of a level in expressions over all levels."""
    return f"{depth}.{name}"


def way(root: Block, kernel: Block, memories: Mapping[str, str], home: str) -> Iterator[Step]:
    """The steps from a kernel to its innermost block. `memories` has the memory of the root's buffers by
    name."""
    tracks: dict[str, tuple[Track, tuple[Affine, ...] | None]] = {}  # and where it lies in the tensor
    for ref in root.refinements:
        where = memories.get(ref.name) or home
        tracks[ref.name] = Track(ref.name, where, ref.shape), (Affine(),) * len(ref.shape)
    block: Block | None = kernel
    depth, unit = 0, ""
    values: dict[str, Affine] = {}
    ranges: dict[str, int] = {}
    while block is not None:
        own = {name: Affine.index(named(name, depth)) for name in block.ranges}
        for index in block.indexes:
            if index.passed is not None:
                own[index.name] = index.passed.substitute(values)
        values = own
        ranges |= {named(name, depth): size for name, size in block.ranges.items()}
        unit = block.location.unit if block.location is not None else unit
        inner: dict[str, tuple[Track, tuple[Affine, ...] | None]] = {}
        seen: list[Seen] = []
        for ref in block.refinements:
            if ref.direction is Direction.NEW:
                continue
            track, origin = tracks[ref.source]
            moved = tuple(e.substitute(values) for e in ref.access)
            whole = origin and tuple(o + m for o, m in zip(origin, moved, strict=True))
            inner[ref.name] = track, whole
            seen.append(Seen(ref, track, track.shape, whole))
        fresh = {r.name: r for r in block.refinements if r.direction is Direction.NEW}
        for name, ref in fresh.items():
            where = ref.location.unit if ref.location is not None else home
            linked = _copy_of(name, block, inner)
            if linked is None:
                track, whole = Track(name, where, ref.shape), None
            else:
                row, whole = linked
                track = Track(row.row, where, ref.shape)
            inner[name] = track, whole
            seen.append(Seen(ref, track, ref.shape, whole))
        yield Step(block, depth, unit, tuple(seen), dict(ranges))
        # Below, a view's box is what this level sees of it.
        tracks = {}
        for item in seen:
            held = inner[item.ref.name]
            tracks[item.ref.name] = Track(held[0].row, held[0].memory, item.ref.shape), held[1]
        block, depth = hottest(block), depth + 1


_Known = Mapping[str, tuple[Track, tuple[Affine, ...] | None]]


def _copy_of(name: str, block: Block, known: _Known) -> tuple[Track, tuple[Affine, ...] | None] | None:
    """The tensor that a new buffer is filled from, or written back to, element by element, and where in it
    the buffer begins."""
    rank = len(block.refinement(name).shape)
    for child in block.children:
        for source, target, offset in _copies(child, {r.name: r.name for r in block.refinements}):
            other, sign = (source, 1) if target == name else (target, -1) if source == name else ("", 0)
            if other in known and rank == len(known[other][0].shape):
                track, origin = known[other]
                if origin is not None:
                    origin = tuple(o + sign * step for o, step in zip(origin, offset, strict=True))
                return track, origin
    return None


def _copies(block: Block, names: Mapping[str, str]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """From where to where the copies in a nest go, as names of the block around it, and how much farther
    from the start of the first an element lies. Accumulators that are added to what is there are copied,
    too; a copy in another order is another tensor."""
    here = {r.name: names.get(r.source, "") for r in block.refinements if r.direction is not Direction.NEW}
    match block.statements:
        case (Load(result=loaded, buffer=source), Store(buffer=target, value=stored)) if loaded == stored:
            read, written = block.refinement(source).access, block.refinement(target).access
            if len(read) == len(written):
                steps = [r - w for r, w in zip(read, written, strict=True)]
                if all(step.is_constant for step in steps):
                    offset = tuple(step.const for step in steps)
                    yield here.get(source, ""), here.get(target, ""), offset
        case _:
            for child in block.children:
                yield from _copies(child, here)


def beside(block: Block, on_the_way: Block | None) -> tuple[str, ...]:
    """The other statements of a block, in words."""
    said = []
    for statement in block.statements:
        if isinstance(statement, Block) and statement is not on_the_way:
            said.append(_named_child(statement))
        elif isinstance(statement, Special):
            said.append(f"special {statement.name}")
    return tuple(said)


def _named_child(block: Block) -> str:
    unit = block.location
    ranges = " ".join(f"{name}:{size}" for name, size in block.ranges.items())
    text = f"{block.name} [{ranges}]"
    return f"{text} @{unit.unit}" if unit is not None else text
