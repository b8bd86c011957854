"""transfer: copies of boxes of buffers, and the blocks that fill them and write them back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.analysis.deps import Access, accesses
from stripe.analysis.footprint import Box, cell_names, strided_cells, touched_cells
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import Block, Location, Refinement, Statement
from stripe.names import Names
from stripe.passes.base import PassContext
from stripe.passes.transfer_chosen import Past
from stripe.passes.transfer_units import Scope, mover
from stripe.poly import Lattice, Piece
from stripe.rewrite import drop_unused_passed
from stripe.rewrite_copies import copy_blocks, copy_buffer, redirect
from stripe.rewrite_points import simplify_points
from stripe.visit import buffers_used

Cells = Sequence[Piece | Lattice] | None  # what a copy moves; None: too complicated to describe


@dataclass(frozen=True, slots=True)
class Stage:
    """A copy in a memory of a box of a buffer for some statements, by number."""

    buffer: str
    memory: str
    box: Box
    users: tuple[int, ...]


@dataclass(slots=True)
class Copies:
    """Makes copies for one run of the pass. `unit` is the one that should copy."""

    unit: str
    context: PassContext
    _accessed: dict[tuple[int, int], tuple[Access, ...]] = field(default_factory=dict)
    _named: dict[int, tuple[Block, dict[str, Refinement]]] = field(default_factory=dict)

    @property
    def hw(self) -> HwConfig:
        return self.context.hw

    def accesses(self, block: Block, number: int, buffer: str) -> list[Access]:
        return [a for a in self._touched(block, number) if a.buffer == buffer]

    def _touched(self, block: Block, number: int) -> tuple[Access, ...]:
        """What a statement of the block touches."""
        statement = block.statements[number]
        key = id(block), number
        if key not in self._accessed:
            if id(block) not in self._named:
                self._named[id(block)] = block, {r.name: r for r in block.refinements}
            # A root may have hundreds of buffers, and each kernel uses a few.
            refs = self._named[id(block)][1]
            used = dict.fromkeys(name for name, _ in buffers_used(statement))
            slim = replace(block, refinements=tuple(refs[name] for name in used), statements=())
            self._accessed[key] = accesses(slim, statement)
        return self._accessed[key]

    def staged(self, scope: Scope, stages: Sequence[Stage], key: str) -> Block:
        """The block with copies; choices call it `key`."""
        block = scope.block
        given = self.context.explicit(key, Past)
        movers: dict[str, str] = {}
        names = Names(r.name for r in block.refinements)
        buffers: list[Refinement] = []
        statements = list(block.statements)
        before: list[list[Statement]] = [[] for _ in statements]
        behind: list[list[Statement]] = [[] for _ in statements]
        for stage in stages:
            ref = block.refinement(stage.buffer)
            copy = copy_buffer(
                names.fresh(f"{stage.buffer}_{stage.memory}"), ref, stage.box.shape, Location(stage.memory)
            )  # fmt: skip
            buffers.append(copy)
            zero = tuple(Affine() for _ in stage.box.shape)
            far, near = (ref, stage.box.origin), (copy, zero)
            wanted = given.by.get(copy.name, "") if given is not None else ""
            unit, several = self._mover(scope, stage, key, copy.name, wanted)
            if several:
                movers[copy.name] = unit.unit
            hints = self._hints(block, stage)
            loads, stores = self._moved(scope, stage)
            for cells, what, source, target, place in (
                (loads, "load", far, near, before[stage.users[0]]),
                (stores, "store", near, far, behind[stage.users[-1]]),
            ):
                if cells:
                    name = f"{ref.name}_{what}"
                    blocks = copy_blocks(block, name, source, target, stage.box.shape, cells, unit, hints)
                    place += self._copies(scope, blocks)
            for number in stage.users:
                statements[number] = redirect(
                    statements[number], ref.name, copy.name, stage.box.origin, ref.shape
                )
            self.context.remark(
                scope.path, True,
                f"'{ref.name}' is copied to {stage.memory}"
                + (f" and back to {scope.places[ref.name]}" if loads and stores else "")
                if loads
                else f"'{ref.name}' is written in {stage.memory} and copied to {scope.places[ref.name]}",
                bytes=prod(stage.box.shape) * ref.dtype.bytes,
            )  # fmt: skip
        if movers:
            self.context.chose_also(key, Past, by=movers)
        for name in given.by if given is not None else ():
            if name not in movers:
                reason = f"there is no copy '{name}' that several units could make"
                raise self.context.refused(key, reason, "by", *did_you_mean(name, movers))
        together = [s for at, own in enumerate(statements) for s in (*before[at], own, *behind[at])]
        return replace(block, refinements=(*block.refinements, *buffers), statements=tuple(together))

    def _copies(self, scope: Scope, blocks: Sequence[Block]) -> list[Statement]:
        """Copy blocks without the constraints that hold anyway, and without those that copy nothing."""
        simpler = (simplify_points(block, scope.nest) for block in blocks)
        return [drop_unused_passed(block) for block in simpler if block is not None]

    def _hints(self, block: Block, stage: Stage) -> list[str]:
        """Names for the indexes of a copy: those that the statement's accesses use."""
        statement = block.statements[stage.users[0]]
        if not isinstance(statement, Block):
            return []
        view = next(r for r in statement.refinements if r.source == stage.buffer)
        ranged = statement.ranges
        return [
            next((n for n in reversed(e.names) if n in ranged), f"d{at}") for at, e in enumerate(view.access)
        ]

    def _mover(self, scope: Scope, stage: Stage, key: str, copy: str, given: str) -> tuple[Location, bool]:
        """The unit that copies, and whether another one of its kind could."""
        place, memory = scope.places[stage.buffer], stage.memory
        unit = mover(self.hw, place, memory, given or self.unit)
        if unit is None and given:
            found = self.hw.unit(given)
            reason = f"the target has no unit '{given}'"
            if found is not None:
                reason = (
                    f"{given} reaches {', '.join(found.reaches) or 'nothing'}, not both {place} and {memory}"
                )
            raise self.context.refused(key, reason, f"by.{copy}")
        if unit is None:
            wanted = f"{self.unit} does not reach" if self.unit else "no unit reaches"
            message = (
                f"transfer: '{stage.buffer}' of '{scope.path}' lies in {place}, and {wanted} both {place} "
                f"and {memory}"
            )
            reasons = tuple(f"{u.name} reaches {', '.join(u.reaches) or 'nothing'}" for u in self.hw.units)
            span = scope.block.refinement(stage.buffer).span
            raise CompileError(Diagnostic("P153", message, span, (*reasons, *self._nearest(place, memory))))
        if self.unit:
            return Location(unit.name), False
        alike = [u for u in self.hw.units if {place, memory} <= set(u.reaches) and u.kind == unit.kind]
        return Location(unit.name), len(alike) > 1 or bool(given)

    def _nearest(self, place: str, memory: str) -> tuple[str, ...]:
        """The transfer unit that reaches one of two memories, and what to add to it."""
        for unit in self.hw.units:
            lacks = [name for name in (place, memory) if name not in unit.reaches]
            if unit.kind == "transfer" and len(lacks) == 1 and self.unit in ("", unit.name):
                return (f"help: with {lacks[0]} in 'reaches' of {unit.name} it can",)
        return (f"help: add a unit of kind 'transfer' that reaches {place} and {memory}",)

    def _moved(
        self, scope: Scope, stage: Stage
    ) -> tuple[Sequence[Piece | Lattice], Sequence[Piece | Lattice]]:
        """The cells that are loaded in front of the users, and stored behind them."""
        written = self._stored_cells(scope, stage)
        if written is None and self._filled_before(scope, stage):
            # What the users do not write is loaded, and stored as it was.
            whole = [_inside(scope.block, stage)]
            return whole, self._stores(scope, stage, whole)
        return self._loads(scope, stage), self._stores(scope, stage, written)

    def _loads(self, scope: Scope, stage: Stage) -> Sequence[Piece | Lattice]:
        """The cells to be loaded: what the users read, save what a user before wrote."""
        block = scope.block
        read: list[Access] = []
        written: list[Access] = []
        for number in stage.users:
            found = self.accesses(block, number, stage.buffer)
            if any(d.reads for b, d in buffers_used(block.statements[number]) if b == stage.buffer):
                read += [a for a in found if a.reads]
            if not read:
                written += [a for a in found if a.writes and not a.conditional]
        if not read:
            return []
        pieces: Cells = touched_cells(block, read, stage.box, written)
        if pieces is None:
            pieces = strided_cells(block, read, stage.box, written)
        return self._checked_cells(pieces, scope, stage, "reads")

    def _stores(self, scope: Scope, stage: Stage, cells: Cells) -> Sequence[Piece | Lattice]:
        """The cells to be stored, `cells`, where that may be done at all."""
        block = scope.block
        found = [a for n in stage.users for a in self.accesses(block, n, stage.buffer) if a.writes]
        if not found:
            return []
        ref = block.refinement(stage.buffer)
        if ref.combines:
            raise CompileError(
                Diagnostic(
                    "P154",
                    f"transfer: the tiles of '{scope.path}' would have to be combined by "
                    f"{ref.aggregation} in {scope.places[ref.name]}, element by element, and a copy can't "
                    "compute",
                    ref.span,
                    (
                        f"several points of '{scope.path}' write one element of '{ref.name}'",
                        "help: keep partial results in accumulators (`localize{accumulators=...}`), or do "
                        "not tile the reduction at this level",
                    ),
                )
            )
        return self._checked_cells(cells, scope, stage, "writes")

    def _stored_cells(self, scope: Scope, stage: Stage) -> Cells:
        """What the users write, where that can be described; the empty list if they write nothing."""
        block = scope.block
        found = [a for n in stage.users for a in self.accesses(block, n, stage.buffer) if a.writes]
        if not found:
            return []
        pieces: Cells = touched_cells(block, found, stage.box)
        return strided_cells(block, found, stage.box) if pieces is None else pieces

    def _filled_before(self, scope: Scope, stage: Stage) -> bool:
        """Whether a statement in front of the users writes every element of the buffer."""
        block, shape = scope.block, scope.views[stage.buffer].shape
        whole = Box(tuple(Affine() for _ in shape), shape)
        for number in range(stage.users[0]):
            found = [a for a in self.accesses(block, number, stage.buffer) if a.writes and not a.conditional]
            if found and touched_cells(block, found, whole) == [([], [])]:
                return True
        return False

    def _checked_cells(
        self, pieces: Cells, scope: Scope, stage: Stage, what: str
    ) -> Sequence[Piece | Lattice]:
        """The cells of a buffer. Raises CompileError P155 where they could not be described."""
        if pieces is not None:
            return pieces
        name = getattr(scope.block.statements[stage.users[0]], "name", "")
        raise CompileError(
            Diagnostic(
                "P155",
                f"transfer: the elements of '{stage.buffer}' that '{scope.path}/{name}' {what} are not a "
                "few sets that affine constraints describe",
                scope.block.refinement(stage.buffer).span,
                ("help: change the access so that it steps by one element",),
            )
        )


def _inside(block: Block, stage: Stage) -> Piece:
    """The cells of a stage's box that the buffer has."""
    limits: list[Affine] = []
    shape = block.refinement(stage.buffer).shape
    for name, origin, size in zip(cell_names(len(shape)), stage.box.origin, shape, strict=True):
        cell = origin + Affine.index(name)
        limits += [cell, -cell + (size - 1)]
    return limits, []
