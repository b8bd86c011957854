"""Loops and index arithmetic: affine expressions over loop variables as 64-bit integers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from codegen_cpu.ll import I1, I64, Function, Value, constant
from stripe.affine import Affine
from stripe.diag import CompileError, Diagnostic

_LARGEST = 1 << 62

Facts = tuple[Affine, ...]  # expressions over loop variables that are known to be >= 0


@dataclass(frozen=True, slots=True)
class Limits:
    """The values lo <= x < hi of an index. `lo` and `hi` are known exactly, or None."""

    lo: Value
    hi: Value
    first: int | None
    stop: int | None

    @property
    def is_nonempty(self) -> bool:
        """Whether there surely is a value."""
        return self.first is not None and self.stop is not None and self.first < self.stop


@dataclass(frozen=True, slots=True)
class Loop:
    """An open loop. `variable` is the name in affine expressions."""

    variable: str
    step: int
    hi: Value
    body: str
    end: str
    slot: list[str]
    start: tuple[Value, str]
    down: tuple[Value, Value] | None = None  # the step, and the value behind the last, where they are chosen

    @property
    def value(self) -> Affine:
        return Affine.index(self.variable)


@dataclass(slots=True)
class _Front:
    """The place in front of an open loop, and the values that were computed there for its inside."""

    variable: str
    place: list[str]
    values: dict[Affine, Value]


class Indexing:
    """Opens loops and computes with their variables.

    The name of a variable is that of its LLVM value, so that it is unique in the function;
    `ranges` knows its least and greatest value, `multiples` what it is a multiple of, if not of 1 alone.
    """

    def __init__(self, f: Function) -> None:
        self.f = f
        self.ranges: dict[str, tuple[int, int]] = {}
        self.multiples: dict[str, int] = {}
        self._order: dict[str, int] = {}  # outer variables come first
        self._values: dict[Affine, Value] = {}  # of the basic block that ...
        self._label = ""  # ... has this label
        self._open: list[_Front] = []  # outermost first
        self._others: set[str] = set()  # of these, those whose next step is not ours

    def _define(self, name: str, bounds: tuple[int, int]) -> None:
        self.ranges.setdefault(name, bounds)
        self._order.setdefault(name, len(self._order))

    @property
    def opened(self) -> tuple[str, ...]:
        """The variables of the loops that are open, outermost first, but for those over what others do."""
        return tuple(front.variable for front in self._open if front.variable not in self._others)

    @property
    def around(self) -> Mapping[str, int]:
        """The last value of each of these loops."""
        return {loop: self.ranges[loop][1] for loop in self.opened}

    # -- questions -----------------------------------------------------------------------

    def holds(self, expr: Affine, facts: Facts) -> bool:
        """Whether `expr >= 0` is certain."""
        candidates = (expr, *(expr - fact for fact in facts))
        return any(e.bounds(self.ranges)[0] >= 0 for e in candidates)

    def fails(self, expr: Affine) -> bool:
        """Whether `expr >= 0` is certainly false."""
        return expr.bounds(self.ranges)[1] < 0

    # -- values --------------------------------------------------------------------------

    def value(self, expr: Affine) -> Value:
        """The value of an affine expression; outer variables first, so that sums can be hoisted.

        CompileError C005 if it, or a part of it, may not fit 64 bits.
        """
        if self._label != self.f.label:
            self._values, self._label = {}, self.f.label
        if expr not in self._values:
            self._values[expr] = self._computed(expr)
        return self._values[expr]

    def parts(self, expr: Affine) -> list[Value]:
        """The values of the parts of an expression without constant: what is settled in front of the
        innermost loop, and the rest.

        The first is computed in front of the innermost loop, and LLVM does not see how. It would look for
        the cheapest way to step all addresses through all loops at once, which took longer than all else
        that it does and gained nothing in the innermost loop.
        """
        if not self._open or self.f.is_elsewhere:
            return [self.value(expr)]
        front = self._open[-1]
        first = self._order[front.variable]
        outside = expr.only({name for name in expr.names if self._order[name] < first})
        if not outside.terms:
            return [self.value(expr)]
        if outside not in front.values:
            with self.f.at(front.place):
                front.values[outside] = self.f.opaque(self.value(outside))
        inside = expr.without(set(outside.names))
        return [front.values[outside], *([self.value(inside)] if inside.terms else [])]

    def _computed(self, expr: Affine) -> Value:
        self._check_size(expr)
        total: Value | None = None
        for name, coefficient in sorted(expr.terms, key=lambda term: self._order[term[0]]):
            term = Value(I64, f"%{name}")
            if coefficient != 1:
                term = self.f.binary("mul nsw", term, constant(I64, coefficient))
            total = term if total is None else self.f.binary("add nsw", total, term)
        if total is None:
            return constant(I64, expr.const)
        return self.f.binary("add nsw", total, constant(I64, expr.const)) if expr.const else total

    def name(self, value: Value, bounds: tuple[int, int]) -> Affine:
        """A value as a variable of affine expressions; `bounds` are its least and greatest value."""
        if value.is_constant:
            return Affine(int(value.text))
        name = value.text[1:]
        self._define(name, bounds)
        return Affine.index(name)

    def begin_steps(self, steps: Affine, others: Iterable[Loop]) -> None:
        """A variable, or a constant, that goes up as that of a loop would, in code that runs again and again:
        who asks for the open loops sees one, until `end_steps`. `others` are loops whose next step is another
        thread's."""
        self._others |= {loop.variable for loop in others}
        self._open += (_Front(name, self.f.mark(), {}) for name in steps.names)

    def end_steps(self, steps: Affine) -> None:
        if not steps.is_constant:
            self._open.pop()

    def _check_size(self, expr: Affine) -> None:
        reach = abs(expr.const)
        for name, coefficient in expr.terms:
            reach += abs(coefficient) * max(map(abs, self.ranges[name]))
        if reach > _LARGEST:
            note = "help: the coefficients and ranges of the indexes make it this large"
            message = f"an index expression reaches {reach}, which 64-bit arithmetic can't hold"
            raise CompileError(Diagnostic("C005", message, notes=(note,)))

    def at_least_zero(self, expr: Affine) -> Value:
        return self.f.compare("icmp sge", self.value(expr), constant(I64, 0))

    def all_of(self, conditions: Iterable[Affine]) -> Value:
        """Whether each expression is >= 0."""
        result = constant(I1, True)
        for number, expr in enumerate(conditions):
            test = self.at_least_zero(expr)
            result = self.f.binary("and", result, test) if number else test
        return result

    def divided(self, expr: Affine, divisor: int) -> Value:
        """`expr` / `divisor` (> 0), rounded down."""
        value = self.value(expr)
        if divisor == 1:
            return value
        if divisor & (divisor - 1) == 0:
            return self.f.binary("ashr", value, constant(I64, divisor.bit_length() - 1))
        by = constant(I64, divisor)
        quotient = self.f.binary("sdiv", value, by)
        rest = self.f.binary("sub nsw", value, self.f.binary("mul nsw", quotient, by))
        below = self.f.convert("sext", self.f.compare("icmp slt", rest, constant(I64, 0)), I64)
        return self.f.binary("add nsw", quotient, below)

    # -- loops ---------------------------------------------------------------------------

    def limits(self, size: int, conditions: Sequence[tuple[int, Affine]]) -> Limits:
        """The values x of range `size` with coefficient * x + rest >= 0 for each condition."""
        first, stop = 0, size
        lows: list[Value] = []
        highs: list[Value] = []
        for coefficient, rest in conditions:
            # c > 0: x >= ceil(-rest / c).   c < 0: x <= floor(rest / -c).
            if coefficient > 0:
                bound = -rest + (coefficient - 1)
                if rest.is_constant:
                    first = max(first, bound.const // coefficient)
                else:
                    lows.append(self.divided(bound, coefficient))
            elif rest.is_constant:
                stop = min(stop, rest.const // -coefficient + 1)
            else:
                highs.append(self.divided(rest + -coefficient, -coefficient))
        lo, hi = constant(I64, first), constant(I64, stop)
        for low in lows:
            lo = self.f.intrinsic("smax", [lo, low])
        for high in highs:
            hi = self.f.intrinsic("smin", [hi, high])
        return Limits(lo, hi, None if lows else first, None if highs else stop)

    def open(
        self, hint: str, lo: Value, hi: Value, step: int, bounds: tuple[int, int], down: Value | None = None
    ) -> Loop:
        """Begin a loop over lo, lo + step ... below hi; `bounds` are its least and greatest value.

        Where `down` holds it takes the same values downwards; `hi` is a whole number of steps above `lo`.
        """
        f = self.f
        variable, body, end = f.fresh(hint), f.fresh(f"{hint}.loop"), f.fresh(f"{hint}.end")
        first, way = lo, None
        if down is not None:
            last, before = (f.binary("sub nsw", x, constant(I64, step)) for x in (hi, lo))
            first = f.select(down, last, lo)
            way = f.select(down, constant(I64, -step), constant(I64, step)), f.select(down, before, hi)
        self._open.append(_Front(variable, f.mark(), {}))
        if lo.is_constant and hi.is_constant and int(lo.text) < int(hi.text):
            f.branch(body)
            f.leads_to(body)
        else:
            f.branch_if(f.compare("icmp slt", lo, hi), body, end)
            f.leads_to(body, end)
        origin = f.label
        f.start(body)
        self._define(variable, bounds)
        if lo.is_constant:
            self.multiples[variable] = math.gcd(int(lo.text), step)
        return Loop(variable, step, hi, body, end, f.mark(), (first, origin), way)

    def close(self, loop: Loop) -> None:
        f = self.f
        self._open.pop()
        variable = Value(I64, f"%{loop.variable}")
        if loop.down is None:
            following = f.binary("add nsw", variable, constant(I64, loop.step))
            again = f.compare("icmp slt", following, loop.hi)
        else:
            step, beyond = loop.down
            following = f.binary("add nsw", variable, step)
            again = f.compare("icmp ne", following, beyond)
        lo, origin = loop.start
        loop.slot.append(
            f"  {variable.text} = phi i64 [ {lo.text}, %{origin} ], [ {following.text}, %{f.label} ]"
        )
        f.branch_if(again, loop.body, loop.end)
        f.leads_to(loop.end)  # unless the loop can be passed by
        f.start(loop.end)

    def guarded(self, condition: Value) -> str:
        """Begin code that runs where `condition` holds; `f.branch` to the label and start it to end."""
        yes, end = self.f.fresh("if"), self.f.fresh("endif")
        self.f.branch_if(condition, yes, end)
        self.f.leads_to(yes, end)
        self.f.start(yes)
        return end
