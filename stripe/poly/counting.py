"""The number of points of a conjunction, factor by factor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import islpy as isl

from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.poly.calls import COLUMNS, SET, check_limit, isl_basic_set, matrix_rows


def _components(size: int, rows: Iterable[Sequence[int]]) -> list[list[int]]:
    """Dimensions (columns 1..size of the rows) grouped by the constraints that they share."""
    leader = list(range(size))

    def find(at: int) -> int:
        while leader[at] != at:
            leader[at] = leader[leader[at]]
            at = leader[at]
        return at

    for row in rows:
        used = [at for at in range(size) if row[at + 1]]
        for at in used[1:]:
            leader[find(at)] = find(used[0])
    groups: dict[int, list[int]] = {}
    for at in range(size):
        groups.setdefault(find(at), []).append(at)
    return list(groups.values())


def _told(equalities: list[list[int]], inequalities: list[list[int]], size: int) -> list[int]:
    """Dimensions that equalities tell from the others: each by one of its own, with a factor of 1 or -1."""
    found = []
    for row in equalities:
        if any(row[size + 1 :]):
            continue
        alone = [
            at
            for at in range(size)
            if abs(row[at + 1]) == 1 and sum(other[at + 1] != 0 for other in equalities) == 1
        ]
        if alone:
            found.append(min(alone, key=lambda at: sum(other[at + 1] != 0 for other in inequalities)))
    return sorted(found, reverse=True)


def count_points(part: isl.BasicSet) -> int:
    """The points of a bounded conjunction: the product over dimensions that share no constraint."""
    size = part.dim(SET)
    equalities = matrix_rows(part.equalities_matrix(*COLUMNS))
    inequalities = matrix_rows(part.inequalities_matrix(*COLUMNS))
    told = _told(equalities, inequalities, size)
    if told:  # without them there are as many points, and others need no longer hang together
        for at in told:
            part = part.project_out(SET, at, 1)
        return count_points(part)
    hidden = part.dim(isl.dim_type.div)
    total = 1
    for group in _components(size + hidden, equalities + inequalities):
        visible = [at for at in group if at < size]
        if not visible:
            continue
        if any(at >= size for at in group):
            factor = part
            for at in reversed(range(size)):
                if at not in visible:
                    factor = factor.project_out(SET, at, 1)
            total *= _number(factor.to_set())
        else:
            total *= _count_group(group, inequalities, equalities)
    return total


def _count_group(group: list[int], inequalities: list[list[int]], equalities: list[list[int]]) -> int:
    """The points of the constraints among the dimensions of `group` alone."""

    def own(rows: list[list[int]]) -> list[Affine]:
        kept = (row for row in rows if any(row[at + 1] for at in group))
        return [Affine.of({str(at): row[at + 1] for at in group}, row[0]) for row in kept]

    if len(group) == 1 and not equalities:
        at = group[0] + 1
        lows = [-(row[0] // row[at]) for row in inequalities if row[at] > 0]
        highs = [row[0] // -row[at] for row in inequalities if row[at] < 0]
        if lows and highs:
            return max(0, min(highs) - max(lows) + 1)
    positions = {str(at): place for place, at in enumerate(group)}
    return _number(isl_basic_set(positions, own(inequalities), own(equalities)).to_set())


def _number(points: isl.Set) -> int:
    number = points.count_val()
    check_limit()
    if not number.is_int():
        raise InvariantError("the number of points of an unbounded set")
    return int(number.to_python())
