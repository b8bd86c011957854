"""schedule: orders of statements that keep little alive, and let transfers run beside work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hwconfigs.model import HwConfig
from stripe.analysis.deps import statement_graph
from stripe.analysis.liveness import memory_of, part_bytes, parts_of, peaks, slots_of
from stripe.ir import Block, Direction, Statement
from stripe.passes.base import PassContext
from stripe.visit import buffers_used

if TYPE_CHECKING:
    import networkx

Amount = dict[str, int]  # bytes by memory


class Loads:
    """How much of each memory the statements of a block take. What a child takes is asked once."""

    def __init__(self, hw: HwConfig) -> None:
        self._hw = hw
        self._nested: dict[int, tuple[Block, Amount]] = {}

    def instances(self, memory: str) -> int:
        found = self._hw.memory(memory)
        return found.count if found is not None else 1

    def limit(self, memory: str, inside: bool) -> int | None:
        """The bytes of a memory: of one instance, if that is `inside` a unit which has one of its own."""
        found = self._hw.memory(memory)
        if found is None or found.bytes is None:
            return None
        return found.bytes * (1 if inside else found.count)

    def nested(self, statement: Statement) -> Amount:
        """What is alive inside a statement at most."""
        if not isinstance(statement, Block):
            return {}
        if id(statement) not in self._nested:
            inner = replace(
                statement,
                refinements=tuple(r for r in statement.refinements if r.direction is Direction.NEW),
            )
            self._nested[id(statement)] = statement, {m: p.bytes for m, p in peaks(inner, self._hw).items()}
        return self._nested[id(statement)][1]

    def sizes(self, block: Block) -> dict[str, tuple[str, int]]:
        """Each `new` buffer of the block: its memory, and the bytes that its copies take, rounded up."""
        found = {}
        for ref in block.refinements:
            if ref.direction is not Direction.NEW:
                continue
            memory = memory_of(ref, False, self._hw)
            model = self._hw.memory(memory)
            align = model.align_bytes if model is not None else 1
            parts = parts_of(ref, memory, self._hw)
            size = -(-part_bytes(ref, parts) // align) * align * parts * slots_of(block)
            found[ref.name] = memory, size
        return found

    def own_alive(self, block: Block) -> list[Amount]:
        """What the block's own buffers take during each of its statements."""
        alive: list[Amount] = [{} for _ in block.statements]
        uses = _uses(block.statements)
        everywhere = slots_of(block) > 1
        for name, (memory, size) in self.sizes(block).items():
            if name not in uses:
                continue
            first, last = (0, len(alive) - 1) if everywhere else uses[name]
            for at in range(first, last + 1):
                alive[at][memory] = alive[at].get(memory, 0) + size
        return alive

    def most(self, block: Block) -> Amount:
        """What the block and all in it take at most."""
        found: Amount = {}
        if slots_of(block) > 1:
            for amount in (*self.own_alive(block)[:1], *map(self.nested, block.statements)):
                for memory, size in amount.items():
                    found[memory] = found.get(memory, 0) + size
            return found
        for own, statement in zip(self.own_alive(block), block.statements, strict=True):
            inner = self.nested(statement)
            for memory in {*own, *inner}:
                found[memory] = max(found.get(memory, 0), own.get(memory, 0) + inner.get(memory, 0))
        return found


