"""bundle: short rows are added up several at a time."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import stripec
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Remark
from stripe.ir import Block, Program
from stripe.passes.base import PassContext
from stripe.passes.bundle import Bundle, Bundled
from stripe.passes.choices import Given
from stripe.printer import to_text
from tests.support.passes import check_pass, check_proved, program_of

AVX512 = load_named("x86_64_avx512")


def rows(
    body: str = "S = store($x)",
    *,
    points: str = "n:480, c:3",
    constraints: str = "",
    views: str = "in X[n, c] f32(1, 1)",
    result: str = "S[c]:add f32(1)",
    sizes: str = "480, 3",
    kind: str = "out S[0]:assign f32(3)",
) -> Program:
    """The sums of columns, or nearly so."""
    return program_of(
        f"""
        block main [] (in X[0, 0] f32({sizes})  in M[0] f32(480)  {kind}) {{
          block S [{points}] ({constraints} {views}  out {result}) {{ $x = load(X) f32  {body} }}
        }}
        """
    )


def bundled(program: Program, hw: HwConfig = AVX512) -> tuple[dict[str, Block], list[Remark]]:
    """The blocks that the pass makes of a program, by name, which are proved to compute the same."""
    made, remarks = check_proved(program, Bundle(), hw)
    return {child.name: child for child in made.root.children}, remarks


def test_rows_fill_vectors_and_their_sums_are_added_up() -> None:
    blocks, (remark,) = bundled(rows())
    assert [*blocks] == ["S_rows", "S"]
    whole, total = blocks.values()
    assert whole.ranges == {"n_1": 30, "n": 16, "c": 3} and whole.tag_values("vector") == ("c",)
    assert total.ranges == {"n": 16, "c": 3}
    assert (remark.block, remark.acted) == ("main/S", True)
    assert remark.message == "adds up 16 rows of 3 at a time: 268 cycles instead of 1920"


def test_rows_that_are_left_over_are_added_to_the_same_sums() -> None:
    blocks, _ = bundled(rows(points="n:479, c:3"))
    assert [*blocks] == ["S_rows", "S_left", "S"]
    assert blocks["S_left"].ranges == {"n": 15, "c": 3}


@pytest.mark.parametrize("how", ["add", "mul", "max", "min"])
def test_rows_may_be_combined_in_all_ways(how: str) -> None:
    assert len(bundled(rows(result=f"S[c]:{how} f32(1)"))[0]) == 2


def test_what_is_the_same_for_each_row_is_copied_for_all_of_them() -> None:
    blocks, _ = bundled(
        rows(
            "$m = load(M) f32  $d = sub($x, $m) f32  S = store($d)",
            points="n:480, c:5", sizes="480, 5", kind="out S[0]:assign f32(5)",
            views="in X[n, c] f32(1, 1)  in M[c] f32(1)",
        )
    )  # fmt: skip
    assert [*blocks] == ["S_M", "S_rows", "S"]
    assert blocks["S_rows"].refinement("M").source == "S_M"


def test_a_value_that_no_element_has_of_its_own_is_not_copied() -> None:
    blocks, _ = bundled(
        rows(
            "$m = load(M) f32  $d = sub($x, $m) f32  S = store($d)",
            views="in X[n, c] f32(1, 1)  in M[7] f32(1)",
        )
    )
    assert [*blocks] == ["S_rows", "S"]


def test_rows_of_several_dimensions_are_taken_whole() -> None:
    program = program_of(
        """
        block main [] (in X[0, 0, 0] f32(300, 4, 3)  out S[0]:assign f32(3)) {
          block S [c:3, h:300, w:4] (in X[h, w, c] f32(1, 1, 1)  out S[c]:add f32(1)) {
            $x = load(X) f32  S = store($x) }
        }
        """
    )
    blocks, (remark,) = bundled(program)
    assert blocks["S_rows"].ranges == {"h_1": 75, "h": 4, "w": 4, "c": 3}
    assert remark.message.startswith("adds up 4 rows of 12 at a time: ")


def test_the_inner_one_of_two_indexes_may_be_one_bundle() -> None:
    program = program_of(
        """
        block main [] (in X[0, 0, 0] f32(100, 16, 3)  out S[0]:assign f32(3)) {
          block S [c:3, h:100, w:16] (in X[2*h, w, c] f32(1, 1, 1)  out S[c]:add f32(1)) {
            $x = load(X) f32  S = store($x) }
        }
        """.replace("h:100", "h:50")
    )
    blocks, _ = bundled(program)
    assert blocks["S_rows"].ranges == {"h": 50, "w": 16, "c": 3}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param({"constraints": "n - 3 >= 0"}, "its rows are limited", id="limited"),
        pytest.param(
            {"body": "$i = index(n) f32  $y = add($x, $i) f32  S = store($y)"},
            "the place of an element is one of its values", id="index",
        ),
        pytest.param({"points": "n:60, c:3"}, "cycles instead of", id="few"),
        pytest.param(
            {"body": "S = store($x)  T = store($x)", "kind": "out S[0]:assign f32(6)",
             "result": "S[c]:add f32(1)  out T = S[c + 3]:add f32(1)"},
            "it uses 'S' in several places", id="two views",
        ),
    ],
)  # fmt: skip
def test_what_is_left_as_it_is_says_why(given: dict[str, str], why: str) -> None:
    program = rows(**given)
    made, (remark,) = check_pass(program, Bundle(least_gain=80), AVX512)
    assert made is program and not remark.acted
    assert remark.message.startswith("rows are added up one by one: ") and why in remark.message


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"points": "n:3, c:480", "sizes": "3, 480", "kind": "out S[0]:assign f32(480)"},
                     id="long"),
        pytest.param({"sizes": "480, 4"}, id="gaps"),
        pytest.param({"points": "c:3, n:480", "views": "in X[n, c] f32(1, 1)", "result": "S[n]:add f32(1)",
                      "kind": "out S[0]:assign f32(480)"}, id="along rows"),
        pytest.param({"views": "in X[479 - n, c] f32(1, 1)"}, id="backwards"),
        pytest.param({"body": "$m = load(M) f32  $y = mul($x, $m) f32  S = store($y)",
                      "views": "in X[n, c] f32(1, 1)  in M[n] f32(1)"}, id="weights of rows"),
    ],
)  # fmt: skip
def test_what_are_no_short_rows_stays_without_a_word(given: dict[str, str]) -> None:
    program = rows(**given)
    made, remarks = check_pass(program, Bundle(), AVX512)
    assert made is program and not remarks


def test_halves_are_not_rounded_in_between() -> None:
    program = program_of(to_text(rows()).replace("f32", "f16"))
    made, (remark,) = check_pass(program, Bundle(), AVX512)
    assert made is program and "partial sums would be rounded to f16" in remark.message


def test_what_an_instruction_takes_is_left() -> None:
    program = program_of(to_text(rows()).replace(") {\n    $x", ") #stencil=sum {\n    $x"))
    made, (remark,) = check_pass(program, Bundle(), AVX512)
    assert made is program and "an instruction takes it, says #stencil" in remark.message


def test_sums_may_go_on_from_what_is_there() -> None:
    program = program_of(
        """
        block main [] (in X[0, 0] f32(480, 3)  out S[0]:assign f32(3)) {
          block fill [c:3] (out S[c]:assign f32(1)) { $i = index(c) f32  S = store($i) }
          block S [n:480, c:3] (in X[n, c] f32(1, 1)  inout S[c]:add f32(1)) {
            $x = load(X) f32  S = store($x) }
        }
        """
    )
    blocks, _ = bundled(program)
    assert [*blocks] == ["fill", "S_rows", "S"]


def test_a_target_without_a_unit_that_computes_says_so() -> None:
    program = rows()
    context = PassContext(msgspec.structs.replace(AVX512, units=()))
    assert Bundle().run(program, context) is program
    assert [r.message for r in context.remarks] == ["the target has no unit that computes"]


# -- native code --------------------------------------------------------------------------------

SUM = "function (X[N, C]) -> (S) {{ S[c : C] = {}(X[n, c]); }}"
STATISTICS = """function (X[H, W, C]) -> (M, V) {
    S[c : C] = +(X[h, w, c]);
    M = S / 561.0;
    D = X - M;
    Q = D * D;
    V[c : C] = +(Q[h, w, c]);
}"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("columns", [2, 3, 5, 8, 17])
def test_native_code_adds_up_the_same(columns: int, dtype: str) -> None:
    given = np.random.default_rng(columns).integers(0, 100, (509, columns)).astype(dtype)
    for how, expected in (("+", given.sum(0)), (">", given.max(0)), ("<", given.min(0))):
        got = stripec.compile(SUM.format(how), {"X": given}, threads=1)(given)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("shape", [(3, 187, 3), (187, 3, 4), (11, 51, 5)])
