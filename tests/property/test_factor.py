"""Products of several factors of all kinds, in parts of all kinds: they compute the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest

from hwconfigs.load import load_named
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.factor import Factor, Parts
from tests.support.meaning import Array, random_inputs
from tests.support.passes import outcomes, program_of

INDEXES = "ijkmn"


def random_product(seed: int) -> tuple[str, tuple[str, ...]]:
    """A program, and the scalars of its factors."""
    rng = np.random.default_rng(seed)

    def some(*of: str) -> str:
        return of[int(rng.integers(len(of)))]

    def place(most: int) -> list[str]:
        """Where an element lies: of few indexes, each of which may be shifted, stepped over or added to."""
        names = [str(name) for name in rng.permutation([*INDEXES])[: int(rng.integers(most + 1))]]
        forms = ("{}", "{}", "{}", "{} + 1", "2*{}", "5 - {}", "{} + " + some(*INDEXES))
        return [some(*forms).format(name) for name in names]

    dtype = some("f32", "f32", "f64", "i32", "i8")
    wide = {"i8": "i32"}.get(dtype, dtype)
    views, body, factors, buffers = [], [], list[str](), []
    for number in range(int(rng.integers(2, 5))):
        access = place(3)
        buffers.append(f"in A{number}[{zeros(access)}] {dtype}({', '.join(['12'] * len(access))})")
        views.append(f"in A{number}[{', '.join(access)}] {dtype}({ones(access)})")
        value = f"$a{number}"
        body.append(f"{value} = load(A{number}) {dtype}")
        if wide != dtype:
            body.append(f"$c{number} = cast({value}) {wide}")
            value = f"$c{number}"
        if rng.random() < 0.2:
            body.append(f"$n{number} = {some('neg', 'abs')}({value}) {wide}")
            value = f"$n{number}"
        factors.append(value)
    if rng.random() < 0.2:
        body.append(f"$x = index({some('i', 'j + 1', 'k - m')}) {wide}")
        factors.append("$x")
    if rng.random() < 0.15:
        factors.append(factors[0])
    products = [str(name) for name in rng.permutation(factors)]
    while len(products) > 1:
        first, second, *rest = products
        name = f"$p{len(rest)}"
        body.append(f"{name} = mul({first}, {second}) {wide}")
        products = [*rest, name] if rng.random() < 0.5 else [name, *rest]
    result = [name for name in INDEXES if rng.random() < 0.4]
    limits = (
        "i - j >= 0",
        "k - 1 >= 0",
        "i + k - m >= 0",
        "j + n - 2 >= 0",
        "3 - n >= 0",
        "i - j - 2 >= 0",
        "i - 2*k >= 0  2*k - i >= 0",
    )
    constraints = [
        str(limit) for limit in rng.permutation(limits)[: int(rng.integers(3)) * int(rng.integers(2))]
    ]
    points = [f"{name}:{int(rng.integers(1, 6))}" for name in rng.permutation([*INDEXES])]
    dims = ", ".join(["6"] * len(result))
    filled = ", ".join(f"d{number}:6" for number in range(len(result)))
    at = ", ".join(f"d{number}" for number in range(len(result)))
    text = f"""
        block main [] ({" ".join(buffers)}  out R[{zeros(result)}]:assign {wide}({dims})) {{
          block fill [{filled}] (out R[{at}]:assign {wide}({ones(result)})) {{
            $f = constant({"1.0" if wide[0] == "f" else "1"}) {wide}  R = store($f) }}
          block R [{", ".join(points)}] ({"  ".join(constraints)}
            {" ".join(views)}  out R[{", ".join(result)}]:add {wide}({ones(result)})
          ) {{ {"  ".join(body)}  R = store({products[0]}) }}
        }}
    """
    return text, tuple(dict.fromkeys(name[1:] for name in factors))


def zeros(of: Sequence[str]) -> str:
    return ", ".join("0" * len(of))


def ones(of: Sequence[str]) -> str:
    return ", ".join("1" * len(of))


def inputs_of(program: Program, seed: int) -> dict[str, Array]:
    """Small integers, some of them so large that integers wrap around."""
    rng = np.random.default_rng(seed)
    given = random_inputs(program, rng)
    return {
        name: value << 12 if value.dtype == np.int32 and rng.random() < 0.5 else value
        for name, value in given.items()
    }


def random_parts(factors: Sequence[str], rng: np.random.Generator) -> Parts:
    count = int(rng.integers(1, 3))
    sizes = rng.integers(1, max(2, len(factors)), count)
    return Parts(tuple(tuple(map(str, rng.permutation(factors)[:size])) for size in sizes))


def check(seeds: Iterable[int]) -> Counter[str]:
    """How often products were summed up in parts, and how often not."""
    hw, found = load_named("generic"), Counter[str]()
    for seed in seeds:
        text, factors = random_product(seed)
        try:
            program = program_of(text)
        except CompileError:
            found["no program"] += 1
            continue
        inputs = inputs_of(program, seed)
        rng = np.random.default_rng(seed)
        given = [PassContext(hw, given=Given({"main/R": random_parts(factors, rng)})) for _ in range(8)]
        step = Factor(least_gain=0)
        found.update(f"searched: {done}" for done in outcomes(program, step, [PassContext(hw)], inputs))
        found.update(outcomes(program, step, given, inputs))
    return found


def test_products_in_parts_compute_the_same() -> None:
    found = check(range(60))
    assert found["searched: acted"] > 20 and found["acted"] > 100 and found["refused"] > 100, found
    assert found["proved"] > 20 * found["unproved"], found


@pytest.mark.slow
def test_many_products_in_parts_compute_the_same(say: Callable[[object], None]) -> None:
    say(check(range(60, 6000)))
