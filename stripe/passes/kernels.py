"""Runs a pass once for all kernels that are alike.

Networks repeat their kernels. Where a pass treats each child block of a root without a look at the
others (`Pass.by_kernel`), it is given one of each kind, and what it makes of that one is carried
over to the rest, remarks and choices too. Kernels for which different choices are given are not of
one kind.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from stripe.alike import Naming, kind, renaming, translated
from stripe.diag import Remark
from stripe.ir import Block, Program, Refinement, Statement
from stripe.passes.base import Pass, PassContext
from stripe.passes.choices import Choice, Given

_WORD = re.compile(r"[A-Za-z_]\w*")


def run_pass(step: Pass, program: Program, context: PassContext) -> Program:
    """The program after the pass, which may see one kernel of each kind only."""
    if not step.by_kernel:
        return step.run(program, context)
    roots = [root for root in (program.root, program.load) if root is not None]
    groups = [_Group.of(root, context.given) for root in roots]
    if not any(group.others for group in groups):
        return step.run(program, context)
    root, load = groups[0], groups[1] if program.load is not None else None
    sample = Program(root.sample, None if load is None else load.sample)
    own = context.anew(context.given)
    made = step.run(sample, own)
    pairs = [(root, made.root), *([(load, made.load)] if load and made.load else [])]
    if not all(group.matches(result) for group, result in pairs):
        return step.run(program, context)  # it changed more than kernels
    for group, result in pairs:
        context.remarks += group.remarks(own.remarks, result)
        context.choices |= group.choices(own.choices)
        context.taken |= group.taken(own.taken)
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
    def of(root: Block, given: Given | None) -> _Group:
        names = [child.name for child in root.children]
        if len(set(names)) < len(names):  # remarks could not be told apart
            return _Group(root, root, {}, {at: at for at in range(len(root.statements))})
        views = {ref.name: ref for ref in root.refinements}
        seen: dict[Hashable, int] = {}
        kinds: list[Block] = []  # kept, so that no two have one id
        chosen = _by_kernel(root, {} if given is None else given.records)
        others: dict[int, int] = {}
        shown: dict[int, int] = {}
        statements: list[Statement] = []
        for at, statement in enumerate(root.statements):
            if isinstance(statement, Block):
                kinds.append(kind(statement).block)
                key = id(kinds[-1]), _around(statement, views), _unnamed(statement, chosen)
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

    def choices(self, made: Mapping[str, Choice]) -> dict[str, Choice]:
        """What was chosen for blocks of this root, for every kernel, in the order of the root."""
        by_kernel = _by_kernel(self.root, made)
        found = {path: made[path] for path in by_kernel.get("", ())}
        for kernel, changed in self._kernels():
            for path in by_kernel.get(kernel, ()):
                found[_worded(path, changed)] = made[path]
        return found

    def taken(self, paths: Iterable[str]) -> set[str]:
        """The choices of this root that were taken, for every kernel."""
        by_kernel = _by_kernel(self.root, dict.fromkeys(paths))
        kernels = [(c, p) for kernel, c in self._kernels() for p in by_kernel.get(kernel, ())]
        return {_worded(path, changed) for changed, path in kernels} | set(by_kernel.get("", ()))

    def _kernels(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """For every kernel the one that stood for it, and new names of blocks by those of that."""
        for at, statement in enumerate(self.root.statements):
            if not isinstance(statement, Block):
                continue
            if at in self.shown:
                yield statement.name, {}
                continue
            like = self.sample.statements[self.others[at]]
            assert isinstance(like, Block)
            yield like.name, renaming(like, statement).blocks

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


T = TypeVar("T")


def _by_kernel(root: Block, records: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Records by path for each kernel of a root, by its name; under "" that of the root itself."""
    found: dict[str, dict[str, T]] = {}
    for path, record in records.items():
        top, _, below = path.partition("/")
        if top == root.name:
            found.setdefault(below.partition("/")[0], {})[path] = record
    return found


def _unnamed(kernel: Block, chosen: Mapping[str, Mapping[str, Choice]]) -> Hashable:
    """What is given for a kernel, without the names of its blocks."""
    names = kind(kernel).names.blocks
    records = chosen.get(kernel.name, {})
    return tuple((_worded(path, names), msgspec.json.encode(record)) for path, record in records.items())


def _worded(path: str, names: Mapping[str, str]) -> str:
    """A path with other names of blocks, but for that of the root."""
    top, *below = path.split("/")
    return "/".join((top, *(_WORD.sub(lambda word: names.get(word[0], word[0]), part) for part in below)))


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
