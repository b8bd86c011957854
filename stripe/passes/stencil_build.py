"""The rewrites behind `stencil`: cut a nest so that one leaf block is one use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hwconfigs.expressions import parse_body
from hwconfigs.model import HwConfig, Stencil
from stripe.ir import Block, Load, Location, Special, Store, Tag
from stripe.names import Names
from stripe.rewrite import RewriteRefused, reorder_indexes, tile_block, tile_nest

_HERE = Tag("here")  # marks the way to the leaf while the levels around it are cut


@dataclass(frozen=True, slots=True)
class _Cut:
    """What becomes of an index of a level: `size` of its points are in a use, along the stencil's
    index `role`; those of an index without a role are outside, one at a time."""

    role: str = ""
    size: int = 1


def ways(block: Block) -> list[tuple[int, ...]]:
    """For each block of the nest that loads, stores or holds a special, in the order of
    `stripe.analysis.bounds.leaves`, the positions of the statements that lead to it."""
    own = any(isinstance(s, Load | Store | Special) for s in block.statements)
    found: list[tuple[int, ...]] = [()] if own else []
    for at, statement in enumerate(block.statements):
        if isinstance(statement, Block):
            found += [(at, *way) for way in ways(statement)]
    return found


def level_names(block: Block, way: Sequence[int]) -> list[tuple[str, ...]]:
    """What `leaves` calls the indexes of each block on the way."""
    names = Names(i.name for i in block.indexes)
    found = [tuple(block.ranges)]
    for at in way:
        child = block.statements[at]
        assert isinstance(child, Block)
        block = child
        found.append(tuple(names.fresh(name) for name in block.ranges))
    return found


def cut_nest(
    block: Block,
    way: Sequence[int],
    stencil: Stencil,
    indexes: Mapping[str, str],
    sizes: Mapping[str, int],
    hw: HwConfig,
) -> Block:
    """The nest with the leaf at the end of `way` cut into uses of a stencil, and tagged.

    `indexes` maps indexes of the stencil to those of the nest, as `leaves` names them, and `sizes`
    gives the points of a use along the latter. From each level on the way, those indexes move
    inwards into all of its statements; the others stay outside. Raises RewriteRefused.
    """
    role_of = {name: role for role, name in indexes.items()}
    levels = level_names(block, way)
    cuts = [[_Cut(role_of[n], sizes[n]) if n in role_of else _Cut() for n in own] for own in levels]
    return _Cutter(stencil, hw).cut(block, way, cuts, ())


def split_leaf(
    leaf: Block, stencil: Stencil, indexes: Mapping[str, str], sizes: Mapping[str, int], hw: HwConfig
) -> Block:
    """A block that is a use of one stencil as a block of uses of another one, which it is made of."""
    bare = replace(leaf, tags=(), location=None)
    roles = {name: role for role, name in indexes.items()}
    wanted = {n: min(sizes.get(n, 1), size) for n, size in bare.ranges.items()}
    cutter = _Cutter(stencil, hw)
    outer = tile_block(bare, wanted, inner_order=cutter.ordered(roles), tags=leaf.tags)
    (inner,) = outer.children
    here = None if leaf.location is None or leaf.location.unit == stencil.unit else Location(stencil.unit)
    inner = replace(inner, tags=(Tag("stencil", stencil.name),), location=here)
    return replace(outer, statements=(inner,), location=leaf.location)


@dataclass(frozen=True, slots=True)
class _Cutter:
    stencil: Stencil
    hw: HwConfig

    def cut(
        self, block: Block, way: Sequence[int], cuts: Sequence[Sequence[_Cut]], inside: Sequence[str]
    ) -> Block:
        """Cut a level and those below it. Its first indexes are parts of the use already, in the
        roles `inside`; `cuts` are for the others."""
        names = tuple(block.ranges)
        own = dict(zip(names[len(inside) :], cuts[0], strict=True))
        sizes = {n: min(c.size, block.ranges[n]) for n, c in own.items()}
        roles = dict(zip(names, inside, strict=False)) | {n: c.role for n, c in own.items() if c.role}
        order = self.ordered({n: role for n, role in roles.items() if sizes.get(n, 2) > 1})
        if not way:
            return self._leaf(block, sizes, order)
        if not order:
            below = self.cut(self._child(block, way[0]), way[1:], cuts[1:], ())
            return self._with(block, way[0], below)
        child = self._child(block, way[0])
        marked = self._with(block, way[0], replace(child, tags=(*child.tags, _HERE)))
        tiled = tile_nest(marked, sizes, inner_order=order)
        for at, part in enumerate(tiled.statements):
            if isinstance(part, Block) and _HERE in part.tags:
                part = replace(part, tags=tuple(t for t in part.tags if t != _HERE))
                below = self.cut(part, way[1:], cuts[1:], [roles[n] for n in order])
                return self._with(tiled, at, below)
        raise RewriteRefused(f"the points of block '{block.name}' can't move into block '{child.name}'")

    def ordered(self, roles: Mapping[str, str]) -> tuple[str, ...]:
        """The indexes of a use in the order of its points: what the result does not depend on
        outside, and the one along which an operand's elements lie one after the other inside."""
        kept = self.stencil.operands[parse_body(self.stencil.body).target]
        position = {role: at for at, role in enumerate(self.stencil.indices)}

        def key(name: str) -> tuple[bool, float, int]:
            role = roles[name]
            steps = [abs(rules[role]) for rules in self.stencil.stride.values() if role in rules]
            return role in kept, -min(steps, default=float("inf")), position[role]

        return tuple(sorted(roles, key=key))

    def _leaf(self, block: Block, sizes: Mapping[str, int], order: Sequence[str]) -> Block:
        if block.location is not None and block.location.unit != self.stencil.unit:
            raise RewriteRefused(f"it runs on unit '{block.location.unit}'")
        where = block.location
        if where is None and self.hw.executor != "cpu":
            where = Location(self.stencil.unit)
        tag = Tag("stencil", self.stencil.name)
        if all(block.ranges[name] <= size for name, size in sizes.items()):
            block = reorder_indexes(block, order)
            return replace(block, tags=(*block.tags, tag), location=where)
        outer = tile_block(replace(block, location=None), sizes, inner_order=order)
        (inner,) = outer.children
        return replace(outer, statements=(replace(inner, tags=(*inner.tags, tag), location=where),))

    def _child(self, block: Block, at: int) -> Block:
        child = block.statements[at]
        assert isinstance(child, Block)
        return child

    def _with(self, block: Block, at: int, child: Block) -> Block:
        statements = (*block.statements[:at], child, *block.statements[at + 1 :])
        return replace(block, statements=statements)
