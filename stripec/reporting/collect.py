"""From a compilation to a report: everything that the driver knows, as values.

    collect(made, frontend) -> Report

Kernels that are alike but for names are shown once. What is not shown is named in the sections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hwconfigs.model import HwConfig, SizeRange, Stencil, Unit
from stripe.alike import kind
from stripe.diag import Remark
from stripe.ir import Block, Direction, Program, Refinement
from stripe.printer import to_text
from stripec.api import Specialisation
from stripec.driver import Frontend
from stripec.explain import Explanation, Story
from stripec.explain import explain as make_explanation
from stripec.reporting.caches import caches_of
from stripec.reporting.codes import code
from stripec.reporting.figures import MemoryMaps, Nest, Nests, Roofline, RoofPoint, Tiling, Tilings
from stripec.reporting.maps import memory_maps
from stripec.reporting.model import (
    KernelLine,
    MemoryFacts,
    Programs,
    Report,
    Section,
    StepLine,
    Summary,
    Tensor,
    Text,
    UnitFacts,
)
from stripec.reporting.nests import nest
from stripec.reporting.rooflines import Moved, expected, measured, moved_far, roofs
from stripec.reporting.runs import SimulatedRun
from stripec.reporting.searches import searches
from stripec.reporting.simulated import (
    alive,
    energy_of,
    manages,
    pass_counts,
    simulated_run,
    simulates,
    timeline_of,
)
from stripec.reporting.sources import line_of, source_text
from stripec.reporting.steps import passes, said
from stripec.reporting.tilings import tilings
from stripec.reporting.words import plural

MAX_DRAWN = 24  # kernels of which nests and tiles are drawn
MAX_LINES = 400  # of a table of kernels or tensors
MAX_TRAFFIC = 200  # lines of copies between memories
MAX_PROGRAM_LINES = 6000  # of a whole program

D = TypeVar("D", Nest, Tiling)


@dataclass(frozen=True, slots=True)
class Final:
    """A kernel after the last pass, by its number in the report."""

    number: int
    root: Block
    block: Block

    @property
    def path(self) -> str:
        return f"{self.root.name}/{self.block.name}"


def collect(
    made: Specialisation,
    frontend: Frontend,
    options: Sequence[tuple[str, str]] = (),
    *,
    times: bool = True,
) -> Report:
    """The report of a compilation. Without `times` it is the same for every run on the same input."""
    compilation, hw = made.compilation, made.hw
    programs = [program for _, program in compilation.stages]
    story = make_explanation(programs, compilation.reports)
    finals = _finals(programs[-1])
    memories = _memories(programs[-1], hw)
    kernels = _kernels(story, programs[0], finals)
    known = {f"{root.name}/{child.name}": child for root in _roots(programs[0]) for child in root.children}
    run = simulated_run(programs[-1], hw, made.name, compilation.untiled) if simulates(hw) else None
    sections: list[Section | None] = [
        _summary(made, frontend, story, kernels, times),
        None
        if frontend.source is None
        else source_text(
            frontend.source, [(k.number, k.path, known[k.path]) for k in kernels if k.path in known]
        ),
        passes(compilation.reports, programs, times=times),
        pass_counts(compilation.reports, programs, hw, run) if _counted(hw, run) else None,
        _programs(programs),
        _nests(finals, hw, memories),
        _tilings(finals, hw, memories),
        searches(compilation.reports),
        _maps(programs[-1], hw, run),
        *(() if run is None else (run, caches_of(run, hw), timeline_of(run, hw), energy_of(run, hw))),
        _roofline(story, kernels, finals, programs, hw, memories, run),
        code(made),
    ]
    kept = tuple(section for section in sections if section is not None)
    return Report(made.name, hw.name, tuple(options), kept)


def _counted(hw: HwConfig, run: SimulatedRun | None) -> bool:
    """Whether programs between passes are counted: on caches, if the last one is."""
    return manages(hw) or (run is not None and run.found is not None)


def _roots(program: Program) -> tuple[Block, ...]:
    return tuple(root for root in (program.load, program.root) if root is not None)


def _finals(program: Program) -> list[Final]:
    blocks = [(root, child) for root in _roots(program) for child in root.children]
    return [Final(number, root, child) for number, (root, child) in enumerate(blocks, start=1)]


def _memories(program: Program, hw: HwConfig) -> dict[str, str]:
    """The memory of each buffer of the roots that names one."""
    return {
        ref.name: ref.location.unit
        for root in _roots(program) for ref in root.refinements
        if ref.location is not None
    }  # fmt: skip


# ------------------------------------------------------------------------------- summary


def _kernels(story: Explanation, first: Program, finals: Sequence[Final]) -> list[KernelLine]:
    """A line for each kernel of the program as it was read, and for those that passes made."""
    written = {f"{root.name}/{child.name}": child for root in _roots(first) for child in root.children}
    by_path = {told.path: told for told in story.kernels}
    numbers = {final.path: final.number for final in finals}
    return [
        KernelLine(
            number, told.path, line_of(written[told.path]) if told.path in written else 0,
            end.blocks, tuple(numbers[path] for path in end.blocks if path in numbers),
            tuple(unit for unit in end.units if unit), _held(end),
        )
        for number, (told, end) in enumerate(
            ((told, _end_of(told, by_path)) for told in story.kernels), start=1
        )
    ]  # fmt: skip


def _end_of(told: Story, by_path: Mapping[str, Story]) -> Story:
    """The story that a kernel goes on in, after all fusions."""
    for _ in by_path:
        into = next((note.into for note in reversed(told.notes) if note.into), "")
        if told.blocks or into not in by_path:
            return told
        told = by_path[into]
    return told


def _held(told: Story) -> str:
    return ", ".join(f"{plural(count, 'buffer')} in {memory}" for memory, (count, _) in told.held.items())


def _summary(
    made: Specialisation, frontend: Frontend, story: Explanation, kernels: Sequence[KernelLine], times: bool
) -> Summary:
    hw, root = made.hw, made.compilation.stages[0][1].root
    tensors = [_tensor(ref) for ref in root.refinements if ref.direction is not Direction.NEW]
    left_out = [
        f"{plural(len(rows) - MAX_LINES, what)} beyond the first {MAX_LINES}"
        for rows, what in ((tensors, "tensor"), (kernels, "kernel"))
        if len(rows) > MAX_LINES
    ]
    name = frontend.source.name if frontend.source is not None else frontend.name
    return Summary(
        name, hw.description, hw.executor, tuple(tensors[:MAX_LINES]),
        tuple(
            MemoryFacts(m.name, m.kind, m.bytes, m.count, m.banks, m.bytes_per_cycle, m.backing or "")
            for m in hw.memories
        ),
        tuple(UnitFacts(u.name, u.kind, u.count, _unit_text(u, hw)) for u in hw.units),
        tuple(
            StepLine(
                report.number, story.spec(report.number), report.changed, said(report),
                report.seconds if times else None, report.verify_seconds if times else None,
            )
            for report in story.steps
        ),
        tuple(kernels[:MAX_LINES]), made.compilation.validation if times else "", tuple(left_out),
    )  # fmt: skip


def _tensor(ref: Refinement) -> Tensor:
    role = ("const " if ref.const else "") + ref.direction.value
    return Tensor(ref.name, role, ref.dtype.value, ref.shape, ref.bytes)


def _unit_text(unit: Unit, hw: HwConfig) -> str:
    said_ = []
    if unit.kind == "compute" and unit.operations:
        said_.append(f"vectors of {unit.vector_bytes} bytes, {unit.fma_per_cycle:g} per cycle")
    said_ += [_stencil_text(stencil) for stencil in hw.stencils if stencil.unit == unit.name]
    if unit.bytes_per_cycle:
        said_.append(f"{unit.bytes_per_cycle:g} bytes per cycle")
    if unit.reaches:
        said_.append(f"reaches {', '.join(unit.reaches)}")
    return "; ".join(said_)


def _stencil_text(stencil: Stencil) -> str:
    """A stencil with the sizes of its indexes, as far as they have an end."""
    sizes = []
    for name, size in stencil.indices.items():
        if isinstance(size, SizeRange):
            sizes.append(f"{name} up to {size.most}" if size.most is not None else name)
        else:
            sizes.append(name if size == "any" else f"{name} {size}")
    return f"{stencil.name} ({', '.join(sizes)})"


# ------------------------------------------------------------------------------ programs


def _programs(programs: Sequence[Program]) -> Programs:
    def text(name: str, program: Program) -> Text:
        lines = to_text(program).splitlines()
        return Text(name, tuple(lines[:MAX_PROGRAM_LINES]), max(0, len(lines) - MAX_PROGRAM_LINES))

    return Programs((text("before the first pass", programs[0]), text("after the last pass", programs[-1])))


# --------------------------------------------------------------------------------- drawings


def _distinct(
    finals: Sequence[Final], memories: Mapping[str, str]
) -> tuple[list[tuple[Final, tuple[str, ...]]], int]:
    """Kernels that are not alike, each with the paths of those that are like it; and how many are left
    out."""
    found: dict[object, list[Final]] = {}
    for final in finals:
        shapes = {r.name: (r.shape, memories.get(r.name)) for r in final.root.refinements}
        around = tuple(shapes.get(r.source) for r in final.block.refinements)
        found.setdefault((id(kind(final.block).block), around), []).append(final)
    groups = [(group[0], tuple(f.path for f in group[1:])) for group in found.values()]
    return groups[:MAX_DRAWN], max(0, len(groups) - MAX_DRAWN)


def _drawn(
    finals: Sequence[Final], memories: Mapping[str, str], draw: Callable[[Final], Iterator[D]]
) -> tuple[tuple[D, ...], tuple[str, ...]]:
    groups, more = _distinct(finals, memories)
    shown = tuple(replace(d, alike=alike) for final, alike in groups for d in draw(final))
    return shown, (f"{plural(more, 'kernel')} beyond the first {MAX_DRAWN} that differ",) if more else ()


def _nests(finals: Sequence[Final], hw: HwConfig, memories: Mapping[str, str]) -> Nests:
    def draw(final: Final) -> Iterator[Nest]:
        yield nest(final.root, final.block, final.number, hw, memories)

    return Nests(*_drawn(finals, memories, draw))


def _tilings(finals: Sequence[Final], hw: HwConfig, memories: Mapping[str, str]) -> Tilings:
    def draw(final: Final) -> Iterator[Tiling]:
        return tilings(final.root, final.block, final.number, hw, memories)

    return Tilings(*_drawn(finals, memories, draw))


def _maps(program: Program, hw: HwConfig, run: SimulatedRun | None) -> MemoryMaps:
    """The memory maps, each with what is alive in the run."""
    ran = {} if run is None or run.found is None else {own.memory: own for own in alive(run.found, hw)}
    return MemoryMaps(
        tuple(
            replace(found, alive=ran.get(found.memory)) if found.program == "root" else found
            for found in memory_maps(program, hw)
        )
    )


# --------------------------------------------------------------------------------- roofline


def _roofline(
    story: Explanation,
    kernels: Sequence[KernelLine],
    finals: Sequence[Final],
    programs: Sequence[Program],
    hw: HwConfig,
    memories: Mapping[str, str],
    run: SimulatedRun | None,
) -> Roofline:
    by_path = {final.path: final for final in finals}
    # Where hardware fills the memories, the cycles of a run are a bound: what is expected says more.
    times = run.found.kernels if run is not None and run.found is not None and manages(hw) else []
    ran = {kernel.kernel: kernel.end - kernel.begin for kernel in times}
    points: dict[object, RoofPoint] = {}
    traffic: list[tuple[str, str, str, str, int]] = []
    unknown: list[str] = []
    for told, line in zip(story.kernels, kernels, strict=True):
        mine = [by_path[path] for path in told.blocks if path in by_path]
        if not mine:
            continue
        blocks = [final.block for final in mine]
        found = measured(mine[0].root, blocks, hw, memories)
        if found is None:
            unknown.append(f"{told.path}: its points can't be counted")
            continue
        cycles, busy = expected(mine[0].root, blocks, _remarks(told, programs), hw)
        took = [ran[final.path] for final in mine if final.path in ran]
        point = RoofPoint(
            line.number, told.path, found.operations, found.least_bytes, moved_far(found, hw), cycles,
            sum(took) if len(took) == len(mine) else None, busy,
        )  # fmt: skip
        key = replace(point, number=0, kernel="")
        like = points.get(key)
        points[key] = point if like is None else replace(like, alike=(*like.alike, told.path))
        traffic += [_line(told.path, moved) for moved in found.moved]
    if len(points) > MAX_LINES:
        unknown.append(
            f"{plural(len(points) - MAX_LINES, 'kernel')} beyond the first {MAX_LINES} that differ"
        )
    if len(traffic) > MAX_TRAFFIC:
        unknown.append(plural(len(traffic) - MAX_TRAFFIC, "line") + " of traffic")
    home = hw.home
    return Roofline(
        home.name if home is not None else "", tuple(roofs(programs[-1], hw)),
        tuple(points.values())[:MAX_LINES], tuple(traffic[:MAX_TRAFFIC]), tuple(unknown),
    )  # fmt: skip


def _remarks(told: Story, programs: Sequence[Program]) -> list[tuple[Remark, Program]]:
    """What was said of a kernel, each with the program that the pass was given."""
    return [(remark, programs[note.number - 1]) for note in told.notes for remark in note.remarks]


def _line(kernel: str, moved: Moved) -> tuple[str, str, str, str, int]:
    return kernel, moved.buffer, moved.source, moved.target, moved.bytes
