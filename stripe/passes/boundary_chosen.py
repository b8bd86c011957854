"""What boundary chooses: which loops are split, and where."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from stripe.passes.choices import Choice, Count

Position: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]


class Split(Choice, frozen=True):
    """A loop that is split in front of the value `at` of an `index`. `path` leads to its block by the
    positions of statements: the first among the parts of the kernel so far, `[0]` at first, the next in that
    one. `within`: the loops around the index stay whole, and hold both parts.
    """

    path: tuple[Position, ...]
    index: str
    at: Count
    within: bool = False


class Separated(Choice, frozen=True):
    """Of a kernel: its `splits`, one after the other."""

    splits: tuple[Split, ...] = ()
