"""What `stencil` could make of a nest: every stencil, map and size that fits, cheapest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hwconfigs.model import HwConfig, Stencil
from stripe.analysis.bounds import Leaf, leaves
from stripe.analysis.stencils import matches
from stripe.analysis.stencils_cost import Memo, Sized, rank, sized, weighed
from stripe.ir import Block
from stripe.passes.choices import Choice, Count
from stripe.passes.stencil_build import ways
from stripe.visit import View


class InnerUse(Choice, frozen=True):
    """How one use of a stencil is made of uses of another."""

    indexes: dict[str, str]
    sizes: dict[str, Count]


class StencilUse(Choice, frozen=True):
    """The stencil that a block is cut into uses of. `indexes` gives for its indexes those of the nest,
    `sizes` the points of one use along these: as many as it takes, where none are given. `inner`: the same
    for the stencil that it is made of. `shift`: operands of the stencil for which the operand here gets
    the other signedness first, in this order.
    """

    stencil: str
    indexes: dict[str, str]
    sizes: dict[str, Count] = msgspec.field(default_factory=dict)
    inner: InnerUse | None = None
    shift: tuple[str, ...] = ()


class NotSo(Exception):
    """Why a stencil can't be used as it was chosen, as a clause, and the field of the choice."""

    def __init__(self, reason: str, field: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.field = field


@dataclass(frozen=True, slots=True)
class Option:
    """The leaf at the end of `way` as uses of a stencil; `order` is the stencil's place in the list."""

    way: tuple[int, ...]
    leaf: Leaf
    found: Sized
    order: int

    @property
    def key(self) -> tuple[object, ...]:
        """Cheaper ones first; ties never depend on names."""
        cost, *ties = rank(self.found, self.leaf)
        return (cost, self.order, *ties)


@dataclass(slots=True)
class Offered:
    """Options for the leading leaf of a nest, best first; if there are none, the reason that came
    closest. `looked_at` counts combinations of sizes, `beyond` those that exceed the registers."""

    options: list[Option] = field(default_factory=list)
    reason: str = ""
    reached: int = -1
    looked_at: int = 0
    beyond: int = 0

    def fail(self, reached: int, reason: str) -> None:
        if reached > self.reached:
            self.reached, self.reason = reached, reason

    def distinct(self) -> list[Option]:
        """The best option of each map."""
        found: dict[int, Option] = {}
        for option in self.options:
            found.setdefault(id(option.found.fit), option)
        return list(found.values())


@dataclass(frozen=True, slots=True)
class Chooser:
    """Weighs what the stencils can do for a nest; keeps what it weighed for leaves that are alike.

    What costs no less than points one at a time, on the fastest unit that can, is not taken, unless
    `always`.
    """

    stencils: Sequence[Stencil]
    hw: HwConfig
    limit: int
    always: bool = False
    memo: Memo = field(default_factory=dict)

    def choose(self, block: Block, outer: Mapping[str, View], offsets: bool = False) -> Offered:
        """The options of the leaf with most points among those that fit a stencil.

        Of leaves with equally many points, the first leads.
        """
        found = zip(ways(block), leaves(block, outer, every_level=True), strict=True)
        choice = Offered(reason="it computes nothing")
        for way, leaf in sorted(found, key=lambda pair: -pair[1].points):
            for order, stencil in enumerate(self.stencils):
                self._weigh(choice, way, leaf, order, stencil, offsets)
            if choice.options:
                break
        choice.options.sort(key=lambda option: option.key)
        return choice

    def given(
        self, block: Block, outer: Mapping[str, View], indexes: Mapping[str, str], sizes: Mapping[str, int]
    ) -> Option:
        """The option with these indexes and sizes for the one stencil. Raises NotSo if there is none."""
        found = zip(ways(block), leaves(block, outer, every_level=True), strict=True)
        (stencil,) = self.stencils
        reached, reason, maps = -1, "it computes nothing", dict[str, None]()
        for way, leaf in sorted(found, key=lambda pair: -pair[1].points):
            matched = matches(stencil, leaf)
            if not matched.fits and matched.reached > reached:
                reached, reason = matched.reached, matched.reason
            for fit in matched.fits:
                if dict(fit.indexes) != dict(indexes):
                    maps[" ".join(f"{role}={name}" for role, name in fit.indexes.items())] = None
                    continue
                for name, size in sizes.items():
                    if name not in fit.indexes.values():
                        raise NotSo(f"no index of '{stencil.name}' is '{name}'", "sizes")
                    if size > leaf.ranges[name]:
                        over = size - leaf.ranges[name]
                        reason = f"{name} has {leaf.ranges[name]} points, the use {size}: {over} too many"
                        raise NotSo(reason, f"sizes.{name}")
                made = sized(fit, leaf, self.hw, sizes)
                if isinstance(made, str):
                    raise NotSo(made, "sizes")
                return Option(way, leaf, made, 0)
        if maps:
            reason = f"'{stencil.name}' has no such indexes here, but these: {', or '.join(maps)}"
            raise NotSo(reason, "indexes")
        raise NotSo(f"it is no use of '{stencil.name}': {reason}", "stencil")

    def _weigh(
        self, choice: Offered, way: tuple[int, ...], leaf: Leaf, order: int, stencil: Stencil, offsets: bool
    ) -> None:
        """Add the options that one stencil gives for a leaf, or the reason why it gives none."""

        def fail(reached: int, reason: str) -> None:
            choice.fail(reached, f"closest to '{stencil.name}', but {reason}")

        matched = matches(stencil, leaf, offsets)
        if not matched.fits:
            fail(matched.reached, matched.reason)
        plain = None if self.always else self._plain_cycles(leaf)
        for fit in matched.fits:
            found = weighed(fit, leaf, self.hw, self.limit, self.memo)
            choice.looked_at += found.looked_at
            choice.beyond += found.beyond
            paying = [s for s in found.fitting if plain is None or (s.cost is not None and s.cost < plain)]
            choice.options += [Option(way, leaf, s, order) for s in paying]
            if paying:
                continue
            if found.fitting:
                cost = found.fitting[0].cost or 0.0
                text = f"its uses cost {cost:.4g} cycles, its points by themselves {plain:.4g}"
                fail(matched.reached + 1, f"{text}: {matched.reason}" if matched.reason else text)
            elif found.excluded:
                least = min(s.registers for s in found.excluded)
                fail(matched.reached, f"its smallest use needs {least:g} registers")
            else:
                fail(matched.reached, "no legal size holds one point")

    def _plain_cycles(self, leaf: Leaf) -> float | None:
        """What the leaf takes one point at a time; None where no unit can do that."""
        rates = [u.fma_per_cycle for u in self.hw.compute_units if u.operations]
        return leaf.points / max(rates) if rates else None
