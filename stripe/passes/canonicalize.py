"""canonicalize: fold, share and drop what has no effect; the form that other passes expect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from stripe.alike import kind, renaming, translated
from stripe.ir import Block, Direction, Program, Special, Statement, Store
from stripe.passes.base import Pass, PassContext
from stripe.passes.canonicalize_needed import without_unread_points
from stripe.passes.canonicalize_values import simplify_values, without_dead_buffers
from stripe.remembered import RememberedOf
from stripe.rewrite import RewriteRefused, drop_unused_passed, flatten, used_buffers
from stripe.rewrite_points import simplify_points
from stripe.visit import map_roots


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Bring blocks into one simple form, without changing what they compute, bit for bit.

    before:  block r [x:8, u:1] (9 - x >= 0  in A[x + u]  in B[x]  out R[x]:assign) {
               $a = load(A) f32;  $b = load(B) f32;  $i = constant(1.0) f32
               $m = mul($a, $i) f32;  $n = mul($a, $i) f32;  $r = add($m, $n) f32;  R = store($r) }
    after:   block r [x:8] (in A[x]  out R[x]:assign) {
               $a = load(A) f32;  $r = add($a, $a) f32;  R = store($r) }

    - Scalars: constants are folded, common subexpressions shared, unused ones dropped. Of floats
      only what holds for every value: not x + 0.0 (-0.0 becomes 0.0), not x * 0.0.
    - Buffers: stores to a `new` buffer that nothing reads go, with the buffer; so do refinements
      that nothing uses. The root's signature stays.
    - Points: indexes of range 1 and passed constants are folded; passed indexes that nothing
      uses go, as does a range that nothing uses where repetition has no effect (`max`, `min`).
      Ranges shrink to the values that constraints allow; a constraint that the ranges, the other
      constraints and the surrounding blocks imply goes; a block without a point goes. So do points of
      leaf blocks that only write cells of a `new` buffer of the root which no later block reads, and of
      copies whose cells, of such a buffer or a result, are all written over on one side of a dimension.
    - Nests: a block whose only content is one block is merged with it if one of the two has no
      ranges, unless one has a tag, a location or points in flight.

    Always legal. Running it twice changes nothing more. Stripe paper, section 1.2.
    """

    name: ClassVar[str] = "canonicalize"

    def run(self, program: Program, context: PassContext) -> Program:
        result = map_roots(program, _fixpoint)
        if result is program:
            return program
        for old, new in ((program.root, result.root), (program.load, result.load)):
            if old is not None and new is not None:
                self._say(old, new, context)
        return result

    def _say(self, old: Block, new: Block, context: PassContext) -> None:
        """What became less, for each kernel that changed; else for the root."""
        kernels = {child.name: child for child in old.children}
        pairs = [(kernels[b.name], b, f"{new.name}/{b.name}") for b in new.children if b.name in kernels]
        changed = [(was, now, path) for was, now, path in pairs if was is not now]
        for was, now, path in changed or [(old, new, new.name)]:
            before, after = _census(was), _census(now)
            less = {what: before[what] - count for what, count in after.items() if before[what] > count}
            if less:
                message = f"dropped {', '.join(map(_counted, less.items()))}"
            elif after["constraints"] > before["constraints"]:
                message = "left out points whose results nothing reads"
            else:
                message = "simplified expressions"
            context.remark(path, True, message, before=before, after=after)


def _counted(part: tuple[str, int]) -> str:
    what, count = part
    return f"{count} {what}" if count > 1 else f"1 {_SINGULAR[what]}"


_SINGULAR = {
    "blocks": "block",
    "indexes": "index",
    "constraints": "constraint",
    "refinements": "refinement",
    "scalar statements": "scalar statement",
}


def _census(block: Block) -> dict[str, int]:
    """How much of each thing there is below and with a block."""
    own = {
        "blocks": 1,
        "indexes": len(block.indexes),
        "constraints": len(block.constraints),
        "refinements": len(block.refinements),
        "scalar statements": sum(not isinstance(s, Block) for s in block.statements),
    }
    for child in block.children:
        below = _census(child)
        own = {what: count + below[what] for what, count in own.items()}
    return own


def _fixpoint(root: Block) -> Block:
    """Rounds until nothing changes: what one drops may leave the next something without use."""
    simpler = _Rounds()
    while True:
        result = simpler.block(root, ())
        assert result is not None, "a root stays, even an empty one"
        if result is root:
            return root
        root = result


# Kernels in their simplest form: what those that are alike have in common.
_SIMPLE = RememberedOf[Block, bool](4096)


class _Rounds:
    """Simplifies the blocks of one root, of kernels that are alike one."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Block, Block, Block | None]] = {}  # by id: the kind, one, its result

    def block(self, block: Block, above: Sequence[Block]) -> Block | None:
        """The block after one round, outside in; None if it has no effect. `above` leads to it.

        A block that stays as it is stays the same object: what is known of it is found by identity.
        """
        if len(above) == 1 and not above[0].indexes and not above[0].constraints:
            return self._kernel(block, above)
        simpler = self._round(block, above)
        return block if simpler == block else simpler

    def _kernel(self, block: Block, above: Sequence[Block]) -> Block | None:
        """A child of a root without points, which does not depend on the root."""
        like = kind(block).block
        if _SIMPLE.get(like):
            return block
        if id(like) not in self._known:
            simpler = self._round(block, above)
            if simpler == block:
                _SIMPLE.put(like, True)
                return block
            self._known[id(like)] = like, block, simpler
        _, first, made = self._known[id(like)]
        if made is None or first is block:
            return made
        return translated(made, renaming(first, block), block)

    def _round(self, block: Block, above: Sequence[Block]) -> Block | None:
        is_root = not above
        if is_root:
            block = without_unread_points(block)
        else:
            simpler = simplify_points(block, above)
            if simpler is None:
                return None
            block = simpler
        here = (*above, block)
        statements: list[Statement] = []
        for statement in block.statements:
            kept = self.block(statement, here) if isinstance(statement, Block) else statement
            if kept is not None:
                statements.append(kept)
        block = replace(block, statements=tuple(statements))
        block = simplify_values(without_dead_buffers(block))
        if is_root:
            return _without_unused_refinements(block, keep_signature=True)
        if not any(isinstance(s, Store | Special | Block) for s in block.statements):
            return None
        return _merged(drop_unused_passed(_without_unused_refinements(block, keep_signature=False)))


def _without_unused_refinements(block: Block, keep_signature: bool) -> Block:
    used = used_buffers(block)
    kept = tuple(
        r
        for r in block.refinements
        if r.name in used or (keep_signature and r.direction is not Direction.NEW)
    )
    return replace(block, refinements=kept)


def _merged(block: Block) -> Block:
    """A block and its only child as one, where one of the two has no points of its own."""
    if len(block.statements) != 1 or not isinstance(block.statements[0], Block):
        return block
    child = block.statements[0]
    if (block.ranges and child.ranges) or any(
        level.tags or level.location is not None or level.inflight != 1 for level in (block, child)
    ):
        return block
    try:
        return replace(flatten(block), name=block.name)
    except RewriteRefused:
        return block
