"""Running sums of all kinds, and what is nearly one, in pieces of any sizes: they compute the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from hwconfigs.load import load_named
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.prefix import Pieces, Prefix
from tests.support.meaning import Array, random_inputs
from tests.support.passes import outcomes, program_of

BODIES = (  # of the value $x
    "O = store($x)",
    "$p = neg($x) f32  O = store($p)",
    "$k = index(k + 1) f32  $p = add($x, $k) f32  O = store($p)",
)


def random_sum(seed: int) -> tuple[str, str]:
    """A program, and its aggregation."""
    rng = np.random.default_rng(seed)

    def some(*of: str) -> str:
        return of[int(rng.integers(len(of)))]

    terms = int(rng.integers(2, 31))
    results = max(1, terms + int(rng.integers(-4, 5))) if rng.random() < 0.5 else terms
    shift = int(rng.integers(-5, 6)) if rng.random() < 0.5 else 0
    limit = some("i - k", "k - i") + f" + {shift}".replace("+ -", "- ") + " >= 0"
    limit += some("", "", "", "", "", " k - 1 >= 0", " i + k - b >= 0")
    batch = int(rng.integers(1, 4))
    place = {0: ["i", "b"], 1: ["i + 2", "b"], 2: [f"{results} - i", "b"], 3: ["2*i", "b"]}
    access = place[int(rng.integers(4))]
    term = [some("k", f"{terms} - k", "k + b", "2*k"), some("b", "0")]
    if rng.random() < 0.5:
        access, term = access[::-1], term[::-1]
    points = [f"i:{results}", f"k:{terms}", f"b:{batch}"]
    rng.shuffle(points)
    how = some("add", "mul", "max", "min")
    text = f"""
        block main [] (in X[0, 0] f32(64, 64)  out O[0, 0]:assign f32(72, 72)) {{
          block fill [x:72, y:72] (out O[x, y]:assign f32(1, 1)) {{
            $x = index(x + 2*y) f32  O = store($x) }}
          block O [{", ".join(points)}] ({limit}
            in X[{", ".join(term)}] f32(1, 1)  out O[{", ".join(access)}]:{how} f32(1, 1)
          ) {{ $x = load(X) f32  {some(*BODIES)} }}
        }}
    """
    return text, how


def inputs_of(program: Program, seed: int, how: str) -> dict[str, Array]:
    """Small integers; factors that are powers of two, so that no product is rounded."""
    rng = np.random.default_rng(seed)
    given = random_inputs(program, rng)
    if how == "mul":
        return {n: np.asarray(rng.choice([1.0, -1.0, 2.0, 0.5], v.shape), v.dtype) for n, v in given.items()}
    return given


def check(seeds: Iterable[int]) -> Counter[str]:
    """How often sums were cut, and how often not."""
    hw, found = load_named("generic"), Counter[str]()
    for seed in seeds:
        text, how = random_sum(seed)
        try:
            program = program_of(text)
        except CompileError:
            found["no program"] += 1
            continue
        contexts = [PassContext(hw)]
        rng = np.random.default_rng(seed)
        for _ in range(3):
            sizes = tuple(int(size) for size in rng.integers(2, 7, int(rng.integers(1, 3))))
            contexts.append(PassContext(hw, given=Given({"main/O": Pieces(sizes)})))
        rounded = "index(k" in text and how == "mul"
        inputs = inputs_of(program, seed, how)
        found.update(outcomes(program, Prefix(), contexts, inputs, 1e-5 if rounded else 0.0))
    return found


def test_running_sums_in_pieces_compute_the_same() -> None:
    found = check(range(60))
    assert found["acted"] > 60 and found["refused"] > 10, found


@pytest.mark.slow
def test_many_running_sums_in_pieces_compute_the_same(say: Callable[[object], None]) -> None:
    say(check(range(60, 4000)))
