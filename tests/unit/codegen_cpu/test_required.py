"""What code asks the CPU that runs it for, before anything is done that the CPU may lack."""

from __future__ import annotations

import ctypes

import pytest

from codegen_cpu.host import host_features
from codegen_cpu.jit import Loaded
from codegen_cpu.ll import Module as Text
from codegen_cpu.llvm import architecture
from codegen_cpu.required import FEATURES, LACKING, asked, asks
from codegen_cpu.target import Target, process_triple
from tests.support.native import host

pytestmark = pytest.mark.skipif(architecture(process_triple()) != "x86_64", reason="it asks x86 CPUs")


def answer(*features: str) -> int:
    """What the function says here, twice."""
    target = Target.of(host())
    text = Text(target.triple, target.layout())
    name = asks(text, features)
    shown = text.text().replace(f"define internal i32 @{name}", f"define i32 @{name}")
    loaded = Loaded(target, target.object_code(shown), [name])
    function = ctypes.CFUNCTYPE(ctypes.c_int)(loaded.address(name))
    first, second = function(), function()
    assert first == second
    return int(first)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_cpu_is_asked_for_each_feature(feature: str) -> None:
    """LLVM asks the same CPU in its own way."""
    assert answer(feature) == (1 if feature in host_features() else LACKING)


def test_all_have_to_be_there() -> None:
    here = sorted(FEATURES.keys() & host_features())
    lacks = sorted(FEATURES.keys() - host_features())
    assert answer(*here) == 1
    for feature in lacks[:3]:
        assert answer(*here, feature) == LACKING


def test_there_may_be_nothing_to_ask() -> None:
    target = Target.of(host())
    assert asked(target.triple, ["mmx", "neon"]) == []
    assert asked("aarch64-unknown-linux-gnu", ["avx2"]) == []
