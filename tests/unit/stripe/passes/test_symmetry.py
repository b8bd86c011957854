"""symmetry: half of a symmetric result is a copy of the other half."""

from __future__ import annotations

from textwrap import dedent

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Remark
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.symmetry import Mirrored, Symmetry
from stripe.printer import to_text
from tests.support.passes import check_pass, check_proved, program_of

GENERIC = load_named("generic")


def gram(
    body: str = "$p = mul($a, $b) f32  T = store($p)",
    *,
    points: str = "i:48, j:48, n:64",
    constraints: str = "",
    views: str = "in D[n, i] f32(1, 1)  in E = D[n, j] f32(1, 1)",
    result: str = "T[i, j]:add",
    kind: str = "out T[0, 0]:assign f32(48, 48)",
) -> Program:
    """The product of a matrix with itself, turned; or nearly so."""
    rank = result.count(",") + 1
    ones = ", ".join("1" * rank)
    return program_of(
        f"""
        block main [] (in D[0, 0] f32(64, 48)  in W[0] f32(64)  {kind}) {{
          block T [{points}] ({constraints} {views}  out {result} f32({ones})) {{
            $a = load(D) f32  $b = load(E) f32
            {body}
          }}
        }}
        """
    )


def halved(program: Program, hw: HwConfig = GENERIC) -> tuple[Program, list[Remark]]:
    """What the pass makes of a program, which is proved to compute the same."""
    return check_proved(program, Symmetry(), hw)


def test_one_half_is_computed_and_the_other_copied() -> None:
    made, (remark,) = halved(gram())
    half, mirror = made.root.children
    assert [str(c.expr) for c in half.constraints] == ["i - j"]
    assert mirror.name == "T_mirror"
    text = to_text(made)
    assert dedent(text[text.index("  block T_mirror") : -len("}\n")]) == dedent(
        """\
        block T_mirror [i:48, j:48] (
          i - j - 1 >= 0
          in T[i, j] f32(1, 1):(48, 1)
          out T_1 = T[j, i]:assign f32(1, 1):(48, 1)
        ) {
          $v = load(T) f32
          T_1 = store($v)
        }
        """
    )
    assert (remark.block, remark.acted) == ("main/T", True)
    assert remark.message.startswith("computes 'T' where i >= j, and copies what mirrors it: saves ")


@pytest.mark.parametrize("how", ["add", "mul", "max", "min"])
def test_all_that_combines_may_be_halved(how: str) -> None:
    made, _ = halved(gram(result=f"T[i, j]:{how}"))
    assert len(made.root.children) == 2


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("$p = mul($b, $a) f32  T = store($p)", id="operands in another order"),
        pytest.param("$s = add($a, $b) f32  $p = mul($s, $s) f32  T = store($p)", id="square of a sum"),
        pytest.param(
            "$x = exp($a) f32  $y = exp($b) f32  $p = add($y, $x) f32  T = store($p)", id="functions of both"
        ),
        pytest.param(
            "$c = constant(2.5) f32  $p = mul($a, $b) f32  $q = mul($c, $p) f32  T = store($q)", id="scaled"
        ),
        pytest.param(
            "$i = index(i + 1) f32  $j = index(j + 1) f32  $x = div($a, $i) f32  $y = div($b, $j) f32\n"
            "$p = mul($x, $y) f32  T = store($p)",
            id="indexes as values",
        ),
    ],
)  # fmt: skip
def test_what_stays_the_same_when_indexes_change_places_is_halved(body: str) -> None:
    made, (remark,) = halved(gram(body))
    assert remark.acted and len(made.root.children) == 2


