"""Where the buffers of a run lie, and which banks of their memory are asked for what is touched of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hwconfigs.model import HwConfig, Memory
from simulator.plan import bank_bytes
from simulator.running import BankKey, Place
from simulator.work import Touch
from stripe.analysis.liveness import memory_of, part_bytes, parts_of
from stripe.ir import Block, Direction, Refinement


def place_of(ref: Refinement, values: Mapping[str, int], path: str, at_root: bool, hw: HwConfig) -> Place:
    """The place of an allocation of the block at a path, at a point of it."""
    location = ref.location
    bank = address = None
    if location is not None:
        bank = location.bank.evaluate(values) if location.bank is not None else None
        address = location.address.evaluate(values) if location.address is not None else None
    return Place(
        f"{path}/{ref.name}", ref, memory_of(ref, at_root, hw), bank, address or 0, (0,) * len(ref.shape)
    )


def ask(asked: dict[BankKey, float], place: Place, touch: Touch, memory: Memory, hw: HwConfig) -> None:
    """Add to `asked` the cycles that each bank takes for a touch."""
    if memory.bytes_per_cycle:
        for bank, share in banks_of(place, touch, memory, hw):
            key = memory.name, bank
            asked[key] = asked.get(key, 0.0) + touch.bytes * share / memory.bytes_per_cycle


def banks_of(place: Place, touch: Touch, memory: Memory, hw: HwConfig) -> Iterator[tuple[int, float]]:
    """The banks that a touch goes to, each with its share of the bytes."""
    location = place.ref.location
    if location is not None and location.spread is not None:
        dim = location.spread
        parts = parts_of(place.ref, memory.name, hw)
        part = -(-place.ref.shape[dim] // parts)
        low, high = (place.origin[dim] + edge for edge in touch.box[dim])
        low, high = max(low, 0), min(high, place.ref.shape[dim] - 1)
        for bank in range(low // part, high // part + 1):
            inside = min(high, (bank + 1) * part - 1) - max(low, bank * part) + 1
            yield bank, inside / (high - low + 1)
    elif place.bank is not None:
        yield place.bank, 1.0
    elif memory.banks == 1 or not memory.bytes:
        yield 0, 1.0
    else:
        step = bank_bytes(memory)
        first, last = place.address, place.address + max(part_bytes(place.ref), 1) - 1
        for bank in range(first // step, last // step + 1):
            inside = min(last, (bank + 1) * step - 1) - max(first, bank * step) + 1
            yield bank, inside / (last - first + 1)


def element_bytes(root: Block) -> dict[str, int]:
    """The bytes of an element of each buffer of a program, by its path."""
    return dict(_element_bytes(root, root.name, True))


def _element_bytes(block: Block, path: str, at_root: bool) -> Iterator[tuple[str, int]]:
    for ref in block.refinements:
        if at_root or ref.direction is Direction.NEW:
            yield f"{path}/{ref.name}", ref.dtype.bytes
    for child in block.children:
        yield from _element_bytes(child, f"{path}/{child.name}", False)
