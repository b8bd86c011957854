"""spread: what goes across elements, what stays in them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stripec
from hwconfigs.load import load_named
from hwconfigs.model import PassStep, Stencil
from stripe.diag import CompileError
from stripe.ir import Aggregation, Program
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.registry import check_pipeline
from stripe.passes.spread import Spatial, Spread
from stripe.visit import walk
from tests.support.passes import check_pass, program_of

HW = load_named("eyeriss_like")
ROOMY = msgspec.structs.replace(
    HW, memories=tuple(msgspec.structs.replace(m, bytes=m.bytes and 1 << 16) for m in HW.memories)
)
MEMORIES = ("ISPAD", "WSPAD", "PSPAD")


def window(x: int, s: int, k: int, m: int, step: int = 1) -> str:
    return f"""
    block main [] (
      in I[0, 0] i16({step * (x - 1) + s}, {k}):({k}, 1)
      in W[0, 0, 0] i16({m}, {s}, {k}):({s * k}, {k}, 1)
      out O[0, 0]:assign i16({m}, {x}):({x}, 1)
    ) {{
      block o [m:{m}, x:{x}, s:{s}, k:{k}] (
        in I[{step}*x + s, k] i16(1, 1)  in W[m, s, k] i16(1, 1, 1)  out O[m, x]:add i16(1, 1)
      ) {{
        $i = load(I)
        $w = load(W)
        $p = mul($i, $w)
        O = store($p)
      }}
    }}
    """


@settings(max_examples=12, deadline=None)
@given(
    sizes=st.tuples(*(st.integers(1, 5) for _ in range(4))),
    step=st.integers(1, 3),
    over=st.lists(st.sampled_from(["m", "x", "s", "k"]), min_size=1, max_size=3, unique=True),
)
def test_any_indexes_go_across(sizes: tuple[int, int, int, int], step: int, over: list[str]) -> None:
    x, s, k, m = sizes
    program = program_of(window(x, s, k, m, step))
    result, remarks = check_pass(program, Spread("PE", tuple(over), MEMORIES), ROOMY)
    if result is program:  # what an element uses has gaps
        assert [r.message for r in remarks] == ["not spread: what an element uses of 'I' has gaps"]
        assert step > s and "x" not in over and "s" not in over
    else:
        located = [b for _, b in walk(result.root) if b.location is not None and b.location.unit == "PE"]
        (block,) = located
        assert list(block.ranges) == over


LIMITS = {
    "a border in front": "x + s - 1 >= 0",
    "a ragged end": "3 - x >= 0",
    "both ends": "x - 1 >= 0  3 - x - s >= 0",
    "a triangle": "x - k >= 0",
    "every second": "x + s - 2*k >= 0  2*k - x - s >= 0",
    "of two inputs": "m + x - 2 >= 0  m - k >= 0",
}


def limited(x: int, s: int, k: int, m: int, limits: str) -> str:
    """A window over rows that are padded by one, of which some points are left out."""
    text = window(x, s, k, m).replace(f"k:{k}] (", f"k:{k}] (\n {limits}")
    zeros = (
        f"block zero [m:{m}, x:{x}] (out O[m, x]:assign i16(1, 1)) {{ $z = constant(0) i16  O = store($z) }}"
    )
    text = text.replace("block o", f"{zeros}\n block o")  # some results have no point
    return text.replace("I[1*x + s, k]", "I[x + s - 1, k]") if "x + s - 1" in limits else text


@pytest.mark.parametrize("limits", LIMITS.values(), ids=list(LIMITS))
@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(*(st.integers(2, 5) for _ in range(4))),
    over=st.lists(st.sampled_from(["m", "x", "s", "k"]), min_size=1, max_size=3, unique=True),
)
def test_points_may_be_limited(limits: str, sizes: tuple[int, int, int, int], over: list[str]) -> None:
    program = program_of(limited(*sizes, limits))
    result, remarks = check_pass(program, Spread("PE", tuple(over), MEMORIES), ROOMY)
    if result is program:
        assert [r.message for r in remarks] == [
            "not spread: its limits leave no one set of points that affine constraints describe"
        ]
        assert "2*k" in limits
        return
    (block,) = [b for _, b in walk(result.root) if b.location is not None and b.location.unit == "PE"]
    assert list(block.ranges) == over


def test_an_element_gets_the_cells_that_its_points_use() -> None:
    """Rows in front of the picture are not there: the element of x = 0 and s = 0 has nothing to do."""
    result = spread(program_of(limited(3, 2, 4, 2, "x + s - 1 >= 0")), "s", "x")
    _, deal, _, work, summed = result.root.children
    assert (deal.name, work.name, summed.name) == ("I_deal", "o", "O_sum")
    for block in (deal, work.children[0], summed):
        assert [str(c.expr) for c in block.constraints] == ["s + x - 1"]
    assert work.ranges == {"s": 2, "x": 3} and not work.constraints
    (inner,) = work.children  # no first point of its own: all are added up
    assert inner.refinement("O").aggregation is Aggregation.ADD


def test_limits_by_indexes_of_blocks_around() -> None:
    text = """
    block main [] (in I[0, 0] i16(10, 4)  in W[0, 0] i16(2, 4)  out O[0, 0]:assign i16(2, 10)) {
      block t [xt:3] (in I[4*xt, 0] i16(4, 4)  in W[0, 0] i16(2, 4)  out O[0, 4*xt]:assign i16(2, 4)) #tiled {
        block o [m:2, x:4, k:4, xo = 4*xt] (
          9 - x - xo >= 0
          in I[x, k] i16(1, 1)  in W[m, k] i16(1, 1)  out O[m, x]:add i16(1, 1)
        ) {
          $i = load(I)
          $w = load(W)
          $p = mul($i, $w)
          O = store($p)
        }
      }
    }
    """
    for over in (("x",), ("m", "x"), ("k",)):
        result, remarks = check_pass(program_of(text), Spread("PE", over, MEMORIES), ROOMY)
        assert any(r.acted for r in remarks), remarks
        found = {
            b.name: [i.name for i in b.indexes if i.passed is not None]
            for _, b in walk(result.root)
            if b.constraints
        }
        assert found.keys() >= {"I_deal", "o"} and len(found) >= 3
        assert all("xo" in passed for passed in found.values())


def spread(program: Program, *over: str, hw: Any = HW, **memories: str) -> Program:
    records = {"main/o": Spatial(over, memories or dict(zip("IWO", MEMORIES, strict=True)))}
    context = PassContext(hw, Spread.name, given=Given(records, place="at $.pipeline[0].choices"))
    return Spread("PE").run(program, context)


REFUSED: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "an unknown index": (("q",), {}, "it has no index 'q'"),
    "an index twice": (("x", "x"), {}, "each index is named once"),
    "none": ((), {}, "each index is named once, and one at least"),
    "too many elements": (("m", "x", "k"), {}, "9 m * 7 x * 4 k are 252 elements, of 168 PE: 84 too many"),
    "an unknown operand": (("x",), {"J": "ISPAD"}, "it has no operand 'J'"),
    "an operand without a memory": (("x",), {"I": "ISPAD"}, "no memory is given for 'W'"),
    "a shared memory": (
        ("x",), {"I": "GLB", "W": "WSPAD", "O": "PSPAD"}, "'GLB' is no memory of which each PE has one",
    ),
    "too much for an element": (
        ("x", "m"), {}, "a PE needs 24 of 20 bytes of ISPAD: 4 too many",
    ),
    "nobody adds up": (
        ("x", "s"), {"I": "ISPAD", "W": "WSPAD", "O": "WSPAD"},
        "no unit but PE reaches WSPAD and does what 'O_sum' does",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_is_refused(name: str) -> None:
    over, memories, said = REFUSED[name]
    less = (msgspec.structs.replace(m, bytes=20) if m.name == "ISPAD" else m for m in HW.memories)
    hw = msgspec.structs.replace(HW, memories=tuple(less))
    program = program_of(window(7, 3, 4, 9))
    with pytest.raises(CompileError) as error:
        spread(program, *over, hw=hw, **memories)
    assert "error[P009]: spread: the choice for 'main/o' can't be made" in str(error.value)
    assert said in str(error.value) and '$.pipeline[0].choices["main/o"]' in str(error.value)


def test_the_unit_that_serves_them_is_given() -> None:
    """Both units of the networks reach the sums, where nothing is added up."""
    wide = msgspec.structs.replace(HW, units=(*HW.units, msgspec.structs.replace(HW.units[4], name="OUT")))
    program = program_of(window(7, 3, 1, 2))
    record = Spatial(("x",), dict(zip("IWO", MEMORIES, strict=True)), {"O": "OUT"})
    for by in ({"O": "OUT"}, {}):
        context = PassContext(wide, given=Given({"main/o": msgspec.structs.replace(record, by=by)}))
        made = Spread("PE").run(program, context)
        (out,) = (b for b in made.root.children if b.name == "O_out")
        assert out.location is not None and out.location.unit == by.get("O", HW.units[4].name)
        said = context.choices["main/o"]
        assert isinstance(said, Spatial)
        assert said.by == {"I": "INOC", "O": out.location.unit}, "one unit alone reaches the memory of W"
    wrong = Given({"main/o": msgspec.structs.replace(record, by={"O": "WNOC"})}, place="at $.choices")
    with pytest.raises(CompileError, match=r"WNOC is no unit that reaches PSPAD(.|\n)*\.by\.O"):
        Spread("PE").run(program, PassContext(wide, given=wrong))


def test_a_stencil_may_add_up() -> None:
    """A unit without operations whose one stencil is a column of three elements beside each other."""
    rule = Stencil(
        "column", "COLUMNS", "acc += x", {"r": 3, "q": 2}, {"x": ("r", "q"), "acc": ("q",)},
        {"x": "i16", "acc": "i16"}, stride={"x": {"q": 1}},
    )  # fmt: skip
    units = (
        msgspec.structs.replace(u, operations=()) if u.name == "COLUMNS" else u
        for u in ROOMY.units
        if u.name != "VPU"
    )
    hw = msgspec.structs.replace(ROOMY, units=tuple(units), stencils=(rule,))
    program = program_of(window(1, 3, 4, 2))
    made = spread(program, "s", "m", hw=hw)
    (total,) = (b for b in made.root.children if b.name == "O_sum")
    assert total.location is not None and total.location.unit == "COLUMNS"
    with pytest.raises(CompileError, match="no unit but PE reaches PSPAD and does what 'O_sum' does"):
        spread(program, "m", "s", hw=hw)


def test_with_tiles_the_elements_are_enough() -> None:
    """What the help of too many elements says."""
    text = "function (I[X, K], W[M, K]) -> (O) { O[m, x : M, X] = +(I[x, k] * W[m, k]); }"
    shapes = {"I": "i16[14,4]", "W": "i16[24,4]"}
    over: dict[str, Any] = {
        "over": ["m", "x"],
        "memories": dict(zip("IWO", MEMORIES, strict=True)),
    }
    steps: list[dict[str, Any]] = [
        {"pass": "canonicalize"},
        {"pass": "spread", "unit": "PE", "choices": {"main/O": over}},
    ]
    with pytest.raises(CompileError, match=r"336 elements, of 168 PE(.|\n)*tile these indexes first"):
        stripec.compile(text, shapes, _target(steps))
    tiles = {"pass": "autotile", "memory": "NET", "choices": {"main/O": {"sizes": {"m": 12}}}}
    steps[1:] = [tiles, {"pass": "spread", "unit": "PE", "choices": {"main/O/O": over}}]
    steps += [{"pass": "transfer", "memory": memory} for memory in ("GLB", "NET")]
    steps += [{"pass": "schedule"}, {"pass": "place"}]
    kernel = stripec.compile(text, shapes, _target(steps))
    rng = np.random.default_rng(0)
    i, w = rng.integers(-9, 9, (14, 4)).astype(np.int16), rng.integers(-9, 9, (24, 4)).astype(np.int16)
    np.testing.assert_array_equal(kernel(i, w), w @ i.T)


def _target(steps: list[dict[str, Any]]) -> Any:
    found = tuple(PassStep(s["pass"], {k: v for k, v in s.items() if k != "pass"}) for s in steps)
    return msgspec.structs.replace(HW, pipeline=found)


def test_other_blocks_stay() -> None:
    text = window(7, 3, 4, 2)
    with pytest.raises(CompileError, match="it runs on VPU already"):
        spread(program_of(text.replace("k:4] (", "k:4] @VPU (")), "x")


def test_sums_of_narrow_floats_are_not_cut() -> None:
    program = program_of(window(7, 3, 4, 2).replace("i16", "f16"))
    with pytest.raises(CompileError, match="partial sums would be rounded to f16"):
        spread(program, "x")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unit": "COLUMNS"}, "has no several units 'COLUMNS' that compute"),
        ({"unit": "PE", "over": ["x"]}, "'over' and 'memories' go together; 'memories' is empty"),
    ],
)
def test_options_that_can_not_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CompileError, match="P190") as error:
        check_pipeline(_target([{"pass": "spread", **options}]))
    assert said in str(error.value)


def test_in_the_pipeline_of_a_file(tmp_path: Path) -> None:
    """A target may have choices in its own pipeline."""
    file = tmp_path / "own.json"
    record = {"over": ["x"], "memories": {"A": "ISPAD", "B": "PSPAD"}}
    file.write_text(
        json.dumps(
            {
                "extends": "eyeriss_like", "name": "own", "description": "a pipeline with choices",
                "pipeline": [
                    {"pass": "canonicalize"},
                    {"pass": "spread", "unit": "PE", "choices": {"main/B": record}},
                    {"pass": "transfer", "memory": "GLB"}, {"pass": "place"},
                ],
            }
        )
    )  # fmt: skip
    text = "function (A[X]) -> (B) { B[x : X] = =(A[x] * A[x]); }"
    with pytest.raises(CompileError, match=r"P009(.|\n)*\$\.pipeline\[1\]\.choices"):
        stripec.compile(text, {"A": "i16[200]"}, file)
    kernel = stripec.compile(text, {"A": "i16[20]"}, file)
    np.testing.assert_array_equal(kernel(np.arange(20, dtype=np.int16)), np.arange(20) ** 2)


def test_a_padded_window_on_the_chip() -> None:
    """Compiled, run and counted twice: elements at the border do less, and nobody reads what is not there."""
    text = "function (I[X, C], W[M, S, C]) -> (O) { O[m, x : M, X] = +(I[x + s - 1, c] * W[m, s, c]); }"
    shapes = {"I": "i16[10,4]", "W": "i16[6,3,4]"}
    over = {"main/O": {"over": ["s", "x"], "memories": dict(zip("IWO", MEMORIES, strict=True))}}
    steps: list[dict[str, Any]] = [
        {"pass": "canonicalize"},
        {"pass": "spread", "unit": "PE", "choices": over},
    ]
    steps += [{"pass": "transfer", "memory": memory} for memory in ("GLB", "NET")]
    steps += [{"pass": "schedule"}, {"pass": "place"}]
    target = _target(steps)
    rng = np.random.default_rng(0)
    i, w = rng.integers(-9, 9, (10, 4)).astype(np.int16), rng.integers(-9, 9, (6, 3, 4)).astype(np.int16)
    padded = np.pad(i, ((1, 1), (0, 0)))
    wanted = sum(w[:, s] @ padded[s : s + 10].T for s in range(3))
    np.testing.assert_array_equal(stripec.compile(text, shapes, target)(i, w), wanted)
    found = stripec.simulate(text, shapes=shapes, target=target)
    assert found.counts == "both"
    (work,) = [b for b in found.blocks if b.unit == "PE"]
    assert work.points == (3 * 10 - 2) * 6 * 4
    given = sum(t.words_written for t in found.traffic if t.memory == "ISPAD")
    assert given == (3 * 10 - 2) * 4


def test_a_leaf_that_the_options_do_not_fit_says_why() -> None:
    """It has the indexes that go across, but another number of operands, or a unit already."""
    program = program_of(window(4, 3, 2, 2))
    _, (remark,) = check_pass(program, Spread("PE", ("x",), MEMORIES[:2]), ROOMY)
    assert remark.block == "main/o"
    assert remark.message == "not spread: it has 3 operands, and the options name memories for 2"
    placed = program_of(window(4, 3, 2, 2).replace("s:3, k:2] (", "s:3, k:2] @PE[0] ("))
    _, (remark,) = check_pass(placed, Spread("PE", ("x",), MEMORIES), ROOMY)
    assert remark.message == "not spread: it runs on PE already"
    _, remarks = check_pass(program, Spread("PE", ("q",), MEMORIES[:2]), ROOMY)
    assert not remarks, "nothing is said of blocks without the indexes that go across"


def test_a_leaf_of_the_options_may_be_left() -> None:
    program, context = program_of(window(4, 3, 2, 2)), PassContext(ROOMY, given=Given({}))
    assert Spread("PE", ("x",), MEMORIES).run(program, context) is program
    assert [r.message for r in context.remarks] == ["left as it is: no choice is given for it"]
