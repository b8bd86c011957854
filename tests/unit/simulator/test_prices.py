"""One simulation, priced for several targets: the same as a simulation for each."""

from __future__ import annotations

import random

import msgspec
import pytest

import stripec
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from simulator.prices import priced, unpriced
from simulator.simulate import Counts

PROGRAM = "function (A[M, K], B[K, N], C[N]) -> (R) { P[m, n : M, N] = +(A[m, k] * B[k, n]); R = P + C; }"
SHAPES = {"A": "i8[40,30]", "B": "i8[30,50]", "C": "i32[50]"}
PRICES = ("read_pj_per_byte", "write_pj_per_byte", "pj_per_operation", "pj_per_point", "static_pj_per_cycle")


def at_random(hw: HwConfig, seed: int) -> HwConfig:
    """The target with other prices, some of them 0, and another clock."""
    chance = random.Random(seed)

    def other(part: msgspec.Struct) -> dict[str, float]:
        return {
            name: chance.choice((0.0, 0.1, 1.0, chance.uniform(0, 300)))
            for name in PRICES
            if name in part.__struct_fields__
        }

    replace = msgspec.structs.replace
    return replace(
        hw,
        memories=tuple(replace(m, **other(m)) for m in hw.memories),
        units=tuple(replace(u, **other(u)) for u in hw.units),
        stencils=tuple(replace(s, **other(s)) for s in hw.stencils),
        clock_hz=chance.choice((None, 1e9, 7e8)),
        **other(hw),
    )


@pytest.mark.parametrize("counts", ["closed", "simulated", "both"])
@pytest.mark.parametrize("name", ["systolic_16", "vector_dsp"])
def test_what_is_priced_later_is_what_is_simulated(name: str, counts: Counts) -> None:
    hw = load_named(name)
    plain = stripec.simulate(PROGRAM, shapes=SHAPES, target=unpriced(hw), counts=counts, verify="off")
    assert unpriced(at_random(hw, 0)) == unpriced(hw)
    for seed in range(3):
        own = at_random(hw, seed)
        assert priced(plain, own) == stripec.simulate(
            PROGRAM, shapes=SHAPES, target=own, counts=counts, verify="off"
        )
