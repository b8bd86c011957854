"""Stencils that are instructions: the CPU must list the features that have them."""

from __future__ import annotations

import msgspec
import pytest

from hwconfigs.load import check, load_named
from hwconfigs.model import ConfigError, HwConfig

VNNI = load_named("x86_64_avx512_vnni")


def changed(**changes: object) -> HwConfig:
    stencils = tuple(
        msgspec.structs.replace(s, **changes) if s.name == "vpdpbusd" else s for s in VNNI.stencils
    )
    return msgspec.structs.replace(VNNI, stencils=stencils)


def test_a_feature_that_the_cpu_does_not_list() -> None:
    with pytest.raises(ConfigError) as raised:
        check(changed(features=("avx512f", "avxvnni")))
    assert (raised.value.code, raised.value.path) == ("H005", "$.stencils[2].features[1]")
    assert "the CPU has no feature 'avxvnni'" in raised.value.message


def test_an_instruction_without_features() -> None:
    with pytest.raises(ConfigError) as raised:
        check(changed(features=()))
    assert raised.value.path.endswith(".intrinsic")
    assert "not every CPU has" in raised.value.message


def test_what_llvm_makes_of_any_instructions_needs_none() -> None:
    check(changed(features=(), intrinsic="llvm.fma"))
