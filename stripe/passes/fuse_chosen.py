"""What fuse chooses: which blocks, under which indexes, or in which tiles."""

from __future__ import annotations

import msgspec

from stripe.passes.choices import Choice, Count


class FusedPair(Choice, frozen=True):
    """Two blocks that follow each other, by their names, and the indexes of the first one that they share."""

    first: str
    second: str
    over: tuple[str, ...] = ()


class Fusion(Choice, frozen=True):
    """Of a block: the pairs of blocks in it that are put together, one after the other; a pair is called as
    its second block from then on. With `share=tiles`, of a kernel: `buffers` are computed in its tiles,
    which have `sizes` points along its indexes.
    """

    pairs: tuple[FusedPair, ...] = ()
    buffers: tuple[str, ...] = ()
    sizes: dict[str, Count] = msgspec.field(default_factory=dict)
