"""A row-major reshape as affine accesses: which element goes where, without division.

Dimensions are paired from the right into groups of equal size. Within a group, if the strides
of both sides divide one another in turn, the common refinement of the two shapes gives one
index per factor, and no constraint:

    [4, 6] -> [8, 3]:  i0:4 i1:2 i2:3   in [i0, 3*i1 + i2]   out [2*i0 + i1, i2]

Otherwise the indexes are those of the output, and those of the input but the last, which
follows from the position in memory and is kept in range by constraints:

    [2, 3] -> [3, 2]:  i0:3 i1:2 i2:2   in [i2, 2*i0 + i1 - 3*i2]   out [i0, i1]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, count, pairwise
from operator import mul

from stripe.affine import Affine
from tile_frontend.typed import Space

Sized = dict[int, int]  # dimension -> size, outermost first


def reshape_points(
    source: tuple[int, ...], target: tuple[int, ...]
) -> tuple[Space, tuple[Affine, ...], tuple[Affine, ...]]:
    """The points of a reshape between shapes of the same, positive number of elements, with the
    access to the source and to the target. Each element of both has exactly one point."""
    names = (f"i{number}" for number in count())
    reads: dict[int, Affine] = {}
    writes: dict[int, Affine] = {}
    ranges: dict[str, int] = {}
    constraints: list[Affine] = []
    for left, right in _groups(source, target):
        refinement = _refinement(left, right)
        if refinement is not None:
            indexes = {next(names): steps for steps in refinement}
            ranges |= {name: outer // step for name, (outer, step) in indexes.items()}
            places = {name: step for name, (_, step) in indexes.items()}
            reads |= _digits(left, places)
            writes |= _digits(right, places)
            continue
        position = Affine()
        for (dim, size), step in zip(right.items(), _steps(right), strict=True):
            writes[dim] = Affine.index(name := next(names))
            ranges[name] = size
            position = position + writes[dim] * step
        *others, last = left
        for dim, step in zip(others, _steps(left), strict=False):
            reads[dim] = Affine.index(name := next(names))
            ranges[name] = left[dim]
            position = position - reads[dim] * step
        reads[last] = position
        constraints += [position, -position + (left[last] - 1)]
    nowhere = Affine()  # dimensions of size 1 are in no group
    return (
        Space(ranges, tuple(constraints)),
        tuple(reads.get(dim, nowhere) for dim in range(len(source))),
        tuple(writes.get(dim, nowhere) for dim in range(len(target))),
    )


def _groups(source: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[Sized, Sized]]:
    """The least runs of dimensions, paired from the right, that hold equally many elements."""
    left = [(dim, size) for dim, size in enumerate(source) if size > 1]
    right = [(dim, size) for dim, size in enumerate(target) if size > 1]
    groups: list[tuple[Sized, Sized]] = []
    while left:
        ours, theirs = [left.pop()], [right.pop()]
        inside, outside = ours[0][1], theirs[0][1]
        while inside != outside:
            if inside < outside:
                ours.append(left.pop())
                inside *= ours[-1][1]
            else:
                theirs.append(right.pop())
                outside *= theirs[-1][1]
        groups.append((dict(reversed(ours)), dict(reversed(theirs))))
    return groups[::-1]


def _steps(dims: Sized) -> list[int]:
    """Row-major strides within a group."""
    return list(accumulate(reversed(dims.values()), mul, initial=1))[-2::-1]


def _refinement(left: Sized, right: Sized) -> list[tuple[int, int]] | None:
    """The factors of the common refinement as (outer, step), outermost first: the factor is
    outer/step. None if there is none."""
    size = _steps(left)[0] * next(iter(left.values()))
    steps = sorted({size, *_steps(left), *_steps(right)}, reverse=True)
    pairs = list(pairwise(steps))
    return None if any(outer % step for outer, step in pairs) else pairs


def _digits(dims: Sized, places: dict[str, int]) -> Iterator[tuple[int, Affine]]:
    """Each dimension as the sum of the indexes whose places lie within it."""
    for (dim, size), step in zip(dims.items(), _steps(dims), strict=True):
        inside = {name: place // step for name, place in places.items() if step <= place < step * size}
        yield dim, Affine.of(inside)
