"""Choices that are given to the passes which lay data out for instructions: stencil-pack, convert, transpose,
vectorize, unroll and boundary. What they say they chose gives the same program on a target where they would
choose otherwise; another record gives another program that computes the same; no record, none."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.base import Pass, PassContext
from stripe.passes.boundary import Boundary
from stripe.passes.choices import choices_json, read_given
from stripe.passes.convert import Convert
from stripe.passes.kernels import run_pass
from stripe.passes.stencil_pack import StencilPack
from stripe.passes.transpose import Transpose
from stripe.passes.unroll import Unroll
from stripe.passes.vectorize import Vectorize
from stripe.printer import to_text
from stripe.verify import verify
from tests.support.meaning import assert_same_meaning
from tests.support.passes import program_of

PLACE = "at $.pipeline[0].choices"
VNNI = load_named("x86_64_avx512_vnni")
Records = dict[str, object]


def _core(hw: HwConfig, **fields: object) -> HwConfig:
    """A target whose first unit differs."""
    first, *others = hw.units
    return msgspec.structs.replace(hw, units=(msgspec.structs.replace(first, **fields), *others))


def _memories(hw: HwConfig, **fields: object) -> HwConfig:
    changed = (msgspec.structs.replace(m, **fields) if m.kind != "registers" else m for m in hw.memories)
    return msgspec.structs.replace(hw, memories=tuple(changed))


def _product(x: str, y: str, wide: str, m: int, n: int, k: int) -> str:
    return f"""
    block main [] (
      in A[0, 0] {x}({m}, {k}):({k}, 1)
      in B[0, 0] {y}({k}, {n}):({n}, 1)
      out C[0, 0]:assign {wide}({m}, {n}):({n}, 1)
    ) {{
      block C [m:{m}, n:{n}, k:{k}] (
        in A[m, k] {x}(1, 1)
        in B[k, n] {y}(1, 1)
        out C[m, n]:add {wide}(1, 1)
      ) {{
        $a = load(A)
        $b = load(B)
        $x = cast($a) {wide}
        $y = cast($b) {wide}
        $p = mul($x, $y) {wide}
        C = store($p)
      }}
    }}
    """


TURNED = """
    block main [] (in X[0, 0] f32(64, 48):(48, 1)  out Y[0, 0]:assign f32(48, 64):(64, 1)) {
      block o [n:48, m:64] (in X[m, n] f32(1, 1)  out Y[n, m]:assign f32(1, 1)) {
        $x = load(X)
        Y = store($x)
      }
    }
    """
PAIRS = """
    block main [] (in X[0, 0] bf16(64, 96):(96, 1)  out Y[0, 0, 0]:assign bf16(48, 64, 2):(128, 2, 1)) {
      block o [k:48, n:64, p:2] (in X[n, 2*k + p] bf16(1, 1)  out Y[k, n, p]:assign bf16(1, 1, 1)) {
        $x = load(X)
        Y = store($x)
      }
    }
    """
SUMS = """
    block main [] (in A[0, 0] f32(16, 32):(32, 1)  in B[0, 0] f32(32, 16):(16, 1)
                   out C[0, 0]:assign f32(16, 16):(16, 1)) {
      block t [i:4] (in A[4*i, 0] f32(4, 32)  in B[0, 0] f32(32, 16)  out C[4*i, 0]:assign f32(4, 16)
                     new S f32(4, 16):(16, 1) @REG) #tiled {
        block s [m:4, n:16, k:32] (in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out S[m, n]:add f32(1, 1)) {
          $a = load(A)
          $b = load(B)
          $p = mul($a, $b) f32
          S = store($p)
        }
        block c [m:4, n:16] (in S[m, n] f32(1, 1)  out C[m, n]:assign f32(1, 1)) {
          $s = load(S)
          C = store($s)
        }
      }
    }
    """
WINDOW = """
    block main [] (in I[0, 0] f32(13, 24):(24, 1)  in F[0, 0] f32(8, 8):(8, 1)
                   out O[0, 0]:assign f32(6, 16):(16, 1)) {
      block t [] (in I[0, 0] f32(13, 24)  in F[0, 0] f32(8, 8)  out O[0, 0]:assign f32(6, 16)
                  new S f32(6, 16):(16, 1) @REG) #tiled {
        block s [r:8, s:8, y:6, x:16] (in I[y + r, x + s] f32(1, 1)  in F[r, s] f32(1, 1)
                                       out S[y, x]:add f32(1, 1)) #vector=x {
          $i = load(I)
          $f = load(F)
          $p = mul($i, $f) f32
          S = store($p)
        }
        block o [y:6, x:16] (in S[y, x] f32(1, 1)  out O[y, x]:assign f32(1, 1)) #vector=x {
          $s = load(S)
          O = store($s)
        }
      }
    }
    """
TILES = """
    block main [] (in A[0, 0] f32(512, 64):(64, 1)  in B[0, 0] f32(64, 512):(512, 1)
                   out C[0, 0]:assign f32(512, 512):(512, 1)  new S f32(512, 512):(512, 1)) {
      block s [n:64, m:512] (in A[m, 0] f32(1, 64)  in B[0, 8*n] f32(64, 8)  out S[m, 8*n]:assign f32(1, 8))
      #tiled {
        block s [k:64, j:8] (in A[0, k] f32(1, 1)  in B[k, j] f32(1, 1)  out S[0, j]:add f32(1, 1)) {
          $a = load(A)
          $b = load(B)
          $p = mul($a, $b) f32
          S = store($p)
        }
      }
      block c [m:512, n:512] (in S[m, n] f32(1, 1)  out C[m, n]:assign f32(1, 1)) {
        $s = load(S)
        C = store($s)
      }
    }
    """
ORDERED = """
    block main [] (in X[0, 0] f32(64, 48):(48, 1)  out Y[0]:assign f32(48):(1)  new S f32(48, 64):(64, 1)) {
      block s [n:48, m:64] (in X[m, n] f32(1, 1)  out S[n, m]:assign f32(1, 1)) {
        $x = load(X)
        S = store($x)
      }
      block y [n:48, m:64] (in S[n, m] f32(1, 1)  out Y[n]:add f32(1)) {
        $s = load(S)
        Y = store($s)
      }
    }
    """
BORDERS = """
    block main [] (in I[0, 0] f32(30, 8):(8, 1)  in F[0] f32(3):(1)  out O[0, 0]:assign f32(30, 8):(8, 1)) {
      block o [x:30, c:8, s:3] (-1 + x + s >= 0  30 - x - s >= 0  in I[x + s - 1, c] f32(1, 1)
                                in F[s] f32(1)  out O[x, c]:add f32(1, 1)) {
        $i = load(I)
        $f = load(F)
        $p = mul($i, $f) f32
        O = store($p)
      }
    }
    """


@dataclass(frozen=True)
class Case:
    """A step on a program and a target, another target for which it would choose otherwise, what it says it
    chose, and a record of another choice."""

    step: Pass
    text: str
    hw: HwConfig
    other: HwConfig
    chosen: Records
    edited: Records


CASES = {
    "stencil-pack": Case(
        StencilPack(), _product("i8", "i8", "i32", 24, 64, 40), VNNI, _core(VNNI, fma_per_cycle=1e6),
        {"main/C": {"stencil": "vpdpbusd_turned", "indexes": {"j": "n", "p": "k"}, "shift": ["y"]}},
        {"main/C": {"stencil": "vpdpbusd", "indexes": {"j": "m", "p": "k"}, "shift": ["x"]}},
    ),
    "stencil-pack-sums": Case(
        StencilPack(), _product("u8", "i8", "i32", 24, 3, 1024), VNNI, _core(VNNI, fma_per_cycle=1e6),
        {"main/C": {"stencil": "vpdpbusd", "indexes": {"p": "k"}}},
        {"main/C": {"stencil": "vpdpbusd", "indexes": {"j": "n", "p": "k"}}},
    ),
    "convert": Case(
        Convert(), _product("f16", "f16", "f32", 64, 64, 64), VNNI, _memories(VNNI, bytes_per_cycle=1e-3),
        {"main/C": {"buffers": ["A", "B"]}},
        {"main/C": {"buffers": ["B"]}},
    ),
    "vectorize": Case(
        Vectorize(), TURNED, VNNI, _core(VNNI, vector_bytes=4),
        {"main/o": {"index": "m", "across": "n"}},
        {"main/o": {"index": "n"}},
    ),
    "vectorize-words": Case(
        Vectorize(), PAIRS, VNNI, _core(VNNI, vector_bytes=4),
        {"main/o": {"index": "n", "across": "k", "group": "p"}},
        {"main/o": {"index": "k", "group": "p"}},
    ),
    "vectorize-registers": Case(
        Vectorize(), SUMS, VNNI, VNNI,
        {"main/t/s": {"index": "n"}, "main/t/c": {"index": "n"}},
        {"main/t/s": {"index": "m"}, "main/t/c": {"index": "n"}},
    ),
    "unroll": Case(
        Unroll(), WINDOW, VNNI, _core(VNNI, loads_per_cycle=100.0),
        {"main/t/s": {"indexes": ["y", "x"], "pieces": {"r": 8}}, "main/t/o": {"indexes": ["y", "x"]}},
        {"main/t/s": {"indexes": ["x"], "pieces": {"s": 2}}, "main/t/o": {"indexes": ["y", "x"]}},
    ),
    "transpose-copies": Case(
        Transpose(), TILES, VNNI, _core(VNNI, fma_per_cycle=1e-3),
        {"main/s": {"copies": [{"reader": "s", "view": "B", "panels": True}]}},
        {"main/s": {"copies": [{"reader": "s/s", "view": "B", "order": [1, 0], "depth": 1}]}},
    ),
    "transpose-orders": Case(
        Transpose(), ORDERED, VNNI, _core(VNNI, vector_bytes=4),
        {"main": {"orders": {"S": [1, 0]}}},
        {"main/s": {"copies": [{"reader": "s", "view": "X", "order": [1, 0]}]}},
    ),
    "boundary": Case(
        Boundary(), BORDERS, VNNI, VNNI,
        {"main/o": {"splits": [{"path": [0], "index": "x", "at": 1}, {"path": [1], "index": "x", "at": 28}]}},
        {"main/o": {"splits": [{"path": [0], "index": "s", "at": 1}]}},
    ),
}  # fmt: skip
differ = pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.other is not case.hw])
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def run(step: Pass, text: str, hw: HwConfig, records: Records | None) -> tuple[Program, Records]:
    given = None if records is None else read_given(step.name, type(step).choice, records, "leave", PLACE)
    context = PassContext(hw, step.name, given=given)
    program = program_of(text)
    made = run_pass(step, program, context)
    if given is not None:
        given.check_taken(
            step.name, context.taken, ["main", *(f"main/{b.name}" for b in program.root.children)]
        )
    if made is not program:
        verify(made, hw)
    return made, choices_json(context.choices)


@cases
def test_what_was_chosen_is_said_and_comes_back(case: Case) -> None:
    made, said = run(case.step, case.text, case.hw, None)
    assert said == case.chosen
    again, repeated = run(case.step, case.text, case.other, said)
    assert to_text(again) == to_text(made)
    assert repeated == said


@differ
def test_the_other_target_would_choose_otherwise(name: str) -> None:
    case = CASES[name]
    assert run(case.step, case.text, case.other, None)[1] != case.chosen


@cases
def test_another_choice_is_another_program(case: Case) -> None:
    program = program_of(case.text)
    made, said = run(case.step, case.text, case.hw, case.edited)
    assert said == case.edited
    assert to_text(made) != to_text(run(case.step, case.text, case.hw, None)[0])
    assert made != program
    assert_same_meaning(program, made, np.random.default_rng(0))


def test_loops_inside_which_a_copy_is_made_go_outermost() -> None:
    """B depends on n alone: with m outside, the copy inside n exchanges the two."""
    text = TILES.replace("block s [n:64, m:512]", "block s [m:512, n:64]")
    records: Records = {"main/s": {"copies": [{"reader": "s", "view": "B", "loops": ["n"]}]}}
    made, said = run(Transpose(), text, VNNI, records)
    assert said == records
    kernel = made.root.children[0]
    assert [list(block.ranges) for block in (kernel, kernel.children[-1])] == [["n"], ["m"]]
    assert_same_meaning(program_of(text), made, np.random.default_rng(0))


@cases
def test_without_a_record_nothing_is_done(case: Case) -> None:
    made, said = run(case.step, case.text, case.hw, {})
    assert made == program_of(case.text)
    assert said == {}


def _copy(**fields: object) -> Records:
    return {"main/s": {"copies": [{"reader": "s", "view": "B", "panels": True} | fields]}}


def _split(**fields: object) -> Records:
    return {"main/o": {"splits": [{"path": [0], "index": "x", "at": 1} | fields]}}


def _use(**fields: object) -> Records:
    return {"main/C": {"stencil": "vpdpbusd", "indexes": {"j": "n", "p": "k"}, "shift": ["x"]} | fields}


def _out(**fields: object) -> Records:
    return {"main/t/s": {"indexes": ["y", "x"]} | fields}


ILLEGAL: dict[str, tuple[str, Records, str, str]] = {
    "no such instruction": ("stencil-pack", _use(stencil="vpdp"), "has no instruction 'vpdp'", ".stencil"),
    "indexes that do not fit": (
        "stencil-pack", _use(indexes={"j": "k", "p": "n"}),
        "'vpdpbusd' has no such indexes here, but these: j=n p=k, or j=m p=k", ".indexes",
    ),
    "no shift that it needs": ("stencil-pack", _use(shift=[]), "it is no use of 'vpdpbusd'", ".stencil"),
    "a shift that it does not need": (
        "stencil-pack", _use(shift=["y"]), "does not fit with operand y shifted", ".shift"
    ),
    "a buffer that is not converted": (
        "convert", {"main/C": {"buffers": ["A", "D"]}}, "it has no buffer 'D' of which it uses", ".buffers"
    ),
    "a lane index that there is not": (
        "vectorize", {"main/o": {"index": "z"}}, "it has no index 'z' of several values", ".index"
    ),
    "an index across that there is not": (
        "vectorize", {"main/o": {"index": "m", "across": "z"}}, "it has no index 'z'", ".across"
    ),
    "squares of one index": (
        "vectorize", {"main/o": {"index": "m", "across": "m"}}, "'m' runs along the lanes already", ".across"
    ),
    "squares of sums": (
        "vectorize-registers", {"main/t/s": {"index": "n", "across": "m"}},
        "only where nothing is summed up", ".across",
    ),
    "squares of which no operand has need": (
        "vectorize-registers", {"main/t/c": {"index": "n", "across": "m"}},
        "no operand lies side by side along 'm' and apart along 'n'", ".across",
    ),
    "a loop that there is not": ("unroll", _out(indexes=["z"]), "it has no loop 'z'", ".indexes"),
    "a loop twice": ("unroll", _out(indexes=["y", "y"]), "it names an index twice", ".indexes"),
    "no loop": ("unroll", _out(indexes=[]), "it names no index", ".indexes"),
    "too many statements": (
        "unroll", _out(indexes=["r", "s", "y", "x"]), "1536 statements, more than the limit", ".indexes"
    ),
    "pieces that do not divide": (
        "unroll", _out(pieces={"r": 3}), "r has 8 points, which are no pieces of 3", ".pieces.r"
    ),
    "a piece of what is written out": ("unroll", _out(pieces={"y": 2}), "no loop 'y' is left", ".pieces.y"),
    "two pieces": (
        "unroll", _out(pieces={"r": 2, "s": 2}), "of one index alone a piece is written out", ".pieces.s"
    ),
    "a piece beyond the limit": (
        "unroll", _out(indexes=["s", "y", "x"], pieces={"r": 8}), "8 values are more than", ".pieces.r"
    ),
    "no reader": ("transpose-copies", _copy(reader="t"), "begins with the kernel, 's'", "copies[0].reader"),
    "no reader in it": ("transpose-copies", _copy(reader="s/t"), "'s' has no block 't'", "copies[0].reader"),
    "no view": ("transpose-copies", _copy(view="S"), "it has no view 'S' that a copy", "copies[0].view"),
    "no order": (
        "transpose-copies", _copy(order=[0, 0]), "each dimension from 0 to 1 once", "copies[0].order"
    ),
    "no panels": (
        "transpose-copies", _copy(reader="s/s"), "no index of 's' cuts 'B' into tiles", "copies[0].panels"
    ),
    "too deep": ("transpose-copies", _copy(depth=1), "the reader has 1 blocks, from 0 on", "copies[0].depth"),
    "loops that read nothing again": (
        "transpose-copies", _copy(loops=["x"]), "inside (x) of 's' nothing is read again", ".loops"
    ),
    "an order of another buffer": (
        "transpose-orders", {"main": {"orders": {"X": [1, 0]}}}, "has no buffer 'X' of its own", ".orders.X"
    ),
    "an order of three dimensions": (
        "transpose-orders", {"main": {"orders": {"S": [1, 0, 2]}}}, "each dimension from 0 to 1", ".orders.S"
    ),
    "a part that there is not": (
        "boundary", _split(path=[1]), "the kernel has 1 parts, from 0 on, and not 1", "splits[0].path"
    ),
    "a block that there is not": (
        "boundary", _split(path=[0, 1]), "'o' has 4 statements, and no block at 1", "splits[0].path"
    ),
    "no path": ("boundary", _split(path=[]), "'main' has no loop 'x'", "splits[0].index"),
    "a split of no loop": ("boundary", _split(index="z"), "'o' has no loop 'z'", "splits[0].index"),
    "a split behind the end": (
        "boundary", _split(at=30), "x has 30 points: a split at 30 leaves nothing to split", "splits[0].at"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "records", "said", "where"), ILLEGAL.values(), ids=ILLEGAL)
def test_a_choice_that_cannot_be_made(name: str, records: Records, said: str, where: str) -> None:
    case = CASES[name]
    step = replace(case.step, limit=1000) if isinstance(case.step, Unroll) else case.step
    with pytest.raises(CompileError) as error:
        run(step, case.text, case.hw, records)
    (path,) = records
    text = str(error.value)
    assert text.startswith(f"error[P009]: {step.name}: the choice for '{path}' can't be made: ")
    assert said in text
    assert f'{PLACE}["{path}"]' in text
    assert where in text


def test_a_block_that_has_a_group_may_be_given_it_again() -> None:
    text = PAIRS.replace(") {\n        $x", ") #group=p {\n        $x")
    made, chosen = run(Vectorize(), text, VNNI, None)
    assert chosen == {"main/o": {"index": "n", "across": "k", "group": "p"}}
    assert run(Vectorize(), text, VNNI, chosen)[0] == made


def test_a_group_that_is_no_word_is_a_loop_as_any_other() -> None:
    """Rows of 97 are no whole number of pairs."""
    text = PAIRS.replace(") {\n        $x", ") #group=p {\n        $x").replace(
        "(64, 96):(96", "(64, 97):(97"
    )
    made, chosen = run(Vectorize(), text, VNNI, None)
    assert "group" not in str(chosen)
    assert run(Vectorize(), text, VNNI, chosen)[0] == made
    lanes = run(Vectorize(), text, VNNI, {"main/o": {"index": "p"}})[0].root.children[0]
    assert lanes.tag_values("vector") == ("p",)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"index": "n", "group": "k"}, "it moves no words of elements along 'k'"),
        ({"index": "n", "group": "q"}, "known: p"),
        ({"index": "n", "across": "p", "group": "p"}, "an instruction takes all values of 'p' at once"),
        ({"index": "p", "group": "p"}, "an instruction takes all values of 'p' at once"),
    ],
)
def test_words_that_there_are_not_are_refused(record: dict[str, object], said: str) -> None:
    with pytest.raises(CompileError, match="P009") as raised:
        run(Vectorize(), PAIRS, VNNI, {"main/o": record})
    assert said in str(raised.value)


def test_without_the_instructions_a_choice_of_one_is_refused() -> None:
    case = CASES["stencil-pack"]
    with pytest.raises(CompileError, match=r"P009(.|\n)*has no instruction 'vpdpbusd_turned'"):
        run(case.step, case.text, load_named("x86_64_avx2"), case.chosen)


def test_squares_need_no_unrolling() -> None:
    text = WINDOW.replace("f32(1, 1)) #vector=x", "f32(1, 1)) #across=y #vector=x")
    with pytest.raises(CompileError, match=r"P009(.|\n)*squares are turned there"):
        run(Unroll(), text, VNNI, {"main/t/o": {"indexes": ["y"]}})


def test_lanes_of_two_values_two_apart() -> None:
    text = TURNED.replace("48", "2")
    for record in ({"index": "m", "across": "n"}, {"index": "n", "across": "m"}, {"index": "n"}):
        _, said = run(Vectorize(), text, VNNI, {"main/o": record})
        assert said == {"main/o": record}


def test_kernels_that_are_alike_are_split_alike() -> None:
    """Also where the parts of the first have other names than those of the second."""
    head, kernel = BORDERS.split("block o")
    first = "block o" + kernel.rstrip().removesuffix("}")
    second = first.replace("block o", "block p").replace("out O[x, c]", "out P[x, c]").replace("O =", "P =")
    views = "out P[0, 0]:assign f32(30, 8):(8, 1)) {"
    text = head.replace(") {", f" {views}") + first + second + "}"
    made, said = run(Boundary(), text, VNNI, None)
    assert list(said) == ["main/o", "main/p"]
    assert said["main/o"] == said["main/p"]
    again, _ = run(Boundary(), text, VNNI, said)
    assert to_text(again) == to_text(made)
    del said["main/p"]
    alone, _ = run(Boundary(), text, VNNI, said)
    assert [b.name for b in alone.root.children if b.name.startswith("p")] == ["p"]
