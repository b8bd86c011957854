"""The data of a report that is drawn: nests, tiles, candidates, memory maps, the roofline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from stripec.reporting.model import Section
from stripec.reporting.runs import Alive

# ----------------------------------------------------------------------------------- nests


@dataclass(frozen=True)
class Region:
    """What one point of a level touches of a tensor.

    `row` is the tensor's, `buffer` the name here, `box` the extents of the view around it, `shape` its own;
    both in elements. `starts` are the origins, in the two drawn dimensions, of what all points of the level
    touch; `dense` says that they are too many to be drawn. `made`: the buffer begins here."""

    row: str
    buffer: str
    memory: str
    dtype: str
    shape: tuple[int, ...]
    box: tuple[int, ...]
    starts: tuple[tuple[int, int], ...]
    dense: bool
    bytes: int
    made: bool


@dataclass(frozen=True)
class Level:
    """A block on the way from the root to the innermost: a column of the drawing. Where native code runs it
    in vectors (`lanes`), the regions are those of one vector."""

    name: str
    indexes: tuple[tuple[str, int], ...]
    points: int
    unit: str
    inflight: int
    tags: tuple[str, ...]
    regions: tuple[Region, ...]
    beside: tuple[str, ...]
    fits: str
    lanes: str = ""


@dataclass(frozen=True)
class NestRow:
    """A tensor in the drawing, and which two of its dimensions are shown, down and across."""

    name: str
    dims: tuple[int, int]
    note: str = ""


@dataclass(frozen=True)
class Nest:
    """The loop nest of a kernel: its levels, outermost first."""

    number: int
    kernel: str
    rows: tuple[NestRow, ...]
    levels: tuple[Level, ...]
    alike: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nests(Section):
    """Figure 3 of the Stripe paper, for each kernel."""

    id: ClassVar[str] = "nests"
    title: ClassVar[str] = "Loop nests and memories"

    nests: tuple[Nest, ...]
    left_out: tuple[str, ...]


# ---------------------------------------------------------------------------------- tilings


@dataclass(frozen=True)
class TensorTiles:
    """The tiles of one level over a tensor, in two of its dimensions (down, across).

    `extent` is that of the tensor, `size` that of a tile, `step` from one to the next (0: only one), `starts`
    their origins. `others` says what a tile takes of the other dimensions. Where there are too many, `starts`
    has some of them, and `covered` where all of them begin and end.
    """

    tensor: str
    memory: str
    dims: tuple[int, int]
    extent: tuple[int, int]
    size: tuple[int, int]
    step: tuple[int, int]
    starts: tuple[tuple[int, int], ...]
    covered: tuple[tuple[int, int], tuple[int, int]] | None
    others: str
    writes: bool


@dataclass(frozen=True)
class Tiling:
    """A level of tiles of a kernel, and how it lies over each tensor."""

    number: int
    kernel: str
    level: str
    indexes: tuple[tuple[str, int], ...]
    tensors: tuple[TensorTiles, ...]
    alike: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tilings(Section):
    """Figures 2 and 4 of the Stripe paper, for each kernel."""

    id: ClassVar[str] = "tilings"
    title: ClassVar[str] = "Tiles over the tensors"

    tilings: tuple[Tiling, ...]
    left_out: tuple[str, ...]


# ------------------------------------------------------------------------------- candidates


@dataclass(frozen=True)
class Candidate:
    """One of those that a search weighed: a cell for each column, and what it costs or why it is out."""

    cells: tuple[str, ...]
    cost: float | None
    needed: int | None
    limit: str
    chosen: bool


@dataclass(frozen=True)
class Search:
    """The candidates for one block in one pass. `capacity` is of the resource that `needed` counts."""

    pass_number: int
    pass_spec: str
    block: str
    columns: tuple[str, ...]
    rows: tuple[Candidate, ...]
    unit: str
    resource: str
    capacity: int | None
    counts: str
    more: int
    alike: tuple[str, ...] = ()


@dataclass(frozen=True)
class Searches(Section):
    """What was weighed, and what it would have cost."""

    id: ClassVar[str] = "candidates"
    title: ClassVar[str] = "Candidates"

    searches: tuple[Search, ...]
    left_out: tuple[str, ...]


# ----------------------------------------------------------------------------- memory maps


@dataclass(frozen=True)
class Placed:
    """A buffer at an address, alive from `start` to `end` (ticks, both included)."""

    path: str
    what: str
    lane: int
    address: int
    bytes: int
    start: int
    end: int


@dataclass(frozen=True)
class MemoryMap:
    """One memory: `lanes` are its banks, or the whole of it. `peak` is the most that may be alive at once,
    `alive` what is in a simulated run, where there is one."""

    memory: str
    program: Literal["root", "load"]
    capacity: int | None
    lanes: tuple[str, ...]
    ticks: tuple[tuple[int, str], ...]
    length: int
    placed: tuple[Placed, ...]
    height: int
    peak: int
    note: str
    more: int
    alive: Alive | None = None


@dataclass(frozen=True)
class MemoryMaps(Section):
    """Addresses over time."""

    id: ClassVar[str] = "memory"
    title: ClassVar[str] = "Memory maps"

    maps: tuple[MemoryMap, ...]


# -------------------------------------------------------------------------------- roofline


@dataclass(frozen=True)
class Roof:
    """A limit: operations per cycle, or bytes per cycle of a memory or a unit that copies."""

    name: str
    kind: Literal["compute", "bandwidth"]
    rate: float


@dataclass(frozen=True)
class RoofPoint:
    """A kernel: its operations, the bytes that it must move at least from and to the farthest memory, those
    that it does move there (None where hardware fills caches), the cycles that the cost models expect
    (None: they do not say), those of the simulated run (None: there was none), and how long each part of the
    target is busy, of what is expected."""

    number: int
    kernel: str
    operations: int
    least_bytes: int
    moved_bytes: int | None
    cycles: float | None
    ran: int | None = None
    parts: tuple[tuple[str, float], ...] = ()
    alike: tuple[str, ...] = ()

    @property
    def known(self) -> float | None:
        """The cycles that the kernel takes: of the run, or else those expected."""
        return self.cycles if self.ran is None else self.ran

    @property
    def bound(self) -> str:
        """What is busy longest, so far as the cost model says."""
        return max(self.parts, key=lambda part: part[1])[0] if self.parts else ""

    @property
    def bytes(self) -> int:
        return self.least_bytes if self.moved_bytes is None else self.moved_bytes

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None where no byte is moved."""
        return self.operations / self.bytes if self.bytes else None


@dataclass(frozen=True)
class Roofline(Section):
    """Kernels against the peaks and bandwidths of the target, in operations and bytes per cycle."""

    id: ClassVar[str] = "roofline"
    title: ClassVar[str] = "Roofline"

    far: str
    roofs: tuple[Roof, ...]
    points: tuple[RoofPoint, ...]
    traffic: tuple[tuple[str, str, str, str, int], ...]  # kernel, buffer, from, to, bytes
    left_out: tuple[str, ...]
