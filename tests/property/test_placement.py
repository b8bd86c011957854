"""Random placements of small random nests: the verifier's verdict is that of a check byte by byte.

The check enumerates every point of every block, every slot and every part, and applies the words of
docs/architecture.md, "Liveness", to each two copies. It shares nothing with stripe.verify_overlap but the
sizes that it is given.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hwconfigs.model import HwConfig, Memory, Unit
from stripe.affine import Affine
from stripe.analysis.liveness import Lifetime, lifetimes, peaks
from stripe.dtypes import DType
from stripe.ir import (
    Block,
    Constraint,
    Direction,
    Index,
    Location,
    Refinement,
    Statement,
    Store,
)
from stripe.verify_access import nests
from stripe.verify_overlap import _Overlaps
from stripe.verify_places import PlaceRules
from stripe.verify_structure import sites
from stripe.visit import buffers_used

BANKS, BANK_BYTES = 2, 24
HW = HwConfig(
    "t", "", "interpreter",
    memories=(Memory("M", "explicit", BANKS * BANK_BYTES, line_bytes=1, banks=BANKS),),
    units=(Unit("U", count=64, reaches=("M",)),),
)  # fmt: skip


class _Maker:
    """A nest of blocks that use their own buffers and those above them, in any order."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names = itertools.count()

    def block(self, name: str, outer: list[str], outer_indexes: list[str], depth: int) -> Block:
        indexes: list[Index] = []
        if depth:
            indexes = [Index(f"i{depth}", self.chance.randint(1, 3))]
            if self.chance.random() < 0.3:
                indexes.append(Index(f"j{depth}", 2))
            if outer_indexes and self.chance.random() < 0.3:
                indexes.append(Index(f"p{depth}", 1, Affine.index(self.chance.choice(outer_indexes))))
        names = [index.name for index in indexes]
        constrained = bool(names) and self.chance.random() < 0.3
        constraints = (Constraint(self.affine(names, 2, 2)),) if constrained else ()
        location = None
        if names and self.chance.random() < 0.35:
            location = Location("U", self.affine(names, 2, 3, least=0))
        inflight = self.chance.choice([1, 1, 2, 3]) if depth else 1
        refs = [Refinement(Direction.IN, source, (1,), DType.I8, source, (Affine(),)) for source in outer]
        new = [self.buffer(names) for _ in range(self.chance.randint(0, 2))]
        known = [*outer, *(ref.name for ref in new)]
        statements: list[Statement] = []
        for _ in range(self.chance.randint(1, 3)):
            if depth < 2 and self.chance.random() < 0.7:
                inner = [n for n in known if self.chance.random() < 0.4]
                statements.append(self.block(f"b{next(self.names)}", inner, names, depth + 1))
            elif known:
                statements.append(Store(self.chance.choice(known), "v"))
        return Block(name, tuple(indexes), constraints, (*refs, *new), tuple(statements), location, inflight)

    def buffer(self, names: list[str]) -> Refinement:
        size = self.chance.choice([2, 4, 4, 8])
        form = self.chance.randint(0, 3)
        spread = 0 if form == 0 else None
        bank = self.affine(names, 1, 1, least=0) if form == 1 else None
        moving = [*names, "slot", "slot"]
        address = Affine(self.chance.randint(0, 20))
        for name in moving:
            if self.chance.random() < 0.5:
                address += Affine.index(name, self.chance.choice([2, 4, 4, 8]))
        location = Location("M", bank, address, spread)
        return Refinement(
            Direction.NEW, f"T{next(self.names)}", (size,), DType.I8, strides=(1,), location=location
        )

    def affine(self, names: list[str], factor: int, const: int, least: int | None = None) -> Affine:
        low = -factor if least is None else least
        terms = {n: self.chance.randint(low, factor) for n in names if self.chance.random() < 0.7}
        return Affine.of(terms, self.chance.randint(0, const))


