"""How much a program computes: operations, counted exactly over the points of its blocks."""

from __future__ import annotations

from stripe.analysis.bounds import Leaf
from stripe.analysis.groups import grouped
from stripe.intrinsics import INTRINSICS
from stripe.ir import Aggregation, Block, Cast, Intrinsic, Program, Store
from stripe.poly import nest_domain

# Choosing and comparing move data; they are not counted as arithmetic.
_FREE = frozenset({"select", "and", "or", "not", "xor"})

# Of 262144 f32, 16 in a vector, exp takes Zen 4 9 cycles a vector, log 8, tanh 15 and pow 40.
FUNCTION = 10.0  # instructions of an intrinsic that is no instruction
INSTRUCTIONS = frozenset(
    [
        "add", "sub", "mul", "neg", "abs", "max", "min", "select", "and", "or", "not", "xor", "shl", "shr",
        "eq", "ne", "lt", "le", "gt", "ge", "floor", "ceil", "round", "trunc",
    ]
)  # fmt: skip


def operations(program: Program) -> int:
    """Arithmetic operations of one run: one for each intrinsic, one for each aggregated write.

    A multiply-add is two. Comparisons, selections, logic, casts and specials are not counted.
    """
    return _count(program.root, ())


def _count(block: Block, path: tuple[Block, ...]) -> int:
    here = (*path, block)
    below = sum(_count(child, here) for child in block.children)
    each = operations_of_a_point(block)
    return below + (each * nest_domain(here).count() if each else 0)


def operations_of_a_point(block: Block) -> int:
    """Those of a block's own statements at one of its points."""
    aggregated = {
        ref.name
        for ref in block.refinements
        if ref.direction.writes and ref.aggregation is not Aggregation.ASSIGN
    }
    count = 0
    for statement in block.statements:
        match statement:
            case Intrinsic(op=op):
                count += op not in _FREE and not INTRINSICS[op].gives_bool
            case Store(buffer=buffer):
                count += buffer in aggregated
            case _:
                pass
    return count


def vector_operations(leaf: Leaf) -> int:
    """Vector operations for each point; a product that is only added up is one with the sum."""
    leaf = grouped(leaf)
    aggregated = {r.name for r in leaf.block.refinements if r.combines}
    adds = {r.name for r in leaf.block.refinements if r.aggregation is Aggregation.ADD}
    products = {s.result for s in leaf.block.statements if isinstance(s, Intrinsic) and s.op == "mul"}
    count = sum(isinstance(s, Intrinsic | Cast) for s in leaf.block.statements)
    for statement in leaf.block.statements:
        if isinstance(statement, Store) and statement.buffer in aggregated:
            count += not (statement.buffer in adds and statement.value in products)
    return count
