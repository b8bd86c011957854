"""Published numbers of accelerators, reproduced by compiling the layer for the preset and reading the
counters. docs/chips/ says where each figure comes from and why some differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from pathlib import Path

import msgspec
import numpy as np
import pytest

import stripec
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, PassStep
from simulator import Simulation, simulate
from simulator.simulate import Counts
from stripe.arena import interpret_placed
from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Location, Program
from stripe.parser import parse
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import check_pipeline
from stripe.verify import verify
from tests.support.managed import check_on, products_inside, random_inputs
from tile_frontend import compile_tile

# -- systolic arrays ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A window of r x s with a step, over an image of c channels, for n filters; a product of m x c by c x n
    is the one of an image of m points in one row."""

    height: int
    width: int
    c: int
    r: int
    s: int
    step: int
    n: int

    @property
    def outputs(self) -> tuple[int, int]:
        return (self.height - self.r) // self.step + 1, (self.width - self.s) // self.step + 1

    @property
    def m(self) -> int:
        return prod(self.outputs)

    @property
    def k(self) -> int:
        return self.r * self.s * self.c

    @property
    def compulsory(self) -> tuple[int, int, int]:
        """Elements of the input, the weights and the output, each once."""
        return self.height * self.width * self.c, self.k * self.n, self.m * self.n

    def flattened(self) -> str:
        """The layer as a product: the window and the channels are one dimension, and the points another."""
        x, (y_out, x_out) = self, self.outputs
        return f"""function (I[{x.height}, {x.width}, {x.c}], F[{x.k}, {x.n}]) -> (R) {{
            P[{x_out}*y + x, {x.s * x.c}*r + {x.c}*s + c : {x.m}, {x.k}] =
                =(I[{x.step}*y + r, {x.step}*x + s, c]),
                y < {y_out}, x < {x_out}, r < {x.r}, s < {x.s}, c < {x.c};
            R[m, n : {x.m}, {x.n}] = +(P[m, k] * F[k, n]);
        }}"""

    def window(self) -> str:
        """The layer as it is."""
        x, (y_out, x_out) = self, self.outputs
        return f"""function (I[{x.height}, {x.width}, {x.c}], F[{x.r}, {x.s}, {x.c}, {x.n}]) -> (R) {{
            R[y, x, n : {y_out}, {x_out}, {x.n}] = +(I[{x.step}*y + r, {x.step}*x + s, c] * F[r, s, c, n]);
        }}"""


GEMM_128 = Layer(1, 128, 128, 1, 1, 1, 128)
GEMM_512 = Layer(1, 512, 512, 1, 1, 1, 512)
CONV2_X = Layer(58, 58, 64, 3, 3, 1, 64)
CONV3_X = Layer(30, 30, 128, 3, 3, 1, 128)
ALEXNET = (
    Layer(227, 227, 3, 11, 11, 4, 96),
    Layer(31, 31, 48, 5, 5, 1, 128),
    Layer(15, 15, 256, 3, 3, 1, 384),
    Layer(15, 15, 192, 3, 3, 1, 192),
    Layer(15, 15, 192, 3, 3, 1, 128),
)

# Of SCALE-Sim 3.0.0: the last cycle, counted from 0; the share of cycles in which a cell works, in percent;
# words that the array reads of the input and the weights and writes of the output; each element once.
ROWS = {
    "gemm 128 ws": (GEMM_128, "ws", 3551, 57.67, (65536, 16384, 65536), (16384, 16384, 16384)),
    "gemm 128 os": (GEMM_128, "os", 3039, 67.39, (65536, 65536, 17408), (16384, 16384, 16384)),
    "gemm 128 is": (GEMM_128, "is", 3551, 57.67, (16384, 65536, 65536), (16384, 16384, 16384)),
    "gemm 512 ws": (GEMM_512, "ws", 155135, 84.49, (4194304, 262144, 4194304), (262144, 262144, 262144)),
    "gemm 512 os": (GEMM_512, "os", 146943, 89.20, (4194304, 4194304, 278528), (262144, 262144, 262144)),
    "resnet conv2_x": (CONV2_X, "ws", 116279, 97.09, (3612672, 36864, 3612672), (215296, 36864, 200704)),
    "resnet conv3_x": (CONV3_X, "ws", 126431, 89.29, (3612672, 147456, 3612672), (115200, 147456, 100352)),
    "alexnet conv1": (ALEXNET[0], "ws", 112283, 91.68, (3294225, 34848, 3484800), (154587, 34848, 290400)),
    "alexnet conv2": (ALEXNET[1], "ws", 125095, 87.41, (3499200, 153600, 3545856), (46128, 153600, 93312)),
    "alexnet conv3": (ALEXNET[2], "ws", 227231, 64.26, (4672512, 884736, 4672512), (57600, 884736, 64896)),
    "alexnet conv4": (ALEXNET[3], "ws", 85211, 64.26, (1752192, 331776, 1752192), (43200, 331776, 32448)),
    "alexnet conv5": (ALEXNET[4], "ws", 56807, 64.26, (1168128, 221184, 1168128), (43200, 221184, 21632)),
}

