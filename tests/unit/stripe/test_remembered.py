"""Answers that are kept, such as those about blocks, leaves and operands: they are those that asking anew
would give, in whatever thread."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from hwconfigs.load import load_named
from stripe import alike, remembered
from stripe.analysis import bounds, cost_layout, deps
from stripe.analysis.bounds import Leaf, Operand, leaves
from stripe.analysis.cost_layout import layout_cycles
from stripe.analysis.cost_problem import Problem
from stripe.analysis.cost_registers_nest import RegisterNest
from stripe.analysis.deps import accesses
from stripe.analysis.lanes import _square_cost, best_square, lane_candidates
from stripe.ir import Block, Program
from stripe.names import Names
from stripe.parser import parse
from stripe.passes.transpose_hoist import hoisted, root_source
from stripe.passes.transpose_tree import copied, layouts, levels
from stripe.remembered import Remembered, RememberedOf
from stripe.rewrite import RewriteRefused
from stripe.rewrite_packed import pack, permuted
from stripe.visit import View, views_of
from tests.support.random_nests import random_program

AVX512 = load_named("x86_64_avx512")
GOLDEN = Path(__file__).parents[2] / "golden/passes"
NESTS = [path for name in ("transpose", "vectorize") for path in sorted((GOLDEN / name).glob("*.stripe"))]


def programs() -> Iterator[Program]:
    for path in NESTS:
        text = path.read_text()
        if "// error" not in text:
            yield parse(text.split("// ---- expect")[-1])
    for seed in range(20):
        yield random_program(np.random.default_rng(seed))


def blocks() -> Iterator[tuple[Block, tuple[Block, ...], Mapping[str, View]]]:
    """Every block of some programs, with those around it and the views of its parent."""
    for program in programs():
        for at, statement in enumerate(program.root.statements):
            if isinstance(statement, Block):
                for path, parents, views in levels(program.root, (at,)):
                    inner = parents[-1].statements[path[-1]]
                    assert isinstance(inner, Block)
                    yield inner, parents, views


def turned(views: Mapping[str, View]) -> dict[str, View]:
    """The views of buffers whose dimensions lie the other way round."""
    return {n: replace(v, strides=permuted(v.shape, range(len(v.shape))[::-1])) for n, v in views.items()}


def test_the_oldest_go_first() -> None:
    known = Remembered[str, int](2)
    assert (known.put("a", 1), known.put("b", 2), known.put_first("a", 3)) == (1, 2, 1)
    assert (known.put("b", 4), known.put_first("c", 5)) == (4, 5)
    assert [known.get(key) for key in "abc"] == [None, 4, 5]


def test_equal_objects_are_told_apart() -> None:
    one, other = (Block("b", tags=()) for _ in range(2))
    known = RememberedOf[Block, int](2)
    known.put(one, 1)
    assert one == other
    assert (known.get(one), known.get(other)) == (1, None)


KEEPING = {deps.__file__, alike.__file__, remembered.__file__}


def _yielding(frame: FrameType, event: str, _: object) -> Any:
    """Lets another thread run before each instruction of the code that keeps answers."""
    if frame.f_code.co_filename not in KEEPING:
        return None
    frame.f_trace_opcodes = True
    if event == "opcode":
        time.sleep(0)
    return _yielding


def test_threads_push_out_each_others_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets its own, while the others change what is kept at any moment."""
    root = parse((GOLDEN / "fuse/elementwise_chain.stripe").read_text().split("// ---- expect")[0]).root
    expected = [(kernel, accesses(root, kernel)) for kernel in root.children]
    monkeypatch.setattr(deps, "_KNOWN", Remembered[Any, Any](1))
    monkeypatch.setattr(alike, "_KINDS", RememberedOf[Any, Any](1))
    monkeypatch.setattr(alike, "_INTERNED", Remembered[Any, Any](1))

    def right(_: int) -> bool:
        sys.settrace(_yielding)
        return all(accesses(root, kernel) == found for kernel, found in expected)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, range(16)))


def test_leaves_under_other_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in ("_COMPOSED", "_LAID"):  # what other tests asked about would be forgotten in between
        monkeypatch.setattr(bounds, known, Remembered[Any, Any](bounds.REMEMBERED))
    several = 0
    for block, _, views in blocks():
        for every_level in (False, True):
            first = leaves(block, views, every_level)
            second = leaves(block, turned(views), every_level)
            anew = copy.deepcopy(block)  # of which nothing is known
            assert leaves(anew, turned(views), every_level) == second
            assert leaves(anew, views, every_level) == first
            assert leaves(block, views, every_level) is first
            several += first != second
    assert several > 20


