"""A load-time program on a machine that manages its memories: its buffers have places, checked and used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwconfigs.load import load, load_named
from stripe.arena import interpret_placed
from stripe.interp import interpret
from stripe.ir import Direction, Program
from stripe.parser import parse
from stripe.passes.base import PassContext
from stripe.passes.pipeline import run_pipeline
from stripe.passes.place import Place
from stripe.passes.registry import check_pipeline, make_passes, parse_pipeline
from stripe.verify import findings, verify
from stripe.verify_ready import unplaced
from tests.support.managed import TARGETS, check_on
from tests.support.meaning import random_inputs
from tests.support.programs import corpus

TINY = load(Path(__file__).parents[2] / "golden" / "targets" / "tiny.json")

PACK = """
load block pack [] (in W[0] f32(8):(1){w}  out P[0]:assign f32(8):(1){p}  new T f32(8):(1) @DRAM{t}) {{
  block reverse [k:8] @DMA (in W[k] f32(1)  out T[7 - k]:assign f32(1)) {{ $w = load(W)  T = store($w) }}
  block again [k:8] @DMA (in T[k] f32(1)  out P[k]:assign f32(1)) {{ $t = load(T)  P = store($t) }}
}}
block main [] (const in W[0] f32(8):(1){w}  const in V[0] f32(8):(1){v}  in P[0] f32(8):(1){q}
               out Y[0]:assign f32(8):(1){y}  out Z[0]:assign f32(8):(1){z}) {{
  block y [k:8] @DMA (in P[k] f32(1)  out Y[k]:assign f32(1)) {{ $p = load(P)  Y = store($p) }}
  block z [k:8] @DMA (in V[k] f32(1)  out Z[k]:assign f32(1)) {{ $v = load(V)  Z = store($v) }}
}}
"""
PLACES = {"w": 0, "v": 32, "p": 64, "q": 64, "y": 96, "z": 128, "t": 96}


def packed(**changes: int) -> Program:
    """The program at these addresses. T may lie under Y: that is used when T is dead."""
    return parse(PACK.format(**{n: f" @DRAM:{at}" for n, at in (PLACES | changes).items() if n != "t"},
                             t=f":{(PLACES | changes)['t']}"))  # fmt: skip


def is_right(program: Program) -> bool:
    inputs = random_inputs(program, np.random.default_rng(2))
    expected, found = interpret(program, inputs), interpret_placed(program, inputs, TINY)
    return all(np.array_equal(found[name], value) for name, value in expected.items())


def test_both_run_on_one_memory() -> None:
    assert findings(packed(), TINY) == ()
    assert is_right(packed())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"q": 160}, "V066"),  # the root reads what was made from another place
        ({"t": 32}, "V061"),  # the load-time program overwrites a constant that it does not read
        ({"t": 0}, "V061"),  # and one that it reads
        ({"t": 60}, "V061"),
        ({"y": 32}, "V061"),
    ],
)
def test_a_wrong_place_is_found_and_gives_a_wrong_result(changes: dict[str, int], code: str) -> None:
    program = packed(**changes)
    assert {f.code for f in findings(program, TINY)} == {code}
    assert not is_right(program)


def test_place_gives_both_the_same_places() -> None:
    bare = parse(PACK.format(w="", p="", q="", v="", y="", z="", t=""))
    program = Place().run(bare, PassContext(TINY))
    verify(program, TINY)
    assert unplaced(program, TINY) == ()
    assert is_right(program)
    assert Place().run(program, PassContext(TINY)) is program


def test_a_place_that_one_names_holds_for_the_other() -> None:
    for name in ("p", "q"):
        given = PLACES | {"p": 512, "q": 512}
        text = dict.fromkeys(PLACES, "") | {name: f" @DRAM:{given[name]}"}
        program = Place().run(parse(PACK.format(**text)), PassContext(TINY))
        verify(program, TINY)
        assert program.load is not None
        for block in (program.load, program.root):
            location = block.refinement("P").location
            assert location is not None and str(location.address) == "512"
        assert is_right(program)


@pytest.mark.parametrize("target", TARGETS)
def test_the_shipped_targets_take_it_through_their_pipelines(target: str, rng: np.random.Generator) -> None:
    program = corpus()["load_time"]
    made = check_on(program, load_named(target), random_inputs(program, rng))
    assert made.load is not None
    assert all(r.location and r.location.address is not None for r in made.load.refinements
               if r.strides is not None and r.direction is not Direction.NEW)  # fmt: skip


def test_operands_that_a_pass_packs_ahead(rng: np.random.Generator) -> None:
    text = """
        block main [] (in A[0, 0] f32(40, 50)  const in B[0, 0] f32(50, 300):(1024, 1)
                       out C[0, 0]:assign f32(40, 300)) {
          block c [m:40, n:300, k:50] (in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)
                                      out C[m, n]:add f32(1, 1)) {
            $a = load(A) f32  $b = load(B) f32  $c = mul($a, $b) f32  C = store($c) } }
    """
    hw = load_named("vector_dsp")
    steps = make_passes(parse_pipeline("autotile{memory=REG},transpose"))
    ahead = run_pipeline(parse(text), steps, load_named("generic"))
    assert ahead.load is not None
    made = run_pipeline(ahead, check_pipeline(hw), hw)
    assert unplaced(made, hw) == ()
    inputs = random_inputs(made, rng)
    found = interpret_placed(made, inputs, hw)["C"]
    np.testing.assert_allclose(found, interpret(parse(text), inputs)["C"], rtol=1e-5)
