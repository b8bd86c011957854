"""Translation validation: what it proves, what it must not, and what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stripe.ir import Aggregation, Program
from stripe.validate import Verdict, validate
from stripe.validate_run import checked, difference, is_small
from tests.support.passes import program_of

HEAD = "block main [] (in X[0, 0] f32(6, 8):(8, 1)  out R[0]:assign f32(6):(1)) {"

SUMS = program_of(
    HEAD
    + """
    block R [x:6, k:8] (in X[x, k] f32(1, 1):(8, 1)  out R[x]:add f32(1):(1)) {
      $a = load(X) f32
      R = store($a)
    } }"""
)


def body(text: str) -> Program:
    return program_of(f"{HEAD} {text} }}")


def proved(before: Program, after: Program) -> bool:
    """Proved in both directions; what is proved is also what running says."""
    verdicts = {validate(before, after).status, validate(after, before).status}
    assert len(verdicts) == 1
    assert difference(before, after) is None or verdicts == {"unproved"}
    return verdicts == {"proved"}


def test_the_same_object_has_nothing_to_prove() -> None:
    assert validate(SUMS, SUMS) == Verdict("proved")


def test_tiles_and_partial_sums_are_one_sum() -> None:
    tiled = body(
        """
        block R [xo:2, ko:3] (in X[4*xo, 3*ko] f32(4, 3):(8, 1)  out R[4*xo]:add f32(4):(1)) {
          block p [xo = xo, ko = ko] (
            in X[0, 0] f32(4, 3):(8, 1)  out R[0]:add f32(4):(1)  new T f32(4):(1)) {
            block i [x:4, k:3, xp = xo, kp = ko] (
              5 - 4*xp - x >= 0
              7 - 3*kp - k >= 0
              in X[x, k] f32(1, 1):(8, 1)  out T[x]:add f32(1):(1)) {
              $a = load(X) f32
              T = store($a)
            }
            block o [x:4, xp = xo] (
              5 - 4*xp - x >= 0
              in T[x] f32(1):(1)  out R[x]:add f32(1):(1)) {
              $t = load(T) f32
              R = store($t)
            } } }"""
    )
    assert proved(SUMS, tiled)


def test_a_fill_and_sums_onto_it() -> None:
    """The neutral element is no write of its own; +0.0 is one: -0.0 + 0.0 is 0.0."""
    text = """
        block f [x:6] (out R[x]:assign f32(1):(1)) {{
          $z = constant({}) f32
          R = store($z)
        }}
        block R [x:6, k:8] (in X[x, k] f32(1, 1):(8, 1)  inout R[x]:add f32(1):(1)) {{
          $a = load(X) f32
          R = store($a)
        }}"""
    assert proved(SUMS, body(text.format("-0.0")))
    assert validate(SUMS, body(text.format("1.0"))).status == "unproved"


@pytest.mark.parametrize(
    ("view", "at"),
    [("X[x, 7 - k]", None), ("X[5 - x, k]", (5,)), ("X[x, 0]", (5,)), ("X[0, k]", (5,))],
)
def test_other_elements_are_not_proved(view: str, at: tuple[int, ...] | None) -> None:
    """The order of a sum is free; what is summed is not."""
    after = body(
        f"""
        block R [x:6, k:8] (in {view} f32(1, 1):(8, 1)  out R[x]:add f32(1):(1)) {{
          $a = load(X) f32
          R = store($a)
        }}"""
    )
    assert proved(SUMS, after) is (at is None)
    if at is not None:
        verdict = validate(SUMS, after)
        assert verdict.kernels[0].kernel == "main/R"
        assert verdict.kernels[0].status == "unproved"
        assert checked(SUMS, after).status == "refuted"


@pytest.mark.parametrize(("size", "holds"), [(8, True), (7, False)])
def test_how_often_equal_values_are_summed_counts(size: int, holds: bool) -> None:
    def of(indexes: str) -> Program:
        return body(
            f"""
            block R [x:6, {indexes}] (in X[x, 0] f32(1, 1):(8, 1)  out R[x]:add f32(1):(1)) {{
              $a = load(X) f32
              R = store($a)
            }}"""
        )

    assert proved(of("k:8"), of(f"j:{size}")) is holds
    assert proved(of("k:8"), of("j:2, i:4"))
    assert not proved(of("k:8"), of("j:2, i:3"))


def test_a_maximum_does_not_count() -> None:
    def of(indexes: str, at: str) -> Program:
        return body(
            f"""
            block R [x:6, {indexes}] (in X[x, {at}] f32(1, 1):(8, 1)  out R[x]:max f32(1):(1)) {{
              $a = load(X) f32
              R = store($a)
            }}"""
        )

    assert proved(of("k:8", "k"), of("k:8, j:2", "k"))
    assert proved(of("k:8", "k"), of("i:4, j:5", "i + j"))
    assert not proved(of("k:8", "k"), of("i:4, j:4", "i + j"))


def test_aggregations_must_be_the_same() -> None:
    root = SUMS.root
    kernel = root.children[0]
    refs = (kernel.refinements[0], replace(kernel.refinements[1], aggregation=Aggregation.MAX))
    other = replace(SUMS, root=replace(root, statements=(replace(kernel, refinements=refs),)))
    assert "add against max" in validate(SUMS, other).reason
    assert "output 'R', element [" in checked(SUMS, other).reason


def test_copies_constants_and_operand_order_are_looked_through() -> None:
    one = body(
        """
        block R [x:6] (
          in X[x, 2] f32(1, 1):(8, 1)  in Y = X[x, 3] f32(1, 1):(8, 1)  out R[x]:assign f32(1):(1)) {
          $a = load(X) f32
          $b = load(Y) f32
          $c = mul($a, $b) f32
          R = store($c)
        }"""
    )
    two = body(
        """
        block t [x:6] (in X[x, 0] f32(1, 8):(8, 1)  out R[x]:assign f32(1):(1)  new T f32(2):(1)) {
          block c [i:2] (in X[0, i + 2] f32(1, 1):(8, 1)  out T[1 - i]:assign f32(1):(1)) {
            $a = load(X) f32
            T = store($a)
          }
          block r [] (in T[0] f32(1):(1)  in U = T[1] f32(1):(1)  out R[0]:assign f32(1):(1)) {
            $a = load(T) f32
            $b = load(U) f32
            $o = constant(1.0) f32
            $c = mul($a, $b) f32
            $d = mul($c, $o) f32
            R = store($d)
          }
        }"""
    )
    assert proved(one, two)


def test_a_load_time_program_is_looked_through() -> None:
    before = program_of(
        """
        block main [] (const in W[0] f32(4):(1)  out R[0]:assign f32(4):(1)) {
          block R [x:4] (in W[3 - x] f32(1):(1)  out R[x]:assign f32(1):(1)) {
            $w = load(W) f32
            R = store($w)
          } }"""
    )
    after = program_of(
        """
        load block pack [] (in W[0] f32(4):(1)  out V[0]:assign f32(4):(1)) {
          block V [x:4] (in W[3 - x] f32(1):(1)  out V[x]:assign f32(1):(1)) {
            $w = load(W) f32
            V = store($w)
          } }
        block main [] (const in W[0] f32(4):(1)  in V[0] f32(4):(1)  out R[0]:assign f32(4):(1)) {
          block R [x:4] (in V[x] f32(1):(1)  out R[x]:assign f32(1):(1)) {
            $w = load(V) f32
            R = store($w)
          } }"""
    )
    assert proved(before, after)


def test_an_aggregating_root_is_not_an_assigning_one() -> None:
    fill = """
        block f [x:6] (out R[x]:assign f32(1):(1)) {
          $z = constant(5.0) f32
          R = store($z)
        }
        block g [x:6] (in X[x, 0] f32(1, 1):(8, 1)  out R[x]:assign f32(1):(1)) {
          $z = load(X) f32
          R = store($z)
        }"""
    last, least = body(fill), program_of(f"{HEAD.replace(':assign', ':min')} {fill} }}")
    assert not proved(last, least)


def test_signatures_that_differ_are_refuted() -> None:
    other = program_of(
        """
        block main [] (in Z[0] f32(6):(1)  out R[0]:assign f32(6):(1)) {
          block R [x:6] (in Z[x] f32(1):(1)  out R[x]:assign f32(1):(1)) {
            $a = load(Z) f32
            R = store($a)
          } }"""
    )
    verdict = validate(SUMS, other)
    assert (verdict.status, verdict.reason) == ("refuted", "'X' is in the signature of one program only")


def test_what_is_no_proof_but_runs_alike_says_so() -> None:
    before = body(
        """
        block R [x:6] (in X[x, 0] f32(1, 1):(8, 1)  out R[x]:assign f32(1):(1)) {
          $a = load(X) f32
          $b = add($a, $a) f32
          R = store($b)
        }"""
    )
    after = body(
        """
        block R [x:6] (in X[x, 0] f32(1, 1):(8, 1)  out R[x]:assign f32(1):(1)) {
          $a = load(X) f32
          $t = constant(2.0) f32
          $b = mul($a, $t) f32
          R = store($b)
        }"""
    )
    verdict = checked(before, after)
    assert (verdict.status, verdict.ran) == ("unproved", True)
    assert str(verdict).startswith(
        "unproved (0 of 1 changed kernels proved, the rest by example): output 'R'"
    )


def test_a_large_program_is_not_run() -> None:
    large = program_of(
        """
        block main [] (in X[0] f32(90000000):(1)  out R[0]:assign f32(1):(1)) {
          block R [k:90000000] (in X[k] f32(1):(1)  out R[0]:add f32(1):(1)) {
            $a = load(X) f32
            R = store($a)
          } }"""
    )
    assert is_small(SUMS)
    assert not is_small(large)


def test_a_proof_is_not_taken_for_that_of_another_load_time_program() -> None:
    """Kernels that are alike are proved once; what they read may still be made in another way."""

    def of(at: str) -> Program:
        return program_of(
            f"""
            load block pack [] (in W[0] f32(4):(1)  out V[0]:assign f32(4):(1)) {{
              block V [x:4] (in W[{at}] f32(1):(1)  out V[x]:assign f32(1):(1)) {{
                $w = load(W) f32
                V = store($w)
              }} }}
            block main [] (const in W[0] f32(4):(1)  in V[0] f32(4):(1)  out R[0]:assign f32(4):(1)) {{
              block R [x:4] (in V[x] f32(1):(1)  out R[x]:assign f32(1):(1)) {{
                $w = load(V) f32
                R = store($w)
              }} }}"""
        )

    assert proved(of("x"), replace(of("x"), root=replace(of("x").root, name="other")))
    assert not proved(of("x"), of("3 - x"))
    assert not proved(of("3 - x"), of("x"))


def test_proofs_of_kernels_that_are_alike_follow_the_names() -> None:
    def of(first: str, second: str) -> Program:
        return program_of(
            f"""
            block main [] (in X[0] f32(4):(1)  in Y[0] f32(4):(1)
                           out R[0]:assign f32(4):(1)  out S[0]:assign f32(4):(1)) {{
              block R [x:2, y:2] (in {first}[2*x + y] f32(1):(1)  out R[2*x + y]:assign f32(1):(1)) {{
                $w = load({first}) f32
                R = store($w)
              }}
              block S [x:4] (in {second}[x] f32(1):(1)  out S[x]:assign f32(1):(1)) {{
                $w = load({second}) f32
                S = store($w)
              }} }}"""
        )

    def flat(first: str, second: str) -> Program:
        return program_of(
            f"""
            block main [] (in X[0] f32(4):(1)  in Y[0] f32(4):(1)
                           out R[0]:assign f32(4):(1)  out S[0]:assign f32(4):(1)) {{
              block S [x:2, y:2] (in {second}[2*x + y] f32(1):(1)  out S[2*x + y]:assign f32(1):(1)) {{
                $w = load({second}) f32
                S = store($w)
              }}
              block R [x:4] (in {first}[x] f32(1):(1)  out R[x]:assign f32(1):(1)) {{
                $w = load({first}) f32
                R = store($w)
              }} }}"""
        )

    assert proved(of("X", "Y"), flat("X", "Y"))
    assert proved(of("Y", "X"), flat("Y", "X"))
    assert not proved(of("X", "Y"), flat("Y", "X"))
    assert not proved(of("X", "X"), flat("X", "Y"))


def test_operands_of_what_commutes_may_change_places_far_down() -> None:
    text = """
        block R [x:6] (in X[x, 0] f32(1, 1)  in Y = X[x, 1] f32(1, 1)  out R[x]:assign f32(1)) {
          $a = load(X) f32  $b = load(Y) f32  $c = constant(2.5) f32
          $p = mul($a, $b) f32  $q = mul($c, $p) f32  $r = add($q, $c) f32
          R = store($r)
        }"""
    changed = text.replace("mul($a, $b)", "mul($b, $a)")
    assert proved(body(text), body(changed))
    assert proved(body(text), body(changed.replace("add($q, $c)", "add($c, $q)")))
    assert not proved(body(text), body(text.replace("mul($a, $b)", "sub($b, $a)")))


def in_parts(
    *, part: str = "X[j, 0]", limit: str = "", rest: str = "X[x, k]", product: str = "mul($b, $t)"
) -> Program:
    """Sums of X[x, k] * X[j, k] * X[j, 0] over j and k, where those over j come first; or nearly so."""
    return program_of(
        f"""{HEAD.removesuffix(") {")}  new T f32(8):(1)) {{
        block t [k:8, j:6] ({limit}
          in X[j, k] f32(1, 1)  in Y = {part} f32(1, 1)  out T[k]:add f32(1)) {{
          $a = load(X) f32  $b = load(Y) f32  $p = mul($b, $a) f32  T = store($p)
        }}
        block R [x:6, k:8] (in X = {rest} f32(1, 1)  in T[k] f32(1)  out R[x]:add f32(1)) {{
          $b = load(X) f32  $t = load(T) f32  $p = {product} f32  R = store($p)
        }} }}"""
    )


@pytest.mark.parametrize(
    ("after", "holds"),
    [
        pytest.param(in_parts(), True, id="the same"),
        pytest.param(in_parts(part="X[j, 1]"), False, id="another element"),
        pytest.param(in_parts(limit="j - 1 >= 0"), False, id="fewer terms"),
        pytest.param(in_parts(rest="X[x, 7 - k]"), False, id="terms that do not belong together"),
        pytest.param(in_parts(product="mul($t, $t)"), False, id="a factor twice"),
        pytest.param(in_parts(product="add($t, $b)"), False, id="no product"),
    ],
)
def test_factors_may_be_summed_up_ahead(after: Program, holds: bool) -> None:
    whole = body(
        """
        block R [x:6, k:8, j:6] (
          in X[x, k] f32(1, 1)  in Y = X[j, k] f32(1, 1)  in Z = X[j, 0] f32(1, 1)  out R[x]:add f32(1)) {
          $a = load(X) f32  $b = load(Y) f32  $c = load(Z) f32  $p = mul($b, $c) f32  $q = mul($a, $p) f32
          R = store($q)
        }"""
    )
    assert proved(whole, after) is holds
