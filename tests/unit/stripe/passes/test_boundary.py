"""boundary: where it splits, what the parts write, why it declines; generated programs."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from hwconfigs.load import load_named
from stripe.alike import kind
from stripe.ir import Block, Direction, Program, Special, Tag
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from stripe.passes.boundary import Boundary
from stripe.passes.boundary_chosen import Separated, Split
from stripe.passes.choices import Given
from stripe.rewrite import tile_block
from stripe.verify import findings
from stripe.visit import walk
from tests.support import native
from tests.support.meaning import random_inputs
from tests.support.passes import check_pass, program_of
from tests.support.programs import make_program
from tests.support.random_nests import random_program

GOLDEN = Path(__file__).parents[3] / "golden/passes/boundary"
GENERIC = load_named("generic")
ZEN3 = load_named("x86_64_zen3")


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.stripe").read_text(encoding="utf-8").partition("// ---- expect")[0]


WINDOW = golden("window")
REDUCTION = golden("reduction")


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.stripe")))
def test_the_parts_compute_the_same(name: str) -> None:
    result, _ = check_pass(program_of(golden(name)), Boundary(), GENERIC, again=False)
    assert result is not None


def test_the_interior_of_a_window_has_no_test_and_the_remark_says_how_much_that_is() -> None:
    result, (remark,) = check_pass(program_of(WINDOW), Boundary(), GENERIC, again=False)
    interior = max(
        result.root.children, key=lambda block: block.ranges.get("y", 1) * block.ranges.get("x", 1)
    )
    assert (interior.ranges, interior.constraints) == ({"y": 38, "x": 48, "i": 3, "j": 3}, ())
    assert remark.message == "split y at 1, y at 38, x at 1, x at 48: 94% of the points have no test"
    assert remark.data["length"] == len(result.root.children) == 5


@pytest.mark.parametrize(
    ("step", "blocks", "left"),
    [
        (
            Boundary(max_variants=1),
            1,
            "not separated: a split of y at 1 makes the code more than 1 times as long",
        ),
        (Boundary(max_variants=3), 3, "more than 3 times as long"),
        (Boundary(min_gain=0, max_variants=100), 45, ""),
    ],
)
def test_options_bound_the_number_of_parts(step: Boundary, blocks: int, left: str) -> None:
    result, (remark,) = check_pass(program_of(WINDOW), step, GENERIC, again=False)
    if blocks <= 3:
        assert len(result.root.children) == blocks
        assert left in f"{remark.message} {remark.data.get('left')}"
    else:  # every border, in every reduction index, too
        assert not any(block.constraints for block in result.root.children)


def test_lanes_and_uses_of_a_stencil_stay_together() -> None:
    head = "out O[y, x]:add f32(1, 1):(50, 1)\n  )"
    assert head in WINDOW
    lanes = program_of(WINDOW.replace(head, f"{head} #vector=x"))
    _, (remark,) = check_pass(lanes, Boundary(), GENERIC, again=False)
    assert remark.message.startswith("not separated: "), "constraints only limit loops"
    copies = program_of(WINDOW.replace(head, f"{head} #unroll=x"))
    _, (remark,) = check_pass(copies, Boundary(), GENERIC, again=False)
    assert remark.message == "split j at 1, j at 1: 99% of the points have no test"
    use = program_of(WINDOW.replace(head, f"{head} #stencil=s"))
    result, _ = check_pass(use, Boundary(), GENERIC)
    assert result is use


def test_a_split_that_gains_little_is_not_made() -> None:
    program = program_of(golden("last_tile"))
    result, (remark,) = check_pass(program, Boundary(min_gain=99), GENERIC, again=False)
    assert result is program
    assert remark.message == "not separated: the best split, of m at 73, spares 98.6% of the points a test"


def test_a_kernel_that_does_little_stays_as_it_is() -> None:
    """It has 18000 points, the greatest 78400."""
    large = "block z [n:40, m:40, k:49] (out O[n, m]:max f32(1, 1)) { $z = constant(0.0) f32  O = store($z) }"
    program = program_of(WINDOW.replace("  block o [", f"  {large}\n  block o ["))
    for share, acts in ((22, True), (23, False)):
        step = Boundary(min_share=share)
        result, (remark,) = check_pass(program, step, GENERIC, again=False)
        assert (result is not program) == acts == remark.acted
    assert remark.message == "not separated: it has 23.0% of the points of the greatest kernel"


def test_kernels_that_are_alike_are_split_alike() -> None:
    _, _, body = WINDOW.partition("  block o [")
    second = "  block p [" + body.replace("in I[", "in J[").replace("out O[", "out P[")
    second = second.replace("O = store", "P = store").replace("load(I)", "load(J)")
    text = WINDOW.rstrip().removesuffix("}") + second
    text = text.replace("  out O[0, 0]:assign f32(40, 50):(50, 1)\n", "  out O[0, 0]:assign f32(40, 50)\n"
                        "  in J[0, 0] f32(40, 50)  out P[0, 0]:assign f32(40, 50)\n", 1)  # fmt: skip
    result, remarks = check_pass(program_of(text), Boundary(), GENERIC, again=False)
    blocks = result.root.children
    assert [block.name for block in blocks] == [
        *(b.name for b in blocks[:5]),
        "p",
        "p_1",
        "p_2",
        "p_3",
        "p_4",
    ]
    assert [kind(block).block for block in blocks[:5]] == [kind(block).block for block in blocks[5:]]
    assert [remark.block for remark in remarks] == ["main/o", "main/p"]


def test_lanes_with_masks_stay_whole() -> None:
    result, (remark,) = check_pass(program_of(WINDOW), Boundary(), load_named("x86_64_avx512"), again=False)
    assert remark.message.startswith("split y at 1, y at 38:")
    assert all(block.ranges["x"] == 50 for block in result.root.children)
    assert "masks" in str(remark.data["left"])


def test_a_tile_is_not_taken_apart() -> None:
    flat = program_of(WINDOW)
    tiled = tile_block(flat.root.children[0], {"y": 8}, tags=(Tag("tiled"),))
    program = Program(replace(flat.root, statements=(tiled,)))
    result, _ = check_pass(program, Boundary(), GENERIC, again=False)
    assert [block.ranges for block in result.root.children] == [{}, {"y": 3}, {}]
    assert all(block.has_tag("tiled") and len(block.statements) == 1 for block in result.root.children)


SUM = """
block main [] (in A[0, 0] TYPE(8, 40)  out C[0]:assign TYPE(8)) {
  block c [k:40] (in A[0, k] TYPE(8, 1)  out C[0]:add TYPE(8)) #tiled {
    block d [m:8, k = k] (CONSTRAINT  in A[m, 0] TYPE(1, 1)  out C[m]:add TYPE(1)) {
      $a = load(A) TYPE
      C = store($a)
    }
  }
}
"""


def test_the_part_that_writes_all_runs_first() -> None:
    # At k = 0 only row 0 is written, later all rows are.
    program = program_of(SUM.replace("TYPE", "f32").replace("CONSTRAINT", "7*k - m >= 0"))
    result, _ = check_pass(program, Boundary(), GENERIC, again=False)
    first, second = result.root.children
    assert (first.ranges, first.refinement("C").direction) == ({"k": 39}, Direction.OUT)
    assert (second.ranges, second.refinement("C").direction) == ({}, Direction.INOUT)


def test_a_sum_in_a_narrow_type_is_rounded_once() -> None:
    program = program_of(SUM.replace("TYPE", "bf16").replace("CONSTRAINT", "7*k - m >= 0"))
    result, (remark,) = check_pass(program, Boundary(), GENERIC, again=False)
    assert result is program
    assert remark.message == "not separated: 'k' stays whole: 'C' would be rounded to bf16 in between"


def test_neither_part_may_write_what_the_other_does_not() -> None:
    # Rows from 3 on at k = 0, up to 4 at k = 1.
    program = program_of(
        """
        block main [] (in A[0, 0] f32(8, 2)  out C[0]:assign f32(8)) {
          block c [k:2] (in A[0, k] f32(8, 1)  out C[0]:add f32(8)) #tiled {
            block d [m:8, k = k] (m + 9*k - 3 >= 0  13 - 9*k - m >= 0
              in A[m, 0] f32(1, 1)  out C[m]:add f32(1)) {
              $a = load(A) f32
              C = store($a)
            }
          }
        }
        """
    )
    result, (remark,) = check_pass(program, Boundary(), GENERIC, again=False)
    assert result is program
    assert "each writes what the other doesn't" in remark.message


def test_a_block_without_constraints_is_no_news() -> None:
    program = program_of(
        """
        block main [] (in A[0] f32(8)  out C[0]:assign f32(8)) {
          block c [m:8] (in A[m] f32(1)  out C[m]:assign f32(1)) {
            $a = load(A) f32
            C = store($a)
          }
        }
        """
    )
    result, remarks = check_pass(program, Boundary())
    assert result is program
    assert remarks == []


def test_native_code_of_the_parts() -> None:
    program = program_of(WINDOW)
    inputs = random_inputs(program, np.random.default_rng(3))
    expected = native.run(program, inputs)
    for hw in native.runnable():
        result = Boundary().run(program, PassContext(hw))
        np.testing.assert_array_equal(native.run(result, inputs, hw)["O"], expected["O"])


@given(st.integers(0, 10_000))
@settings(max_examples=150, deadline=None)
def test_random_nests(seed: int) -> None:
    program = random_program(np.random.default_rng(seed))
    if not findings(program):
        check_pass(program, Boundary(min_gain=0, max_variants=30), again=False)


@pytest.mark.parametrize("number", range(12))
def test_generated_programs(number: int) -> None:
    program = make_program(number)
    step = Autotile(memory="L1", cost="cache_lines_per_point", max_candidates=64)
    tiled = step.run(program, PassContext(GENERIC))
    check_pass(tiled, Boundary(min_gain=0), again=False, rtol=1e-4)


@st.composite
def tiles_of_tiles(draw: st.DrawFn) -> Program:
    """A product in tiles of tiles of any sizes, with the loops of each level in any order."""
    m, n, k = (draw(st.integers(1, most)) for most in (9, 9, 24))
    text = f"""
    block main [] (in A[0, 0] i32({m}, {k})  in B[0, 0] i32({k}, {n})  out C[0, 0]:assign i32({m}, {n})) {{
      block c [m:{m}, n:{n}, k:{k}] (in A[m, k] i32(1, 1)  in B[k, n] i32(1, 1)  out C[m, n]:add i32(1, 1)) {{
        $a = load(A) i32
        $b = load(B) i32
        $p = mul($a, $b) i32
        C = store($p)
      }}
    }}
    """
    program, levels, names = program_of(text), draw(st.integers(1, 3)), ("m", "n", "k")

    def tiled(block: Block, left: int) -> Block:
        if not left:
            return block
        sizes = {name: draw(st.integers(1, size)) for name, size in block.ranges.items()}
        orders = draw(st.permutations(names)), draw(st.permutations(names))
        outer = tile_block(block, sizes, *orders, (Tag("tiled"),))
        (inner,) = outer.children
        return replace(outer, statements=(tiled(inner, left - 1),))

    return Program(replace(program.root, statements=(tiled(program.root.children[0], levels),)))


@given(tiles_of_tiles(), st.sampled_from([64, 256, 1024]))
@settings(max_examples=150, deadline=None)
def test_tiles_of_tiles(program: Program, cache: int) -> None:
    memories = tuple(structs.replace(m, bytes=m.bytes and cache) for m in ZEN3.memories)
    hw = structs.replace(ZEN3, memories=memories)
    check_pass(program, Boundary(min_gain=0, max_variants=30), hw, again=False)


TRIANGLE = golden("triangle")


def constraints_kept(text: str) -> list[int]:
    """How many constraints the two blocks in the tiles of a triangle keep."""
    result, _ = check_pass(program_of(text), Boundary(), GENERIC, again=False)
    return [len(block.constraints) for block in result.root.children[-1].children]


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, [0, 1]),
        ({":(16, 1) @REG": ":(16, 1)"}, [1, 1]),  # memory may hold what others read
        ({":(16, 1) @REG": ":(16, 1) @L1"}, [1, 1]),
        (
            {
                "@REG\n": "@REG\n    new Q f32(3, 16):(16, 1)\n",
                "out S[i, j]:add f32(1, 1)": "out S[i, j]:add f32(1, 1)\n      out Q[i, j]:max f32(1, 1)",
                "S = store($p)": "S = store($p)\n      Q = store($p)",
            },
            [1, 1],
        ),  # it writes what others read, too
        ({"#unroll=i #unroll=j #vector=j {\n      $a": "#vector=j {\n      $a"}, [1, 1]),  # only bounds
        ({"- no >= 0\n      in A": "- no - k >= 0\n      in A"}, [1, 1]),  # it decides what is added, too
        ({"in A[3*m, 0] f32(3, 5)": "in A[0, 0] f32(24, 5)", "A[i, k]": "A[i + mo - j - no, k]"}, [1, 1]),
        ({"in B[0, 16*n] f32(5, 16)": "in B[0, 0] f32(5, 48)", "B[k, j]": "B[k, i + mo - j - no]"}, [1, 1]),
    ],
)
def test_results_in_registers_that_nothing_reads_need_no_test(
    changes: dict[str, str], left: list[int]
) -> None:
    text = TRIANGLE
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    assert constraints_kept(text) == left


def test_tiles_beyond_a_triangle_of_sums_compute_none() -> None:
    """What fills R stands in the same tiles, so that loops go through all of them."""
    zeros = "$z = constant(0.0) f32\nR = store($z)"
    fill = f"    block R_fill [i:3, j:16] (out R[i, j]:assign f32(1, 1)) {{ {zeros} }}\n"
    text = TRIANGLE.replace("inout R[3*m", "out R[3*m").replace("inout R[i, j]", "out R[i, j]")
    text = text.replace("    block S [k:5", f"{fill}    block S [k:5")
    result, _ = check_pass(program_of(text), Boundary(), GENERIC, again=False)
    tile = result.root.children[-1]
    assert not tile.constraints
    (asked,) = tile.children[1].constraints
    assert str(asked.expr) == "mo - no + 2"


@pytest.mark.parametrize(
    ("half", "end"), [("io + i - jo - j", "49 - io - i"), ("jo + j - io - i", "49 - jo - j")]
)
def test_a_triangle_of_ragged_tiles_asks_for_the_end_of_rows_alone(half: str, end: str) -> None:
    """On the diagonal all of a tile is computed, so that the ragged tiles are those of one row or column."""
    text = f"""
    block main [] (in A[0, 0] f32(5, 50)  out R[0, 0]:assign f32(50, 50)) {{
      block fill [i:50, j:50] (out R[i, j]:assign f32(1, 1)) {{ $z = constant(0.0) f32  R = store($z) }}
      block t [m:13, n:4] (
        in A[0, 4*m] f32(5, 4)  in B = A[0, 16*n] f32(5, 16)  inout R[4*m, 16*n]:assign f32(4, 16)
        new S f32(4, 16):(16, 1) @REG
      ) #tiled {{
        block S [k:5, i:4, j:16, io = 4*m, jo = 16*n] (
          {half} >= 0  {end} >= 0
          in A[k, i] f32(1, 1)  in B[k, j] f32(1, 1)  out S[i, j]:add f32(1, 1)
        ) #unroll=i #unroll=j #vector=j {{
          $a = load(A) f32  $b = load(B) f32  $p = mul($a, $b) f32
          S = store($p)
        }}
        block R [i:4, j:16, io = 4*m, jo = 16*n] (
          {half} >= 0  {end} >= 0
          in S[i, j] f32(1, 1)  out R[i, j]:assign f32(1, 1)
        ) #unroll=i #unroll=j #vector=j {{
          $s = load(S) f32
          R = store($s)
        }}
      }}
    }}
    """
    program = program_of(text)
    result, _ = check_pass(program, Boundary(min_gain=2, max_variants=20), GENERIC, again=False)
    sums = [block for _, block in walk(result.root) if block.name == "S"]
    assert sum(not block.constraints for block in sums) >= 1
    assert not any({"io", "jo"} <= set(c.expr.names) for block in sums for c in block.constraints)


def test_what_is_read_untested_lies_in_every_view_on_the_way() -> None:
    text = """
    block main [] (in X[0] f32(16)  out R[0]:assign f32(14)) {
      block t [o:2] (in X[4*o] f32(7)  out R[7*o]:assign f32(7)) #tiled {
        block u [m:3] (in X[3*m] f32(3)  out R[3*m]:assign f32(3)  new S f32(3) @REG) #tiled {
          block S [k:4, i:3, mo = 3*m] (6 - i - mo >= 0  in X[i] f32(1)  out S[i]:add f32(1)) #unroll=i {
            $a = load(X) f32
            S = store($a)
          }
          block R [i:3, mo = 3*m] (6 - i - mo >= 0  in S[i] f32(1)  out R[i]:assign f32(1)) #unroll=i {
            $s = load(S) f32
            R = store($s)
          }
        }
      }
    }
    """
    tested = [1, 1]
    for view, left in (("in X[4*o] f32(7)", tested), ("in X[4*o] f32(9)", [0, 1])):
        program = program_of(text.replace("in X[4*o] f32(7)", view))
        result, _ = check_pass(program, Boundary(min_gain=100), GENERIC, again=False)
        (kernel,) = result.root.children[0].children
        assert [len(block.constraints) for block in kernel.children] == left


def test_what_stands_beside_a_block_runs_at_points_where_that_has_none() -> None:
    text = """
    block main [] (in A[0] f32(8)  in P[0] i32(4)  out R[0]:assign f32(4)  out T[0]:assign f32(4)) {
      block fill [x:4] (out T[x]:assign f32(1)) { $z = constant(0.0) f32  T = store($z) }
      block t [m:4] (in A[0] f32(8)  in P[m] i32(1)  out R[m]:assign f32(1)  out T[m]:add f32(1)) {
        special gather(in A, in P, out R:assign) {axis=0}
        block T [i:2, mo = m] (1 - i - mo >= 0  in A[i] f32(1)  out T[0]:add f32(1)) {
          $a = load(A) f32
          T = store($a)
        }
      }
    }
    """
    result, _ = check_pass(program_of(text), Boundary(), GENERIC, again=False)
    points = [b for b in result.root.children if any(isinstance(s, Special) for s in b.statements)]
    assert sum(prod(block.ranges.values()) for block in points) == 4


def test_loops_around_stay_whole_where_both_parts_would_bring_in_much_again() -> None:
    """B has 512 KiB, more than the L2 of a Zen 3 is counted on for; the choice says so, and repeats it."""
    text, hw = golden("rows_left_over"), load_named("x86_64_zen3")
    result, (remark,) = check_pass(program_of(text), Boundary(), hw, again=False)
    assert remark.acted
    assert [block.ranges for block in result.root.children] == [{"k": 32}]
    small = text.replace("2048", "1024").replace("k:32", "k:16")
    result, _ = check_pass(program_of(small), Boundary(), hw, again=False)
    assert [block.ranges for block in result.root.children] == [{"k": 16, "m": 2}, {"k": 16}]


def test_loops_that_are_given_as_whole_stay_whole() -> None:
    program, hw = program_of(golden("rows_left_over")), load_named("x86_64_zen3")
    searched = PassContext(hw)
    found = Boundary().run(program, searched)
    assert searched.choices == {"main/c": Separated((Split((0,), "m", 2, within=True),))}
    given = PassContext(hw, given=Given(dict(searched.choices)))
    assert Boundary().run(program, given) == found
    apart = PassContext(hw, given=Given({"main/c": Separated((Split((0,), "m", 2),))}))
    assert len(Boundary().run(program, apart).root.children) == 2


@pytest.mark.parametrize("outer", ["z:2", "m:2, k:2"])
def test_loops_around_an_inner_block_stay_whole_where_that_is_split(outer: str) -> None:
    """The loops around are those of the block that is split, not of the kernel, which may have indexes of the
    same name, or not."""
    text = golden("rows_left_over")
    kernel = text[text.index("  block c [k:32") : text.rindex("}")]
    views = "in A[0, 0] f32(8, 2048):(2048, 1)  in B[0, 0] f32(2048, 64):(64, 1)"
    views += "  out C[0, 0]:add f32(8, 64):(64, 1)"
    around = f"  block around [{outer}] ({views}) #tiled {{\n{kernel}  }}\n"
    program, hw = program_of(text.replace(kernel, around)), load_named("x86_64_zen3")
    result, _ = check_pass(program, Boundary(), hw, again=False)
    (block,) = result.root.children
    assert block.ranges == program.root.children[0].ranges
    assert [child.ranges for child in block.children] == [{"k": 32}]
    assert [part.ranges for part in block.children[0].children] == [{"m": 2}, {}]
