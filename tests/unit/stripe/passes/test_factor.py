"""factor: sums of products are made in parts."""

from __future__ import annotations

from itertools import combinations
from textwrap import dedent

import msgspec
import numpy as np
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.analysis.cost_factors import FactorCosts
from stripe.analysis.factors import MOST, Product, Some, parts_of, product_of
from stripe.diag import CompileError, Remark
from stripe.interp import interpret
from stripe.ir import Direction, Intrinsic, Program
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.factor import Factor, Parts
from stripe.printer import to_text
from tests.support.passes import check_pass, check_proved, program_of

GENERIC = load_named("generic")
BODY = "$p = mul($a, $b) f32  $q = mul($p, $c) f32  O = store($q)"


def chain(
    body: str = BODY,
    *,
    constraints: str = "",
    views: str = "in A[i, j] f32(1, 1)  in B[j, k] f32(1, 1)  in C[k, r] f32(1, 1)",
    result: str = "out O[i, r]:add f32(1, 1)",
    kind: str = "out O[0, 0]:assign f32(24, 20)",
    points: str = "i:24, r:20, j:18, k:16",
    filled: str = "f32",
) -> Program:
    """A product of three matrices; or nearly so."""
    return program_of(
        f"""
        block main [] (
          in A[0, 0] f32(24, 24)  in B[0, 0] f32(18, 20)  in C[0, 0] f32(16, 20)  in D[0] f32(24)  {kind}
        ) {{
          block fill [x:24, y:20] (out O[x, y]:assign {filled}(1, 1)) {{
            $z = index(x) {filled}  O = store($z) }}
          block O [{points}] ({constraints} {views}  {result}) {{
            $a = load(A) f32  $b = load(B) f32  $c = load(C) f32
            {body}
          }}
        }}
        """
    )


TWO = chain(
    "$p = mul($a, $c) f32  O = store($p)",
    views="in A[i, j] f32(1, 1)  in B[j, k] f32(1, 1)  in C = B[j, r] f32(1, 1)",
)


def factored(program: Program, hw: HwConfig = GENERIC) -> tuple[Program, list[Remark]]:
    """What the pass makes of a program, which is proved to compute the same."""
    return check_proved(program, Factor(), hw)


def blocks(program: Program) -> list[str]:
    """The blocks but the first, each with its indexes and those of its result."""
    results = [(block, block.refinements[-1]) for block in program.root.children[1:]]
    return [
        f"{block.name} {', '.join(block.ranges)}: {result.aggregation} {', '.join(map(str, result.access))}"
        for block, result in results
    ]


def test_two_of_three_matrices_are_multiplied_ahead() -> None:
    made, (remark,) = factored(chain())
    assert blocks(made) == ["O_part j, r, k: add j, r", "O i, r, j: add i, r"]
    text = to_text(made)
    assert dedent(text[text.index("  block O_part") : -len("}\n")]) == dedent(
        """\
        block O_part [j:18, r:20, k:16] (
          in B[j, k] f32(1, 1):(20, 1)
          in C[k, r] f32(1, 1):(20, 1)
          out O_part[j, r]:add f32(1, 1):(20, 1)
        ) {
          $b = load(B) f32
          $c = load(C) f32
          $product = mul($b, $c) f32
          O_part = store($product)
        }
        block O [i:24, r:20, j:18] (
          in O_part[j, r] f32(1, 1):(20, 1)
          in A[i, j] f32(1, 1):(24, 1)
          out O[i, r]:add f32(1, 1):(20, 1)
        ) {
          $part = load(O_part) f32
          $a = load(A) f32
          $product = mul($part, $a) f32
          O = store($product)
        }
        """
    )
    assert (remark.block, remark.acted) == ("main/O", True)
    assert remark.message.startswith("sums up B*C over k ahead: ")
    assert "cycles instead of" in remark.message


@pytest.mark.parametrize("sizes", [(2, 30, 3, 40), (30, 2, 40, 3), (16, 16, 4, 16)])
def test_the_order_is_that_with_the_fewest_products(sizes: tuple[int, int, int, int]) -> None:
    i, j, k, r = sizes
    program = program_of(
        f"""
        block main [] (in A[0, 0] f32({i}, {j})  in B[0, 0] f32({j}, {k})  in C[0, 0] f32({k}, {r})
                       out O[0, 0]:assign f32({i}, {r})) {{
          block O [i:{i}, r:{r}, j:{j}, k:{k}] (
            in A[i, j] f32(1, 1)  in B[j, k] f32(1, 1)  in C[k, r] f32(1, 1)  out O[i, r]:add f32(1, 1)
          ) {{ $a = load(A) f32  $b = load(B) f32  $c = load(C) f32  {BODY} }}
        }}
        """
    )
    made, _ = factored(program)
    left, right = i * j * k + i * k * r, j * k * r + i * j * r
    first = "A" if left < right else "B"
    assert made.root.children[0].refinements[0].name == first


