"""The text of LLVM functions, executed."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from codegen_cpu.jit import Loaded
from codegen_cpu.ll import I8, I64, PTR, VOID, Module, Type, Value, constant, constants
from codegen_cpu.target import Target
from hwconfigs.load import load_named
from tests.support.native import host


@pytest.mark.parametrize("lanes", [1, 3, 8, 16, 31, 32, 48, 64, 65, 96, 131])
@pytest.mark.parametrize("mask_lanes", [0, 16, 64])
def test_an_opaque_mask_has_the_lanes_of_the_one_it_was_made_of(lanes: int, mask_lanes: int) -> None:
    target = Target.of(host())
    if mask_lanes and "avx512bw" not in target.features:
        pytest.skip("this CPU has no registers for masks")
    module, given, result = (
        Module(target.triple, target.layout(), mask_lanes=mask_lanes),
        Value(PTR, "%given"),
        Value(PTR, "%result"),
    )
    f = module.function("copied", VOID, [(given, ""), (result, "")])
    bytes_ = f.load(I8.times(lanes), given, 1)
    mask = f.opaque_mask(f.compare("icmp ne", bytes_, constants(I8, [0] * lanes)))
    f.store(f.convert("zext", mask, I8), result, 1)
    f.line("ret void")
    loaded = Loaded(target, target.object_code(module.text(), lambda part: None), ["copied"])
    want = np.random.default_rng(lanes).integers(0, 2, lanes).astype(np.uint8)
    found = np.full(lanes + 16, 7, np.uint8)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded.address("copied"))(
        want.ctypes.data, found.ctypes.data
    )
    assert found.tolist() == [*want, *[7] * 16]


@pytest.mark.parametrize("name", ["i1", "i8", "i16", "i32", "i64", "half", "float", "double"])
def test_fewer_lanes_of_a_splat_of_any_type(name: str) -> None:
    """Masks, short elements and parts of registers are filled anew: LLVM would end the process."""
    target, element = Target.of(load_named("x86_64_avx512")), Type(name)
    module, given, result = (
        Module(target.triple, target.layout(), mask_lanes=64),
        Value(PTR, "%given"),
        Value(PTR, "%result"),
    )
    f = module.function("splats", VOID, [(given, ""), (result, "")])
    for number, lanes in enumerate((2, 4, 8, 16, 32, 64)):
        value = f.load(element, f.offset(given, I64, constant(I64, number)), 1)
        for fewer in (lanes, lanes // 2, 1):
            f.store(f.splat(value, fewer), result, 1)
    f.line("ret void")
    assert target.object_code(module.text(), lambda part: None)
