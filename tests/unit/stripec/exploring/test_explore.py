"""`stripec.explore`: points are what `stripec.simulate` finds for them, however the sweep was run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import stripec
from hwconfigs.load import load_named
from stripe.diag import CompileError
from stripec.driver import optimise
from stripec.exploring import measure as measuring
from stripec.exploring.api import JSON, PLOT
from stripec.exploring.measure import Job, Task
from stripec.exploring.result import Exploration, Outcome, schema

SHAPES = {"A": "i8[64,48]", "B": "i8[48,80]"}
VARY: dict[str, Any] = {
    "memory.SPAD.bytes": "8K..32K:x2",
    "unit.MAC.shape": ["8x8", "16x16"],
    "memory.DRAM.read_pj_per_byte": [80, 160],
}


def explored(**more: Any) -> Exploration:
    arguments: dict[str, Any] = {"shapes": SHAPES, "target": "systolic_16", "vary": VARY, "jobs": 1}
    return stripec.explore(Path("product.tile"), **(arguments | more))


def test_points_are_what_a_simulation_of_each_finds(folder: Path) -> None:
    found = explored()
    assert len(found.points) == 12
    hw = load_named("systolic_16")
    for point in found.points:
        size, shape, pj = point.set.values()
        side = int(shape.partition("x")[0])
        memories = {
            "SPAD": msgspec.structs.replace(hw.memories[1], bytes=size),
            "DRAM": msgspec.structs.replace(hw.memories[2], read_pj_per_byte=pj),
        }
        stencils = tuple(
            msgspec.structs.replace(s, indices=s.indices | {"j": side, "p": side}) for s in hw.stencils
        )
        own = msgspec.structs.replace(
            hw, memories=tuple(memories.get(m.name, m) for m in hw.memories), stencils=stencils
        )
        one = stripec.simulate(Path("product.tile"), shapes=SHAPES, target=own, counts="simulated")
        (program,) = point.outcome.programs
        assert point.outcome.status == "mapped"
        assert (program.cycles, program.seconds) == (one.cycles, one.seconds)
        assert point.objectives == {"energy": one.energy_pj, "latency": one.seconds}
        assert program.operations == one.operations
        assert [(m.memory, m.peak, m.read, m.written) for m in program.memories] == [
            (m.memory, m.peak, m.read, m.written) for m in one.memories
        ]
        whole = {
            b.memory: (b.compulsory, b.least, b.ours) for b in one.bounds if not b.kernel and not b.tensor
        }
        assert list(whole) == ["ACC", "SPAD", "DRAM"]
        for memory in program.memories:
            crossing = memory.crossing
            assert crossing is not None and crossing.least is not None
            assert (crossing.compulsory, crossing.least, crossing.ours) == whole[memory.memory]
            assert crossing.compulsory <= crossing.least <= crossing.ours
        assert program.crossing == program.memories[-1].crossing


def test_the_front_is_marked(folder: Path) -> None:
    found = explored()
    assert found.front == [p.number for p in found.points if p.front]
    best = min(found.points, key=lambda p: (p.objectives["energy"], p.objectives["latency"]))
    assert best.front and len(found.front) < len(found.points)


def test_what_is_written_follows_its_schema_and_says_what_was_set(folder: Path) -> None:
    found = explored(out="sweep")
    text = Path("sweep", JSON).read_text(encoding="utf-8")
    assert text == found.to_json()
    value = json.loads(text)
    jsonschema.validate(value, schema())
    assert value["version"] == 1
    assert value["varied"][1]["sets"] == [
        f"$.stencils[{n}].indices.{name}" for n in range(3) for name in ("j", "p")
    ]
    assert msgspec.json.decode(text, type=Exploration) == found
    assert "second" not in text.replace('"seconds"', ""), "no times of ours"
    assert Path("sweep", PLOT).read_text(encoding="utf-8").startswith("<svg ")


def test_the_same_bytes_on_several_processes(folder: Path) -> None:
    explored(out="one", jobs=1)
    explored(out="two", jobs=2)
    for name in (JSON, PLOT):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often programs are compiled and simulated."""
    counted: Counter[str] = Counter()

    def counting(name: str, real: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            counted[name] += 1
            return real(*given, **more)

        return call

    for name in ("optimise", "simulate"):
        monkeypatch.setattr(measuring, name, counting(name, getattr(measuring, name)))
    return counted


def test_points_that_compile_to_the_same_are_compiled_once(folder: Path, measured: Counter[str]) -> None:
    explored(
        vary={
            "memory.DRAM.read_pj_per_byte": "1..4:+1",
            "clock_hz": "1G,2G",
            "memory.DRAM.latency_cycles": "1,9",
        }
    )
    assert measured == {"optimise": 1, "simulate": 2}


class Killed(Exception):
    """In place of a kill."""


def killed_after(count: int) -> Any:
    def progress(done: int, total: int) -> None:
        if done == count:
            raise Killed

    return progress


@pytest.mark.parametrize("count", [1, 5, 11])
def test_what_was_interrupted_goes_on_and_gives_the_same_bytes(
    folder: Path, measured: Counter[str], count: int
) -> None:
    explored(out="whole")
    measured.clear()
    with pytest.raises(Killed):
        explored(out="parts", progress=killed_after(count))
    assert not Path("parts", JSON).exists()
    lines = Path("parts", "journal.jsonl").read_bytes()
    assert lines.count(b"\n") == 1 + count
    explored(out="parts")
    assert Path("parts", "journal.jsonl").read_bytes().startswith(lines)
    points = [
        json.loads(line)["point"] for line in Path("parts", "journal.jsonl").read_text().split("\n")[1:-1]
    ]
    assert sorted(points) == list(range(12)), "each once"
    assert measured["optimise"] <= 7, "a group that was begun is compiled once more, none that was finished"
    for name in (JSON, PLOT):
        assert Path("whole", name).read_bytes() == Path("parts", name).read_bytes()


def test_other_objectives_measure_nothing_again(folder: Path, measured: Counter[str]) -> None:
    explored(out="sweep")
    measured.clear()
    found = explored(out="sweep", objectives=("capacity", "edp", "array"))
    assert not measured
    assert found.points[0].objectives["capacity"] == 65536 + 8192


def test_a_plot_of_other_objectives_does_not_stay(folder: Path) -> None:
    explored(out="sweep")
    explored(out="sweep", objectives=("latency",))
    assert sorted(path.name for path in Path("sweep").iterdir()) == ["journal.jsonl", JSON]


def test_another_sweep_does_not_go_on_there(folder: Path) -> None:
    explored(out="sweep")
    before = {path.name: path.read_bytes() for path in Path("sweep").iterdir()}
    for change, said in (
        ({"target": "systolic_32_ws", "vary": {"memory.SPAD.bytes": "64K"}}, "target"),
        ({"vary": VARY | {"unit.MAC.shape": "8x8,16x8"}}, "varied fields or values"),
        ({"shapes": SHAPES | {"B": "i8[48,81]"}}, "programs or types"),
        ({"objectives": ("energy",)}, "counts of another kind"),
        ({"verify": "off"}, "another --verify"),
    ):
        with pytest.raises(CompileError, match=said):
            explored(out="sweep", **change)
        assert {path.name: path.read_bytes() for path in Path("sweep").iterdir()} == before


def test_a_point_without_a_mapping_is_kept_with_its_reason(folder: Path) -> None:
    found = explored(vary={"memory.ACC.bytes": "64,64K"}, out="sweep")
    none, some = found.points
    assert none.outcome.status == "no mapping" and none.outcome.code and none.outcome.reason
    assert none.objectives == {} and not none.front
    assert some.outcome.status == "mapped" and found.front == [1]
    assert explored(vary={"memory.ACC.bytes": "64,64K"}, out="sweep") == found


def test_values_that_do_not_fit_together_are_kept_with_their_reason(folder: Path) -> None:
    found = explored(vary={"memory.SPAD.bytes": "64K,96K", "memory.SPAD.banks": "4,3"}, out="sweep")
    assert [p.outcome.status for p in found.points] == ["mapped", "refused", "mapped", "mapped"]
    assert "$.memories[1].banks" in found.points[1].outcome.reason
    assert Path("sweep", "journal.jsonl").read_bytes().count(b"\n") == 4, "it took no work"


def test_a_fault_at_one_point_does_not_end_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(program: Any, hw: Any, **more: Any) -> Any:
        if hw.memories[1].bytes == 16384:
            raise ZeroDivisionError("division by zero")
        return optimise(program, hw, **more)

    monkeypatch.setattr(measuring, "optimise", broken)
    found = explored(vary={"memory.SPAD.bytes": "8K..32K:x2"})
    assert [p.outcome.status for p in found.points] == ["mapped", "fault", "mapped"]
    assert found.points[1].outcome.reason == "ZeroDivisionError: division by zero"


def test_several_programs_are_summed_and_have_shapes_of_their_own(folder: Path) -> None:
    found = stripec.explore(
        {"big": Path("product.tile"), "small": Path("product.tile"), "sum": Path("sum.tile")},
        shapes={"A": "i8[64,48]", "big:B": "i8[48,80]", "small:B": "i8[48,16]", "sum:B": "i8[48]"},
        target="systolic_16", vary={"memory.SPAD.bytes": "8K,16K"}, objectives=("cycles",), jobs=1,
    )  # fmt: skip
    for point in found.points:
        programs = {p.program: p for p in point.outcome.programs}
        assert list(programs) == ["big", "small", "sum"]
        assert programs["big"].operations == 2 * 64 * 48 * 80
        assert programs["small"].operations == 2 * 64 * 48 * 16
        assert point.objectives["cycles"] == sum(p.cycles or 0 for p in programs.values())


def test_without_cycles_counts_are_closed(folder: Path) -> None:
    found = explored(objectives=("energy", "traffic"))
    assert found.counts == "closed"
    assert all(p.outcome.programs[0].cycles is None for p in found.points)
    timed = explored(objectives=("energy", "cycles"))
    assert [p.objectives["energy"] for p in found.points] == [p.objectives["energy"] for p in timed.points]


def test_progress_counts_to_the_end(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    explored(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(n, 12) for n in range(13)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shapes": {"A": "i8[64,48]"}}, "the type of input 'B' of product is not given"),
        ({"shapes": SHAPES | {"C": "i8[2]"}}, "shape C: no such input"),
        ({"shapes": SHAPES | {"prod:A": "i8[2]"}}, "shape prod:A: no such input"),
        ({"vary": {}}, "nothing varies"),
        ({"objectives": ("speed",)}, "no objective is named 'speed'"),
        ({"target": "systolic_17"}, "no target is named 'systolic_17'"),
        ({"vary": {"clock_hz": "null,1G"}}, "some points have a clock and some have none"),
        ({"vary": {"memory.SPAD.bytes": "64K", "unit.MAC.width": "3"}}, "there is no field 'width'"),
    ],
)
def test_what_makes_no_sweep_is_told(folder: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(CompileError, match=said):
        explored(**({"out": "sweep"} | change))
    assert not Path("sweep").exists()


def test_sizes_that_are_too_large_end_in_a_reason(folder: Path) -> None:
    huge = str((1 << 60) - (1 << 20))
    found = explored(
        vary=[
            {"memory.SPAD.bytes": f"64K,{huge}"},
            {"unit.MAC.shape": "16x16,1000000000x1000000000"},
            {"memory.SPAD.bytes_per_cycle": "1e15"},
        ]
    )
    assert [p.outcome.status for p in found.points if p.set["unit.MAC.shape"] == "16x16"] == ["mapped"] * 2
    for point in found.points:
        assert point.outcome.status != "fault", point.outcome


def test_a_clock_that_makes_time_infinite_is_refused(folder: Path) -> None:
    found = explored(vary={"clock_hz": "5e-324,1e-200,1"}, objectives=("edp",), out="sweep")
    assert [p.outcome.status for p in found.points] == ["refused", "refused", "mapped"]
    assert "a run takes inf s" in found.points[0].outcome.reason
    assert explored(vary={"clock_hz": "5e-324,1e-200,1"}, objectives=("edp",), out="sweep") == found


def test_measuring_depends_on_its_arguments_alone(folder: Path) -> None:
    hw = load_named("systolic_16")
    job = Job((), "simulated", "on", "x")

    def outcomes() -> Iterator[Outcome]:
        return measuring.measure(job, Task((3, 4), (hw, hw)))

    assert list(outcomes()) == list(outcomes()) == [Outcome(status="mapped")] * 2
