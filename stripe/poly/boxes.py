"""Finite sets as ranges that start at 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.poly.domain import Domain, as_inequalities


class Unbounded(Exception):
    """A set that must be finite is not; `names` are the indexes without a bound."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"unbounded: {', '.join(names)}")
        self.names = names


@dataclass(frozen=True, slots=True)
class Boxed:
    """A finite set as ranges and constraints: old index = new index + offset.

    `ranges` are tight: each new index takes 0 and range - 1. `constraints` (each >= 0, over
    the new indexes) are those that the ranges do not imply.
    """

    ranges: dict[str, int]
    offsets: dict[str, int]
    constraints: tuple[Affine, ...]


def boxed(domain: Domain) -> list[Boxed] | None:
    """The disjoint pieces of a bounded domain, each as ranges from 0, offsets and constraints.

    None where a piece needs an existential variable (see `reparametrise`); `Unbounded` where
    a dimension has no limits; an empty list for the empty set.
    """
    pieces = domain.pieces(disjoint=True)
    if pieces is None:
        return None
    return [_boxed(domain.names, *piece) for piece in pieces]


def _boxed(names: Sequence[str], inequalities: list[Affine], equalities: list[Affine]) -> Boxed:
    domain = Domain.of(names, inequalities, equalities)
    limits = {name: domain.bounds(Affine.index(name)) for name in names}
    free = tuple(name for name, limit in limits.items() if limit is None)
    if free:
        raise Unbounded(free)
    offsets = {name: limit[0] for name, limit in limits.items() if limit is not None}
    ranges = {name: limit[1] - limit[0] + 1 for name, limit in limits.items() if limit is not None}
    shift = {name: Affine(offset, ((name, 1),)) for name, offset in offsets.items()}
    shifted = Domain.of(
        names, [e.substitute(shift) for e in inequalities], [e.substitute(shift) for e in equalities]
    )
    left = shifted.piece_beyond(Domain.box(ranges))
    if left is None:
        raise InvariantError("the gist of a conjunction is not a conjunction")
    return Boxed(ranges, offsets, tuple(sorted(as_inequalities(left), key=lambda e: (e.terms, e.const))))
