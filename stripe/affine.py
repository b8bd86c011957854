"""Affine expressions over named indexes: const + sum(coefficient * index)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Affine:
    """const + sum(coefficient * name), in a canonical form: sorted by name, no zero terms."""

    const: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(terms: Mapping[str, int], const: int = 0) -> Affine:
        return Affine(const, tuple(sorted([term for term in terms.items() if term[1]])))

    @staticmethod
    def index(name: str, coefficient: int = 1) -> Affine:
        return Affine(0, ((name, coefficient),)) if coefficient else Affine()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple([name for name, _ in self.terms])

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def coefficient(self, name: str) -> int:
        for term, coefficient in self.terms:
            if term == name:
                return coefficient
        return 0

    @staticmethod
    def weighted(exprs: Iterable[Affine], factors: Iterable[int]) -> Affine:
        """The sum of expressions, each times its factor, as of positions and strides."""
        const, total = 0, dict[str, int]()
        for expr, factor in zip(exprs, factors, strict=True):
            const += expr.const * factor
            for name, coefficient in expr.terms:
                total[name] = total.get(name, 0) + coefficient * factor
        return Affine.of(total, const)

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.const + other, self.terms) if other else self
        if not other.terms:
            return self if not other.const else Affine(self.const + other.const, self.terms)
        if not self.terms:
            return other if not self.const else Affine(self.const + other.const, other.terms)
        total = dict(self.terms)
        for name, coefficient in other.terms:
            total[name] = total.get(name, 0) + coefficient
        return Affine.of(total, self.const + other.const)

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other)

    def __mul__(self, factor: int) -> Affine:
        if factor == 0:
            return Affine()
        if factor == 1:
            return self
        return Affine(self.const * factor, tuple([(n, c * factor) for n, c in self.terms]))

    def divided(self, by: int) -> Affine | None:
        """The expression in units of `by`; None if a coefficient or the constant is no multiple of it."""
        if self.const % by or any(count % by for _, count in self.terms):
            return None
        return Affine.of({name: count // by for name, count in self.terms}, self.const // by)

    def substitute(self, values: Mapping[str, Affine]) -> Affine:
        """Replace each index named in `values` by an affine expression; keep the others."""
        for name, _ in self.terms:
            if name in values:
                break
        else:
            return self
        if len(self.terms) == 1:
            ((name, coefficient),) = self.terms
            return values[name] * coefficient + self.const
        const, total = self.const, dict[str, int]()
        for name, coefficient in self.terms:
            value = values.get(name)
            if value is None:
                total[name] = total.get(name, 0) + coefficient
                continue
            const += value.const * coefficient
            for inner, factor in value.terms:
                total[inner] = total.get(inner, 0) + factor * coefficient
        return Affine.of(total, const)

    def rename(self, new_name: Callable[[str], str]) -> Affine:
        """The expression with other names; terms that come to share a name are added."""
        total: dict[str, int] = {}
        for name, coefficient in self.terms:
            renamed = new_name(name)
            total[renamed] = total.get(renamed, 0) + coefficient
        return Affine.of(total, self.const)

    def without(self, names: frozenset[str] | set[str]) -> Affine:
        """Drop the terms of `names`, as if those indexes were 0."""
        return Affine(self.const, tuple([term for term in self.terms if term[0] not in names]))

    def only(self, names: frozenset[str] | set[str]) -> Affine:
        """Keep only the terms of `names`, without the constant."""
        return Affine(0, tuple([term for term in self.terms if term[0] in names]))

    def evaluate(self, values: Mapping[str, int]) -> int:
        return self.const + sum(c * values[n] for n, c in self.terms)

    def bounds(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Least and greatest value when each index lies in its closed interval (a box)."""
        low = high = self.const
        for name, coefficient in self.terms:
            first, last = ranges[name]
            low += coefficient * (first if coefficient > 0 else last)
            high += coefficient * (last if coefficient > 0 else first)
        return low, high

    def __str__(self) -> str:
        """`3*x + y - 1`; positive terms first so that nothing starts with a lone minus."""
        ordered = sorted(self.terms, key=lambda term: (term[1] < 0, term[0]))
        text = ""
        if self.const and (not ordered or ordered[0][1] < 0):
            text = str(self.const)
        for name, coefficient in ordered:
            size = abs(coefficient)
            factor = name if size == 1 else f"{size}*{name}"
            if not text:
                text = factor if coefficient > 0 else f"-{factor}"
            else:
                text += f" {'+' if coefficient > 0 else '-'} {factor}"
        if not text:
            return str(self.const)
        if self.const and ordered and ordered[0][1] > 0:
            text += f" {'+' if self.const > 0 else '-'} {abs(self.const)}"
        return text


def row_major(sizes: Mapping[str, int]) -> Affine:
    """The number of a point among those of a box, of which the last index varies fastest."""
    number, step = Affine(), 1
    for name, size in reversed([*sizes.items()]):
        number, step = number + Affine.index(name, step), step * size
    return number


def box_of(ranges: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The first and the last value of each index of a box: what `Affine.bounds` takes."""
    return {name: (0, size - 1) for name, size in ranges.items()}
