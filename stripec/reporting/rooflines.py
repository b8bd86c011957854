"""Kernels against what the target can do: operations per byte, and operations per cycle.

Operations are counted exactly over the points of each kernel. Bytes are the boxes of the farthest memory's
buffers that it touches, each once; where programs fill the memories, what its copies move, exactly. Peaks and
bandwidths are those of the target's file. Cycles are those of the simulated run, and those expected: of
native code by the model of whole programs, else by the passes' searches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hwconfigs.expressions import evaluate_size
from hwconfigs.model import HwConfig, SizeRange, Stencil, Unit
from stripe.analysis.cost_program import estimate
from stripe.analysis.deps import accesses
from stripe.analysis.footprint import live_box
from stripe.analysis.work import operations
from stripe.diag import Remark
from stripe.dtypes import DType
from stripe.ir import Block, Direction, Load, Program, Store
from stripe.poly import PolyhedralLimit, nest_domain
from stripe.visit import walk
from stripec.plan import alone
from stripec.prediction import predict
from stripec.reporting.figures import Roof
from stripec.reporting.paths import moves, points_below


@dataclass(frozen=True, slots=True)
class Moved:
    """What a kernel moves of one buffer, from one memory (or unit) to another."""

    buffer: str
    source: str
    target: str
    bytes: int


def roofs(program: Program, hw: HwConfig) -> list[Roof]:
    """The limits of the target that matter for the element types of a program, the highest first."""
    types = {ref.dtype for _, block in walk(program.root) for ref in block.refinements}
    found: dict[str, Roof] = {}
    for unit in hw.compute_units:
        if unit.operations:
            for dtype in sorted(types, key=lambda t: t.value):
                if dtype is not DType.BOOL and ("*" in unit.types or dtype.value in unit.types):
                    name = f"{_counted(unit)}, {dtype.value}"
                    found[name] = Roof(name, "compute", _vector_rate(unit, dtype))
    for stencil in hw.stencils:
        unit_of = hw.unit(stencil.unit)
        fits = unit_of is not None and any(t.value in stencil.types.values() for t in types)
        rate = _stencil_rate(stencil, unit_of) if unit_of is not None and fits else 0.0
        if unit_of is not None and rate:
            found[stencil.name] = Roof(f"{stencil.name} on {_counted(unit_of)}", "compute", rate)
    for memory in hw.memories:
        if memory.bytes_per_cycle:
            name = f"{memory.count} {memory.name}" if memory.count > 1 else memory.name
            found[memory.name] = Roof(name, "bandwidth", memory.bytes_per_cycle * memory.count)
    for unit in hw.units:
        if unit.kind == "transfer" and unit.bytes_per_cycle:
            found[unit.name] = Roof(_counted(unit), "bandwidth", unit.bytes_per_cycle * unit.count)
    return sorted(found.values(), key=lambda r: (r.kind, -r.rate, r.name))


def _counted(unit: Unit) -> str:
    return f"{unit.count} {unit.name}" if unit.count > 1 else unit.name


def _vector_rate(unit: Unit, dtype: DType) -> float:
    """Operations per cycle of all copies of a unit: a multiply-add is two."""
    return 2 * unit.fma_per_cycle * max(1, unit.vector_bytes // dtype.bytes) * unit.count


def _stencil_rate(stencil: Stencil, unit: Unit) -> float:
    """Operations per cycle of an array or instruction at its largest sizes; 0 where these are open."""
    sizes = {name: _largest(size) for name, size in stencil.indices.items()}
    known = {name: size for name, size in sizes.items() if size is not None}
    if len(known) < len(sizes):
        return 0.0
    # A multiply-add per point of the sizes; without the start of each use, which successive uses may hide.
    cycles = evaluate_size(stencil.cycles or "1", {name: float(size) for name, size in known.items()})
    return 2 * prod(known.values()) / max(cycles, 1e-9) * unit.count


def _largest(size: int | str | SizeRange) -> int | None:
    """The largest legal size of an index of a stencil; None where there is none or it depends on lanes."""
    if isinstance(size, int):
        return size
    if isinstance(size, str) or size.most is None or isinstance(size.multiple, str):
        return None
    return size.most // size.multiple * size.multiple


@dataclass(frozen=True, slots=True)
class Measured:
    """What some blocks of a root do: operations, bytes that they touch at least, and their copies."""

    operations: int
    least_bytes: int
    moved: tuple[Moved, ...]


def measured(
    root: Block, kernels: Sequence[Block], hw: HwConfig, memories: Mapping[str, str]
) -> Measured | None:
    """What the kernels do; None if their points can't be counted."""
    try:
        work = operations(Program(replace(root, statements=tuple(kernels))))
        least = _least_bytes(root, kernels, hw, memories)
        moved = tuple(_moved(root, kernels, hw, memories))
    except PolyhedralLimit:
        return None
    return Measured(work, least, moved)


def moved_far(found: Measured, hw: HwConfig) -> int | None:
    """The bytes that copies move from and to the farthest memory; None where hardware moves them."""
    if hw.home is None or hw.executor == "cpu" or not found.moved:
        return None
    return sum(m.bytes for m in found.moved if hw.home.name in (m.source, m.target))


