"""The data of a report: immutable values, without a word of HTML.

    Report   -- what was compiled, and sections in order
    Section  -- one part of it; `id` is its anchor and the name of its template

Everything that can grow with the program has a bound, and a field that says what was left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar


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
        """The program, the target and, where one was given, the mapping."""
        mapping = dict(self.options).get("mapping")
        return f"{self.program} for {self.target}" + (f" with {mapping}" if mapping else "")


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
