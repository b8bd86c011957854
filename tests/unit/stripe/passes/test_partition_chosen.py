"""partition with a cut that is given."""

from __future__ import annotations

import pytest

from stripe.diag import CompileError
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.partition_chosen import Share
from tests.support.passes import program_of
from tests.unit.stripe.passes.test_partition_sums import row_sums
from tests.unit.stripe.passes.test_partition_threads import CORES, SUMS, cpu, packing, reader, rows, spread


@pytest.mark.parametrize(("level", "piece", "parts"), [(0, 2, 4), (0, 3, 3), (1, 4, 3)])
def test_the_cut_that_is_given_is_made(level: int, piece: int, parts: int) -> None:
    context = PassContext(cpu(4), given=Given({"main/r": Share({"i": piece}, level)}))
    (block,) = spread(CORES.run(rows(8, 10, 6), context))
    assert next(iter(block.ranges.values())) == parts


@pytest.mark.parametrize(("level", "turns"), [(0, 2), (1, 4), (1, 8), (0, 1)])
def test_the_turns_that_are_given_are_made(level: int, turns: int) -> None:
    context = PassContext(cpu(4), given=Given({"main/r": Share({"i": 2}, level, turns)}))
    program = rows(8, 8, 6)
    (block,) = spread(CORES.run(program, context))
    assert list(block.ranges.values()) == ([4, turns] if turns > 1 else [4])
    assert context.choices == {"main/r": Share({"i": 2}, level, turns)}


def test_turns_along_a_sum_can_not_be() -> None:
    program = program_of("""
        block main [] (in X[0, 0] f32(4, 8):(8, 1)  out R[0]:assign f32(8):(1)) {
          block r [k:4, i:8] (in X[k, i] f32(1, 1):(8, 1)  out R[i]:add f32(1):(1)) {
            $x = load(X) f32
            R = store($x)
          }
        }
    """)
    with pytest.raises(CompileError, match="its pieces can't be taken in turns"):
        CORES.run(program, PassContext(cpu(2), given=Given({"main/r": Share({"i": 4}, turns=2)})))


@pytest.mark.parametrize(
    ("share", "reason"),
    [
        (Share({"i": 1}), "these are 8 parts for 4 CORE: 4 too many"),
        (Share({"i": 8}), "this is one part"),
        (Share({"k": 3}, 1), "two units would write one element along k"),
    ],
)
def test_a_cut_that_can_not_be(share: Share, reason: str) -> None:
    with pytest.raises(CompileError) as refused:
        CORES.run(rows(8, 10, 6), PassContext(cpu(4), given=Given({"main/r": share})))
    assert reason in refused.value.diagnostics[0].message


def test_a_sum_of_rows_is_cut_where_it_is_told() -> None:
    context = PassContext(cpu(1), given=Given({"main/y": Share({"k": 3})}))
    parts, whole = SUMS.run(row_sums(7, (4,)), context).root.children
    assert parts.ranges == {"k": 3, "k_1": 3, "n0": 4}
    assert whole.ranges == {"k": 3, "m": 1, "n0": 4}


def test_a_sum_is_not_cut_along_its_results() -> None:
    context = PassContext(cpu(1), given=Given({"main/y": Share({"n0": 2})}))
    with pytest.raises(CompileError, match="its results depend on n0: a sum is cut along what it adds up"):
        SUMS.run(row_sums(7, (4,)), context)


def test_a_nest_that_is_divided_inside() -> None:
    context = PassContext(cpu(2), given=Given({"main/t": Share(inside=True)}))
    (block,) = spread(CORES.run(packing(), context))
    assert block.name == "t"
    assert context.choices == {"main/t": Share(inside=True)}


def test_a_nest_without_nests_inside_is_not_divided_there() -> None:
    with pytest.raises(CompileError, match="no nests inside that can be divided"):
        CORES.run(rows(8, 10, 6), PassContext(cpu(2), given=Given({"main/r": Share(inside=True)})))


def test_neighbours_that_are_handed_over_together() -> None:
    found = PassContext(cpu(8))
    result = CORES.run(reader("n"), found)
    assert found.choices == {"main/pack": Share({"n": 1}), "main/u": Share({"n": 1}, together=True)}
    assert CORES.run(reader("n"), PassContext(cpu(8), given=Given(found.choices))) == result
    apart = {"main/pack": Share({"n": 1}), "main/u": Share({"n": 1})}
    assert len(spread(CORES.run(reader("n"), PassContext(cpu(8), given=Given(apart))))) == 2


def test_neighbours_that_can_not_be_handed_over_together() -> None:
    context = PassContext(
        cpu(8), given=Given({"main/pack": Share({"k": 1}), "main/u": Share({"n": 1}, together=True)})
    )
    with pytest.raises(CompileError, match="it can't be handed over with the nest before it"):
        CORES.run(reader("n"), context)
