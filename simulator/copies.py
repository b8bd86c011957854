"""Which tensor each buffer of a placed program holds, and which way its copies go.

Between the memory where a tensor lies and the units that compute with it, it goes through buffers:

    main/X in DRAM  ->  main/R/X_SPAD in SPAD        X_load: one load, one store
    main/R in DRAM  <-  main/R/R_acc in ACC          R_copy, or a sum of parts

A buffer that such a block copies from a tensor, to it, or adds to it stands for the tensor. So does one that
stands in this way to another such buffer: its parent, which is fewer copies away. So do copies of what lives
in a kernel of the source. Any other buffer stands for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from hwconfigs.model import HwConfig
from simulator.work import Site
from stripe.analysis.liveness import memory_of
from stripe.analysis.units import is_copy
from stripe.ir import Block, Direction, Load, Store
from stripe.visit import walk


@dataclass(frozen=True, slots=True)
class Copies:
    """By paths of buffers: what they stand for, their parents, and the memories where they lie. `ends` are
    the buffers between which a block copies, by where it stands."""

    tensors: Mapping[str, str]
    parents: Mapping[str, str]
    memories: Mapping[str, str]
    ends: Mapping[Site, tuple[str, str]]

    def tensor(self, path: str) -> str:
        """What the buffer stands for: a tensor, or itself by its path below the root."""
        return self.tensors.get(path) or path.partition("/")[2]

    def other_end(self, site: Site, path: str) -> str:
        """The buffer that a block copies this one from or to; "" if it does not copy it."""
        ends = self.ends.get(site, ())
        return next((other for other in ends if path in ends and other != path), "")

    def comes_from_farther(self, site: Site, path: str) -> bool:
        """Whether a block moves the buffer between its memory and the one of its parent."""
        other = self.other_end(site, path)
        return bool(other) and self.parents.get(path) == other and self.memories[path] != self.memories[other]

    def child(self, site: Site, path: str) -> str:
        """The memory nearer to the units that a block copies the buffer to, or from; "" if it does not."""
        other = self.other_end(site, path)
        near = bool(other) and self.parents.get(other) == path
        return self.memories[other] if near and self.memories[path] != self.memories[other] else ""

    def goes_out(self, site: Site) -> bool:
        """Whether a block copies a buffer to its parent."""
        source, target = self.ends.get(site, ("", ""))
        return bool(target) and self.parents.get(source) == target

    def way(self, path: str) -> frozenset[str]:
        """The memories from where the tensor of a buffer lies to the buffer."""
        found = {self.memories.get(path, "")}
        while (parent := self.parents.get(path)) is not None:
            path = parent
            found.add(self.memories[path])
        return frozenset(found)


def copies_in(root: Block, source: Block, hw: HwConfig) -> Copies:
    """The copies in a program that was made of `source`: its buffers, those in its kernels too, stand for
    themselves."""
    home = hw.home.name if hw.home is not None else ""
    memories: dict[str, str] = {}
    plain: dict[Site, tuple[str, str]] = {}
    sums: dict[Site, tuple[str, str]] = {}
    for block, site, paths in _blocks(root, (), root.name, {}):
        for ref in block.refinements:
            if ref.direction is Direction.NEW or block is root:
                memories[paths[ref.name]] = memory_of(ref, block is root, hw) or home
        match block.statements:
            case (Load(result=loaded, buffer=one), Store(value=value, buffer=other)) if loaded == value:
                (plain if is_copy(block) else sums)[site] = paths[one], paths[other]
    found = {f"{root.name}/{ref.name}": ref.name for ref in source.refinements}
    own = {
        ref.name
        for path, block in walk(source)
        if len(path) > 1
        for ref in block.refinements
        if not ref.source
    }
    below = {path: path.partition("/")[2] for path in memories if path.rpartition("/")[2] in own}
    found |= {path: name for path, name in below.items() if "/" in name}
    parents: dict[str, str] = {}
    both_ways = [pair for one, other in plain.values() for pair in ((one, other), (other, one))]
    _spread(found, parents, both_ways)
    _spread(found, parents, [*both_ways, *((total, part) for part, total in sums.values())])
    return Copies(found, parents, memories, {**plain, **sums})


def _blocks(
    block: Block, site: Site, path: str, outer: Mapping[str, str]
) -> Iterator[tuple[Block, Site, Mapping[str, str]]]:
    """Every block, where it stands, and the path of each buffer that it names."""
    paths = {
        ref.name: f"{path}/{ref.name}" if ref.direction is Direction.NEW or not site else outer[ref.source]
        for ref in block.refinements
    }
    yield block, site, paths
    for number, statement in enumerate(block.statements):
        if isinstance(statement, Block):
            yield from _blocks(statement, (*site, number), f"{path}/{statement.name}", paths)


def _spread(found: dict[str, str], parents: dict[str, str], pairs: Collection[tuple[str, str]]) -> None:
    """What buffers stand for, from those for which that is known, one copy further at a time: the second of a
    pair stands for what the first one does."""
    further: dict[str, list[str]] = {}
    for one, other in pairs:
        further.setdefault(one, []).append(other)
    reached = list(found)
    for path in reached:  # it grows meanwhile
        for other in further.get(path, ()):
            if other not in found:
                found[other], parents[other] = found[path], path
                reached.append(other)
