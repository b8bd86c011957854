"""Which leaf blocks of a root are running sums: each result combines all terms up to its own.

    O[n, i : N, I] = +(X[n, k]), i - k < I;       O[n, i] is the sum of X[n, k] for k <= i

The terms depend on one index, `k`, that the results do not depend on, and the results on one, `i`, that no
term depends on; one constraint, `i - k >= c` or `k - i >= c`, holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

from stripe.affine import Affine
from stripe.analysis.units import claimed
from stripe.ir import Block, Direction, IndexValue, Load, Refinement, Special, Store, rounds_partial_sums


@dataclass(frozen=True, slots=True)
class Running:
    """A running sum: `result` at the index `along` combines the terms at `over` up to `along - shift`; where
    it is `mirrored`, the same of both counted from their last values.
    """

    block: Block
    result: Refinement
    along: str
    over: str
    shift: int
    mirrored: bool

    @property
    def results(self) -> int:
        return self.block.ranges[self.along]

    @property
    def terms(self) -> int:
        return self.block.ranges[self.over]

    @property
    def used(self) -> int:
        """How many terms the results go through, one after the other."""
        return min(self.terms, self.results - self.shift)

    @property
    def places(self) -> tuple[str, ...]:
        """The indexes of the result in the order of its dimensions."""
        return tuple(name for expr in self.result.access for name in expr.names)


def running_sum(block: Block) -> Running | str | None:
    """What a leaf block combines as a running sum; why it can't be one in pieces, as a clause; None where
    nothing is like one."""
    if not block.constraints or any(isinstance(s, Block | Special) for s in block.statements):
        return None
    results = [r for r in block.refinements if r.direction.writes]
    if len(results) != 1 or not results[0].combines:
        return None
    if any(index.passed is not None or not index.range for index in block.indexes):
        return None
    (result,) = results
    pair = _pair(block, result)
    if pair is None:
        return None
    along, over, expr = pair
    ranges = block.ranges
    mirrored = expr.coefficient(along) < 0
    ends = ranges[along] - ranges[over] if mirrored else 0
    shift = ends - expr.const
    found = Running(block, result, along, over, shift, mirrored)
    return _refusal(found) or found


def _refusal(found: Running) -> str:
    """Why a running sum stays as it is, as a clause; empty if it need not."""
    block, result = found.block, found.result
    assert result.aggregation is not None
    if result.direction is not Direction.OUT:
        return "it adds to what is there"
    if rounds_partial_sums(result.dtype, result.aggregation):
        return f"partial sums would be rounded to {result.dtype.value}"
    if reason := claimed(block):
        return reason
    if any(r.direction is Direction.NEW for r in block.refinements):
        return "it has buffers of its own"
    if sum(isinstance(s, Store) for s in block.statements) != 1:
        return "it stores its result in several places"
    if len(block.constraints) > 1:
        return "its points have other limits, too"
    if len(set(found.places)) < len(found.places) or any(len(e.names) > 1 for e in result.access):
        return "a dimension of its result is no single index"
    known = {*found.places, found.over}
    also = [name for name, size in block.ranges.items() if size > 1 and name not in known]
    if also:
        return f"it adds up along {also[0]}, too"
    if found.results <= found.shift:
        return "no result combines a term"
    if found.terms + found.shift <= 0:
        return "every result combines all terms"
    return ""


def _pair(block: Block, result: Refinement) -> tuple[str, str, Affine] | None:
    """The index of results, that of terms, and what is at least 0 where a result combines a term."""
    ranges = block.ranges
    placed = {name for expr in result.access for name in expr.names}
    views = {s.buffer for s in block.statements if isinstance(s, Load)}
    exprs = [expr for r in block.refinements if r.name in views for expr in r.access]
    exprs += [s.expr for s in block.statements if isinstance(s, IndexValue)]
    used = {name for expr in exprs for name in expr.names}
    for constraint in block.constraints:
        names = constraint.expr.names
        if {c for _, c in constraint.expr.terms} != {1, -1} or len(names) != 2:
            continue
        if any(ranges[name] < 2 for name in names):
            continue
        along = [name for name in names if name in placed and name not in used]
        over = [name for name in names if name in used and name not in placed]
        if along and over:
            return along[0], over[0], constraint.expr
    return None


def terms_combined(terms: int, sizes: tuple[int, ...]) -> int:
    """How many terms a running sum combines, in pieces of so many points, their sums in pieces again: in the
    triangles of the pieces, in their sums, and in the results to which these are added."""
    if not sizes:
        return terms * (terms + 1) // 2
    size = sizes[0]
    pieces, rest = divmod(terms, size)
    behind = pieces - (not rest)
    within = pieces * size * (size + 1) // 2 + rest * (rest + 1) // 2
    return within + behind * size + (terms - size) + terms_combined(behind, sizes[1:])


def elements_moved(terms: int, sizes: tuple[int, ...]) -> int:
    """Loads and stores of a running sum: of terms and results; in pieces, of terms for the sums of pieces,
    too, and of results to which these are added."""
    if not sizes:
        return 2 * terms
    return 5 * terms + elements_moved(-(-terms // sizes[0]) - 1, sizes[1:])


def vector_steps(terms: int, sizes: tuple[int, ...], lanes: int) -> float:
    """Vectors that a running sum takes where they hold several of its results. Without pieces, parts of some
    on the diagonal are empty; in a piece each term is a vector, and its sum is made across the lanes."""
    if not sizes:
        return terms * (terms + lanes) / (2 * lanes)
    size = sizes[0]
    pieces = -(-terms // size)
    vectors = -(-size // lanes)
    across = size.bit_length() - 1
    each = size * vectors + across + vectors
    return pieces * each + vector_steps(pieces - 1, sizes[1:], lanes)
