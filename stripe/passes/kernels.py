"""Runs a pass once for all kernels that are alike.

Networks repeat their kernels. Where a pass treats each child block of a root without a look at the
others (`Pass.by_kernel`), it is given one of each kind, and what it makes of that one is carried
over to the rest, remarks too.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from stripe.alike import Naming, kind, renaming, translated
from stripe.diag import Remark
from stripe.ir import Block, Program, Refinement, Statement
from stripe.passes.base import Pass, PassContext

_WORD = re.compile(r"[A-Za-z_]\w*")


def run_pass(step: Pass, program: Program, context: PassContext) -> Program:
    """The program after the pass, which may see one kernel of each kind only."""
    if not step.by_kernel:
        return step.run(program, context)
    groups = [_Group.of(root) for root in (program.root, program.load) if root is not None]
    if not any(group.others for group in groups):
        return step.run(program, context)
    root, load = groups[0], groups[1] if program.load is not None else None
    sample = Program(root.sample, None if load is None else load.sample)
    own = PassContext(context.hw)
    made = step.run(sample, own)
    pairs = [(root, made.root), *([(load, made.load)] if load and made.load else [])]
    if not all(group.matches(result) for group, result in pairs):
        return step.run(program, context)  # it changed more than kernels
    for group, result in pairs:
        context.remarks += group.remarks(own.remarks, result)
    if made is sample:
        return program
    results = [group.expanded(result) for group, result in pairs]
    return replace(program, root=results[0], load=results[1] if load else None)


@dataclass(frozen=True, slots=True)
class _Group:
    """A root, the statements of it that a pass is shown (by position), and for each of the others
    the position, in `sample`, of the one that it is like."""

    root: Block
    sample: Block
    others: Mapping[int, int]
    shown: Mapping[int, int]

    @staticmethod
    def of(root: Block) -> _Group:
        names = [child.name for child in root.children]
        if len(set(names)) < len(names):  # remarks could not be told apart
            return _Group(root, root, {}, {at: at for at in range(len(root.statements))})
        views = {ref.name: ref for ref in root.refinements}
        seen: dict[Hashable, int] = {}
        kinds: list[Block] = []  # kept, so that no two have one id
        others: dict[int, int] = {}
        shown: dict[int, int] = {}
        statements: list[Statement] = []
        for at, statement in enumerate(root.statements):
            if isinstance(statement, Block):
                kinds.append(kind(statement).block)
                key = id(kinds[-1]), _around(statement, views)
                if key in seen:
                    others[at] = seen[key]
                    continue
                seen[key] = len(statements)
            shown[at] = len(statements)
            statements.append(statement)
        sample = replace(root, statements=tuple(statements)) if others else root
        return _Group(root, sample, others, shown)

    def matches(self, result: Block) -> bool:
        """Whether the pass gave one statement for each, and left the rest of the root alone."""
        same = replace(result, statements=self.sample.statements) == self.sample
        shapes = [list(map(type, block.statements)) for block in (result, self.sample)]
        return same and shapes[0] == shapes[1]

    def expanded(self, result: Block) -> Block:
        statements: list[Statement] = []
        for at, statement in enumerate(self.root.statements):
            if at in self.shown:
                statements.append(result.statements[self.shown[at]])
                continue
            like = self.sample.statements[self.others[at]]
            made = result.statements[self.others[at]]
            assert isinstance(statement, Block)
            assert isinstance(like, Block)
            assert isinstance(made, Block)
            if made is like:
                statements.append(statement)
            else:
                statements.append(translated(made, renaming(like, statement), statement))
        if all(new is old for new, old in zip(statements, self.root.statements, strict=True)):
            return self.root
        return replace(self.root, statements=tuple(statements))

    def remarks(self, said: list[Remark], result: Block) -> list[Remark]:
        """What was said of this root's blocks, for every kernel, in the order of the root."""
        by_kernel: dict[str, list[Remark]] = {}
        rest: list[Remark] = []
        names = {child.name for child in self.sample.children}
        for remark in said:
            root, _, below = remark.block.partition("/")
            kernel = re.split(r"[/,]", below)[0]
            if root != self.root.name:
                continue
            (by_kernel.setdefault(kernel, []) if kernel in names else rest).append(remark)
        found: list[Remark] = []
        for at, statement in enumerate(self.root.statements):
            if not isinstance(statement, Block):
                continue
            if at in self.shown:
                found += by_kernel.get(statement.name, [])
                continue
            like = self.sample.statements[self.others[at]]
            assert isinstance(like, Block)
            changed = renaming(like, statement)
            found += [_renamed(remark, changed) for remark in by_kernel.get(like.name, [])]
        return found + rest


def _around(kernel: Block, views: Mapping[str, Refinement]) -> Hashable:
    """What a kernel's views are of, without the names."""
    return tuple(
        replace(views[ref.source], name="", source="", access=()) if ref.source in views else None
        for ref in kernel.refinements
    )


def _renamed(remark: Remark, names: Naming) -> Remark:
    words = names.buffers | names.blocks

    def changed(text: str) -> str:
        return _WORD.sub(lambda word: words.get(word[0], word[0]), text)

    return replace(remark, block=changed(remark.block), message=changed(remark.message))
