"""Fewer values for the indexes of a contraction whose points lie in a narrow band.

The points of `R[i : N] = +(X[j] * K[i - j])` with a K of 4 elements are a band of the square of i
and j. Loops find their way along it, but tiles and vectors are made of boxes, most of whose points
would not exist. So an index is exchanged for an expression that has few values:

    before:  i in 0 .. N - 1, j in 0 .. N - 1 where 0 <= i - j <= 3
    after:   i in 0 .. N - 1, j in 0 .. 3, and `i - j` in the place of j

The old index must have the coefficient 1 or -1 in the expression: then old and new points
correspond one to one (the matrix of the exchange is unimodular).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.poly import Domain, Lattice, box_limits, boxed

GAIN = 4  # an exchange must leave at most this part of an index's values


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The index `name` is to stand for `form - low`, which has `width` values."""

    name: str
    form: Affine
    low: int
    width: int

    @property
    def old_value(self) -> Affine:
        """What the index stood for before, over the new indexes."""
        coefficient = self.form.coefficient(self.name)
        rest = self.form.without({self.name})
        return (Affine(self.low, ((self.name, 1),)) - rest) * coefficient


def narrowed(lattice: Lattice, written: Collection[str]) -> Lattice:
    """The same points on indexes with fewer values, where exchanges can give these.

    `written` are the indexes that the output names; of two equal exchanges, one leaves them.
    """
    while exchange := _best(lattice, written):
        lattice = _exchanged(lattice, exchange)
    return lattice


def _best(lattice: Lattice, written: Collection[str]) -> _Exchange | None:
    found = [
        _Exchange(name, form, low, width)
        for form, (low, width) in _forms(lattice.constraints).items()
        for name, coefficient in form.terms
        if abs(coefficient) == 1 and width * GAIN <= lattice.ranges[name]
    ]
    return max(found, key=lambda e: (lattice.ranges[e.name] / e.width, e.name not in written), default=None)


def _forms(constraints: Collection[Affine]) -> dict[Affine, tuple[int, int]]:
    """Linear forms that constraints limit on both sides: the least value, and how many there are."""
    least: dict[Affine, int] = {}
    greatest: dict[Affine, int] = {}
    for expr in constraints:
        form = expr - expr.const
        if form.terms and form.terms[0][1] > 0:
            least[form] = max(-expr.const, least.get(form, -expr.const))
        else:
            greatest[-form] = min(expr.const, greatest.get(-form, expr.const))
    return {form: (low, greatest[form] - low + 1) for form, low in least.items() if form in greatest}


def _exchanged(lattice: Lattice, exchange: _Exchange) -> Lattice:
    new = {exchange.name: exchange.old_value}
    limits = [expr.substitute(new) for expr in (*box_limits(lattice.ranges), *lattice.constraints)]
    pieces = boxed(Domain.of(lattice.names, limits))
    if pieces is None or len(pieces) != 1:
        raise InvariantError("an exchange of indexes made several pieces of one")
    box = pieces[0]
    shift = {name: Affine(offset, ((name, 1),)) for name, offset in box.offsets.items()}
    values = {name: expr.substitute(new).substitute(shift) for name, expr in lattice.values.items()}
    return Lattice(box.ranges, box.constraints, values)
