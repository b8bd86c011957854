"""The verifier against what happens: programs that run are accepted, those that go wrong are not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stripe.affine import Affine
from stripe.diag import CompileError
from stripe.dtypes import DType
from stripe.interp import interpret
from stripe.ir import Aggregation, Block, Direction, Index, Load, Program, Refinement, Statement, Store
from stripe.verify import findings
from tests.support.programs import Options, make_program
from tests.support.random_nests import random_program

DYNAMIC = {"V044", "V045", "V050", "V051", "V052"}


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_valid_programs_are_accepted(seed: int) -> None:
    for each in range(seed, seed + 10):
        program = make_program(each, Options(load_time=each % 3 == 0))
        assert [f.message for f in findings(program)] == [], each


def check_against_the_interpreter(seed: int) -> str:
    """Programs with or without a meaning: the verifier and the interpreter say the same.

    Rules that forbid more than the interpreter notices (V040 to V043) are left out.
    """
    program = random_program(np.random.default_rng(seed))
    codes = {finding.code for finding in findings(program)}
    if codes - DYNAMIC:
        return "structure"
    (source,) = program.inputs
    data = np.arange(int(np.prod(source.shape)), dtype=np.int32).reshape(source.shape)
    try:
        interpret(program, {source.name: data})
    except CompileError as error:
        assert codes, (seed, str(error))
        return "wrong"
    assert not codes, (seed, codes)
    return "right"


def test_findings_are_what_goes_wrong() -> None:
    results = [check_against_the_interpreter(seed) for seed in range(800)]
    assert results.count("right") > 80
    assert results.count("wrong") > 30


@pytest.mark.slow
def test_findings_are_what_goes_wrong_at_length() -> None:
    for seed in range(1000, 20_000):
        check_against_the_interpreter(seed)


# -- two refinements of one buffer, and `inout`, against enumeration -----------------------------------

SIZE = 40
coefficients = st.integers(-3, 3)


@st.composite
def accesses(draw: st.DrawFn, ranges: dict[str, int]) -> Affine:
    """An access that stays inside a buffer of SIZE elements, view size 3 included."""
    expr = Affine.of({name: draw(coefficients) for name in ranges})
    low, high = expr.bounds({name: (0, size - 1) for name, size in ranges.items()})
    return expr - low + draw(st.integers(0, min(4, SIZE - 3 - (high - low))))


@st.composite
def aliasing(draw: st.DrawFn) -> tuple[Block, list[tuple[str, str]]]:
    """A block whose statements load and store through views A, B of T; and the statements in short."""
    ranges = {"i": draw(st.integers(1, 4)), "j": draw(st.integers(1, 3))}
    directions = [draw(st.sampled_from([Direction.IN, Direction.OUT, Direction.INOUT])) for _ in "AB"]
    refs = tuple(
        Refinement(
            direction, name, (1,), DType.F32, "T", (draw(accesses(ranges)),),
            Aggregation.ASSIGN if direction.writes else None,
        )
        for name, direction in zip("AB", directions, strict=True)
    )  # fmt: skip
    steps: list[tuple[str, str]] = []
    statements: list[Statement] = [Load("v", "S", DType.F32)]
    for number, name in enumerate(draw(st.permutations(["A", "B", "A", "B"]))):
        direction = directions["AB".index(name)]
        if direction.reads and draw(st.booleans()):
            statements.append(Load(f"v{number}", name, DType.F32))
            steps.append((name, "load"))
        elif direction.writes:
            statements.append(Store(name, "v"))
            steps.append((name, "store"))
    one = Refinement(Direction.IN, "S", (1,), DType.F32, "S", (Affine(),))
    indexes = tuple(Index(name, size) for name, size in ranges.items())
    return Block("kernel", indexes, (), (*refs, one), tuple(statements)), steps


def broken_rules(block: Block, steps: list[tuple[str, str]]) -> Iterator[str]:
    """The rules V044 to V046, as they are stated, over all pairs of points and statements."""
    refs = {ref.name: ref for ref in block.refinements}
    points = [
        dict(zip(block.ranges, p, strict=True))
        for p in itertools.product(*(range(size) for size in block.ranges.values()))
    ]
    events = [
        (p, at, name, what, refs[name].access[0].evaluate(point))
        for p, point in enumerate(points)
        for at, (name, what) in enumerate(steps)
    ]
    for (p, at, name, what, place), (q, other_at, other, does, other_place) in itertools.product(
        events, repeat=2
    ):
        if place != other_place or what != "store":
            continue
        if name == other and p != q:
            if does == "store":
                yield "V044"
            else:
                yield "V045"
        if name != other and (p != q or does == "store" or other_at >= at):
            yield "V046"


@given(aliasing())
@settings(max_examples=250)
def test_aliases_against_enumeration(made: tuple[Block, list[tuple[str, str]]]) -> None:
    block, steps = made
    zero = (Affine(),)
    fill = Block(
        "fill", (Index("x", SIZE),), (),
        (
            Refinement(Direction.IN, "S", (1,), DType.F32, "S", zero),
            Refinement(Direction.OUT, "T", (1,), DType.F32, "T", (Affine.index("x"),), Aggregation.ASSIGN),
        ),
        (Load("v", "S", DType.F32), Store("T", "v")),
    )  # fmt: skip
    root = Block(
        "main",
        refinements=(
            Refinement(Direction.IN, "S", (1,), DType.F32, "S", zero, strides=(1,)),
            Refinement(Direction.OUT, "T", (SIZE,), DType.F32, "T", zero, Aggregation.ASSIGN, strides=(1,)),
        ),
        statements=(fill, block),
    )
    found = {finding.code for finding in findings(Program(root))} - {"V051"}
    expected = set(broken_rules(block, steps))
    if "V044" in expected:  # then it says it all: what a point reads after its own store
        found, expected = found - {"V045"}, expected - {"V045"}
    assert found == expected
