"""Which way a loop goes through memory: downwards, where its stores would hold up the loads behind them.

A core lets loads overtake earlier stores; whether one reads what such a store writes it judges by the
last bits of their addresses at first, the last 20 for instance. Where a load only looks as if it did, it
waits until the store is done. So it does in each turn of a loop whose results lie a little behind the
operands, but for multiples of a megabyte:

    X                at 0
    R                at 4 MB + 64       R[i] looks like X[i + 16], which is loaded in the next turn

Arrays whose sizes are powers of two lie like this when they are allocated one after the other, in large
pages; a loop takes up to eight times as long. Downwards it loads X[i - 16] next. Which way to go depends on
addresses, so the code asks for it; it is the same code for both. The loops around go the same way: a row
after the other, memory is one walk, which the core fetches ahead of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from codegen_cpu.accumulators import Write
from codegen_cpu.layout import View
from codegen_cpu.ll import I1, I64, Function, Value, constant
from codegen_cpu.loops import Indexing
from codegen_cpu.plan import Plan
from codegen_cpu.scope import step_along
from stripe.ir import Block

_NEAR = 2048  # bytes by which loads run ahead of stores, or less
_LEAST_TURNS = 16  # vectors of a row: shorter rows are over before it pays to compare addresses


def heading(
    f: Function,
    indexing: Indexing,
    block: Block,
    plan: Plan,
    views: Mapping[str, View],
    writes: Mapping[str, Write],
    alike: int,
) -> Value | None:
    """Whether the loop over the lane index, the innermost one, should go downwards, and those around it; None
    if there is nothing to choose. `views` are those of the block where its own indexes are 0; addresses
    `alike` bytes apart look the same."""
    if not plan.loops or plan.loops[-1] != plan.lane or plan.across or plan.use or plan.unrolled:
        return None
    # The order of sums must not depend on addresses.
    apart = all(write.replaces and write.level is None for write in writes.values())
    if not apart or block.ranges[plan.lane] < _LEAST_TURNS * plan.width:
        return None
    dense = {
        ref.name: views[ref.name]
        for ref in block.refinements
        if step_along(ref, views[ref.name].strides, plan.lane) == 1
    }
    reads = [dense[ref.name] for ref in block.refinements if ref.name in dense and ref.direction.reads]
    results = [dense[ref.name] for ref in block.refinements if ref.name in dense and ref.direction.writes]
    gaps = [
        _gap(f, indexing, result, operand)
        for result in results
        for operand in reads
        if operand.buffer is not result.buffer and operand.buffer.dtype.bytes == result.buffer.dtype.bytes
    ]
    if not gaps:
        return None
    ahead = _any(f, (_is_near(f, gap, alike) for gap in gaps))
    behind = _any(f, (_is_near(f, f.binary("sub", constant(I64, 0), gap), alike) for gap in gaps))
    return f.binary("and", ahead, f.binary("xor", behind, constant(I1, True)))


def _gap(f: Function, indexing: Indexing, result: View, operand: View) -> Value:
    """How many bytes the result lies behind the operand."""
    size = result.buffer.dtype.bytes
    pointers = [f.convert("ptrtoint", view.buffer.pointer, I64) for view in (result, operand)]
    between = indexing.value((result.offset - operand.offset) * size)
    return f.binary("add", f.binary("sub", *pointers), between)


def _is_near(f: Function, gap: Value, alike: int) -> Value:
    """Whether a distance is small but not 0, but for multiples of `alike` bytes."""
    seen = f.binary("urem", f.binary("sub", gap, constant(I64, 1)), constant(I64, alike))
    return f.compare("icmp ult", seen, constant(I64, _NEAR))


def _any(f: Function, conditions: Iterable[Value]) -> Value:
    found = None
    for condition in conditions:
        found = condition if found is None else f.binary("or", found, condition)
    assert found is not None
    return found
