"""Does a long sum want to be cut, which it can't be once it shares its points with another block?

A tile of a core's own cache has all that goes into the sums of some results. A long sum needs so much that
not even a tile of registers fits: each of these brings its part in anew, from farther away.

    T[m, n : M, N] = +(A[m, k] * B[k, n]);      K = 16384: 24 columns of B take 1.5 MB
    R = T + b;

A sum by itself is cut into pieces, for each of which results come back; what a piece reads stays near for
all of them. Under indexes that it shares with what uses its results it is complete at each point. So the two
stay apart where tiles of pieces save much more than it costs that these results travel: the model has the
memories slower than they are where what streams past is fetched ahead.

Where a tile fits, its rows may crowd into few sets, so that it makes a copy of them. Few results that share
it do not make up for that; a piece that has whole rows of the input needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from hwconfigs.model import HwConfig, own_cache
from stripe.analysis.bounds import Views, box_elements
from stripe.analysis.cost_problem import FETCHED_AHEAD, RUNS, Problem, combine
from stripe.analysis.cost_registers import STILL_THERE
from stripe.analysis.cost_roofline import COPY_CYCLES, LEAST_STEPS, MemoryRoofline
from stripe.analysis.cost_rows import fetched_bytes
from stripe.analysis.cost_sets import usable_bytes
from stripe.analysis.cost_traffic import Traffic
from stripe.analysis.lanes import vector_width
from stripe.analysis.search import Candidate, search
from stripe.ir import Block, Direction
from stripe.visit import names_of

VECTORS = 4  # of results that registers hold side by side, for which a sum reads all of its operand
CANDIDATES = 1024  # tiles of pieces that are weighed: any that saves enough will do
SAVES = 0.3  # of the cycles: what cutting has to save
SPARES = 0.1  # the same where pieces spare copies at each call: both are in one model
FEW_COPIES = 0.05  # of the work: copies that take less are not what tiles are chosen for


def wants_cutting(
    summed: Block, together: Block, outer: Views, constant: frozenset[str], hw: HwConfig, travels: int
) -> str:
    """Why a sum stays apart from a block with which it would be `together`, as a clause; empty if it need
    not. Apart, so many bytes of results `travels`. `outer` are the views of the parent of both, of which
    those in `constant` are copied at load time."""
    memory = own_cache(hw.memories)
    if memory is None or summed.children:
        return ""
    alone = Problem(summed, outer, hw, memory, constant=names_of(summed, constant))
    levels = alone.farther()
    if not alone.reduced or alone.unit is None or not levels:
        return ""
    _, farthest = levels[-1]
    return _too_long(alone, together, constant, travels / farthest) or _copied(alone, travels / farthest)


def _too_long(alone: Problem, together: Block, constant: frozenset[str], travelling: float) -> str:
    """The reason where no tile of a whole sum fits, and pieces save enough."""
    room, length = usable_bytes(alone.memory), prod(alone.ranges[name] for name in alone.reduced)
    if room is None or alone.unit is None or VECTORS * alone.unit.vector_bytes * length <= room:
        return ""
    shared = MemoryRoofline(replace(alone, block=together, constant=names_of(together, constant)))
    least = shared.least
    if not least or shared.refusal() or shared.evaluate(least, tuple(least)).fits.all():
        return ""
    cut = _cheapest(MemoryRoofline(alone).with_sums())
    if cut is None or cut[1] + travelling > (1 - SAVES) * (whole := _streaming(shared, least)):
        return ""
    why = f"the sum of {length} terms is too long for a tile of {alone.memory.name}"
    return f"{why}; {_instead(cut[1] + travelling, whole)}"


def _copied(alone: Problem, travelling: float) -> str:
    """The reason where few results share inputs of which whole sums make copies, and pieces save enough."""
    sums = {name: alone.ranges[name] for name in alone.reduced if alone.ranges[name] > 1}
    if alone.unit is None or prod(sums.values()) < LEAST_STEPS or not alone.in_one_order:
        return ""
    line, points = alone.memory_line, max(leaf.points for leaf in alone.leaves)
    inputs = [o for o in alone.counted if o.direction is Direction.IN and o.name not in alone.constant]
    copies = COPY_CYCLES * sum(float(fetched_bytes(o, alone.ranges, line)) / line for o in inputs)
    lanes = vector_width(alone.block, alone.unit.vector_bytes)
    if copies < FEW_COPIES * points / lanes / alone.unit.fma_per_cycle:
        return ""
    model = MemoryRoofline(alone)
    pieces = model.with_sums()
    uncut, cut = _cheapest(model), _cheapest(pieces)
    if uncut is None or cut is None:
        return ""
    whole = float(pieces.evaluate({**sums, **uncut[0].sizes}, (*sums, *uncut[0].order)).cost) * points
    if cut[1] + travelling > (1 - SPARES) * whole:
        return ""
    return f"tiles of whole sums copy what they read; {_instead(cut[1] + travelling, whole)}"


def _instead(cut: float, whole: float) -> str:
    return f"alone it is cut into pieces, with {cut:.4g} instead of {whole:.4g} cycles"


def _cheapest(model: MemoryRoofline) -> tuple[Candidate, float] | None:
    """The best tile that is found soon, and the cycles of all of them; None if there are none."""
    best = None if model.refusal() else search(model, CANDIDATES).best
    if best is None or best.cost is None:
        return None
    return best, best.cost * max(leaf.points for leaf in model.problem.leaves)


def _streaming(model: MemoryRoofline, sizes: Mapping[str, int]) -> float:
    """Cycles of a block in tiles of registers alone, of these sizes, in the best order. Copies that are made
    at load time lie dense in memory."""
    problem, line = model.problem, model.problem.memory_line
    complete = problem.complete(sizes)
    tiles = [
        np.asarray(box_elements(o, complete) * o.dtype.bytes, float)
        if o.name in problem.constant
        else fetched_bytes(o, complete, line)
        for o in problem.counted
    ]
    traffic = Traffic(problem.counted, problem.ranges, complete, tiles)
    levels = problem.farther()
    found = list[float]()
    for order in model.orders():
        parts = model.evaluate(sizes, order).parts
        busy = [parts["arithmetic"]]
        for memory, bandwidth in levels:
            room = usable_bytes(memory)
            if memory.bytes is not None and memory is levels[-1][0]:
                room = int(STILL_THERE * memory.bytes)
            busy.append(traffic.bytes(order, room) / bandwidth)
        found.append(float(combine(*busy, share=FETCHED_AHEAD) + parts.get(RUNS, 0.0)))
    return min(found)
