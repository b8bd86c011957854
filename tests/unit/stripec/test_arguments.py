"""What callers hand to the API by mistake, on native code and in the interpreter alike."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import stripec
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig

DOUBLE = "function (A[N]) -> (B, C) { B = A * 2; C = A + 1; }"
A = np.arange(4, dtype="f4")
TARGETS = ["generic", "paper_figure4"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shapes", [None, {"A": A}])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.ma.masked_array(A, A > 2), "its mask would be lost"),
        ([[1.0], [1.0, 2.0]], "no array"),
        (object(), "no array of numbers"),
        (1 << 70, "no element type holds"),
    ],
)
def test_values_that_are_no_arrays(target: str, shapes: Any, value: Any, said: str) -> None:
    kernel = stripec.compile(DOUBLE, shapes=shapes, target=target)
    with pytest.raises(stripec.CompileError) as caught:
        kernel(value)
    assert said in str(caught.value) or "element type" in str(caught.value)
    with pytest.raises(stripec.CompileError):
        stripec.compile(DOUBLE, constants={"A": value}, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_out_of_the_wrong_number_or_with_shared_memory(target: str) -> None:
    kernel = stripec.compile(DOUBLE, target=target)
    room = np.zeros(6, "f4")
    for out in (room[:4], (room[:4],), (room[:4],) * 3, (room[:4], room[2:])):
        with pytest.raises(stripec.CompileError, match="out"):
            kernel(A, out=out)
    assert not room.any()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shapes", [None, {"A": A, "B": A}])
def test_a_kernel_can_be_copied_and_pickled(target: str, shapes: Any) -> None:
    text = "function (A[N], B[N]) -> (C) { C = A * B; }"
    kernel = stripec.compile(text, shapes=shapes, target=target, constants={"B": A})
    want = kernel(A)
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        np.testing.assert_array_equal(other(A), want)
        assert other.stripe == kernel.stripe


@pytest.mark.parametrize("source", [None, 3, b"function (A) -> (B) { B = A; }"])
def test_sources_of_another_type(source: Any) -> None:
    with pytest.raises(stripec.CompileError, match="the source is of type"):
        stripec.compile(source)


@pytest.mark.parametrize("target", [None, 3, b"host", ["host"]])
def test_targets_of_another_type(target: Any) -> None:
    with pytest.raises(stripec.CompileError, match="the target is of type"):
        stripec.compile(DOUBLE, target=target)


@pytest.mark.parametrize("name", ["shapes", "constants"])
@pytest.mark.parametrize("value", [["f32[4]"], "f32[4]", 3])
def test_shapes_and_constants_are_given_by_name(name: str, value: Any) -> None:
    options: Any = {name: value}
    with pytest.raises(stripec.CompileError, match=f"{name} is of type"):
        stripec.compile(DOUBLE, **options)


def changed(hw: HwConfig, **fields: Any) -> HwConfig:
    return msgspec.structs.replace(hw, **fields)


def test_a_config_made_in_python_is_checked_like_a_file() -> None:
    hw = load_named("generic")
    odd = changed(hw, units=(msgspec.structs.replace(hw.units[0], vector_bytes=24),))
    for target in (odd, changed(hw, units=("CORE",)), changed(hw, name=3), changed(hw, cpu=None)):
        with pytest.raises(stripec.CompileError) as caught:
            stripec.compile(DOUBLE, target=target)
        assert caught.value.diagnostics[0].code in ("H003", "H005")


def test_a_wrong_pipeline_names_the_file_that_it_stands_in(tmp_path: Path) -> None:
    path = tmp_path / "chip.json"
    path.write_text(json.dumps({"extends": "generic", "name": "chip", "pipeline": [{"pass": "fues"}]}))
    with pytest.raises(stripec.CompileError) as caught:
        stripec.compile(DOUBLE, target=path)
    assert f"in the pipeline of 'chip' ({path}), $.pipeline[0]" in str(caught.value)
