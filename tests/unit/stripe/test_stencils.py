"""Which blocks are uses of a stencil, and why others are not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hwconfigs.expressions import evaluate_size, evaluate_sizes
from hwconfigs.model import HwConfig, SizeRange, Stencil
from stripe.analysis.bounds import leaves
from stripe.analysis.stencils import matches, uses
from stripe.analysis.stencils_cost import legal_sizes, weighed
from stripe.visit import views_of
from tests.support.passes import program_of
from tests.support.stencil_targets import MAC_4, MAC_16, OUTER, machine

FMA = Stencil(
    "fma", "ARRAY", "acc += x * y", {"i": "any", "j": SizeRange("lanes"), "p": "any"}, OUTER,
    {"x": "f32", "y": "f32", "acc": "f32"}, stride={"y": {"j": 1}, "acc": {"j": 1}},
    registers={"acc": "i * j / lanes", "y": "j / lanes", "x": "1"},
)  # fmt: skip


def leaf(
    m: int = 4, n: int = 16, k: int = 8, *,
    a: str = "m, k", b: str = "k, n", c: str = "m, n", op: str = "add",
    types: tuple[str, str, str] = ("f32", "f32", "f32"), body: str = "", limits: str = "",
) -> Any:  # fmt: skip
    """A root with one leaf block `dot` over [m, n, k] that sums products of A and B."""
    wide = types[2]
    text = body or (
        f"$a = load(A) {types[0]}\n$b = load(B) {types[1]}\n"
        + (f"$x = cast($a) {wide}\n" if types[0] != wide else "")
        + (f"$y = cast($b) {wide}\n" if types[1] != wide else "")
        + f"$p = mul(${'x' if types[0] != wide else 'a'}, ${'y' if types[1] != wide else 'b'}) {wide}\n"
        + "C = store($p)\n"
    )
    return program_of(f"""
        block main [] (
          in A[0, 0] {types[0]}(64, 64):(64, 1)
          in B[0, 0] {types[1]}(64, 64):(64, 1)
          out C[0, 0]:assign {wide}(64, 64):(64, 1)
        ) {{
          block fill [i:64, j:64] (out C[i, j]:assign {wide}(1, 1):(64, 1)) {{
            $z = constant({"0.0" if wide[0] == "f" else "0"}) {wide}
            C = store($z)
          }}
          block dot [m:{m}, n:{n}, k:{k}] (
            {limits}
            in A[{a}] {types[0]}(1, 1):(64, 1)
            in B[{b}] {types[1]}(1, 1):(64, 1)
            out C[{c}]:{op} {wide}(1, 1):(64, 1)
          ) {{
            {text}
          }}
        }}
    """).root


def refusal(stencil: Stencil, root: Any, hw: HwConfig | None = None) -> str:
    return uses(stencil, root.children[1], hw or machine(stencil), views_of(root, {}))


def test_a_product_is_a_use_whatever_the_order_of_its_operands() -> None:
    swapped = "$b = load(B) f32\n$a = load(A) f32\n$p = mul($b, $a) f32\nC = store($p)\n"
    assert refusal(FMA, leaf()) == ""
    assert refusal(FMA, leaf(body=swapped)) == ""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"op": "max"}, "its result is aggregated by max, that of the stencil by add"),
        ({"types": ("f32", "f64", "f64")}, "its operand"),
        ({"b": "n, k"}, "the stride of operand y (B) along j (n) is 64 and must be 1"),
        ({"b": "k, 2*n"}, "the stride of operand y (B) along j (n) is 2 and must be 1"),
        ({"m": 40}, "it needs 42 registers, 'ARRAY' has 16"),
        ({"a": "m, m + k"}, ""),
        ({"c": "0, m + n"}, "several points of a use would write one element"),
        ({"limits": "m + n + k - 1 >= 0\n20 - m - n - k >= 0"}, "no operand has all indexes of"),
        ({"limits": "4 - m - n >= 0"}, ""),
        ({"limits": "4 - m - k >= 0"}, ""),
        ({"m": 1, "n": 1}, ""),
    ],
)  # fmt: skip
def test_what_makes_a_block_no_use(options: dict[str, Any], reason: str) -> None:
    found = refusal(FMA, leaf(**options))
    assert found.startswith(reason) if reason else found == ""


def test_each_index_is_needed_by_the_operands_that_the_stencil_names() -> None:
    free = replace(FMA, stride={})
    assert refusal(free, leaf(c="m, m")) == "its index n can't be one of the stencil's"
    assert refusal(free, leaf(a="k, n")) == "its index m can't be one of the stencil's"
    assert refusal(free, leaf(a="m, 0")) == "its index k can't be one of the stencil's"


BODY = "$a = load(A) f32\n$b = load(B) f32\n"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (BODY + "$p = add($a, $b) f32\nC = store($p)\n", "it does not compute 'acc += x * y'"),
        (BODY + "$d = add($a, $b) f32\n$p = mul($a, $b) f32\nC = store($p)\n", "nothing uses $d"),
        (BODY + "$p = mul($a, $b) f32\nC = store($p)\nC = store($p)\n", "it has 2 stores"),
        ("$a = load(A) f32\n$b = constant(2.0) f32\n$p = mul($a, $b) f32\nC = store($p)\n",
         "it computes with $b, which is not loaded"),
        (BODY + "$h = cast($a) f16\n$w = cast($h) f32\n$p = mul($w, $b) f32\nC = store($p)\n",
         "$h rounds or wraps to f16"),
        (BODY + "$p = mul($a, $b) f32\n$q = cast($p) f64\n$r = cast($q) f32\nC = store($r)\n",
         "$q converts what was computed"),
    ],
)  # fmt: skip
def test_bodies_that_are_no_product(body: str, reason: str) -> None:
    assert refusal(FMA, leaf(body=body)) == reason


def test_casts_to_the_type_of_the_result_are_seen_through() -> None:
    halves = replace(FMA, types={"x": "bf16", "y": "bf16", "acc": "f32"})
    assert refusal(halves, leaf(types=("bf16", "bf16", "f32"))) == ""
    stepwise = (
        "$a = load(A) i8\n$h = cast($a) i16\n$x = cast($h) i32\n$b = load(B) i8\n$y = cast($b) i32\n"
        "$p = mul($x, $y) i32\nC = store($p)\n"
    )
    root = leaf(4, 4, 4, types=("i8", "i8", "i32"), body=stepwise)
    assert refusal(MAC_4, root) == ""
    wrapped = stepwise.replace("i16", "u8")
    assert "rounds or wraps to u8" in refusal(MAC_4, leaf(4, 4, 4, types=("i8", "i8", "i32"), body=wrapped))


def test_operands_that_differ_stay_apart() -> None:
    mixed = replace(MAC_4, types={"x": "u8", "y": "i8", "acc": "i32"})
    assert refusal(mixed, leaf(4, 4, 4, types=("u8", "i8", "i32"))) == ""
    assert (
        refusal(mixed, leaf(4, 4, 4, types=("i8", "u8", "i32"))) == ""
    )  # its rows are the stencil's columns
    assert refusal(mixed, leaf(4, 4, 4, types=("u8", "u8", "i32"))) == "its operand y is i8, B holds u8"
    minus = replace(FMA, body="acc += x - y")
    turned = "$a = load(A) f32\n$b = load(B) f32\n$p = sub($b, $a) f32\nC = store($p)\n"
    assert refusal(minus, leaf(body=turned)).startswith("the stride of operand")


def test_one_write_is_the_value_under_any_aggregation() -> None:
    assert refusal(FMA, leaf(k=1, op="assign")) == ""


def test_a_tag_proves_nothing() -> None:
    root = leaf(body=BODY + "$p = add($a, $b) f32\nC = store($p)\n")
    tagged = program_of(
        "block main [] (in A[0] f32(4):(1)  out C[0]:assign f32(4):(1)) {"
        " block c [i:4] (in A[i] f32(1):(1)  out C[i]:assign f32(1):(1)) #stencil=fma {"
        " $a = load(A) f32\n C = store($a) } }"
    ).root
    assert refusal(FMA, root) != ""
    assert uses(FMA, tagged.children[0], machine(FMA), views_of(tagged, {})) != ""


@pytest.mark.parametrize(
    ("rule", "size", "fits"),
    [
        (16, 16, True), (16, 15, True), (16, 17, False), (16, 1, True), ("any", 23, True),
        (SizeRange(4, 4, 16), 16, True), (SizeRange(4, 4, 16), 17, False), (SizeRange(4, 4, 18), 17, False),
        (SizeRange(4, 8), 3, True), (SizeRange("lanes"), 40, True), (SizeRange("lanes", 1, 32), 40, False),
    ],
)  # fmt: skip
def test_sizes_up_to_a_legal_one_are_a_padded_use(rule: Any, size: int, fits: bool) -> None:
    stencil = replace(MAC_16, indices={"i": 16, "j": 16, "p": rule})
    found = refusal(stencil, leaf(4, 4, size, types=("i8", "i8", "i32")))
    assert (found == "") is fits
    assert fits or found == f"{size} points along its index p are more than one use takes"


def test_a_nest_is_a_use_as_the_flat_block_is() -> None:
    text = """
        block main [] (
          in A[0, 0] i8(4, 8):(8, 1)
          in B[0, 0] i8(8, 4):(4, 1)
          out C[0, 0]:assign i32(4, 4):(4, 1)
        ) {
          block c [m:4, n:4, k:2] (
            in A[m, 4*k] i8(1, 4):(8, 1)
            in B[4*k, n] i8(4, 1):(4, 1)
            out C[m, n]:add i32(1, 1):(4, 1)
          ) {
            block c [k:4, ko = 4*k] (
              6 - k - ko >= 0
              in A[0, k] i8(1, 1):(8, 1)
              in B[k, 0] i8(1, 1):(4, 1)
              out C[0, 0]:add i32(1, 1):(4, 1)
            ) {
              $a = load(A) i8
              $b = load(B) i8
              $x = cast($a) i32
              $y = cast($b) i32
              $p = mul($x, $y) i32
              C = store($p)
            }
          }
        }
    """
    root = program_of(text).root
    assert uses(MAC_16, root.children[0], machine(MAC_16), views_of(root, {})) == ""
    assert "more than one use takes" in uses(MAC_4, root.children[0], machine(MAC_4), views_of(root, {}))


def test_maps_cover_as_many_indexes_as_they_can() -> None:
    root = leaf(types=("i8", "i8", "i32"))
    (found,) = (f for f in leaves(root.children[1], views_of(root, {})))
    maps = {tuple(sorted((s, n) for s, n in fit.indexes.items())) for fit in matches(MAC_16, found).fits}
    assert maps == {(("i", "m"), ("j", "n"), ("p", "k")), (("i", "n"), ("j", "m"), ("p", "k"))}


def test_expressions_are_not_searched_for_ever() -> None:
    lines = ["$v0 = load(A) f32", *(f"$v{n + 1} = mul($v{n}, $v{n}) f32" for n in range(100))]
    body = "\n".join([*lines, "$b = load(B) f32", "$p = mul($v100, $b) f32", "C = store($p)", ""])
    assert refusal(FMA, leaf(body=body)) == "it computes more than any stencil does"


def test_the_cheapest_sizes_come_first_and_the_others_are_counted() -> None:
    fma = replace(FMA, loads={"x": "i * p", "y": "p * j / lanes"}, cycles="i * j * p / lanes")
    root = leaf(60, 64, 64)
    hw = machine(fma)
    (found,) = leaves(root.children[1], views_of(root, {}))
    fit = next(f for f in matches(fma, found).fits if f.indexes["i"] == "m")
    answer = weighed(fit, found, hw, 1 << 16, {})
    costs = [s.cost for s in answer.fitting if s.cost is not None]
    assert costs == sorted(costs) and len(costs) == len(answer.fitting)
    assert all(s.registers <= 16 for s in answer.fitting) and all(s.registers > 16 for s in answer.excluded)
    assert answer.fitting[0].sizes == {"m": 6, "n": 32, "k": 64}
    thin = weighed(fit, found, hw, 20, {})
    assert thin.looked_at <= 20 < answer.looked_at


def test_sizes_worth_a_look_are_the_least_for_a_number_of_uses() -> None:
    hw = machine(FMA)
    assert legal_sizes(FMA, "i", 10, hw) == (1, 2, 3, 4, 5, 10)
    assert legal_sizes(FMA, "j", 40, hw) == (16, 32, 48)
    assert legal_sizes(MAC_16, "p", 40, hw) == (16,)


@pytest.mark.parametrize("text", ["i * j / lanes", "max(i, 4) + ceil(j / 3)", "min(i, j, 5) - 2.5"])
def test_arrays_of_sizes_are_evaluated_like_single_ones(text: str) -> None:
    sizes = [1, 3, 8]
    found = evaluate_sizes(text, {"i": sizes, "j": 7, "lanes": 16})
    assert found.tolist() == [evaluate_size(text, {"i": i, "j": 7, "lanes": 16}) for i in sizes]
