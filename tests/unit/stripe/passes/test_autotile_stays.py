"""autotile in explicit memories: what is only read stays while tiles run that do not change it."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
import pytest

from hwconfigs.model import HwConfig, Memory, Unit
from stripe.analysis.cost_explicit import LEVEL, ExplicitRoofline
from stripe.analysis.cost_problem import Problem
from stripe.ir import Block, Program
from stripe.passes.autotile import Autotile
from stripe.passes.autotile_explicit import tiled_with
from stripe.passes.base import PassContext
from stripe.passes.localize import Localize
from stripe.passes.transfer import Transfer
from stripe.visit import views_of, walk
from tests.support.passes import check_pass, program_of

HW = HwConfig(
    "near", "for tests", "simulator",
    memories=(
        Memory("PAD", "explicit", bytes=1 << 16, backing="DRAM"),
        Memory("DRAM", "explicit", bytes_per_cycle=16.0),
    ),
    units=(
        Unit("VPU", vector_bytes=64, reaches=("PAD",)),
        Unit("DMA", "transfer", bytes_per_cycle=16.0, startup_cycles=64.0, reaches=("DRAM", "PAD")),
    ),
)  # fmt: skip


def product(m: int = 64, n: int = 48, k: int = 32) -> Program:
    return program_of(f"""
        block main [] (
          in A[0, 0] f32({m}, {k})  in B[0, 0] f32({k}, {n})  out R[0, 0]:assign f32({m}, {n})
        ) {{
          block r [m:{m}, n:{n}, k:{k}] (
            in A[m, k] f32(1, 1)  in B[k, n] f32(1, 1)  out R[m, n]:add f32(1, 1)
          ) {{
            $a = load(A) f32
            $b = load(B) f32
            $p = mul($a, $b) f32
            R = store($p) }} }}
    """)


SIZES = {"m": 16, "n": 12, "k": 32}


def model_of(program: Program, hw: HwConfig = HW, inflight: int = 1) -> ExplicitRoofline:
    block = program.root.children[0]
    return ExplicitRoofline(Problem(block, views_of(program.root, {}), hw, hw.memories[0], inflight=inflight))


def copied(program: Program) -> Counter[str]:
    """How often each copy is made."""
    found = Counter[str]()

    def below(block: Block, times: int) -> None:
        for child in block.children:
            if child.location is not None and child.location.unit == "DMA":
                found[child.name] += times
            else:
                below(child, times * prod(child.ranges.values()))

    below(program.root, 1)
    return found


ORDERS = {
    ("m", "n"): {"A_load": 16, "B_load": 16},
    ("m", LEVEL, "n"): {"A_load": 4, "B_load": 16},
    ("n", LEVEL, "m"): {"A_load": 16, "B_load": 4},
}


def test_each_operand_has_an_order_in_which_it_stays() -> None:
    model = model_of(product())
    assert {*model.orders()} == {*ORDERS} and model.orders()[0] == model.order


@pytest.mark.parametrize("order", ORDERS)
def test_the_cost_counts_the_copies_that_are_made(order: tuple[str, ...]) -> None:
    program = product()
    model = model_of(program)
    tiled = tiled_with(model, SIZES, order, False)
    assert len([b for _, b in walk(tiled) if b.has_tag("tiled")]) == 1 + (LEVEL in order)
    moved, _ = check_pass(
        Program(Block("main", refinements=program.root.refinements, statements=(tiled,))), Transfer(), HW
    )
    made = copied(moved)
    assert {name: made[name] for name in ORDERS[order]} == ORDERS[order]
    each = {"A_load": 64 + 16 * 32 * 4 / 16, "B_load": 64 + 32 * 12 * 4 / 16}
    results = 16 * (64 + 16 * 12 * 4 / 16)
    arithmetic = 2 * 64 * 48 * 32 / 12  # two loads for each vector of 12 of 16 lanes
    expected = results + arithmetic + sum(times * each[name] for name, times in ORDERS[order].items())
    assert float(model.evaluate(SIZES, order).cost) * 64 * 48 * 32 == pytest.approx(expected)


def test_what_was_brought_in_before_hides_behind_nothing() -> None:
    model = model_of(product(), inflight=2)
    points = 64 * 48 * 32
    apart = float(model.evaluate(SIZES, ("m", LEVEL, "n")).cost) * points
    one = float(model.evaluate(SIZES, ("m", "n")).cost) * points
    a, b, r = (64 + elements * 4 / 16 for elements in (16 * 32, 32 * 12, 16 * 12))
    # The arithmetic is the longer part. The first B and the last R of each loop over n hide behind nothing.
    seen = 4 * a + 4 * (b + r) + 0.2 * 12 * (b + r), a + b + r + 0.2 * 15 * (a + b + r)
    assert apart - one == pytest.approx(seen[0] - seen[1])


def test_where_no_index_of_an_operand_has_several_tiles_it_is_copied_once() -> None:
    program = product()
    model = model_of(program)
    sizes = {"m": 16, "n": 48, "k": 32}
    tiled = tiled_with(model, sizes, model.order, False)
    moved, _ = check_pass(
        Program(Block("main", refinements=program.root.refinements, statements=(tiled,))), Transfer(), HW
    )
    assert copied(moved) == {"A_load": 4, "B_load": 1, "R_store": 4}
    halves = {**sizes, "m": 32}
    more = float(model.evaluate(sizes, model.order).cost - model.evaluate(halves, model.order).cost)
    assert more * 64 * 48 * 32 == pytest.approx(2 * 64 + 2 * 64)  # two more copies of A and of R


def test_the_search_takes_such_an_order_where_copies_bind() -> None:
    slow = HwConfig(
        "slow", "for tests", "simulator",
        memories=(Memory("PAD", "explicit", bytes=6000, backing="DRAM"), HW.memories[1]),
        units=(HW.units[0], Unit("DMA", "transfer", bytes_per_cycle=1.0, reaches=("DRAM", "PAD"))),
    )  # fmt: skip
    context = PassContext(slow)
    tiled = Autotile(memory="PAD", reductions=False, inflight=2).run(product(), context)
    outer = [b for _, b in walk(tiled.root) if b.has_tag("tiled")]
    assert [list(b.ranges) for b in outer] in ([["m"], ["n"]], [["n"], ["m"]])
    (remark,) = [r for r in context.remarks if r.acted]
    chosen = remark.data["chosen"]
    assert isinstance(chosen, dict) and LEVEL in chosen["order"]


@pytest.mark.parametrize("seed", range(20))
def test_any_tile_in_any_order_computes_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = product(10, 9, 7)
    model = model_of(program)
    sizes = {n: int(rng.integers(1, size + 1)) for n, size in model.ranges.items()}
    order = model.orders()[seed % len(model.orders())]
    tiled = tiled_with(model, sizes, order, False)
    made = Program(Block("main", refinements=program.root.refinements, statements=(tiled,)))
    made, _ = check_pass(made, Localize(accumulators="PAD"), HW)
    check_pass(made, Transfer(), HW)
