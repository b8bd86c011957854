"""Contractions that are symmetric, or nearly so: a half is copied only where it has the same bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import numpy as np
import pytest

from hwconfigs.load import load_named
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.symmetry import Mirrored, Symmetry
from tests.support.meaning import Array, random_inputs
from tests.support.passes import outcomes, program_of

BODIES = (  # of the values $a and $b, which change places
    "$p = mul($a, $b) f32",
    "$p = add($a, $b) f32",
    "$s = add($b, $a) f32  $p = mul($s, $s) f32",
    "$x = neg($a) f32  $y = neg($b) f32  $q = mul($x, $y) f32  $p = add($x, $q) f32  $r = add($q, $y) f32",
    "$c = constant(3.0) f32  $q = mul($b, $a) f32  $p = sub($q, $c) f32",
    "$i = index(i + 2) f32  $j = index(j + 2) f32  $x = mul($a, $i) f32  $y = mul($j, $b) f32\n"
    "$p = mul($x, $y) f32",
    "$p = sub($a, $b) f32",
    "$p = max($a, $b) f32",
    "$q = mul($a, $b) f32  $p = mul($q, $a) f32",
)  # fmt: skip


def some(rng: np.random.Generator, of: Sequence[str]) -> str:
    return of[int(rng.integers(len(of)))]


def random_contraction(seed: int) -> tuple[str, bool]:
    """A program, and whether its points are one term each, so that no order of a sum can matter."""
    rng = np.random.default_rng(seed)
    size, terms, batch = (int(rng.integers(low, high)) for low, high in ((2, 7), (1, 5), (1, 3)))
    other = size + int(rng.random() < 0.1)
    one = [some(rng, ("n", "2*n + 1", "b")), some(rng, ("i", "2*i", f"{size} - i", "i + b", "i + n"))]
    two = [expr.replace("i", "j") for expr in one]
    if rng.random() < 0.3:
        at = int(rng.integers(2))
        two[at] += some(rng, (" + 1", " - n + 3", " + i"))
    if rng.random() < 0.3:
        one, two = one[::-1], two[::-1]
    result = [some(rng, ("i", "2*i", "i + 1")), some(rng, ("j", "j + 2", f"{size} - j")), "b"]
    rng.shuffle(result)
    limits = [
        some(rng, ("i + j - 2 >= 0", "i - j + 1 >= 0  j - i + 1 >= 0", "i + j - n >= 0")),
        some(rng, ("i - 1 >= 0", "i - j >= 0", "j - 1 >= 0  i - 2 >= 0", "i - j - n >= 0")),
    ]
    chance = rng.random()
    constraints = "" if chance < 0.6 else limits[0] if chance < 0.8 else limits[1]
    points = [f"i:{size}", f"j:{other}", f"n:{terms}", f"b:{batch}"]
    rng.shuffle(points)
    text = f"""
        block main [] (in D[0, 0] f32(32, 32)  out T[0, 0, 0]:assign f32(16, 16, 16)) {{
          block fill [x:16, y:16, z:16] (out T[x, y, z]:assign f32(1, 1, 1)) {{
            $x = index(x + 2*y + 3*z) f32  T = store($x) }}
          block T [{", ".join(points)}] ({constraints}
            in D[{one[0]}, {one[1]}] f32(1, 1)  in E = D[{two[0]}, {two[1]}] f32(1, 1)
            out T[{", ".join(result)}]:{some(rng, ("add", "mul", "max", "min"))} f32(1, 1, 1)
          ) {{ $a = load(D) f32  $b = load(E) f32  {some(rng, BODIES)}  T = store($p) }}
        }}
    """
    return text, terms == 1


def inputs_of(program: Program, seed: int, exact: bool) -> dict[str, Array]:
    """Values whose products are rounded where no sum is, else small integers."""
    rng = np.random.default_rng(seed)
    given = random_inputs(program, rng)
    if exact:
        return {n: np.asarray(rng.standard_normal(v.shape), v.dtype) for n, v in given.items()}
    return given


def check(seeds: Iterable[int]) -> Counter[str]:
    """How often halves were copied, and how often not."""
    hw, found = load_named("generic"), Counter[str]()
    for seed in seeds:
        text, exact = random_contraction(seed)
        try:
            program = program_of(text)
        except CompileError:
            found["no program"] += 1
            continue
        pairs = combinations("ijnb", 2)
        contexts = (PassContext(hw, given=Given({"main/T": Mirrored(pair)})) for pair in pairs)
        found.update(outcomes(program, Symmetry(), contexts, inputs_of(program, seed, exact)))
    return found


def test_a_half_is_copied_only_where_it_has_the_same_bits() -> None:
    found = check(range(150))
    assert found["acted"] > 20 and found["refused"] > 200, found


@pytest.mark.slow
def test_a_half_is_copied_only_where_it_has_the_same_bits_in_many_programs(
    say: Callable[[object], None],
) -> None:
    say(check(range(150, 4000)))
