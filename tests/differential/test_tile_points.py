"""The front end's ranges and points against an enumeration of all index values.

Random contractions on tiny tensors: shifted, strided, skewed, divided and reversed subscripts,
constraints, all aggregations and combinations. Integers throughout, so that all is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType
from stripe.interp import interpret
from stripe.verify import verify
from tests.support.tile_programs import Value, random_contraction
from tests.support.tile_reference import ContractionSpec, SeveralWritesError, Subscript, contract, points
from tile_frontend import compile_tile

I64 = DType.I64


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def check(spec: ContractionSpec, shapes: dict[str, tuple[int, ...]], rng: np.random.Generator) -> str:
    """Compare one contraction with the enumeration; gives what became of it."""
    text = f"function ({', '.join(shapes)}) -> (R) {{ {spec.text('R')} }}"
    types = {name: TensorType(I64, shape) for name, shape in shapes.items()}
    inputs = {name: rng.integers(-3, 4, shape) for name, shape in shapes.items()}
    values = {name: (lambda element, array=array: int(array[element])) for name, array in inputs.items()}
    try:
        program = compile_tile(Source("random.tile", text), types)
    except CompileError as error:
        (code,) = {d.code for d in error.diagnostics}
        if code == "T032":
            assert not points(spec, shapes), f"there are points:\n{text}"
        else:
            assert code == "T033", f"{error}\n{text}"
            with pytest.raises(SeveralWritesError):
                contract(spec, shapes, values)
        return code
    verify(program)
    result = interpret(program, inputs)["R"]
    default = int(spec.default or 0)
    expected = contract(spec, shapes, values, lambda element: default)
    assert result.shape == spec.sizes, text
    for element, value in expected.items():
        assert int(result[element]) == int(np.array(wrapped(value)).astype(result.dtype)), (
            f"{element}: {text}"
        )
    return "ran"


def random_check(seed: int) -> str:
    rng = np.random.default_rng(seed)
    shapes = {
        name: tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 4)))
        for name in ("A", "B", "C")[: 1 + seed % 3]
    }
    tensors = [Value(name, I64, shape, 3.0) for name, shape in shapes.items()]
    spec = random_contraction(rng, tensors, volume=2000)
    if spec is None:
        return "too large"
    if seed % 5 == 0 and spec.combination != "==":  # whose values are true or false
        spec = replace(spec, default="5")
    return check(spec, shapes, rng)


def test_random_contractions() -> None:
    found = [random_check(seed) for seed in range(400)]
    assert found.count("ran") > 300
    assert {"ran", "T032", "T033"} <= set(found)


@pytest.mark.slow
def test_many_random_contractions(say: Callable[[object], None]) -> None:
    found = [random_check(seed) for seed in range(1000, 9000)]
    say({what: found.count(what) for what in sorted(set(found))})


def subscript(text: dict[str, int], const: int = 0, divisor: int = 1) -> Subscript:
    return Subscript(tuple(text.items()), const, divisor)


@pytest.mark.parametrize("size", range(1, 9))
def test_division_is_exact(size: int, rng: np.random.Generator) -> None:
    for divisor in (2, 3, 4):
        for const in range(-3, 4):
            access = (subscript({"i": 1}, const, divisor),)
            spec = ContractionSpec((subscript({"i": 1}),), (size + 3,), "+", "", (("A", access),))
            assert check(spec, {"A": (3,)}, rng) in ("ran", "T032")


def test_the_transposed_convolution_of_the_design_notes() -> None:
    """I[(i-1)/2] into 6 outputs from [1,2,3] gives 0,1,0,2,0,3; with a kernel 2,5,4,9,6."""
    one = ContractionSpec((subscript({"i": 1}),), (6,), "+", "", (("I", (subscript({"i": 1}, -1, 2),)),))
    image = {"I": lambda element: element[0] + 1, "K": lambda element: element[0] + 1}
    result = contract(one, {"I": (3,)}, image)
    assert [result[(i,)] for i in range(6)] == [0, 1, 0, 2, 0, 3]
    both = (("I", (subscript({"i": 1, "j": -1}, 1, 2),)), ("K", (subscript({"j": 1}),)))
    two = ContractionSpec((subscript({"i": 1}),), (5,), "+", "*", both)
    result = contract(two, {"I": (3,), "K": (3,)}, image)
    assert [result[(i,)] for i in range(5)] == [2, 5, 4, 9, 6]