def test_native_means_and_variances_are_the_same(shape: tuple[int, ...]) -> None:
    given = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    mean, variance = stripec.compile(STATISTICS, {"X": given}, threads=1)(given)
    np.testing.assert_allclose(mean, given.mean((0, 1), dtype=np.float64), atol=1e-6)
    np.testing.assert_allclose(variance, 561 * given.var((0, 1), dtype=np.float64), rtol=1e-5)


# -- choices ------------------------------------------------------------------------------------


def given(program: Program, choice: Bundled | None, path: str = "main/S") -> tuple[Program, PassContext]:
    records = {} if choice is None else {path: choice}
    context = PassContext(AVX512, given=Given(records))
    return Bundle().run(program, context), context


def test_what_was_chosen_can_be_given() -> None:
    program, context = rows(), PassContext(AVX512)
    made = Bundle().run(program, context)
    assert context.choices == {"main/S": Bundled("n", 16)}
    assert given(program, Bundled("n", 16))[0] == made


def test_a_choice_is_made_whether_it_pays_or_not() -> None:
    made, _ = given(rows(points="n:4, c:3"), Bundled("n", 2))
    assert made.root.children[0].ranges == {"n_1": 2, "n": 2, "c": 3}


def test_without_a_choice_it_stays_where_choices_are_given() -> None:
    program = rows()
    made, context = given(program, None)
    assert made is program
    assert [r.message for r in context.remarks] == ["left as it is: no choice is given for it"]


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (Bundled("m", 4), "it adds up no rows along 'm' that follow one another"),
        (Bundled("n", 481), "it adds up 480 rows along 'n'"),
        (Bundled("n", 1), "it adds up 480 rows along 'n'"),
    ],
)
def test_rows_that_there_are_not_are_refused(choice: Bundled, why: str) -> None:
    with pytest.raises(CompileError, match=why) as caught:
        given(rows(), choice)
    assert caught.value.diagnostics[0].code == "P009"


