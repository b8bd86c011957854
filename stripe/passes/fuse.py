"""fuse: put producers and consumers under shared outer indexes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from typing import Literal, TypeAlias

from hwconfigs.model import Memory
from stripe.analysis.fusion import best_rank, given_fusion, no_leaf, only_read, plan_fusion
from stripe.analysis.fusion_plan import Declined, Plan, Rank
from stripe.analysis.fusion_sides import Candidate
from stripe.analysis.fusion_sums import wants_cutting
from stripe.analysis.fusion_units import Ability, ability, worse
from stripe.analysis.stencils_cost import Memo
from stripe.diag import CompileError, did_you_mean
from stripe.ir import Block, Direction, Program
from stripe.locks import cached_property
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.fuse_build import under_shared_indexes
from stripe.passes.fuse_child import Child, Children, must_follow
from stripe.passes.fuse_chosen import FusedPair, Fusion
from stripe.passes.fuse_groups import Tiles
from stripe.visit import map_children, map_roots, walk

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
    either side). `stripe.analysis.fusion` has the proof, `fusion_profit` the model. Blocks with tags (but for
    `#group`, whose index is not shared), a location or points in flight are left as they are. Two leaves
    become one only where the target gains by it: not where no unit or stencil executes the one leaf as fast
    as the two, or where results that are summed over different indexes keep it from being dealt out to
    equal units. A sum so long that no tile of it fits in a core's own cache stays apart, if it takes much
    less time cut into pieces, and so does one whose tiles would copy inputs that few results share: see
    `stripe.analysis.fusion_sums`. Rows from beyond all caches are shared even where the second block adds up
    over them: its sums lie in a cache then, and the rows are read once.

    With `share=tiles`, kernels whose results nothing but one consumer needs are computed inside
    tiles of that consumer, each as far as the tile needs it. What neighbouring tiles
    both need (a halo) is computed in both; where the consumer takes s points of the producer for each of its
    own, a tile of n points has n*s of the producer. Run it behind `localize`:

    before:  block main [] (in X[0] (66)  new T (64)  out R[0]:assign (62)) {
               block T [x:64, i:3] (in X[x + i]  out T[x]:add) {...}
               block R [x:62, i:3] (in T[x + i]  out R[x]:add) {...} }
    after:   block R [x:2] (in X[31*x] (35)  out R[31*x]:add (31)  new T (33)) #tiled {
               block T [x:33, i:3] (in X[x + i]  out T[x]:add) {...}
               block R [x:31, i:3] (in T[x + i]  out R[x]:add) {...} }

    Legal where the producers change nothing else, and nothing must run between the blocks. Sizes
    come from a roofline over the target's memories and unit: the bytes of the intermediate that stay near,
    against the work that is done again and the operands that are read again. Where no size
    pays, the remark has the figures. `stripe.analysis.fusion_tiles` has the proof.

    Stripe paper, section 2.3, "Fusion".
    """

    name = "fuse"
    tags_read = ("group",)
    tags_set = ("tiled",)
    choice = Fusion

    memory: str = option(
        "",
        "the memory that should hold what a shared point keeps alive; empty: the nearest but registers",
    )

    share: Literal["points", "tiles"] = option(
        "points", "share the points of outer indexes, or compute producers anew in tiles of their consumer"
    )

    def run(self, program: Program, context: PassContext) -> Program:
        if self.share == "tiles":
            return map_roots(program, lambda root: Tiles(root, context).fused())
        memories = self._memories(context)
        return map_roots(program, lambda root: _fuse_below(root, root.name, memories, context))

    def _memories(self, context: PassContext) -> tuple[Memory, ...]:
        """Nearest first, from the memory that the option names on."""
        memories = tuple(m for m in context.hw.memories if m.kind != "registers")
        names = [m.name for m in memories]
        return memories[names.index(self.memory) :] if self.memory in names else memories


def _fuse_below(block: Block, path: str, memories: Sequence[Memory], context: PassContext) -> Block:
    """Fuse the children of a block, then those of each child."""
    block = _Points(block, path, memories, context).fused()
    return map_children(block, lambda child: _fuse_below(child, f"{path}/{child.name}", memories, context))