@pytest.mark.parametrize(
    ("body", "views", "expected"),
    [
        pytest.param(
            BODY, "in A[i, j] f32(1, 1)  in B[j, k] f32(1, 1)  in C = D[i] f32(1)",
            ["O_part j, k: add j", "O_part_1 i, j: add i", "O i, r: add i, r"],
            id="a scale factor leaves the sum",
        ),
        pytest.param(
            "$p = mul($a, $c) f32  O = store($p)",
            "in A[i, j] f32(1, 1)  in B[j, k] f32(1, 1)  in C[k, r] f32(1, 1)",
            ["O_part i, j: add i", "O_part_1 r, k: add r", "O i, r: add i, r"],
            id="each of two has its own sum",
        ),
    ],
)  # fmt: skip
def test_what_does_not_depend_on_an_index_leaves_its_sum(body: str, views: str, expected: list[str]) -> None:
    program = chain(body, views=views)
    made, _ = factored(program)
    assert blocks(made) == expected


def test_a_part_may_be_one_element() -> None:
    program = program_of(
        """
        block main [] (in x[0] f32(90)  in y[0] f32(80)  out S[]:add f32()) {
          block S [i:90, j:80] (in x[i] f32(1)  in y[j] f32(1)  out S[]:add f32()) {
            $x = load(x) f32  $y = load(y) f32  $p = mul($x, $y) f32  S = store($p) }
        }
        """
    )
    made, (remark,) = factored(program)
    assert [b.name for b in made.root.children] == ["S_part", "S"]
    assert made.root.refinements[-1].shape == ()
    assert remark.message.startswith("sums up y over j ahead: ")


@pytest.mark.parametrize(
    ("body", "steps"),
    [
        pytest.param(
            "$z = constant(0.0) f32  $m = max($b, $z) f32  $p = mul($a, $m) f32  $q = mul($p, $c) f32\n"
            "O = store($q)",
            ["max", "mul"], id="a function of an element",
        ),
        pytest.param(
            "$s = add($b, $c) f32  $p = mul($s, $a) f32  $q = mul($p, $s) f32  O = store($q)",
            ["add", "mul"], id="a function of two, squared",
        ),
        pytest.param(
            "$k = index(k + j) f32  $p = mul($b, $k) f32  $q = mul($p, $c) f32  $s = mul($q, $a) f32\n"
            "O = store($s)",
            ["mul"], id="an index",
        ),
    ],
)  # fmt: skip
def test_whatever_is_multiplied_is_a_factor(body: str, steps: list[str]) -> None:
    made, (remark,) = factored(chain(body))
    assert remark.acted
    *_, part, _ = made.root.children
    assert [s.op for s in part.statements if isinstance(s, Intrinsic)] == steps


def test_a_part_of_parts_keeps_names_apart() -> None:
    """The block has views and scalars that are called as what is made."""
    program = program_of(
        """
        block main [] (in A[0, 0] f32(20, 20)  in O_part[0, 0] f32(20, 20)  out O[0, 0]:assign f32(20, 20)) {
          block O_part [i:20, r:20, j:20, k:20, l:20] (
            in O_part_1 = A[i, j] f32(1, 1)  in O_part_2 = O_part[j, k] f32(1, 1)
            in B = A[k, l] f32(1, 1)  in D = A[l, r] f32(1, 1)  out O[i, r]:add f32(1, 1)
          ) {
            $part = load(O_part_1) f32  $product = load(O_part_2) f32  $b = load(B) f32  $d = load(D) f32
            $x = mul($part, $product) f32  $y = mul($b, $d) f32  $z = mul($x, $y) f32  O = store($z)
          }
        }
        """
    )
    made, _ = factored(program)
    assert [b.name for b in made.root.children] == ["O_part_part", "O_part_part_1", "O_part"]


# -- points -------------------------------------------------------------------------------------


