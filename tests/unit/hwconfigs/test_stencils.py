"""Stencils in a config: what is wrong is told with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hwconfigs.load import load
from hwconfigs.model import ConfigError

INDICES = {"i": 4, "j": {"multiple": "lanes"}, "p": "any"}
OPERANDS = {"x": ["i", "p"], "y": ["p", "j"], "acc": ["i", "j"]}
STENCIL: dict[str, Any] = {
    "name": "s", "unit": "CORE", "body": "acc += x * y", "indices": INDICES, "operands": OPERANDS,
    "types": {"x": "f32", "y": "f32", "acc": "f32"},
}  # fmt: skip


def config(folder: Path, **changes: Any) -> Path:
    path = folder / "chip.json"
    own = {"extends": "generic", "name": "chip", "description": "", "stencils": [{**STENCIL, **changes}]}
    path.write_text(json.dumps(own), encoding="utf-8")
    return path


def test_a_stencil_is_read(tmp_path: Path) -> None:
    found = load(config(tmp_path, loads={"x": "i * p"}, stride={"y": {"j": 1}})).stencil("s")
    assert found is not None
    assert found.operands["y"] == ("p", "j") and found.stride == {"y": {"j": 1}}


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"stride": {"x": {"p": "a"}}}, ".stride.x.p", "expected a whole number, found \"a\""),
        ({"stride": {"q": {"p": 1}}}, ".stride.q", "no operand is named 'q'"),
        ({"stride": {"x": {"q": 1}}}, ".stride.x", "no index is named 'q'"),
        ({"types": {**STENCIL["types"], "x": "f33"}}, ".types.x", "expected one of bool, i8"),  
        ({"types": {"x": "f32", "acc": "f32"}}, ".types", "the element type of 'y' is missing"),
        ({"indices": {**INDICES, "i": 0}}, ".indices.i", "found 0"),
        ({"indices": {**INDICES, "i": "some"}}, ".indices.i", "found \"some\""),
        ({"indices": {**INDICES, "i": {"multiples": 3}}}, ".indices.i", "unknown key 'multiples'"),
        ({"indices": {**INDICES, "i": {"multiple": 3, "least": 9, "most": 5}}}, ".indices.i",
         "no multiple of 3 lies between 9 and 5"),
        ({"indices": {"a.b": -1}}, ".indices.a.b", "expected a whole number of 1 or more"),
        ({"operands": {**OPERANDS, "x": "ip"}}, ".operands.x", "expected a list"),
        ({"operands": {**OPERANDS, "x": ["i", "q"]}}, ".operands.x", "no index is named 'q'"),
        ({"operands": {"x": ["i"], "y": ["p"]}}, ".operands", "the operand 'acc' of the body is missing"),
        ({"operands": {**OPERANDS, "z": ["i"]}}, ".operands.z", "the body does not use 'z'"),
        ({"cycles": "i *"}, ".cycles", "'i *' is no expression"),
        ({"cycles": "1 / (lanes - lanes)"}, ".cycles", "divides by zero at lanes = "),
        ({"cycles": "0 - 100"}, ".cycles", "is -100; expected 0 or more"),
        ({"cycles": "1e400"}, ".cycles", "expected 0 or more"),
        ({"cycles": "open('x')"}, ".cycles", "can't stand in a size"),
        ({"registers": {"acc": "q"}}, ".registers.acc", "no index is named 'q'"),
        ({"loads": {"z": "i"}}, ".loads.z", "no operand is named 'z'"),
        ({"loads": {"x": "i **"}}, ".loads.x", "is no expression"),
        ({"body": "acc"}, ".body", "expected one assignment"),
        ({"inner": "s"}, ".inner", "stencils hold each other: s -> s"),
        ({"inner": "t"}, ".inner", "no stencil is named 't'"),
        ({"unit": "CPU"}, ".unit", "no unit is named 'CPU'"),
        ({"memory": {"x": "SPAD"}}, ".memory.x", "no memory is named 'SPAD'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, changes: dict[str, Any], path: str, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load(config(tmp_path, **changes))
    assert message in error.value.message
    assert error.value.path == f"$.stencils[0]{path}"
