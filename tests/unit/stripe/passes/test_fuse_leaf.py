"""Leaves that fuse joins part by part: which blocks are one, which plans ask for it, what becomes of it."""

from __future__ import annotations

import pytest

from stripe.analysis.fusion import plan_fusion
from stripe.analysis.fusion_plan import Plan
from stripe.analysis.fusion_sides import Scope
from stripe.ir import Block, Program
from stripe.passes.fuse_child import Child
from stripe.passes.fuse_leaf import Leaf
from stripe.visit import scalars_defined
from tests.support.passes import program_of
from tests.unit.stripe.passes.test_fuse import elementwise, kernel, main


def leaf_of(block: Block) -> Leaf:
    leaf = Leaf.of(block)
    assert leaf is not None
    return leaf


def joins(program: Program) -> bool:
    """Whether the two blocks of a program, which share indexes, are joined without being built."""
    scope = Scope(program.root)
    first, second = (Child.of(scope, at, s) for at, s in enumerate(program.root.statements))
    assert first.candidate and second.candidate and first.leaf and second.leaf
    plan = plan_fusion(first.candidate, second.candidate, lambda _: 2, ())
    assert isinstance(plan, Plan)
    return first.leaf.joins(second.leaf, plan)


def block_of(head: str, views: str = "out R[i]:assign f32(1)", more: str = "") -> Block:
    """R = X, with another head, other views of R, or more after the views."""
    program = program_of(
        f"""
        block main [] (in X[0] f32(9):(1)  out R[0]:assign f32(9):(1)  new T f32(9):(1)) {{
          block fill [i:9] (out R[i]:assign f32(1)) {{ $z = constant(0.0) f32  R = store($z) }}
          block b {head} in X[i] f32(1)  {views}) {more} {{ $x = load(X) f32  R = store($x) }} }}
        """
    )
    return program.root.children[1]


def test_a_leaf_of_points_and_scalars_is_one() -> None:
    leaf = leaf_of(block_of("[i:9] ("))
    assert [view[0] for view in leaf.inputs] == ["X"]
    assert [view[0] for view in leaf.written] == ["R"]
    assert [part.name for part in leaf.parts] == ["b"]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block_of("[i:9] (7 - i >= 0"), id="constraint"),
        pytest.param(block_of("[i:9] (", more="#vector=i"), id="tag"),
        pytest.param(block_of("[i:9] inflight=2 ("), id="points in flight"),
        pytest.param(block_of("[i:9] @VPU ("), id="unit"),
        pytest.param(block_of("[i:9] (", "out R[i]:add f32(1)"), id="aggregates"),
        pytest.param(
            block_of("[i:9] (", "in O = R[i] f32(1)  out R[i]:assign f32(1)"), id="reads its result"
        ),
        pytest.param(block_of("[i:9] (", "inout R[i]:assign f32(1)"), id="keeps old contents"),
    ],
)
def test_what_is_no_such_leaf(block: Block) -> None:
    assert Leaf.of(block) is None


def test_a_plan_over_the_same_points_joins_them() -> None:
    assert joins(main("in X 6 8; out T 6 8; out R 6 8", elementwise("T", "X"), elementwise("R", "T")))
    assert joins(main("in X 6 8; out T 6 8; out R 6 8", elementwise("T", "X"), elementwise("R", "X")))


def reader(access: str, rows: int = 6) -> str:
    return kernel(
        "R",
        f"i:{rows}, j:8",
        f"in T[{access}] f32(1, 1); out R[i, j]:assign f32(1, 1)",
        "$t = load(T) f32\nR = store($t)",
    )


@pytest.mark.parametrize(
    ("rows", "second"),
    [
        pytest.param(6, reader("0, j"), id="another view of what is written"),
        pytest.param(5, reader("i, j", 5), id="other points"),
    ],
)
def test_other_plans_do_not(rows: int, second: str) -> None:
    program = main(f"in X 6 8; out T 6 8; out R {rows} 8", elementwise("T", "X"), second)
    scope = Scope(program.root)
    first, other = (Child.of(scope, at, s) for at, s in enumerate(program.root.statements))
    assert first.candidate and other.candidate and first.leaf and other.leaf
    plan = plan_fusion(first.candidate, other.candidate, lambda _: 2, ())
    assert not isinstance(plan, Plan) or not first.leaf.joins(other.leaf, plan)


def test_the_joined_leaf_reads_what_it_wrote_through_one_view() -> None:
    program = main("in X 6 8; out T 6 8; out R 6 8", elementwise("T", "X"), elementwise("R", "T"))
    first, second = map(leaf_of, program.root.children)
    built = first.joined(second).build()
    assert built.name == "R"
    assert [(str(r.direction), r.name) for r in built.refinements] == [
        ("in", "X"),
        ("out", "T"),
        ("out", "R"),
    ]
    assert len(built.statements) == 8
    names = [name for s in built.statements for name in scalars_defined(s)]
    assert len(set(names)) == len(names) == 6  # those of the second part got new names