# The array of its example "eyeriss.cfg", of which the cycles alone are known.
ROWS_12X14 = {"alexnet conv1": (ALEXNET[0], 664236), "alexnet conv2": (ALEXNET[1], 764999)}


@cache
def array(flow: str, rows: int = 32, columns: int = 32) -> HwConfig:
    """A shipped array, or one like it of another size."""
    hw = load_named(f"systolic_32_{flow}")
    if (rows, columns) == (32, 32):
        return hw
    (fold,) = hw.stencils
    indices = {"m": "any", "n": columns, "k": rows}
    fold = msgspec.structs.replace(fold, indices=indices, startup_cycles=2.0 * rows + columns - 2)
    return msgspec.structs.replace(hw, name=f"systolic_{rows}x{columns}_{flow}", stencils=(fold,))


def run(layer: Layer, hw: HwConfig, counts: Counts = "closed") -> Simulation:
    types = {"I": f"i8[{layer.height},{layer.width},{layer.c}]", "F": f"i8[{layer.k},{layer.n}]"}
    return stripec.simulate(layer.flattened(), shapes=types, target=hw, counts=counts)


def of_the_array(found: Simulation) -> tuple[float, tuple[int, int, int]]:
    """Its busy cycles, and how many elements it reads of the input and the weights and writes of the output:
    an element of the inputs has one byte, of the output four."""
    (work,) = [b for b in found.blocks if b.unit == "ARRAY"]
    own = [t for t in found.traffic if t.unit == "ARRAY"]
    read = {t.buffer.rsplit("/", 1)[1]: t.read for t in own if t.read}
    assert {t.memory for t in own if t.read} == {"SPAD"}
    assert {t.memory for t in own if t.written} == {"ACC"}
    return work.busy, (read["P_SPAD"], read["F_SPAD"], sum(t.written for t in own) // 4)


def check_row(name: str, counts: Counts) -> None:
    layer, flow, last, share, (reads, weights, writes), _ = ROWS[name]
    found = run(layer, array(flow), counts)
    if flow == "os":  # for each fold it adds the rows and the columns to their product: 64 words too many
        folds = -(-layer.m // 32) * -(-layer.n // 32)
        writes -= 64 * folds
        assert writes == layer.m * layer.n
    assert of_the_array(found) == (last + 1, (reads, weights, writes))
    points = sum(b.points for b in found.blocks if b.unit == "ARRAY")
    assert points == layer.m * layer.n * layer.k
    assert round(100 * points / (32 * 32 * last), 2) == share


@pytest.mark.parametrize("name", ROWS)
def test_cycles_and_traffic_of_systolic_arrays(name: str) -> None:
    check_row(name, "both" if name.startswith("gemm 128") else "closed")


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_systolic_arrays_counted_both_ways(name: str) -> None:
    check_row(name, "both")


@pytest.mark.parametrize("name", ROWS_12X14)
def test_cycles_of_an_array_of_12_by_14(name: str) -> None:
    layer, last = ROWS_12X14[name]
    busy, _ = of_the_array(run(layer, array("ws", 12, 14)))
    assert busy == last + 1


def roomy(hw: HwConfig) -> HwConfig:
    """A target with room for everything on the chip."""
    memories = tuple(msgspec.structs.replace(m, bytes=m.bytes and 1 << 30) for m in hw.memories)
    return msgspec.structs.replace(hw, memories=memories)


def in_one_tile(hw: HwConfig) -> HwConfig:
    """A target whose mapping is given: the layer is one tile, so that nothing is copied again."""
    steps = (
        PassStep(s.name, {**s.options, "choices": {"main/R": {"sizes": {}}}}) if s.name == "autotile" else s
        for s in hw.pipeline
    )
    return msgspec.structs.replace(hw, pipeline=tuple(steps))


def window_on(layer: Layer, hw: HwConfig, counts: Counts = "closed") -> Simulation:
    types = {
        "I": f"i8[{layer.height},{layer.width},{layer.c}]",
        "F": f"i8[{layer.r},{layer.s},{layer.c},{layer.n}]",
    }
    return stripec.simulate(layer.window(), shapes=types, target=hw, counts=counts)


@pytest.mark.parametrize("name", ROWS)
def test_compulsory_traffic(name: str) -> None:
    """With room for everything on the chip, each element comes from DRAM, or goes there, once in a mapping
    that copies nothing again. That much is compulsory for what the search makes, too."""
    layer, flow, _, _, _, compulsory = ROWS[name]
    assert layer.compulsory == compulsory
    read, weights, written = compulsory
    hw = roomy(array(flow))
    found = window_on(layer, in_one_tile(hw))
    moved = {t.buffer: (t.read, t.written) for t in found.traffic if t.memory == "DRAM"}
    assert moved == {"main/I": (read, 0), "main/F": (weights, 0), "main/R": (0, 4 * written)}
    whole = [b for b in window_on(layer, hw).bounds if not b.kernel and b.memory == "DRAM"]
    searched = {b.tensor: b for b in whole if b.tensor}
    bytes_of_each = {"I": read, "F": weights, "R": 4 * written}
    assert {name: bound.compulsory for name, bound in searched.items()} == bytes_of_each
    assert all(bound.ours >= bound.compulsory for bound in searched.values())
    for name in ("F", "R"):  # no rim of a window lies in these
        assert searched[name].ours == searched[name].compulsory


@pytest.mark.parametrize("name", ["resnet conv2_x", "resnet conv3_x", "alexnet conv1"])
def test_rims_are_copied_again_only_for_time(name: str) -> None:
    """Tiles along a window hide the copies of all but the first: more bytes, and fewer cycles."""
    layer, flow, *_ = ROWS[name]
    hw = roomy(array(flow))
    searched, once = window_on(layer, hw, "simulated"), window_on(layer, in_one_tile(hw), "simulated")
    assert searched.cycles is not None and once.cycles is not None
    assert searched.cycles < once.cycles


@pytest.mark.parametrize("flow", ["ws", "os", "is"])
def test_the_arrays_compute_what_they_are_said_to(flow: str, rng: np.random.Generator) -> None:
    layer = Layer(9, 10, 5, 3, 3, 2, 40)
    types = {"I": TensorType(DType.I8, (9, 10, 5)), "F": TensorType(DType.I8, (45, 40))}
    source = compile_tile(Source("layer.tile", layer.flattened()), types)
    placed = check_on(source, array(flow), random_inputs(source, rng))
    assert products_inside(placed) == 1.0


# -- an Eyeriss-like chip with its mapping given -----------------------------------------------------

MAPPING = Path(__file__).parents[2] / "docs" / "chips" / "eyeriss_like.stripe"
WORD = 2  # bytes
ELEMENTS = 126  # of 168 that work


def mapped(text: str) -> Program:
    program = parse(Source(MAPPING.name, text))
    verify(program, load_named("eyeriss_like"))
    return program


def part(tiles: int = 1, filters: int = 1) -> str:
    """The mapping of a smaller layer: of so many tiles, one above the other, and 8 filters so many times."""
    text = MAPPING.read_text(encoding="utf-8")
    y, p = 28 * tiles + 1, 14 * tiles
    for old, new in (
        ("[p8:8, q2:2]", f"[p8:{tiles}, q2:1]"), ("[m4:4]", f"[m4:{filters}]"),
        ("i16(3, 225, 225):", f"i16(3, {y}, 113):"), ("(50625, 225, 1)", f"({y * 113}, 113, 1)"),
        ("i16(32, 3, 3, 3)", f"i16({8 * filters}, 3, 3, 3)"),
        ("i16(32, 112, 112):", f"i16({8 * filters}, {p}, 56):"), ("(12544, 112, 1)", f"({p * 56}, 56, 1)"),
        ("i16(32, 14, 56)", f"i16({8 * filters}, 14, 56)"),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    return text


def words(found: Simulation, memory: str, unit: str = "", buffer: str = "") -> dict[str, int]:
    """Words that are read, written, and read to be added to, in a memory, by a unit, of a buffer."""
    own = [
        t
        for t in found.traffic
        if t.memory == memory and unit in ("", t.unit) and t.buffer.endswith(f"/{buffer}" if buffer else "")
    ]
    return {kind: sum(getattr(t, kind) for t in own) // WORD for kind in ("read", "written", "updated")}


def busy_of_elements(found: Simulation) -> float:
    return sum(b.busy for b in found.blocks if b.unit == "PE")


def test_the_eyeriss_like_reference_run() -> None:
    """Timeloop's counters of its Eyeriss-like example, eight integers."""
    found = simulate(mapped(MAPPING.read_text()), load_named("eyeriss_like"), counts="closed")
    check_reference_run(found)
    macs = 32 * 112 * 112 * 27
    assert macs == ELEMENTS * 86_016 == sum(b.points for b in found.blocks if b.unit == "PE")


def check_reference_run(found: Simulation) -> None:
    assert busy_of_elements(found) == ELEMENTS * 86_016  # cycles of each
    assert words(found, "DRAM", buffer="I")["read"] == 157_296
    assert words(found, "DRAM", buffer="W")["read"] == 13_824
    assert words(found, "DRAM", buffer="O") == {"read": 0, "written": 401_408, "updated": 0}
    assert words(found, "GLB") == {"read": 1_354_752, "written": 157_296, "updated": 0}
    assert sum(words(found, "WSPAD").values()) == 11_031_552
    assert sum(words(found, "ISPAD").values()) == 12_192_768
    assert sum(words(found, "PSPAD", unit="PE").values()) == 18_063_360
    # What adds the columns up reads each sum once more, which the reference leaves out.
    assert words(found, "PSPAD", unit="COLUMNS")["read"] == ELEMENTS * 28_672


# The same mapping as a file, which the page of the chip shows.
PAGE = (MAPPING.parent / "eyeriss_like.md").read_text(encoding="utf-8")
CONV = """function (I[C, Y, X], W[M, C, R, S]) -> (O) {
    O[m, p, q : %d, %d, %d] = +(I[c, 2*p + r, 2*q + s] * W[m, c, r, s]);
}"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """The mapping; the chip that it is for stands beside it."""
    for name in ("rows_chip", "rows"):
        (text,) = re.findall(rf"```json {name}.json\n(.*?)```", PAGE, re.DOTALL)
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    return tmp_path / "rows.json"


def layer_of(filters: int, height: int, width: int) -> tuple[str, dict[str, str]]:
    shapes = {"I": f"i16[3,{2 * height + 1},{2 * width + 1}]", "W": f"i16[{filters},3,3,3]"}
    return CONV % (filters, height, width), shapes


def test_the_reference_run_by_passes(rows: Path) -> None:
    """All eight counters, and cycles, from a pipeline with explicit choices."""
    text, shapes = layer_of(32, 112, 112)
    found = stripec.simulate(
        text, shapes=shapes, target=rows.with_name("rows_chip.json"), mapping=rows, counts="closed"
    )
    check_reference_run(found)
    whole = [b for b in found.bounds if not b.kernel and b.memory == "DRAM"]
    bounds = {b.tensor: (b.compulsory // WORD, b.ours // WORD) for b in whole}
    each = {"I": (151_875, 157_296), "W": (864, 13_824), "O": (401_408, 401_408)}
    assert bounds == {**each, "": (554_147, 572_528)}
    macs = sum(b.points for b in found.blocks if b.unit == "PE")
    assert macs == 32 * 112 * 112 * 27


def test_the_mapping_by_passes_comes_back(rows: Path) -> None:
    text, shapes = layer_of(32, 112, 112)
    made = stripec.mapping(
        text, shapes, rows.with_name("rows_chip.json"), given=rows
    )  # makes sure that its own text does
    choices = {step.name: step.options.get("choices") for step in made.steps}
    assert choices["spread"] == {
        "main/O/O/O/O": {
            "over": ["c", "s", "q"],
            "memories": {"I": "ISPAD", "W": "WSPAD", "O": "PSPAD"},
        }
    }


def test_the_mapping_by_passes_computes_the_layer(rows: Path, rng: np.random.Generator) -> None:
    """Two tiles of two times 8 filters, on the memories of the elements; counted both ways."""
    text, shapes = layer_of(16, 14, 112)
    image = rng.integers(-9, 9, (3, 29, 225)).astype(np.int16)
    filters = rng.integers(-9, 9, (16, 3, 3, 3)).astype(np.int16)
    made = stripec.compile(text, shapes, rows.with_name("rows_chip.json"), mapping=rows)
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (1, 2))[:, ::2, ::2]
    expected = np.einsum("cpqrs,mcrs->mpq", windows, filters)
    hw, program = made.hw, made.stages[-1][1]
    assert np.array_equal(interpret_placed(program, {"I": image, "W": filters}, hw)["O"], expected)
    found = simulate(program, hw, counts="both")
    busy = 2 * 2 * 56 * 24.0
    elements = [u.busy for u in found.units if u.unit == "PE"]
    assert elements == [busy] * ELEMENTS + [0.0] * 42
    assert found.cycles is not None and found.cycles < 1500 + 1.2 * busy


def test_the_mapping_computes_the_layer(rng: np.random.Generator) -> None:
    program, hw = mapped(part()), load_named("eyeriss_like")
    image = rng.integers(-9, 9, (3, 29, 113)).astype(np.int16)
    filters = rng.integers(-9, 9, (8, 3, 3, 3)).astype(np.int16)
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (1, 2))[:, ::2, ::2]
    expected = np.einsum("cpqrs,mcrs->mpq", windows, filters)
    assert np.array_equal(interpret_placed(program, {"I": image, "W": filters}, hw)["O"], expected)


@pytest.mark.parametrize(
    ("tiles", "filters"), [(1, 1), pytest.param(2, 4, marks=pytest.mark.slow)], ids=["one", "eight"]
)
def test_the_mapping_in_time(tiles: int, filters: int) -> None:
    """56 steps of 24 cycles for each tile and 8 filters; after the first tile, elements hardly wait."""
    found = simulate(mapped(part(tiles, filters)), load_named("eyeriss_like"))
    elements = [u for u in found.units if u.unit == "PE"]
    busy = tiles * filters * 56 * 24.0
    assert [u.busy for u in elements] == [busy] * ELEMENTS + [0.0] * 42
    assert found.cycles is not None
    assert found.cycles < 800 + 1.05 * busy


# -- NVDLA's nv_full ---------------------------------------------------------------------------------

# As products of one image, or of 16 for the layers without a window, and where the input comes from.
FULLY = {"fc1": (9216, 4096), "fc2": (4096, 4096), "fc3": (4096, 1000)}
BATCH = 16
WINDOWS = {
    **{f"alexnet conv{number}": layer for number, layer in enumerate(ALEXNET, 1)},
    "resnet-50 res2a_branch1": Layer(56, 56, 64, 1, 1, 1, 256),
    "resnet-50 res5a_branch1": Layer(14, 14, 1024, 1, 1, 2, 2048),
}
# Of the official sheet (2018, int8, 4 MB of SRAM on the second interface): cycles of the multipliers and
# of what binds the layer, and what that is.
SHEET = {
    "alexnet conv2": (54_675, 54_675, "MAC"),
    "fc1": (18_432, 231_300, "DRAM"),
    "fc2": (8_192, 102_800, "DRAM"),
    "fc3": (2_000, 25_400, "DRAM"),
    "resnet-50 res2a_branch1": (25_088, 31_360, "SRAM write"),
}


# It divides the cycles of these by 2.25, for Winograd.
WINOGRAD = {"alexnet conv3": 32_448, "alexnet conv4": 12_168, "alexnet conv5": 8_112}


def sheet(name: str, hw: HwConfig) -> dict[str, float]:
    """Cycles of an image in each resource: as the target's counters say, at the rates of its interfaces."""
    source, inputs, images = nv_layer(name)
    near = {"R"} if name in FULLY else {"I", "R"}  # a batch is gathered in DRAM
    found = simulated(compile_tile(source, inputs), hw, dict.fromkeys(near, "SRAM"))
    moved = {m.memory: m for m in found.memories}
    dram, sram = hw.unit("DBB"), hw.unit("SRAMIF")
    assert dram is not None and dram.bytes_per_cycle and sram is not None and sram.bytes_per_cycle
    return {
        "MAC": sum(b.busy for b in found.blocks if b.unit == "CMAC") / images,
        "DRAM": (moved["DRAM"].read + moved["DRAM"].written) / dram.bytes_per_cycle / images,
        "SRAM read": moved["SRAM"].read / sram.bytes_per_cycle / images,
        "SRAM write": moved["SRAM"].written / sram.bytes_per_cycle / images,
    }


def simulated(program: Program, hw: HwConfig, places: Mapping[str, str]) -> Simulation:
    """What a program counts whose inputs and outputs lie in these memories, the others in the farthest."""
    refinements = tuple(
        replace(ref, location=Location(places[ref.name])) if ref.name in places else ref
        for ref in program.root.refinements
    )
    program = replace(program, root=replace(program.root, refinements=refinements))
    return simulate(run_pipeline(program, check_pipeline(hw), hw), hw, counts="closed")


def nv_layer(name: str) -> tuple[Source, dict[str, TensorType], int]:
    """The program of a layer with results of a byte, the types of its inputs, and its images."""
    if name in FULLY:
        k, n = FULLY[name]
        shapes: dict[str, tuple[int, ...]] = {"I": (BATCH, k), "F": (k, n)}
        text = f"S[b, n : {BATCH}, {n}] = +(I[b, k] * F[k, n])"
    else:
        layer = WINDOWS[name]
        shapes = {"I": (layer.height, layer.width, layer.c), "F": (layer.r, layer.s, layer.c, layer.n)}
        (y, x), step = layer.outputs, layer.step
        text = f"S[y, x, n : {y}, {x}, {layer.n}] = +(I[{step}*y + r, {step}*x + s, c] * F[r, s, c, n])"
    source = Source("layer.tile", f"function (I, F) -> (R) {{ {text}; R = as_int(S >> 8, 8); }}")
    return source, {n: TensorType(DType.I8, s) for n, s in shapes.items()}, BATCH if name in FULLY else 1


@cache
def nv_full(cycles: str = "") -> HwConfig:
    """The shipped target with room for each layer on the chip, so that everything moves once, as the sheet
    supposes."""
    hw = load_named("nv_full")
    roomy = tuple(
        msgspec.structs.replace(m, bytes=1 << 30) if m.name in ("CBUF", "CACC") else m for m in hw.memories
    )
    stencils = tuple(msgspec.structs.replace(s, cycles=cycles or s.cycles) for s in hw.stencils)
    return msgspec.structs.replace(hw, memories=roomy, stencils=stencils)


@pytest.mark.parametrize("name", SHEET)
def test_the_sheet_of_nv_full(name: str) -> None:
    multipliers, cycles, bound = SHEET[name]
    found = sheet(name, nv_full())
    assert found["MAC"] == multipliers
    assert max(found, key=lambda resource: found[resource]) == bound
    assert found[bound] == pytest.approx(cycles, rel=1e-12)


@pytest.mark.parametrize("name", WINOGRAD)
def test_the_sheet_of_nv_full_with_winograd(name: str) -> None:
    direct, fewer = sheet(name, nv_full()), sheet(name, nv_full("m * n * k / 2048 / 2.25"))
    assert direct["MAC"] == 2.25 * WINOGRAD[name]
    assert fewer["MAC"] == pytest.approx(WINOGRAD[name], rel=1e-9)
    # The sheet leaves their weights out: with these cycles, those of all layers add up to its total.
    layer = WINDOWS[name]
    assert fewer["DRAM"] == pytest.approx(layer.k * layer.n / 10.24, rel=1e-12)
    assert fewer["DRAM"] > WINOGRAD[name]


def test_what_the_sheet_of_nv_full_has_otherwise() -> None:
    conv1 = sheet("alexnet conv1", nv_full())
    assert conv1["MAC"] == 105_415_200 / 2048  # the sheet: 49,620, of 54 x 54 results instead of 55 x 55
    assert round(54 * 54 * 96 * 363 / 2048, -1) == 49_620
    res5a = sheet("resnet-50 res5a_branch1", nv_full())
    assert res5a["MAC"] == 50_176
    assert max(res5a, key=lambda resource: res5a[resource]) == "DRAM"
    assert res5a["DRAM"] == pytest.approx(
        204_800, rel=1e-12
    )  # the sheet: 829,000, with the weights four times
    assert 4 * 204_800 + 98 * 100 == 829_000


@pytest.mark.parametrize("name", [n for n in WINDOWS if n != "alexnet conv2"])
def test_the_mapping_for_nv_full_moves_weights_once(name: str) -> None:
    """And so binds the layer where the sheet says, in the buffers that there are."""
    found, least = sheet(name, load_named("nv_full")), sheet(name, nv_full())
    assert found["DRAM"] == least["DRAM"]
    assert found["SRAM write"] == least["SRAM write"]
    assert max(found, key=lambda r: found[r]) == max(least, key=lambda r: least[r])


# -- the first TPU, and Gemmini ----------------------------------------------------------------------


def product(m: int, k: int, n: int, target: str, places: Mapping[str, str]) -> tuple[Simulation, float]:
    """What a product counts whose results are bytes, and its operations by cycle of the array."""
    text = f"S[m, n : {m}, {n}] = +(X[m, k] * W[k, n])"
    source = Source("p.tile", f"function (X, W) -> (R) {{ {text}; R = as_int(S >> 8, 8); }}")
    types = {"X": TensorType(DType.I8, (m, k)), "W": TensorType(DType.I8, (k, n))}
    found = simulated(compile_tile(source, types), load_named(target), places)
    return found, m * k * n / busy_of(found, "MXU", "MESH")


def busy_of(found: Simulation, *units: str) -> float:
    return sum(b.busy for b in found.blocks if b.unit in units)


def test_the_first_tpu() -> None:
    """Jouppi et al., ISCA 2017: 92 TeraOps/s; the roofline, whose ridge is at 1350 operations per byte of
    weights (figure 5)."""
    places = {"X": "UB", "R": "UB"}
    found, rate = product(2048, 512, 512, "tpu_like", places)
    assert rate == 65_536
    assert round(2 * rate * 700e6 / 1e12) == 92
    _, few = product(16, 512, 512, "tpu_like", places)
    assert few == 65_536 * 16 / 256  # the next weights take 256 cycles

    found, _ = product(200, 2048, 2048, "tpu_like", places)  # a layer of MLP0, at its batch
    weights = 2048 * 2048
    assert {t.read for t in found.traffic if t.buffer == "main/W"} == {weights}
    cycles = busy_of(found, "WEIGHTS")
    assert cycles == pytest.approx(weights / 34e9 * 700e6, rel=1e-12)
    assert cycles > max(busy_of(found, "MXU"), busy_of(found, "ACT"), busy_of(found, "HOST"))
    assert 2 * 200 * weights / cycles * 700e6 == pytest.approx(13.6e12)  # where the roofline is at 200
    assert round(65_536 / (34e9 / 700e6)) == 1349  # rows for which weights and products take as long


def test_gemmini() -> None:
    """Rows of 16 enter a mesh of 16 x 16 each cycle; its scratchpad's rows have 128 bits, the
    accumulators' 512 (README of the project, "Scratchpad and Accumulator")."""
    found, rate = product(512, 512, 512, "gemmini_like", {})
    assert rate == 256
    assert busy_of(found, "MESH") == (512 // 16) ** 3 * 16
    uses = sum(b.uses for b in found.blocks if b.unit == "MESH")
    own = [t for t in found.traffic if t.unit == "MESH"]
    assert sum(t.read for t in own if t.memory == "SPAD") == uses * 2 * 16 * 16
    assert sum(t.written for t in own if t.memory == "ACC") == uses * 16 * 16 * 4
