"""What tiles touch: elements, and lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from stripe.affine import Affine
from stripe.analysis.bounds import (
    Operand,
    box_elements,
    extents,
    tile_lines,
    touched_elements,
)
from stripe.analysis.cost_rows import box_bytes, fetched_bytes
from stripe.dtypes import DType
from stripe.ir import Direction, contiguous
from stripe.poly import Domain


def operand(shape: tuple[int, ...], *access: Affine, dtype: DType = DType.I8) -> Operand:
    return Operand("A", Direction.IN, dtype, access, (1,) * len(access), contiguous(shape))


x, y, z = (Affine.index(name) for name in "xyz")


@pytest.mark.parametrize(
    ("access", "sizes"),
    [
        ((x + y,), {"x": 3, "y": 4}),
        ((x * 2,), {"x": 5}),
        ((x * 2 + y,), {"x": 4, "y": 3}),
        ((x * 3 + y * 2,), {"x": 2, "y": 2}),
        ((x * 4 + y * 2,), {"x": 3, "y": 3}),
        ((x * -2 + y, z), {"x": 3, "y": 2, "z": 5}),
        ((x, x), {"x": 6}),
        ((x + y, x), {"x": 3, "y": 4}),
        ((Affine(3), x), {"x": 2}),
    ],
    ids=str,
)
def test_touched_elements_are_those_of_the_image(access: tuple[Affine, ...], sizes: dict[str, int]) -> None:
    box = Domain.box(sizes)
    image = box.image(access, [str(d) for d in range(len(access))])
    of = operand((1,) * len(access), *access)
    assert touched_elements(of, sizes) == image.count()
    bounds = [box.bounds(expr) for expr in access]
    assert [int(e) for e in extents(of, sizes)] == [b[1] - b[0] + 1 for b in bounds if b is not None]


def test_touched_elements_are_never_too_few() -> None:
    for coefficients in product(range(1, 5), repeat=3):
        expr = Affine.of(dict(zip("xyz", coefficients, strict=True)))
        for values in product((1, 2, 4), repeat=3):
            sizes = dict(zip("xyz", values, strict=True))
            exact = len(
                {expr.evaluate(dict(zip("xyz", p, strict=True))) for p in product(*map(range, values))}
            )
            of = operand((1,), expr)
            assert exact <= touched_elements(of, sizes) <= box_elements(of, sizes)


def enumerated_lines(of: Operand, sizes: Mapping[str, int], ranges: Mapping[str, int], line: int) -> int:
    """Lines of all tiles, element by element: those of one row that lie in memory without a gap."""
    total = 0
    names = sorted(of.indexes)
    for tile in product(*(range(0, ranges[n], sizes[n]) for n in names)):
        points = [
            [e.evaluate(dict(zip(names, p, strict=True))) for e in of.access]
            for p in product(*(range(s, s + sizes[n]) for n, s in zip(names, tile, strict=True)))
        ]
        low = [min(values) for values in zip(*points, strict=True)]
        high = [max(values) for values in zip(*points, strict=True)]
        total += sum(len(lines) for lines in lines_of_box(low, high, of.strides, line))
    return total


def lines_of_box(low: list[int], high: list[int], strides: tuple[int, ...], line: int) -> Iterator[set[int]]:
    rows: list[list[int]] = []
    for element in product(*(range(a, b + 1) for a, b in zip(low, high, strict=True))):
        address = sum(e * s for e, s in zip(element, strides, strict=True))
        if rows and address == rows[-1][-1] + 1:
            rows[-1].append(address)
        else:
            rows.append([address])
    for row in rows:
        yield {address // line for address in row}


@pytest.mark.parametrize("line", [1, 4, 8, 16])
@pytest.mark.parametrize(
    ("shape", "access", "ranges"),
    [
        ((6, 8, 4), (x + -1, y + -1, z), {"x": 6, "y": 8, "z": 4}),
        ((7, 5, 3), (x + y, z, Affine(1)), {"x": 5, "y": 3, "z": 5}),
        ((9, 10), (x, y * 2), {"x": 9, "y": 5}),
        ((9, 10), (x, Affine(9) - y), {"x": 9, "y": 10}),
        ((30,), (x * 3 + 2,), {"x": 9}),
        ((6, 6), (x, x), {"x": 6}),
    ],
    ids=str,
)
def test_lines_agree_with_enumeration(
    shape: tuple[int, ...], access: tuple[Affine, ...], ranges: dict[str, int], line: int
) -> None:
    of = operand(shape, *access)
    names = list(ranges)
    table = np.asarray(list(product(*([1, 2, 3, ranges[n]] for n in names))), np.int64)
    got = tile_lines(of, {n: table[:, at] for at, n in enumerate(names)}, ranges, line)
    for row, lines in zip(table, got, strict=True):
        sizes = dict(zip(names, map(int, row), strict=True))
        assert lines == enumerated_lines(of, sizes, ranges, line), sizes


@pytest.mark.parametrize(
    ("shape", "sizes", "each"),
    [
        ((16, 24), {"x": 1, "y": 24}, 2.0),  # rows of a line and a half
        ((16, 24), {"x": 1, "y": 12}, 1.5),
        ((16, 24), {"x": 1, "y": 8}, 1.0),
        ((16, 24), {"x": 2, "y": 24}, 3.0),  # two rows are one run
        ((16, 24), {"x": 4, "y": 12}, 6.0),  # half of each row
        ((16, 15), {"x": 16, "y": 5}, 20.0),  # rows that begin at any element
        ((16, 16), {"x": 3, "y": 16}, 3.0),
        ((2, 32), {"x": 1, "y": 16}, 1.0),
    ],
    ids=str,
)
def test_tiles_bring_in_the_lines_at_their_ends(
    shape: tuple[int, int], sizes: dict[str, int], each: float
) -> None:
    """Of f32, lines of 64 bytes: as many as there are on average."""
    of = operand(shape, x, y, dtype=DType.F32)
    ranges = dict(zip("xy", shape, strict=True))
    assert fetched_bytes(of, sizes, 64, among=ranges) == 64 * each
    if sizes["y"] == shape[1] or sizes["y"] % 16 == 0:
        assert box_bytes(of, sizes, 64) == 64 * each
    if shape[0] % sizes["x"] == 0:
        tiles = (shape[0] // sizes["x"]) * (shape[1] // sizes["y"])
        assert enumerated_lines(of, sizes, ranges, 16) == each * tiles
    assert fetched_bytes(of, sizes, 64, upto=sizes, among=ranges) <= 64 * each


@pytest.mark.parametrize(
    ("strides", "sizes", "each"),
    [
        (
            (64, 2),
            {"x": 3, "y": 32},
            4.0,
        ),  # every second element: rows follow one another
        ((128, 2), {"x": 3, "y": 32}, 4.0),
        ((128, 2), {"x": 3, "y": 1}, 1.0),
        ((128, 4), {"x": 1, "y": 16}, 4.0),
        ((128, 16), {"x": 1, "y": 4}, 4.0),  # a line for each element
    ],
    ids=str,
)
def test_elements_with_narrow_gaps_share_lines(
    strides: tuple[int, int], sizes: dict[str, int], each: float
) -> None:
    """Of f32, lines of 64 bytes, for each row of the tile."""
    of = replace(operand((8, 32), x, y, dtype=DType.F32), strides=strides)
    rows = sizes["x"]
    assert fetched_bytes(of, sizes, 64) == box_bytes(of, sizes, 64) == 64 * each * rows
    addresses = {strides[0] * a + strides[1] * b for a in range(rows) for b in range(sizes["y"])}
    assert len({address // 16 for address in addresses}) == each * rows
    assert fetched_bytes(of, {"x": 1, "y": 1}, 64, upto=sizes) <= 64 * each * rows


def test_a_piece_of_rows_that_are_no_whole_lines_begins_anywhere_that_rows_do() -> None:
    """120 floats are seven and a half lines: every second row puts each 16 of them across two lines."""
    of = operand((120, 120), x, y, dtype=DType.F32)
    sizes, ranges = {"x": 1, "y": 16}, {"x": 120, "y": 112}
    assert box_bytes(of, sizes, 64) == 64 * 1.5
    assert enumerated_lines(of, sizes, ranges, 16) == 1.5 * 120 * 7
