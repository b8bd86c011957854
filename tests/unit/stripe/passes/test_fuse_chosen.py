"""fuse with tiles that are given."""

from __future__ import annotations

import pytest

from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.fuse_chosen import Fusion
from tests.unit.stripe.passes.test_fuse import main
from tests.unit.stripe.passes.test_fuse_tiles import TILES, only, small, window


def fused(sizes: dict[str, int], *buffers: str) -> Program:
    program = main(
        "in X 68 36; new T 66 34; out R 64 32", window("T", "X", (66, 34)), window("R", "T", (64, 32))
    )
    given = Given({"main/R": Fusion(buffers=buffers, sizes=sizes)})
    return TILES.run(program, PassContext(small(), given=given))


def test_the_tiles_that_are_given_are_made() -> None:
    tile = only(fused({"y": 16}, "T"))
    assert tile.ranges == {"y": 4}
    assert [c.ranges["y"] for c in tile.children] == [18, 16]


@pytest.mark.parametrize(
    ("sizes", "buffer", "reason"),
    [
        ({"y": 65}, "T", "y has 64 points, the tile 65: 1 too many"),
        ({"y": 16}, "X", "'X' is no buffer of the program's own"),
    ],
)
def test_tiles_that_can_not_be(sizes: dict[str, int], buffer: str, reason: str) -> None:
    with pytest.raises(CompileError) as refused:
        fused(sizes, buffer)
    assert reason in refused.value.diagnostics[0].message