_Entry: TypeAlias = tuple[tuple[int, ...], bool, Child, Child]
"""A pair in the heap, least first: the negated rank of its plan, or, not planned yet, of the best
that there may be; then how many statements are in the two, their places, and a number of its own.
Between equals small blocks go first: leaves are joined in few levels, not one after the other."""


class _Points(Children):
    """The statements of one block while pairs of them are fused, best plan first.

    A plan costs far more than a bound on its rank. So a pair is planned only when its bound has come
    to the head of the heap, and put back with the rank of its plan. What is known of a block, and
    what depends on it, goes over to the block that it becomes a part of; nothing is asked again.
    """

    def __init__(self, block: Block, path: str, memories: Sequence[Memory], context: PassContext) -> None:
        super().__init__(block)
        self._path = path
        self._memories = memories
        self._context = context
        self._verdicts: dict[tuple[Child, Child], Plan | Declined] = {}
        self._built: dict[tuple[Child, Child], Block] = {}  # what two become that do not join as leaves
        self._made: set[Child] = set()  # what was fused
        self._abilities: dict[Child, Ability] = {}
        self._memo: Memo = {}
        self._heap: list[_Entry] = []
        self._serial = count()
        self._pairs: list[FusedPair] = []
        self._named: dict[str, list[Child]] = {}
        for child in self.children:
            self._note(child)

    def _note(self, child: Child) -> None:
        """Remember a block under its name."""
        if child.candidate is not None:
            self._named.setdefault(child.candidate.block.name, []).append(child)

    def fused(self) -> Block:
        key = self._context.key(self._path)
        given = self._context.explicit(key, Fusion)
        for number, pair in enumerate(given.pairs if given is not None else ()):
            self._carry_out(*self._given(key, pair, f"pairs[{number}]"))
        if self._context.searches:
            self._propose_all()
            while chosen := self._best():
                self._carry_out(*chosen)
            self._explain()
        elif given is None:
            self._propose_all()
            if self._best() is not None:
                self._context.undecided(self._path)
        if not self._pairs:
            return self.block
        self._context.chose(key, Fusion(tuple(self._pairs)))
        return replace(self.block, statements=tuple(child.statement for child in self.children))

    def _given(self, key: str, pair: FusedPair, field: str) -> tuple[Child, Child, Plan]:
        """The two blocks of a choice, and the plan for them. Raises CompileError P009 if they stay apart."""

        def refused(reason: str, *notes: str) -> CompileError:
            return self._context.refused(key, reason, field, *notes)

        blocks = {self._label(child): child for child in self.children if child.candidate is not None}
        for name in (pair.first, pair.second):
            if name not in blocks:
                raise refused(f"there is no block '{name}' in it", *did_you_mean(name, blocks))
        first, second = blocks[pair.first], blocks[pair.second]
        both = f"'{pair.second}' with '{pair.first}'"
        if first.place >= second.place:
            raise refused(f"{both}: the first must stand in front of the second")
        if must_follow((first, second)) is None:
            raise refused(f"{both}: another statement must run between them")
        assert first.candidate is not None and second.candidate is not None
        plan = given_fusion(first.candidate, second.candidate, pair.over)
        if isinstance(plan, Declined):
            raise refused(f"{both}: {plan.reason}")
        if not _join(first, second, plan):
            self._built[first, second] = under_shared_indexes(self.block, first.block, second.block, plan)
        return first, second, plan

    def _label(self, child: Child) -> str:
        """What a choice calls a block: its name, with a number if blocks of this name are in front."""
        assert child.candidate is not None
        name = child.candidate.block.name
        same = [c for c in self._named[name] if not c.gone and c.place < child.place]
        return f"{name}#{len(same) + 1}" if same else name

    # -- which two ------------------------------------------------------------------------------

    def _propose_all(self) -> None:
        for child in self.children:
            for other in self._neighbours(child):
                if child.place < other.place:
                    self._propose(child, other)

    def _neighbours(self, child: Child) -> Iterable[Child]:
        """The nearest blocks that use a buffer which the child uses."""
        found: dict[Child, None] = {}
        for name in child.uses:
            users = self.users[name]
            if len(users) > 1:
                at = bisect_left(users, child.place, key=_place)
                found |= dict.fromkeys(users[max(0, at - _NEIGHBOURS) : at])
                found |= dict.fromkeys(users[at + 1 : at + 1 + _NEIGHBOURS])
        return found

    def _propose(self, first: Child, second: Child) -> None:
        if first.candidate is not None and second.candidate is not None:
            bound = best_rank(first.candidate, second.candidate, self._user_count)
            if bound is not None:
                self._push(first, second, bound, planned=False)

    def _user_count(self, buffer: str) -> int:
        return len(self.users[buffer])

    def _push(self, first: Child, second: Child, rank: Rank, *, planned: bool) -> None:
        flat, shared, gain = rank
        size = first.size + second.size
        key = -flat, -shared, -gain, size, first.place, second.place, next(self._serial)
        heappush(self._heap, (key, planned, first, second))

    def _best(self) -> tuple[Child, Child, Plan] | None:
        while self._heap:
            _, planned, first, second = heappop(self._heap)
            if first.gone or second.gone or must_follow((first, second)) is None:
                continue  # what must run between two stays there until it is a part of one of them
            plan = self._verdict(first, second)
            if isinstance(plan, Plan):
                if planned:
                    return first, second, plan
                self._push(first, second, plan.rank, planned=True)
        return None

    def _verdict(self, first: Child, second: Child) -> Plan | Declined:
        key = first, second
        if key not in self._verdicts:
            assert first.candidate is not None and second.candidate is not None
            plan = plan_fusion(first.candidate, second.candidate, self._user_count, self._memories)
            if isinstance(plan, Plan) and _join(first, second, plan):
                if self._choosy and (reason := self._worse_joined(first, second)):
                    plan = Declined(reason)
            elif isinstance(plan, Plan):
                block = under_shared_indexes(self.block, first.block, second.block, plan)
                if not _gains(block):
                    reason = "their constraints or aggregations keep them from becoming one leaf block"
                    plan = Declined(reason, related=bool(plan.shared))
                elif reason := self._worse_built(first, second, block) or self._cut(
                    first, second, block, plan
                ):
                    plan = Declined(reason)
                else:
                    self._built[key] = block
            self._verdicts[key] = plan
        return self._verdicts[key]

    # -- what units make of them ----------------------------------------------------------------

    @cached_property
    def _choosy(self) -> bool:
        """Whether there are leaves that one compute unit executes and another does not."""
        units = self._context.hw.compute_units
        return any("*" not in unit.operations or "*" not in unit.types for unit in units)

    def _worse_joined(self, first: Child, second: Child) -> str:
        together = self._joined_ability(first, second)
        return worse(self._ability(first), self._ability(second), together, self._context.hw)

    def _worse_built(self, first: Child, second: Child, block: Block) -> str:
        """Of two leaves that only share what they read; of others, what lies between them may vanish."""
        assert first.candidate is not None and second.candidate is not None
        if any(b.children for b in (first.block, second.block, block)):
            return ""
        if not only_read(first.candidate, second.candidate):
            return ""
        together = ability(self.scope, block, self._context.hw, self._memo)
        return worse(self._ability(first), self._ability(second), together, self._context.hw)

    def _cut(self, first: Child, second: Child, block: Block, plan: Plan) -> str:
        """Why a long sum is not to share its points with a block that makes what it adds up, or uses it."""
        views, hw = self.scope.views, self._context.hw
        known = frozenset(ref.name for ref in self.block.refinements if ref.const)
        reasons = (wants_cutting(b, block, views, known, hw, plan.gain) for b in (first.block, second.block))
        return next(filter(None, reasons), "")

    def _ability(self, child: Child) -> Ability:
        if child not in self._abilities:
            self._abilities[child] = ability(self.scope, child.block, self._context.hw, self._memo)
        return self._abilities[child]

    def _joined_ability(self, first: Child, second: Child) -> Ability:
        private = [
            name
            for name in first.uses
            if self.scope.refinement(name).direction is Direction.NEW
            and {first, second}.issuperset(self.users[name])
        ]
        return self._ability(first).joined(self._ability(second), private)

    # -- fusing them ----------------------------------------------------------------------------

    def _carry_out(self, first: Child, second: Child, plan: Plan) -> None:
        assert first.candidate is not None and second.candidate is not None
        over = tuple(shared.pair.first for shared in plan.shared)
        self._pairs.append(FusedPair(self._label(first), self._label(second), over))
        result = self._fused(first, second, plan)
        self._made.add(result)
        self._note(result)
        if self.replace((first, second), result):
            self._heap.clear()
            if self._context.searches:
                self._propose_all()
        elif self._context.searches:
            for other in self._neighbours(result):
                self._propose(*((other, result) if other.place < result.place else (result, other)))
        name, partner = second.candidate.block.name, first.candidate.block.name
        self._context.remark(
            f"{self._path}/{name}",
            True,
            f"fused with '{partner}'" + (f" over {', '.join(over)}" if over else ""),
            bytes_saved=plan.gain,
            flat=plan.flat,
        )

    def _fused(self, first: Child, second: Child, plan: Plan) -> Child:
        if (first, second) in self._built:
            return Child.of(self.scope, second.place, self._built[first, second])
        assert first.leaf and second.leaf and first.candidate and second.candidate
        own, other = second.leaf.renamed(plan), second.candidate
        if own is not second.leaf:
            other = Candidate(self.scope, own.build())
        leaf = first.leaf.joined(own)
        candidate = first.candidate.joined(other, leaf.outline())
        child = Child(second.place, None, candidate, leaf)
        if self._choosy:
            self._abilities[child] = self._joined_ability(first, second)
        return child

    def _explain(self) -> None:
        """Say why blocks of which the second uses what the first writes, or which read the same, are
        still apart."""
        for child in self.children:
            said = False
            for other in self._writers_for(child):
                plan = self._verdict(other, child)
                if isinstance(plan, Plan):
                    self._stays(other, child, "another statement must run between them")
                elif plan.related:
                    self._stays(other, child, plan.reason)
                else:
                    continue
                said = True
            if not said and child.candidate is not None and child.candidate.block.ranges:
                self._explain_reader(child)

    def _explain_reader(self, child: Child) -> None:
        """Say why a block is apart from the nearest one in front of it that reads what it reads."""
        readers = [c for c in self._neighbours(child) if c.place < child.place and c.candidate is not None]
        for other in sorted(readers, key=_place, reverse=True):
            assert other.candidate is not None and child.candidate is not None
            if not only_read(other.candidate, child.candidate) or not other.candidate.block.ranges:
                continue
            plan = self._verdicts.get((other, child))
            if isinstance(plan, Declined):
                self._stays(other, child, plan.reason)
                return
            if plan is None and child not in self._made and other not in self._made:
                if reason := no_leaf(other.candidate, child.candidate):
                    self._stays(other, child, f"they only read buffers in common, and {reason}")
                return

    def _stays(self, first: Child, second: Child, reason: str) -> None:
        assert first.candidate is not None and second.candidate is not None
        path, partner = f"{self._path}/{second.candidate.block.name}", first.candidate.block.name
        self._context.remark(path, False, f"not fused with '{partner}': {reason}")

    def _writers_for(self, child: Child) -> list[Child]:
        """Blocks in front of the child that write what it uses, where it is a block and one of the
        two has indexes."""
        if child.candidate is None:
            return []
        found = {
            other
            for name in child.uses
            for other in self.users[name]
            if other.place < child.place and other.candidate is not None and other.candidate.uses[name]
        }
        if not child.block.ranges:
            found = {other for other in found if other.block.ranges}
        return sorted(found, key=_place)


def _place(child: Child) -> int:
    return child.place


def _join(first: Child, second: Child, plan: Plan) -> bool:
    """Whether two become one leaf in a way that needs no building before the end."""
    return first.leaf is not None and second.leaf is not None and first.leaf.joins(second.leaf, plan)


def _gains(fused: Block) -> bool:
    """Whether a block that two became is one leaf, or has points at which children of their own
    points follow each other. Otherwise nothing is left inside that could be tiled or vectorised."""
    below = [inner for _, inner in walk(fused)][1:]
    return not below or (bool(fused.ranges) and any(inner.ranges for inner in below))
