"""Sums over short rows of all kinds, and what is nearly one, several rows at a time: the same results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from hwconfigs.load import load_named
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.bundle import Bundle, Bundled
from stripe.passes.choices import Given
from tests.support.meaning import Array, random_inputs
from tests.support.passes import outcomes, program_of

BODIES = (  # of the values $x, of a row, and $m, of several rows
    "S = store($x)",
    "$d = sub($x, $m) f32  $q = mul($d, $d) f32  S = store($q)",
    "$d = add($x, $m) f32  Y = store($d)  S = store($d)",
    "S = store($x)  $q = mul($x, $m) f32  T = store($q)",
    "$i = index(b) f32  $q = add($x, $i) f32  S = store($q)",
    "$i = index(c) f32  $q = add($x, $i) f32  S = store($q)",
)
NEST = """
    block N [c:{c}] (in X[0, 0, 0, c] f32({b}, {h}, {w}, 1)  out S[0, c]:assign f32(1, 1)  new R f32(1)) {{
      block R [b:{b}, h:{h}, w:{w}] (in X[b, h, w, 0] f32(1, 1, 1, 1)  out R[0]:{how} f32(1)) {{
        $x = load(X) f32  R = store($x) }}
      block S [] (in R[0] f32(1)  out S[0, 0]:assign f32(1, 1)) {{
        $x = load(R) f32  $y = neg($x) f32  S = store($y) }}
    }}"""


def random_sum(seed: int) -> tuple[str, str]:
    """A program, and its aggregation."""
    rng = np.random.default_rng(seed)

    def some(*of: str) -> str:
        return of[int(rng.integers(len(of)))]

    b, h, w, c = (int(size) for size in (rng.integers(1, 4), *rng.integers(1, 9, 2), rng.integers(2, 7)))
    how, body = some("add", "mul", "max", "min"), some(*BODIES)
    row = c + int(some("0", "0", "0", "1"))  # elements from row to row
    limits = some("", "", "", "", f"{b} - b - 1 >= 0", "h + w - 1 >= 0")
    points = [f"b:{b}", f"h:{h}", f"w:{w}", f"c:{c}"]
    rng.shuffle(points)
    result = some("b, c", "b, c", "0, c", "c, b", "b, 2*c")
    views = (
        f"in X[b, h, w, c] f32(1, 1, 1, 1)  in M[{some('0, c', 'b, c', 'h, c', 'w, c', '0, 0')}] f32(1, 1)"
    )
    for name in ("S", "T"):
        if f"{name} =" in body:
            views += f"  out {name}[{result}]:{how} f32(1, 1)"
    if "Y =" in body:
        views += "  out Y[b, h, w, c]:assign f32(1, 1, 1, 1)"
    block = (
        f"block S [{', '.join(points)}] ({limits} {views}) {{ $x = load(X) f32  $m = load(M) f32  {body} }}"
    )
    if rng.random() < 0.2:
        block = NEST.format(b=b, h=h, w=w, c=c, how=how)
    fills = (
        f"block {name}_fill [i:12, j:12] (out {name}[i, j]:assign f32(1, 1)) {{"
        f" $i = index(i + 2*j) f32  {name} = store($i) }}"
        for name in ("S", "T")
    )
    text = f"""
        block main [] (
          in X[0, 0, 0, 0] f32({b}, {h}, {w}, {c}):({h * w * row}, {w * row}, {row}, 1)  in M[0, 0] f32(9, 9)
          out S[0, 0]:assign f32(12, 12)  out T[0, 0]:assign f32(12, 12)
          out Y[0, 0, 0, 0]:assign f32({b}, {h}, {w}, {c})
        ) {{
          {"  ".join(fills)}
          block Y_fill [b:{b}, h:{h}, w:{w}, c:{c}] (out Y[b, h, w, c]:assign f32(1, 1, 1, 1)) {{
            $i = index(b) f32  Y = store($i) }}
          {block}
        }}
    """
    return text, how


def inputs_of(program: Program, seed: int, how: str) -> dict[str, Array]:
    """Small integers; factors that are powers of two, so that no product is rounded."""
    rng = np.random.default_rng(seed)
    given = random_inputs(program, rng)
    if how == "mul":
        return {n: np.asarray(rng.choice([1.0, -1.0], v.shape), v.dtype) for n, v in given.items()}
    return given


def check(seeds: Iterable[int]) -> Counter[str]:
    """How often rows were added up several at a time, and how often not."""
    hw, found = load_named("generic"), Counter[str]()
    for seed in seeds:
        text, how = random_sum(seed)
        try:
            program = program_of(text)
        except CompileError:
            found["no program"] += 1
            continue
        inputs = inputs_of(program, seed, how)
        contexts, rng = [PassContext(hw)], np.random.default_rng(seed)
        for _ in range(3):
            chosen = Bundled("bhw"[int(rng.integers(3))], int(rng.integers(2, 6)))
            nested = "main/N/R" if "block N" in text else "main/S"
            contexts.append(PassContext(hw, given=Given({nested: chosen})))
        found.update(outcomes(program, Bundle(), contexts, inputs, 1e-5))
    return found


def test_rows_in_bundles_compute_the_same() -> None:
    found = check(range(80))
    assert found["acted"] > 60 and found["refused"] > 20, found


@pytest.mark.slow
def test_many_rows_in_bundles_compute_the_same(say: Callable[[object], None]) -> None:
    say(check(range(80, 4000)))
