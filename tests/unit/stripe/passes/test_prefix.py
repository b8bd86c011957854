"""prefix: running sums are cut into pieces."""

from __future__ import annotations

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.analysis.prefix import elements_moved, terms_combined, vector_steps
from stripe.diag import CompileError, Remark
from stripe.ir import Direction, Program
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.prefix import Pieces, Prefix
from stripe.printer import to_text
from stripe.validate import validate
from tests.support.passes import check_pass, check_proved, program_of

GENERIC = load_named("generic")
WIDE = load_named("x86_64_avx512")


def running(
    limits: str = "i - k >= 0",
    *,
    points: str = "n:2, i:40, k:40",
    term: str = "in X[n, k] f32(1, 1)",
    body: str = "",
    result: str = "out O[n, i]:add f32(1, 1)",
    kind: str = "out O[0, 0]:assign f32(2, 48)",
) -> Program:
    """A running sum of rows, ahead of which all is filled."""
    return program_of(
        f"""
        block main [] (in X[0, 0] f32(2, 64)  in Y[0, 0] f32(64, 2)  {kind}) {{
          block fill [n:2, i:48] (out O[n, i]:{"add" if ":add" in kind else "assign"} f32(1, 1)) {{
            $z = index(i + 5) f32  O = store($z) }}
          block O [{points}] ({limits}  {term}  {result}) {{
            $x = load(X) f32  {body or "O = store($x)"} }}
        }}
        """
    )


def cut(program: Program, hw: HwConfig = GENERIC) -> tuple[Program, list[Remark]]:
    """What the pass makes of a program, which is proved to compute the same."""
    return check_proved(program, Prefix(), hw, again=False)


def names(program: Program) -> list[str]:
    return [block.name for block in program.root.children]


def test_a_running_sum_is_cut_and_the_sums_of_pieces_are_cut_again() -> None:
    made, (remark,) = cut(running())
    inner = ["O_ahead_parts", "O_ahead_ahead", "O_ahead", "O_ahead_rest"]
    assert names(made) == ["fill", "O_parts", *inner, "O", "O_rest"]
    assert (remark.block, remark.acted) == ("main/O", True)
    assert remark.message == "sums up in pieces of 4, 4: 92.5 vectors instead of 220"
    new = {r.name: r.shape for r in made.root.refinements if r.direction is Direction.NEW}
    assert new == {"O_part": (2, 9), "O_ahead": (2, 9), "O_ahead_part": (2, 2), "O_ahead_ahead": (2, 2)}


def test_what_is_made_stays_as_it_is() -> None:
    made, _ = cut(running())
    assert Prefix().run(made, PassContext(GENERIC)) is made


@pytest.mark.parametrize("how", ["add", "mul", "max", "min"])
def test_all_that_combines_may_be_cut(how: str) -> None:
    program = running(result=f"out O[n, i]:{how} f32(1, 1)")
    made, (remark,) = check_pass(program, Prefix(), again=False, rtol=1e-6 if how == "mul" else 0.0)
    assert remark.acted and len(made.root.children) == 8
    assert validate(program, made).status == "proved"


@pytest.mark.parametrize("points", ["n:2, i:40, k:40", "i:39, k:39, n:2", "k:37, n:2, i:37"])
@pytest.mark.parametrize("limits", ["i - k >= 0", "k - i >= 0", "i - k - 1 >= 0", "k - i - 2 >= 0"])
def test_sums_from_either_end_with_or_without_the_own_term(points: str, limits: str) -> None:
    assert cut(running(limits, points=points))[1][0].acted


@pytest.mark.parametrize("points", ["n:2, i:48, k:40", "n:2, i:34, k:40", "n:2, i:48, k:64"])
@pytest.mark.parametrize("limits", ["i - k + 3 >= 0", "k - i + 9 >= 0", "i - k - 7 >= 0", "k - i - 5 >= 0"])
def test_there_may_be_more_results_than_terms_or_fewer(points: str, limits: str) -> None:
    assert cut(running(limits, points=points))[1][0].acted


def test_results_behind_the_last_term_are_copies() -> None:
    made, _ = cut(running("i - k + 3 >= 0"))
    *_, last = made.root.children
    assert last.name == "O_beyond" and last.ranges == {"n": 2, "i": 3}
    assert "in O[n, 36]" in to_text(made) and "out O_1 = O[n, i + 37]:assign" in to_text(made)


def test_terms_that_are_computed_are_so_once() -> None:
    body = "$y = load(Y) f32  $p = mul($x, $y) f32  O = store($p)"
    made, _ = cut(running(term="in X[n, k] f32(1, 1)  in Y[k, n] f32(1, 1)", body=body))
    assert names(made)[1] == "O_term"
    assert to_text(made).count("mul(") == 1


