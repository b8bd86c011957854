"""Where buffers lie over time, in each memory that programs manage.

Time is that of `stripe.analysis.liveness`: the statements of a root and of all blocks in it, in the order of
the text. Of buffers that are repeated for units or for points of a block, the first is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.analysis.liveness import Lifetime, Scope, lifetimes, load_time, peaks, scopes, timeline
from stripe.analysis.placement import address_of
from stripe.ir import SLOT, Block, Program
from stripec.reporting.figures import MemoryMap, Placed

MAX_PLACED = 1200  # buffers of one map
MAX_LANES = 8  # banks of one map
MAX_TICKS = 40


def memory_maps(program: Program, hw: HwConfig) -> Iterator[MemoryMap]:
    """A map of each memory in which some buffer has an address."""
    roots: list[tuple[Literal["root", "load"], Block]] = [("root", program.root)]
    if program.load is not None:
        roots.insert(0, ("load", load_time(program)))
    for name, root in roots:
        lives = [life for life in lifetimes(root, hw) if life.uses is not None]
        most = peaks(root, hw)
        for memory in hw.memories:
            held = [life for life in lives if life.memory == memory.name and address_of(life.ref) is not None]
            if held:
                peak = most.get(memory.name)
                yield _map(memory, name, timeline(root), held, 0 if peak is None else peak.bytes)


def _map(
    memory: Memory, program: Literal["root", "load"], top: Scope, held: Sequence[Lifetime], peak: int
) -> MemoryMap:
    banked = any(life.ref.location and life.ref.location.bank is not None for life in held)
    found: list[tuple[str, Placed]] = []
    for life in held:
        found += _placed(life, memory)
    lanes = sorted({lane for lane, _ in found}, key=lambda text: (len(text), text))
    shown = lanes[:MAX_LANES]
    placed = [
        Placed(p.path, p.what, shown.index(lane), p.address, p.bytes, p.start, p.end)
        for lane, p in found if lane in shown
    ]  # fmt: skip
    capacity = memory.bytes
    if banked and capacity is not None and memory.banks > 1:
        capacity //= memory.banks
    return MemoryMap(
        memory.name, program, capacity, tuple(shown), tuple(_ticks(top)), top.end + 1,
        tuple(placed[:MAX_PLACED]), max((p.address + p.bytes for p in placed), default=0), peak,
        _note(memory, held, len(lanes) - len(shown)), max(0, len(placed) - MAX_PLACED),
    )  # fmt: skip


def _placed(life: Lifetime, memory: Memory) -> Iterator[tuple[str, Placed]]:
    location = life.ref.location
    address = address_of(life.ref)
    assert location is not None and address is not None  # those without were left out
    base = _first(address)
    for slot in range(life.slots):
        place = base.evaluate({SLOT: slot})
        lane = memory.name
        if location.spread is not None:
            lane = "each bank"
        elif location.bank is not None and memory.banks * memory.count > 1:
            number = _first(location.bank).evaluate({SLOT: slot})
            lane = f"bank {number}" if memory.banks > 1 else f"instance {number}"
        path = f"{life.path}/{life.ref.name}".partition("/")[2]
        shape = ", ".join(map(str, life.ref.shape))
        what = f"{life.ref.dtype.value}({shape})" + (f", slot {slot}" if life.slots > 1 else "")
        yield lane, Placed(path, what, 0, place, life.bytes, life.start, life.end)
        if not address.coefficient(SLOT) and not (location.bank and location.bank.coefficient(SLOT)):
            return


def _first(expr: Affine) -> Affine:
    """The value at the first point of the blocks around, over the slot alone."""
    return expr.only({SLOT}) + expr.const


def _ticks(top: Scope) -> Iterator[tuple[int, str]]:
    """The blocks in time, as deep as there is room for their names."""
    found = scopes(top)[1:]
    depth = max((len(s.around) for s in found), default=0)
    while depth > 2 and sum(len(s.around) <= depth for s in found) > MAX_TICKS:
        depth -= 1
    for scope in [s for s in found if len(s.around) <= depth][:MAX_TICKS]:
        yield scope.start, scope.path.partition("/")[2]


def _note(memory: Memory, held: Sequence[Lifetime], lanes: int) -> str:
    said = []
    if any(life.units > 1 for life in held):
        most = max(life.units for life in held)
        said.append(f"{most} units hold such buffers at the same time; those of the first are shown")
    elif memory.count > 1:
        said.append(
            f"there are {memory.count} instances of this memory; those that no buffer lies in are left out"
        )
    if lanes:
        said.append(f"{lanes} more banks are left out")
    return "; ".join(said)
