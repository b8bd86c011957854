"""Where a program can't be mapped: the constraint, the level, what is needed and what there is, and the
nearest change, which is then made: with it the program compiles, and computes what it should."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import pytest

import stripec
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory, Unit
from stripe.analysis.liveness import enough
from stripe.diag import CompileError

PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
NORM = """function (X[N, C]) -> (Y) {
    S[n, 0 : N, 1] = +(X[n, c]); D = X - S / C; V[n, 0 : N, 1] = +(D[n, c] * D[n, c]);
    Y = D / sqrt(V / C + 1e-5); }"""
GATHER = "function (D, I) -> (R) { R = gather(D, I, 1); }"


def with_bytes(hw: HwConfig, sizes: dict[str, int]) -> HwConfig:
    return msgspec.structs.replace(
        hw,
        memories=tuple(msgspec.structs.replace(m, bytes=sizes.get(m.name, m.bytes)) for m in hw.memories),
    )


def with_unit(hw: HwConfig, name: str, **fields: Any) -> HwConfig:
    units = tuple(msgspec.structs.replace(u, **fields) if u.name == name else u for u in hw.units)
    return msgspec.structs.replace(hw, units=units)


def vectors_alone() -> HwConfig:
    """vector_dsp without the unit that does anything, anywhere."""
    hw = load_named("vector_dsp")
    return msgspec.structs.replace(hw, units=tuple(u for u in hw.units if u.name != "SCALAR"))


def advised(error: str) -> dict[str, int]:
    """The sizes of memories that an error says would be enough."""
    (text, *_) = re.findall(r"with (.*?) (?:it fits|all \d+ of these fit)", error)
    return {name: int(size) for size, name in re.findall(r"(\d+) bytes of (\w+)", text)}


CASES: dict[str, tuple[str, dict[str, str], str, dict[str, int], str, tuple[str, ...]]] = {
    "a tile": (
        PRODUCT, {"A": "f32[64,64]", "B": "f32[64,64]"}, "vector_dsp", {"LOCAL": 64}, "P110",
        ("no tile of 'main/C' fits: the smallest needs", "bytes of LOCAL", "too many"),
    ),
    "tiles on many cores": (
        PRODUCT, {"A": "f32[64,64]", "B": "f32[64,64]"}, "many_core", {"SRAM": 128}, "P110",
        ("bytes of SRAM",),
    ),
    "what an array takes": (
        PRODUCT, {"A": "i8[64,64]", "B": "i8[64,64]"}, "systolic_16", {"SPAD": 512, "ACC": 256}, "P110",
        ("bytes of SPAD, and", "bytes of ACC", "what a stencil takes in one use is never split"),
    ),
    "one use of an array": (
        PRODUCT, {"A": "i8[16,16]", "B": "i8[16,16]"}, "systolic_16", {"ACC": 512}, "P110",
        ("'main/C' does not fit: one use of 'mac_i8' needs 1024 bytes of ACC", "512: 512 too many"),
    ),
    "operands of a special": (
        GATHER, {"D": "f32[3,5]", "I": "i32[4]"}, "many_core", {"SRAM": 64}, "P156",
        ("whole operands", "more than the 64 of SRAM; with 192 bytes of SRAM it fits"),
    ),
    "what is alive together": (
        GATHER, {"D": "f32[3,5]", "I": "i32[4]"}, "many_core", {"SRAM": 128}, "P160",
        ("needs 192 bytes of SRAM at once; 128 are available: 64 too many",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_advised_capacity_is_enough(name: str) -> None:
    text, shapes, target, sizes, code, said = CASES[name]
    hw = with_bytes(load_named(target), sizes)
    with pytest.raises(CompileError) as error:
        stripec.compile(text, shapes, hw)
    message = str(error.value)
    for words in (code, *said):
        assert words in message
    wanted = advised(message)
    assert wanted.keys() == sizes.keys()
    enlarged = with_bytes(hw, wanted)
    stripec.compile(text, shapes, enlarged)
    for memory, size in wanted.items():  # and it is the least that divides into banks
        found = hw.memory(memory)
        assert found is not None
        less = size - found.banks * found.align_bytes
        with pytest.raises(CompileError):
            stripec.compile(text, shapes, with_bytes(enlarged, {memory: less}))


def test_with_room_for_several_blocks_they_may_be_put_together_and_take_more() -> None:
    """All blocks that do not fit are named. With more room other passes choose otherwise, and the next
    message says what that takes; it ends soon."""
    hw, shapes, said = with_bytes(load_named("vector_dsp"), {"LOCAL": 64}), {"X": "f32[64,100]"}, []
    for _ in range(3):
        try:
            stripec.compile(NORM, shapes, hw)
            break
        except CompileError as error:
            said.append(str(error))
            hw = with_bytes(hw, advised(said[-1]))
    else:
        pytest.fail("\n".join(said))
    assert "all 3 of these fit" in said[0]
    assert [text.count("error[P110]") for text in said] == [3, 0]


def test_a_smaller_use_of_an_array_is_the_other_advice() -> None:
    """A choice for 'stencil' makes uses smaller, as the note says."""
    shapes = {"A": "i8[16,16]", "B": "i8[16,16]"}
    found = stripec.mapping(PRODUCT, shapes, "systolic_16")
    hw = with_bytes(load_named("systolic_16"), {"ACC": 512})
    steps = []
    for step in found.steps:
        options = dict(step.options)
        if step.name == "stencil":
            record = options["choices"]["main/C"]
            options["choices"] = {"main/C": record | {"sizes": {"m": 4, "n": 16, "k": 16}}}
        else:
            options.pop("choices", None)
        steps.append(msgspec.structs.replace(step, options=options))
    kernel = stripec.compile(PRODUCT, shapes, msgspec.structs.replace(hw, pipeline=tuple(steps)))
    a = np.random.default_rng(0).integers(-9, 9, (16, 16), np.int8)
    np.testing.assert_array_equal(kernel(a, a), a.astype(np.int32) @ a.astype(np.int32))


def test_reductions_that_are_not_split_are_named() -> None:
    hw = with_bytes(load_named("vector_dsp"), {"LOCAL": 1024})
    steps = tuple(
        msgspec.structs.replace(s, options=s.options | {"reductions": False}) if s.name == "autotile" else s
        for s in hw.pipeline
    )
    hw = msgspec.structs.replace(hw, pipeline=steps)
    shapes = {"A": "f32[64,999]", "B": "f32[999,64]"}
    with pytest.raises(CompileError) as error:
        stripec.compile(PRODUCT, shapes, hw)
    assert "reductions (k of 999 points) are not split: the option 'reductions' says so" in str(error.value)
    stripec.compile(PRODUCT, shapes, with_bytes(hw, advised(str(error.value))))
    split = tuple(
        msgspec.structs.replace(s, options=s.options | {"reductions": True}) if s.name == "autotile" else s
        for s in steps
    )
    stripec.compile(PRODUCT, shapes, msgspec.structs.replace(hw, pipeline=split))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("function (A[N]) -> (B) { B = exp(A); }", "f32"),
        ("function (A[N]) -> (B) { B = sqrt(A) + A; }", "f16"),
        ("function (A[N]) -> (B) { B[] = >(A[n]); }", "f32"),
    ],
)
def test_with_what_the_nearest_unit_lacks_it_can(text: str, kind: str) -> None:
    hw = with_unit(vectors_alone(), "VEC", operations=("add", "mul"), types=("i32",))
    shapes = {"A": f"{kind}[64]"}
    with pytest.raises(CompileError) as error:
        stripec.compile(text, shapes, hw)
    assert "P150" in str(error.value)
    (advice,) = re.findall(r"help: VEC lacks least: with (.*) it can", str(error.value))
    fields: dict[str, Any] = {"operations": ("add", "mul"), "types": ("i32",)}
    for names, key in re.findall(r"((?:'\w+'(?:, )?)+) in '(\w+)'", advice):
        fields[key] += tuple(re.findall(r"'(\w+)'", names))
    stripec.compile(text, shapes, with_unit(hw, "VEC", **fields))


def test_a_transfer_unit_that_reaches_both_is_advised() -> None:
    short = with_unit(vectors_alone(), "DMA", reaches=("LOCAL",))
    shapes = {"A": "f32[64,64]", "B": "f32[64,64]"}
    with pytest.raises(CompileError) as error:
        stripec.compile(PRODUCT, shapes, short)
    found = re.search(r"with (\w+) in 'reaches' of DMA it can", str(error.value))
    assert found is not None, str(error.value)
    stripec.compile(PRODUCT, shapes, with_unit(short, "DMA", reaches=("LOCAL", found[1])))


def test_an_operand_of_an_array_that_nothing_brings() -> None:
    hw, shapes = (
        with_unit(load_named("tpu_like"), "WEIGHTS", reaches=("DRAM",)),
        {"A": "i8[64,64]", "B": "i8[64,64]"},
    )
    with pytest.raises(CompileError, match="'main/C/C' works on 'B' in WFIFO; it lies in DRAM") as error:
        stripec.compile(PRODUCT, shapes, hw)
    found = re.search(r"with (\w+) in 'reaches' of (\w+) it can", str(error.value))
    assert found is not None and found[2] == "WEIGHTS", str(error.value)
    stripec.compile(PRODUCT, shapes, with_unit(hw, found[2], reaches=("DRAM", found[1])))


def test_a_target_without_units_gets_one_and_then_another() -> None:
    bare = msgspec.structs.replace(load_named("systolic_16"), units=(), stencils=())
    shapes = {"A": "i8[64,64]", "B": "i8[64,64]"}
    with pytest.raises(CompileError, match="no unit of 'systolic_16' can execute") as error:
        stripec.compile(PRODUCT, shapes, bare)
    (text,) = re.findall(r"help: with (\{.*\}) in 'units' it has one", str(error.value))
    core = msgspec.json.decode(text, type=Unit)
    with pytest.raises(CompileError, match=r"P153(.|\n)*kind 'transfer'") as error:
        stripec.compile(PRODUCT, shapes, msgspec.structs.replace(bare, units=(core,)))
    (one, other) = re.findall(
        r"add a unit of kind 'transfer' that reaches (\w+) and (\w+)", str(error.value)
    )[0]
    both = (core, Unit("COPY", "transfer", reaches=(one, other)))
    stripec.compile(PRODUCT, shapes, msgspec.structs.replace(bare, units=both))


def test_a_target_without_units_is_not_simulated() -> None:
    bare = msgspec.structs.replace(load_named("systolic_16"), units=(), stencils=(), pipeline=())
    with pytest.raises(CompileError, match=r"U001(.|\n)*in 'units' it has one"):
        stripec.simulate(PRODUCT, shapes={"A": "i8[64,64]", "B": "i8[64,64]"}, target=bare)


def test_a_unit_that_computes_is_advised_before_an_array() -> None:
    hw = with_unit(load_named("systolic_16"), "VPU", types=("i8",))
    with pytest.raises(CompileError, match="VPU lacks least: with 'i32' in 'types' it can"):
        stripec.compile("function (A, B) -> (C) { C = A + B; }", {"A": "i32[64]", "B": "i32[64]"}, hw)


def test_a_memory_is_enlarged_by_whole_banks() -> None:
    memory = Memory("M", "explicit", bytes=64, banks=4, align_bytes=16)
    assert [enough(memory, needed) for needed in (1, 64, 65)] == [64, 64, 128]


def test_a_stencil_that_exceeds_the_registers_says_how_many_it_takes() -> None:
    hw = load_named("x86_64_avx512_vnni")
    stencil = next(s for s in hw.stencils if s.registers)
    starved = with_unit(hw, stencil.unit, registers=1)
    steps = tuple(msgspec.structs.replace(s, name="stencil", options={}) for s in hw.pipeline[:1])
    starved = msgspec.structs.replace(starved, pipeline=steps, stencils=(stencil,))
    with pytest.raises(CompileError, match=r"P121(.|\n)*too few(.|\n)*registers") as error:
        stripec.compile(PRODUCT, {"A": "u8[64,64]", "B": "i8[64,64]"}, starved)
    (enough_,) = re.findall(r"give \w+ (\d+) registers", str(error.value))
    fed = with_unit(starved, stencil.unit, registers=int(enough_))
    stripec.compile(PRODUCT, {"A": "u8[64,64]", "B": "i8[64,64]"}, fed)
