"""The code of hot loops, read as assembly. Every target is compiled for on every machine."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest

from codegen_cpu.assembly import code_facts
from codegen_cpu.build import build
from hwconfigs.load import load_named
from stripe.diag import InvariantError, Source
from stripe.ir import Program
from stripe.parser import parse
from tests.support.loops import hot_loop, loops
from tests.support.threads import with_cores


def test_loops_around_copies_none_of_which_is_there_are_not_entered() -> None:
    """Tiles of a triangle whose results are tested one by one; no loop goes on with none of them."""
    text = """
    block main [] (
      in A[0, 0] f32(8, 64):(64, 1)
      in B[0, 0] f32(8, 64):(64, 1)
      out C[0, 0]:assign f32(8, 8):(8, 1)
    ) {
      block tile [m:4, n:4] (
        in A[2*m, 0] f32(2, 64)
        in B[2*n, 0] f32(2, 64)
        out C[2*m, 2*n]:assign f32(2, 2)
        new S f32(2, 2):(2, 1) @REG
      ) {
        block fill [i:2, j:2] (out S[i, j]:assign f32(1, 1)) #unroll=i #unroll=j {
          $z = constant(0.0) f32
          S = store($z)
        }
        block c [k:64, i:2, j:2, mo = 2*m, no = 2*n] (
          mo + i - no - j >= 0
          in A[i, k] f32(1, 1)
          in B[j, k] f32(1, 1)
          out S[i, j]:add f32(1, 1)
        ) #unroll=i #unroll=j #vector=k {
          $a = load(A) f32
          $b = load(B) f32
          $c = mul($a, $b) f32
          S = store($c)
        }
        block put [i:2, j:2] (in S[i, j] f32(1, 1)  out C[i, j]:assign f32(1, 1)) #unroll=i #unroll=j {
          $s = load(S) f32
          C = store($s)
        }
      }
    }
    """
    module = build(parse(Source("triangle.stripe", text)), load_named("x86_64_avx512"))
    _, _, general = module.emitted.partition("\ngeneral:\n")
    found = re.search(r"br i1 %[\w.]+, label %[\w.]+, label %([\w.]+)", general)
    assert found is not None
    assert general.index(f"\n{found[1]}:") > general.index("\nk.end") > general.index("\nk.loop")


def tile_program(m: int, n: int, k: int, rows: int, columns: int) -> Program:
    """A product of matrices in tiles of rows x columns, held in registers over all of k."""
    text = f"""
    block main [] (
      in A[0, 0] f32({m}, {k}):({k}, 1)
      in B[0, 0] f32({k}, {n}):({n}, 1)
      out C[0, 0]:assign f32({m}, {n}):({n}, 1)
    ) {{
      block tile [nt:{-(-n // columns)}, mt:{-(-m // rows)}] (
        in A[{rows}*mt, 0] f32({rows}, {k})
        in B[0, {columns}*nt] f32({k}, {columns})
        out C[{rows}*mt, {columns}*nt]:assign f32({rows}, {columns})
        new Acc f32({rows}, {columns}):({columns}, 1) @REG
      ) {{
        block red [k:{k}, mo = {rows}*mt, no = {columns}*nt] (
          in A[0, k] f32({rows}, 1)
          in B[k, 0] f32(1, {columns})
          out Acc[0, 0]:add f32({rows}, {columns})
        ) {{
          block mac [m:{rows}, n:{columns}, mo = mo, no = no] (
            {m - 1} - mo - m >= 0
            {n - 1} - no - n >= 0
            in A[m, 0] f32(1, 1)
            in B[0, n] f32(1, 1)
            out Acc[m, n]:add f32(1, 1)
          ) #vector=n #unroll=m #unroll=n {{
            $a = load(A) f32
            $b = load(B) f32
            $c = mul($a, $b) f32
            Acc = store($c)
          }}
        }}
        block copy [m:{rows}, n:{columns}, mo = {rows}*mt, no = {columns}*nt] (
          {m - 1} - mo - m >= 0
          {n - 1} - no - n >= 0
          in Acc[m, n] f32(1, 1)
          out C[m, n]:assign f32(1, 1)
        ) #vector=n #unroll=m #unroll=n {{
          $a = load(Acc) f32
          C = store($a)
        }}
      }}
    }}
    """
    return parse(Source("tile.stripe", dedent(text)))


@pytest.mark.parametrize(
    ("target", "rows", "columns", "fma", "register", "stack"),
    [
        ("x86_64_avx512", 14, 32, "vfmadd", "%zmm", "(%rsp"),
        ("x86_64_avx2", 6, 16, "vfmadd", "%ymm", "(%rsp"),
        ("aarch64_neon", 6, 16, "fmla", ".4s", "[sp"),
    ],
)
def test_a_register_tile_stays_in_registers(
    target: str, rows: int, columns: int, fma: str, register: str, stack: str
) -> None:
    hw = load_named(target)
    lanes = hw.units[0].vector_bytes // 4
    body = hot_loop(build(tile_program(2 * rows, 2 * columns, 64, rows, columns), hw), fma)
    products = [line for line in body if fma in line]
    assert len(products) == rows * columns // lanes
    assert all(register in line for line in products)
    assert not any(stack in line for line in body)
    if target.startswith("x86"):
        vectors = [line for line in body if re.match(r"vmovups\s+[^,]*\(", line)]
        assert len(vectors) == columns // lanes
        stores = [line for line in body if re.match(r"vmov\w+\s+%[zy]mm\d+, ", line) and line.endswith(")")]
        assert not stores
        assert len(body) <= len(products) + rows + columns // lanes + 4


def test_sums_that_fill_the_registers_stay_there() -> None:
    """Fourteen of sixteen: LLVM would load what all of them take before it adds up the first."""
    text = """
    block main [] (
      in A[0, 0] f32(64, 40):(40, 1)
      in B[0, 0, 0] f32(64, 2, 8):(16, 8, 1)
      out C[0, 0]:assign f32(14, 8):(8, 1)
    ) {
      block c [k:64, s:3, r:2, x:14, n:8] (
        in A[k, x + r + 2*s] f32(1, 1):(40, 1)
        in B[k, r, n] f32(1, 1, 1):(16, 8, 1)
        out C[x, n]:add f32(1, 1):(8, 1)
      ) #unroll=x #unroll=n #vector=n {
        $a = load(A) f32
        $b = load(B) f32
        $c = mul($a, $b) f32
        C = store($c)
      }
    }
    """
    hw = load_named("x86_64_zen3")
    assert hw.cpu is not None
    facts = code_facts(build(parse(Source("window.stripe", dedent(text))), hw).asm, hw.cpu.triple)
    assert facts is not None
    hot = facts.hot
    assert (hot.multiply_adds, hot.broadcasts, hot.loads) == (14, 14, 1)
    assert (hot.spills, hot.reloads) == (0, 0)
    assert hot.instructions <= 14 + 14 + 1 + 8


def test_a_single_lane_that_is_left_of_a_row_has_sums_of_its_own() -> None:
    text = """
    block main [] (
      in A[0, 0] f32(4, 64):(64, 1)
      in B[0, 0] f32(64, 17):(17, 1)
      out C[0, 0]:assign f32(4, 17):(17, 1)
    ) {
      block c [k:64, m:4, n:17] (
        in A[m, k] f32(1, 1)
        in B[k, n] f32(1, 1)
        out C[m, n]:add f32(1, 1)
      ) #vector=n #unroll=m #unroll=n {
        $a = load(A) f32
        $b = load(B) f32
        $c = mul($a, $b) f32
        C = store($c)
      }
    }
    """
    module = build(parse(Source("row.stripe", dedent(text))), load_named("x86_64_avx512"))
    body = hot_loop(module, "vfmadd")
    products = [line.split()[0] for line in body if "vfmadd" in line]
    assert len(products) % 8 == 0, "LLVM may write several steps"
    assert sum(name.endswith("ss") for name in products) == len(products) // 2
    assert not [line for line in body if re.match(r"v(insert|blend|add)", line)]


@pytest.mark.parametrize("how", ["add", "max"])
def test_results_that_are_taken_up_together_are_stored_after_all_loads(how: str) -> None:
    """Loads that come in turn with stores wait for those that agree in the last bits of their addresses."""
    text = f"""
    block main [] (in X[0, 0] f32(512, 256):(256, 1)  out Z[0]:assign f32(256)) {{
      block z [r:512, x:4] (in X[r, 64*x] f32(1, 64)  out Z[64*x]:{how} f32(64)) {{
        block z [x:64] (in X[0, x] f32(1, 1)  out Z[x]:{how} f32(1)) #vector=x #unroll=x {{
          $x = load(X) f32
          Z = store($x)
        }}
      }}
    }}
    """
    module = build(parse(Source("sum.stripe", dedent(text))), load_named("x86_64_avx512"))
    body = max(loops(module.asm), key=lambda body: sum(bool(re.search(r"\(.*\), ", line)) for line in body))
    loads = [at for at, line in enumerate(body) if re.search(r"\(.*\), %zmm", line)]
    stores = [at for at, line in enumerate(body) if re.match(r"vmov\w+\s+%zmm\d+, .*\)", line)]
    assert (len(loads), len(stores)) == (8, 4)
    assert max(loads) < min(stores)


def test_ragged_tiles_leave_the_hot_loop_alone() -> None:
    whole = build(tile_program(28, 64, 64, 14, 32), load_named("x86_64_avx512"))
    ragged = build(tile_program(33, 47, 64, 14, 32), load_named("x86_64_avx512"))
    assert len(hot_loop(ragged, "vfmadd")) == len(hot_loop(whole, "vfmadd"))


@pytest.mark.parametrize(("type_", "masked"), [("f32", True), ("i64", True), ("f16", False), ("u8", False)])
def test_lanes_at_a_border_are_masked_where_the_target_can(type_: str, masked: bool) -> None:
    text = f"""
    block main [] (in X[0] {type_}(14)  out R[0]:assign {type_}(14)) {{
      block copy [s:3, x:14] (
        13 - x - s >= 0
        in X[x + s] {type_}(1)
        out R[x]:max {type_}(1)
      ) #vector=x {{
        $x = load(X)
        R = store($x)
      }}
    }}
    """
    module = build(parse(Source("border.stripe", dedent(text))), load_named("x86_64_avx2"))
    assert ("llvm.masked" in module.llvm) is masked


def windows(rows: str, at: int) -> str:
    """Rows of a window that reaches over the first and the last one, summed in registers of their own."""
    return f"""
      block {rows} [y:16, z:2, yo = y] (
        in A[y - 1, 14*z] f32(3, 29)
        in B[0, 0] f32(16, 32)
        out C[{at}, y, 14*z, 0]:assign f32(1, 1, 14, 32)
        new T f32(14, 32):(32, 1) @REG
      ) {{
        block sum [r:3, c:16, x:14, k:32, y = y] (
          y + r - 1 >= 0
          16 - y - r >= 0
          in A[r, x + c] f32(1, 1)
          in B[c, k] f32(1, 1)
          out T[x, k]:add f32(1, 1)
        ) #vector=k #unroll=x #unroll=k {{
          $a = load(A) f32
          $b = load(B) f32
          $c = mul($a, $b) f32
          T = store($c)
        }}
        block copy [x:14, k:32] (
          in T[x, k] f32(1, 1)
          out C[0, 0, x, k]:assign f32(1, 1, 1, 1)
        ) #vector=k #unroll=x #unroll=k {{
          $t = load(T) f32
          C = store($t)
        }}
      }}"""


def test_no_register_is_kept_for_values_that_are_no_more() -> None:
    """A row may be one that the window does not reach, as far as LLVM knows; what the buffer of the row
    before held must not live on for that."""
    text = f"""
    block main [] (
      in A[0, 0] f32(16, 43):(43, 1)
      in B[0, 0] f32(16, 32):(32, 1)
      out C[0, 0, 0, 0]:assign f32(2, 16, 28, 32):(14336, 896, 32, 1)
    ) {{
      block both [] (
        in A[0, 0] f32(16, 43)
        in B[0, 0] f32(16, 32)
        out C[0, 0, 0, 0]:assign f32(2, 16, 28, 32)
      ) {{ {windows("first", 0)} {windows("second", 1)}
      }}
    }}
    """
    module = build(parse(Source("windows.stripe", dedent(text))), load_named("x86_64_avx512"))
    assert "%zmm" in module.asm
    assert not re.search(r"%zmm\d+, -?\d*\(%rsp\)", module.asm)


def test_llvm_text_that_does_not_hold_together_is_our_fault() -> None:
    target = build(tile_program(14, 32, 8, 14, 32), load_named("generic")).target
    text = """
    define i32 @f(i1 %c) {
      br i1 %c, label %a, label %b
    a:
      %x = add i32 1, 2
      br label %b
    b:
      ret i32 %x
    }
    """
    with pytest.raises(InvariantError, match="dominate"):
        target.object_code(text)


def test_a_plain_sum_keeps_its_accumulator_in_a_register() -> None:
    text = """
    block main [] (in A[0, 0] f32(64, 64):(64, 1)  out S[0]:assign f32(64):(1)) {
      block sum [m:64, k:64] (in A[m, k] f32(1, 1)  out S[m]:add f32(1)) {
        $a = load(A) f32
        S = store($a)
      }
    }
    """
    module = build(parse(Source("sum.stripe", text)), load_named("x86_64_avx2"))
    (body,) = loops(module.asm.partition("main_program:")[0])
    assert not any(line.startswith("vmovss") and line.endswith(")") for line in body)
    assert any(line.startswith("vaddss") for line in body)


@pytest.mark.parametrize("how", ["max", "min"])
def test_extremes_in_memory_are_stored_whole(how: str) -> None:
    """NaN is a choice between two values: one that memory holds already would be a masked store."""
    text = f"""
    block main [] (in A[0, 0] f32(64, 4096):(4096, 1)  out S[0]:assign f32(4096):(1)) {{
      block rows [m:64, n:4096] (in A[m, n] f32(1, 1)  out S[n]:{how} f32(1)) #vector=n {{
        $a = load(A) f32
        S = store($a)
      }}
    }}
    """
    module = build(parse(Source("rows.stripe", text)), load_named("x86_64_avx2"))
    assert f"v{how}ps" in module.asm
    assert "vmaskmov" not in module.asm


def test_a_sum_over_lanes_takes_turns() -> None:
    text = """
    block main [] (in A[0] f32(4096):(1)  out S[]:assign f32():()) {
      block sum [k:4096] (in A[k] f32(1)  out S[]:add f32()) #vector=k {
        $a = load(A) f32
        S = store($a)
      }
    }
    """
    module = build(parse(Source("sum.stripe", text)), load_named("x86_64_avx512"))
    body = hot_loop(module, "vaddps")
    added = [line for line in body if line.startswith("vaddps") and "%zmm" in line]
    assert len({line.rsplit(",", 1)[1] for line in added}) == 4


def test_the_same_program_gives_the_same_text() -> None:
    program = tile_program(33, 47, 64, 14, 32)
    hw = load_named("generic")
    assert build(program, hw).emitted == build(program, hw).emitted
    assert build(program, hw).object_code == build(program, hw).object_code


def test_sums_that_are_turned_behind_the_loop_stay_in_registers_on_threads() -> None:
    program = parse(
        Source(
            "turned.stripe",
            dedent("""
    block main [] (
      in A[0, 0] f32(64, 28):(28, 1)
      in B[0, 0] f32(64, 64):(64, 1)
      out C[0, 0]:assign f32(64, 28):(28, 1)
    ) {
      block t [h:2, m:2] @CORE[h] (
        in A[0, 14*m] f32(64, 14):(28, 1)
        in B[0, 32*h] f32(64, 32):(64, 1)
        out C[32*h, 14*m]:assign f32(32, 14):(28, 1)
        new T f32(14, 32):(32, 1) @REG
      ) {
        block sum [k:64, m:14, n:32] (
          in A[k, m] f32(1, 1):(28, 1)
          in B[k, n] f32(1, 1):(64, 1)
          out T[m, n]:add f32(1, 1):(32, 1)
        ) #unroll=m #unroll=n #vector=n {
          $a = load(A) f32
          $b = load(B) f32
          $c = mul($a, $b) f32
          T = store($c)
        }
        block turn [m:14, n:32] (
          in T[m, n] f32(1, 1):(32, 1)
          out C[n, m]:assign f32(1, 1):(28, 1)
        ) #across=n #vector=m {
          $t = load(T) f32
          C = store($t)
        }
      }
    }
    """),
        )
    )
    module = build(program, with_cores(load_named("x86_64_avx512"), 2))
    stores = [line for line in hot_loop(module, "vfmadd") if re.search(r"vmova.*zmm\d+, .*\(", line)]
    assert not stores


@pytest.mark.parametrize("how", ["max", "min"])
def test_many_extremes_stay_in_their_registers(how: str) -> None:
    """Where each took the register of what was read, all would have to move for the next row."""
    text = f"""
    block main [] (in X[0, 0] f32(64, 480):(480, 1)  out Y[0]:assign f32(480):(1)  new T f32(480):(1) @REG) {{
      block Y [m:64, n:480] (in X[m, n] f32(1, 1)  out T[n]:{how} f32(1)) #unroll=n #vector=n {{
        $x = load(X) f32
        T = store($x)
      }}
      block copy [n:480] (in T[n] f32(1)  out Y[n]:assign f32(1)) #unroll=n #vector=n {{
        $t = load(T) f32
        Y = store($t)
      }}
    }}
    """
    module = build(parse(Source("columns.stripe", dedent(text))), load_named("x86_64_zen4"))
    body = hot_loop(module, f"v{how}ps")
    assert sum(line.startswith(f"v{how}ps") for line in body) == 30
    assert not any("%rsp" in line or line.startswith("vmovaps") for line in body)


def product_in_rows(rows: int, columns: int, depth: int = 64, tiles: int = 10) -> Program:
    """A product of matrices in tiles, whose results are as many whole rows."""
    text = f"""
    block main [] (
      in A[0, 0] f32({tiles * rows}, {depth}):({depth}, 1)
      in B[0, 0] f32({depth}, {columns}):({columns}, 1)
      out C[0, 0]:assign f32({tiles * rows}, {columns}):({columns}, 1)
    ) {{
      block t [mt:{tiles}] (
        in A[{rows}*mt, 0] f32({rows}, {depth}):({depth}, 1)
        in B[0, 0] f32({depth}, {columns}):({columns}, 1)
        out C[{rows}*mt, 0]:assign f32({rows}, {columns}):({columns}, 1)
        new T f32({rows}, {columns}):({columns}, 1) @REG
      ) {{
        block sum [k:{depth}, m:{rows}, n:{columns}] (
          in A[m, k] f32(1, 1):({depth}, 1)
          in B[k, n] f32(1, 1):({columns}, 1)
          out T[m, n]:add f32(1, 1):({columns}, 1)
        ) #unroll=m #unroll=n #vector=n {{
          $a = load(A) f32
          $b = load(B) f32
          $c = mul($a, $b) f32
          T = store($c)
        }}
        block copy [m:{rows}, n:{columns}] (
          in T[m, n] f32(1, 1):({columns}, 1)
          out C[m, n]:assign f32(1, 1):({columns}, 1)
        ) #unroll=m #unroll=n #vector=n {{
          $t = load(T) f32
          C = store($t)
        }}
      }}
    }}
    """
    return parse(Source("rows.stripe", dedent(text)))


def test_rows_of_half_a_vector_have_registers_of_their_own() -> None:
    """Two rows of results that share a vector would be taken apart at every step."""
    module = build(product_in_rows(12, 8), load_named("x86_64_avx512"))
    body = hot_loop(module, "vfmadd")
    added = [line for line in body if line.startswith("vfmadd")]
    assert len(added) == 12 and all("%ymm" in line for line in added)
    assert not any(line.startswith(("vinsert", "vextract")) for line in body)


@pytest.mark.parametrize(
    ("target", "rows", "columns", "vectors"),
    [("x86_64_avx512", 6, 56, 4), ("x86_64_avx512", 12, 20, 2), ("x86_64_avx2", 4, 20, 3)],
)
def test_rows_that_are_no_whole_vectors_leave_their_registers_one_by_one(
    target: str, rows: int, columns: int, vectors: int
) -> None:
    """Vectors that go from one row of results to the next would be put together on the stack."""
    module = build(product_in_rows(rows, columns), load_named(target))
    added = [line for line in hot_loop(module, "vfmadd") if line.startswith("vfmadd")]
    assert len(added) == rows * vectors
    assert not re.search(r"(?:v?mov\w+)\s+.*\(%rsp", module.asm)


def test_rows_that_go_past_the_caches_leave_in_whole_lines() -> None:
    """A line of which a part is stored through the caches is fetched, and written twice."""
    module = build(product_in_rows(12, 24, tiles=30_000), load_named("x86_64_zen4"))
    assert len(re.findall(r"vmovntps\s+%zmm", module.asm)) == 12 * 24 // 16


@pytest.mark.parametrize(("rows", "columns"), [(6, 56), (6, 52), (12, 24)])
def test_a_narrow_vector_at_the_end_of_a_row_shares_the_broadcasts_of_the_others(
    rows: int, columns: int
) -> None:
    """Filling its lanes from another register takes a port that AVX-512 multiplies and adds on."""
    module = build(product_in_rows(rows, columns, depth=120), load_named("x86_64_avx512"))
    spread = [line for line in hot_loop(module, "vfmadd") if line.startswith("vbroadcastss")]
    assert len(spread) == rows and not any("%xmm" in line for line in spread)


@pytest.mark.parametrize(
    ("source", "to", "most"),
    [("f32", "bf16", 8), ("f64", "f16", 4), ("f32", "i16", 5), ("f64", "i32", 4), ("bf16", "i8", 7)],
)
def test_a_cast_takes_few_instructions(source: str, to: str, most: int) -> None:
    """It rounds, or saturates, once, beside a load, a store and three that count."""
    text = f"""
    block main [] (in X[0] {source}(4096):(1)  out R[0]:assign {to}(4096):(1)) {{
      block copy [i:4096] (in X[i] {source}(1)  out R[i]:assign {to}(1)) #vector=i {{
        $x = load(X) {source}
        $r = cast($x) {to}
        R = store($r)
      }}
    }}
    """
    found = loops(build(parse(Source("cast.stripe", dedent(text))), load_named("x86_64_zen4")).asm)
    assert found and all(len(body) <= most + 5 for body in found)


def test_short_rows_in_registers_go_on_in_whole_vectors() -> None:
    text = """
    block main [] (in X[0, 0, 0] i8(9, 64, 5):(320, 5, 1)  out Y[0, 0]:assign i8(64, 5):(5, 1)) {
      block tile [] (
        in X[0, 0, 0] i8(9, 64, 5)
        out Y[0, 0]:assign i8(64, 5)
        new Acc i8(64, 5):(5, 1) @REG
      ) {
        block most [a:9, c:64, d:5] (
          in X[a, c, d] i8(1, 1, 1)
          out Acc[c, d]:max i8(1, 1)
        ) #unroll=c #unroll=d #vector=d {
          $x = load(X) i8
          Acc = store($x)
        }
        block copy [c:64, d:5] (
          in Acc[c, d] i8(1, 1)
          out Y[c, d]:assign i8(1, 1)
        ) #unroll=c #unroll=d #vector=d {
          $x = load(Acc) i8
          Y = store($x)
        }
      }
    }
    """
    (body,) = loops(build(parse(Source("rows.stripe", dedent(text))), load_named("x86_64_avx512")).asm)
    assert sum("vpmaxsb" in line and "zmm" in line for line in body) == 5
    assert len(body) < 10