def limits(program: Program) -> list[list[str]]:
    return [sorted(str(c.expr) for c in b.constraints) for b in program.root.children[1:]]


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        pytest.param("r - k >= 0", [[], ["r - k"]], id="one side"),
        pytest.param("i - j >= 0", [[], ["i - j"]], id="the other side"),
        pytest.param("j - 4 >= 0  j - k >= 0", [["j - 4", "j - k"], ["j - 4"]], id="both"),
    ],
)  # fmt: skip
def test_each_block_has_the_points_that_are_part_of_one(constraints: str, expected: list[list[str]]) -> None:
    made, _ = factored(chain(constraints=constraints))
    assert limits(made) == expected


def test_results_without_terms_are_not_written() -> None:
    """Of the first rows no j is less, and nothing reads parts that have no terms."""
    made, _ = factored(chain(constraints="i - j - 4 >= 0  k - r >= 0"))
    assert blocks(made)[0].startswith("O_part j, r, k")
    assert limits(made) == [["k - r"], ["15 - r", "i - j - 4"]]


def test_what_a_constraint_holds_together_is_summed_up_in_one_block() -> None:
    made, (remark,) = factored(chain(constraints="i - j - k >= 0"))
    assert remark.message.startswith("sums up A*B over j ahead")
    assert limits(made) == [["i - j - k"], ["i - k"]]
    _, (remark,) = factored(chain(constraints="i + r - j - k >= 0"))
    assert remark.message.startswith("sums up B*C ahead"), "it is multiplied, and not summed up"


def test_points_that_are_no_single_piece_are_left() -> None:
    program = chain(constraints="j - 2*k >= 0  2*k - j >= 0")
    made, (remark,) = check_pass(program, Factor(least_gain=0))
    assert made is program
    assert remark.message == "one sum: the points of B*C over k are no single piece"


# -- what stays one sum -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "why"),
    [
        pytest.param(
            program_of(
                """
                block main [] (in A[0] f32(90)  in B[0] f32(90)  in C[0] f32(90)  out O[]:add f32()) {
                  block O [i:90] (in A[i] f32(1)  in B[i] f32(1)  in C[i] f32(1)  out O[]:add f32()) {
                    $a = load(A) f32  $b = load(B) f32  $c = load(C) f32
                    $p = mul($a, $b) f32  $q = mul($p, $c) f32  O = store($q) }
                }
                """
            ),
            "no parts take less than", id="of one index",
        ),
        pytest.param(
            chain(points="i:2, r:1, j:1, k:2"),
            "with B*C over k ahead it would take 62.02 cycles instead of 62.77", id="small",
        ),
        pytest.param(
            chain("$p = mul($a, $b) f32  $q = mul($p, $c) f32  $r = mul($q, $q) f32  $s = mul($r, $p) f32\n"
                  "O = store($s)"),
            f"it has more than {MOST} factors", id="many",
        ),
        pytest.param(
            program_of(to_text(chain()).replace(") {\n    $a", ") #stencil=outer {\n    $a")),
            "an instruction takes it, says #stencil", id="claimed",
        ),
        pytest.param(
            program_of(to_text(chain()).replace(") {\n    $a", ") #vector=r {\n    $a")),
            "#vector says how it runs", id="tagged",
        ),
        pytest.param(
            program_of(to_text(chain()).replace("f32", "f16")), "sums of parts would be rounded to f16",
            id="f16",
        ),
        pytest.param(
            program_of(to_text(chain("$p = mul($a, $b) f32  $q = mul($p, $c) f32  $w = cast($q) f64\n"
                                     "O = store($w)", result="out O[i, r]:add f64(1, 1)",
                                     kind="out O[0, 0]:assign f64(24, 20)", filled="f64"))),
            "its factors are multiplied in f32, and summed up in f64", id="narrower",
        ),
    ],
)  # fmt: skip
def test_what_stays_one_sum_says_why(program: Program, why: str) -> None:
    made, (remark,) = check_pass(program, Factor())
    assert made is program and not remark.acted
    assert remark.message.startswith(f"one sum: {why}")


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(TWO, id="two"),
        pytest.param(chain("$p = add($a, $b) f32  $q = add($p, $c) f32  O = store($q)"), id="no product"),
        pytest.param(chain(result="out O[i, r]:max f32(1, 1)"), id="no sum"),
        pytest.param(chain("O = store($a)  O = store($b)"), id="two stores"),
        pytest.param(chain(points="i:24, r:20, j:0, k:16"), id="empty"),
    ],
)
def test_what_is_no_sum_of_a_product_with_parts_stays_without_a_word(program: Program) -> None:
    made, remarks = check_pass(program, Factor())
    assert made is program and not remarks