@pytest.mark.parametrize(
    ("body", "views"),
    [
        pytest.param("$p = sub($a, $b) f32  T = store($p)", "", id="a difference has another sign"),
        pytest.param("$p = max($a, $b) f32  T = store($p)", "", id="which zero max gives may depend on it"),
        pytest.param("T = store($a)", "", id="one operand alone"),
        pytest.param("", "in D[n, i] f32(1, 1)  in E = W[n] f32(1)", id="another buffer"),
        pytest.param("", "in D[n, i] f32(1, 1)  in E = D[n, 47 - j] f32(1, 1)", id="the other way round"),
        pytest.param("", "in D[n, i] f32(1, 1)  in E = D[63 - n, j] f32(1, 1)", id="other terms"),
        pytest.param(
            "$w = load(W) f32  $x = mul($a, $w) f32  $p = mul($x, $b) f32  T = store($p)",
            "in D[n, i] f32(1, 1)  in E = D[n, j] f32(1, 1)  in W[n] f32(1)",
            id="rounded in another order",
        ),
    ],
)
def test_what_is_not_the_same_stays_without_a_word(body: str, views: str) -> None:
    given = {"views": views} if views else {}
    program = gram(body, **given) if body else gram(**given)
    made, remarks = check_pass(program, Symmetry())
    assert made is program and not remarks


def test_a_point_may_add_several_values() -> None:
    _, (remark,) = check_pass(gram("T = store($b)  T = store($a)"), Symmetry())
    assert remark.acted  # which of them is which in the other half, the validator can't tell


def test_batches_are_halved_along_their_own_dimensions() -> None:
    program = program_of(
        """
        block main [] (in D[0, 0, 0] f32(2, 60, 40)  out G[0, 0, 0, 0]:assign f32(40, 2, 3, 40)) {
          block G [b:2, i:40, j:40, n:60, z:2] (
            in D[b, n, i] f32(1, 1, 1)  in E = D[b, n, j] f32(1, 1, 1)
            out G[j, b, z, i]:add f32(1, 1, 1, 1)
          ) { $a = load(D) f32  $b = load(E) f32  $p = mul($a, $b) f32  G = store($p) }
          block rest [b:2, i:40, j:40] (out G[i, b, 2, j]:assign f32(1, 1, 1, 1)) {
            $z = constant(1.0) f32  G = store($z) }
        }
        """
    )
    made, (remark,) = halved(program)
    half, mirror, _ = made.root.children
    assert [str(c.expr) for c in half.constraints] == ["j - i"], "rows lie along i"
    assert list(mirror.ranges) == ["b", "i", "j", "z"]
    assert remark.message.startswith("computes 'G' where j >= i")


def test_constraints_that_mirror_themselves_hold_for_copies() -> None:
    program = program_of(
        """
        block main [] (in D[0, 0] f32(64, 48)  out T[0, 0]:assign f32(48, 48)) {
          block fill [i:48, j:48] (out T[i, j]:assign f32(1, 1)) {
            $z = index(i) f32  T = store($z) }
          block T [i:48, j:48, n:64] (
            40 - i + j >= 0  40 - j + i >= 0  90 - i - j - n >= 0
            in D[n, i] f32(1, 1)  in E = D[n, j] f32(1, 1)  out T[i, j]:add f32(1, 1)
          ) { $a = load(D) f32  $b = load(E) f32  $p = mul($a, $b) f32  T = store($p) }
        }
        """
    )
    made, _ = halved(program)
    *_, mirror = made.root.children
    assert {str(c.expr) for c in mirror.constraints} == {"j - i + 40", "90 - i - j", "i - j - 1"}


@pytest.mark.parametrize(
    ("program", "why"),
    [
        pytest.param(
            gram(kind="out T[0, 0]:add f32(48, 48)"), "what is added to 'T' can't be read", id="aggregated"
        ),
        pytest.param(
            gram(constraints="i - j >= 0", kind="new T f32(48, 48)"),
            "its constraints leave points without those that mirror them",
            id="half of it",
        ),
        pytest.param(
            gram(points="i:48, j:48, n:1"), "saves 141 of 576 cycles, copies take 2538", id="one term"
        ),
        pytest.param(gram(points="i:16, j:16, n:64", kind="new T f32(48, 48)"), "saves 0", id="small"),
    ],
)  # fmt: skip
def test_what_is_left_as_it_is_says_why(program: Program, why: str) -> None:
    made, (remark,) = check_pass(program, Symmetry())
    assert made is program and not remark.acted
    assert remark.message.startswith("both halves of 'T', which i and j mirror, are computed: ")
    assert why in remark.message


