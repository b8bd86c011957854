"""What is decided about two neighbouring blocks: that they share outer indexes, or why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from stripe.ir import Aggregation, Direction, Refinement


@dataclass(frozen=True, slots=True)
class Pair:
    """Indexes of the two blocks that become one: first = second + offset."""

    first: str
    second: str
    offset: int


@dataclass(frozen=True, slots=True)
class SharedIndex:
    """A shared outer index; index `first` is its value plus `low`, which makes it start at 0."""

    pair: Pair
    low: int
    size: int


@dataclass(frozen=True, slots=True)
class OuterUse:
    """How the outer block must declare a buffer that its statements use."""

    direction: Direction
    aggregation: Aggregation | None


Rank: TypeAlias = tuple[bool, int, int]
"""Which of several plans to carry out first (greatest): flat, shared indexes, bytes gained."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A fusion that is legal and pays. `flat`: neither block keeps an index of its own. `apart`: what both
    write, each elements of its own, and neither reads."""

    shared: tuple[SharedIndex, ...]
    uses: Mapping[str, OuterUse]
    gain: int
    flat: bool
    apart: frozenset[str] = frozenset()

    def use(self, view: Refinement) -> OuterUse:
        """How the outer block declares the buffer that a view of one of the two shows."""
        return self.uses.get(view.source) or OuterUse(view.direction, view.aggregation)

    @property
    def rank(self) -> Rank:
        return self.flat, len(self.shared), self.gain


@dataclass(frozen=True, slots=True)
class Declined:
    """Why two blocks stay apart; `related` is false where they have nothing in common."""

    reason: str
    related: bool = True
