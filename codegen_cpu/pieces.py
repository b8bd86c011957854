"""The values of a loop in up to three pieces, so that tests are left only where they may fail.

Where copies of a loop's body are written out, and a constraint compares the loop's index with that of the
copies, as in a sum over a triangle (rows i in registers, j the loop, io + i - j >= 0), it holds for all
copies up to some value of the loop, then for some of them, then for none:

    j < io + 1             all rows, no test
    j < io + 1 + rows - 1  a test for each row
    beyond                 nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codegen_cpu.ll import I64, Value, constant
from codegen_cpu.loops import Indexing
from codegen_cpu.plan import worst_case
from stripe.affine import Affine

_WORTH = 4  # how much longer a loop must be than what keeps its tests


@dataclass(frozen=True, slots=True)
class Test:
    """`expr`, coefficient * x + rest >= 0, is asked of each copy: rest lies between `least` and `most`, which
    are known in front of the loop over x."""

    expr: Affine
    coefficient: int
    least: Affine
    most: Affine

    @property
    def values(self) -> int:
        """For how many values of x it may hold for some copies, but not for all."""
        spread = self.most - self.least
        return -(-spread.const // abs(self.coefficient))

    def at(self, indexes: Mapping[str, Affine]) -> Test:
        """The test where these indexes have values."""
        return replace(self, least=self.least.substitute(indexes), most=self.most.substitute(indexes))


def find_tests(left: Sequence[Affine], name: str, copies: Mapping[str, int], lane: str) -> list[Test]:
    """Of the constraints that are left for each point, those that compare a loop with the indexes of
    `copies`, which are written out in it, each with its range. `lane` is the lane index: for a vector a test
    may hold in part, unless the loop is that of the lanes."""
    found: list[Test] = []
    for expr in left:
        if expr.coefficient(name) and (lane == name or not expr.coefficient(lane)):
            rest = expr.without({name})
            most = -worst_case(-rest, copies)
            found.append(Test(expr, expr.coefficient(name), worst_case(rest, copies), most))
    return found


@dataclass(frozen=True, slots=True)
class Piece:
    """Values from `lo` up to `hi`; `free`: no test fails there. `is_nonempty`: there surely is a value."""

    lo: Value
    hi: Value
    free: bool
    is_nonempty: bool = False


def worth_it(size: int, tests: Sequence[Test], width: int) -> bool:
    """Whether most values of a loop, in steps of `width`, lie where nothing needs a test."""
    return bool(tests) and size >= _WORTH * sum(test.values + width for test in tests)


def in_pieces(
    indexing: Indexing, size: int, limits: Sequence[tuple[int, Affine]], tests: Sequence[Test], width: int
) -> list[Piece]:
    """The pieces of a loop of `size` values within its `limits` (coefficient * x + rest >= 0). The free one
    is a whole number of steps of `width` long, and as far from where the loop begins."""
    f = indexing.f
    surely = [*limits, *((t.coefficient, t.least) for t in tests)]
    outer = indexing.limits(size, [*limits, *((t.coefficient, t.most) for t in tests)])
    inner = indexing.limits(size, surely)
    rises = any(test.coefficient > 0 for test in tests)
    falls = any(test.coefficient < 0 for test in tests)
    start, end = outer.lo, outer.hi
    if rises:
        before = _whole(indexing, f.binary("sub nsw", inner.lo, outer.lo), width, up=True)
        start = f.intrinsic("smin", [f.binary("add nsw", outer.lo, before), outer.hi])
    if falls or width > 1:
        inside = _whole(indexing, f.binary("sub nsw", inner.hi, start), width, up=False)
        end = f.binary("add nsw", start, inside)
    first = inner.first
    # With the first value, all of them hold: so there is one.
    sure = width == 1 and first is not None and first < size
    sure = sure and all(indexing.holds(rest + c * (first or 0), ()) for c, rest in surely)
    found = [Piece(outer.lo, start, False)] if rises else []
    found.append(Piece(start, end, True, sure))
    if falls or width > 1:
        found.append(Piece(end, outer.hi, False))
    return found


def _whole(indexing: Indexing, count: Value, width: int, up: bool) -> Value:
    """A number of values, none if it is negative, as a whole number of steps."""
    f = indexing.f
    count = f.intrinsic("smax", [count, constant(I64, 0)])
    if width == 1:
        return count
    if up:
        count = f.binary("add nsw", count, constant(I64, width - 1))
    return f.binary("and", count, constant(I64, -width))
