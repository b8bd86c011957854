"""stripe.verify: rules that text can't break, proofs that are kept, and programs that are right.

Each rule that text can break has a file in tests/golden/errors/verify.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwconfigs.model import HwConfig, Memory
from stripe import verify as verify_module
from stripe import verify_effects
from stripe.affine import Affine
from stripe.diag import CompileError
from stripe.dtypes import DType
from stripe.ir import Aggregation, Block, Direction, Index, Load, Location, Program, Refinement, Store
from stripe.parser import parse
from stripe.poly import calls
from stripe.specials import SPECIALS
from stripe.verify import findings, verify
from stripe.verify_specials import _RULES
from tests.support.programs import corpus

GOLDEN = Path(__file__).parents[2] / "golden"
SCALAR_WALK = "block main [] (\n  in X[0] f32(8):(1)\n  out Y[0]:assign f32(8):(1)\n) {\n%s\n}"


def codes(program: Program, hw: HwConfig | None = None) -> list[str]:
    return [finding.code for finding in findings(program, hw)]


def copy_program() -> Program:
    return parse(
        SCALAR_WALK
        % "  block copy [x:8] (in X[x] f32(1) out Y[x]:assign f32(1)) { $x = load(X) Y = store($x) }"
    )


def with_kernel(program: Program, **changes: Any) -> Program:
    (kernel,) = program.root.children
    return replace(program, root=replace(program.root, statements=(replace(kernel, **changes),)))


# -- the list of rules ---------------------------------------------------------------------------


def test_every_rule_is_tested_and_every_code_documented() -> None:
    listed = set(re.findall(r"^  (V\d{3})  ", verify_module.__doc__ or "", re.MULTILINE))
    by_hand = {"V011", "V014", "V900"}  # below: text can't say these
    files = (GOLDEN / "errors" / "verify").glob("*.stripe")
    golden = {code for file in files for code in re.findall(r"// error: (V\d{3})", file.read_text("utf-8"))}
    assert listed == golden | by_hand


def test_codes_with_a_witness_pin_it() -> None:
    witnessed = re.compile(r"// error: (V044|V045|V046|V050|V051|V052|V060|V061|V062|V063|V064|V065)(?! +\S)")
    for file in (GOLDEN / "errors" / "verify").glob("*.stripe"):
        assert not witnessed.search(file.read_text("utf-8")), f"{file.name}: say what the message holds"


def test_every_code_that_the_verifier_gives_is_listed() -> None:
    listed = set(re.findall(r"^  (V\d{3})  ", verify_module.__doc__ or "", re.MULTILINE))
    sources = [*Path(verify_module.__file__).parent.glob("verify*.py")]
    given = {code for file in sources for code in re.findall(r'"(V\d{3})"', file.read_text("utf-8"))}
    assert given <= listed


def test_every_code_of_the_text_form_has_a_golden_file() -> None:
    folder = Path(verify_module.__file__).parent
    sources = [folder / name for name in ("parser.py", "reading.py", "lexing.py", "infer.py")]
    given = {code for file in sources for code in re.findall(r"\bS\d{3}\b", file.read_text("utf-8"))}
    files = (GOLDEN / "errors" / "text").glob("*.stripe")
    golden = {code for file in files for code in re.findall(r"// error: (S\d{3})", file.read_text("utf-8"))}
    assert given == golden


def test_every_special_has_its_rule() -> None:
    assert set(_RULES) == set(SPECIALS)


@pytest.mark.parametrize(
    "change",
    [
        {"indexes": (Index("x", -1),)},
        {"inflight": 0},
        {"indexes": (Index("x", 8), Index("p", 2, Affine(0)))},
        {"refinements": (Refinement(Direction.NEW, "T", (-2,), DType.F32, strides=(1,)),), "statements": ()},
    ],
)
def test_sizes_are_not_negative(change: dict[str, object]) -> None:
    assert codes(with_kernel(copy_program(), **change)) == ["V011"]


def test_a_new_buffer_has_no_source() -> None:
    new = Refinement(Direction.NEW, "T", (2,), DType.F32, "X", (Affine(),), strides=(1,))
    program = copy_program()
    refs = (*program.root.children[0].refinements, new)
    assert codes(with_kernel(program, refinements=refs)) == ["V014"]


def test_names_are_identifiers() -> None:
    assert codes(with_kernel(copy_program(), name="a block")) == ["V001"]


@pytest.fixture
def few_operations() -> Iterator[None]:
    calls.CONTEXT.set_max_operations(20)
    yield
    calls.CONTEXT.set_max_operations(calls.MAX_OPERATIONS)


def test_a_question_that_is_too_hard_is_a_finding(few_operations: None) -> None:
    program = parse(
        SCALAR_WALK
        % """  block copy [x:9, y:9] (7 - x - y >= 0 x - y >= 0 in X[2*y] f32(1) out Y[x]:add f32(1)) {
    $x = load(X) Y = store($x)
  }"""
    )
    found = findings(program)
    assert [f.code for f in found] == ["V900"]
    assert "block main" in found[0].message


def test_verify_raises_all_findings_at_once() -> None:
    program = parse(
        SCALAR_WALK % "  block copy [x:8] (in X = Z[x] f32(1) out Y[z]:assign f32(1)) { Y = store($q) }"
    )
    with pytest.raises(CompileError) as error:
        verify(program)
    assert [d.code for d in error.value.diagnostics] == ["V002", "V003", "V020"]
    verify(copy_program())


# -- figure 5 of the paper -------------------------------------------------------------------------


def figure(name: str) -> Program:
    text = (GOLDEN / "text" / f"{name}.stripe").read_text("utf-8")
    return parse(text.split("// ---- expect")[0])


def test_figure_5a_as_printed_leaves_cells_unwritten() -> None:
    (found,) = findings(figure("figure_5a_printed"))
    assert found.code == "V052"
    assert "element [0, 13, 0]" in found.message


@pytest.mark.parametrize("name", ["figure_5a", "figure_5b"])
def test_figure_5_corrected_is_right(name: str) -> None:
    assert findings(figure(name)) == ()


# -- programs that are right -------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(corpus()))
def test_the_corpus_is_right(name: str) -> None:
    assert findings(corpus()[name]) == ()


RIGHT = {
    "a fill, then a sum of a part": """
  block fill [x:8] (out Y[x]:assign f32(1)) { $z = constant(0.0) f32 Y = store($z) }
  block sum [x:4, k:3] (in X[x] f32(1) out Y[2*x]:add f32(1)) { $x = load(X) Y = store($x) }""",
    "blocks that cover the output together": """
  block low [x:3] (in X[x] f32(1) out Y[x]:assign f32(1)) { $x = load(X) Y = store($x) }
  block high [x:3] (in X[x] f32(1) out Y[2*x + 3]:assign f32(1)) { $x = load(X) Y = store($x) }
  block rest [x:2] (in X[x] f32(1) out Y[2*x + 4]:assign f32(1)) { $x = load(X) Y = store($x) }""",
    "tiles that overhang, under a constraint": """
  block tiles [t:3] (in X[3*t] f32(3) out Y[3*t]:assign f32(3)) {
    block copy [x:3, to = 3*t] (7 - to - x >= 0 in X[x] f32(1) out Y[x]:assign f32(1)) {
      $x = load(X) Y = store($x)
    }
  }""",
    "a tile of a buffer with its halo": """
  block tiles [t:4] (in X[2*t - 1] f32(4) out Y[2*t]:assign f32(2) new T f32(4)) {
    block make [x:4, to = 2*t] (to + x - 1 >= 0 8 - to - x >= 0 in X[x] f32(1) out T[x]:assign f32(1)) {
      $x = load(X) T = store($x)
    }
    block use [x:2, i:3, to = 2*t] (
      to + x + i - 1 >= 0 8 - to - x - i >= 0 in T[x + i] f32(1) out Y[x]:add f32(1)
    ) { $x = load(T) Y = store($x) }
  }""",
    "an inner assign below a sum": """
  block outer [k:2] (in X[0] f32(8) out Y[0]:add f32(8)) {
    block inner [x:8] (in X[x] f32(1) out Y[x]:assign f32(1)) { $x = load(X) Y = store($x) }
  }""",
    "an outer assign over an inner sum": """
  block outer [x:4] (in X[2*x] f32(2) out Y[2*x]:assign f32(2)) {
    block inner [i:2, k:5] (in X[i] f32(1) out Y[i]:add f32(1)) { $x = load(X) Y = store($x) }
  }""",
    "replacing in place through two refinements": """
  block copy [x:8] (in X[x] f32(1) out Y[x]:assign f32(1)) { $x = load(X) Y = store($x) }
  block negate [x:8] (in Old = Y[x] f32(1) out Y[x]:assign f32(1)) {
    $x = load(Old) $y = neg($x) Y = store($y)
  }""",
    "even and odd elements through two refinements": """
  block both [x:4] (in X[x] f32(1) out Even = Y[2*x]:assign f32(1) out Odd = Y[2*x + 1]:assign f32(1)) {
    $x = load(X) Even = store($x) Odd = store($x)
  }""",
    "an access beyond the buffer in a block that never runs": """
  block copy [x:8] (in X[x] f32(1) out Y[x]:assign f32(1)) { $x = load(X) Y = store($x) }
  block never [x:0] (in X[99] f32(1) out Y[99]:assign f32(1)) { $x = load(X) Y = store($x) }
  block nor [x:4] (x - 4 >= 0 in X[99] f32(1) out Y[99]:assign f32(1)) { $x = load(X) Y = store($x) }""",
}


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_right_programs_are_accepted(name: str) -> None:
    assert [f.message for f in findings(parse(SCALAR_WALK % RIGHT[name]))] == []


def test_an_empty_output_needs_no_writer() -> None:
    assert codes(parse("block main [] (out Y[0]:assign f32(0):(1)) {\n}")) == []


# -- cost -----------------------------------------------------------------------------------------


def test_a_kernel_that_did_not_change_is_not_proved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = copy_program()
    extra = Refinement(Direction.NEW, "T", (2,), DType.F32, strides=(1,))
    wider = replace(program, root=replace(program.root, refinements=(*program.root.refinements, extra)))
    verify(program)
    made: list[str] = []
    original = verify_effects.Effects.__init__

    def counted(
        self: verify_effects.Effects, block: Block, children: dict[int, verify_effects.Effects]
    ) -> None:
        made.append(block.name)
        original(self, block, children)

    monkeypatch.setattr(verify_effects.Effects, "__init__", counted)
    verify(program)
    verify(wider)
    assert made == ["main"]


def test_surroundings_are_part_of_a_proof() -> None:
    """The same kernel object is right in one program and reads beyond the buffer in another."""
    program = copy_program()
    assert codes(program) == []
    shorter = tuple(replace(ref, shape=(7,)) if ref.name == "X" else ref for ref in program.root.refinements)
    assert codes(replace(program, root=replace(program.root, refinements=shorter))) == ["V050"]


def test_deep_nests_need_no_deep_stack() -> None:
    views = (
        Refinement(Direction.IN, "X", (1,), DType.F32, "X", (Affine(),)),
        Refinement(Direction.OUT, "Y", (1,), DType.F32, "Y", (Affine(),), Aggregation.ASSIGN),
    )
    block = Block("b", refinements=views, statements=(Load("x", "X", DType.F32), Store("Y", "x")))
    for _ in range(300):
        block = Block("b", refinements=views, statements=(block,))
    signature = tuple(replace(ref, strides=(1,)) for ref in views)
    assert codes(Program(Block("main", refinements=signature, statements=(block,)))) == []


def test_long_blocks_take_time_in_proportion() -> None:
    lines = [line for n in range(1500) for line in (f"T = store($v{n})", f"$v{n + 1} = load(T) f32")]
    text = "block main [] (\n  out Y[]:assign f32():()\n  new T f32():()\n) {\n"
    text += "$v0 = constant(1.0) f32\n" + "\n".join(lines) + "\nY = store($v1500)\n}"
    program = parse(text)
    started = time.process_time()
    assert codes(program) == []
    assert time.process_time() - started < 10


# -- the target --------------------------------------------------------------------------------------


def test_capacity_counts_the_nest_and_the_points_in_flight() -> None:
    def program(inflight: int) -> Program:
        text = SCALAR_WALK % (
            """  block tiles [t:2] (in X[4*t] f32(4) out Y[4*t]:assign f32(4) new T f32(4) @NEAR) {
    block copy [x:4] (in X[x] f32(1) out Y[x]:assign f32(1) new S f32(1) @NEAR) { $x = load(X) Y = store($x) }
    block skip [x:0] (new S f32(2) @NEAR) { }
  }"""
        )
        return with_kernel(parse(text), inflight=inflight)

    def target(size: int) -> HwConfig:
        return HwConfig("t", "", "cpu", memories=(Memory("NEAR", "registers", size),))

    assert codes(program(1), target(24)) == []  # 4 + 2 floats: statements run one at a time
    assert codes(program(1), target(23)) == ["V037"]
    assert codes(program(2), target(48)) == []
    assert codes(program(2), target(47)) == ["V037"]
    assert codes(program(2)) == []


def test_locations_are_checked_against_the_target_only() -> None:
    program = with_kernel(copy_program(), location=Location("GPU"))
    assert codes(program) == []
    assert codes(program, HwConfig("t", "", "interpreter")) == ["V036"]