def test_strides_and_reductions() -> None:
    for block, _, views in blocks():
        for leaf in leaves(block, views):
            written = [o.indexes for o in leaf.operands if o.direction.writes]
            assert leaf.reductions == tuple(n for n in leaf.ranges if any(n not in w for w in written))
            for operand in leaf.operands:
                for name in (*leaf.ranges, "other"):
                    step = sum(
                        e.coefficient(name) * s for e, s in zip(operand.access, operand.strides, strict=True)
                    )
                    assert operand.stride(name) == step


def _asked() -> Iterator[tuple[Operand, Leaf]]:
    for block, _, views in blocks():
        for seen in (views, turned(views)):
            for leaf in leaves(block, seen):
                for operand in leaf.operands:
                    yield operand, leaf


def test_questions_about_operands() -> None:
    """Whatever leaf an operand was in when it was asked about first."""
    cache = next(m for m in AVX512.memories if m.kind == "cached")
    for _ in range(2):
        for operand, leaf in _asked():
            found = cost_layout._found
            for best in (False, True):
                again = found.__wrapped__(operand, leaf, AVX512, best)  # type: ignore[attr-defined]
                assert found(operand, leaf, AVX512, best) == again
            rooms = cost_layout._rooms
            assert rooms(operand, leaf, cache) == rooms.__wrapped__(operand, leaf, cache)  # type: ignore[attr-defined]


@pytest.mark.parametrize("squares", [False, True])
def test_cycles_of_a_nest_that_was_weighed_under_other_strides(squares: bool) -> None:
    for block, _, views in blocks():
        layout_cycles(block, turned(views), AVX512, squares=squares)
        kept = layout_cycles(block, views, AVX512, squares=squares)
        assert layout_cycles(copy.deepcopy(block), views, AVX512, squares=squares) == kept


def test_squares_are_found_among_all_pairs() -> None:
    found = 0
    for block, _, views in blocks():
        for leaf in leaves(block, views):
            lanes = lane_candidates(leaf, 64)
            pairs = [(_square_cost(leaf, lane, name, size), lane, name) for lane in lanes
                     for name, size in leaf.ranges.items() if size > 1 and name != lane.index]  # fmt: skip
            cheaper = [cost for cost, lane, _ in pairs if cost < lane.cost]
            square = best_square(leaf, lanes)
            if leaf.reductions:
                assert square is None or leaf.reductions == (square.across,)
                continue
            found += square is not None
            assert (square.cost if square is not None else None) == min(cheaper, default=None)
    assert found


def test_a_leaf_is_not_taken_for_one_that_is_gone() -> None:
    """A nest is asked about leaves of blocks that were made on the way, and dropped."""
    root = parse("""
        block main [] (in A[0, 0] f32(64, 64)  out R[0, 0]:assign f32(64, 64)) {
          block a [i:64, j:64] (in A[i, j] f32(1, 1)  out R[i, j]:assign f32(1, 1)) {
            $a = load(A) f32  R = store($a) }
          block b [k:64, l:64] (in A[l, k] f32(1, 1)  out R[l, k]:assign f32(1, 1)) {
            $a = load(A) f32  R = store($a) } }
    """).root
    views, registers = views_of(root, {}), AVX512.memory("REG")
    assert registers is not None
    nest = RegisterNest(Problem(root.children[0], views, AVX512, registers))

    def lanes(block: Block) -> set[str]:
        made = [replace(leaves(block, views)[0]) for _ in range(200)]  # where others were that are gone
        return {lane.index for lane in map(nest.lane, made) if lane is not None}

    assert [lanes(block) for block in root.children] == [{"j"}, {"k"}]


def test_a_reader_is_the_same_for_every_order_of_a_copy() -> None:
    several = 0
    for block, parents, views in blocks():
        for view in copied(parents[-1], block):
            readers: dict[object, Block] = {}
            for layout in layouts(parents[-1], block, view, views):
                packed = pack(parents[-1], block, view, layout, Names(views), exact=False)
                assert readers.setdefault((layout.panels, "near"), packed.block) == packed.block
                if root_source(parents, view.source) is None:
                    continue
                try:
                    packed = hoisted(parents, block, view.source, packed)
                except RewriteRefused:
                    continue
                several += (layout.panels, "ahead") in readers
                assert readers.setdefault((layout.panels, "ahead"), packed.block) == packed.block
    assert several