def test_sums_that_are_added_to_go_on() -> None:
    made, _ = factored(chain(result="inout O[i, r]:add f32(1, 1)"))
    assert made.root.children[-1].refinements[-1].direction is Direction.INOUT


@pytest.mark.parametrize("dtype", ["i8", "i32", "u8", "f64"])
def test_products_of_any_type_are_summed_up_in_parts(dtype: str) -> None:
    """Integers wrap around, so that they are equal to the bit: the inputs are as large as they can be."""
    program = program_of(to_text(chain()).replace("f32", dtype))
    made, _ = factored(program)
    assert made is not program
    rng = np.random.default_rng(0)
    inputs = {
        r.name: rng.integers(-(1 << 62), 1 << 62, r.shape).astype(r.dtype.numpy) for r in program.inputs
    }
    expected, got = interpret(program, inputs), interpret(made, inputs)
    if dtype == "f64":
        np.testing.assert_allclose(got["O"], expected["O"], rtol=1e-9)
    else:
        np.testing.assert_array_equal(got["O"], expected["O"])


def test_least_gain_is_a_share_of_the_sum() -> None:
    program, context = chain(), PassContext(GENERIC)
    assert Factor(least_gain=90).run(program, context) is not program
    assert Factor(least_gain=95).run(program, context) is program
    assert context.remarks[-1].message.startswith("one sum: with B*C over k ahead it would take ")


def test_a_target_without_a_unit_that_computes_says_so() -> None:
    program = chain()
    context = PassContext(msgspec.structs.replace(GENERIC, units=()))
    assert Factor().run(program, context) is program
    assert [r.message for r in context.remarks] == ["the target has no unit that computes"]


# -- costs --------------------------------------------------------------------------------------


def costs(program: Program) -> FactorCosts:
    block = program.root.children[-1]
    product, unit = product_of(block), GENERIC.compute_unit
    assert isinstance(product, Product) and unit is not None
    return FactorCosts(product, program.root, GENERIC, unit)


def parts(*some: set[int]) -> tuple[Some, ...]:
    return tuple(frozenset(part) for part in some)


def test_what_is_counted() -> None:
    """Four lanes, one instruction and 32 bytes a cycle; what is read across its rows takes a tenth more."""
    a, b, c, o, ab = (24 * 18, 18 * 16, 16 * 20, 24 * 20, 24 * 16)
    whole = 24 * 20 * 18 * 16 * 2 / 4 + (1.1 * c + a + b + o) * 4 / 32
    assert costs(chain()).cycles(()) == pytest.approx(whole)
    first = 24 * 16 * 18 / 4 + (a + 1.1 * b + ab) * 4 / 32
    second = 24 * 20 * 16 / 4 + (ab + 1.1 * c + o) * 4 / 32
    assert costs(chain()).cycles(parts({0, 1})) == pytest.approx(first + second)


def test_constraints_are_counted() -> None:
    made = costs(chain(constraints="i - j >= 0")), costs(chain())
    triangle = sum(i + 1 if i < 18 else 18 for i in range(24))
    saved = (24 * 18 - triangle) * 20 * 16 * 2 / 4
    assert made[0].cycles(()) == pytest.approx(made[1].cycles(()) - saved)