def test_what_an_instruction_takes_is_left() -> None:
    program = gram()
    (block,) = program.root.children
    tagged = program_of(to_text(program).replace(") {\n    $a", ") #stencil=outer {\n    $a"))
    assert block != tagged.root.children[0]
    made, (remark,) = check_pass(tagged, Symmetry())
    assert made is tagged and "an instruction takes it, says #stencil" in remark.message


def test_nothing_writes_what_a_sum_of_no_terms_leaves() -> None:
    program = program_of(
        """
        block main [] (in D[0, 0] f32(0, 48)  out T[0, 0]:assign f32(48, 48)) {
          block fill [i:48, j:48] (out T[i, j]:assign f32(1, 1)) { $z = index(i) f32  T = store($z) }
          block T [i:48, j:48, n:0] (
            in D[n, i] f32(1, 1)  in E = D[n, j] f32(1, 1)  out T[i, j]:add f32(1, 1)
          ) { $a = load(D) f32  $b = load(E) f32  $p = mul($a, $b) f32  T = store($p) }
        }
        """
    )
    made, remarks = check_pass(program, Symmetry())
    assert made is program and not remarks


def test_a_buffer_that_could_stay_in_registers_pays_for_its_way() -> None:
    _, (out,) = check_pass(gram(), Symmetry())
    _, (new,) = check_pass(gram(kind="new T f32(48, 48)"), Symmetry())
    paid = [float(remark.message.rsplit(" ", 1)[1]) for remark in (out, new)]
    assert paid[1] == pytest.approx(paid[0] + 2 * 48 * 48 * 4 / 32.0)


def test_least_gain_is_a_share_of_the_kernel() -> None:
    assert halved(gram())[1][0].acted
    program = gram()
    assert Symmetry(least_gain=60).run(program, PassContext(GENERIC)) is program


def test_a_target_without_a_unit_that_computes_says_so() -> None:
    program = gram()
    context = PassContext(msgspec.structs.replace(GENERIC, units=()))
    assert Symmetry().run(program, context) is program
    assert [r.message for r in context.remarks] == ["the target has no unit that computes"]


# -- choices ------------------------------------------------------------------------------------


def given(program: Program, indexes: tuple[str, ...] | None) -> tuple[Program, PassContext]:
    records = {} if indexes is None else {"main/T": Mirrored(indexes)}
    context = PassContext(GENERIC, given=Given(records))
    return Symmetry().run(program, context), context


def test_what_was_chosen_can_be_given() -> None:
    program, context = gram(), PassContext(GENERIC)
    made = Symmetry().run(program, context)
    assert context.choices == {"main/T": Mirrored(("i", "j"))}
    assert given(program, ("i", "j"))[0] == made


def test_a_choice_names_the_half_that_is_computed_whether_it_pays_or_not() -> None:
    small = gram(points="i:3, j:3, n:1", kind="new T f32(48, 48)")
    made, _ = given(small, ("j", "i"))
    assert [str(c.expr) for c in made.root.children[0].constraints] == ["j - i"]


def test_without_a_choice_it_stays_where_choices_are_given() -> None:
    program = gram()
    made, context = given(program, None)
    assert made is program
    assert [r.message for r in context.remarks] == ["left as it is: no choice is given for it"]


@pytest.mark.parametrize("indexes", [(), ("i",), ("i", "n")])
def test_indexes_that_may_not_change_places_are_refused(indexes: tuple[str, ...]) -> None:
    with pytest.raises(CompileError, match="it does not stay the same when") as caught:
        given(gram(), indexes)
    (found,) = caught.value.diagnostics
    assert found.code == "P009" and "help: i and j may" in found.notes


def test_a_choice_for_half_a_result_is_refused() -> None:
    program = gram(constraints="i - j >= 0", kind="new T f32(48, 48)")
    with pytest.raises(CompileError, match="leave points without those that mirror them"):
        given(program, ("i", "j"))
