"""Configs: what a good file gives, and what a bad one is answered with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hwconfigs import load as loading
from hwconfigs.load import available, load, load_named
from hwconfigs.model import ConfigError

GOOD: dict[str, Any] = {
    "name": "chip",
    "description": "a chip",
    "executor": "interpreter",
    "memories": [
        {"name": "SPAD", "kind": "explicit", "bytes": 1024, "backing": "DRAM"},
        {"name": "DRAM", "kind": "explicit"},
    ],
    "units": [{"name": "CORE", "reaches": ["SPAD"]}],
    "pipeline": [{"pass": "autotile", "memory": "SPAD"}],
}


def write(folder: Path, content: Any, name: str = "chip.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def fault(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.file
    return caught.value


def test_shipped_configs_load_and_are_named_after_their_files() -> None:
    assert {"generic", "x86_64_avx2", "x86_64_avx512", "aarch64_neon", "paper_figure4"} <= set(available())
    for name in available():
        assert load_named(name).name == name


LINES = {"extends": "generic", "name": "lines"}
LINE_PATH = "$.memories[0].line_bytes"


@pytest.mark.parametrize("name", available())
def test_shipped_configs_are_what_any_file_has_to_be(name: str, tmp_path: Path) -> None:
    text = (loading.DATA / f"{name}.json").read_text()
    assert load(write(tmp_path, text)) == load_named(name), "elsewhere it is read strictly, and checked"


def test_extends_merges_objects_and_named_lists() -> None:
    avx512 = load_named("x86_64_avx512")
    generic = load_named("generic")
    assert [m.name for m in avx512.memories] == [m.name for m in generic.memories]
    l1 = avx512.memory("L1")
    assert l1 is not None
    assert (l1.bytes, l1.backing) == (32768, "L2"), "what the file leaves out is inherited"
    assert avx512.units[0].vector_bytes == 64
    assert avx512.units[0].reaches == generic.units[0].reaches


def test_extends_a_relative_path_and_replaces_the_pipeline(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "base.json")
    more = {"name": "X", "kind": "cached"}
    child = {"extends": "./base.json", "name": "child", "pipeline": [], "memories": [more]}
    config = load(write(tmp_path, child))
    assert config.name == "child"
    assert config.description == "a chip"
    assert config.pipeline == ()
    assert [m.name for m in config.memories] == ["SPAD", "DRAM", "X"]


def test_a_step_keeps_its_options(tmp_path: Path) -> None:
    (step,) = load(write(tmp_path, GOOD)).pipeline
    assert (step.name, step.options) == ("autotile", {"memory": "SPAD"})


def with_value(*path: str | int, value: Any) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(GOOD))
    at: Any = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("content", "code", "path", "said"),
    [
        (with_value("memorys", value=[]), "H003", "$", "did you mean 'memories'"),
        (with_value("memories", 0, "byts", value=3), "H003", "$.memories[0]", "did you mean 'bytes'"),
        (with_value("units", 0, "vector_byte", value=3), "H003", "$.units[0]", "did you mean 'vector_bytes'"),
        (
            with_value("memories", 0, "bytes", value=-4),
            "H003",
            "$.memories[0].bytes",
            "of 1 or more, found -4",
        ),
        (with_value("memories", 0, "bytes", value="64K"), "H003", "$.memories[0].bytes", "a unit: 65536"),
        (
            with_value("memories", 0, "bytes", value=1 << 61),
            "H003",
            "$.memories[0].bytes",
            "number up to 1152",
        ),
        (with_value("memories", 0, "banks", value=1 << 40), "H003", "$.memories[0].banks", "up to 65536"),
        (with_value("memories", 0, "count", value=1 << 40), "H003", "$.memories[0].count", "up to 65536"),
        (with_value("units", 0, "count", value=10**12), "H003", "$.units[0].count", "up to 65536"),
        (with_value("units", 0, "bytes_per_cycle", value=0), "H003", "$.units[0].bytes_per_cycle", "above 0"),
        (
            with_value("units", 0, "bytes_per_cycle", value=1e-300),
            "H005",
            "$.units[0].bytes_per_cycle",
            "1e-06",
        ),
        (
            with_value("memories", 1, "bytes_per_cycle", value=1e-9),
            "H005",
            "$.memories[1].bytes_per_cycle",
            "1e-06",
        ),
        (
            with_value("units", 0, "pj_per_operation", value=-1),
            "H003",
            "$.units[0].pj_per_operation",
            "of 0 or more",
        ),
        (with_value("memories", 0, "bytes", value="x"), "H003", "$.memories[0].bytes", 'found "x"'),
        (with_value("memories", 0, "bytes", value=1.5), "H003", "$.memories[0].bytes", "found 1.5"),
        (with_value("memories", 0, "kind", value="cashed"), "H003", "$.memories[0].kind", "mean 'cached'"),
        (with_value("executor", value="gpu"), "H003", "$.executor", "one of cpu, simulator, interpreter"),
        (with_value("units", 0, "loads_per_cycle", value=0), "H003", "$.units[0].loads_per_cycle", "found 0"),
        (with_value("memories", 1, "name", value="SPAD"), "H005", "$.memories[1].name", "given twice"),
        (with_value("memories", 0, "backing", value="DRM"), "H005", "$.memories[0].backing", "mean 'DRAM'"),
        (with_value("memories", 1, "backing", value="SPAD"), "H005", "$.memories[1].backing", "SPAD -> DRAM"),
        (
            with_value("memories", 0, "bytes", value=1000),
            "H005",
            "$.memories[0].bytes",
            "lines of 64: 40 left over",
        ),
        (with_value("units", 0, "types", value=["f33"]), "H005", "$.units[0].types[0]", "mean 'f32'"),
        (with_value("units", 0, "reaches", value=["SPD"]), "H005", "$.units[0].reaches[0]", "mean 'SPAD'"),
        (with_value("executor", value="cpu"), "H005", "$", "missing: cpu"),
        (
            {**LINES, "memories": [{"name": "L1", "bytes": 98304, "line_bytes": 96}]},
            "H005",
            LINE_PATH,
            "two of bytes, 8 or",
        ),
        ({**LINES, "memories": [{"name": "L1", "line_bytes": 4}]}, "H005", LINE_PATH, "more, found 4"),
        (with_value("pipeline", value=[{"memory": "L1"}]), "H003", "$.pipeline[0]", "name of a pass"),
        (with_value("pipeline", value=["fuse"]), "H003", "$.pipeline[0]", "expected object"),
        ({}, "H003", "$", "note: also missing: description, executor"),
        (with_value("pipeline", 0, "x", value={}), "H003", "$.pipeline[0].x", "found an object"),
        (with_value("pipeline", 0, "x", value={"i": [4]}), "H003", "$.pipeline[0].x", "found an object"),
        ({k: v for k, v in GOOD.items() if k != "executor"}, "H003", "$", "'executor' is missing"),
        ([1], "H001", "$", "expected an object, found a list"),
    ],
)
def test_a_bad_value_is_answered_with_its_path(
    tmp_path: Path, content: Any, code: str, path: str, said: str
) -> None:
    error = fault(write(tmp_path, content))
    assert (error.code, error.path) == (code, path)
    assert said in str(error)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n "name": "a",\n "x" 1}', "line 3, column 6"),
        ("", "the file is empty"),
        (" \n", '{"name": "chip", "description": "what it is", "executor": "interpreter"}'),
        ("\0", "line 1, column 1"),
        ('{"name":\n', "line 2, column 1"),
        ('{"name"\r\n\u2028', "line 2, column 1"),
        ('{"name": "a", "name": "b"}', "'name' appears twice"),
        ('{"name": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "nested too deeply"),
        ('{"name": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_text_that_is_not_json(tmp_path: Path, text: str, said: str) -> None:
    error = fault(write(tmp_path, text))
    assert error.code == "H002"
    assert said in str(error)
    assert str(error).replace("\n", "").isprintable()


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    assert "no such file" in str(fault(tmp_path / "none.json"))
    assert "directory" in str(fault(tmp_path))
    assert "no such file" in str(fault(Path("a\0b")))
    assert fault(tmp_path / ("x" * 5000)).code == "H001"
    binary = tmp_path / "binary.json"
    binary.write_bytes(b'{"name": "\xff"}')
    assert "not UTF-8 text (byte 10)" in str(fault(binary))
    (tmp_path / "big.json").write_text(" " * (loading.MAX_FILE_BYTES + 1))
    assert "can't be a hardware config" in str(fault(tmp_path / "big.json"))


def test_a_config_that_extends_itself_shows_the_chain(tmp_path: Path) -> None:
    write(tmp_path, {"name": "a", "extends": "./b.json"}, "a.json")
    write(tmp_path, {"name": "b", "extends": "a.json"}, "b.json")
    error = fault(tmp_path / "a.json")
    assert error.code == "H004"
    assert "a.json -> " in str(error) and "b.json -> " in str(error)


def test_extending_an_unknown_name_suggests_the_nearest(tmp_path: Path) -> None:
    error = fault(write(tmp_path, {"name": "a", "extends": "genric"}))
    assert "did you mean 'generic'" in str(error)
    with pytest.raises(ConfigError, match="did you mean 'x86_64_avx512'"):
        load_named("x86_avx512")


def test_a_mistake_in_the_extended_file_names_that_file(tmp_path: Path) -> None:
    write(tmp_path, with_value("nam", value=1), "base.json")
    error = fault(write(tmp_path, {"name": "a", "extends": "base.json"}))
    assert error.file.endswith("base.json")


def test_a_misspelt_part_of_an_extended_file_is_found_where_it_is_written(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "base.json")
    part = {"name": "SPDA", "bytes": 512}
    child = {"extends": "./base.json", "name": "child", "memories": [{"name": "DRAM"}, part]}
    error = fault(write(tmp_path, child))
    assert error.path == "$.memories[1]"
    assert "did you mean 'SPAD'" in str(error)


def test_paths_count_as_the_file_does_not_as_the_merged_list(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "base.json")
    child = {"extends": "./base.json", "name": "child", "memories": [{"name": "DRAM", "backing": "DSK"}]}
    assert fault(write(tmp_path, child)).path == "$.memories[0].backing"


def test_a_name_given_twice_in_an_extending_file(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "base.json")
    child = {"extends": "./base.json", "name": "child", "memories": [{"name": "DRAM"}, {"name": "DRAM"}]}
    error = fault(write(tmp_path, child))
    assert error.path == "$.memories[1].name"
    assert "given twice" in str(error)


@pytest.mark.parametrize("size", [3, 24, 16384, 1 << 60])
def test_native_code_takes_vectors_of_a_power_of_two_of_bytes(tmp_path: Path, size: int) -> None:
    unit = {"name": "CORE", "vector_bytes": size}
    error = fault(write(tmp_path, {"extends": "generic", "name": "odd", "units": [unit]}))
    assert error.path == "$.units[0].vector_bytes"
    assert f"found {size}" in str(error)


def test_an_option_may_be_sizes_by_name(tmp_path: Path) -> None:
    (step,) = load(write(tmp_path, with_value("pipeline", 0, "tile", value={"i": 4, "j": 8}))).pipeline
    assert step.options["tile"] == {"i": 4, "j": 8}


def test_no_key_of_the_model_stays_unreachable_in_a_file(tmp_path: Path) -> None:
    full = with_value("memories", 0, "ways", value=4)
    full["memories"][0] |= {"line_bytes": 32, "bytes_per_cycle": 4, "latency_cycles": 0.5}
    full["cpu"] = {"triple": "t", "cpu": "c", "features": ["f"]}
    full["$schema"] = "./schema.json"
    config = load(write(tmp_path, full))
    assert config.memories[0].bytes_per_cycle == 4
    assert config.cpu is not None and config.cpu.features == ("f",)


@pytest.mark.parametrize(
    ("part", "number", "change", "path"),
    [
        ("memories", 1, {"bytes": 10**30}, "$.memories[1].bytes"),
        ("memories", 1, {"bytes_per_cycle": 0}, "$.memories[1].bytes_per_cycle"),
        ("stencils", 0, {"indices": {"i": 0, "j": 16, "p": 16}}, "$.stencils[0].indices.i"),
        ("units", 0, {"reaches": ("SPAD", "ACK")}, "$.units[0].reaches[1]"),
    ],
)
def test_a_value_made_in_python_is_checked_as_a_file_is(
    part: str, number: int, change: dict[str, Any], path: str
) -> None:
    value = msgspec.to_builtins(load_named("systolic_16"))
    assert loading.from_value(value, "chip") == load_named("systolic_16")
    parts = list(value[part])
    parts[number] = parts[number] | change
    with pytest.raises(ConfigError) as caught:
        loading.from_value(value | {part: tuple(parts)}, "chip")
    assert (caught.value.file, caught.value.path) == ("chip", path)
