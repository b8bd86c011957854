"""Translation validation: where do two terms have the same value?

`Prover.agree(a, b, within)` gives points of `within` at which term `a` of the one program and term
`b` of the other are proved equal; what is left out may still be equal. Scalar functions agree
where their operands do. Loads are opened until they meet an input, or a buffer of both roots that
was proved equal before. Two aggregations agree at a point if there is a one-to-one relation
between their writes such that related writes are equal (for `max` and `min`: a relation that leaves
none out): the relation tried is the largest, all pairs that agree. Aggregations of aggregations
with one operation are one; that is the reassociation that the IR allows. Else sums are those
of products: a product of sums is one, too, and factors may come in any order.

What was asked about two buffers is remembered as a relation between their elements, so that a
value with many uses is proved once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from stripe import intrinsics
from stripe.affine import Affine
from stripe.ir import Aggregation, Operand
from stripe.poly import Domain, box_limits
from stripe.validate_match import one_to_one, overlap
from stripe.validate_terms import (
    Apply,
    Given,
    Known,
    Made,
    Number,
    Piece,
    Placed,
    Read,
    Sum,
    Term,
    alike,
    coordinates_of,
    is_commutative,
    is_known,
    join,
    onto,
    place,
    union,
    word,
)
from stripe.validate_values import Values, folded

MOST_FACTORS = 8  # of a product that is taken apart
IDEMPOTENT = (Aggregation.MAX, Aggregation.MIN)


Steps: TypeAlias = Generator[tuple[Term, Term, Domain], Domain, Domain]
Factors: TypeAlias = tuple[Domain, tuple[Term, ...]]
SomeSteps: TypeAlias = Generator[tuple[Term, Term, Domain], Domain, Domain | None]


class GaveUp(Exception):
    """A proof was given up; the reason is a clause."""


@dataclass
class _Asked:
    """A question about two buffers that was answered: which pairs of elements, and which agree."""

    pairs: Domain
    agreed: Domain


@dataclass
class Prover:
    """Compares values of two programs. `is_cut` says whether a read sees a buffer of the root that is
    known to hold the same in both programs from then on."""

    before: Values
    after: Values
    is_cut: Callable[[Read], bool]
    budget: int = 4000
    reasons: list[str] = field(default_factory=list)
    _count: int = 0
    _asked: dict[object, list[_Asked]] = field(default_factory=dict)
    _equal: dict[int, tuple[Domain, frozenset[Affine]]] = field(default_factory=dict)
    _done: dict[tuple[int, int, int], tuple[Domain, Domain, Term, Term]] = field(default_factory=dict)

    def restart(self) -> None:
        """Forget sets and terms, keep nothing: the next proof has dimensions of its own."""
        self.reasons.clear()
        self._count = 0
        self._asked.clear()
        self._equal.clear()
        self._done.clear()
        self.before.restart()
        self.after.restart()

    # -- the question --------------------------------------------------------------------------

    def agree(self, a: Term, b: Term, within: Domain) -> Domain:
        """Points of `within` where the two are equal; the same object if all are.

        The steps of a proof are generators that yield the questions they have: chains of loads
        may be long, and stand on this list, not on Python's stack.
        """
        open_steps = [self._answer(a, b, within)]
        answer: Domain | None = None
        while True:
            try:
                question = open_steps[-1].send(answer)  # type: ignore[arg-type]
            except StopIteration as stop:
                open_steps.pop()
                answer = stop.value
                if not open_steps:
                    assert isinstance(answer, Domain)
                    return answer
            else:
                open_steps.append(self._answer(*question))
                answer = None

    def _answer(self, a: Term, b: Term, within: Domain) -> Steps:
        key = (id(a), id(b), id(within))
        known = self._done.get(key)
        if known is None:
            self._count += 1
            if self._count > self.budget:
                raise GaveUp(f"the proof takes more than {self.budget} steps")
            agreed = yield from self._agree(a, b, within)
            known = self._done[key] = (agreed, within, a, b)
        return known[0]

    def _agree(self, a: Term, b: Term, within: Domain) -> Steps:
        nowhere = Domain.empty(within.names)
        if within.is_empty():
            return within
        if a.dtype is not b.dtype:
            return self._differ(f"{a.dtype} against {b.dtype}", nowhere)
        a, b = self._outward(self.before, a), self._outward(self.after, b)
        match a, b:
            case Given(name=one), Given(name=two):
                if one != two:
                    return self._differ(f"input {one} against {two}", nowhere)
                return self._same_element(a.element, b.element, within)
            case Known(), Known():
                if repr(a.value) == repr(b.value):
                    return within
                return self._differ(f"{a.value} against {b.value}", nowhere)
            case Number(), Number():
                return self._equals(a.expr - b.expr, within)
            case (Number(expr=expr), Known() as constant) | (Known() as constant, Number(expr=expr)):
                return self._is_number(expr, constant, within)
            case Read(), Read():
                if a.buffer == b.buffer and self.is_cut(a) and self.is_cut(b):
                    return self._same_element(a.element, b.element, within)
                return (yield from self._remembered(a, b, within))
            case Read(), _:
                return (yield from self._opened(a, b, within))
            case _, Read():
                return (yield from self._opened(a, b, within))
            case (Sum(), _) | (_, Sum()):
                return (yield from self._remembered(a, b, within))
            case Made(), Made():
                return (yield from self._same_special(a, b, within))
            case Apply(), Apply() if alike(a, b):
                found = yield from self._same_operands(a, b, within)
                if found.is_empty():
                    again = yield from self._constants(a, b, within)
                    return found if again is None else again
                return found
        if isinstance(a, Apply | Number) or isinstance(b, Apply | Number):
            again = yield from self._constants(a, b, within)
            if again is not None:
                return again
        return self._differ(f"{word(a)} against {word(b)}", nowhere)

    def _differ(self, reason: str, nowhere: Domain) -> Domain:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return nowhere

    def _outward(self, values: Values, term: Term) -> Term:
        return values.source(term) if isinstance(term, Read) else term

    # -- scalars ---------------------------------------------------------------------------------

    def _equals(self, difference: Affine, within: Domain) -> Domain:
        """The points where an expression is 0."""
        if not difference.terms:
            return Domain.empty(within.names) if difference.const else within
        if difference.terms[0][1] < 0:
            difference = -difference
        entry = self._equal.get(id(within))
        if entry is not None and difference in entry[1]:
            return within
        implied = within.bounds(difference) == (0, 0)
        made = within if implied else within.with_constraints([], [difference])
        held = frozenset() if entry is None else entry[1]
        own = self._equal.get(id(made))
        self._equal[id(made)] = (made, held | {difference} | (frozenset() if own is None else own[1]))
        return made

    def _same_element(self, a: Sequence[Affine], b: Sequence[Affine], within: Domain) -> Domain:
        for one, two in zip(a, b, strict=True):
            if within.is_empty():
                return within
            within = self._equals(one - two, within)
        return within

    def _is_number(self, expr: Affine, constant: Known, within: Domain) -> Domain:
        whole = int(constant.value) if np.isfinite(constant.value) else 0
        exact = intrinsics.cast(np.asarray(whole, np.int64), constant.dtype)
        if abs(whole) >= 1 << 24 or not is_known(constant, float(exact)):
            return Domain.empty(within.names)
        return self._equals(expr - whole, within)

    def _same_operands(self, a: Apply, b: Apply, within: Domain) -> Steps:
        """Where two applications of one function agree. What below them is alike is walked through
        first, without recursion: expressions may be deep, and parts of them shared."""
        leaves: dict[tuple[int, int], tuple[Term, Term]] = {}
        pending: list[tuple[Term, Term]] = [(a, b)]
        while pending:
            one, two = pending.pop()
            if (id(one), id(two)) in leaves:
                continue
            leaves[id(one), id(two)] = (one, two)
            if isinstance(one, Apply) and isinstance(two, Apply) and alike(one, two):
                pending += zip(one.operands, two.operands, strict=True)
        straight = within
        for one, two in leaves.values():
            if not (isinstance(one, Apply) and isinstance(two, Apply) and alike(one, two)):
                straight = yield one, two, straight
        if straight is within or not straight.is_empty():
            return straight
        if is_commutative(a.op):
            x, y = a.operands
            v, w = b.operands
            in_order = yield y, w, (yield x, v, within)  # what changed places may lie further down
            if in_order is within or not in_order.is_empty():
                return in_order
            return (yield y, v, (yield x, w, within))
        for one, two in zip(a.operands, b.operands, strict=True):
            within = yield one, two, within
        return within

    def _same_special(self, a: Made, b: Made, within: Domain) -> Steps:
        one, two = a.special, b.special
        if (one.name, one.params, len(one.operands)) != (two.name, two.params, len(two.operands)):
            return self._differ(f"special {one.name} against {two.name}", Domain.empty(within.names))
        within = self._same_element(a.element, b.element, within)
        for x, y in zip(one.operands, two.operands, strict=True):
            if (x.direction, x.aggregation) != (y.direction, y.aggregation):
                return self._differ(f"unlike operands of special {one.name}", Domain.empty(within.names))
            if not x.direction.reads:
                continue
            names = [f"z{self._count}.{axis}" for axis in range(len(_shape(a, x)))]
            if _shape(a, x) != _shape(b, y):
                return self._differ(f"unlike operands of special {one.name}", Domain.empty(within.names))
            box = dict(zip(names, _shape(a, x), strict=True))
            whole = within.extended(names).with_constraints(box_limits(box))
            agreed = yield _operand(a, x, names), _operand(b, y, names), whole
            within = self._without(within, whole, agreed)
        return within

    # -- loads -----------------------------------------------------------------------------------

    def _opened(self, a: Term, b: Term, within: Domain) -> Steps:
        """Open the loads among the two, one step."""
        narrow = self._narrowed(a, b, within)
        # A buffer that both programs have waits until the other side has come to it.
        wait_a = isinstance(a, Read) and isinstance(b, Read) and self.is_cut(a) and not self.is_cut(b)
        wait_b = isinstance(a, Read) and isinstance(b, Read) and self.is_cut(b) and not self.is_cut(a)
        ones = self.before.read(a, narrow) if isinstance(a, Read) and not wait_a else [(narrow, a)]
        agreed: list[Domain] = []
        for here, one in ones:
            twos = self.after.read(b, here) if isinstance(b, Read) and not wait_b else [(here, b)]
            for there, two in twos:
                found = yield one, two, there
                if found is narrow:
                    return within
                if not found.is_empty():
                    agreed.append(onto(found, narrow.names))
        return self._widened(union(agreed, narrow.names), narrow, within)

    def _narrowed(self, a: Term, b: Term, within: Domain) -> Domain:
        """The points over the dimensions that the terms depend on."""
        needed = a.dims | b.dims
        if all(name in needed for name in within.names):
            return within
        return within.project_onto([name for name in within.names if name in needed])

    def _widened(self, agreed: Domain, narrow: Domain, within: Domain) -> Domain:
        if narrow.is_subset(agreed):
            return within
        if agreed.is_empty():
            return Domain.empty(within.names)
        return join(within, agreed)

    def _without(self, within: Domain, whole: Domain, agreed: Domain) -> Domain:
        """The points of `within` above which all of `whole` agrees."""
        if agreed is whole:
            return within
        wrong = whole.subtract(agreed)
        return within if wrong.is_empty() else within.subtract(onto(wrong, within.names))

    def _remembered(self, a: Term, b: Term, within: Domain) -> Steps:
        """The answer for two places of which some elements may have been compared before."""
        assert isinstance(a, Placed) or isinstance(b, Placed)
        coordinates = [*coordinates_of(a), *coordinates_of(b)]
        key = (place(a), place(b))
        names = [f"r{at}" for at in range(len(coordinates))]
        pairs = within.image(coordinates, names)
        for asked in self._asked.get(key, ()):
            if pairs.is_subset(asked.pairs):
                if asked.pairs is asked.agreed:
                    return within
                values = dict(zip(names, coordinates, strict=True))
                return within.intersect(asked.agreed.preimage(values, within.names))
        if isinstance(a, Read) or isinstance(b, Read):
            found = yield from self._opened(a, b, within)
        else:
            found = yield from self._same_sums(a, b, within)
        if place(a) is not None and place(b) is not None:
            agreed = pairs if found is within else found.image(coordinates, names)
            self._asked.setdefault(key, []).append(_Asked(pairs, agreed))
        return found

    # -- aggregations ----------------------------------------------------------------------------

    def _same_sums(self, a: Term, b: Term, within: Domain) -> Steps:
        total = a if isinstance(a, Sum) else b
        assert isinstance(total, Sum)
        if isinstance(a, Sum) and isinstance(b, Sum) and a.aggregation is not b.aggregation:
            return self._differ(f"{a.aggregation} against {b.aggregation}", Domain.empty(within.names))
        narrow = self._narrowed(a, b, within)
        agreed = Domain.empty(narrow.names)
        for through in (False, True):
            ones = self._terms(self.before, a, total, narrow, through)
            twos = self._terms(self.after, b, total, narrow, through)
            agreed = yield from self._matched(ones, twos, total.aggregation, narrow)
            if agreed is narrow or not agreed.is_empty():
                break
        if total.aggregation is Aggregation.ADD and not narrow.is_subset(agreed):
            # Single terms may have agreed already.
            products = yield from self._same_products(a, b, total, narrow)
            agreed = narrow if products is narrow else union([agreed, products], narrow.names)
        return self._widened(agreed, narrow, within) if agreed is not narrow else within

    def _terms(self, values: Values, term: Term, total: Sum, within: Domain, through: bool) -> list[Piece]:
        """What is aggregated, with aggregations inside taken apart. `through`: also in buffers of
        the root that are equal in both programs."""
        found: list[Piece] = []
        pending: list[Piece] = [(within, term)]
        while pending:
            points, current = pending.pop()
            if isinstance(current, Read):
                current = values.source(current)
            if isinstance(current, Sum) and (current.aggregation, current.dtype) == (
                total.aggregation, total.dtype,
            ):  # fmt: skip
                pending += values.writes(current, points)
            elif isinstance(current, Read) and (through or not self.is_cut(current)):
                pending += values.read(current, points)
            else:
                found.append((points, current))
            if len(found) + len(pending) > 200:
                raise GaveUp("an aggregation of too many parts")
        neutral = float(intrinsics.neutral(total.aggregation, total.dtype))
        real = [piece for piece in found if not is_known(piece[1], neutral)]
        if len(real) == len(found):
            return found
        covered = union([onto(points, within.names) for points, _ in real], within.names)
        return [
            (points, current) for points, current in found
            if not is_known(current, neutral) or not onto(points, within.names).is_subset(covered)
        ]  # fmt: skip

    def _matched(
        self, ones: Sequence[Piece], twos: Sequence[Piece], how: Aggregation, within: Domain
    ) -> Steps:
        """The points of `within` at which the writes of both sides match one to one."""
        nowhere = Domain.empty(within.names)
        pairs: dict[tuple[int, int], Domain] = {}
        for i, (here, one) in enumerate(ones):
            for j, (there, two) in enumerate(twos):
                found: Domain | None = yield one, two, join(here, there)
                if found is None or found.is_empty():
                    continue
                if how not in IDEMPOTENT:
                    found = one_to_one(found, here.names, there.names)
                    if found is None:
                        return self._differ("parts of an aggregation can't be told apart", nowhere)
                pairs[i, j] = found
        sides = [points for points, _ in ones], [points for points, _ in twos]
        return self._covered(pairs, sides, how, within)

    def _covered(
        self,
        pairs: Mapping[tuple[int, int], Domain],
        sides: tuple[Sequence[Domain], Sequence[Domain]],
        how: Aggregation,
        within: Domain,
    ) -> Domain:
        """The points of `within` at which each write of either side is in one of the pairs."""
        nowhere = Domain.empty(within.names)
        left = within
        for side, pieces in enumerate(sides):
            for number, points in enumerate(pieces):
                met = [onto(d, points.names) for key, d in pairs.items() if key[side] == number]
                if how not in IDEMPOTENT and overlap(met):
                    return self._differ("parts of an aggregation match in several ways", nowhere)
                missing = points.subtract(union(met, points.names))
                if not missing.is_empty():
                    left = left.subtract(onto(missing, within.names))
                    if left.is_empty():
                        return left
        return left

    # -- the distributive law --------------------------------------------------------------------

    def _same_products(self, a: Term, b: Term, total: Sum, within: Domain) -> Steps:
        """Where two sums are sums of the same products, whichever factors were summed up first."""
        said = len(self.reasons)
        ones = self._products(self.before, a, total, within)
        twos = self._products(self.after, b, total, within)
        pairs: dict[tuple[int, int], Domain] = {}
        for i, (here, one) in enumerate(ones):
            for j, (there, two) in enumerate(twos):
                if len(one) == len(two):
                    found = yield from self._same_factors(one, two, join(here, there), (here, there))
                    if found is not None:
                        pairs[i, j] = found
        sides = [points for points, _ in ones], [points for points, _ in twos]
        agreed = self._covered(pairs, sides, total.aggregation, within)
        del self.reasons[said:]
        return agreed

    def _products(self, values: Values, term: Term, total: Sum, within: Domain) -> list[Factors]:
        """What is summed up as products, with sums and products inside of these taken apart."""
        found: list[Factors] = []
        pending: list[Factors] = [(within, (term,))]
        while pending:
            points, factors = pending.pop()
            for at, factor in enumerate(factors):
                inside = None
                if len(factors) <= MOST_FACTORS:
                    inside = self._taken_apart(values, factor, total, points)
                if inside is not None:
                    pending += [(here, (*factors[:at], *made, *factors[at + 1 :])) for here, made in inside]
                    break
            else:
                found.append((points, factors))
            if len(found) + len(pending) > 200:
                raise GaveUp("an aggregation of too many parts")
        return found

    def _taken_apart(self, values: Values, factor: Term, total: Sum, points: Domain) -> list[Factors] | None:
        """A factor as a sum of products; None if it is neither a sum nor a product."""
        if isinstance(factor, Read):
            factor = values.source(factor)
        pieces: list[Piece]
        match factor:
            case Apply(op="mul", dtype=total.dtype):
                return [(points, factor.operands)]
            case Sum(aggregation=Aggregation.ADD, dtype=total.dtype):
                pieces = values.writes(factor, points)
            case Read() if not self.is_cut(factor):
                pieces = values.read(factor, points)
            case _:
                return None
        return [(here, (value,)) for here, value in pieces]

    def _same_factors(
        self, ones: tuple[Term, ...], twos: tuple[Term, ...], within: Domain, sides: tuple[Domain, Domain]
    ) -> SomeSteps:
        """A part of `within` where the factors of the one product are those of the other, in some order; it
        takes each point of one side to one of the other, and leaves none out of one of them."""
        if not ones:
            pairs = one_to_one(within, sides[0].names, sides[1].names)
            whole = pairs is not None and any(side.is_subset(onto(pairs, side.names)) for side in sides)
            return pairs if whole else None
        for at, other in enumerate(twos):
            found = yield ones[0], other, within
            if not found.is_empty():
                rest = yield from self._same_factors(ones[1:], (*twos[:at], *twos[at + 1 :]), found, sides)
                if rest is not None:
                    return rest
        return None

    # -- constants -------------------------------------------------------------------------------

    def _constants(self, a: Term, b: Term, within: Domain) -> SomeSteps:
        """The answer once constants that come through buffers and indexes are folded, if there are any."""
        narrow = self._narrowed(a, b, within)
        one, two = folded(self.before, a, narrow), folded(self.after, b, narrow)
        if one is a and two is b:
            return None
        return (yield one, two, within)


def _shape(made: Made, operand: Operand) -> tuple[int, ...]:
    return made.frame.block.refinement(operand.buffer).shape if operand.shape is None else operand.shape


def _operand(made: Made, operand: Operand, names: Sequence[str]) -> Read:
    """Element `names` of what an operand of a special reads."""
    ref = made.frame.block.refinement(operand.buffer)
    first = operand.access or (Affine(),) * len(names)
    element = (e.substitute(made.frame.values) + Affine.index(n) for e, n in zip(first, names, strict=True))
    return Read(ref.dtype, made.frame, made.number, operand.buffer, tuple(element))
