"""What a Tile contraction means, point by point, in exact arithmetic on Python's integers.

A second telling of docs/tile.md for the tests: a point is an integer value for every index such
that each subscript is an integer in range and each constraint holds. Nothing is inferred: all
values up to a limit are tried, and the limit is doubled until all points lie within half of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Element = tuple[int, ...]
Values = Callable[[Element], int]


@dataclass(frozen=True)
class Subscript:
    """(sum(coefficient * index) + const) / divisor."""

    terms: tuple[tuple[str, int], ...]
    const: int = 0
    divisor: int = 1

    def __str__(self) -> str:
        text = ""
        for name, coefficient in self.terms:
            size = abs(coefficient)
            factor = name if size == 1 else f"{size}*{name}"
            sign = "-" if coefficient < 0 else "+"
            text += f" {sign} {factor}" if text else f"{'-' if coefficient < 0 else ''}{factor}"
        if self.const or not text:
            text += f" {'-' if self.const < 0 else '+'} {abs(self.const)}" if text else str(self.const)
        return text if self.divisor == 1 else f"({text})/{self.divisor}"

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.terms)

    def at(self, point: Mapping[str, int]) -> int | None:
        """The value at a point, or None where it is no integer."""
        value, rest = divmod(self.const + sum(c * point[n] for n, c in self.terms), self.divisor)
        return None if rest else value

    def __contains__(self, name: object) -> bool:
        return name in self.names


Access = tuple[Subscript, ...]
AGGREGATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    ">": max,
    "<": min,
}


@dataclass(frozen=True)
class ContractionSpec:
    """`name[target : sizes] = aggregation(operands)`; a constraint (p, e) says 0 <= p < e."""

    target: Access
    sizes: tuple[int, ...]
    aggregation: str
    combination: str  # "", "+", "*", "==", or "?" for a == b ? c
    operands: tuple[tuple[str, Access], ...]
    constraints: tuple[tuple[Subscript, int], ...] = ()
    default: str = ""

    def text(self, name: str) -> str:
        operands = [f"{tensor}[{', '.join(map(str, access))}]" for tensor, access in self.operands]
        if self.combination == "?":
            joined = f"{operands[0]} == {operands[1]} ? {operands[2]}"
        else:
            joined = f" {self.combination} ".join(operands)
        target = ", ".join(map(str, self.target))
        sizes = ", ".join(map(str, self.sizes))
        constraints = "".join(f", {p} < {e}" for p, e in self.constraints)
        default = f" default {self.default}" if self.default else ""
        head = f"{name}[{target} : {sizes}]" if self.target else f"{name}[]"
        return f"{head} = {self.aggregation}({joined}){constraints}{default};"

    @property
    def indexes(self) -> tuple[str, ...]:
        accesses = (self.target, *(access for _, access in self.operands))
        return tuple(dict.fromkeys(n for access in accesses for s in access for n, _ in s.terms))


class SeveralWritesError(Exception):
    """`=` writes one element at several points."""


def points(spec: ContractionSpec, shapes: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """All points of a bounded contraction."""
    limits = list(zip(spec.target, spec.sizes, strict=True))
    for tensor, access in spec.operands:
        limits += zip(access, shapes[tensor], strict=True)
    limits += spec.constraints
    reach = 24
    while True:
        found = list(_search(spec.indexes, limits, reach, {}))
        if not any(2 * abs(value) > reach for point in found for value in point.values()):
            return found
        if reach > 256:
            raise ValueError(f"this contraction looks unbounded: {spec.text('R')}")
        reach *= 2


def _search(
    indexes: Sequence[str], limits: Sequence[tuple[Subscript, int]], reach: int, point: dict[str, int]
) -> Iterator[dict[str, int]]:
    """Give the indexes values one by one; check a subscript as soon as all of its own are given."""
    now = [(s, size) for s, size in limits if s.names <= point.keys()]
    for subscript, size in now:
        value = subscript.at(point)
        if value is None or not 0 <= value < size:
            return
    if not indexes:
        yield dict(point)
        return
    later = [limit for limit in limits if limit not in now]
    for value in range(-reach, reach + 1):
        yield from _search(indexes[1:], later, reach, point | {indexes[0]: value})


def contract(
    spec: ContractionSpec,
    shapes: Mapping[str, Sequence[int]],
    values: Mapping[str, Values],
    default: Values = lambda element: 0,
) -> dict[Element, int]:
    """The elements of the result, without wrapping; what no point writes is from `default`."""
    result: dict[Element, int] = {}
    for point in points(spec, shapes):
        read = [values[tensor](_element(access, point)) for tensor, access in spec.operands]
        match spec.combination:
            case "+":
                value = sum(read)
            case "*":
                value = math.prod(read)
            case "==":
                value = int(read[0] == read[1])
            case "?":
                value = read[2] if read[0] == read[1] else 0
            case _:
                value = read[0]
        target = _element(spec.target, point)
        if target in result:
            if spec.aggregation == "=":
                raise SeveralWritesError(target)
            value = AGGREGATIONS[spec.aggregation](result[target], value)
        result[target] = value
    for element in _elements(spec.sizes):
        result.setdefault(element, default(element))
    return result


def _element(access: Access, point: Mapping[str, int]) -> Element:
    found = tuple(s.at(point) for s in access)
    assert None not in found, "points have integer subscripts"
    return tuple(value for value in found if value is not None)


def _elements(sizes: Sequence[int]) -> Iterator[Element]:
    if not sizes:
        yield ()
        return
    for first in range(sizes[0]):
        for rest in _elements(sizes[1:]):
            yield (first, *rest)