def _uses(statements: Sequence[Statement]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for number, statement in enumerate(statements):
        for name, _ in buffers_used(statement):
            found[name] = (found.get(name, (number, number))[0], number)
    return found


# -- the root: little alive -----------------------------------------------------------------------


def least_live(block: Block, hw: HwConfig, context: PassContext) -> Block:
    """The block with its statements in an order in which less is alive at most, if one is found."""
    if len(block.statements) < 3 or not any(r.direction is Direction.NEW for r in block.refinements):
        return block
    loads = Loads(hw)
    graph = statement_graph(block)
    order = _sparing(block, graph, loads)
    better = replace(block, statements=tuple(block.statements[at] for at in order))
    before, after = ({m: p.bytes for m, p in peaks(root, hw).items()} for root in (block, better))
    gains = [m for m in before if after.get(m, 0) < before[m]]
    if order == sorted(order) or not gains or any(after[m] > before.get(m, 0) for m in after):
        found = f"with {_text(after)} in the best other one" if after != before else "no other has less"
        context.remark(
            block.name, False,
            f"its statements keep their order: {_text(before)} alive at most, {found}",
        )  # fmt: skip
        return block
    context.remark(
        block.name, True,
        f"statements in another order: {_text(after)} alive at most instead of {_text(before)}",
        before=before, after=after,
    )  # fmt: skip
    return better


def _text(amount: Mapping[str, int]) -> str:
    return (
        " and ".join(f"{size} bytes of {m or 'no memory'}" for m, size in sorted(amount.items())) or "nothing"
    )


def _sparing(block: Block, graph: networkx.DiGraph[int], loads: Loads) -> list[int]:
    """List scheduling: of the statements that may come next the one after which least is alive."""
    sizes = {name: size for name, (_, size) in loads.sizes(block).items()}
    kept = {r.name: part_bytes(r) for r in block.refinements if r.direction.writes}  # up to the end
    sizes |= kept
    used = [{name for name, _ in buffers_used(statement) if name in sizes} for statement in block.statements]
    left = Counter(name for names in used for name in names)
    left.update(kept.keys())
    waiting = {at: graph.in_degree(at) for at in graph.nodes}
    ready = [at for at, count in waiting.items() if not count]
    alive: set[str] = set()
    order: list[int] = []

    def growth(at: int) -> int:
        new = sum(sizes[name] for name in used[at] - alive)
        return new - sum(sizes[name] for name in used[at] if left[name] == 1)

    while ready:
        chosen = min(ready, key=lambda at: (growth(at), at))
        ready.remove(chosen)
        order.append(chosen)
        for name in used[chosen]:
            alive.add(name)
            left[name] -= 1
            if not left[name]:
                alive.discard(name)
        for later in sorted(graph.successors(chosen)):
            waiting[later] -= 1
            if not waiting[later]:
                ready.append(later)
    return order


# -- tiles: transfers beside work -----------------------------------------------------------------


def overlapping(
    block: Block, loads: Loads, taken: Mapping[str, int], path: str, context: PassContext, inside: bool
) -> Block:
    """The block with loads ahead of work and stores behind it, as far as there is room. `inside`: see
    `Loads.limit`."""
    kinds = [_kind(block, statement, context.hw) for statement in block.statements]
    if "load" not in kinds and "store" not in kinds:
        return block
    graph = statement_graph(block)
    rank = {"load": 0, "work": 1, "store": 2}
    waiting = {at: graph.in_degree(at) for at in graph.nodes}
    order: list[int] = []
    ready = [at for at, count in waiting.items() if not count]
    while ready:
        chosen = min(ready, key=lambda at: (rank[kinds[at]], at))
        ready.remove(chosen)
        order.append(chosen)
        for later in graph.successors(chosen):
            waiting[later] -= 1
            if not waiting[later]:
                ready.append(later)
    if order == sorted(order):
        return block
    moved = replace(block, statements=tuple(block.statements[at] for at in order))
    for memory, size in sorted(loads.most(moved).items()):
        whole = loads.limit(memory, inside)
        limit = None if whole is None else whole - taken.get(memory, 0)
        if limit is not None and size > max(limit, 0) and size > loads.most(block).get(memory, 0):
            context.remark(
                path, False,
                f"loads stay where they are: ahead of the work, {size} bytes of {memory} would be alive, "
                f"and {limit} are free",
            )  # fmt: skip
            return block
    shifted = sum(at != place for place, at in enumerate(order))
    context.remark(path, True, f"loads first, stores last: {shifted} statements moved")
    return moved


def _kind(block: Block, statement: Statement, hw: HwConfig) -> str:
    """Whether a statement fills a buffer of the block from outside, empties one, or works."""
    unit = None
    if isinstance(statement, Block) and statement.location is not None:
        unit = hw.unit(statement.location.unit)
    if unit is None or unit.kind != "transfer" or not isinstance(statement, Block):
        return "work"
    own = {r.name for r in block.refinements if r.direction is Direction.NEW}
    fills = any(d.writes and name in own for name, d in buffers_used(statement))
    empties = any(d.reads and name in own for name, d in buffers_used(statement))
    return "load" if fills and not empties else "store" if empties and not fills else "work"
