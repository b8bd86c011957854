"""Blocks that are alike: equal up to the names of blocks, buffers and scalars.

Networks repeat their kernels under other names. `kind` gives what all blocks that are alike have in
common, as one object, so that what was found out about one need not be found out about the next;
`translated` carries what was made of one over to another. Indexes keep their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stripe.ir import Block, Direction, Refinement, Special, Store
from stripe.names import Names
from stripe.remembered import Remembered, RememberedOf
from stripe.visit import rename_operands

MAX_KINDS = 4096


@dataclass(frozen=True, slots=True)
class Naming:
    """Names, by what they name: of one block to those of another."""

    blocks: dict[str, str] = field(default_factory=dict)
    buffers: dict[str, str] = field(default_factory=dict)
    scalars: dict[str, str] = field(default_factory=dict)

    def inverse(self) -> Naming:
        return Naming(*({new: old for old, new in names.items()} for names in self._all()))

    def then(self, other: Naming) -> Naming:
        """First these names, then those of `other`, which has an entry for each."""
        pairs = zip(self._all(), other._all(), strict=True)
        return Naming(*({old: after[new] for old, new in names.items()} for names, after in pairs))

    def carried(self, other: Naming) -> Naming | None:
        """`other`, as it leads on from the new names; None if it has an entry for a name without one."""
        pairs = list(zip(self._all(), other._all(), strict=True))
        if not all(own.keys() >= names.keys() for own, names in pairs):
            return None
        return Naming(*({own[old]: new for old, new in names.items()} for own, names in pairs))

    def _all(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        return self.blocks, self.buffers, self.scalars


@dataclass(frozen=True, slots=True)
class Kind:
    """`block` is the same object for all blocks that are alike; `names` leads to it."""

    block: Block
    names: Naming


_INTERNED = Remembered[Block, Block](MAX_KINDS)
_KINDS = RememberedOf[Block, Kind](MAX_KINDS)


def kind(block: Block) -> Kind:
    """What the block has in common with those that are alike."""
    known = _KINDS.get(block)
    if known is not None:
        return known
    names = Naming()
    for part in _parts(block):
        names.blocks.setdefault(part.name, f"%b{len(names.blocks)}")
        for ref in part.refinements:
            for name in (ref.source, ref.name) if ref.direction is not Direction.NEW else (ref.name,):
                names.buffers.setdefault(name, f"%r{len(names.buffers)}")
        for statement in part.statements:
            if not isinstance(statement, Block | Special | Store):
                names.scalars.setdefault(statement.result, f"%s{len(names.scalars)}")
    made = renamed(block, names)
    return _KINDS.put(block, Kind(_INTERNED.put_first(made, made), names))


def renaming(one: Block, other: Block) -> Naming:
    """The names of one block to those of another that is alike."""
    return kind(one).names.then(kind(other).names.inverse())


def translated(made: Block, names: Naming, other: Block) -> Block:
    """What was made of one block, under the names of `other`, which is alike.

    A name that is new in `made` follows the old name that it begins with: where T became U, T_acc
    becomes U_acc, unless that name is taken.
    """
    kept = kind(other).names
    whole = Naming(
        _grown(names.blocks, (part.name for part in _parts(made)), kept.blocks),
        _grown(names.buffers, (ref.name for part in _parts(made) for ref in part.refinements), kept.buffers),
        _grown(
            names.scalars,
            (s.result for part in _parts(made) for s in part.statements
             if not isinstance(s, Block | Special | Store)),
            kept.scalars,
        ),
    )  # fmt: skip
    result = renamed(made, whole)
    like = kind(made)
    if (led := whole.carried(like.names)) is not None:
        _KINDS.put(result, Kind(like.block, led))
    return result


def _grown(names: Mapping[str, str], used: Iterator[str], taken: Mapping[str, str]) -> dict[str, str]:
    whole, fresh = dict(names), Names(taken)
    for name in used:
        if name not in whole:
            stem = max((old for old in names if name.startswith(old)), key=len, default="")
            whole[name] = fresh.fresh(names.get(stem, "") + name[len(stem) :])
    return whole


def renamed(block: Block, names: Naming) -> Block:
    """The block, and all in it, under other names; what has no entry keeps its name."""
    blocks, buffers = names.blocks, names.buffers
    refinements = [  # made whole: that takes a third of the time of `replace`
        Refinement(
            r.direction, buffers.get(r.name, r.name), r.shape, r.dtype, buffers.get(r.source, r.source),
            r.access, r.aggregation, r.strides, r.location, r.const, r.tags, r.span,
        )
        for r in block.refinements
    ]  # fmt: skip
    statements = [
        renamed(s, names) if isinstance(s, Block) else rename_operands(s, buffers, names.scalars)
        for s in block.statements
    ]
    return Block(
        blocks.get(block.name, block.name), block.indexes, block.constraints, tuple(refinements),
        tuple(statements), block.location, block.inflight, block.tags, block.span,
    )  # fmt: skip


def _parts(block: Block) -> Iterator[Block]:
    """The block and those in it, in the order of the text."""
    pending = [block]
    while pending:
        part = pending.pop()
        yield part
        pending.extend(reversed(part.children))
