"""scalarize: one-element buffers become scalars; loads of what was just stored vanish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stripe.analysis.alias import aliases
from stripe.ir import Aggregation, Block, Direction, Load, Program, Refinement, Special, Statement, Store
from stripe.passes.base import Pass, PassContext
from stripe.visit import buffers_used, map_children, map_roots, rename_operands, users_of


@dataclass(frozen=True)
class Scalarize(Pass):
    """Keep in scalars what a point stores and loads again.

    before:  block b [i:8] (in X[i]  out R[i]:assign  new T (1)) {
               $x = load(X) f32;  T = store($x);  $t = load(T) f32;  R = store($t) }
    after:   block b [i:8] (in X[i]  out R[i]:assign) {
               $x = load(X) f32;  R = store($x) }

    A load takes the value of the last store to the same view in the same point.

    Legal where nothing may have written the element in between. That holds for `new` buffers and
    for views with `assign`, where a later write replaces the earlier; a view that aggregates
    (`add` ...) holds the combination of all writes and is never forwarded. Buffer and scalar have
    one type, so the rounding of a store to a narrow type stays.

    A `new` buffer of one element that only direct loads and stores of its block used then has no
    load left: it vanishes, with its stores. One that a child block or a special uses stays.
    Stripe paper, section 2.3, "Scalarization and Memory Localization".
    """

    name = "scalarize"

    def run(self, program: Program, context: PassContext) -> Program:
        return map_roots(program, lambda root: _below(root, root.name, context))


def _below(block: Block, path: str, context: PassContext) -> Block:
    block = map_children(block, lambda child: _below(child, f"{path}/{child.name}", context))
    if any(isinstance(s, Load | Store) for s in block.statements):
        return _scalarized(block, path, context)
    return block


def _scalarized(block: Block, path: str, context: PassContext) -> Block:
    forwarded = _forward_stores(block)
    dead = frozenset(_without_use(forwarded, path, context))
    if forwarded is block and not dead:
        return block
    loads = len(block.statements) - len(forwarded.statements)
    takes = "1 load takes" if loads == 1 else f"{loads} loads take"
    made = f"{takes} the value that was stored"
    become = "a scalar" if len(dead) == 1 else "scalars"
    scalars = f"; {', '.join(sorted(dead))} became {become}" if dead else ""
    context.remark(path, True, made + scalars, loads=loads, buffers=len(dead))
    return replace(
        forwarded,
        refinements=tuple(r for r in forwarded.refinements if r.name not in dead),
        statements=tuple(s for s in forwarded.statements if not (isinstance(s, Store) and s.buffer in dead)),
    )


def _forward_stores(block: Block) -> Block:
    """Replace each load of a value that is known by that scalar."""
    replaces = {ref.name: _replaces(ref) for ref in block.refinements}
    known: dict[str, str] = {}  # view -> the scalar that its element holds
    renamed: dict[str, str] = {}  # loaded scalar -> the stored one
    statements: list[Statement] = []
    for statement in block.statements:
        statement = rename_operands(statement, {}, renamed) if renamed else statement
        if isinstance(statement, Load) and statement.buffer in known:
            renamed[statement.result] = known[statement.buffer]
            continue
        for name in _overwritten(block, statement):
            known.pop(name, None)
        if isinstance(statement, Store) and replaces[statement.buffer]:
            known[statement.buffer] = statement.value
        statements.append(statement)
    return replace(block, statements=tuple(statements)) if renamed else block


def _replaces(ref: Refinement) -> bool:
    """Whether a view holds exactly what was stored to it last."""
    return ref.direction is Direction.NEW or ref.aggregation is Aggregation.ASSIGN


def _overwritten(block: Block, statement: Statement) -> Iterator[str]:
    """The views of which a statement may change an element."""
    for name, direction in buffers_used(statement):
        if direction.writes:
            yield name
            yield from aliases(block, name)


def _without_use(block: Block, path: str, context: PassContext) -> Iterator[str]:
    """The one-element buffers of the block that nothing reads any more."""
    users = users_of(block)
    for ref in block.refinements:
        if ref.direction is not Direction.NEW or any(size != 1 for size in ref.shape):
            continue
        found = users.get(ref.name, [])
        outside = next((s for s in found if isinstance(s, Block | Special)), None)
        if outside is None and not any(isinstance(s, Load) for s in found):
            yield ref.name
        elif outside is None:
            context.remark(path, False, f"'{ref.name}' stays a buffer: it is loaded before it is stored")
        elif any(isinstance(s, Load | Store) for s in found):
            kind = "block" if isinstance(outside, Block) else "special"
            context.remark(path, False, f"'{ref.name}' stays a buffer: {kind} '{outside.name}' uses it")
