"""What passes need that put several blocks in the place of one: free names, and new buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from stripe.diag import Span
from stripe.dtypes import DType
from stripe.ir import Block, Direction, Refinement, Statement, contiguous
from stripe.names import Names


@dataclass(slots=True)
class Rewriter:
    """A block in which others take the place of some: `blocks` and `names` hand out names for blocks and
    refinements that are free in it; `buffers` were made for it."""

    block: Block
    blocks: Names = field(init=False)
    names: Names = field(init=False)
    buffers: list[Refinement] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.blocks = Names(child.name for child in self.block.children)
        self.names = Names(ref.name for ref in self.block.refinements)

    def buffer(self, name: str, shape: tuple[int, ...], dtype: DType, span: Span | None = None) -> Refinement:
        """A new buffer without gaps."""
        made = Refinement(
            Direction.NEW, self.names.fresh(name), shape, dtype, strides=contiguous(shape), span=span
        )
        self.buffers.append(made)
        return made

    def replaced(self, become: Callable[[Block], Sequence[Block]]) -> Block:
        """The block with what each in it becomes, and with the new buffers; itself where nothing changes."""
        statements: list[Statement] = []
        for statement in self.block.statements:
            statements += become(statement) if isinstance(statement, Block) else [statement]
        old = self.block.statements
        if len(statements) == len(old) and all(a is b for a, b in zip(statements, old, strict=True)):
            return self.block
        refinements = (*self.block.refinements, *self.buffers)
        return replace(self.block, refinements=refinements, statements=tuple(statements))
