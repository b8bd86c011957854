"""Random addresses for the buffers of a program, points in flight, and units side by side."""

from __future__ import annotations

import random
from dataclasses import replace

from hwconfigs.model import HwConfig, Memory, Unit
from stripe.affine import Affine
from stripe.analysis.liveness import part_bytes
from stripe.ir import SLOT, Block, Direction, Location, Program, Refinement
from stripe.visit import map_roots

BANKS = 2
MACHINE = HwConfig(
    "machine", "two memories and many cores", "interpreter",
    memories=(
        Memory("NEAR", "explicit", 1 << 20, banks=BANKS, align_bytes=1, backing="FAR"),
        Memory("FAR", "explicit"),
    ),
    units=(Unit("CORE", count=4096, reaches=("NEAR", "FAR")),),
)  # fmt: skip


def placed(program: Program, chance: random.Random, apart: bool) -> Program:
    """`program` with an address for every buffer. If `apart`, each has room of its own, with room for
    all slots and units of its block; else addresses are drawn from so few bytes that buffers meet."""
    return map_roots(program, lambda root: _Placer(chance, apart).block(root, True))


class _Placer:
    def __init__(self, chance: random.Random, apart: bool) -> None:
        self.chance = chance
        self.apart = apart
        self.next = {"NEAR": 0, "FAR": 0}

    def block(self, block: Block, at_root: bool = False) -> Block:
        inflight = self.chance.choice((1, 2, 3)) if block.ranges else 1
        spread = [name for name, size in block.ranges.items() if size > 1 and self.chance.random() < 0.3]
        number = Affine.of({name: self.chance.randint(1, 2) for name in spread}) if spread else None
        location = Location("CORE", number) if spread or at_root else None
        refs = tuple(self.ref(ref, block, inflight, number, at_root) for ref in block.refinements)
        statements = tuple(self.block(s) if isinstance(s, Block) else s for s in block.statements)
        return replace(
            block, refinements=refs, statements=statements, inflight=inflight, location=location, tags=()
        )

    def ref(
        self, ref: Refinement, block: Block, inflight: int, number: Affine | None, at_root: bool
    ) -> Refinement:
        if ref.direction is not Direction.NEW and not at_root:
            return ref
        memory = self.chance.choice(("NEAR", "FAR"))
        slot = SLOT if ref.direction is Direction.NEW else ""  # inputs and outputs have one place
        size = part_bytes(ref)
        own = number or Affine()
        if not self.apart:
            address = Affine(self.chance.randint(0, 3 * size)) + own * self.chance.choice((0, size))
            if slot:
                address += Affine.index(slot, self.chance.choice((0, size)))
            return replace(ref, location=Location(memory, None, address))
        address = Affine(self.next[memory]) + own * (size * inflight)
        if slot:
            address += Affine.index(slot, size)
        copies = 1 + own.bounds({name: (0, n - 1) for name, n in block.ranges.items()})[1]
        self.next[memory] += size * inflight * copies
        return replace(ref, location=Location(memory, None, address))