def test_terms_that_no_result_combines_are_not_computed() -> None:
    term = "in X[n, k - 10] f32(1, 1)"
    program = running("k - i - 10 >= 0", term=term, body="$p = neg($x) f32  O = store($p)")
    made, _ = cut(program)
    assert [str(c.expr) for c in made.root.children[1].constraints] == ["k - 10"]


@pytest.mark.parametrize(
    "term",
    [
        pytest.param("in X = Y[k, n] f32(1, 1)", id="apart"),
        pytest.param("in X[n, 40 - k] f32(1, 1)", id="turned"),
        pytest.param("in X[0, k] f32(1, 1)", id="the same for the batch"),
        pytest.param("in X[n, k + n] f32(1, 1)", id="along both"),
    ],
)
def test_terms_lie_where_they_may(term: str) -> None:
    assert cut(running(term=term))[1][0].acted


def test_the_number_of_a_term_may_be_one() -> None:
    made, (remark,) = cut(running(body="$k = index(k + n) f32  $p = mul($x, $k) f32  O = store($p)"))
    assert remark.acted and names(made)[1] == "O_term"


def down_columns(columns: int) -> Program:
    return program_of(
        f"""
        block main [] (in X[0, 0] i32(24, {columns})  out O[0, 0]:assign i32(24, {columns})) {{
          block O [n:{columns}, i:24, k:24] (i - k >= 0  in X[k, n] i32(1, 1)  out O[i, n]:add i32(1, 1)) {{
            $x = load(X) i32  O = store($x) }}
        }}
        """
    )


def test_sums_down_columns_lie_in_rows() -> None:
    made, (remark,) = cut(down_columns(4))
    assert made.root.refinement("O_part").shape == (5, 4)
    assert "terms, loads and stores" in remark.message


def test_rows_shorter_than_a_vector_follow_each_other_in_one() -> None:
    assert cut(down_columns(16), WIDE)[1][0].acted
    _, (remark,) = check_pass(down_columns(15), Prefix(), WIDE)
    assert "vectors" in remark.message and not remark.acted


@pytest.mark.parametrize(
    ("program", "why"),
    [
        pytest.param(running("i - k >= 0  k - 2 >= 0"), "its points have other limits, too", id="limits"),
        pytest.param(
            running(result="inout O[n, i]:add f32(1, 1)"), "it adds to what is there", id="aggregates"
        ),
        pytest.param(
            running(kind="out O[0, 0]:add f32(2, 48)"), "what is added to 'O' can't be read", id="added to"
        ),
        pytest.param(running(points="n:2, i:5, k:5"), "it is short", id="five terms"),
        pytest.param(
            running("i - k + 40 >= 0", points="n:2, i:24, k:40"), "every result combines all terms", id="all"
        ),
        pytest.param(
            running("i - k - 40 >= 0"), "no result combines a term", id="none"
        ),
        pytest.param(
            running(points="n:2, i:40, k:40, m:3", term="in X[n, k + m] f32(1, 1)"),
            "it adds up along m, too", id="another sum",
        ),
        pytest.param(
            running(result="out O[0, i + n]:add f32(1, 1)"),
            "a dimension of its result is no single index", id="results that overlap",
        ),
        pytest.param(
            running(body="O = store($x)  O = store($x)"),
            "it stores its result in several places", id="stores",
        ),
        pytest.param(
            running(result="out O[n, i]:add f32(1, 1)  new B f32(1):(1)"),
            "it has buffers of its own", id="own",
        ),
    ],
)  # fmt: skip
def test_what_is_left_as_it_is_says_why(program: Program, why: str) -> None:
    made, (remark,) = check_pass(program, Prefix())
    assert made is program and not remark.acted
    assert remark.message == f"no running sum in pieces: {why}"


def test_sums_that_would_be_rounded_stay_whole_and_maxima_do_not() -> None:
    text = """
        block main [] (in X[0] f16(40)  out O[0]:assign f16(40)) {
          block O [i:40, k:40] (i - k >= 0  in X[k] f16(1)  out O[i]:HOW f16(1)) {
            $x = load(X) f16  O = store($x) }
        }
        """
    _, (remark,) = check_pass(program_of(text.replace("HOW", "add")), Prefix())
    assert remark.message == "no running sum in pieces: partial sums would be rounded to f16"
    assert cut(program_of(text.replace("HOW", "max")))[1][0].acted


@pytest.mark.parametrize("tag", ["stencil", "group"])
def test_what_an_instruction_takes_is_left(tag: str) -> None:
    text = to_text(running()).replace(") {\n    $x", f") #{tag}=k {{\n    $x")
    program = program_of(text)
    made, (remark,) = check_pass(program, Prefix())
    assert made is program and f"an instruction takes it, says #{tag}" in remark.message


