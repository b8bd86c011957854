"""Which producers fuse puts into the tiles of their consumers, which it leaves apart, and why."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from benchmarks.formulas import attention
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import Remark
from stripe.ir import Block, Program
from stripe.passes.fuse import Fuse
from stripe.passes.pipeline import StepReport, run_pipeline
from tests.support.executions import pipeline
from tests.support.passes import check_pass
from tests.support.problems import lowered
from tests.support.threads import with_cores
from tests.unit.stripe.passes.test_fuse import copy, elementwise, kernel, main, shape_of

TILES = Fuse(share="tiles")


def small(**rates: float) -> HwConfig:
    """A machine whose memories are so small and slow that tiles pay for small programs."""
    hw = load_named("x86_64_avx512")
    sizes = {"L1": 256, "L2": 2048, "L3": 8192}
    speed = {"L1": 64.0, "L2": 8.0, "L3": 0.5, "DRAM": 0.05, **rates}
    memories = tuple(
        with_fields(m, bytes=sizes.get(m.name, m.bytes), bytes_per_cycle=speed.get(m.name, m.bytes_per_cycle))
        for m in hw.memories
    )
    return with_fields(hw, memories=memories)


def window(name: str, source: str, points: tuple[int, int], *, step: int = 1, shift: int = 0) -> str:
    """name[y, x] = sum over i, j of source[step*y + i - shift, step*x + j - shift], where that exists"""
    rows, columns = (f"{step}*{n} + {w} - {shift}" for n, w in (("y", "i"), ("x", "j")))
    border = [f"{rows} >= 0", f"{points[0] - 1 + shift} - {step}*y - i >= 0"] if shift else []
    border += [f"{columns} >= 0", f"{points[1] - 1 + shift} - {step}*x - j >= 0"] if shift else []
    views = [f"in {source}[{rows}, {columns}] f32(1, 1)", f"out {name}[y, x]:add f32(1, 1)"]
    return kernel(
        name,
        f"y:{points[0]}, x:{points[1]}, i:3, j:3",
        ";".join(["\n".join([*border, views[0]]), views[1]]),
        f"$v = load({source}) f32\n{name} = store($v)",
    )


def tiled(program: Program, hw: HwConfig | None = None) -> tuple[Program, list[Remark]]:
    return check_pass(program, TILES, hw or small())


def only(program: Program) -> Block:
    (block,) = program.root.children
    return block


def refusal(remarks: list[Remark]) -> str:
    (remark,) = remarks
    assert not remark.acted
    return remark.message


def test_window_of_a_window_recomputes_the_rows_between_tiles() -> None:
    program, remarks = tiled(
        main("in X 68 36; new T 66 34; out R 64 32", window("T", "X", (66, 34)), window("R", "T", (64, 32)))
    )
    tile = only(program)
    assert tile.has_tag("tiled") and [c.name for c in tile.children] == ["T", "R"]
    producer, consumer = tile.children
    assert all(producer.ranges[n] == consumer.ranges[n] + 2 for n in "yx")
    assert tile.refinement("T").shape == (producer.ranges["y"], producer.ranges["x"])
    (remark,) = remarks
    data: dict[str, Any] = remark.data
    assert remark.acted and 0 < data["computed_again"] < 0.5
    assert data["bytes_tile"] < data["bytes_whole"] == 66 * 34 * 4
    assert data["cycles_together"] < data["cycles_apart"]


@pytest.mark.parametrize("cores", [1, 2, 3, 5])
def test_no_core_is_left_without_a_tile(cores: int) -> None:
    """Tiles that cores share out take as long as the last of them is at work."""
    program, _ = tiled(
        main("in X 68 36; new T 66 34; out R 64 32", window("T", "X", (66, 34)), window("R", "T", (64, 32))),
        with_cores(small(), cores),
    )
    assert prod(only(program).ranges.values()) % cores == 0


def test_border_stays_cut() -> None:
    program, _ = tiled(
        main(
            "in X 64 32; new T 64 32; out R 64 32",
            window("T", "X", (64, 32), shift=1),
            window("R", "T", (64, 32), shift=1),
        ),
        small(L3=0.02),
    )
    assert [c.name for c in only(program).children] == ["T", "R"]


@pytest.mark.parametrize("step", [2, 3])
def test_strides_make_ratios(step: int) -> None:
    rows, columns = 3 + 31 * step, 3 + 15 * step
    program, _ = tiled(
        main(
            f"in X {rows} {columns}; new T {rows} {columns}; out R 32 16",
            elementwise("T", "X", (rows, columns)),
            window("R", "T", (32, 16), step=step),
        )
    )
    producer, consumer = only(program).children
    assert producer.ranges["i"] == step * (consumer.ranges.get("y", 1) - 1) + 3


def test_a_chain_becomes_one_group() -> None:
    names = ["X", "T0", "T1", "T2", "R"]
    rows = [72, 70, 68, 66, 64]
    buffers = "; ".join(f"new {n} {r} {r - 32}" for n, r in list(zip(names, rows, strict=True))[1:-1])
    program, _ = tiled(
        main(
            f"in X 72 40; {buffers}; out R 64 32",
            *(window(b, a, (r, r - 32)) for (a, b), r in zip(pairwise(names), rows[1:], strict=True)),
        )
    )
    tile = only(program)
    assert [c.name for c in tile.children] == ["T0", "T1", "T2", "R"]
    found = [c.ranges.get("y", 1) for c in tile.children]
    assert [a - b for a, b in pairwise(found)] == [2, 2, 2]
    assert [r.name for r in program.root.refinements] == ["X", "R"]


def test_rows_of_an_intermediate_that_is_used_whole_along_the_other_dimension() -> None:
    total = copy("S", "y:64, x:16", "T[y, x]", "S[y]", "add")
    use = kernel(
        "R",
        "y:64, x:8, k:16",
        "in T[y, k] f32(1, 1); in S[y] f32(1); in B[k, x] f32(1, 1); out R[y, x]:add f32(1, 1)",
        "$t = load(T) f32\n$s = load(S) f32\n$b = load(B) f32\n$u = sub($t, $s) f32\n"
        "$p = mul($u, $b) f32\nR = store($p)",
    )
    program, _ = tiled(
        main(
            "in X 64 16; in B 16 8; new T 64 16; new S 64; out R 64 8",
            elementwise("T", "X", (64, 16)),
            total,
            use,
        )
    )
    tile = only(program)
    assert [c.name for c in tile.children] == ["T", "S", "R"]
    rows, columns = tile.refinement("T").shape
    assert columns == 16 and tile.refinement("S").shape == (rows,)


def test_a_result_of_the_program_is_no_private_buffer() -> None:
    _, remarks = tiled(
        main("in X 68 36; out T 66 34; out R 64 32", window("T", "X", (66, 34)), window("R", "T", (64, 32)))
    )
    assert remarks == []


def test_producer_that_another_block_needs_stays_apart() -> None:
    program = main(
        "in X 68 36; new T 66 34; out R 64 32; out Q 64 32",
        window("T", "X", (66, 34)),
        window("R", "T", (64, 32)),
        window("Q", "T", (64, 32)),
    )
    result, remarks = tiled(program)
    assert result is program
    assert {(r.block, r.message) for r in remarks} == {
        ("main/Q", "does not compute 'T' in its tiles: 'R' is a result of the program"),
        ("main/R", "does not compute 'T' in its tiles: 'Q' needs 'T', too"),
    }


def test_producer_with_a_second_result_that_is_needed_stays_apart() -> None:
    both = kernel(
        "T",
        "y:66, x:34",
        "in X[y, x] f32(1, 1); out T[y, x]:assign f32(1, 1); out U[y, x]:assign f32(1, 1)",
        "$v = load(X) f32\nT = store($v)\nU = store($v)",
    )
    program = main("in X 66 34; new T 66 34; out U 66 34; out R 64 32", both, window("R", "T", (64, 32)))
    _, remarks = tiled(program)
    assert refusal(remarks).endswith("'U' is a result of the program")


def test_producer_whose_operand_is_overwritten_stays_apart() -> None:
    program = main(
        "in X 66 34; new A 66 34; new T 66 34; out R 64 32; out Q 66 34",
        elementwise("A", "X", (66, 34)),
        elementwise("T", "A", (66, 34)),
        kernel(
            "C",
            "y:66, x:34",
            "in T[y, x] f32(1, 1); inout A[y, x]:assign f32(1, 1)",
            "$t = load(T) f32\n$a = load(A) f32\n$b = add($a, $t) f32\nA = store($b)",
        ),
        window("R", "A", (64, 32)),
        copy("Q", "y:66, x:34", "A[y, x]", "Q[y, x]"),
    )
    result, remarks = tiled(program)
    assert result is program and remarks


def test_what_fits_near_stays_apart() -> None:
    _, remarks = tiled(
        main("in X 10 8; new T 8 6; out R 6 4", window("T", "X", (8, 6)), window("R", "T", (6, 4)))
    )
    assert refusal(remarks) == "does not compute 'T' in its tiles: what lies between them fits in L1"


def test_declines_with_figures_where_it_does_not_pay() -> None:
    fast = small(L1=64.0, L2=64.0, L3=64.0, DRAM=64.0)
    program = main(
        "in X 68 36; new T 66 34; out R 64 32", window("T", "X", (66, 34)), window("R", "T", (64, 32))
    )
    result, remarks = tiled(program, fast)
    assert result is program
    message = refusal(remarks)
    assert "it would not pay: tiles y:" in message
    assert "bytes of T instead of 8976 in DRAM" in message and "again" in message
    assert message.endswith("cycles")


def apart(inputs: str, hw: HwConfig) -> float:
    """Cycles of a window of a sum of inputs, each of 8976 bytes, and the sum by itself."""
    reads = "; ".join(f"in {x}[i, j] f32(1, 1)" for x in inputs)
    loads = [f"$v{x} = load({x}) f32" for x in inputs]
    total = [f"$s{at + 1} = add($v{x}, $s{at}) f32" for at, x in enumerate(inputs)]
    body = "\n".join(["$s0 = constant(1.0) f32", *loads, *total, f"T = store($s{len(inputs)})"])
    producer = kernel("T", "i:66, j:34", f"{reads}; out T[i, j]:assign f32(1, 1)", body)
    buffers = "; ".join(f"in {x} 66 34" for x in inputs)
    _, (remark,) = tiled(
        main(f"{buffers}; new T 66 34; out R 64 32", producer, window("R", "T", (64, 32))), hw
    )
    return float(
        remark.message.removesuffix(" cycles").rpartition("instead of ")[2]
    )  # whether it pays or not


def test_what_several_buffers_bring_from_one_memory_adds_up() -> None:
    one, two, three = (apart(names, small(DRAM=0.05)) for names in ("X", "XY", "XYZ"))
    assert two - one == pytest.approx(8976 / 0.05, rel=0.05)
    assert three - two == pytest.approx(8976 / 0.05, rel=0.05)


def test_what_comes_from_far_passes_the_memories_that_are_nearer() -> None:
    near, far = small(L2=0.05, L3=50.0, DRAM=50.0), small(L2=50.0, L3=0.05, DRAM=50.0)
    assert apart("X", near) == pytest.approx(apart("X", far), rel=0.05)


def test_target_without_rates_says_so() -> None:
    hw = small()
    program = main(
        "in X 68 36; new T 66 34; out R 64 32", window("T", "X", (66, 34)), window("R", "T", (64, 32))
    )
    _, remarks = tiled(
        program, with_fields(hw, memories=tuple(with_fields(m, bytes_per_cycle=None) for m in hw.memories))
    )
    assert "does not say" in refusal(remarks)


def test_window_along_a_diagonal_of_the_producer_is_no_box() -> None:
    diagonal = kernel(
        "R",
        "y:64, x:32",
        "in T[y, x] f32(1, 1); in L = T[x, y] f32(1, 1); out R[y, x]:assign f32(1, 1)",
        "$t = load(T) f32\n$l = load(L) f32\n$r = add($t, $l) f32\nR = store($r)",
    )
    program = main("in X 64 64; new T 64 64; out R 64 32", elementwise("T", "X", (64, 64)), diagonal)
    _, remarks = tiled(program)
    assert "each tile of it would need all that its producers write" in refusal(remarks)


def test_shape_is_readable() -> None:
    program, _ = tiled(
        main("in X 68 36; new T 66 34; out R 64 32", window("T", "X", (66, 34)), window("R", "T", (64, 32)))
    )
    assert shape_of(program.root).startswith("main[](R[y](T[y,x,i,j] R[y,x,i,j])")


def test_boxes_that_a_core_keeps_for_itself_are_worth_a_little_more() -> None:
    """Attention over 2048 keys: 1024 rows of queries in a tile, in L3, would cost 3 percent less."""
    hw, said = load_named("x86_64_zen4"), list[Remark]()
    steps = pipeline(hw.name)
    upto = next(n for n, step in enumerate(steps) if isinstance(step, Fuse) and step.share == "tiles")

    def observe(report: StepReport, _: Program) -> None:
        said.extend(report.remarks)

    run_pipeline(lowered(attention(4, 2048, 64)), steps[: upto + 1], hw, observers=[observe])
    (tile,) = (remark for remark in said if remark.acted and "bytes_tile" in remark.data)
    l2 = hw.memory("L2")
    assert l2 is not None and l2.bytes is not None
    needed = tile.data["bytes_tile"]
    assert isinstance(needed, int) and l2.bytes / 4 < needed < l2.bytes
