"""Translation validation: relations that take the points of one set to those of another, one to one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from stripe.affine import Affine
from stripe.poly import Domain
from stripe.validate_terms import onto

MAX_MATCHES = 64  # ways to match indexes that only repeat a value


def one_to_one(pairs: Domain, left: Sequence[str], right: Sequence[str]) -> Domain | None:
    """A part of a relation that takes each of its points of the left side to one of the right, and
    back, and leaves none out; None if there is none among those tried.

    Where equal values can't tell points apart, those that only repeat a value are matched in order: one
    index with one, or with several that it was split into, as digits of a number.
    """
    if _is_one_to_one(pairs, left, right):
        return pairs
    ones = _undetermined(pairs, left, right)
    twos = _undetermined(pairs, right, left)
    if not ones or not twos:
        return None
    few, many = (ones, twos) if len(ones) <= len(twos) else (twos, ones)
    if len(few) ** len(many) > MAX_MATCHES:
        return None
    sizes = {name: _size(pairs, name) for name in (*few, *many)}
    if None in sizes.values():
        return None
    lefts, rights = onto(pairs, left), onto(pairs, right)
    for choice in product(few, repeat=len(many)):
        digits = {name: Affine() for name in few}
        for name, whole in zip(many, choice, strict=True):
            digits[whole] = digits[whole] * (sizes[name] or 1) + Affine.index(name)
        matched = pairs.with_constraints([], [Affine.index(name) - value for name, value in digits.items()])
        if (
            _is_one_to_one(matched, left, right)
            and lefts.is_subset(onto(matched, left))
            and rights.is_subset(onto(matched, right))
        ):
            return matched
    return None


def _is_one_to_one(pairs: Domain, left: Sequence[str], right: Sequence[str]) -> bool:
    return all(
        pairs.determines(given, [name for name in others if name not in given])
        for given, others in ((left, right), (right, left))
    )


def _undetermined(pairs: Domain, left: Sequence[str], right: Sequence[str]) -> list[str]:
    """The names of the left side that the right side does not determine."""
    return [name for name in left if name not in right and not pairs.determines(right, [name])]


def _size(pairs: Domain, name: str) -> int | None:
    bounds = pairs.bounds(Affine.index(name))
    return None if bounds is None or bounds[0] != 0 else bounds[1] + 1


def overlap(domains: Sequence[Domain]) -> bool:
    return any(not a.intersect(b).is_empty() for at, a in enumerate(domains) for b in domains[at + 1 :])
