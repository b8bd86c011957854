"""The registry of tags: what each one advises.

A tag has no meaning: dropping every tag leaves all results as they are. Which passes set and read
it stands in the passes themselves (`Pass.tags_set`, `Pass.tags_read`); `readers` are the other parts that do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TagInfo:
    name: str
    on: str  # "block" or "refinement"
    value: str  # what the value names; empty where the tag takes none
    meaning: str
    readers: tuple[str, ...] = ()


TAGS: dict[str, TagInfo] = {
    info.name: info
    for info in (
        TagInfo(
            "vector", "block", "index",
            "the lane index: a leaf block's statements run on whole vectors along it",
            ("codegen_cpu",),
        ),
        TagInfo(
            "across", "block", "index",
            "squares of elements along this index and the lane index are turned in registers",
            ("codegen_cpu",),
        ),
        TagInfo(
            "unroll", "block", "index",
            "the loop over this index is written out in full",
            ("codegen_cpu",),
        ),
        TagInfo(
            "tiled", "block", "",
            "an outer block made by tiling; not tiled again at the same level; copies stand in it",
        ),
        TagInfo(
            "fits", "block", "memory",
            "what a tile of this block touches fits in this programmer-managed memory",
        ),
        TagInfo(
            "stencil", "block", "stencil",
            "one use of the target's stencil of this name: the block's points are what it does in one go",
            ("cost models",),
        ),
        TagInfo(
            "group", "block", "index",
            "one instruction takes the points along this index, neighbours in memory: to sum or to move them",
            ("cost models", "codegen_cpu"),
        ),
    )
}  # fmt: skip
