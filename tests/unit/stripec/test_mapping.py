"""`stripec map`, `--mapping` and `mapping=`: every choice in a file, and the same program from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stripec
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Source
from stripe.printer import to_text
from stripe.visit import walk
from stripec.cli import main
from stripec.driver import read_program
from stripec.mappings import Origin, ProgramMapping, parse_mapping, read_mapping
from stripec.tensors import as_type
from tests.support.golden import input_types
from tests.support.programs import corpus, make_program
from tests.support.random_nests import random_program
from tests.support.tile_corpus import CORPUS
from tests.support.tile_programs import tile_program

PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
SHAPES = {"A": "i8[100,70]", "B": "i8[70,300]"}
TARGET = "systolic_16"

ROOT = Path(__file__).parents[3]
SHIPPED = sorted(p.stem for p in (ROOT / "hwconfigs" / "data").glob("*.json") if p.stem != "paper_figure4")
EXAMPLES: dict[str, dict[str, tuple[int, ...]]] = {
    "conv": {"I": (14, 14, 32), "F": (3, 3, 32, 40)},
    "matmul": {"A": (60, 70), "B": (70, 90), "D": (90,)},
    "softmax": {"X": (30, 100)},
}

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def made() -> ProgramMapping:
    return stripec.mapping(PRODUCT, SHAPES, TARGET)


def step(data: dict[str, Any], name: str, number: int = 0) -> dict[str, Any]:
    """A step by its pass; `partition` of sums, which has nothing to cut in products, is not meant."""
    steps = [s for s in data["pipeline"] if s["pass"] == name and not s.get("sums")]
    found: dict[str, Any] = steps[number]
    return found


def edited(made: ProgramMapping, edit: Edit, file: Path) -> Path:
    data = json.loads(made.text())
    edit(data)
    file.write_text(json.dumps(data), encoding="utf-8")
    return file


# -- the same program ------------------------------------------------------------------------------


def test_the_file_gives_the_program_without_a_search(
    made: ProgramMapping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "m.json"
    file.write_text(made.text(), encoding="utf-8")
    wanted = stripec.compile(PRODUCT, SHAPES, TARGET).stripe

    def no_search(*_: object, **__: object) -> None:
        raise AssertionError("it searches")

    monkeypatch.setattr("stripe.passes.stencil_choice.Chooser.choose", no_search)
    monkeypatch.setattr("stripe.passes.autotile._Run._tile_explicit", no_search)
    assert stripec.compile(PRODUCT, SHAPES, TARGET, mapping=file).stripe == wanted


@pytest.mark.parametrize("target", ["systolic_16", "many_core", "x86_64_avx512"])
@pytest.mark.parametrize("case", [c for c in CORPUS if c.name in {
    "matmul", "conv2d", "softmax", "layer_norm", "attention", "mlp", "max_pool", "depthwise", "transpose",
}], ids=lambda case: case.name)  # fmt: skip
def test_programs_of_the_corpus_come_back(case: Any, target: str) -> None:
    """`mapping` compares the program of each step with the one of the search."""
    types = {name: str(kind) for name, kind in input_types({"shapes": case.shapes}).items()}
    found = stripec.mapping(case.text, types, target)
    again = parse_mapping(Source("m.json", found.text()))
    assert again.steps == found.steps
    assert again.text() == found.text()


@pytest.mark.parametrize("name", sorted(corpus()))
def test_stripe_texts_come_back(name: str) -> None:
    found = stripec.mapping(corpus()[name], None, "x86_64_avx2")
    assert parse_mapping(Source("m.json", found.text())).text() == found.text()


def test_two_runs_write_the_same_bytes(made: ProgramMapping) -> None:
    assert stripec.mapping(PRODUCT, SHAPES, TARGET).text() == made.text()


def test_kernels_that_are_alike_have_choices_of_their_own() -> None:
    """They are treated once, but an edit of one leaves the other."""
    text = """function (A[M, K], B[K, N], D[K, N]) -> (C, E) {
        C[m, n : M, N] = +(A[m, k] * B[k, n]);
        E[m, n : M, N] = +(A[m, k] * D[k, n]); }"""
    shapes = SHAPES | {"D": "i8[70,300]"}
    found = json.loads(stripec.mapping(text, shapes, TARGET).text())
    tiles = step(found, "autotile")["choices"]
    assert list(tiles) == ["main/C", "main/E"]
    assert tiles["main/C"] == tiles["main/E"]
    tiles["main/E"]["sizes"]["m"] = 2
    _search_behind(found, "autotile")
    mapping = parse_mapping(Source("m.json", json.dumps(found)))
    stage = _after(stripec.compile(text, shapes, TARGET, mapping=mapping), "autotile")
    c, e = stage.root.children
    assert (c.ranges.get("m", 1), e.ranges["m"]) == (1, 4)  # tiles of 7 and of 2 uses


def _after(kernel: stripec.Kernel, name: str) -> Any:
    return next(program for spec, program in kernel.stages if spec.startswith(name))


def roomier(hw: HwConfig) -> HwConfig:
    """A target with other rates of transfers and more room near the units: all is weighed anew."""
    units = (
        msgspec.structs.replace(u, bytes_per_cycle=0.25, startup_cycles=1e6) if u.kind == "transfer" else u
        for u in hw.units
    )
    memories = (msgspec.structs.replace(m, bytes=m.bytes and 16 * m.bytes) for m in hw.memories)
    return msgspec.structs.replace(hw, units=tuple(units), memories=tuple(memories))


@pytest.mark.parametrize("target", ["systolic_16", "vector_dsp", "many_core"])
def test_nothing_is_decided_again(target: str) -> None:
    """On a target where all would be chosen otherwise, a mapping gives the program that it is of."""
    text = "function (A[M, K], B[K, N]) -> (D) { C[m, n : M, N] = +(A[m, k] * B[k, n]); D = C * C; }"
    shapes = {"A": "i8[200,300]", "B": "i8[300,400]"}
    other, found = roomier(load_named(target)), stripec.mapping(text, shapes, target)
    wanted = before_addresses(stripec.compile(text, shapes, target))
    assert before_addresses(stripec.compile(text, shapes, other)) != wanted
    anywhere = replace(found, target=Origin())
    assert before_addresses(stripec.compile(text, shapes, other, mapping=anywhere)) == wanted


CPUS: dict[str, tuple[str, str, dict[str, str], set[str]]] = {
    "products": (
        "x86_64_avx512",
        "function (A[M, K], B[N, K]) -> (D) { C[m, n : M, N] = +(A[m, k] * B[n, k]); D = C * C; }",
        {"A": "f32[120,200]", "B": "f32[150,200]"}, {"transpose", "vectorize", "unroll"},
    ),
    "convolution": (
        "x86_64_avx512",
        "function (I[H, W, C], K[R, S, C, F]) -> (O) {"
        " O[y, x, f : H, W, F] = +(I[y + r - 1, x + s - 1, c] * K[r, s, c, f]); }",
        {"I": "f32[14,14,8]", "K": "f32[3,3,8,64]"}, {"vectorize", "unroll", "boundary"},
    ),
    "halves": ("x86_64_avx2", PRODUCT, {"A": "f16[60,70]", "B": "f16[70,90]"}, {"convert", "vectorize"}),
    "bytes": ("x86_64_avx512_vnni", PRODUCT, {"A": "i8[60,70]", "B": "i8[70,90]"}, {"stencil-pack"}),
    "a transpose": (
        "aarch64_neon", "function (A[M, N]) -> (B) { B[n, m : N, M] = =(A[m, n]); }", {"A": "f32[100,60]"},
        {"vectorize"},
    ),
    "pairs": ("generic", PRODUCT, {"A": "f64[60,70]", "B": "f64[70,90]"}, {"vectorize", "unroll"}),
}  # fmt: skip


def other_cores(hw: HwConfig) -> HwConfig:
    """Like `roomier`, for a CPU: vectors of another size, other rates, no masks."""
    memories = (
        msgspec.structs.replace(m, bytes_per_cycle=0.25 if m.name == "L2" else 500.0)
        for m in roomier(hw).memories
    )
    units = (
        msgspec.structs.replace(
            u, vector_bytes=64 if u.vector_bytes == 16 else 16, loads_per_cycle=8.0, capabilities=()
        )
        for u in hw.units
    )
    return msgspec.structs.replace(hw, units=tuple(units), memories=tuple(memories))


@pytest.mark.parametrize("case", CPUS)
def test_nothing_is_decided_again_for_a_cpu(case: str) -> None:
    target, text, shapes, chose = CPUS[case]
    hw = load_named(target)
    found = stripec.mapping(text, shapes, target, threads=4)
    said = {s.name for s in found.steps if s.options.get("choices")}
    assert chose <= said
    wanted = stripec.compile(text, shapes, target, threads=4).stages
    other = other_cores(hw)
    anew = stripec.compile(text, shapes, other, threads=4).stages
    assert to_text(anew[-1][1]) != to_text(wanted[-1][1])
    given = stripec.compile(text, shapes, other, threads=4, mapping=replace(found, target=Origin())).stages
    assert [to_text(program) for _, program in given] == [to_text(program) for _, program in wanted]


def before_addresses(kernel: stripec.Kernel) -> str:
    """The program in front of `place`, whose addresses depend on the sizes of memories."""
    *_, (_, program), _ = kernel.stages
    return to_text(program)


def test_the_unit_of_a_block_is_that_which_is_given(made: ProgramMapping, tmp_path: Path) -> None:
    unit: dict[str, Any] = {"main/C/C_copy": {"unit": "VPU"}}

    def edit(data: dict[str, Any]) -> None:
        assert step(data, "transfer")["choices"] == {"main/C/C_copy": {"unit": "DMA"}}
        step(data, "transfer")["choices"] = unit
        _search_behind(data, "transfer")

    kernel = stripec.compile(PRODUCT, SHAPES, TARGET, mapping=edited(made, edit, tmp_path / "m.json"))
    (copy,) = (b for _, b in walk(_after(kernel, "transfer").root) if b.name == "C_copy")
    assert copy.location is not None and copy.location.unit == "VPU"
    for record, said in (
        ({"main/C/C_copy": {"unit": "VPV"}}, ("no unit 'VPV'", "'VPU'", ".unit")),
        ({"main/C": {"unit": "VPU"}}, ("no statements of its own that need a unit", ".unit")),
        ({"main/C": {"specials": ["VPU"]}}, ("it has 0 specials that need a unit, not 1", ".specials")),
        ({"main/C": {"by": {"A_SPAD": "DMA"}}}, ("no copy 'A_SPAD' that several units could make", ".by")),
    ):
        unit = record
        _refused(edit, said, SHAPES, TARGET, tmp_path / "n.json")


@pytest.mark.slow
@pytest.mark.parametrize("target", SHIPPED)
@pytest.mark.parametrize("name", ["conv", "matmul", "softmax"])
def test_examples_come_back_on_all_targets(name: str, target: str) -> None:
    """`mapping` compares the program of each step with the one of the search."""
    hw = load_named(target)
    kind = next(iter(hw.stencils[0].types.values())) if hw.stencils and name != "softmax" else "f32"
    types = {n: f"{kind}{list(size)}" for n, size in EXAMPLES[name].items()}
    found = stripec.mapping(ROOT / "examples" / f"{name}.tile", types, target)
    assert parse_mapping(Source("m.json", found.text())).text() == found.text()


CHOSEN = """\
    {"pass": "stencil-pack", "choices": {}},
    {"pass": "convert", "choices": {
      "main/C": {"buffers": ["A", "B"]}
    }},
