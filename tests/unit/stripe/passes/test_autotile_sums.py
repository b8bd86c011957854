"""autotile: cuts what a block reduces over where that saves copies."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import pytest

from benchmarks.problems import Contraction
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.ir import Program
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from tests.support.passes import check_pass, program_of
from tests.support.problems import lowered

AVX512 = load_named("x86_64_avx512")


def product(rows: int, columns: int, steps: int, strides: str = "", of_b: str = "") -> Program:
    """`strides` are those of A."""
    return program_of(f"""
block main [] (
  in A[0, 0] f32({rows}, {steps}){strides}
  in B[0, 0] f32({steps}, {columns}){of_b}
  out C[0, 0]:assign f32({rows}, {columns})
) {{
  block c [m:{rows}, n:{columns}, k:{steps}] (
    in A[m, k] f32(1, 1)
    in B[k, n] f32(1, 1)
    out C[m, n]:add f32(1, 1)
  ) {{
    $a = load(A) f32
    $b = load(B) f32
    $c = mul($a, $b) f32
    C = store($c)
  }}
}}""")


def constant(program: Program, name: str) -> Program:
    """The program with an input that is known at load time."""
    root = program.root
    known = tuple(replace(r, const=r.name == name) for r in root.refinements)
    return replace(program, root=replace(root, refinements=known))


def sizes(program: Program, step: Autotile | None = None, hw: HwConfig = AVX512) -> dict[str, int]:
    context = PassContext(hw)
    (step or Autotile(memory="L2")).run(program, context)
    (remark,) = context.remarks
    return {name: int(size) for name, size in re.findall(r"(\w+):(\d+)", remark.message.partition(" at ")[0])}


def small() -> HwConfig:
    """A second cache with place for 144 rows that are 512 bytes apart."""
    memories = tuple(
        msgspec.structs.replace(m, bytes={"L1": 16384, "L2": 131072}.get(m.name, m.bytes))
        for m in AVX512.memories
    )
    return msgspec.structs.replace(AVX512, memories=memories)


def around(program: Program) -> list[str]:
    """The loops over tiles of L2, outermost first."""
    (tiles,) = Autotile(memory="L2").run(program, PassContext(AVX512)).root.children
    return [name for name, count in tiles.ranges.items() if count > 1]


def test_rows_that_crowd_into_few_sets_are_cut_into_pieces() -> None:
    # 3072 rows of 3072 bytes: 24 and more for each set of 16 ways.
    program = product(128, 768, 3072)
    assert 64 <= sizes(program)["k"] < 3072
    assert "m" not in around(program)[:-1], "all rows read a piece before the next one"


def test_no_more_rows_are_read_in_turn_than_are_fetched_ahead() -> None:
    # Tiles in registers read 192 bytes and more of each of 4096 rows, or of 768, in turn.
    for rows, columns, steps in ((32, 4096, 4096), (12, 3072, 768)):
        program = product(rows, columns, steps)
        assert 32 <= sizes(program)["k"] <= 64, "each row goes on where the last tile has left it"
        assert "m" not in around(program)[:-1], "all that is done with a piece is done before the next one"


def test_a_transposed_input_is_not_read_anew_for_each_few_columns() -> None:
    # Tiles in registers take 36 bytes of each row of A at a time.
    found = sizes(product(1000, 1100, 1200, ":(1, 1000)"), hw=load_named("x86_64_amx"))
    assert found["n"] == 1100 and found["m"] < 100


def two_sums(rows: int, columns: int, steps: tuple[int, int], turned: bool = True) -> Program:
    """`turned`: A lies along its rows."""
    first, last = steps
    shape, access = f"{rows}, {first}, {last}", "m, k, l"
    if turned:
        shape, access = f"{first}, {last}, {rows}", "k, l, m"
    return program_of(f"""
block main [] (
  in A[0, 0, 0] f32({shape})
  in B[0, 0, 0] f32({first}, {last}, {columns})
  out C[0, 0]:assign f32({rows}, {columns})
) {{
  block c [m:{rows}, n:{columns}, k:{first}, l:{last}] (
    in A[{access}] f32(1, 1, 1)
    in B[k, l, n] f32(1, 1, 1)
    out C[m, n]:add f32(1, 1)
  ) {{
    $a = load(A) f32
    $b = load(B) f32
    $c = mul($a, $b) f32
    C = store($c)
  }}
}}""")


def test_pieces_of_two_sums_are_weighed_as_well() -> None:
    found = sizes(two_sums(1000, 1100, (20, 60)), hw=load_named("x86_64_amx"))
    assert found["n"] == 1100 and found["k"] * found["l"] < 1200


def test_rows_that_follow_one_another_are_read_in_pieces_of_them() -> None:
    # Tiles in registers take half of each row of B; the next one begins 256 bytes on.
    assert not sizes(two_sums(64, 64, (64, 64), False), hw=load_named("x86_64_amx")).keys() & {"k", "l"}


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((512, 512, 512), "rows find a place in the cache: nothing is copied"),
        ((2048, 768, 3072), "many rows read the copy: it costs less than results that come back"),
        ((8, 768, 1024), "one tile in registers has all rows: nothing would be read again"),
    ],
)
def test_others_stay_whole(shape: tuple[int, int, int], why: str) -> None:
    assert "k" not in sizes(product(*shape)), why


def test_pieces_are_long_enough_for_what_loops_ask_for_ahead() -> None:
    # The cheapest ones, whose rows find a place, would be shorter.
    units = tuple(msgspec.structs.replace(u, streams=None) for u in AVX512.units)
    alone = msgspec.structs.replace(AVX512, units=units)
    program = product(32, 2048, 256)
    assert sizes(program)["k"] < 64 <= sizes(program, hw=alone)["k"] < 256


def test_copies_at_load_time_cost_nothing() -> None:
    program = product(128, 768, 3072)
    assert "k" not in sizes(constant(program, "B"))
    assert "k" in sizes(constant(program, "A"))


def test_who_says_what_may_be_cut_is_obeyed() -> None:
    program = product(128, 768, 3072)
    assert "k" not in sizes(program, Autotile(memory="L2", reductions=False))
    assert "k" not in sizes(program, Autotile(memory="L2", indices=("m", "n")))


def test_pieces_compute_the_same() -> None:
    result, (remark,) = check_pass(product(32, 128, 256), Autotile(memory="L2"), small(), rtol=1e-5)
    (tiles,) = result.root.children
    assert remark.acted and tiles.ranges["k"] == 2


def test_pieces_of_a_sum_over_several_indexes_are_long_enough_together() -> None:
    """Whole rows of (f, c), and two of a: none of the three has 64 steps."""
    problem = Contraction("bed-afbec-afdce", (("a", 16), ("b", 32), ("c", 6), ("d", 64), ("e", 64), ("f", 8)))
    found = sizes(lowered(problem), hw=load_named("x86_64_zen4"))
    assert (found["a"], found["f"], found["c"]) == (2, 8, 6)
    assert found["e"] >= 16, "lines of Y are used whole"
