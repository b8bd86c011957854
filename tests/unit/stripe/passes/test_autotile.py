"""autotile: what it makes, why it declines, what it reports; generated programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Remark
from stripe.ir import Program
from stripe.passes.autotile import Autotile
from stripe.passes.base import PassContext
from stripe.passes.registry import make_pass
from tests.support.passes import check_pass, chosen_of, program_of
from tests.support.programs import corpus, make_program

CONTRACTION = """
block main [] (in A[0, 0] f32(SIZE, SIZE)  in B[0, 0] f32(SIZE, SIZE)  out C[0, 0]:assign f32(SIZE, SIZE)) {
  block c [m:SIZE, n:SIZE, k:SIZE] (in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out C[m, n]:add f32(1, 1)) {
    $a = load(A) f32
    $b = load(B) f32
    $c = mul($a, $b) f32
    C = store($c)
  }
}
"""


def contraction(size: int) -> Program:
    return program_of(CONTRACTION.replace("SIZE", str(size)))


def tiny() -> HwConfig:
    """The generic target with caches so small that little fits."""
    generic = load_named("generic")
    sizes = {"L1": 256, "L2": 2048, "L3": 4096}
    memories = tuple(msgspec.structs.replace(m, bytes=sizes.get(m.name, m.bytes)) for m in generic.memories)
    return msgspec.structs.replace(generic, memories=memories)


def remark_of(program: Program, step: Autotile, hw: HwConfig) -> Remark:
    context = PassContext(hw)
    step.run(program, context)
    (remark,) = context.remarks
    return remark


def test_sizes_that_are_given_are_taken_whatever_they_cost() -> None:
    hw = load_named("x86_64_avx512")
    many = Autotile(memory="REG", tile=(("m", 40), ("n", 500)))
    _, (remark,) = check_pass(contraction(100), many, hw)
    assert remark.acted and "tiled m:40 n:100, which needs" in remark.message
    deep = Autotile(memory="REG", tile=(("m", 2), ("k", 50)))
    result, (remark,) = check_pass(contraction(100), deep, hw)
    (tile,) = result.root.children
    assert (tile.ranges["m"], tile.ranges["k"]) == (50, 2), "a reduction may be named, the rest is searched"
    fits = Autotile(memory="L2", tile=(("m", 30),))
    result, (remark,) = check_pass(contraction(100), fits, hw)
    assert result.root.children[0].ranges == {"m": 4}, "though the whole block fits"


def test_sizes_for_other_indexes_are_for_other_blocks() -> None:
    hw = load_named("x86_64_avx512")
    result, remarks = check_pass(contraction(100), Autotile(memory="REG", tile=(("x", 4),)), hw)
    searched, _ = check_pass(contraction(100), Autotile(memory="REG"), hw)
    assert result == searched
    assert [r.acted for r in remarks] == [False, True] and "not all indexes" in remarks[0].message


def test_a_given_tile_must_fit_where_copies_are_made() -> None:
    hw = load_named("vector_dsp")
    with pytest.raises(CompileError) as caught:
        Autotile(memory="LOCAL", tile=(("m", 4000), ("n", 4000))).run(contraction(4000), PassContext(hw))
    assert "needs" in str(caught.value)
    result, _ = check_pass(contraction(100), Autotile(memory="LOCAL", tile=(("m", 7),)), hw)
    assert result.root.children[0].ranges["m"] == 15


def test_the_remark_holds_the_choice_and_what_was_weighed() -> None:
    _, (remark,) = check_pass(contraction(100), Autotile(memory="REG"), load_named("x86_64_avx512"))
    assert (remark.block, remark.acted) == ("main/c", True)
    data: dict[str, Any] = remark.data
    chosen, rows = data["chosen"], data["candidates"]
    assert rows[0] == chosen
    assert remark.message.startswith(f"tiled m:{chosen['sizes']['m']} n:{chosen['sizes']['n']} at ")
    second = " ".join(f"{name}:{size}" for name, size in rows[1]["sizes"].items())
    assert remark.message.endswith(f"; next {second} at {rows[1]['cost']:.4g}")
    assert data["weighed"] >= len(rows) > 100
    fitting = [row["cost"] for row in rows if "cost" in row]
    assert fitting == sorted(fitting)
    assert any(row["limit"].endswith("of 32 vector registers of CORE") for row in rows if "limit" in row)


@pytest.mark.parametrize(
    ("text", "step", "reason"),
    [
        (
            "block r [x:9] (in A[x] f32(1)  out R[x]:assign f32(1)) { $a = load(A) f32  R = store($a) }",
            Autotile(memory="REG"),
            "nothing is used twice",
        ),
        (
            "block r [x:9] (in A[x] f32(1)  out R[x]:assign f32(1)) { $a = load(A) f32  R = store($a) }",
            Autotile(memory="L1"),
            "all that it touches fits in L1 together",
        ),
        (
            "block r [x:9] (in A[x] f32(1)  out R[x]:assign f32(1)) { $a = load(A) f32  R = store($a) }",
            Autotile(memory="L1", indices=("y",)),
            "no index to tile",
        ),
        (
            "block r [x:9] (in A[x] f32(1)  out R[x]:assign f32(1)) { $a = load(A) f32  R = store($a) }",
            Autotile(memory="L1", cost="cache_lines_per_point"),
            "the whole block is the best tile",
        ),
        (
            "block r [x:9] (in A[x] f32(1)  out R[x]:assign f32(1)) { $a = load(A) f32  R = store($a) }",
            Autotile(memory="DRAM"),
            "the memory DRAM has no limit",
        ),
        (
            "block r [x:9, y:9] (in A[y] f32(1)  out R[x]:add f32(1)) #tiled { $a = load(A)  R = store($a) }",
            Autotile(memory="REG"),
            "",
        ),
    ],
)
def test_it_says_why_it_declines(text: str, step: Autotile, reason: str) -> None:
    program = program_of(f"block main [] (in A[0] f32(9)  out R[0]:assign f32(9)) {{ {text} }}")
    result, remarks = check_pass(program, step, load_named("generic"))
    assert result is program
    assert [r.message.startswith(f"not tiled: {reason}") for r in remarks] == ([True] if reason else [])


MOVED = """
block main [] (in A[0, 0] f32(900, 700)  in G[0] f32(700)  out B[0, 0]:assign f32(LARGE)) {
  block b [m:900, n:700] (in A[m, n] f32(1, 1)  in G[n] f32(1)  out B[WHERE]:assign f32(1, 1)) {
    $a = load(A) f32
    $g = load(G) f32
    $b = add($a, $g) f32
    B = store($b)
  }
}
"""


def test_what_goes_along_memory_is_left_whole() -> None:
    step, hw = Autotile(memory="L2"), load_named("x86_64_avx2")
    along = MOVED.replace("LARGE", "900, 700").replace("WHERE", "m, n")
    remark = remark_of(program_of(along), step, hw)
    assert remark.message == "not tiled: it goes through its operands as they lie in memory"
    across = MOVED.replace("LARGE", "700, 900").replace("WHERE", "n, m")
    assert remark_of(program_of(across), step, hw).acted
    assert remark_of(program_of(along), step, tiny()).acted, "what is read again does not stay"


def test_rows_of_a_few_elements_that_follow_each_other_are_left_whole() -> None:
    """Vectors go on from row to row: no index need be long."""
    text = """
    block main [] (in A[0, 0, 0] f64(580, 2159, 2)  out B[0, 0, 0]:assign i16(580, 2159, 2)) {
      block b [i:580, j:2159, k:2] (in A[i, j, k] f64(1, 1, 1)  out B[i, j, k]:assign i16(1, 1, 1)) {
        $a = load(A) f64
        $b = cast($a) i16
        B = store($b)
      }
    }
    """
    remark = remark_of(program_of(text), Autotile(memory="L2"), load_named("x86_64_zen4"))
    assert remark.message == "not tiled: it goes through its operands as they lie in memory"


COLUMNS = """
block main [] (in A[0, 0] f32(ROWS, COLUMNS)  out S[0]:assign f32(COLUMNS)) {
  block s [n:COLUMNS, m:ROWS] (in A[m, n] f32(1, 1)  out S[n]:add f32(1)) {
    $a = load(A) f32
    S = store($a)
  }
}
"""


@pytest.mark.parametrize(
    ("rows", "columns", "sizes"),
    [
        (900, 901, {"m": 8, "n": 32}),  # from beyond the caches, the sums stay near: a few rows at a time
        (1024, 1024, {"m": 1, "n": 64}),  # whole lines, from a cache: one row after the other
        (1024, 1040, {"m": 1, "n": 80}),  # 65 vectors, none of which is left over
        (1024, 976, {"m": 8, "n": 32}),  # 61 vectors
        (512, 512, {"n": 256}),  # all of it stays near
        (4096, 64, {"n": 64}),
        (256, 4096, {"m": 1, "n": 64}),  # the sums and a row fill the nearest cache
        (256, 5120, {"m": 6, "n": 32}),  # rows meet there: two of its eight ways are left
        (1021, 1019, {"m": 6, "n": 32}),  # these nearly do
        (8192, 8192, {"m": 8, "n": 32}),  # from main memory, more rows are worth it
        (90, 901, {"n": 464}),  # all of it stays near
        (900, 20000, {"m": 8, "n": 32}),
        (9, 1000000, {"n": 496}),  # the sums do not stay
        (9000, 100, {"n": 100}),  # the sums of a row stay in registers
    ],
)
def test_sums_of_columns(rows: int, columns: int, sizes: dict[str, int]) -> None:
    program = program_of(COLUMNS.replace("ROWS", str(rows)).replace("COLUMNS", str(columns)))
    hw = load_named("x86_64_avx512")
    if "m" in sizes:
        far = remark_of(program, Autotile(memory="L2"), hw)
        assert far.message == "not tiled: it goes through its operands as they lie in memory"
    near = remark_of(program, Autotile(memory="REG"), hw)
    data: Any = near.data
    assert data.get("chosen", {}).get("sizes") == sizes, near.message


def test_rows_go_side_by_side_where_vectors_are_parts_of_lines() -> None:
    """A line then takes several loads, and its sums as many stores, in turn with each other."""
    text = COLUMNS.replace("ROWS", "1024").replace("COLUMNS", "1024")
    remark = remark_of(program_of(text), Autotile(memory="REG"), load_named("x86_64_avx2"))
    data: Any = remark.data
    assert data["chosen"]["sizes"] == {"m": 6, "n": 32}
    text = COLUMNS.replace("ROWS", "4096").replace("COLUMNS", "1024")
    text = (
        text.replace("A[0, 0] f32", "A[0, 0] u8").replace("A[m, n] f32", "A[m, n] u8").replace("f32", "i32")
    )
    text = text.replace("load(A) i32", "load(A) u8").replace(
        "S = store($a)", "$b = cast($a) i32 S = store($b)"
    )
    remark = remark_of(program_of(text), Autotile(memory="REG"), load_named("x86_64_zen4"))
    data = remark.data
    assert data["chosen"]["sizes"].get("m") != 1


THIN = """
block main [] (in A[0, 0] f32(3000, DEPTH)  in B[0, 0] f32(DEPTH, 3000)  out C[0, 0]:assign f32(3000, 3000)) {
  block product [m:3000, n:3000, k:DEPTH] (
    in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out C[m, n]:add f32(1, 1)
  ) {
    $a = load(A) f32
    $b = load(B) f32
    $p = mul($a, $b) f32
    C = store($p)
  }
}
"""


@pytest.mark.parametrize("depth", [4, 16])
def test_results_beyond_the_caches_of_operands_within(depth: int) -> None:
    """Nothing is fetched ahead for results: several rows of them share what is read of B."""
    program = program_of(THIN.replace("DEPTH", str(depth)))
    remark = remark_of(program, Autotile(memory="REG"), load_named("x86_64_zen4"))
    data: Any = remark.data
    assert data["chosen"]["sizes"]["m"] > 1, remark.message


PRODUCTS = """
block main [] (
  in X[0, 0] f32(48, 48)
  in Y[0, 0, 0] f32(2304, 48, 48)
  out Z[0, 0, 0]:assign f32(2304, 48, 48)
) {
  block z [c:2304, b:48, e:48, a:48] (
    in X[b, e] f32(1, 1)
    in Y[c, e, a] f32(1, 1, 1)
    out Z[c, b, a]:add f32(1, 1, 1)
  ) {
    $x = load(X) f32
    $y = load(Y) f32
    $z = mul($x, $y) f32
    Z = store($z)
  }
}
"""


def test_what_memory_brings_faster_than_it_is_added_is_kept_in_registers() -> None:
    """It goes along Y and Z, which come from memory, and 48 products are summed up in each element of Z: that
    takes longer than memory does."""
    program = program_of(PRODUCTS)
    remark = remark_of(program, Autotile(memory="REG"), load_named("x86_64_avx512"))
    assert remark.acted, remark.message


def sum_of_products(size: int, loops: str, x: str, y: str, z: str) -> Program:
    """Z is the sum of X * Y, all of whose indexes have this size: `loops` in order, and those of each."""

    def view(name: str, indexes: str, how: str = "") -> tuple[str, str]:
        zeros, sizes, ones = (", ".join([text] * len(indexes)) for text in ("0", str(size), "1"))
        outer = f"{name}[{zeros}]{':assign' if how else ''} f32({sizes})"
        return outer, f"{name}[{', '.join(indexes)}]{how} f32({ones})"

    (x_all, x_own), (y_all, y_own), (z_all, z_own) = view("X", x), view("Y", y), view("Z", z, ":add")
    return program_of(f"""