@dataclass(frozen=True)
class _Copy:
    """One copy of an allocation: the number of it, the points from the root to it, the way, its slot."""

    number: int
    life: Lifetime
    blocks: tuple[Block, ...]
    points: tuple[dict[str, int], ...]
    way: tuple[int, ...]  # the number of the statement taken at each level but the last
    slot: int

    def bytes(self) -> Iterator[int]:
        where = self.life.ref.location
        assert where is not None and where.address is not None
        here = {**self.points[-1], "slot": self.slot}
        low = where.address.evaluate(here)
        if where.bank is not None:
            low += BANK_BYTES * where.bank.evaluate(here)
        parts = 1 if where.spread is None else BANKS
        for part in range(parts):
            start = low + part * BANK_BYTES
            yield from range(start, start + self.life.ref.shape[0] // parts)

    def fits(self) -> bool:
        where = self.life.ref.location
        assert where is not None and where.address is not None
        here = {**self.points[-1], "slot": self.slot}
        if where.bank is not None and not 0 <= where.bank.evaluate(here) < BANKS:
            return False
        low = where.address.evaluate(here)
        named = where.bank is not None or where.spread is not None
        size = self.life.ref.shape[0] // (1 if where.spread is None else BANKS)
        return low >= 0 and low + size <= BANK_BYTES * (1 if named else BANKS)


def _points(block: Block, outer: dict[str, int]) -> Iterator[dict[str, int]]:
    for values in itertools.product(*(range(size) for size in block.ranges.values())):
        point = dict(zip(block.ranges, values, strict=True))
        point |= {i.name: i.passed.evaluate(outer) for i in block.indexes if i.passed is not None}
        if all(c.expr.evaluate(point) >= 0 for c in block.constraints):
            yield point


def _slots(block: Block) -> int:
    """Points in flight on one unit: no more than it has."""
    free = replace(block, constraints=())
    outer = {name: 0 for i in block.indexes if i.passed is not None for name in i.passed.names}
    shares = Counter(_unit(block, point) for point in _points(free, outer))
    return min(block.inflight, max(shares.values()))


def _nest_points(blocks: tuple[Block, ...]) -> list[tuple[dict[str, int], ...]]:
    found: list[tuple[dict[str, int], ...]] = [()]
    for block in blocks:
        found = [(*outer, p) for outer in found for p in _points(block, outer[-1] if outer else {})]
    return found


def _copies(root: Block) -> list[_Copy]:
    found: list[_Copy] = []
    for number, life in enumerate(lifetimes(root, HW)):
        chain = life.scope.around
        blocks = tuple(scope.block for scope in chain)
        way = tuple(scope.at for scope in chain[1:])
        for points in _nest_points(blocks):
            found += [_Copy(number, life, blocks, points, way, slot) for slot in range(_slots(blocks[-1]))]
    return found


def _uses(copy: _Copy) -> list[int]:
    """The statements of its block that the buffer is alive at."""
    statements = copy.blocks[-1].statements
    used = [n for n, s in enumerate(statements) if copy.life.ref.name in {b for b, _ in buffers_used(s)}]
    return list(range(used[0], used[-1] + 1)) if used else []


def _unit(block: Block, point: dict[str, int]) -> int | None:
    if block.location is None or block.location.bank is None:
        return None
    return block.location.bank.evaluate(point)


def _together(a: _Copy, b: _Copy) -> bool:
    if not _uses(a) or not _uses(b):
        return False
    for level, (block, other) in enumerate(zip(a.blocks, b.blocks, strict=False)):
        assert block is other
        own_a, own_b = level == len(a.blocks) - 1, level == len(b.blocks) - 1
        if a.points[level] != b.points[level]:
            if _unit(block, a.points[level]) != _unit(block, b.points[level]):
                return True
            if _slots(block) == 1:
                return False
            if own_a and own_b:
                return a.slot != b.slot
            return own_a or own_b or a.way[level] != b.way[level]
        if own_a and own_b:
            return a.number != b.number and a.slot == b.slot and bool({*_uses(a)} & {*_uses(b)})
        if own_a:
            return b.way[level] in _uses(a)
        if own_b:
            return a.way[level] in _uses(b)
        if a.way[level] != b.way[level]:
            return False
    raise AssertionError("two copies part somewhere")


def _clashes(root: Block) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for a, b in itertools.combinations(_copies(root), 2):
        key = (min(a.number, b.number), max(a.number, b.number))
        if key not in found and _together(a, b) and {*a.bytes()} & {*b.bytes()}:
            found.add(key)
    return found


def _small(root: Block) -> bool:
    return len(_copies(root)) <= 120


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_shared_bytes_are_found_exactly(seed: int) -> None:
    root = _Maker(random.Random(seed)).block("main", [], [], 0)
    if not _small(root):
        return
    rules = _Overlaps(HW)
    findings = list(rules.findings(root))
    assert rules.told == _clashes(root)
    assert len(findings) == len(rules.told)
    assert {finding.code for finding in findings} <= {"V061"}


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_places_outside_are_found_exactly(seed: int) -> None:
    root = _Maker(random.Random(seed)).block("main", [], [], 0)
    if not _small(root):
        return
    rules = PlaceRules(HW)
    found = {
        finding.message.split("'")[1]
        for nest in nests(sites(root))
        for finding in rules.findings(nest)
        if "refinement" in finding.message
    }
    assert found == {copy.life.ref.name for copy in _copies(root) if not copy.fits()}


def _constrained(block: Block) -> bool:
    return bool(block.constraints) or any(map(_constrained, block.children))


def test_no_right_placement_takes_less_than_the_peak() -> None:
    tight = right = 0
    for seed in range(600):
        root = _Maker(random.Random(seed)).block("main", [], [], 0)
        if not 2 <= len(_copies(root)) <= 40 or _constrained(root) or list(_Overlaps(HW).findings(root)):
            continue
        taken = {byte for copy in _copies(root) if _uses(copy) for byte in copy.bytes()}
        most = peaks(root, HW).get("M")
        assert (most.bytes if most is not None else 0) <= len(taken)
        right += 1
        tight += most is not None and most.bytes == len(taken)
    assert right > 30 and tight > 15
