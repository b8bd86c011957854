"""separate: sums that overlap between points get loops over their results."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.separate import Separate
from stripe.printer import to_text
from tests.support.managed import TARGETS, check_on, random_inputs
from tests.support.passes import check_pass, program_of


def machine(bytes_: int) -> HwConfig:
    base = load_named("vector_dsp")
    memories = tuple(replace(m, bytes=bytes_) if m.name == "LOCAL" else m for m in base.memories)
    return replace(base, memories=memories)


def sums(sizes: dict[str, int], steps: dict[str, int]) -> Program:
    """R[sum of steps] += X[indexes], shifted so that it starts at 0."""
    low = sum(min(0, steps[n] * (size - 1)) for n, size in sizes.items())
    reach = sum(abs(steps[n]) * (size - 1) for n, size in sizes.items()) + 1
    shape, ranges = ", ".join(map(str, sizes.values())), ", ".join(f"{n}:{s}" for n, s in sizes.items())
    strides = [prod(list(sizes.values())[at + 1 :]) for at in range(len(sizes))]
    element = " + ".join(f"{c}*{n}" for n, c in steps.items()).replace("+ -", "- ")
    return program_of(f"""
        block main [] (
          in X[{", ".join("0" for _ in sizes)}] i32({shape}):({", ".join(map(str, strides))})
          out R[0]:assign i32({reach}):(1)
        ) {{
          block zero [i:{reach}] (out R[i]:assign i32(1)) {{
            $z = constant(0) i32
            R = store($z)
          }}
          block r [{ranges}] (
            in X[{", ".join(sizes)}] i32({", ".join("1" for _ in sizes)})
            out R[{element} + {-low}]:add i32(1)
          ) {{
            $x = load(X) i32
            R = store($x)
          }}
        }}
        """)


STEPS = (-6, -4, -3, -2, -1, 1, 2, 3, 4, 6)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 7), st.sampled_from(STEPS)), min_size=2, max_size=4))
def test_any_sum_of_indexes(terms: list[tuple[int, int]]) -> None:
    names = "abcd"
    sizes = {names[at]: size for at, (size, _) in enumerate(terms)}
    steps = {names[at]: step for at, (_, step) in enumerate(terms)}
    check_pass(sums(sizes, steps), Separate(), machine(4))


def test_what_fits_stays() -> None:
    program = sums({"y": 30, "r": 3}, {"y": 2, "r": 1})
    result, (remark,) = check_pass(program, Separate(), machine(1 << 16))
    assert result is program
    assert remark.message == "'R' overlaps: it fits in LOCAL, where its sums are combined"


@pytest.mark.parametrize(("bytes_", "stays"), [(2 * 61 * 4, True), (2 * 61 * 4 - 1, False)])
def test_what_fits_fills_half_of_the_memory(bytes_: int, stays: bool) -> None:
    program = sums({"y": 30, "r": 3}, {"y": 2, "r": 1})
    result, _ = check_pass(program, Separate(), machine(bytes_))
    assert (result is program) is stays


@pytest.mark.parametrize(("size", "grown"), [(12, 3.5), (14, 4.0), (16, 4.5)])
def test_what_is_dealt_out_to_units_grows_fourfold_at_most(size: int, grown: float) -> None:
    """2*y + r: r = 2*u + p, and y + u takes 1 + size/2 values in place of 2."""
    program = sums({"y": 2, "r": size}, {"y": 2, "r": 1})
    result, (remark,) = check_pass(program, Separate(memory="SRAM"), load_named("many_core"))
    assert (result is program) is (grown > 4)
    if grown > 4:
        assert remark.message == f"the box of its points would grow {grown} times"
    else:
        assert remark.data == {"grown": grown}


@pytest.mark.parametrize(("size", "stays"), [(1, False), (2, True)])
def test_an_index_that_can_be_dealt_out_has_several_values(size: int, stays: bool) -> None:
    program = sums({"z": size, "y": 6, "r": 3}, {"z": 100, "y": 2, "r": 1})
    result, (remark,) = check_pass(program, Separate(memory="SRAM"), load_named("many_core"))
    assert (result is program) is stays
    if stays:
        assert remark.message == "'R' overlaps: it fits in SRAM, and other indexes are dealt out to units"


def test_a_kernel_without_points() -> None:
    program = sums({"y": 30, "r": 3}, {"y": 2, "r": 1})
    empty = program_of(to_text(program).replace("[y:30, r:3]", "[y:30, r:3, z:0]"))
    result, _ = check_pass(empty, Separate(), machine(4))
    assert result is empty


def test_tiles_that_are_apart_stay() -> None:
    """2*y + r with r < 2: each y has elements of its own."""
    result, remarks = check_pass(sums({"y": 30, "r": 2}, {"y": 2, "r": 1}), Separate(), machine(4))
    assert remarks == [] and len(result.root.children) == 2


def test_steps_that_do_not_divide_are_told() -> None:
    program = sums({"y": 30, "r": 4}, {"y": 3, "r": 2})
    result, (remark,) = check_pass(program, Separate(), machine(4))
    assert result is program
    assert "the steps 3 of 'y' and 2 of 'r' do not divide each other" in remark.message


def test_what_is_never_brought_near_is_not_separated() -> None:
    """The only memory that programs manage is that in which their results lie from the start."""
    base = machine(4)
    alone = replace(base, memories=tuple(replace(m, bytes=64) for m in base.memories if m is base.home))
    assert alone.home is not None and alone.nearest_explicit is None
    program = sums({"y": 30, "r": 3}, {"y": 2, "r": 1})
    context = PassContext(alone)
    assert Separate().run(program, context) is program
    (remark,) = context.remarks
    assert "no near memory of a limited size" in remark.message
    assert Separate(memory=alone.home.name).run(program, PassContext(alone)) is not program


def test_a_memory_without_limit_and_registers() -> None:
    program = sums({"y": 30, "r": 3}, {"y": 2, "r": 1})
    result, (remark,) = check_pass(program, Separate(memory="DRAM"), machine(4))
    assert result is program and "no near memory of a limited size" in remark.message
    with pytest.raises(CompileError, match="P180"):
        Separate(memory="REG").check(load_named("generic"))


@pytest.mark.parametrize("target", TARGETS)
def test_results_of_more_than_a_memory_holds(target: str, rng: np.random.Generator) -> None:
    program = sums({"y": 40000, "r": 3}, {"y": 2, "r": 1})
    check_on(program, load_named(target), random_inputs(program, rng))


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        (
            "2*x - 2*i + 4",
            "x - i + y + 2",
            "'R' overlaps in dimension 0 again where 'R' in dimension 1 does not",
        ),
        ("x + i", "x - i + 2", "dimension 0 of 'R' along 'x'; dimension 1 of 'R' along 'i'"),
        ("x + i", "y", "dimension 0 of 'R' along 'x'"),
    ],
)
def test_dimensions_that_mix_the_same_indexes_come_to_an_end(rows: str, columns: str, said: str) -> None:
    """To part points in one dimension may mix them in the other one."""
    program = program_of(f"""
        block main [] (in X[0, 0, 0] i32(9, 3, 6):(18, 6, 1)  out R[0, 0]:assign i32(24, 24):(24, 1)) {{
          block zero [i:24, j:24] (out R[i, j]:assign i32(1, 1)) {{
            $z = constant(0) i32
            R = store($z)
          }}
          block r [x:9, i:3, y:6] (in X[x, i, y] i32(1, 1, 1)  out R[{rows}, {columns}]:add i32(1, 1)) {{
            $x = load(X) i32
            R = store($x)
          }}
        }}
        """)
    _, (remark,) = check_pass(program, Separate(), machine(4))
    assert said in remark.message


def test_a_dimension_of_three_indexes_is_parted_twice() -> None:
    program = sums({"a": 5, "b": 7, "c": 3}, {"a": 4, "b": 2, "c": 1})
    _, (remark,) = check_pass(program, Separate(), machine(4))
    assert remark.acted and remark.message.count("dimension 0 of 'R' along") > 1
