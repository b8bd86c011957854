"""Contractions with random accesses mean what brute force over all index values says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType
from stripe.interp import interpret
from stripe.verify import verify
from tile_frontend import compile_tile

Array = np.ndarray[Any, Any]
Linear = tuple[tuple[int, ...], int, int]  # coefficients of the indexes, constant, denominator

INDEXES = "ijk"
REACH = 14  # index values are -REACH ... REACH, by constraint, so that brute force sees all


@st.composite
def linear(draw: st.DrawFn, count: int) -> Linear:
    """Mostly one index, plain; sometimes anything."""
    coefficients = [0] * count
    coefficients[draw(st.integers(0, count - 1))] = draw(st.sampled_from([1, 1, 1, 2, -1]))
    if draw(st.booleans()):
        coefficients = [c + draw(st.integers(-1, 1)) for c in coefficients]
    return (
        tuple(coefficients),
        draw(st.sampled_from([0, 0, 1, -1, 3])),
        draw(st.sampled_from([1, 1, 1, 2, 3])),
    )


def text_of(expr: Linear) -> str:
    coefficients, constant, denominator = expr
    total = " + ".join(f"{c}*{name}" for c, name in zip(coefficients, INDEXES, strict=False) if c)
    return f"({total or '0'} + {constant}) / {denominator}".replace("+ -", "- ")


def value_of(expr: Linear, grid: Array) -> tuple[Array, Array]:
    """The values at all points (indexes x points), and where they are integers."""
    coefficients, constant, denominator = expr
    total = np.asarray(coefficients) @ grid + constant
    return total // denominator, total % denominator == 0


@st.composite
def contractions(draw: st.DrawFn) -> dict[str, Any]:
    count = draw(st.integers(1, 3))
    access = linear(count)
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=2))
    return {
        "count": count,
        "write": [draw(access) for _ in shape],
        "shape": tuple(shape),
        "reads": [
            [draw(access) for _ in range(draw(st.integers(1, 2)))] for _ in range(draw(st.integers(1, 2)))
        ],
        "sizes": [draw(st.integers(1, 5)) for _ in range(4)],
        "constraint": draw(st.none() | st.tuples(access, st.integers(1, 6))),
        "aggregation": draw(st.sampled_from("+>=")),
    }


@settings(max_examples=250)
@given(contractions())
def test_points_are_those_of_brute_force(case: dict[str, Any]) -> None:
    sizes = iter(case["sizes"])
    shapes = [tuple(next(sizes) for _ in read) for read in case["reads"]]
    names = "AB"[: len(shapes)]
    reads = [f"{n}[{', '.join(map(text_of, read))}]" for n, read in zip(names, case["reads"], strict=True)]
    clauses = [f"{name} + {REACH} < {2 * REACH + 1}" for name in used_indexes(case)]
    if case["constraint"] is not None:
        clauses.append(f"{text_of(case['constraint'][0])} < {case['constraint'][1]}")
    clause = "".join(f", {each}" for each in clauses)
    text = (
        f"function ({', '.join(names)}) -> (O) {{ O[{', '.join(map(text_of, case['write']))} :"
        f" {', '.join(map(str, case['shape']))}] = {case['aggregation']}({' * '.join(reads)}){clause}; }}"
    )
    types = {name: TensorType(DType.I64, shape) for name, shape in zip(names, shapes, strict=True)}
    rng = np.random.default_rng(1)
    arrays = {name: rng.integers(-9, 10, shape) for name, shape in zip(names, shapes, strict=True)}
    written = brute_force(case, [arrays[name] for name in names])
    try:
        program = compile_tile(Source("case.tile", text), types)
    except CompileError as error:
        code = error.diagnostics[0].code
        if code == "T033":
            assert any(len(values) > 1 for values in written.values())
        elif code != "T012":  # an index of the constraint alone
            assert code == "T032" and not written, text
        return
    verify(program)
    result = np.zeros(case["shape"], np.int64)
    folds: dict[str, Callable[[list[int]], int]] = {"+": sum, ">": max, "=": max}
    fold = folds[case["aggregation"]]
    for element, values in written.items():
        assert case["aggregation"] != "=" or len(values) == 1, text
        result[element] = fold(values)
    np.testing.assert_array_equal(interpret(program, arrays)["O"], result, err_msg=text)


def used_indexes(case: dict[str, Any]) -> list[str]:
    accesses = [e for access in (case["write"], *case["reads"]) for e in access]
    return [name for at, name in enumerate(INDEXES[: case["count"]]) if any(e[0][at] for e in accesses)]


def brute_force(case: dict[str, Any], arrays: list[Array]) -> dict[tuple[int, ...], list[int]]:
    """The values written to each element."""
    accesses = [case["write"], *case["reads"]]
    everywhere, nowhere = np.arange(-REACH, REACH + 1), np.zeros(1, int)
    axes = [everywhere if name in used_indexes(case) else nowhere for name in INDEXES[: case["count"]]]
    grid = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")])
    keep = np.ones(grid.shape[1], bool)
    if case["constraint"] is not None:
        expr, size = case["constraint"]
        value, integral = value_of(expr, grid)
        keep &= integral & (value >= 0) & (value < size)
    places = []
    for access, shape in zip(accesses, [case["shape"], *(a.shape for a in arrays)], strict=True):
        values = [value_of(expr, grid) for expr in access]
        for (value, integral), size in zip(values, shape, strict=True):
            keep &= integral & (value >= 0) & (value < size)
        places.append([value for value, _ in values])
    products = np.ones(int(keep.sum()), int)
    for array, place in zip(arrays, places[1:], strict=True):
        products *= array[tuple(value[keep] for value in place)]
    written: dict[tuple[int, ...], list[int]] = {}
    for number, product in enumerate(products):
        element = tuple(int(value[keep][number]) for value in places[0])
        written.setdefault(element, []).append(int(product))
    return written
