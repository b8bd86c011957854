"""Paths to what may vary in a target."""

from __future__ import annotations

import copy

import msgspec
import pytest

from hwconfigs.load import available, load_named
from stripe.diag import CompileError
from stripec.exploring.fields import check_shape, find_field, json_path, put, target_json

TARGET = target_json(load_named("systolic_16"))


@pytest.mark.parametrize(
    ("path", "places"),
    [
        ("memory.SPAD.bytes", ["$.memories[1].bytes"]),
        ("memories.SPAD.bytes", ["$.memories[1].bytes"]),
        ("memory.DRAM.latency_cycles", ["$.memories[2].latency_cycles"]),
        ("unit.DMA.bytes_per_cycle", ["$.units[2].bytes_per_cycle"]),
        ("unit.MAC.count", ["$.units[0].count"]),
        ("stencil.mac_bf16.cycles", ["$.stencils[1].cycles"]),
        ("stencil.mac_i8.indices.i", ["$.stencils[0].indices.i"]),
        ("unit.MAC.stencil.mac_i8.indices.i", ["$.stencils[0].indices.i"]),
        ("stencil.mac_i8.memory.acc", ["$.stencils[0].memory.acc"]),
        ("pass.autotile.inflight", ["$.pipeline[7].inflight"]),
        ("pass.canonicalize.tag", [f"$.pipeline[{n}].tag" for n in (0, 4, 9)]),
        ("clock_hz", ["$.clock_hz"]),
        ("static_pj_per_cycle", ["$.static_pj_per_cycle"]),
    ],
)
def test_where_a_path_leads(path: str, places: list[str]) -> None:
    assert [json_path(place) for place in find_field(path, TARGET).places] == places


def test_a_shape_sets_the_last_sizes_of_every_stencil_of_a_unit() -> None:
    field = find_field("unit.MAC.shape", TARGET)
    found = {json_path(place): size for place, size in field.set_by("8x32").items()}
    assert found == {
        f"$.stencils[{n}].indices.{name}": size for n in range(3) for name, size in (("j", 8), ("p", 32))
    }
    assert len(field.set_by("4x8x32")) == 9
    with pytest.raises(CompileError, match=r"1x1x1x1 has 4 sizes, more than the 3 of .*: i, j, p"):
        check_shape(field, "1x1x1x1")


def test_a_shape_leaves_sizes_alone_that_are_no_numbers() -> None:
    target = copy.deepcopy(TARGET)
    for stencil in target["stencils"]:
        stencil["indices"]["i"] = "any"
    field = find_field("unit.MAC.shape", target)
    assert {place[-1] for place in field.set_by("8x8")} == {"j", "p"}


def test_sizes_of_bytes_and_texts_are_known_by_their_field() -> None:
    assert find_field("memory.SPAD.bytes", TARGET).binary
    assert find_field("unit.DMA.bytes_per_cycle", TARGET).binary
    assert not find_field("memory.SPAD.read_pj_per_byte", TARGET).binary
    assert not find_field("clock_hz", TARGET).binary
    assert find_field("stencil.mac_i8.cycles", TARGET).kind == "text"
    assert find_field("memory.SPAD.backing", TARGET).kind == "text"
    assert find_field("stencil.mac_i8.indices.i", TARGET).kind == "value"


def test_names_may_hold_dots_and_parts_of_indexes_may_vary() -> None:
    target = copy.deepcopy(TARGET)
    target["memories"][1]["name"] = "SPAD.0"
    target["stencils"][0]["indices"]["i"] = {"most": 64}
    assert find_field("memory.SPAD.0.bytes", target).places == (("memories", 1, "bytes"),)
    found = find_field("stencil.mac_i8.indices.i.multiple", target)
    put(target, found.places[0], 4)
    assert target["stencils"][0]["indices"]["i"] == {"most": 64, "multiple": 4}


@pytest.mark.parametrize(
    ("path", "said", "there_is"),
    [
        ("memry.SPAD.bytes", "a path can't begin with 'memry'", "memory, unit, stencil, pass, clock_hz"),
        ("memory.SPAT.bytes", "there is no memory 'SPAT'", "ACC, SPAD, DRAM"),
        ("memory.SPAD.byts", "there is no field 'byts'", "kind, bytes, line_bytes"),
        ("memory.SPAD", "there is no field ''", "kind, bytes, line_bytes"),
        ("memory.SPAD.name", "there is no field 'name'", "kind, bytes, line_bytes"),
        ("memory", "there is no memory ''", "ACC, SPAD, DRAM"),
        ("memory.SPAD.bytes.more", "'$.memories[1].bytes' is no object", ""),
        ("unit.MAX.count", "there is no unit 'MAX'", "MAC, VPU, DMA"),
        ("unit.MAC.size", "there is no field 'size'", "shape, stencil.NAME"),
        (
            "unit.MAC.stencil.mac_f64.cycles",
            "there is no stencil of MAC 'mac_f64'",
            "mac_i8, mac_bf16, mac_f32",
        ),
        ("unit.VPU.shape", "the unit 'VPU' has no stencils", ""),
        ("unit.VPU.stencil.s.cycles", "there is no stencil of VPU 's'", "there is none"),
        ("stencil.mac_i8.indices.m", "'$.stencils[0].indices' has no 'm'", "i, j, p"),
        ("pass.tile.inflight", "the pipeline has no pass 'tile'", "autotile, canonicalize"),
        ("pass.autotile", "which option?", "stripec passes autotile"),
        ("name", "a path can't begin with 'name'", ""),
        ("", "a path can't begin with ''", "memory"),
        ("....", "a path can't begin with ''", "memory"),
    ],
)
def test_an_unknown_path_is_answered_with_what_there_is(path: str, said: str, there_is: str) -> None:
    with pytest.raises(CompileError) as caught:
        find_field(path, TARGET)
    assert caught.value.diagnostics[0].code == "D100"
    assert said in str(caught.value)
    assert there_is in str(caught.value)


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(CompileError, match="did you mean 'SPAD'"):
        find_field("memory.SPAT.bytes", TARGET)


@pytest.mark.parametrize("name", available())
def test_every_field_of_every_shipped_target_has_a_path(name: str) -> None:
    hw = load_named(name)
    target = target_json(hw)
    for word, parts in (("memory", hw.memories), ("unit", hw.units), ("stencil", hw.stencils)):
        for part in parts:
            for field in msgspec.structs.fields(type(part)):
                if field.name != "name":
                    assert find_field(f"{word}.{part.name}.{field.name}", target).places
