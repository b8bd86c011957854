"""Points of a sweep, their targets, and which of them compile to the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError
from stripec.exploring.space import Refusal, Space, compile_key, make_space, targets_of

ROOT = Path(__file__).parents[4]
HW = load_named("systolic_16")


def space(*vary: dict[str, Any]) -> Space:
    return make_space(HW, list(vary))


def refused(*vary: dict[str, Any]) -> CompileError:
    with pytest.raises(CompileError) as caught:
        targets_of(space(*vary))
    return caught.value


def test_points_are_numbered_as_nested_loops_go() -> None:
    found = make_space(HW, {"memory.SPAD.bytes": "64K,128K", "unit.MAC.shape": "8x8,16x16,32x32"})
    assert len(found) == 6
    assert found.values(0) == {"memory.SPAD.bytes": 65536, "unit.MAC.shape": "8x8"}
    assert found.values(1) == {"memory.SPAD.bytes": 65536, "unit.MAC.shape": "16x16"}
    assert found.values(5) == {"memory.SPAD.bytes": 131072, "unit.MAC.shape": "32x32"}


def test_each_point_is_the_target_with_its_values() -> None:
    targets = targets_of(
        space({"memory.SPAD.bytes": [65536]}, {"unit.MAC.shape": "8x32"}, {"clock_hz": "2G"})
    )
    hw = targets[0]
    assert isinstance(hw, HwConfig)
    spad = HW.memory("SPAD")
    assert spad is not None and hw.memory("SPAD") == msgspec.structs.replace(spad, bytes=65536)
    assert all(s.indices == {"i": 16, "j": 8, "p": 32} for s in hw.stencils)
    assert hw.clock_hz == 2e9
    assert hw.pipeline == HW.pipeline
    assert hw.units == HW.units


def test_what_varies_leaves_the_target_itself_alone() -> None:
    own = space({"stencil.mac_i8.indices.i": "8,16"}, {"pass.autotile.inflight": "1,2"})
    first = targets_of(own)
    assert targets_of(own) == first
    assert first[3] == HW


def test_fields_of_an_axis_go_in_step() -> None:
    found = space({"memory.SPAD.bytes": "64K..256K:x2", "memory.SPAD.banks": "1..4:x2"})
    assert [tuple(found.values(n).values()) for n in range(len(found))] == [
        (65536, 1),
        (131072, 2),
        (262144, 4),
    ]
    with pytest.raises(CompileError, match=r"2 values go with the 3 of memory\.SPAD\.bytes"):
        space({"memory.SPAD.bytes": "64K..256K:x2", "memory.SPAD.banks": "1,2"})


@pytest.mark.parametrize(
    ("vary", "code", "said"),
    [
        ({"memory.SPAD.bytes_per_cycle": "0"}, "H003", r"\$\.memories\[1\]\.bytes_per_cycle"),
        (
            {"memory.SPAD.read_pj_per_byte": "-1,2"},
            "H003",
            r"found -1, at \$\.memories\[1\]\.read_pj_per_byte",
        ),
        ({"stencil.mac_i8.unit": "MAC,MAK"}, "H005", r"MAK: no unit.*\$\.stencils\[0\]\.unit"),
        ({"memory.SPAD.backing": "DRUM"}, "H005", r"\$\.memories\[1\]\.backing"),
        ({"memory.DRAM.backing": "SPAD"}, "H005", r"memories back each other.*\$\.memories\[2\]\.backing"),
        (
            {"memory.SPAD.bytes": "1K,100000000000000000000"},
            "H003",
            r"a whole number up to 1152921504606846976, found 10{20}, at \$\.memories\[1\]\.bytes",
        ),
        ({"memory.SPAD.bytes": "1e300"}, "H003", r"\$\.memories\[1\]\.bytes"),
        ({"memory.SPAD.bytes": "100"}, "H005", r"no whole number of lines.*\$\.memories\[1\]"),
        ({"memory.SPAD.bytes": "64.5"}, "H003", r"\$\.memories\[1\]\.bytes"),
        ({"memory.SPAD.banks": "3"}, "H005", r"3 banks.*\$\.memories\[1\]\.banks"),
        ({"unit.MAC.shape": "0x8"}, "H003", r"\$\.stencils\[0\]\.indices\.j"),
        ({"stencil.mac_i8.types.x": "i9"}, "H003", r"\$\.stencils\[0\]\.types\.x"),
        ({"stencil.mac_i8.cycles": "i+"}, "H005", r"\$\.stencils\[0\]\.cycles"),
        ({"unit.VPU.reaches": '["SPAT"]'}, "H005", r"\$\.units\[1\]\.reaches\[0\]"),
        ({"clock_hz": "fast"}, "H003", r"\$\.clock_hz"),
        ({"pass.autotile.inflight": "0"}, "P004", r"inflight"),
        ({"pass.autotile.inflght": "2"}, "P003", r"inflght"),
        ({"pass.autotile.memory": "SPUD"}, "P007", r"SPUD"),
    ],
)
def test_a_value_that_nothing_takes_is_told_with_its_place(
    vary: dict[str, str], code: str, said: str
) -> None:
    error = refused(vary)
    assert re.search(said, str(error)), str(error)
    assert str(error).startswith(f"error[{error.diagnostics[0].code}]: vary {next(iter(vary))}=")
    if code[0] == "H":
        assert error.diagnostics[0].code == code


def test_values_that_do_not_fit_together_are_kept_as_points() -> None:
    targets = targets_of(space({"memory.SPAD.bytes": "64K,96K"}, {"memory.SPAD.banks": "2,3"}))
    kinds = [isinstance(targets[n], Refusal) for n in range(4)]
    assert kinds == [False, True, False, False]
    why = targets[1]
    assert isinstance(why, Refusal)
    assert why.code == "H005"
    assert "do not divide into 3 banks" in why.reason and "$.memories[1].banks" in why.reason


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ([], "nothing varies"),
        ([{"memory.SPAD.bytes": []}], "no values are given"),
        ([{"memory.SPAD.bytes": "64K,65536"}], "the value 65536 is given twice"),
        (
            [{"memory.SPAD.bytes": "64K"}, {"memories.SPAD.bytes": "1K"}],
            "varies with memory.SPAD.bytes already",
        ),
        (
            [{"unit.MAC.shape": "8x8"}, {"stencil.mac_f32.indices.j": "8"}],
            "varies with unit.MAC.shape already",
        ),
        ([{"stencil.mac_i8.indices": '{"i":1}'}, {"stencil.mac_i8.indices.j": "8"}], "already"),
        (
            [{"unit.MAC.count": "1..200:+1"}, {"unit.VPU.count": "1..200:+1"}],
            "200 x 200 points are more than",
        ),
    ],
)
def test_what_makes_no_sweep_is_told(vary: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(CompileError, match=re.escape(said)):
        space(*vary)


def keys(*vary: dict[str, Any]) -> set[bytes]:
    return {compile_key(hw) for hw in targets_of(space(*vary)).values() if isinstance(hw, HwConfig)}


@pytest.mark.parametrize(
    ("path", "values", "count"),
    [
        ("memory.DRAM.read_pj_per_byte", "1,2", 1),
        ("memory.ACC.write_pj_per_byte", "1,2", 1),
        ("unit.VPU.pj_per_operation", "1,2", 1),
        ("stencil.mac_i8.pj_per_point", "1,2", 1),
        ("memory.DRAM.latency_cycles", "1,2", 1),
        ("static_pj_per_cycle", "0,1", 1),
        ("clock_hz", "1G,null", 1),
        ("memory.DRAM.bytes_per_cycle", "1,2", 2),
        ("memory.SPAD.bytes", "64K,128K", 2),
        ("stencil.mac_i8.cycles", "16,17", 2),
        ("unit.DMA.startup_cycles", "0,100", 2),
        ("pass.autotile.inflight", "1,2", 2),
    ],
)
def test_points_that_differ_in_what_no_pass_reads_compile_to_the_same(
    path: str, values: str, count: int
) -> None:
    assert len(keys({path: values})) == count


def test_no_pass_reads_what_is_left_out_of_the_key() -> None:
    unread = ("_pj_", "pj_per", "clock_hz", "latency_cycles")
    for path in sorted((ROOT / "stripe").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for word in unread:
            if (path.name, word) != ("cost_problem.py", "latency_cycles"):  # of CPUs: the key has it there
                assert word not in text, f"{path} reads {word}: compile_key leaves it out"


def test_how_late_a_cache_of_a_cpu_answers_is_in_its_key() -> None:
    found = make_space(load_named("generic"), [{"memory.L3.latency_cycles": "50,100"}])
    assert len({compile_key(hw) for hw in targets_of(found).values() if isinstance(hw, HwConfig)}) == 2
