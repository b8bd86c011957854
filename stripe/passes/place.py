"""place: give every buffer in memory that programs manage an address."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.analysis.liveness import Scope, enough_text, load_time, timeline
from stripe.analysis.placement import MemoryMap, address_of, memory_maps, unit_number
from stripe.diag import CompileError, Diagnostic
from stripe.ir import Block, Direction, Location, Program, Statement
from stripe.passes.base import Pass, PassContext
from stripe.rewrite import drop_unused_passed
from stripe.rewrite_copies import hand_down

SHOWN = 8  # buffers that a message lists


@dataclass(frozen=True)
class Place(Pass):
    """Give every buffer in memory that programs manage an address, so that none that are alive together meet.

    before:  block main [] (in A (64)  out R (64)  new T (64) @DRAM) {...}
    after:   block main [] (in A (64) @DRAM:0  out R (64) @DRAM:256  new T (64) @DRAM:512) {...}

    Buffers of memories of kind `explicit` and of register files that have no address get one, a multiple of
    the memory's `align_bytes`; inputs and outputs of the root lie in the farthest explicit memory. (The
    registers of native code have no addresses: LLVM gives them out.) Two buffers share
    bytes only if they are never alive together (stripe/analysis/liveness.py). Points in flight
    have a slot each: `@SPAD:1024*slot + 4096`. Where units work side by side, a buffer in a memory that
    they share has a copy for each, at an address that is affine in the unit's number; in a memory of
    which each has an instance, the bank is that number. A bank that a location names stays. What a load-time
    program reads and makes lies where the root has it; what else it holds keeps off the root's constants.

    The places are found by best fit in several orders, improved by a bounded number of moves (offline dynamic
    storage allocation; stripe/analysis/storage.py). If a memory is too small, it is an error that
    lists what is alive at the worst moment.

    Always legal: where a buffer lies has no meaning as long as no other writes to it.
    Stripe paper, section 2.3, "Scheduling".
    """

    name: ClassVar[str] = "place"

    def run(self, program: Program, context: PassContext) -> Program:
        load = program.load
        if load is None:
            root = self._placed(program.root, context)
            return program if root is program.root else replace(program, root=root)
        root = self._placed(_agreeing(program.root, load), context)
        made = replace(program, root=root, load=_agreeing(load, root))
        held = load_time(made)
        placed = self._placed(held, context)
        own = placed.refinements[len(held.refinements) - len(load.refinements) :]
        made = replace(made, load=replace(placed, refinements=own))
        return program if made == program else made

    def _placed(self, root: Block, context: PassContext) -> Block:
        """A root, or the load-time program, with addresses for its buffers."""
        top = timeline(root)
        maps = memory_maps(top, context.hw)
        if not maps:
            context.remark(top.path, False, "no buffer lies in managed memory without an address")
            return root
        wrong = [_too_large(found, context.hw) for found in maps if not found.fits]
        if wrong:
            raise CompileError(*wrong)
        found: dict[tuple[int, str], Location] = {}
        for own in maps:
            found |= {(id(life.scope), life.ref.name): location for life, location in own.locations()}
            name, height, bound = own.memory.name, own.packing.height, own.packing.bound
            size = f"{height} bytes" if own.capacity is None else f"{height} of {own.capacity} bytes"
            where = f"the fullest bank of {name}" if own.banked else name
            buffers = "1 buffer" if len(own.lives) == 1 else f"{len(own.lives)} buffers"
            context.remark(
                top.path, True,
                f"{buffers} in {size} of {where}; {bound} are alive at once",
                memory=name, buffers=len(own.lives), bytes=height, bound=bound,
                ratio=height / bound if bound else 1.0,
            )  # fmt: skip
        return _rewritten(root, top, found, {})


def _agreeing(root: Block, other: Block) -> Block:
    """The root with the places that the other one names for what both use."""
    named = {
        ref.name: ref.location
        for ref in other.refinements
        if ref.direction is not Direction.NEW and address_of(ref) is not None
    }
    refinements = tuple(
        replace(ref, location=named[ref.name])
        if ref.name in named and ref.direction is not Direction.NEW and address_of(ref) is None
        else ref
        for ref in root.refinements
    )
    return root if refinements == root.refinements else replace(root, refinements=refinements)


def _too_large(own: MemoryMap, hw: HwConfig) -> Diagnostic:
    what = f"a bank of {own.memory.name}" if own.banked else own.memory.name
    height, capacity = own.packing.height, own.capacity or 0
    alive = own.alive_at_most()
    notes = [f"{size} bytes: '{life.ref.name}' of '{life.path}'" for size, life in alive[:SHOWN]]
    if len(alive) > SHOWN:
        rest = sum(size for size, _ in alive[SHOWN:])
        notes.append(f"{rest} bytes: {len(alive) - SHOWN} others")
    advice = enough_text({own.memory.name: height * (own.memory.banks if own.banked else 1)}, hw)
    return Diagnostic(
        "P170",
        f"place: {what} has {capacity} bytes; {height} are needed, {height - capacity} too many "
        f"({own.packing.bound} are alive at once, in {len(alive)} buffers)",
        None,
        (
            "alive together:",
            *notes,
            f"help: smaller tiles, fewer points in flight, or another memory; {advice}",
        ),
    )


def _rewritten(
    block: Block, scope: Scope, found: dict[tuple[int, str], Location], numbers: dict[str, Affine]
) -> Block:
    """The block with locations for its buffers. `numbers`: those of units, over the block's indexes."""
    if block.location is not None and block.location.bank is not None:
        numbers = {**numbers, unit_number(scope): block.location.bank}
    refinements = tuple(
        replace(ref, location=_resolved(found[id(scope), ref.name], numbers))
        if (id(scope), ref.name) in found
        else ref
        for ref in block.refinements
    )
    statements: list[Statement] = list(block.statements)
    for child in scope.children:
        handed, inner = hand_down(child.block, numbers, "unit")
        made = _rewritten(handed, child, found, inner)
        statements[child.at] = made if handed is child.block else _settled(made, handed, child.block)
    same = all(new is old for new, old in zip(refinements, block.refinements, strict=True))
    if same and all(new is old for new, old in zip(statements, block.statements, strict=True)):
        return block
    return replace(block, refinements=refinements, statements=tuple(statements))


def _settled(made: Block, handed: Block, child: Block) -> Block:
    """The child, without the numbers that nothing below it needs."""
    return child if made is handed else drop_unused_passed(made)


def _resolved(location: Location, numbers: dict[str, Affine]) -> Location:
    bank = None if location.bank is None else location.bank.substitute(numbers)
    address = None if location.address is None else location.address.substitute(numbers)
    return replace(location, bank=bank, address=address)
