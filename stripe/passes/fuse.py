"""fuse: put producers and consumers under shared outer indexes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from hwconfigs.model import Memory
from stripe.analysis.deps import successors
from stripe.analysis.fusion import Declined, Plan, Rank, best_rank, plan_fusion
from stripe.analysis.fusion_sides import Candidate, Scope
from stripe.ir import Block, Program, Statement
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.fuse_build import under_shared_indexes
from stripe.passes.fuse_leaf import Leaf
from stripe.rewrite import fold_unit_indexes
from stripe.visit import buffers_used, map_children, map_roots, walk

_NEIGHBOURS = 32
"""How many users of a buffer, on either side of a block, it is compared with: with all of them, a
buffer with many users would make pairs without number."""


@dataclass(frozen=True)
class Fuse(Pass):
    """Put blocks that follow each other in a block under outer indexes that they share.

    before:  block c [m:8, n:4, k:2] (in A[m, k]  in B[k, n]  out C[m, n]:add) {...}
             block r [m:8, n:4] (in C[m, n]  out R[m, n]:assign) {...}
    after:   block r [m:8, n:4] (in A[m, 0]  in B[0, n]  out C[m, n]:assign  out R[m, n]:assign) {
               block c [k:2] (in A[0, k]  in B[k, 0]  out C[0, 0]:add) {...}
               block r [] (in C[0, 0]  out R[0, 0]:assign) {...} }

    Two blocks that keep no index, no constraint and no child of their own become one leaf block:
    a chain of elementwise blocks ends as one flat block. An intermediate keeps its buffer in the
    parent; `localize` moves it inside and `scalarize` makes it a scalar.

    Legal where every two accesses to one element, of which one writes, happen at one point of
    the shared indexes, and no statement must run between the two blocks (others are moved to
    either side). `stripe.analysis.fusion` has the proof and the profit model. Blocks with tags, a
    location or points in flight are left as they are. Producers are not recomputed: a consumer
    that needs neighbours of an element (a halo) stays apart.

    Stripe paper, section 2.3, "Fusion".
    """

    name = "fuse"

    memory: str = option(
        "",
        "the memory that should hold what a shared point keeps alive; empty: the nearest but registers",
    )

    def run(self, program: Program, context: PassContext) -> Program:
        memories = self._memories(context)
        return map_roots(program, lambda root: _fuse_below(root, root.name, memories, context))

    def _memories(self, context: PassContext) -> tuple[Memory, ...]:
        """Nearest first, from the memory that the option names on."""
        memories = tuple(m for m in context.hw.memories if m.kind != "registers")
        names = [m.name for m in memories]
        return memories[names.index(self.memory) :] if self.memory in names else memories


def _fuse_below(block: Block, path: str, memories: Sequence[Memory], context: PassContext) -> Block:
    """Fuse the children of a block, then those of each child."""
    block = _Children(block, path, memories, context).fused()
    return map_children(block, lambda child: _fuse_below(child, f"{path}/{child.name}", memories, context))


@dataclass(eq=False)
class _Child:
    """A statement of the block, or what several became."""

    place: int  # ascending in the order of the statements
    given: Statement | None  # None: the leaf is built when it is asked for
    candidate: Candidate | None  # of a block
    leaf: Leaf | None  # of a block that is one
    after: set[_Child] = field(default_factory=set)  # depend on it directly
    before: set[_Child] = field(default_factory=set)
    gone: bool = False

    @cached_property
    def size(self) -> int:
        """How many statements there are in the block."""
        if self.leaf is not None:
            return sum(len(part.block.statements) for part in self.leaf.parts)
        assert self.candidate is not None
        return len(self.candidate.block.statements)

    @staticmethod
    def of(scope: Scope, place: int, statement: Statement) -> _Child:
        if not isinstance(statement, Block):
            return _Child(place, statement, None, None)
        block = fold_unit_indexes(statement)
        return _Child(place, statement, Candidate(scope, block), Leaf.of(block))

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


_Entry: TypeAlias = tuple[tuple[int, ...], bool, _Child, _Child]
"""A pair in the heap, least first: the negated rank of its plan, or, not planned yet, of the best
that there may be; then how many statements are in the two, their places, and a number of its own.
Between equals small blocks go first: leaves are joined in few levels, not one after the other."""


class _Children:
    """The statements of one block while pairs of them are fused, best plan first.

    A plan costs far more than a bound on its rank. So a pair is planned only when its bound has come
    to the head of the heap, and put back with the rank of its plan. What is known of a block, and
    what depends on it, goes over to the block that it becomes a part of; nothing is asked again.
    """

    def __init__(self, block: Block, path: str, memories: Sequence[Memory], context: PassContext) -> None:
        self._block = block
        self._path = path
        self._memories = memories
        self._context = context
        self._scope = Scope(block)
        self._verdicts: dict[tuple[_Child, _Child], Plan | Declined] = {}
        self._built: dict[tuple[_Child, _Child], Block] = {}  # what two become that do not join as leaves
        self._heap: list[_Entry] = []
        self._serial = count()
        self._children = [_Child.of(self._scope, at, s) for at, s in enumerate(block.statements)]
        for child, later in zip(self._children, successors(block), strict=True):
            child.after = {self._children[at] for at in later}
            for other in child.after:
                other.before.add(child)
        self._users: dict[str, list[_Child]] = {}
        for child in self._children:
            for name in child.uses:
                self._users.setdefault(name, []).append(child)

    def fused(self) -> Block:
        self._propose_all()
        changed = False
        while chosen := self._best():
            self._carry_out(*chosen)
            changed = True
        self._explain()
        if not changed:
            return self._block
        return replace(self._block, statements=tuple(child.statement for child in self._children))

    # -- which two ------------------------------------------------------------------------------

    def _propose_all(self) -> None:
        for child in self._children:
            for other in self._neighbours(child):
                if child.place < other.place:
                    self._propose(child, other)

    def _neighbours(self, child: _Child) -> Iterable[_Child]:
        """The nearest blocks that use a buffer which the child uses."""
        found: dict[_Child, None] = {}
        for name in child.uses:
            users = self._users[name]
            if len(users) > 1:
                at = bisect_left(users, child.place, key=_place)
                found |= dict.fromkeys(users[max(0, at - _NEIGHBOURS) : at])
                found |= dict.fromkeys(users[at + 1 : at + 1 + _NEIGHBOURS])
        return found

    def _propose(self, first: _Child, second: _Child) -> None:
        if first.candidate is not None and second.candidate is not None:
            bound = best_rank(first.candidate, second.candidate, self._user_count)
            if bound is not None:
                self._push(first, second, bound, planned=False)

    def _user_count(self, buffer: str) -> int:
        return len(self._users[buffer])

    def _push(self, first: _Child, second: _Child, rank: Rank, *, planned: bool) -> None:
        flat, shared, gain = rank
        size = first.size + second.size
        key = -flat, -shared, -gain, size, first.place, second.place, next(self._serial)
        heappush(self._heap, (key, planned, first, second))

    def _best(self) -> tuple[_Child, _Child, Plan] | None:
        while self._heap:
            _, planned, first, second = heappop(self._heap)
            if first.gone or second.gone or self._between(first, second) is None:
                continue  # what must run between two stays there until it is a part of one of them
            plan = self._verdict(first, second)
            if isinstance(plan, Plan):
                if planned:
                    return first, second, plan
                self._push(first, second, plan.rank, planned=True)
        return None

    def _verdict(self, first: _Child, second: _Child) -> Plan | Declined:
        key = first, second
        if key not in self._verdicts:
            assert first.candidate is not None and second.candidate is not None
            plan = plan_fusion(first.candidate, second.candidate, self._user_count, self._memories)
            if isinstance(plan, Plan) and not _join(first, second, plan):
                block = under_shared_indexes(self._block, first.block, second.block, plan)
                if _gains(block):
                    self._built[key] = block
                else:
                    reason = "their constraints or aggregations keep them from becoming one leaf block"
                    plan = Declined(reason, related=bool(plan.shared))
            self._verdicts[key] = plan
        return self._verdicts[key]

    def _between(self, first: _Child, second: _Child) -> set[_Child] | None:
        """The statements between two that must run after the first, or None if one of them must
        also run before the second."""
        behind: set[_Child] = set()
        reached = [first]
        while reached:
            child = reached.pop()
            if second in child.after and child is not first:
                return None
            more = {c for c in child.after if c.place < second.place and c not in behind}
            behind |= more
            reached += more
        return behind

    # -- fusing them ----------------------------------------------------------------------------

    def _carry_out(self, first: _Child, second: _Child, plan: Plan) -> None:
        later = self._between(first, second) or set()
        result = self._fused(first, second)
        self._replace_in_graph(first, second, result)
        start, end = (bisect_left(self._children, c.place, key=_place) for c in (first, second))
        middle = self._children[start + 1 : end]
        self._children[start : end + 1] = [
            *(c for c in middle if c not in later),
            result,
            *(c for c in middle if c in later),
        ]
        for name in dict.fromkeys((*first.uses, *second.uses)):
            users = [c for c in self._users[name] if not c.gone]
            insort(users, result, key=_place)
            self._users[name] = users
        if later:
            self._renumber()
        else:
            for other in self._neighbours(result):
                self._propose(*((other, result) if other.place < result.place else (result, other)))
        assert first.candidate is not None and second.candidate is not None
        name, partner = second.candidate.block.name, first.candidate.block.name
        over = ", ".join(s.pair.first for s in plan.shared)
        self._context.remark(
            "fuse",
            f"{self._path}/{name}",
            True,
            f"fused with '{partner}'" + (f" over {over}" if over else ""),
            bytes_saved=plan.gain,
            flat=plan.flat,
        )

    def _fused(self, first: _Child, second: _Child) -> _Child:
        if (first, second) in self._built:
            return _Child.of(self._scope, second.place, self._built[first, second])
        assert first.leaf and second.leaf and first.candidate and second.candidate
        leaf = first.leaf.joined(second.leaf)
        candidate = first.candidate.joined(second.candidate, leaf.outline())
        return _Child(second.place, None, candidate, leaf)

    def _replace_in_graph(self, first: _Child, second: _Child, result: _Child) -> None:
        """What depended on one of two, or they on it, depends on the block that they became."""
        both = {first, second}
        result.after = (first.after | second.after) - both
        result.before = (first.before | second.before) - both
        for child in result.after:
            child.before = child.before - both | {result}
        for child in result.before:
            child.after = child.after - both | {result}
        first.gone = second.gone = True

    def _renumber(self) -> None:
        """Some statements have moved behind others: all that goes by places is made again."""
        for at, child in enumerate(self._children):
            child.place = at
        for users in self._users.values():
            users.sort(key=_place)
        self._heap.clear()
        self._propose_all()

    def _explain(self) -> None:
        """Say why blocks of which the second uses what the first writes are still apart."""
        for child in self._children:
            for other in self._writers_for(child):
                plan = self._verdict(other, child)
                if isinstance(plan, Plan):
                    reason = "another statement must run between them"
                elif plan.related:
                    reason = plan.reason
                else:
                    continue
                path, message = (
                    f"{self._path}/{child.block.name}",
                    f"not fused with '{other.block.name}': {reason}",
                )
                self._context.remark("fuse", path, False, message)

    def _writers_for(self, child: _Child) -> list[_Child]:
        """Blocks in front of the child that write what it uses, where it is a block and one of the
        two has indexes."""
        if child.candidate is None:
            return []
        found = {
            other
            for name in child.uses
            for other in self._users[name]
            if other.place < child.place and other.candidate is not None and other.candidate.uses[name]
        }
        if not child.block.ranges:
            found = {other for other in found if other.block.ranges}
        return sorted(found, key=_place)


def _place(child: _Child) -> int:
    return child.place


def _join(first: _Child, second: _Child, plan: Plan) -> bool:
    """Whether two become one leaf in a way that needs no building before the end."""
    return first.leaf is not None and second.leaf is not None and first.leaf.joins(second.leaf, plan)


def _gains(fused: Block) -> bool:
    """Whether a block that two became is one leaf, or has points at which children of their own
    points follow each other. Otherwise nothing is left inside that could be tiled or vectorised."""
    below = [inner for _, inner in walk(fused)][1:]
    return not below or (bool(fused.ranges) and any(inner.ranges for inner in below))
