"""Walks over the tree and rewrites of it; `None` or the same object means "unchanged"."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import (
    Block,
    Cast,
    Constant,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Location,
    Operand,
    Program,
    Special,
    Statement,
    Store,
)


def walk(block: Block, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Block]]:
    """Every block below and with `block`, parents first, each with the names that lead to it."""
    here = (*path, block.name)
    yield here, block
    for child in block.children:
        yield from walk(child, here)


def statement_groups(statements: Iterable[Statement]) -> list[tuple[Statement, ...]]:
    """Each block or special alone, and the scalar statements between two of these together."""
    groups: list[list[Statement]] = []
    open_run = False
    for statement in statements:
        scalar = not isinstance(statement, Block | Special)
        if scalar and open_run:
            groups[-1].append(statement)
        else:
            groups.append([statement])
        open_run = scalar
    return [tuple(group) for group in groups]


def parted(statements: Iterable[Statement]) -> list[tuple[Statement, ...]]:
    """The groups of statements that a nest comes apart into. Scalar statements that store nothing are none:
    they are there for later groups, which then hold copies of them.

    $i = index(x)  |  block b {...}  |  $a = load(A)  R = store($a)      are two, b and the last
    """
    return [
        group
        for group in statement_groups(statements)
        if any(isinstance(s, Block | Special | Store) for s in group)
    ]


def map_statements(block: Block, change: Callable[[Statement], Statement]) -> Block:
    """Apply `change` to each direct statement, in order; the same object if none changed."""
    return _with_statements(block, tuple(map(change, block.statements)))


def map_children(block: Block, change: Callable[[Block], Block]) -> Block:
    """Apply `change` to each child block, in order; the same object if none changed."""
    statements: list[Statement] = []
    for statement in block.statements:  # a loop: passes recurse through here, and frames count
        statements.append(change(statement) if isinstance(statement, Block) else statement)
    return _with_statements(block, tuple(statements))


def _with_statements(block: Block, statements: tuple[Statement, ...]) -> Block:
    if all(new is old for new, old in zip(statements, block.statements, strict=True)):
        return block
    return replace(block, statements=statements)


def map_roots(program: Program, change: Callable[[Block], Block]) -> Program:
    """Apply `change` to the root and to the load-time program; the same object if none changed."""
    root = change(program.root)
    load = None if program.load is None else change(program.load)
    if root is program.root and load is program.load:
        return program
    return replace(program, root=root, load=load)


def map_blocks(block: Block, rewrite: Callable[[Block], Block | None]) -> Block:
    """Rewrite children first, then the block; unchanged trees come back as the same object."""
    block = map_children(block, lambda child: map_blocks(child, rewrite))
    return rewrite(block) or block


def map_program(program: Program, rewrite: Callable[[Block], Block | None]) -> Program:
    """`map_blocks` over the root and the load-time program."""
    return map_roots(program, lambda root: map_blocks(root, rewrite))


def scalars_read(statement: Statement) -> tuple[str, ...]:
    """The scalars that a statement uses (a child block sees none of its parent's)."""
    match statement:
        case Store(value=value):
            return (value,)
        case Intrinsic(operands=operands):
            return operands
        case Cast(operand=operand):
            return (operand,)
        case _:
            return ()


def scalars_defined(statement: Statement) -> tuple[str, ...]:
    """The scalar that a statement defines, if it does."""
    if isinstance(statement, Load | Constant | IndexValue | Intrinsic | Cast):
        return (statement.result,)
    return ()


def buffers_used(statement: Statement) -> Iterator[tuple[str, Direction]]:
    """Each buffer of the enclosing block that a statement uses, with the direction."""
    match statement:
        case Block():
            for ref in statement.refinements:
                if ref.direction is not Direction.NEW:
                    yield ref.source, ref.direction
        case Special():
            for operand in statement.operands:
                yield operand.buffer, operand.direction
        case Store(buffer=buffer):
            yield buffer, Direction.OUT
        case Load(buffer=buffer):
            yield buffer, Direction.IN
        case _:
            pass


def users_of(block: Block) -> dict[str, list[Statement]]:
    """The statements of a block that use each of its buffers, in order."""
    found: dict[str, list[Statement]] = {}
    for statement in block.statements:
        for name in dict.fromkeys(name for name, _ in buffers_used(statement)):
            found.setdefault(name, []).append(statement)
    return found


def rename_operands(
    statement: Statement, buffers: Mapping[str, str], scalars: Mapping[str, str]
) -> Statement:
    """Give buffers and scalars that a statement uses or defines other names; those that are not
    mentioned keep theirs. Of a child block, only the sources of its refinements change."""

    def scalar(name: str) -> str:
        return scalars.get(name, name)

    def buffer(name: str) -> str:
        return buffers.get(name, name)

    s = statement
    match s:  # nodes are made whole: that takes a third of the time of `replace`
        case Load():
            return Load(scalar(s.result), buffer(s.buffer), s.dtype, s.span)
        case Store():
            return Store(buffer(s.buffer), scalar(s.value), s.span)
        case Constant():
            return Constant(scalar(s.result), s.value, s.dtype, s.span)
        case IndexValue():
            return IndexValue(scalar(s.result), s.expr, s.dtype, s.span)
        case Intrinsic():
            return Intrinsic(scalar(s.result), s.op, tuple(map(scalar, s.operands)), s.dtype, s.span)
        case Cast():
            return Cast(scalar(s.result), scalar(s.operand), s.dtype, s.span)
        case Special():
            return replace(s, operands=tuple(replace(o, buffer=buffer(o.buffer)) for o in s.operands))
        case Block():
            refs = tuple(
                r if r.direction is Direction.NEW else replace(r, source=buffer(r.source))
                for r in s.refinements
            )
            return replace(s, refinements=refs)


def substitute_indexes(block: Block, values: Mapping[str, Affine]) -> Block:
    """Replace indexes of `block` wherever it uses them: constraints, accesses, locations, index
    statements, special operands, and what it passes to its children. The index list stays."""

    def on_location(location: Location | None) -> Location | None:
        if location is None:
            return None
        bank = None if location.bank is None else location.bank.substitute(values)
        address = None if location.address is None else location.address.substitute(values)
        return replace(location, bank=bank, address=address)

    def on_access(access: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return tuple(expr.substitute(values) for expr in access)

    def on_statement(statement: Statement) -> Statement:
        match statement:
            case Block(indexes=indexes):
                passed = tuple(
                    i if i.passed is None else replace(i, passed=i.passed.substitute(values)) for i in indexes
                )
                return replace(statement, indexes=passed)
            case IndexValue(expr=expr):
                return replace(statement, expr=expr.substitute(values))
            case Special(operands=operands, location=location):
                moved = tuple(
                    o if o.access is None else replace(o, access=on_access(o.access)) for o in operands
                )
                return replace(statement, operands=moved, location=on_location(location))
            case _:
                return statement

    return replace(
        block,
        constraints=tuple(replace(c, expr=c.expr.substitute(values)) for c in block.constraints),
        refinements=tuple(
            replace(r, access=on_access(r.access), location=on_location(r.location))
            for r in block.refinements
        ),
        statements=tuple(on_statement(s) for s in block.statements),
        location=on_location(block.location),
    )


@dataclass(frozen=True, slots=True)
class View:
    """What a name means in a block: element type, extent, and the strides of its allocation."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Of all its elements, without the gaps that strides may leave."""
        return prod(self.shape) * self.dtype.bytes

    def bytes_of(self, operand: Operand) -> int:
        """Of the elements that an operand of a special is: of all, or of a part."""
        return prod(operand.shape or self.shape) * self.dtype.bytes


def views_of(block: Block, outer: Mapping[str, View]) -> dict[str, View]:
    """The views in scope in `block`, given those of its parent (empty for the root)."""
    views: dict[str, View] = {}
    for ref in block.refinements:
        strides = ref.strides if ref.strides is not None else outer[ref.source].strides
        views[ref.name] = View(ref.dtype, ref.shape, strides)
    return views


def names_of(block: Block, buffers: Collection[str]) -> frozenset[str]:
    """What a block calls these buffers of its parent."""
    return frozenset(ref.name for ref in block.refinements if ref.source in buffers)
