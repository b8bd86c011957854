"""Which blocks go into the tiles of which consumer: groups that grow by one producer after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stripe.analysis.fusion_tiles import NotTiled, TilePlan, plan_tiles
from stripe.diag import CompileError, did_you_mean
from stripe.ir import Block, Direction
from stripe.passes.base import PassContext
from stripe.passes.fuse_child import Child, Children, must_follow
from stripe.passes.fuse_chosen import Fusion
from stripe.passes.fuse_tiles import in_tiles


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks in the order of the program, the consumer last, and the tiles that they go into."""

    members: tuple[Child, ...]
    private: tuple[str, ...]
    plan: TilePlan


class Tiles(Children):
    """The statements of a root while producers go into the tiles of their consumers."""

    def __init__(self, root: Block, context: PassContext) -> None:
        super().__init__(root)
        self._context = context
        self._hw = context.hw
        self._reasons: dict[tuple[str, str], str] = {}  # why a producer and a consumer stay apart

    def fused(self) -> Block:
        """From the last consumer to the first."""
        gone: set[str] = set()
        for consumer in self.children[::-1]:
            if consumer.gone or consumer.candidate is None:
                continue
            path = f"{self.block.name}/{consumer.candidate.block.name}"
            key = self._context.key(path)
            given = self._context.explicit(key, Fusion)
            group: Group | None = None
            if given is not None:
                group = self._given(consumer, given, key)
            elif self._context.searches:
                group = self._group(consumer)
            elif consumer.candidate.block.ranges and self._next((consumer,), set()):
                self._context.undecided(path)
            if group is not None:
                self._carry_out(group)
                self._context.chose(key, Fusion((), group.private, dict(group.plan.sizes)))
                gone.update(group.private)
        for (producer, reader), reason in self._reasons.items():
            message = f"does not compute '{producer}' in its tiles: {reason}"
            self._context.remark(f"{self.block.name}/{reader}", False, message)
        if not gone:
            return self.block
        return replace(
            self.block,
            refinements=tuple(r for r in self.block.refinements if r.name not in gone),
            statements=tuple(child.statement for child in self.children),
        )

    def _carry_out(self, group: Group) -> None:
        blocks = [child.block for child in group.members]
        tiled = in_tiles(self.block, blocks, group.plan)
        self.replace(group.members, Child.of(self.scope, group.members[-1].place, tiled))
        producers = ", ".join(f"'{block.name}'" for block in blocks[:-1])
        message = f"computes {producers} in its tiles: {group.plan.summary}"
        path = f"{self.block.name}/{blocks[-1].name}"
        self._context.remark(path, True, message, **group.plan.figures)

    def _group(self, consumer: Child) -> Group | None:
        if consumer.candidate is None or not consumer.candidate.block.ranges:
            return None
        group: Group | None = None
        members: tuple[Child, ...] = (consumer,)
        tried: set[str] = set()
        while buffer := self._next(members, tried):
            tried.add(buffer)
            found = self._extended(members, group, buffer)
            if isinstance(found, Group):
                group, members, tried = found, found.members, set()
            else:
                self._keep(members, buffer, found)
        return group

    def _given(self, consumer: Child, given: Fusion, key: str) -> Group | None:
        """The group that a choice names. Raises CompileError P009 if it can't go into such tiles."""

        def refused(reason: str, field: str, *notes: str) -> CompileError:
            return self._context.refused(key, reason, field, *notes)

        if not given.buffers:
            return None
        inside = {consumer}
        own = {r.name: r for r in self.block.refinements if r.direction is Direction.NEW}
        for name in given.buffers:
            if name not in own:
                raise refused(
                    f"'{name}' is no buffer of the program's own", "buffers", *did_you_mean(name, own)
                )
            inside.update(self.users[name])
        members = tuple(sorted(inside, key=lambda child: child.place))
        for child in members:
            if child.candidate is None:
                raise refused("a special uses one of them, too", "buffers")
            if child.place > consumer.place:
                needed = child.candidate.block.name
                raise refused(f"'{needed}' behind it uses one of them, too", "buffers")
            for name, writes in child.candidate.uses.items():
                if writes and child is not consumer and name not in given.buffers:
                    text = f"'{child.candidate.block.name}' writes '{name}' as well, which must be among them"
                    raise refused(text, "buffers")
        if must_follow(members) is None:
            raise refused("another statement must run between them", "buffers")
        sides = [child.candidate.first for child in members if child.candidate is not None]
        plan = plan_tiles(self.scope, sides, given.buffers, self._hw, given.sizes)
        if isinstance(plan, NotTiled):
            raise refused(plan.reason, "sizes")
        return Group(members, given.buffers, plan)

    def _next(self, members: Sequence[Child], tried: set[str]) -> str | None:
        """A buffer of the scope that the members read, and others write."""
        for member in reversed(members):
            for buffer in _read(member):
                if buffer not in tried and any(user not in members for user in self.users[buffer]):
                    ref = self.scope.refinement(buffer)
                    if ref.direction is Direction.NEW and ref.location is None:
                        return buffer
        return None

    def _extended(self, members: tuple[Child, ...], group: Group | None, buffer: str) -> Group | str:
        """The group with all that uses the buffer, and then what that writes; or why not."""
        inside = set(members)
        private = dict.fromkeys(group.private if group else ())
        reached = [buffer]
        while reached:
            name = reached.pop()
            if name in private:
                continue
            if self.scope.refinement(name).direction is not Direction.NEW:
                return f"'{name}' is a result of the program"
            private[name] = None
            for user in self.users[name]:
                if user in inside:
                    continue
                if user.candidate is None:
                    return f"a special needs '{name}', too"
                if user.place > members[-1].place:
                    return f"'{user.candidate.block.name}' needs '{name}', too"
                inside.add(user)
                reached += [other for other, writes in user.candidate.uses.items() if writes]
        if self._fits_near(private):
            return f"what lies between them fits in {self._near}"
        ordered = tuple(sorted(inside, key=lambda child: child.place))
        if must_follow(ordered) is None:
            return "another statement must run between them"
        sides = [child.candidate.first for child in ordered if child.candidate is not None]
        plan = plan_tiles(self.scope, sides, tuple(private), self._hw)
        if isinstance(plan, NotTiled):
            return plan.reason
        if group is not None:
            without = group.plan.together + plan.apart - group.plan.apart
            if not plan.together < without:  # either group pays by a margin
                return f"it would not pay: {plan.summary}, of which {group.plan.together:.4g} without it"
        return Group(ordered, tuple(private), plan)

    def _fits_near(self, buffers: Mapping[str, None]) -> bool:
        """Whether tiles would bring nothing nearer than it is."""
        memories = [m for m in self._hw.memories if m.kind != "registers"]
        if not memories or memories[0].bytes is None:
            return True
        return sum(self.scope.bytes[name] for name in buffers) <= memories[0].bytes

    @property
    def _near(self) -> str:
        return next((m.name for m in self._hw.memories if m.kind != "registers"), "registers")

    def _keep(self, members: Sequence[Child], buffer: str, reason: str) -> None:
        for writer in self.users[buffer]:
            for reader in members:
                if writer in members or not (writer.candidate and reader.candidate):
                    continue
                if writer.candidate.uses[buffer] and buffer in _read(reader):
                    key = writer.candidate.block.name, reader.candidate.block.name
                    self._reasons.setdefault(key, reason)


def _read(child: Child) -> list[str]:
    """The buffers that a block reads."""
    if child.candidate is None:
        return []
    return [b for b, refs in child.candidate.views.items() if any(ref.direction.reads for ref in refs)]
