"""The counts of a program in closed form: numbers of points of polyhedral sets, without running anything.

What `simulator.timeline` counts execution by execution is here one question to isl for each statement: how
many points its nest has, and how many executions, vectors or elements these amount to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hwconfigs.model import HwConfig
from simulator.meters import Meter, meter
from simulator.plan import Item, Plan, Planner
from simulator.work import Site, Worker
from stripe.affine import Affine
from stripe.analysis.liveness import memory_of
from stripe.ir import Block, Direction, Load, Refinement, Special, Statement, Store
from stripe.poly import Domain, nest_domain
from stripe.visit import View, views_of

Buffers = Mapping[str, tuple[str, str]]  # by name in a block: memory, path of the allocation


class ClosedForm:
    """Counts of one root, as `Totals.counts` and `Totals.traffic` have them."""

    def __init__(self, root: Block, hw: HwConfig) -> None:
        self._hw = hw
        self._worker = Worker(hw)
        self.planner = Planner(hw, self._worker)
        self.counts: Counter[tuple[Site, Any, str]] = Counter()
        self.traffic: Counter[tuple[str, str, str, str]] = Counter()
        self.crossing: Counter[tuple[Site, str, str]] = Counter()  # by block, memory and buffer
        self.plan = self.planner.root(root)
        self._gone_into(self.plan, (), {}, "")

    def _gone_into(self, plan: Plan, around: tuple[Block, ...], outer: Buffers, unit: str) -> None:
        nest = (*around, plan.block)
        buffers = self._buffers(plan.block, plan.path, outer, not around)
        unit = plan.location.unit if plan.location is not None else unit
        for item in plan.items:
            name = item.location.unit if item.location is not None else unit
            if item.inner is not None:
                self._gone_into(item.inner, nest, buffers, unit)
            elif item.block is not None:
                self._task(item.block, nest, buffers, name, plan.views, item.site)
            else:
                self._single(item, plan, nest, buffers, name)

    def _buffers(self, block: Block, path: str, outer: Buffers, at_root: bool) -> Buffers:
        found = {}
        for ref in block.refinements:
            if ref.direction is Direction.NEW or at_root:
                found[ref.name] = memory_of(ref, at_root, self._hw), f"{path}/{ref.name}"
            else:
                found[ref.name] = outer[ref.source]
        return found

    # -- what is counted ---------------------------------------------------------------------------

    def _single(self, item: Item, plan: Plan, nest: Sequence[Block], buffers: Buffers, unit: str) -> None:
        """Statements of a block that is gone into: each of its points is one execution of them."""
        points = nest_domain(nest).count()
        for statement in item.statements:
            if isinstance(statement, Special):
                self._special(statement, points, plan.views, buffers, unit, item.site)
        scalars = tuple(s for s in item.statements if not isinstance(s, Special))
        if scalars:
            measured = self._worker.meter(plan.block, scalars, self.planner.unit(unit), plan.outer_views)
            moved = self._touched(plan.block, scalars, points, buffers, unit, item.site)
            self._note(item.site, measured, unit, points, points, points, moved)

    def _task(
        self,
        block: Block,
        around: tuple[Block, ...],
        outer: Buffers,
        unit: str,
        views: Mapping[str, View],
        site: Site,
    ) -> None:
        nest = (*around, block)
        measured = meter(block, self.planner.unit(unit), views, self._hw)
        if measured.leaf is not None:
            self._uses(measured, nest, outer, unit, site)
            return
        buffers = self._buffers(block, "", outer, False)
        scalars = tuple(s for s in block.statements if not isinstance(s, Block | Special))
        domain = nest_domain(nest)
        if scalars:
            points = domain.count()
            starts = domain.project_onto(_of_levels(nest, len(around))).count() if points else 0
            vectors = _vectors(domain, f"{len(around)}.{measured.lane}", measured) if points else 0
            moved = self._touched(block, scalars, points, buffers, unit, site)
            self._note(site, measured, unit, points, starts, vectors, moved)
        for number, statement in enumerate(block.statements):
            if isinstance(statement, Special):
                own = views_of(block, views)
                self._special(statement, domain.count(), own, buffers, unit, (*site, number))
            elif isinstance(statement, Block):
                self._task(statement, nest, buffers, unit, views_of(block, views), (*site, number))

    def _uses(self, measured: Meter, nest: tuple[Block, ...], outer: Buffers, unit: str, site: Site) -> None:
        """Uses of a stencil: one for each execution of the nest's last block, which may hold one block
        each."""
        depth = len(nest) - 1
        while not any(not isinstance(s, Block) for s in nest[-1].statements):
            nest = (*nest, nest[-1].children[0])
        domain = nest_domain(nest)
        executions = domain.project_onto(_of_levels(nest, depth))
        uses = executions.count()
        self.counts[site, "uses", unit] += uses
        self.counts[site, "points", unit] += domain.count()
        for ref, source, access, stores in _operands(nest, depth):
            kept = [Affine.index(name) for name in executions.names]
            names = [*executions.names, *(f"place {at}" for at in range(len(access)))]
            elements = domain.image([*kept, *access], names).count()
            adds = ref.combines
            self._traffic(site, outer[source], unit, elements * ref.dtype.bytes, stores, adds)

    def _special(
        self, special: Special, times: int, views: Mapping[str, View], buffers: Buffers, unit: str, site: Site
    ) -> None:
        model, vectors = self.planner.unit(unit), 0
        for operand in special.operands:
            size = views[operand.buffer].bytes_of(operand)
            reads, writes = operand.direction.reads, operand.direction.writes
            vectors = max(vectors, -(-size * (reads + writes) // model.vector_bytes))
            if reads:
                self._traffic(site, buffers[operand.buffer], unit, size * times, False, False)
            if writes:
                self._traffic(site, buffers[operand.buffer], unit, size * times, True, False)
        self.counts[site, "vectors", unit] += vectors * times

    def _note(
        self, site: Site, measured: Meter, unit: str, points: int, starts: int, vectors: int, moved: int
    ) -> None:
        self.counts[site, "points", unit] += points
        if "vectors" in measured.rates:
            self.counts[site, "vectors", unit] += vectors
        else:
            self.counts[site, "starts", unit] += starts
            self.counts[site, "bytes", unit] += moved

    def _touched(
        self, block: Block, scalars: Sequence[Statement], points: int, buffers: Buffers, unit: str, site: Site
    ) -> int:
        moved = 0
        for statement in scalars:
            if isinstance(statement, Load | Store):
                ref, stores = block.refinement(statement.buffer), isinstance(statement, Store)
                adds = ref.combines
                self._traffic(site, buffers[ref.name], unit, points * ref.dtype.bytes, stores, adds)
                moved += points * ref.dtype.bytes * stores
        return moved

    def _traffic(
        self, site: Site, where: tuple[str, str], unit: str, size: int, writes: bool, adds: bool
    ) -> None:
        for what in ("write", *(["update"] if adds else [])) if writes else ("read",):
            if size:
                self.traffic[(*where, unit, what)] += size
                self.crossing[(site, *where)] += size


def _of_levels(nest: Sequence[Block], depth: int) -> list[str]:
    return [f"{level}.{index.name}" for level, block in enumerate(nest[:depth]) for index in block.indexes]


def _vectors(domain: Domain, lane: str, measured: Meter) -> int:
    """How many groups of `room` values of the lane index have a point, over all others."""
    if not measured.lane:
        return domain.count()
    others = [name for name in domain.names if name != lane]
    group, inside = "group", "inside"
    grouped = domain.extended([group, inside]).with_constraints(
        [Affine.index(inside), Affine.index(inside, -1) + (measured.room - 1)],
        [Affine.index(lane) - Affine.index(group, measured.room) - Affine.index(inside)],
    )
    return grouped.project_onto([*others, group]).count()


def _operands(
    nest: Sequence[Block], depth: int
) -> Iterator[tuple[Refinement, str, tuple[Affine, ...], bool]]:
    """What the innermost block of a nest loads and stores, each once: its refinement there, the buffer of the
    block around level `depth`, the element of it, and whether it is stored."""
    seen: dict[str, tuple[str, tuple[Affine, ...]]] = {}
    for level in range(depth, len(nest)):
        inside = {}

        def here(name: str, level: int = level) -> str:
            return f"{level}.{name}"

        for ref in nest[level].refinements:
            own = tuple(e.rename(here) for e in ref.access)
            if ref.direction is Direction.NEW:
                continue
            if level == depth:
                inside[ref.name] = ref.source, own
            elif ref.source in seen:
                source, outer = seen[ref.source]
                inside[ref.name] = source, tuple(a + b for a, b in zip(outer, own, strict=True))
        seen = inside
    leaf = nest[-1]
    used = dict.fromkeys(
        (s.buffer, isinstance(s, Store)) for s in leaf.statements if isinstance(s, Load | Store)
    )
    for name, stores in used:
        if name in seen:
            yield leaf.refinement(name), *seen[name], stores
