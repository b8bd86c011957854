"""`stripec simulate` and `stripec.simulate`: what is printed, and that it adds up."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

import stripec
from hwconfigs.load import load_named
from simulator import schema
from stripec.cli import main

PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
SHAPES = {"A": "i8[100,70]", "B": "i8[70,90]"}


@pytest.fixture
def product(tmp_path: Path) -> str:
    path = tmp_path / "product.tile"
    path.write_text(PRODUCT, encoding="utf-8")
    return str(path)


def arguments(product: str, *more: str) -> list[str]:
    return ["simulate", product, *(f"--shape={name}={kind}" for name, kind in SHAPES.items()), *more]


def test_what_is_printed(product: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(product)) == 0
    said = capsys.readouterr().out
    assert "product on systolic_16: " in said
    assert "execution by execution and in closed form: equal" in said
    titles = ("units, in cycles", "memories, in bytes", "traffic, in bytes", "work, in operations and cycles")
    for title in (*titles, "kernels, in cycles", "bounds, in bytes", "energy"):
        assert f"\n{title}\n" in said


def test_of_several_instances_one_and_all_are_told(product: str, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = {"A": "f32[256,512]", "B": "f32[512,128]"}
    types = [f"--shape={name}={kind}" for name, kind in shapes.items()]
    assert main(["simulate", product, "--target", "many_core", "--counts", "closed", *types]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    (head,) = (line for line in lines if line[:2] == ["memory", "peak"])
    assert head[3:9] == ["of", "in", "one", "of", "one", "alive"]
    (own,) = (line for line in lines if line[:1] == ["SRAM[0..15]"] and len(line) > 6)
    peak, of, one, of_one = map(int, own[1:5])
    assert (of, of_one) == (16 * 65536, 65536)
    assert peak == 16 * one <= of
    near, shared, _ = stripec.simulate(PRODUCT, shapes=shapes, target="many_core", counts="closed").memories
    assert (near.instances, near.bytes, near.peak, near.in_one) == (16, 65536, peak, one)
    assert (shared.instances, shared.in_one) == (1, None)


def test_bank_conflicts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sum.tile"
    path.write_text("function (A[N], B[N]) -> (C) { C = A + B; }", encoding="utf-8")
    shapes = {"A": "f32[4096]", "B": "f32[4096]"}
    types = [f"--shape={name}={kind}" for name, kind in shapes.items()]
    assert main(["simulate", str(path), "--target", "many_core", *types]) == 0
    said = capsys.readouterr().out
    assert "bank  unit  accesses  waited  of them  cycles waited" in said
    (row,) = (line.split() for line in said.splitlines() if line.split()[:3] == ["DRAM", "0", "DMA"])
    *_, far = stripec.simulate(path, shapes=shapes, target="many_core").memories
    (own,) = far.banks  # 16 engines bring two inputs and take one result, all of them at once
    assert (own.bank, own.unit, own.accesses) == (0, "DMA", 3 * 16)
    assert own.waited == own.accesses and own.cycles == pytest.approx(far.contended)
    assert row[3:6] == [str(own.accesses), str(own.waited), "100.0%"]
    # Without a run there are none, and where nobody waits there is no table.
    *_, far = stripec.simulate(path, shapes=shapes, target="many_core", counts="closed").memories
    assert far.banks == [] and far.contended == 0
    assert main(["simulate", str(path), "--target", "vector_dsp", *types]) == 0
    assert "bank conflicts" not in capsys.readouterr().out


def test_each_core_has_a_cache_of_which_one_is_told() -> None:
    shapes = {"A": "f32[64,64]", "B": "f32[64,512]"}
    hw = load_named("x86_64_avx2")
    units = tuple(msgspec.structs.replace(u, count=3, startup_cycles=1) for u in hw.units)
    memories = tuple(msgspec.structs.replace(m, count=3 if m.name == "L1" else 1) for m in hw.memories)
    own = msgspec.structs.replace(hw, units=units, memories=memories)
    found = stripec.simulate(PRODUCT, shapes=shapes, target=own).memories
    (first,) = (memory for memory in found if memory.memory == "L1")
    assert first.instances == 3
    assert first.in_one is not None and first.bytes is not None
    assert first.peak / 3 <= first.in_one <= min(first.peak, first.bytes)
    assert first.in_one < first.peak


def test_energy_without_cycles_says_what_it_lacks(
    product: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warm = {"extends": "systolic_16", "name": "warm", "description": "it leaks", "static_pj_per_cycle": 2}
    (tmp_path / "warm.json").write_text(json.dumps(warm), encoding="utf-8")
    assert main(arguments(product, "--target", str(tmp_path / "warm.json"), "--counts", "closed")) == 0
    assert "\nthe energy is without 'static_pj_per_cycle': " in capsys.readouterr().out


def test_of_many_bounds_those_of_all_tensors_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sums = "".join(f"  R{n}[i : 40] = +(X[i, j] * W{n}[j]);\n" for n in range(8))
    inputs = ", ".join(f"W{n}[5] : i8" for n in range(8))
    outputs = ", ".join(f"R{n}" for n in range(8))
    path = tmp_path / "many.tile"
    path.write_text(f"function many(X[40, 5] : i8, {inputs}) -> ({outputs}) {{\n{sums}}}\n", encoding="utf-8")
    assert main(["simulate", str(path), "--target", "vector_dsp", "--counts", "closed"]) == 0
    lines = capsys.readouterr().out.split("\nbounds, in bytes\n")[1].split("\n\n")[0].splitlines()
    assert len(lines) > 1
    assert all(" all " in line for line in lines[1:])
    assert lines[-1].startswith("the program")


def test_the_types_that_are_missing_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "open.tile"
    path.write_text("function (A[M, 3] : i8, B[M, 3] : i8, C) -> (D) { D = A + B + C; }", encoding="utf-8")
    assert main(["simulate", str(path), "--shape", "B=i8[2,3]"]) == 1
    said = capsys.readouterr().err
    assert "the types of inputs 'A', 'C' are not given" in said
    assert "help: --shape A=i8[M,3] --shape C=f32[...]" in said


def test_json_follows_its_schema(product: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(product, "--json", "--tasks", "3")) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema())
    assert found["version"] == 1
    assert len(found["trace"]) == 3
    assert found["operations"] == 2 * 100 * 70 * 90
    assert {own["memory"] for own in found["occupancy"]} == {"ACC", "SPAD", "DRAM"}


def test_the_same_bytes_every_time(product: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(arguments(product, "--json"))
    first = capsys.readouterr().out
    main(arguments(product, "--json"))
    assert capsys.readouterr().out == first


def test_counts_in_closed_form_are_those_of_the_run() -> None:
    closed, run = (
        stripec.simulate(PRODUCT, shapes=SHAPES, target="vector_dsp", counts=counts)
        for counts in ("closed", "simulated")
    )
    assert closed.cycles is None
    assert run.cycles
    assert closed.traffic == run.traffic
    # What binds a block is known of a run.
    assert closed.blocks == [msgspec.structs.replace(block, bound=None) for block in run.blocks]


def test_energy_is_the_sum_of_its_products() -> None:
    found = stripec.simulate(PRODUCT, shapes=SHAPES, target="systolic_16")
    assert found.energy
    assert found.energy_pj == pytest.approx(sum(e.count * e.pj for e in found.energy))


def test_what_enters_and_leaves_far_memory_is_at_least_the_tensors() -> None:
    found = stripec.simulate(PRODUCT, shapes=SHAPES, target="systolic_16")
    (far,) = (m for m in found.memories if m.memory == "DRAM")
    assert far.read >= 100 * 70 + 70 * 90
    assert far.written == 4 * 100 * 90


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--const", "D"), "D031"),
        (("--counts", "maybe"), "invalid choice"),
        (("--tasks", "-1"), "whole number"),
        (("--tasks", "1e3"), "whole number"),
        (("--trace", "no/such/folder.json"), "D010"),
        (("--trace", "t.json", "--counts", "closed"), "D072"),
    ],
)
def test_what_can_not_be_simulated_is_an_error(
    product: str, more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments(product, *more))
    except SystemExit as stop:
        code = int(str(stop.code))
    assert code in (1, 2)
    assert said in capsys.readouterr().err


def test_counts_of_another_kind_are_refused() -> None:
    with pytest.raises(stripec.CompileError, match=r"D074.*'events'.*'closed', 'simulated', 'both'"):
        stripec.simulate(PRODUCT, shapes=SHAPES, target="systolic_16", counts="events")  # type: ignore[arg-type]


def test_caches_are_printed_and_follow_the_schema(product: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = "--target", "x86_64_avx512"
    assert main(arguments(product, *more)) == 0
    said = capsys.readouterr().out
    assert "execution by execution and in closed form: equal" in said
    assert "\ncaches, " in said
    assert main(arguments(product, *more, "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema())
    assert [c["memory"] for c in found["caches"]] == ["L1", "L2", "L3"]
    for cache in found["caches"]:
        assert cache["accesses"] == cache["hits"] + cache["misses"]
        assert cache["misses"] == sum(own["misses"] for own in cache["buffers"])


def test_a_trace_of_a_run_on_caches(product: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.json"
    assert main(arguments(product, "--target", "generic", "--trace", str(out))) == 0
    assert any(event["ph"] == "X" for event in json.loads(out.read_text())["traceEvents"])


LAYER = """function (I[H, W, C], F[KH, KW, C, K]) -> (O) {
  O[y, x, k : H - 2, W - 2, K] = +(I[y + i, x + j, c] * F[i, j, c, k]), i < 3, j < 3;
}"""
SIZES = {"I": "f32[30,30,32]", "F": "f32[3,3,32,64]"}


def test_the_load_time_program_is_a_run_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "layer.tile"
    path.write_text(LAYER, encoding="utf-8")
    shapes = [f"--shape={name}={kind}" for name, kind in SIZES.items()]
    more = ["--target", "x86_64_avx512", "--const", "F"]
    assert main(["simulate", str(path), *shapes, *more]) == 0
    said = capsys.readouterr().out
    assert "load-time program of layer on x86_64_avx512: " in said
    assert main(["simulate", str(path), *shapes, *more, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema())
    packed = 3 * 3 * 32 * 64 * 4
    far = {t["buffer"]: t for t in found["load"]["traffic"] if t["memory"] == "DRAM"}
    assert far["pack/F"]["read"] == far["pack/F_packed"]["written"] == packed
    main_far = {t["buffer"] for t in found["traffic"] if t["memory"] == "DRAM"}
    assert main_far == {"main/I", "main/F_packed", "main/O"}
    whole = stripec.simulate(LAYER, shapes=SIZES, target="x86_64_avx512")
    assert whole.load is None