--
    {"pass": "transpose", "least_gain": 10, "lanes": "free", "choices": {
      "main/C_cast": {"copies": [{"reader": "C_cast", "view": "B_f32", "order": [1, 0]}]}
    }},
--
    {"pass": "vectorize", "choices": {
      "main/A_convert": {"index": "d1"},
      "main/C_cast/C": {"index": "n"},
      "main/C_cast/C_cast": {"index": "n"},
      "pack/B_f32_pack": {"index": "d0", "across": "d1"}
    }},
    {"pass": "unroll", "choices": {
      "main/C_cast/C": {"indexes": ["m", "n"]},
      "main/C_cast/C_cast": {"indexes": ["m", "n"]}
    }},
    {"pass": "boundary", "max_variants": 20, "min_gain": 2, "choices": {}},
    {"pass": "canonicalize"},
"""


def test_the_text_of_what_is_laid_out() -> None:
    text = "function (A[M, K], B[N, K]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[n, k]); }"
    shapes = {"A": "f16[40,64]", "B": "f16[48,64]"}
    found = stripec.mapping(text, shapes, "x86_64_avx2", threads=1, constants=("B",)).text()
    for part in CHOSEN.split("--\n"):
        assert part in found


# -- edits -----------------------------------------------------------------------------------------


def test_an_edited_size_gives_that_tile(made: ProgramMapping, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        step(data, "autotile")["choices"]["main/C"] = {"sizes": {"m": 2, "n": 5, "k": 5}, "order": ["m", "n"]}
        _search_behind(data, "autotile")

    kernel = stripec.compile(PRODUCT, SHAPES, TARGET, mapping=edited(made, edit, tmp_path / "m.json"))
    (tile,) = _after(kernel, "autotile").root.children
    assert tile.ranges == {"m": 4, "n": 4}  # 7 and 19 uses of 16 in pieces of 2 and 5
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (100, 70), np.int8), rng.integers(-9, 9, (70, 300), np.int8)
    np.testing.assert_array_equal(kernel(a, b), a.astype(np.int32) @ b.astype(np.int32))


def test_an_edited_order_gives_these_loops(made: ProgramMapping, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        step(data, "autotile")["choices"]["main/C"] |= {
            "sizes": {"m": 2, "n": 5, "k": 5},
            "order": ["n", "m"],
        }
        _search_behind(data, "autotile")

    kernel = stripec.compile(PRODUCT, SHAPES, TARGET, mapping=edited(made, edit, tmp_path / "m.json"))
    (tile,) = _after(kernel, "autotile").root.children
    assert list(tile.ranges) == ["n", "m"]


def test_an_order_with_a_level_keeps_copies(made: ProgramMapping, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        choice = {"sizes": {"m": 2, "n": 5, "k": 5}, "order": ["n", "|", "m"]}
        step(data, "autotile")["choices"]["main/C"] = choice
        _search_behind(data, "autotile")

    kernel = stripec.compile(PRODUCT, SHAPES, TARGET, mapping=edited(made, edit, tmp_path / "m.json"))
    (outer,) = _after(kernel, "transfer").root.children
    assert outer.ranges == {"n": 4}
    *loads, inner = outer.children
    assert {c.name for c in loads} == {"B_load"} and inner.ranges == {"m": 4}
    assert {c.name for c in inner.children if c.name.endswith("_load")} == {"A_load"}


def test_a_step_without_choices_searches(made: ProgramMapping, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        del step(data, "autotile")["choices"]

    file = edited(made, edit, tmp_path / "m.json")
    wanted = stripec.compile(PRODUCT, SHAPES, TARGET).stripe
    assert stripec.compile(PRODUCT, SHAPES, TARGET, mapping=file).stripe == wanted
    filled = stripec.mapping(PRODUCT, SHAPES, TARGET, given=file)
    assert filled.text() == made.text()


def test_other_blocks_may_be_searched_for(made: ProgramMapping, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        step(data, "autotile")["choices"] = {}
        step(data, "autotile")["others"] = "search"

    file = edited(made, edit, tmp_path / "m.json")
    assert stripec.mapping(PRODUCT, SHAPES, TARGET, given=file).text() == made.text()


def _sizes(**sizes: int) -> Edit:
    return lambda data: step(data, "autotile")["choices"]["main/C"]["sizes"].update(sizes)


def _search_behind(data: dict[str, Any], name: str) -> None:
    """Without the choices of the steps behind one: they were of other blocks."""
    for later in data["pipeline"][data["pipeline"].index(step(data, name)) + 1 :]:
        later.pop("choices", None)


def _banks(data: dict[str, Any], **banks: int | str) -> None:
    """Tiles that both change what they read, and these banks for their copies."""
    step(data, "autotile")["choices"]["main/C"] = {"sizes": {"m": 4, "n": 4, "k": 5}, "order": ["m", "n"]}
    _search_behind(data, "autotile")
    step(data, "partition")["choices"] = {"main/C": {"banks": banks}}


def _field(name: str, path: str, field: str, value: object) -> Edit:
    return lambda data: step(data, name)["choices"][path].__setitem__(field, value)


ILLEGAL: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "a tile that does not fit": (
        _sizes(m=4, n=19),
        ("P009", "it needs 155648 of 65536 bytes of ACC: 90112 too many", "with n: 8 it fits",
         '$.pipeline[7].choices["main/C"].sizes'),
    ),
    "a tile beyond the range": (
        _sizes(n=20), ("P009", "n has 19 points, the tile 20: 1 too many", '["main/C"].sizes.n')
    ),
    "an index that there is not": (_sizes(z=2), ("P009", "no index 'z' can be tiled", "known: k, m, n")),
    "an order of another index": (_field("autotile", "main/C", "order", ["z"]), ("P009", "no index 'z'")),
    "an index twice": (_field("autotile", "main/C", "order", ["m", "m"]), ("P009", "twice", ".order")),
    "a size of nothing": (_sizes(n=0), ("P008", ">= 1", '$.pipeline[7].choices["main/C"].sizes')),
    "a size that is no number": (
        _field("autotile", "main/C", "sizes", {"m": "7"}), ("P008", "expected 'int', got 'str'")
    ),
    "a field that there is not": (
        _field("autotile", "main/C", "size", {}), ("P008", "unknown field 'size'", "did you mean 'sizes'?")
    ),
    "a block that there is not": (
        lambda data: step(data, "autotile")["choices"].update({"main/D": {}}),
        ("P009", "there is no block 'main/D'", "did you mean 'main/C'?", '$.pipeline[7].choices["main/D"]'),
    ),
    "choices of a pass that makes none": (
        lambda data: step(data, "canonicalize").update(choices={}), ("P008", "$.pipeline[0].choices")
    ),
    "choices that are a list": (
        lambda data: step(data, "autotile").update(choices=[]),
        ("P008", "found a list", "$.pipeline[7].choices"),
    ),
    "others that are no word": (
        lambda data: step(data, "autotile").update(others="all"), ("P008", "'leave' or 'search'", ".others")
    ),
    "more points than a use has": (
        _field("stencil", "main/C", "sizes", {"n": 17}),
        ("P009", "a use takes 16 points along j, not 17: 1 too many", '[6].choices["main/C"].sizes'),
    ),
    "a stencil that there is not": (
        _field("stencil", "main/C", "stencil", "mac"), ("P009", "has no stencil 'mac'", ".stencil")
    ),
    "indexes that do not fit": (
        _field("stencil", "main/C", "indexes", {"i": "k", "j": "n", "p": "m"}),
        ("P009", "i=m j=n p=k, or i=n j=m p=k", ".indexes"),
    ),
}  # fmt: skip


MANY = "many_core"  # 16 cores, and a memory of banks
FLOATS = {"A": "f32[96,40]", "B": "f32[40,64]"}
UNITS: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "more parts than units": (
        _field("partition", "main/C", "sizes", {"m": 4, "n": 32}),
        ("P009", "48 parts for 16 CORE: 32 too many", '$.pipeline[7].choices["main/C"].sizes'),
    ),
    "a piece beyond the range": (
        _field("partition", "main/C", "sizes", {"m": 100}),
        ("P009", "m has 96 points", "4 too many", ".sizes.m"),
    ),
    "a cut of sums": (
        _field("partition", "main/C", "sizes", {"k": 10}),
        ("P009", "points along k add to one element", ".sizes.k"),
    ),
    "an index that there is not": (
        _field("partition", "main/C", "sizes", {"z": 1}), ("P009", "it has no index 'z'", ".sizes")
    ),
    "a piece of nothing": (_field("partition", "main/C", "sizes", {"m": 0}), ("P008", ">= 1")),
}  # fmt: skip
BANKS: dict[str, tuple[Edit, tuple[str, ...]]] = {
    "a bank that there is not": (
        lambda data: _banks(data, A_SPAD=4, B_SPAD=0),
        ("P009", "there are 4 banks", '["main/C"].banks.A_SPAD'),
    ),
    "a buffer that there is not": (
        lambda data: _banks(data, A_SPAD=0, B_SPAD=1, X=2), ("P009", "no buffer 'X'")
    ),
    "no bank": (
        lambda data: _banks(data, A_SPAD="all", B_SPAD=1), ("P009", "found 'all'")
    ),
    "a dimension that does not divide": (
        lambda data: _banks(data, A_SPAD="spread 1", B_SPAD=1),
        ("P009", "70 elements do not divide into 4 banks: 2 are left"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNITS)
def test_an_illegal_cut_for_units_is_refused(name: str, tmp_path: Path) -> None:
    edit, said = UNITS[name]
    _refused(edit, said, FLOATS, MANY, tmp_path / "m.json")


@pytest.mark.parametrize("name", BANKS)
def test_an_illegal_bank_is_refused(name: str, tmp_path: Path) -> None:
    edit, said = BANKS[name]
    _refused(edit, said, SHAPES, TARGET, tmp_path / "m.json")


def _refused(
    edit: Edit, said: tuple[str, ...], shapes: dict[str, str], target: str, file: Path, text: str = PRODUCT
) -> None:
    made = stripec.mapping(text, shapes, target)
    with pytest.raises(CompileError) as error:
        stripec.compile(text, shapes, target, mapping=edited(made, edit, file))
    for words in said:
        assert words in str(error.value)


def test_a_cut_for_units_is_made_as_it_is_given(tmp_path: Path) -> None:
    made = stripec.mapping(PRODUCT, FLOATS, MANY)

    def edit(data: dict[str, Any]) -> None:
        step(data, "partition")["choices"]["main/C"] = {"sizes": {"n": 8}}
        _search_behind(data, "partition")

    kernel = stripec.compile(PRODUCT, FLOATS, MANY, mapping=edited(made, edit, tmp_path / "m.json"))
    (parts,) = _after(kernel, "partition{unit=CORE}").root.children
    assert parts.ranges == {"n": 8}
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (96, 40)).astype("f"), rng.integers(-9, 9, (40, 64)).astype("f")
    np.testing.assert_array_equal(kernel(a, b), a @ b)


def test_banks_are_as_they_are_given(made: ProgramMapping, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        _banks(data, A_SPAD=2, B_SPAD="spread 1")

    kernel = stripec.compile(PRODUCT, SHAPES, TARGET, mapping=edited(made, edit, tmp_path / "m.json"))
    assert "@SPAD[2 + slot]" in kernel.stripe or "@SPAD[slot + 2]" in kernel.stripe
    assert "@SPAD[spread 1]" in kernel.stripe
    a, b = np.ones((100, 70), np.int8), np.ones((70, 300), np.int8)
    np.testing.assert_array_equal(kernel(a, b), np.full((100, 300), 70, np.int32))


def test_threads_get_what_is_written_down() -> None:
    shapes = {"A": "f32[512,512]", "B": "f32[512,512]"}
    found = stripec.mapping(PRODUCT, shapes, "generic", threads=2)
    assert next(s for s in found.steps[-1:]).options["choices"]["main/C"]["sizes"]
    one = stripec.compile(PRODUCT, shapes, "generic", threads=2, mapping=found).stripe
    assert one == stripec.compile(PRODUCT, shapes, "generic", threads=2).stripe
    with pytest.raises(CompileError, match=r"P009.*2 parts for 1 CORE: 1 too many"):
        assert stripec.compile(PRODUCT, shapes, "generic", threads=1, mapping=found).stripe


def test_parts_of_a_sum_come_back() -> None:
    text, shapes = "function (A[N]) -> (C) { C[] = +(A[n]); }", {"A": "f32[500000]"}
    found = stripec.mapping(text, shapes, "generic", threads=2)
    assert next(s for s in found.steps if s.name == "partition").options["choices"]
    assert stripec.compile(text, shapes, "generic", threads=2, mapping=found).stripe == (
        stripec.compile(text, shapes, "generic", threads=2).stripe
    )


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_edit_is_refused(name: str, made: ProgramMapping, tmp_path: Path) -> None:
    edit, said = ILLEGAL[name]
    with pytest.raises(CompileError) as error:
        stripec.compile(PRODUCT, SHAPES, TARGET, mapping=edited(made, edit, tmp_path / "m.json"))
    for text in said:
        assert text in str(error.value)


def test_the_advice_makes_a_tile_fit(made: ProgramMapping, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        _sizes(m=4, n=8)(data)
        _search_behind(data, "autotile")

    stripec.compile(PRODUCT, SHAPES, TARGET, mapping=edited(made, edit, tmp_path / "m.json"))
    with pytest.raises(CompileError, match="P009"):
        stripec.compile(PRODUCT, SHAPES, TARGET, mapping=edited(made, _sizes(m=4, n=9), tmp_path / "m.json"))


BLUR = """function (X[H, W]) -> (R) {
    T[y, x : H, W] = +(X[y, x + i - 1]), i < 3;
    R[y, x : H, W] = +(T[y + i - 1, x]), i < 3; }"""
IMAGE = {"X": "f32[2000,3000]"}
LAYER = """function (A[M, K], B[K, N], V[N]) -> (R) {
    C[m, n : M, N] = +(A[m, k] * B[k, n]);
    D = C + V;
    R = max(D, 0); }"""
DENSE = {"A": "f32[64,64]", "B": "f32[64,64]", "V": "f32[64]"}
CPU = "x86_64_avx2"


def _fused(number: int, path: str, record: dict[str, Any]) -> Edit:
    """One step of fuse with one choice; the steps behind it search, since their blocks may be others."""

    def edit(data: dict[str, Any]) -> None:
        chosen = step(data, "fuse", number)
        chosen["choices"] = {path: record}
        for later in data["pipeline"][data["pipeline"].index(chosen) + 1 :]:
            later.pop("choices", None)

    return edit


def _pair(first: str, second: str, *over: str) -> Edit:
    return _fused(0, "main", {"pairs": [{"first": first, "second": second, "over": list(over)}]})


def test_fused_blocks_and_tiles_are_written_down() -> None:
    layer = json.loads(stripec.mapping(LAYER, DENSE, CPU).text())
    assert step(layer, "fuse")["choices"] == {
        "main": {"pairs": [
            {"first": "D", "second": "R", "over": ["i0", "i1"]},
            {"first": "C", "second": "R", "over": ["m", "n"]},
        ]}
    }  # fmt: skip
    blur = json.loads(stripec.mapping(BLUR, IMAGE, CPU).text())
    record = step(blur, "fuse", 1)["choices"]["main/R"]
    assert record["buffers"] == ["T"]
    assert set(record["sizes"]) <= {"y", "x"}


def test_blocks_are_fused_as_it_is_given(tmp_path: Path) -> None:
    """One index shared where the search shares both; then nothing."""
    made = stripec.mapping(LAYER, DENSE, CPU)
    kernel = stripec.compile(
        LAYER, DENSE, CPU, mapping=edited(made, _pair("D", "R", "i0"), tmp_path / "m.json")
    )
    fused = _after(kernel, "fuse").root.children[-1]
    assert (fused.ranges, [c.name for c in fused.children]) == ({"i0": 64}, ["D", "R"])
    a = np.random.default_rng(0).integers(-9, 9, (64, 64)).astype("f")
    np.testing.assert_array_equal(kernel(a, a, a[0]), np.maximum(a @ a + a[0], 0))
    apart = stripec.compile(
        LAYER, DENSE, CPU, mapping=edited(made, _fused(0, "main", {}), tmp_path / "n.json")
    )
    assert [c.name for c in _after(apart, "fuse").root.children] == ["C", "D", "R"]
    np.testing.assert_array_equal(apart(a, a, a[0]), np.maximum(a @ a + a[0], 0))


def test_tiles_of_a_consumer_are_those_that_are_given(tmp_path: Path) -> None:
    made = stripec.mapping(BLUR, IMAGE, CPU)
    edit = _fused(1, "main/R", {"buffers": ["T"], "sizes": {"y": 64}})
    kernel = stripec.compile(BLUR, IMAGE, CPU, mapping=edited(made, edit, tmp_path / "m.json"))
    (tile,) = _after(kernel, "fuse{share=tiles}").root.children
    assert tile.ranges == {"y": 32}  # 2000 rows in tiles of 64


FUSED: dict[str, tuple[str, dict[str, str], Edit, tuple[str, ...]]] = {
    "no index": (
        LAYER, DENSE, _pair("D", "R"), ("no index is given", "may share i0, i1", '["main"].pairs[0]')
    ),
    "an index of a sum": (LAYER, DENSE, _pair("C", "D", "m", "k"), ("they can't share 'k'", "m, n")),
    "the wrong way round": (LAYER, DENSE, _pair("R", "D", "i0"), ("must stand in front",)),
    "another statement between": (LAYER, DENSE, _pair("C", "R", "m"), ("must run between",)),
    "a block that there is not": (LAYER, DENSE, _pair("C", "Q", "m"), ("there is no block 'Q' in it",)),
    "a tile beyond the range": (
        BLUR, IMAGE, _fused(1, "main/R", {"buffers": ["T"], "sizes": {"y": 3000}}),
        ("y has 2000 points, the tile 3000: 1000 too many", '["main/R"].sizes'),
    ),
    "a tile along a sum": (
        BLUR, IMAGE, _fused(1, "main/R", {"buffers": ["T"], "sizes": {"i": 3}}), ("along y, x, not along i",)
    ),
    "a buffer of the caller": (
        BLUR, IMAGE, _fused(1, "main/R", {"buffers": ["X"]}), ("'X' is no buffer of the program's own",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_an_illegal_fusion_is_refused(name: str, tmp_path: Path) -> None:
    text, shapes, edit, said = FUSED[name]
    _refused(edit, ("P009", *said), shapes, CPU, tmp_path / "m.json", text)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 20), st.sampled_from(["systolic_16", "many_core", "x86_64_avx512"]))
def test_any_program_comes_back(seed: int, target: str) -> None:
    """`mapping` compares the program of each step with the one of the search."""
    makers = (lambda: tile_program(seed).compile(), lambda: make_program(seed))
    program = (*makers, lambda: random_program(np.random.default_rng(seed)))[seed % 3]()
    try:
        found = stripec.mapping(program, None, target)
    except CompileError as error:
        assert "P008" not in str(error)
        assert "P009" not in str(error)
        return
    assert parse_mapping(Source("m.json", found.text())).text() == found.text()


THREE: dict[str, Any] = {
    "name": "three", "description": "three levels of managed memory", "executor": "interpreter",
    "memories": [
        {"name": "SRAM", "kind": "explicit", "bytes": 4096, "align_bytes": 4, "backing": "SHARED"},
        {"name": "SHARED", "kind": "explicit", "bytes": 32768, "align_bytes": 4, "backing": "DRAM"},
        {"name": "DRAM", "kind": "explicit", "bytes_per_cycle": 8, "align_bytes": 4},
    ],
    "units": [
        {"name": "CORE", "vector_bytes": 16, "reaches": ["SRAM"]},
        {"name": "FAR", "kind": "transfer", "bytes_per_cycle": 8, "reaches": ["DRAM", "SHARED"]},
        {"name": "NEAR", "kind": "transfer", "bytes_per_cycle": 32, "reaches": ["SHARED", "SRAM"]},
        {"name": "PAST", "kind": "transfer", "bytes_per_cycle": 8, "reaches": ["DRAM", "SRAM"]},
    ],
    "pipeline": [
        {"pass": "canonicalize"}, {"pass": "autotile", "memory": "SHARED"},
        {"pass": "autotile", "memory": "SRAM"}, {"pass": "canonicalize"},
        {"pass": "transfer", "memory": "SHARED"}, {"pass": "transfer", "memory": "SRAM"},
        {"pass": "schedule"}, {"pass": "place"},
    ],
}  # fmt: skip
WIDE = {"A": "f32[100,120]", "B": "f32[120,80]"}


def test_an_operand_goes_around_a_memory(tmp_path: Path) -> None:
    """What is not copied to SHARED is copied past it; without room kept there, its tiles may be larger."""
    target = tmp_path / "three.json"
    target.write_text(json.dumps(THREE), encoding="utf-8")

    def alike(data: dict[str, Any]) -> None:  # tiles that change all that they read
        choice = {"sizes": {"m": 25, "n": 20}, "order": ["m", "n"]}
        step(data, "autotile")["choices"]["main/C"] = choice
        _search_behind(data, "autotile")

    found = stripec.mapping(PRODUCT, WIDE, target)
    made = stripec.mapping(PRODUCT, WIDE, target, given=edited(found, alike, tmp_path / "a.json"))

    def edit(data: dict[str, Any]) -> None:
        record = {"sizes": {"m": 20, "n": 40}, "order": ["m", "n"], "loops": "none"}
        step(data, "autotile")["choices"]["main/C"] = record
        _search_behind(data, "autotile")
        step(data, "transfer")["choices"] = {"main": {"around": ["B"]}}

    file = edited(made, edit, tmp_path / "m.json")
    counted = stripec.simulate(PRODUCT, shapes=WIDE, target=target, mapping=file)
    assert {t.unit for t in counted.traffic if t.buffer == "main/B"} == {"PAST"}
    kernel = stripec.compile(PRODUCT, WIDE, target, mapping=file)
    a = np.random.default_rng(0).integers(-9, 9, (100, 120)).astype("f")
    b = np.random.default_rng(1).integers(-9, 9, (120, 80)).astype("f")
    np.testing.assert_array_equal(kernel(a, b), a @ b)

    def larger(data: dict[str, Any]) -> None:
        edit(data)
        step(data, "autotile")["choices"]["main/C"] |= {"sizes": {"m": 36, "n": 80}}

    with pytest.raises(CompileError, match=r"P009(.|\n)*bytes of SHARED"):
        stripec.compile(PRODUCT, WIDE, target, mapping=edited(made, larger, tmp_path / "n.json"))

    def without(data: dict[str, Any]) -> None:
        larger(data)
        step(data, "autotile")["choices"]["main/C"]["bypass"] = ["B"]

    kernel = stripec.compile(PRODUCT, WIDE, target, mapping=edited(made, without, tmp_path / "o.json"))
    np.testing.assert_array_equal(kernel(a, b), a @ b)


def test_what_is_not_copied_goes_around_nothing(tmp_path: Path) -> None:
    target = tmp_path / "three.json"
    target.write_text(json.dumps(THREE), encoding="utf-8")

    def edit(data: dict[str, Any]) -> None:
        step(data, "transfer")["choices"] = {"main/C": {"around": ["D"]}}

    said = ("P009", "it has no buffer 'D'", "known: A, B, C", '["main/C"].around')
    _refused(edit, said, WIDE, str(target), tmp_path / "m.json")


TWO = """function (A[M, K], B[K, N], D[N, L]) -> (E) {
    C[m, n : M, N] = +(A[m, k] * B[k, n]);
    E[m, l : M, L] = +(C[m, n] * D[n, l]); }"""
CHAIN = {"A": "f32[40,30]", "B": "f32[30,50]", "D": "f32[50,20]"}


def test_what_stays_near_is_what_is_given(tmp_path: Path) -> None:
    made = stripec.mapping(TWO, CHAIN, "vector_dsp")
    assert step(json.loads(made.text()), "schedule")["choices"]["main"] == {"near": ["C"]}
    assert (
        "new C f32(40, 50):(50, 1) @LOCAL" in stripec.compile(TWO, CHAIN, "vector_dsp", mapping=made).stripe
    )

    def far(data: dict[str, Any]) -> None:
        del step(data, "schedule")["choices"]["main"]

    kernel = stripec.compile(TWO, CHAIN, "vector_dsp", mapping=edited(made, far, tmp_path / "m.json"))
    assert "new C f32(40, 50):(50, 1) @DRAM" in kernel.stripe
    a, b, d = (np.ones(shape, np.float32) for shape in ((40, 30), (30, 50), (50, 20)))
    np.testing.assert_array_equal(kernel(a, b, d), a @ b @ d)
    _refused(
        _field("schedule", "main", "near", ["C", "A"]), ("P009", "'A' is no buffer of the root", '"].near'),
        CHAIN, "vector_dsp", tmp_path / "n.json", TWO,
    )  # fmt: skip


def test_points_in_flight_are_those_that_are_given(made: ProgramMapping, tmp_path: Path) -> None:
    def flights(number: int) -> Edit:
        def edit(data: dict[str, Any]) -> None:
            choices = step(data, "schedule")["choices"]
            assert choices
            for record in choices.values():
                record["inflight"] = number
            step(data, "partition")["choices"] = {}  # the banks were for two

        return edit

    kernel = stripec.compile(PRODUCT, SHAPES, TARGET, mapping=edited(made, flights(1), tmp_path / "m.json"))
    assert "inflight" not in kernel.stripe
    _refused(flights(64), ("P009", "too many", ".inflight"), SHAPES, TARGET, tmp_path / "n.json")


# -- wrong files -----------------------------------------------------------------------------------


def test_a_mapping_is_for_its_program_and_target(made: ProgramMapping) -> None:
    with pytest.raises(CompileError, match=r"D081(.|\n)*\$\.program\.digest"):
        stripec.compile(PRODUCT, SHAPES | {"B": "i8[70,301]"}, TARGET, mapping=made)
    with pytest.raises(CompileError, match=r"D082(.|\n)*'many_core'(.|\n)*\$\.target\.digest"):
        stripec.compile(PRODUCT, SHAPES, "many_core", mapping=made)
    changed = msgspec.structs.replace(load_named(TARGET), clock_hz=1.0)
    with pytest.raises(CompileError, match=r"D082.*what it says has changed"):
        stripec.compile(PRODUCT, SHAPES, changed, mapping=made)


def test_without_digests_the_choices_are_tried(made: ProgramMapping, tmp_path: Path) -> None:
    def edit(data: dict[str, Any]) -> None:
        del data["program"], data["target"]

    file = edited(made, edit, tmp_path / "m.json")
    stripec.compile(PRODUCT, SHAPES | {"B": "i8[70,310]"}, TARGET, mapping=file)
    with pytest.raises(CompileError, match="P00"):
        stripec.compile(PRODUCT, SHAPES, "many_core", mapping=file)


def test_a_file_that_was_cut_off(made: ProgramMapping, tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    text = made.text()
    for end in (0, 1, 40, len(text) // 2, len(text) - 3):
        file.write_text(text[:end], encoding="utf-8")
        with pytest.raises(CompileError, match=r"m\.json:\d+:\d+: error\[D080\]"):
            read_mapping(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "no number of the format"),
        ("{}", "no number of the format"),
        ('{"name": "systolic_16", "memories": []}', "no number of the format"),
        ('{"mapping": 2, "pipeline": []}', "its format is 2, this stripec reads 1"),
        ('{"mapping": 1}', "pipeline"),
        ('{"mapping": 1, "pipeline": [], "targte": {}}', "did you mean 'target'?"),
        ('{"mapping": 1, "pipeline": {}}', "$.pipeline"),
        ('{"mapping": 1, "pipeline": [{}]}', "$.pipeline[0].pass"),
        ('{"mapping": 1, "pipeline": [], "program": {"digest": 3}}', "$.program.digest"),
        ('{"mapping": 1, "mapping": 1, "pipeline": []}', "'mapping' appears twice in one object"),
        (
            '{"mapping": 1,\n "pipeline": [{}, {"a b": NaN}]}',
            ":2:27: error[D080]: this is no JSON: NaN is not a JSON",
        ),
        ('{"pipeline": [{}, {"a b": NaN}]}', '$.pipeline[1]["a b"]'),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_a_foreign_file(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CompileError) as error:
        read_mapping(file)
    assert "D080" in str(error.value)
    assert said in str(error.value)


def test_a_path_to_nothing() -> None:
    with pytest.raises(CompileError, match="D001"):
        stripec.compile(PRODUCT, SHAPES, TARGET, mapping="/no/such/file.json")
    with pytest.raises(CompileError, match=r"D080.*type int"):
        stripec.compile(PRODUCT, SHAPES, TARGET, mapping=3)  # type: ignore[arg-type]


# -- the command -----------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, file = tmp_path / "product.tile", tmp_path / "m.json"
    program.write_text(PRODUCT, encoding="utf-8")
    given = [str(program), *(f"--shape={n}={t}" for n, t in SHAPES.items()), "--target", TARGET]
    assert main(["map", *given]) == 0
    shown = capsys.readouterr().out
    assert main(["map", *given, "-o", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == shown
    assert main(["compile", *given]) == 0
    wanted = capsys.readouterr().out
    for command in ("compile", "simulate", "explain", "map"):
        assert main([command, *given, "--mapping", str(file)]) == 0
        said = capsys.readouterr().out
        assert said == {"compile": wanted, "map": shown}.get(command, said)
    inputs = [f"--input={name}=random:{kind}" for name, kind in SHAPES.items()]
    assert main(["run", str(program), *inputs, "--target", TARGET, "--mapping", str(file), "--check"]) == 0


def test_a_report_on_two_mappings(
    made: ProgramMapping, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, out = tmp_path / "product.tile", tmp_path / "r.html"
    program.write_text(PRODUCT, encoding="utf-8")
    given = [str(program), *(f"--shape={n}={t}" for n, t in SHAPES.items()), "--target", TARGET]
    mine = edited(made, _sizes(m=2, n=5), tmp_path / "m.json")
    assert main(["report", *given, "-o", str(out), "--mapping", str(mine)]) == 0
    assert "m:2 n:5" in out.read_text(encoding="utf-8")
    assert main(["report", *given, "-o", str(out), "--diff-mapping", str(mine)]) == 0
    assert "m:2 n:5" in out.read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["report", *given, "-o", str(out), "--mapping", str(mine), "--pipeline", "fuse"]) == 1
    assert "D073" in capsys.readouterr().err
    found = stripec.report(PRODUCT, SHAPES, TARGET, mapping=mine)
    assert found.title


def test_nothing_is_overwritten_when_it_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, file = tmp_path / "product.tile", tmp_path / "m.json"
    program.write_text(PRODUCT, encoding="utf-8")
    file.write_text("mine", encoding="utf-8")
    given = [str(program), "--shape=A=i8[4,4]", "--target", TARGET, "-o", str(file)]
    assert main(["map", *given]) == 1
    assert main(["map", *given, "--shape=B=i8[4,4]", "--mapping", str(file)]) == 1
    assert file.read_text(encoding="utf-8") == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["product.tile", "m.json"] or len(
        list(tmp_path.iterdir())
    ) == 2


def test_code_is_kept_for_each_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program and target with another mapping is other code."""
    monkeypatch.setenv("STRIPEC_CACHE_DIR", str(tmp_path))
    shapes = {"A": "f32[64,64]", "B": "f32[64,64]"}
    found = json.loads(stripec.mapping(PRODUCT, shapes, "generic").text())
    a = np.ones((64, 64), np.float32)
    stripec.compile(PRODUCT, shapes, "generic", threads=1)(a, a)
    step(found, "autotile", 1)["choices"]["main/C"]["sizes"] = {"m": 3, "n": 16}
    mapping = parse_mapping(Source("m.json", json.dumps(found)))
    kernel = stripec.compile(PRODUCT, shapes, "generic", threads=1, mapping=mapping)
    np.testing.assert_array_equal(kernel(a, a), a @ a)
    assert "m:22" in to_text(_after(kernel, "autotile{memory=REG}"))


def test_programs_go_with_their_constants() -> None:
    found = stripec.mapping(PRODUCT, {"A": "f32[64,64]", "B": "f32[64,64]"}, "generic", constants=("B",))
    types = {name: as_type("f32[64,64]", name) for name in "AB"}
    frontend = found.of(read_program(PRODUCT))
    frontend.lower(types, ("B",))
    with pytest.raises(CompileError, match="D081"):
        frontend.lower(types, ())
