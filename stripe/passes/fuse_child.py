"""A statement of the block whose children are fused, and what must run before and after it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stripe.analysis.deps import successors
from stripe.analysis.fusion_sides import Candidate, Scope
from stripe.ir import Block, Statement
from stripe.locks import cached_property
from stripe.passes.fuse_leaf import Leaf
from stripe.rewrite import fold_unit_indexes
from stripe.visit import buffers_used


@dataclass(eq=False)
class Child:
    """A statement of the block, or what several became."""

    place: int  # ascending in the order of the statements
    given: Statement | None  # None: the leaf is built when it is asked for
    candidate: Candidate | None  # of a block
    leaf: Leaf | None  # of a block that is one
    after: set[Child] = field(default_factory=set)  # depend on it directly
    before: set[Child] = field(default_factory=set)
    gone: bool = False

    @cached_property
    def size(self) -> int:
        """How many statements there are in the block."""
        if self.leaf is not None:
            return self.leaf.size
        assert self.candidate is not None
        return len(self.candidate.block.statements)

    @staticmethod
    def of(scope: Scope, place: int, statement: Statement) -> Child:
        if not isinstance(statement, Block):
            return Child(place, statement, None, None)
        block = fold_unit_indexes(statement)
        return Child(place, statement, Candidate(scope, block), Leaf.of(block))

    @cached_property
    def statement(self) -> Statement:
        if self.given is not None:
            return self.given
        assert self.leaf is not None
        return self.leaf.build()

    @property
    def block(self) -> Block:
        """The block without indexes of range 1."""
        assert isinstance(self.statement, Block)
        return fold_unit_indexes(self.statement)

    @property
    def uses(self) -> Iterable[str]:
        """Buffers of the enclosing block."""
        if self.candidate is not None:
            return self.candidate.uses
        return dict.fromkeys(name for name, _ in buffers_used(self.statement))


def must_follow(members: Sequence[Child]) -> set[Child] | None:
    """The statements before the last member that must run after one of them, or None if one of
    these must also run before a member. `members` are in the order of the program."""
    last, inside = members[-1].place, set(members)
    behind: set[Child] = set()
    reached = list(members)
    while reached:
        more = {c for c in reached.pop().after if c.place <= last and c not in behind}
        for child in more - inside:
            if not inside.isdisjoint(child.after):
                return None
            behind.add(child)
            reached.append(child)
    return behind


class Children:
    """The statements of a block while some of them become one: which use a buffer, in order, and
    which must run after which. What is known of one goes over to what it becomes a part of."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.scope = Scope(block)
        self.children = [Child.of(self.scope, at, s) for at, s in enumerate(block.statements)]
        for child, later in zip(self.children, successors(block), strict=True):
            child.after = {self.children[at] for at in later}
            for other in child.after:
                other.before.add(child)
        self.users: dict[str, list[Child]] = {}
        for child in self.children:
            for name in child.uses:
                self.users.setdefault(name, []).append(child)

    def replace(self, members: Sequence[Child], result: Child) -> bool:
        """Put what some statements became where the last of them was. What must run after one of
        them moves behind it: whether anything did."""
        later = must_follow(members) or set()
        inside = set(members)
        start, end = (
            bisect_left(self.children, c.place, key=lambda c: c.place) for c in (members[0], members[-1])
        )
        between = [c for c in self.children[start : end + 1] if c not in inside]
        self.children[start : end + 1] = [
            *(c for c in between if c not in later),
            result,
            *(c for c in between if c in later),
        ]
        result.after = set().union(*(c.after for c in members)) - inside
        result.before = set().union(*(c.before for c in members)) - inside
        for child in result.after:
            child.before = child.before - inside | {result}
        for child in result.before:
            child.after = child.after - inside | {result}
        for member in members:
            member.gone = True
        for name in dict.fromkeys(name for member in members for name in member.uses):
            users = [c for c in self.users[name] if not c.gone]
            insort(users, result, key=lambda c: c.place)
            self.users[name] = users
        if later:
            for at, child in enumerate(self.children):
                child.place = at
            for users in self.users.values():
                users.sort(key=lambda c: c.place)
        return bool(later)
