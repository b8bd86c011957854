"""Targets whose programs run on several threads, and programs whose blocks are spread over them."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import msgspec

from hwconfigs.model import HwConfig, PassStep
from stripe.affine import Affine
from stripe.ir import Block, Location, Program
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import make_passes
from stripe.visit import map_program


def with_cores(hw: HwConfig, count: int, startup_cycles: float = 0.0) -> HwConfig:
    """The target with this many copies of what computes, which start at once and take over at once."""
    units = tuple(
        msgspec.structs.replace(u, count=count, startup_cycles=startup_cycles, handover_cycles=0.0)
        if u.kind == "compute"
        else u
        for u in hw.units
    )
    return msgspec.structs.replace(hw, units=units)


def partitioned(program: Program, hw: HwConfig, **options: object) -> Program:
    """The program after the pass `partition` alone."""
    step = PassStep("partition", {"unit": hw.units[0].name, **options})
    return run_pipeline(program, make_passes([step]), hw, verify="on")


def spread_anyhow(program: Program, hw: HwConfig, rng: random.Random) -> Program:
    """The program with the points of some blocks, at any depth, on different copies of the unit.

    Sums of points on different copies may meet in one element.
    """
    unit = hw.units[0]

    def on_block(block: Block) -> Block:
        short = [name for name, size in block.ranges.items() if 1 < size <= unit.count]
        if not short or rng.random() < 0.3:
            return block
        first, *others = rng.sample(short, len(short))
        number = Affine.index(first)
        for other in others:
            step = block.ranges[first]
            if step * block.ranges[other] <= unit.count and rng.random() < 0.5:
                number = number + Affine.index(other, step)
                break
        return replace(block, location=Location(unit.name, number))

    return map_program(program, lambda b: b if b is program.root or b is program.load else on_block(b))


def threads_of_process() -> int:
    """How many threads the system counts in this process."""
    return len(os.listdir("/proc/self/task"))