@pytest.mark.parametrize(
    ("limits", "term"),
    [
        pytest.param("i - k >= 0", "in X[n, k + i] f32(1, 1)", id="terms differ from result to result"),
        pytest.param("i - 2*k >= 0", "in X[n, k] f32(1, 1)", id="every second result"),
        pytest.param("30 - i - k >= 0", "in X[n, k] f32(1, 1)", id="against each other"),
        pytest.param("i - k - n >= 0", "in X[n, k] f32(1, 1)", id="rows begin apart"),
        pytest.param("", "in X[n, k] f32(1, 1)", id="no triangle"),
    ],
)
def test_what_is_no_running_sum_stays_without_a_word(limits: str, term: str) -> None:
    program = running(limits, points="n:2, i:20, k:20", term=term)
    made, remarks = check_pass(program, Prefix())
    assert made is program and not remarks


def test_a_triangle_of_few_vectors_stays_whole() -> None:
    program = running(points="n:2, i:30, k:30")
    assert cut(program)[1][0].acted
    made, (remark,) = check_pass(program, Prefix(), WIDE)
    assert made is program
    assert remark.message.startswith("no running sum in pieces: it would take 61.03 vectors instead of 43.12")


def test_least_gain_is_a_share_of_what_it_takes() -> None:
    program = running()
    assert Prefix(least_gain=60).run(program, PassContext(GENERIC)) is not program
    assert Prefix(least_gain=62).run(program, PassContext(GENERIC)) is program


def test_a_target_without_a_unit_that_computes_says_so() -> None:
    program = running()
    context = PassContext(msgspec.structs.replace(GENERIC, units=()))
    assert Prefix().run(program, context) is program
    assert [r.message for r in context.remarks] == ["the target has no unit that computes"]


def test_what_is_counted() -> None:
    assert terms_combined(10, ()) == 55
    # Two triangles of 4 and one of 2; two sums of 4; six results go on; of the two sums, three terms.
    assert terms_combined(10, (4,)) == 23 + 8 + 6 + 3
    assert elements_moved(10, (4,)) == 50 + 4
    assert vector_steps(32, (), 8) == 80
    assert vector_steps(32, (4,), 8) == 8 * (4 + 2 + 1) + 7 * 15 / 16


def test_terms_grow_with_results() -> None:
    program = running(points="n:2, i:48, k:48")
    context = PassContext(GENERIC)
    Prefix().run(program, context)
    (chosen,) = context.choices.values()
    assert chosen == Pieces((4, 4))
    assert terms_combined(1 << 20, (4,) * 9) < 6 << 20


# -- choices ------------------------------------------------------------------------------------


def given(program: Program, sizes: tuple[int, ...] | None) -> tuple[Program, PassContext]:
    records = {} if sizes is None else {"main/O": Pieces(sizes)}
    context = PassContext(GENERIC, given=Given(records))
    return Prefix().run(program, context), context


def test_what_was_chosen_can_be_given() -> None:
    program, context = running(), PassContext(GENERIC)
    made = Prefix().run(program, context)
    assert context.choices == {"main/O": Pieces((4, 4))}
    assert given(program, (4, 4))[0] == made


@pytest.mark.parametrize("sizes", [(3,), (20,), (39,), (8, 2), (4, 2, 3)])
def test_a_choice_may_be_any_sizes(sizes: tuple[int, ...]) -> None:
    program = running()
    made, context = given(program, sizes)
    assert made is not program and context.choices == {"main/O": Pieces(sizes)}
    assert validate(program, made).status == "proved"


def test_a_choice_is_taken_whether_it_pays_or_not() -> None:
    program = running(points="n:2, i:3, k:3")
    assert names(given(program, (2,))[0]) == ["fill", "O_parts", "O_ahead", "O", "O_rest"]


def test_without_a_choice_it_stays_where_choices_are_given() -> None:
    program = running()
    made, context = given(program, None)
    assert made is program
    assert [r.message for r in context.remarks] == ["left as it is: no choice is given for it"]


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ((), "it has no sizes"),
        ((1,), "of 40 terms there are no pieces of 1"),
        ((40,), "of 40 terms there are no pieces of 40"),
        ((8, 2, 2), "of 1 terms there are no pieces of 2"),
    ],
)
def test_sizes_that_are_none_are_refused(sizes: tuple[int, ...], why: str) -> None:
    with pytest.raises(CompileError, match=why) as caught:
        given(running(), sizes)
    assert [d.code for d in caught.value.diagnostics] == ["P009"]


@pytest.mark.parametrize(
    ("limits", "why"),
    [("", "it is no running sum"), ("i - k >= 0  k - 2 >= 0", "its points have other limits")],
)
def test_a_choice_for_what_is_no_running_sum_is_refused(limits: str, why: str) -> None:
    with pytest.raises(CompileError, match=why):
        given(running(limits), (4,))
