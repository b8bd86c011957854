"""partition{sums}: sums of few results, and of rows that stream past, in parts."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.ir import Location, Program
from stripe.passes.partition import Partition
from stripe.passes.partition_sums import PARTS
from tests.support.passes import check_pass, program_of
from tests.unit.stripe.passes.test_partition_threads import CORES, SUMS, cpu, rows, spread


def total(how: str, dtype: str, sizes: dict[str, int], statements: str = "R = store($x)") -> Program:
    shape, names = ", ".join(map(str, sizes.values())), ", ".join(sizes)
    indexes = ", ".join(f"{name}:{size}" for name, size in sizes.items())
    ones = ", ".join("1" for _ in sizes)
    return program_of(f"""
        block main [] (in X[{", ".join("0" for _ in sizes)}] {dtype}({shape})  out R[]:assign {dtype}()) {{
          block r [{indexes}] (in X[{names}] {dtype}({ones})  out R[]:{how} {dtype}()) {{
            $x = load(X) {dtype}
            {statements}
          }}
        }}
    """)


@pytest.mark.parametrize("how", ["add", "mul", "max", "min"])
@pytest.mark.parametrize(("dtype", "sizes"), [("i32", {"i": 300}), ("f32", {"i": 3, "j": 70})])
def test_a_sum_gets_partial_results(how: str, dtype: str, sizes: dict[str, int]) -> None:
    result, (remark,) = check_pass(total(how, dtype, sizes), SUMS, cpu(2), again=False)
    count = remark.data["parts"]
    assert remark.acted and isinstance(count, int) and 1 < count <= PARTS
    parts, whole = result.root.children
    assert (parts.name, whole.name) == ("r_parts", "r")
    dealt, _ = check_pass(result, CORES, cpu(2), again=False)
    assert [b.name for b in spread(dealt)] == ["r_parts"]
    assert spread(dealt)[0].location == Location("CORE", Affine.index(next(iter(parts.ranges))))


def test_parts_that_may_be_empty() -> None:
    """All but the last 30 points are left out: the first parts would have nothing to add."""
    program = program_of("""
        block main [] (in X[0] f32(130):(1)  out R[]:assign f32()) {
          block r [i:130] (i - 100 >= 0  in X[i] f32(1)  out R[]:add f32()) {
            $x = load(X) f32
            R = store($x)
          }
        }
    """)
    _, (remark,) = check_pass(program, SUMS, cpu(2))
    assert remark.message == "not cut: its points are limited, and a part of them may be empty"


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 5000))
def test_the_parts_do_not_depend_on_the_number_of_threads(size: int) -> None:
    program = total("add", "i64", {"i": size})
    alike = Partition(unit="CORE", sums=True, deterministic=True)
    results = {check_pass(program, alike, cpu(n), again=False)[0] for n in (1, 2, 7)}
    assert len(results) == 1
    assert results == {check_pass(program, SUMS, cpu(3), again=False)[0]}


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (total("add", "f16", {"i": 300}), "partial sums would be rounded to f16"),
        (total("add", "f32", {"i": 1}), "it has one point"),
        (
            total("add", "f32", {"i": 300}, "R = store($x)\nR = store($x)"),
            "it stores a result in several places",
        ),
        (rows(3, 4, 5), "its results depend on an index, along which it can be cut"),
    ],
)
def test_sums_that_stay_whole(program: Program, reason: str) -> None:
    result, (remark,) = check_pass(program, SUMS, cpu(4))
    assert result is program and remark.message == f"not cut: {reason}"


def test_a_small_sum_stays_whole() -> None:
    result, (remark,) = check_pass(total("add", "f32", {"i": 300}), SUMS, cpu(4, 25000))
    assert "to start CORE takes 25000" in remark.message
    assert len(result.root.children) == 1


# -- rows ----------------------------------------------------------------------------------------


def small_caches(count: int, own: int = 4096) -> HwConfig:
    """A CPU whose cores have two caches of their own, and share one."""
    hw = cpu(count)
    caches = [msgspec.structs.replace(m, bytes=min(m.bytes or own, own)) for m in hw.caches[:-1]]
    others = [m for m in hw.memories if m not in hw.caches[:-1]]
    return msgspec.structs.replace(hw, memories=(*caches, *others))


def row_sums(k: int, columns: tuple[int, ...], how: str = "add", dtype: str = "f32", m: int = 1) -> Program:
    """Y[m, columns] is what the rows of X[k, columns] add up to; for several m, each takes all of X."""
    names = [f"n{at}" for at in range(len(columns))]
    ones = ", ".join("1" for _ in names)
    zeros, shape, inside = ", ".join("0" for _ in names), ", ".join(map(str, columns)), ", ".join(names)
    indexes = ", ".join(f"{name}:{size}" for name, size in zip(names, columns, strict=True))
    return program_of(f"""
        block main [] (
          in X[0, {zeros}] {dtype}({k}, {shape})
          out Y[0, {zeros}]:assign {dtype}({m}, {shape})
        ) {{
          block y [m:{m}, k:{k}, {indexes}] (
            in X[k, {inside}] {dtype}(1, {ones})
            out Y[m, {inside}]:{how} {dtype}(1, {ones})
          ) {{
            $x = load(X) {dtype}
            Y = store($x)
          }}
        }}
    """)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(512, 700),
    st.sampled_from([(3,), (16,), (2, 5), (4, 1)]),
    st.sampled_from([("add", "f32"), ("add", "i32"), ("mul", "i32"), ("max", "f32"), ("min", "i32")]),
)
def test_rows_that_stream_past_are_added_up_in_parts(
    k: int, columns: tuple[int, ...], sort: tuple[str, str]
) -> None:
    result, (remark,) = check_pass(
        row_sums(k, columns, *sort), SUMS, small_caches(2, 512), again=False, rtol=1e-4
    )
    assert remark.acted, remark.message
    parts, whole = result.root.children
    assert (parts.name, whole.name) == ("y_parts", "y")
    dealt, _ = check_pass(result, CORES, cpu(2), again=False, rtol=1e-4)
    location = spread(dealt)[0].location
    assert location is not None and location.bank == Affine.index("k"), "each unit has rows of its own"


@pytest.mark.parametrize("count", [1, 2, 64])
def test_parts_of_rows_do_not_depend_on_the_number_of_threads(count: int) -> None:
    alike = Partition(unit="CORE", sums=True, deterministic=True)
    result, _ = check_pass(row_sums(640, (16,)), alike, small_caches(count), again=False, rtol=1e-4)
    assert result.root.children[0].ranges == {"k": 8, "k_1": 80, "n0": 16}


@pytest.mark.parametrize(
    ("program", "own"),
    [
        (row_sums(640, (16,)), 1 << 20),
        (row_sums(640, (16,), m=2), 4096),
        (row_sums(64, (16,)), 512),
        (row_sums(640, (200,)), 1024),
    ],
    ids=["it stays in the caches", "read for each result", "few rows", "long rows"],
)
def test_rows_that_are_cut_along_their_results(program: Program, own: int) -> None:
    result, (remark,) = check_pass(program, SUMS, small_caches(2, own), rtol=1e-4)
    assert result is program
    assert remark.message == "not cut: its results depend on an index, along which it can be cut"


# -- several results -----------------------------------------------------------------------------


def both_ways(k: int, n: int, how: str = "add", dtype: str = "f32") -> Program:
    """S[n] is what the rows of X[k, n] add up to, and T[k] what its columns do."""
    return program_of(f"""
        block main [] (
          in X[0, 0] {dtype}({k}, {n})
          out S[0]:assign {dtype}({n})
          out T[0]:assign {dtype}({k})
        ) {{
          block y [k:{k}, n:{n}] (
            in X[k, n] {dtype}(1, 1)
            out S[n]:{how} {dtype}(1)
            out T[k]:{how} {dtype}(1)
          ) {{
            $x = load(X) {dtype}
            S = store($x)
            T = store($x)
          }}
        }}
    """)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(512, 700),
    st.integers(3, 20),
    st.sampled_from([("add", "f32"), ("add", "i32"), ("max", "f32"), ("min", "i32")]),
)
def test_sums_along_rows_and_columns_are_cut_along_the_rows(k: int, n: int, sort: tuple[str, str]) -> None:
    """Each unit has the sums of its rows for itself; of what the rows add up to there are parts."""
    how, dtype = sort
    program = both_ways(k, n, how, dtype=dtype)
    result, (remark,) = check_pass(program, SUMS, small_caches(2, 512), again=False, rtol=1e-4)
    assert remark.acted, remark.message
    parts, whole = result.root.children
    assert (parts.name, whole.name) == ("y_parts", "S")
    assert [r.name for r in result.root.refinements] == ["X", "S", "T", "S_part"]
    assert [r.source for r in parts.refinements if r.direction.writes] == ["S_part", "T"]
    dealt, _ = check_pass(result, CORES, cpu(2), again=False, rtol=1e-4)
    location = spread(dealt)[0].location
    assert location is not None and location.bank == Affine.index("k"), "each unit has rows of its own"


def test_each_of_several_totals_has_parts() -> None:
    program = program_of("""
        block main [] (in X[0] f32(8192)  out S[]:assign f32()  out M[]:assign f32()) {
          block r [i:8192] (in X[i] f32(1)  out S[]:add f32()  out M[]:max f32()) {
            $x = load(X) f32
            S = store($x)
            M = store($x)
          }
        }
    """)
    result, (remark,) = check_pass(program, SUMS, cpu(2), again=False, rtol=1e-4)
    assert "64 partial results in 'S_part' and 'M_part'" in remark.message
    assert [b.name for b in result.root.children] == ["r_parts", "S", "M"]


def test_one_result_that_would_be_rounded_keeps_both_whole() -> None:
    program = both_ways(640, 16, dtype="f16")
    result, (remark,) = check_pass(program, SUMS, small_caches(2, 256), again=False)
    assert result is program and remark.message == "not cut: partial sums would be rounded to f16"


# -- nests ---------------------------------------------------------------------------------------


def rows_twice(m: int, n: int, row: str = "", limit: str = "") -> Program:
    """Y[n] = sum over m of A[m, n] * (sum over k of A[m, k]), a row at a time."""
    return program_of(f"""
        block main [] (in A[0, 0] f32({m}, {n}):({n}, 1)  out Y[0]:assign f32({n}):(1)) {{
          block y [m:{m}] (
            in A[m, 0] f32(1, {n}):({n}, 1)
            out Y[0]:add f32({n}):(1)
            new T f32()
          ) {{
            block t [k:{n}] (in A[0, k] f32(1, 1):({n}, 1)  out T[]:add f32()) {{
              $a = load(A) f32
              T = store($a)
            }}
            block y [n:{n}{row}] (
              {limit} in A[0, n] f32(1, 1):({n}, 1)
              in T[] f32()
              out Y[n]:add f32(1):(1)
            ) {{
              $a = load(A) f32
              $t = load(T) f32
              $p = mul($a, $t) f32
              Y = store($p)
            }}
          }}
        }}
    """)


@pytest.mark.parametrize(("m", "n"), [(640, 16), (601, 7), (1024, 1)])
def test_a_nest_that_adds_up_rows_has_parts(m: int, n: int) -> None:
    result, (remark,) = check_pass(rows_twice(m, n), SUMS, small_caches(2, 512), again=False, rtol=1e-4)
    assert remark.acted, remark.message
    parts, whole = result.root.children
    assert (parts.name, whole.name) == ("y_parts", "y")
    assert [b.name for b in parts.children] == ["t", "y"]
    dealt, _ = check_pass(result, CORES, cpu(2), again=False, rtol=1e-4)
    location = spread(dealt)[0].location
    assert location is not None and location.bank == Affine.index("m"), "each unit has rows of its own"


def test_a_nest_that_adds_to_a_part_of_its_view_stays_whole() -> None:
    """Partial results would have elements that nothing was added to."""
    result, (remark,) = check_pass(
        rows_twice(640, 16, ", mo = m", "n - mo >= 0 "), SUMS, small_caches(2, 512)
    )
    assert result.root.children[0].name == "y"
    assert remark.message == "not cut: a point of it does not add to all that its view shows"
