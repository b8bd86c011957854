"""partition with a cut that is given."""

from __future__ import annotations

import pytest

from stripe.diag import CompileError
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.partition_chosen import Share
from tests.unit.stripe.passes.test_partition_threads import CORES, cpu, rows, spread


@pytest.mark.parametrize(("level", "piece", "parts"), [(0, 2, 4), (0, 3, 3), (1, 4, 3)])
def test_the_cut_that_is_given_is_made(level: int, piece: int, parts: int) -> None:
    context = PassContext(cpu(4), given=Given({"main/r": Share({"i": piece}, level)}))
    (block,) = spread(CORES.run(rows(8, 10, 6), context))
    assert next(iter(block.ranges.values())) == parts


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