def _least_bytes(root: Block, kernels: Sequence[Block], hw: HwConfig, memories: Mapping[str, str]) -> int:
    """The bytes of the boxes that the kernels touch in each buffer of the root in the farthest memory."""
    home = hw.home.name if hw.home is not None else ""
    refs = {ref.name: ref for ref in root.refinements if (memories.get(ref.name) or home) == home}
    found = [access for kernel in kernels for access in accesses(root, kernel)]
    total = 0
    for name in dict.fromkeys(a.buffer for a in found if a.buffer in refs):
        box = live_box(root, [a for a in found if a.buffer == name])
        cells = prod(refs[name].shape) if box is None else min(box.elements, prod(refs[name].shape))
        total += cells * refs[name].dtype.bytes
    return total


def _moved(
    root: Block, kernels: Sequence[Block], hw: HwConfig, memories: Mapping[str, str]
) -> Iterator[Moved]:
    """The bytes that the kernels move, by buffer and by where from and where to."""
    home = hw.home.name if hw.home is not None else ""
    scope = {ref.name: (ref.name, memories.get(ref.name) or home) for ref in root.refinements}
    total: dict[tuple[str, str, str], int] = {}
    for kernel in kernels:
        for each in _traffic((root, kernel), scope, hw, ""):
            key = each.buffer, each.source, each.target
            total[key] = total.get(key, 0) + each.bytes
    for (buffer, source, target), size in total.items():
        yield Moved(buffer, source, target, size)


def _traffic(
    nest: tuple[Block, ...], outer: Mapping[str, tuple[str, str]], hw: HwConfig, unit: str
) -> Iterator[Moved]:
    """What each leaf of a nest moves: copies between memories, and what others load and store in the
    farthest memory itself, where no cache stands before it."""
    block, home = nest[-1], hw.home.name if hw.home is not None else ""
    unit = block.location.unit if block.location is not None else unit
    scope: dict[str, tuple[str, str]] = {}
    for ref in block.refinements:
        if ref.direction is Direction.NEW:
            scope[ref.name] = ref.name, ref.location.unit if ref.location is not None else home
        else:
            scope[ref.name] = outer[ref.source]
    found: list[Moved] = []
    moved = moves(block)
    if moved is not None and scope[moved[0]][1] != scope[moved[1]][1]:
        (source, held), (target, to) = scope[moved[0]], scope[moved[1]]
        size = block.refinement(moved[0]).dtype.bytes
        if _managed(hw, held) and _managed(hw, to):
            found.append(Moved(source if held == home else target, held, to, size))
    elif not hw.caches:
        for statement in block.statements:
            if isinstance(statement, Load | Store) and scope[statement.buffer][1] == home:
                size = block.refinement(statement.buffer).dtype.bytes
                ends = (home, unit) if isinstance(statement, Load) else (unit, home)
                found.append(Moved(scope[statement.buffer][0], *ends, size))
    if found:
        times = nest_domain(nest).count()
        yield from (replace(each, bytes=each.bytes * times) for each in found)
    for child in block.children:
        yield from _traffic((*nest, child), scope, hw, unit)


def _managed(hw: HwConfig, name: str) -> bool:
    memory = hw.memory(name)
    return memory is not None and hw.has_addresses(memory)


def expected(
    root: Block, kernels: Sequence[Block], remarks: Sequence[tuple[Remark, Program]], hw: HwConfig
) -> tuple[float | None, tuple[tuple[str, float], ...]]:
    """The cycles that the kernels, children of a root, are expected to take, and how long each part of the
    target is busy; of each remark the program is given that its pass was given. None where nothing is
    known. Native code is asked about as it stands, other programs as the searches of passes saw them."""
    made = estimate(alone(root, [block.name for block in kernels]), hw) if hw.executor == "cpu" else None
    if made is not None:
        return made.cycles, tuple(made.parts.items())
    found = predict([remark for remark, _ in remarks], hw, alone=True)
    if found is not None:
        return found.cycles, tuple(found.shown.items())
    return _by_points(remarks), ()


def _by_points(remarks: Sequence[tuple[Remark, Program]]) -> float | None:
    """The cycles of all points, by the last search that has a cost for a point."""
    for remark, before in reversed(remarks):
        data = remark.data
        if not remark.acted or data.get("unit") != "cycles per point":
            continue
        chosen = data.get("chosen")
        cost = chosen.get("cost") if isinstance(chosen, Mapping) else None
        points = _points(before, remark.block)
        if isinstance(cost, int | float) and points:
            return float(cost) * points
    return None


def _points(program: Program, path: str) -> int:
    """The points of the leaf that runs most below a block; those on different units run side by side."""
    names = path.split("/")
    root = next((r for r in (program.root, program.load) if r is not None and r.name == names[0]), None)
    times, block = 1, root
    for name in names[1:]:
        block = next((c for c in block.children if c.name == name), None) if block is not None else None
        if block is not None and name is not names[-1] and block.location is None:
            times *= block.points
    return times * points_below(block) if block is not None else 0