def test_a_choice_for_what_stays_whole_is_refused() -> None:
    with pytest.raises(CompileError, match="its rows are limited"):
        given(rows(constraints="n - 3 >= 0"), Bundled("n", 4))


NEST = """
block main [] (in X[0, 0] f32(320, 3)  out M[0]:assign f32(3)) {
  block M [c:3] (in X[0, c] f32(320, 1)  out M[c]:assign f32(1)  new S f32(1)) {
    block S [n:320] (in X[n, 0] f32(1, 1)  out S[0]:add f32(1)) { $x = load(X) f32  S = store($x) }
    block M [] (in S[0] f32(1)  out M[0]:assign f32(1)) { $s = load(S) f32  $m = neg($s) f32  M = store($m) }
  }
}
"""


def test_a_nest_over_a_row_comes_apart() -> None:
    blocks, (remark,) = bundled(program_of(NEST))
    assert [*blocks] == ["S_rows", "S", "M"]
    assert remark.block == "main/M/S"


def test_a_nest_comes_apart_where_a_choice_is_given_for_a_block_in_it() -> None:
    program, context = program_of(NEST), PassContext(AVX512)
    made = Bundle().run(program, context)
    assert [*context.choices] == ["main/M/S"]
    assert given(program, Bundled("n", 16), "main/M/S")[0] == made
    assert given(program, None)[0] is program
