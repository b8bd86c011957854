"""The way from a root to the innermost block of a kernel, and what each buffer on it is a copy of.

A kernel's nest branches: a tile holds copies, the arithmetic, an epilogue. The way leads to the leaf that
runs most; what stands beside it is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stripe.affine import Affine
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
    here = block.points
    return here * max((points_below(child) for child in block.children), default=1)


def hottest(block: Block) -> Block | None:
    """The child that runs most; of equals one that computes, then the first."""
    children = block.children
    return max(children, key=lambda c: (points_below(c), not _only_copies(c)), default=None)


def _only_copies(block: Block) -> bool:
    return all(map(_only_copies, block.children)) if block.children else moves(block) is not None


def named(name: str, depth: int) -> str:
    """The index of a level in expressions over all levels."""
    return f"{depth}.{name}"


_Held = tuple[Track, tuple[Affine, ...] | None]  # a buffer, and where it begins in its tensor


def way(root: Block, kernel: Block, memories: Mapping[str, str], home: str) -> Iterator[Step]:
    """The steps from a kernel to its innermost block. `memories` has the memory of the root's buffers by
    name."""
    around: dict[str, _Held] = {
        ref.name: (Track(ref.name, memories.get(ref.name) or home, ref.shape), (Affine(),) * len(ref.shape))
        for ref in root.refinements
    }
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
        seen = _seen(block, around, values, home)
        yield Step(block, depth, unit, tuple(seen.values()), dict(ranges))
        # Below, the box of a view is what this level sees of it.
        around = {
            name: (Track(s.track.row, s.track.memory, s.ref.shape), s.origin) for name, s in seen.items()
        }
        block, depth = hottest(block), depth + 1


def _seen(
    block: Block, around: Mapping[str, _Held], values: Mapping[str, Affine], home: str
) -> dict[str, Seen]:
    """What a block sees by its names: views first, then its own buffers, which may be copies of these."""
    found: dict[str, Seen] = {}
    for ref in block.refinements:
        if ref.direction is not Direction.NEW:
            track, origin = around[ref.source]
            moved = [expr.substitute(values) for expr in ref.access]
            if origin is not None:
                origin = tuple(o + m for o, m in zip(origin, moved, strict=True))
            found[ref.name] = Seen(ref, track, track.shape, origin)
    views = {name: (seen.track, seen.origin) for name, seen in found.items()}
    for ref in block.refinements:
        if ref.direction is Direction.NEW:
            where = ref.location.unit if ref.location is not None else home
            linked = _copy_of(ref.name, block, views)
            row, origin = (ref.name, None) if linked is None else (linked[0].row, linked[1])
            found[ref.name] = Seen(ref, Track(row, where, ref.shape), ref.shape, origin)
    return found


def _copy_of(name: str, block: Block, known: Mapping[str, _Held]) -> _Held | None:
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


def moves(block: Block) -> tuple[str, str] | None:
    """The buffers from which and to which a leaf moves elements as they are, if that is all it does.
    Accumulators that are added to what is there are moved, too; sums are not: they put several elements
    in one place."""
    match block.statements:
        case (Load(result=loaded, buffer=source), Store(buffer=target, value=stored)) if loaded == stored:
            ends = (block.refinement(name).access for name in (source, target))
            read, written = ({index for expr in access for index in expr.names} for access in ends)
            return (source, target) if read == written else None
    return None


def _copies(block: Block, names: Mapping[str, str]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """From where to where the copies in a nest go, as names of the block around it, and how much farther
    from the start of the first an element lies. A copy in another order is another tensor."""
    here = {r.name: names.get(r.source, "") for r in block.refinements if r.direction is not Direction.NEW}
    moved = moves(block)
    if moved is None:
        for child in block.children:
            yield from _copies(child, here)
        return
    read, written = (block.refinement(name).access for name in moved)
    if len(read) == len(written):
        steps = [r - w for r, w in zip(read, written, strict=True)]
        if all(step.is_constant for step in steps):
            yield here.get(moved[0], ""), here.get(moved[1], ""), tuple(step.const for step in steps)


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