def test_the_least_of_all_orders_is_found() -> None:
    """Compared with all families of parts of four factors."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        names = [rng.permutation([*"ijkl"])[:2] for _ in range(4)]
        views = "  ".join(f"in A{n} = A[{', '.join(at)}] f32(1, 1)" for n, at in enumerate(names))
        program = program_of(
            f"""
            block main [] (in A[0, 0] f32(30, 30)  out O[0]:assign f32(30)) {{
              block O [i:30, {", ".join(f"{name}:{rng.integers(2, 31)}" for name in "jkl")}] (
                {views}  out O[i]:add f32(1)
              ) {{ $a = load(A0) f32  $b = load(A1) f32  $c = load(A2) f32  $d = load(A3) f32
                $p = mul($a, $b) f32  $q = mul($p, $c) f32  $r = mul($q, $d) f32  O = store($r) }}
            }}
            """
        )
        made = costs(program)
        product = made.product
        few = [frozenset(p) for size in (1, 2, 3) for p in combinations(range(4), size)]
        few = [part for part in few if product.may_be_a_part(part)]
        families = [
            family
            for size in range(5)
            for family in combinations(few, size)
            if all(one & two in (frozenset(), one, two) for one, two in combinations(family, 2))
        ]
        assert made.cycles(made.least()) == pytest.approx(min(map(made.cycles, families)))


def test_parts_that_are_many_times_as_large_as_all_else_are_none() -> None:
    """X[a, i] * Y[a, j] has 1000 * 200 * 200 elements, the result 200^3, and each operand 1000 * 200."""

    def star(terms: int) -> FactorCosts:
        return costs(
            program_of(
                f"""
                block main [] (in X[0, 0] f32({terms}, 200)  in Y[0, 0] f32({terms}, 200)
                               in Z[0, 0] f32({terms}, 200)  out O[0, 0, 0]:assign f32(200, 200, 200)) {{
                  block O [i:200, j:200, k:200, a:{terms}] (
                    in X[a, i] f32(1, 1)  in Y[a, j] f32(1, 1)  in Z[a, k] f32(1, 1)
                    out O[i, j, k]:add f32(1, 1, 1)
                  ) {{ $a = load(X) f32  $b = load(Y) f32  $c = load(Z) f32  {BODY} }}
                }}
                """
            )
        )

    assert star(100).least() == parts({0, 1})
    assert star(1000).least() == ()


def test_parts_of_parts() -> None:
    some = parts({0, 1}, {2}, {0, 1, 2}, {4})
    assert parts_of(frozenset(range(5)), some) == (parts({0, 1, 2}, {4}), frozenset({3}))
    assert parts_of(frozenset({0, 1, 2}), some) == (parts({0, 1}, {2}), frozenset())


# -- choices ------------------------------------------------------------------------------------


def given(program: Program, *chosen: tuple[str, ...]) -> tuple[Program, PassContext]:
    context = PassContext(GENERIC, given=Given({"main/O": Parts(chosen)}))
    return Factor().run(program, context), context


def test_what_was_chosen_can_be_given() -> None:
    program, context = chain(), PassContext(GENERIC)
    made = Factor().run(program, context)
    assert context.choices == {"main/O": Parts((("b", "c"),))}
    assert given(program, ("b", "c"))[0] == made


def test_a_choice_is_taken_whether_it_pays_or_not() -> None:
    program = chain()
    made, context = given(program, ("c", "a"))
    assert blocks(made) == ["O_part i, j, k, r: assign i, j, k, r", "O i, r, j, k: add i, r"]
    assert context.choices == {"main/O": Parts((("a", "c"),))}
    assert context.remarks[0].acted


def test_parts_of_a_choice_may_come_in_any_order() -> None:
    body = (
        "$p = mul($a, $b) f32  $k = index(k) f32  $q = mul($p, $c) f32  $s = mul($k, $q) f32  O = store($s)"
    )
    program = chain(body)
    first, _ = given(program, ("c", "k"), ("b", "k", "c"))
    second, _ = given(program, ("b", "c", "k"), ("k", "c"))
    assert first == second
    assert [b.name for b in first.root.children[1:]] == ["O_part", "O_part_1", "O"]


def test_without_a_choice_it_stays_where_choices_are_given() -> None:
    program, context = chain(), PassContext(GENERIC, given=Given({}))
    assert Factor().run(program, context) is program
    assert [r.message for r in context.remarks] == ["left as it is: no choice is given for it"]


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        pytest.param((), "it has no parts", id="none"),
        pytest.param(((),), "nothing can be no part of it", id="empty"),
        pytest.param((("a",),), r"a can be no part of it", id="a copy"),
        pytest.param((("a", "b", "c"),), r"a\*b\*c can be no part of it", id="all"),
        pytest.param((("a", "x"),), "it has no factor 'x'", id="unknown"),
        pytest.param((("a", "b"), ("b", "c")), r"b\*c is in another part already", id="overlap"),
        pytest.param((("a", "b"), ("b", "a")), r"b\*a is in another part already", id="twice"),
    ],
)
def test_parts_that_are_none_are_refused(chosen: tuple[tuple[str, ...], ...], why: str) -> None:
    with pytest.raises(CompileError, match=why) as caught:
        given(chain(), *chosen)
    assert [d.code for d in caught.value.diagnostics] == ["P009"]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (TWO, "it is no sum of a product that has parts"),
        (chain(constraints="j - 2*k >= 0  2*k - j >= 0"), "the points of B.C over k are no single piece"),
        (program_of(to_text(chain()).replace("f32", "f16")), "would be rounded to f16"),
    ],
)
def test_a_choice_for_what_stays_one_sum_is_refused(program: Program, why: str) -> None:
    with pytest.raises(CompileError, match=why):
        given(program, ("b", "c"))
