"""What a placed program moves across the boundary of each memory, by kernel and tensor.

Of what blocks do with the buffers of a memory, that is all but the copies between it and one farther away:
those cross the boundary of the other one. A buffer counts for the tensor that it stands for
(simulator.copies), a statement of the root that is no kernel for the kernel that uses the tensor next, or
before if it is a copy that takes it away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hwconfigs.model import HwConfig
from simulator.copies import copies_in
from simulator.work import Site
from stripe.ir import Block, Special
from stripe.visit import buffers_used

Crossing = Mapping[tuple[Site, str, str], int]  # bytes by block of the root, memory, path of the buffer


@dataclass(slots=True)
class Moved:
    """What a kernel moves of a tensor at the boundary of a memory. `handed` are the memories that copies of
    it go to, `around` whether some of it takes a way past this memory."""

    bytes: int = 0
    handed: set[str] = field(default_factory=set)
    around: bool = False


def moved_by_kernels(
    root: Block, source: Block, kernels: Sequence[Block | Special], crossing: Crossing, hw: HwConfig
) -> dict[tuple[int, str], dict[str, Moved]]:
    """What crosses the boundary of each memory, by kernel of the source and memory, and by tensor: all in
    order, the memory of inputs and outputs last."""
    copies = copies_in(root, source, hw)
    owner = _Owners(root, kernels)
    found: dict[tuple[int, str], dict[str, Moved]] = {}
    touched: dict[tuple[int, str], set[frozenset[str]]] = {}  # the ways of a tensor to units
    for (site, memory, path), size in crossing.items():
        tensor = copies.tensor(path)
        at = owner.of(site[0] if site else 0, tensor, copies.goes_out(site))
        if at is None or not size or copies.comes_from_farther(site, path):
            continue
        own = found.setdefault((at, memory), {}).setdefault(tensor, Moved())
        own.bytes += size
        if child := copies.child(site, path):
            own.handed.add(child)
        else:
            touched.setdefault((at, tensor), set()).add(copies.way(path))
    for (at, memory), tensors in found.items():
        for tensor, own in tensors.items():
            own.around = any(memory not in way for way in touched.get((at, tensor), ()))
    order = {ref.name: at for at, ref in enumerate(source.refinements)}
    return {
        key: dict(sorted(found[key].items(), key=lambda pair: order.get(pair[0], len(order))))
        for key in sorted(found, key=lambda key: (key[0], place_of(key[1], hw)))
    }


def place_of(memory: str, hw: HwConfig) -> tuple[bool, int]:
    """Where a memory stands in tables: that of inputs and outputs comes last."""
    return hw.home is not None and memory == hw.home.name, [m.name for m in hw.memories].index(memory)


class _Owners:
    """The kernel of the source that a statement of the placed program works for."""

    def __init__(self, root: Block, kernels: Sequence[Block | Special]) -> None:
        place = {kernel.name: at for at, kernel in enumerate(kernels)}
        self._uses = [{name for name, _ in buffers_used(kernel)} for kernel in kernels]
        self._known = set[str]().union(*self._uses)
        self._owners = [
            place.get(s.name) if isinstance(s, Block | Special) else None for s in root.statements
        ]

    def of(self, number: int, tensor: str, back: bool) -> int | None:
        """Its own, or the nearest that uses the tensor: one behind it, or with `back` one ahead of it."""
        behind, ahead = self._owners[number + 1 :], self._owners[:number][::-1]
        nearby = (self._owners[number], *(ahead + behind if back else behind + ahead))
        anyone = tensor not in self._known
        return next((at for at in nearby if at is not None and (anyone or tensor in self._uses[at])), None)