block main [] (in {x_all}  in {y_all}  out {z_all}) {{
  block z [{", ".join(f"{name}:{size}" for name in loops)}] (in {x_own}  in {y_own}  out {z_own}) {{
    $x = load(X) f32
    $y = load(Y) f32
    $z = mul($x, $y) f32
    Z = store($z)
  }}
}}""")


def test_lanes_along_a_result_are_settled_where_an_input_will_be_copied() -> None:
    """Along a, X is taken apart: a copy in each tile turns it. Tiles are made of whole vectors of Z."""
    result, _ = check_pass(
        sum_of_products(48, "dbae", "aed", "eb", "dba"), Autotile(memory="REG"), load_named("x86_64_avx512")
    )
    (leaf,) = result.root.children[0].children
    assert leaf.tag_values("vector") == ("a",)
    assert tuple(leaf.ranges)[-1] == "a"
    assert leaf.ranges["a"] % 16 == 0


def test_vectors_go_on_from_row_to_row_of_a_tile() -> None:
    """Rows of Z follow each other: two of 24 fill three vectors, which one of them does not fill two of."""
    remark = remark_of(
        sum_of_products(24, "dcbaef", "fbea", "ecfd", "dcba"),
        Autotile(memory="REG"),
        load_named("x86_64_avx512"),
    )
    sizes = chosen_of(remark)["sizes"]
    assert sizes["a"] == 24
    assert sizes["a"] * sizes["b"] % 16 == 0


def test_sums_stay_on_a_page_of_what_is_the_same_for_all_lanes() -> None:
    """Along e, X goes from line to line and Y from page to page, and the other way round along f."""

    def order(x: str, y: str) -> list[str]:
        context, program = (
            PassContext(load_named("x86_64_avx512")),
            sum_of_products(24, "dcbafe", x, y, "dcba"),
        )
        (tile,) = Autotile(memory="REG").run(program, context).root.children[0].children
        return [name for name in tile.ranges if name in "ef"]

    assert order("fbea", "ecfd") == ["e", "f"]
    assert order("ebfa", "fced") == ["f", "e"]


def test_tiles_of_a_cache_use_a_copy_often() -> None:
    """Along a, X has to be copied in each tile, and only what differs in c shares it."""
    remark = remark_of(
        sum_of_products(24, "edcbaf", "dabfe", "fc", "edcba"),
        Autotile(memory="L2"),
        load_named("x86_64_avx512"),
    )
    assert chosen_of(remark)["sizes"]["c"] >= 8


def test_tiles_of_a_cache_share_no_copy() -> None:
    """All of X fits for a third of c, and tiles would share it; but each would copy it along a for itself."""
    remark = remark_of(
        sum_of_products(48, "dcbae", "dabe", "ec", "dcba"), Autotile(memory="L2"), load_named("x86_64_zen4")
    )
    assert chosen_of(remark)["sizes"]["c"] == 48


PICTURE = """
block main [] (in I[0, 0] f32(319, 319)  in F[0, 0] f32(64, 64)  out O[0, 0]:assign f32(256, 256)) {
  block o [y:256, x:256, r:64, s:64] (
    in I[y + r, x + s] f32(1, 1)
    in F[r, s] f32(1, 1)
    out O[y, x]:add f32(1, 1)
  ) {
    $i = load(I) f32
    $f = load(F) f32
    $p = mul($i, $f) f32
    O = store($p)
  }
}
"""


def test_rows_of_a_window_leave_registers_to_the_steps_that_share_them() -> None:
    """Most vectors of I lie across two lines. Of 8 steps, as many values of F stay, and a row of I passes."""
    remark = remark_of(program_of(PICTURE), Autotile(memory="REG"), load_named("x86_64_avx512"))
    sizes = chosen_of(remark)["sizes"]
    assert 16 <= sizes["y"] * -(-sizes["x"] // 16) <= 32 - 8 - 1


DEPTHWISE = """
block main [] (in I[0, 0, 0] f32(HEIGHT, WIDTH, 64)  in F[0, 0, 0] f32(3, 3, 64)
               out O[0, 0, 0]:assign f32(56, 56, 64)) {
  block o [y:56, x:56, g:64, r:3, s:3] (TESTS
    in I[y + r - AROUND, x + s - AROUND, g] f32(1, 1, 1)
    in F[r, s, g] f32(1, 1, 1)
    out O[y, x, g]:add f32(1, 1, 1)
  ) {
    $i = load(I) f32
    $f = load(F) f32
    $p = mul($i, $f) f32
    O = store($p)
  }
}
"""
EDGES = "y + r - 1 >= 0  56 - y - r >= 0  x + s - 1 >= 0  56 - x - s >= 0"


def test_steps_share_rows_in_a_picture_with_edges_too() -> None:
    """A load takes as long as a multiply-add. Inside the picture all steps of s are there, and two of three
    vectors of one step are those of the step before."""
    costs = []
    for size, tests, around in ((58, "", 0), (56, EDGES, 1)):
        text = DEPTHWISE.replace("HEIGHT", f"{size}").replace("WIDTH", f"{size}")
        text = text.replace("TESTS", tests).replace("AROUND", f"{around}")
        remark = remark_of(program_of(text), Autotile(memory="REG"), load_named("x86_64_zen4"))
        costs.append(chosen_of(remark)["cost"])
    assert max(costs) < 0.098, "with a load for each step it would be 0.102"


def test_tiles_whose_copies_are_made_in_squares() -> None:
    """X lies along d, Z along a. A tile of few values of d would have its copy made in rows as short."""
    remark = remark_of(
        sum_of_products(48, "dcbae", "aebd", "ce", "dcba"),
        Autotile(memory="REG"),
        load_named("x86_64_avx512"),
    )
    size = chosen_of(remark)["sizes"]["d"]
    assert size == 1 or size >= 8


def test_sums_over_an_index_in_the_middle() -> None:
    text = """
    block main [] (in A[0, 0, 0] f32(128, 49, 512)  out S[0, 0]:assign f32(128, 512)) {
      block s [a:128, c:512, b:49] (in A[a, b, c] f32(1, 1, 1)  out S[a, c]:add f32(1, 1)) {
        $a = load(A) f32
        S = store($a)
      }
    }
    """
    result, (remark,) = check_pass(program_of(text), Autotile(memory="REG"), load_named("x86_64_avx512"))
    data: Any = remark.data
    assert data["chosen"]["sizes"] == {"a": 1, "c": 32, "b": 7}, "seven rows of a slice go side by side"
    assert tuple(result.root.children[0].ranges.items()) == (("a", 128), ("b", 7), ("c", 16))


def test_sums_over_the_outermost_index_go_along_what_they_read() -> None:
    """As A lies in memory, whatever the order in which the loops stand: results come back once a row."""
    text = """
    block main [] (in A[0, 0, 0] f32(128, 499, 156)  out S[0, 0]:assign f32(499, 156)) {
      block s [b:499, c:156, a:128] (in A[a, b, c] f32(1, 1, 1)  out S[b, c]:add f32(1, 1)) {
        $a = load(A) f32
        S = store($a)
      }
    }
    """
    result, _ = check_pass(program_of(text), Autotile(memory="REG"), load_named("x86_64_avx512"))
    assert list(result.root.children[0].ranges) == ["a", "b", "c"]


def test_sums_whose_tiles_are_one_piece_of_memory() -> None:
    """All columns of a slice have room in registers: a tile reads one row after the other."""
    text = """
    block main [] (in A[0, 0, 0] f32(64, 128, 256)  out S[0, 0]:assign f32(64, 256)) {
      block s [a:64, c:256, b:128] (in A[a, b, c] f32(1, 1, 1)  out S[a, c]:add f32(1, 1)) {
        $a = load(A) f32
        S = store($a)
      }
    }
    """
    _, (remark,) = check_pass(program_of(text), Autotile(memory="REG"), load_named("x86_64_avx512"))
    data: Any = remark.data
    assert data["chosen"]["sizes"] == {"a": 1, "c": 256}


def test_a_tile_that_cannot_fit_is_reported_with_what_it_needs() -> None:
    remark = remark_of(contraction(64), Autotile(memory="L1"), tiny())
    assert "no tile fits: the smallest needs" in remark.message
    assert "of 224 bytes of L1" in remark.message
    rows: Any = remark.data["candidates"]
    assert all(row["limit"] for row in rows)


def test_absurd_ranges_take_no_time() -> None:
    program = program_of(
        f"""
        block main [] (in A[0] f32(4)  out R[0]:assign f32(4)) {{
          block r [x:4, k:{10**9}, l:{10**9}] (in A[x] f32(1)  out R[x]:max f32(1)) {{
            $a = load(A) f32
            R = store($a)
          }}
        }}
        """
    )
    remark = remark_of(program, Autotile(memory="L1", reductions=True), load_named("generic"))
    assert remark.message.startswith("not tiled: it has more than")


def test_a_special_is_left_alone() -> None:
    program = program_of(
        """
        block main [] (in A[0, 0] f32(6, 9)  in P[0] i32(4)  out R[0, 0]:assign f32(6, 4)) {
          block g [m:6] (in A[m, 0] f32(1, 9)  in P[0] i32(4)  out R[m, 0]:assign f32(1, 4)) {
            special gather(in A, in P, out R:assign) {axis=1}
          }
        }
        """
    )
    assert "special" in remark_of(program, Autotile(memory="REG"), load_named("generic")).message


@pytest.mark.parametrize(
    ("step", "code", "note"),
    [
        (Autotile(cost="rooflin"), "P101", "help: did you mean 'roofline'?"),
        (Autotile(memory="LL1"), "P102", "help: did you mean 'L1'?"),
        (Autotile(memory="SPAD"), "P102", "known: DRAM, L1, L2, L3, REG"),
    ],
)
def test_names_that_do_not_exist(step: Autotile, code: str, note: str) -> None:
    with pytest.raises(CompileError) as raised:
        step.run(contraction(4), PassContext(load_named("generic")))
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, diagnostic.notes) == (code, (note,))


def test_long_sums_are_cut_where_no_tile_fits_that_adds_up_all() -> None:
    text = CONTRACTION.replace("k:SIZE", "k:LONG").replace(
        "A[0, 0] f32(SIZE, SIZE)", "A[0, 0] f32(SIZE, LONG)"
    )
    text = text.replace("B[0, 0] f32(SIZE, SIZE)", "B[0, 0] f32(LONG, SIZE)").replace("SIZE", "100")
    for length, cut in ((100, False), (9000, True)):
        context = PassContext(load_named("generic"))
        result = Autotile(memory="L1").run(program_of(text.replace("LONG", str(length))), context)
        assert context.remarks[0].acted
        assert ("k" in result.root.children[0].ranges) is cut


@pytest.mark.parametrize("limit", [1, 10, 200])
def test_the_search_is_bounded(limit: int) -> None:
    step = Autotile(memory="L2", reductions=True, max_candidates=limit)
    data: Any = remark_of(contraction(1000), step, load_named("generic")).data
    assert len(data["candidates"]) <= max(limit, 8)


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ("divisors", {1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60}),
        ("powers_of_two", {1, 2, 4, 8, 16, 32, 64}),
    ],
)
def test_sizes_follow_the_rule(rule: str, allowed: set[int]) -> None:
    step = make_pass("autotile", {"memory": "REG", "sizes": rule})
    assert isinstance(step, Autotile)
    data: Any = remark_of(contraction(120), step, load_named("x86_64_avx2")).data
    assert {row["sizes"]["m"] for row in data["candidates"]} <= allowed
    assert len(data["candidates"]) > 10


def test_operands_that_no_index_reaches_count_if_asked_for() -> None:
    # B, 16 KiB, depends on no index that is tiled; the cache has 32 KiB.
    step = Autotile(memory="L1", cost="cache_lines_per_point", indices=("m",))
    text = CONTRACTION.replace("m:SIZE", "m:640").replace("A[0, 0] f32(SIZE", "A[0, 0] f32(640")
    text = text.replace("C[0, 0]:assign f32(SIZE", "C[0, 0]:assign f32(640")
    program = program_of(text.replace("SIZE", "64"))
    without: Any = remark_of(program, step, load_named("generic")).data
    counted: Any = remark_of(program, replace(step, fixed=True), load_named("generic")).data
    rows = without["chosen"]["sizes"]["m"]
    assert 512 * rows <= 32768 < 512 * rows + 16384
    assert 512 * counted["chosen"]["sizes"]["m"] + 16384 <= 32768


def test_kernels_are_tiled_again_around_their_tiles() -> None:
    program = contraction(96)
    inner, _ = check_pass(program, Autotile(memory="REG"), load_named("x86_64_avx2"))
    outer, (remark,) = check_pass(inner, Autotile(memory="L1", only="kernels"), tiny_registers(), again=False)
    assert remark.acted
    kernel = outer.root.children[0]
    assert kernel.has_tag("tiled") and kernel.children[0].has_tag("tiled")
    assert list(kernel.children[0].children[0].ranges) == ["k", "m", "n"]


def test_a_tile_of_a_cache_that_saves_next_to_nothing_is_not_made() -> None:
    inner, _ = check_pass(contraction(96), Autotile(memory="REG"), load_named("x86_64_avx2"))
    hw = tiny_registers(24576)  # the best tile would save 0.2 %
    _, (remark,) = check_pass(inner, Autotile(memory="L1", only="kernels"), hw)
    assert not remark.acted and "no tile costs less" in remark.message


def test_what_is_turned_in_squares_brings_in_whole_lines_without_tiles() -> None:
    program = program_of("""
    block main [] (in X[0, 0, 0] f32(101, 103, 107)  out Y[0, 0, 0]:assign f32(107, 103, 101)) {
      block y [c:107, b:103, a:101] (in X[a, b, c] f32(1, 1, 1)  out Y[c, b, a]:assign f32(1, 1, 1)) {
        $x = load(X) f32
        Y = store($x)
      }
    }
    """)
    remark = remark_of(program, Autotile(memory="L2"), load_named("x86_64_avx512"))
    assert not remark.acted and "no tile costs less" in remark.message


@pytest.mark.parametrize(("run", "tiled"), [(100, False), (32, False), (16, True)])
def test_rows_that_are_copied_whole_have_no_tiles(run: int, tiled: bool) -> None:
    program = program_of(
        f"""
        block main [] (in X[0, 0, 0] f32(512, 512, {run})  out Y[0, 0, 0]:assign f32(512, 512, {run})) {{
          block y [b:512, a:512, c:{run}] (in X[a, b, c] f32(1, 1, 1)  out Y[b, a, c]:assign f32(1, 1, 1)) {{
            $x = load(X) f32
            Y = store($x)
          }} }}"""
    )
    remark = remark_of(program, Autotile(memory="L2"), load_named("x86_64_zen4"))
    assert remark.acted == tiled
    assert tiled or "whole lines of its operands, each once" in remark.message


@pytest.mark.parametrize("size", [1024, 1021, 4112])
def test_tiles_of_squares_are_lines_of_few_rows(size: int) -> None:
    """The nearest cache, of 32 KiB, keeps two lines of 128 rows in half of it; what is read begins at lines,
    as what is written does."""
    program = program_of(
        f"""
        block main [] (in X[0, 0] f32({size}, {size})  out Y[0, 0]:assign f32({size}, {size})) {{
          block y [n:{size}, m:{size}] (in X[m, n] f32(1, 1)  out Y[n, m]:assign f32(1, 1)) {{
            $x = load(X) f32
            Y = store($x)
          }} }}"""
    )
    found: Any = remark_of(program, Autotile(memory="L2"), load_named("x86_64_zen4")).data["chosen"]
    sizes = found["sizes"]
    assert sizes["m"] == 128 and sizes["n"] >= 512 and sizes["n"] % 16 == 0


def tiny_registers(first: int = 49152) -> HwConfig:
    """AVX2 with a first cache that holds a few register tiles of 96 steps."""
    avx2 = load_named("x86_64_avx2")
    memories = tuple(msgspec.structs.replace(m, bytes=first) if m.name == "L1" else m for m in avx2.memories)
    return msgspec.structs.replace(avx2, memories=memories)


STEPS = [
    Autotile(memory="REG"),
    Autotile(memory="L1", reductions=True),
    Autotile(memory="L1", cost="cache_lines_per_point", reductions=True, fixed=True, sizes="powers_of_two"),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda s: f"{s.memory}-{s.cost}")
@pytest.mark.parametrize("seed", range(16))
def test_generated_programs(seed: int, step: Autotile) -> None:
    check_pass(make_program(seed), step, tiny(), rtol=1e-5)


@pytest.mark.parametrize("step", STEPS, ids=lambda s: f"{s.memory}-{s.cost}")
@pytest.mark.parametrize("name", corpus())
def test_corpus(name: str, step: Autotile) -> None:
    check_pass(corpus()[name], step, tiny(), rtol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_interleaved_tiles_of_generated_programs(seed: int) -> None:
    program = make_program(seed)
    check_pass(program, Autotile(memory="L1", interleave=True, reductions=True), tiny(), again=False)


def test_tiles_interleave_in_caches_alone() -> None:
    with pytest.raises(CompileError, match=r"P111.*of kind 'cached'; REG is 'registers'"):
        Autotile(memory="REG", interleave=True).check(tiny())


COPY_BESIDE = """
block main [] (in T[0, 0] f32(8, 64):(1, 8)  out R[0]:assign f32(8):(1)) {
  block t [m:8] (in T[m, 0] f32(1, 64)  out R[m]:assign f32(1)  new S f32(64):(1)) {
    block copy [NAME:64] (in T[0, NAME] f32(1, 1)  out S[NAME]:assign f32(1)) {
      $v = load(T) f32
      S = store($v)
    }
    block t [k:64] (in S[k] f32(1)  out R[0]:add f32(1)) #vector=k {
      $v = load(S) f32
      $w = mul($v, $v) f32
      $x = mul($w, $v) f32
      R = store($x)
    }
  }
}
"""


def test_indexes_of_two_blocks_inside_are_two_whatever_they_are_called() -> None:
    """The copy goes along m, where its elements lie side by side, though its other index may be called as
    the one along which the sum runs."""
    hw, step = load_named("aarch64_neon"), Autotile(memory="REG")
    own, same = (remark_of(program_of(COPY_BESIDE.replace("NAME", n)), step, hw) for n in ("j", "k"))
    assert own.acted and own.message == same.message
    assert own.data["parts"] == same.data["parts"]


@pytest.mark.parametrize(("size", "tile"), [(2048, {"n"}), (4096, {"k", "n"})])
def test_a_matrix_that_other_cores_push_out_of_their_cache_is_read_along_its_rows(
    size: int, tile: set[str]
) -> None:
    """16 MB of the 32 MB that all cores share are not there the next time; 4 MB are."""
    text = f"""
    block main [] (
      in A[0] u8({size})
      in B[0, 0] i8({size}, {size}):({size}, 1)
      out C[0]:assign i32({size})
    ) {{
      block C [k:{size}, n:{size}] (in A[k] u8(1)  in B[k, n] i8(1, 1)  out C[n]:add i32(1)) {{
        $a = load(A) u8
        $b = load(B) i8
        $x = cast($a) i32
        $y = cast($b) i32
        $p = mul($x, $y) i32
        C = store($p)
      }}
    }}
    """
    _, (remark,) = check_pass(program_of(text), Autotile(memory="REG"), load_named("x86_64_zen4"))
    assert {name for name, of in chosen_of(remark)["sizes"].items() if of > 1} == tile
