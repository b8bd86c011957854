"""The registry of tags: what each one advises, who sets it and who reads it.

A tag has no meaning: dropping every tag leaves all results as they are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TagInfo:
    name: str
    on: str  # "block" or "refinement"
    value: str  # what the value names; empty where the tag takes none
    meaning: str
    set_by: str
    read_by: str


TAGS: dict[str, TagInfo] = {
    info.name: info
    for info in (
        TagInfo(
            "vector", "block", "index",
            "the lane index: a leaf block's statements run on whole vectors along it",
            "vectorize", "codegen_cpu",
        ),
        TagInfo(
            "unroll", "block", "index",
            "the loop over this index is written out in full",
            "unroll", "codegen_cpu",
        ),
        TagInfo(
            "tiled", "block", "",
            "an outer block made by tiling; not tiled again at the same level",
            "autotile, fuse", "autotile, localize",
        ),
        TagInfo(
            "fits", "block", "memory",
            "what a tile of this block touches fits in this programmer-managed memory",
            "autotile", "autotile, transfer",
        ),
        TagInfo(
            "stencil", "block", "stencil",
            "one use of the target's stencil of this name: the block's points are what it does in one go",
            "stencil", "autotile, codegen_cpu",
        ),
    )
}  # fmt: skip
