"""The data of a report: immutable values, without a word of HTML.

    Report   -- what was compiled, and sections in order
    Section  -- one part of it; `id` is its anchor and the name of its template

Everything that can grow with the program has a bound, and a field that says what was left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar


@dataclass(frozen=True)
class Section:
    """A part of a report. Subclasses are frozen dataclasses that hold its data."""

    id: ClassVar[str]
    title: ClassVar[str]


S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Report:
    """What was compiled for what, and the sections; `options` are those that were not left at their
    default."""

    program: str
    target: str
    options: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]

    def find(self, kind: type[S]) -> S | None:
        """The section of a kind, if the report has one."""
        return next((s for s in self.sections if isinstance(s, kind)), None)

    @property
    def title(self) -> str:
        return f"{self.program} for {self.target}"


# ------------------------------------------------------------------------------- summary


@dataclass(frozen=True)
class Tensor:
    """An input or output of the program; `role` is `in`, `out`, `inout`, with `const` in front where it is
    one."""

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class MemoryFacts:
    """A memory of the target. `bytes` is the capacity of one instance, None if it has no limit."""

    name: str
    kind: str
    bytes: int | None
    count: int
    banks: int
    bytes_per_cycle: float | None
    backing: str


@dataclass(frozen=True)
class UnitFacts:
    """A unit of the target, and what it can do in words."""

    name: str
    kind: str
    count: int
    text: str


@dataclass(frozen=True)
class StepLine:
    """A pass in the table of the summary. Seconds are None in a report without times."""

    number: int
    spec: str
    changed: bool
    said: str
    seconds: float | None
    verify_seconds: float | None


@dataclass(frozen=True)
class KernelLine:
    """A kernel: a statement of the program as it was read. `became` are the paths of what it is after the
    last pass, `finals` the numbers of these in the other sections; `line` is where it was written, 0 if
    unknown."""

    number: int
    path: str
    line: int
    became: tuple[str, ...]
    finals: tuple[int, ...]
    units: tuple[str, ...]
    held: str


@dataclass(frozen=True)
class Summary(Section):
    """The program, the target, and a line for each pass and each kernel."""

    id: ClassVar[str] = "summary"
    title: ClassVar[str] = "Summary"

    file: str
    description: str
    executor: str
    tensors: tuple[Tensor, ...]
    memories: tuple[MemoryFacts, ...]
    units: tuple[UnitFacts, ...]
    steps: tuple[StepLine, ...]
    kernels: tuple[KernelLine, ...]
    validation: str
    left_out: tuple[str, ...]


# -------------------------------------------------------------------------------- source


@dataclass(frozen=True)
class SourcePiece:
    """Text of a line; `kernels` are the numbers of the kernels that it says."""

    text: str
    kernels: tuple[int, ...] = ()


@dataclass(frozen=True)
class SourceText(Section):
    """The program as it was written. `starts` has for each line the kernels whose text begins there."""

    id: ClassVar[str] = "source"
    title: ClassVar[str] = "Source"

    file: str
    lines: tuple[tuple[SourcePiece, ...], ...]
    starts: tuple[tuple[int, ...], ...]
    names: tuple[tuple[int, str], ...]
    left_out: int


# -------------------------------------------------------------------------------- passes


@dataclass(frozen=True)
class Piece:
    """A part of a line of text; `marked`: it differs from the line beside it."""

    text: str
    marked: bool = False


@dataclass(frozen=True)
class Row:
    """A line before and the one after, side by side; one of them may be missing. Numbers count from 1."""

    left: tuple[Piece, ...] | None
    right: tuple[Piece, ...] | None
    left_number: int = 0
    right_number: int = 0

    @property
    def changed(self) -> bool:
        return self.left is None or self.right is None or any(p.marked for p in (*self.left, *self.right))


@dataclass(frozen=True)
class Hunk:
    """Neighbouring rows; `folded` ones are the same on both sides and shown on demand."""

    folded: bool
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Change:
    """What a pass made of some kernels: their text before and after. `alike` are other kernels to which the
    same was done, but for names; `omitted` rows were left out."""

    name: str
    added: int
    removed: int
    hunks: tuple[Hunk, ...]
    alike: tuple[str, ...] = ()
    omitted: int = 0


@dataclass(frozen=True)
class RemarkLine:
    """What a pass said of a block; `figures` are its data in words."""

    block: str
    acted: bool
    message: str
    figures: str
    times: int = 1


@dataclass(frozen=True)
class PassDetail:
    """One pass: what it is, what it said, what it changed. `unchanged` names kernels that it left as they
    were."""

    number: int
    name: str
    spec: str
    about: str
    changed: bool
    said: str
    seconds: float | None
    verify_seconds: float | None
    verdict: str
    remarks: tuple[RemarkLine, ...]
    changes: tuple[Change, ...]
    unchanged: tuple[str, ...]
    more_remarks: int


@dataclass(frozen=True)
class Passes(Section):
    """All passes in order."""

    id: ClassVar[str] = "passes"
    title: ClassVar[str] = "Passes"

    passes: tuple[PassDetail, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """A text with a name; `omitted` lines at its end were left out. `hot` are first and last number, from
    1, of lines that run most."""

    name: str
    lines: tuple[str, ...]
    omitted: int
    hot: tuple[tuple[int, int], ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Programs(Section):
    """The program as it came in and after the last pass, whole."""

    id: ClassVar[str] = "programs"
    title: ClassVar[str] = "Stripe"

    texts: tuple[Text, ...]


@dataclass(frozen=True)
class Code(Section):
    """Native code: LLVM IR and assembly. `missing` says why there is none."""

    id: ClassVar[str] = "code"
    title: ClassVar[str] = "LLVM IR and assembly"

    triple: str
    texts: tuple[Text, ...]
    missing: str = ""


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
    """A block on the way from the root to the innermost: a column of the drawing."""

    name: str
    indexes: tuple[tuple[str, int], ...]
    points: int
    unit: str
    inflight: int
    tags: tuple[str, ...]
    regions: tuple[Region, ...]
    beside: tuple[str, ...]
    fits: str


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
    their origins. `others` says what a tile takes of the other dimensions. `more` tiles are not listed.
    """

    tensor: str
    memory: str
    dims: tuple[int, int]
    extent: tuple[int, int]
    size: tuple[int, int]
    step: tuple[int, int]
    starts: tuple[tuple[int, int], ...]
    more: int
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
    """One memory: `lanes` are its banks, or the whole of it. `peak` is the most that is alive at once."""

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
    that its copies move there (None where hardware moves them), and the cycles that the cost model expects
    (None: it does not say)."""

    number: int
    kernel: str
    operations: int
    least_bytes: int
    moved_bytes: int | None
    cycles: float | None
    alike: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return self.least_bytes if self.moved_bytes is None else self.moved_bytes

    @property
    def intensity(self) -> float:
        return self.operations / max(self.bytes, 1)


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
