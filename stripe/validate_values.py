"""Translation validation: which value an element of a buffer has, as a term.

A `Frame` is a block at a symbolic point: each of its indexes is an affine expression over
*dimensions*, the named coordinates of the sets of stripe.poly. A `Term` is a value at the points
of such a set. Loads and aggregations are opened when they are asked for:

    Values.read(load, within)    what a load sees: pieces of `within`, each with the term stored there
    Values.writes(sum, within)   what is aggregated into an element: every write, as points and a term

A piece may have further dimensions, those of the point that wrote; they are functions of the
others for `read`, and enumerate the writes for `writes`. Both look through `new` buffers, copies
of views, and levels of blocks, by the rules of the verifier: a read sees the writes of earlier
statements of its own point and of the points around it, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from stripe import intrinsics
from stripe.affine import Affine
from stripe.diag import InvariantError
from stripe.dtypes import DType
from stripe.intrinsics import INTRINSICS, Array
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Program,
    Refinement,
    Scalar,
    Special,
    Store,
)
from stripe.poly import Domain
from stripe.visit import buffers_used

Element = tuple[Affine, ...]
OWN = -1
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Frame:
    """A block at a point. `number` is its place among the statements of the parent's block."""

    block: Block
    parent: Frame | None
    number: int
    values: Mapping[str, Affine]  # of each index of the block, over dimensions
    dims: tuple[str, ...]  # of this block and those around it
    path: tuple[object, ...]  # which block of which program: equal for all its points
    terms: dict[str, Term] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The path of the block, for messages."""
        return self.block.name if self.parent is None else f"{self.parent.place}/{self.block.name}"


@dataclass(frozen=True, eq=False)
class Term:
    """A value. `dims` are the dimensions that it depends on."""

    dtype: DType

    @property
    def dims(self) -> frozenset[str]:
        return NOTHING


@dataclass(frozen=True, eq=False)
class Known(Term):
    """A constant."""

    value: int | float | bool


@dataclass(frozen=True, eq=False)
class Number(Term):
    """An affine expression as a scalar."""

    expr: Affine

    @property
    def dims(self) -> frozenset[str]:
        return frozenset(self.expr.names)


@dataclass(frozen=True, eq=False)
class Apply(Term):
    """A scalar function of other terms: an intrinsic, or `cast`."""

    op: str
    operands: tuple[Term, ...]

    @cached_property
    def dims(self) -> frozenset[str]:
        return NOTHING.union(*(operand.dims for operand in self.operands))


@dataclass(frozen=True, eq=False)
class Given(Term):
    """An element of an input of the program."""

    name: str
    element: Element

    @cached_property
    def dims(self) -> frozenset[str]:
        return frozenset(name for expr in self.element for name in expr.names)


@dataclass(frozen=True, eq=False)
class Placed(Term):
    """What stands at an element of a view of a block, at statement `number` of a point of it."""

    frame: Frame
    number: int
    buffer: str
    element: Element

    @cached_property
    def dims(self) -> frozenset[str]:
        return frozenset(self.frame.dims).union(name for expr in self.element for name in expr.names)


class Read(Placed):
    """What a read at that statement sees."""


class Sum(Placed):
    """What the block that is statement `number`, or with OWN the frame's own block, aggregates into
    the element: the `buffer` is its view."""

    @property
    def child(self) -> Block:
        if self.number == OWN:
            return self.frame.block
        found = self.frame.block.statements[self.number]
        assert isinstance(found, Block)
        return found

    @property
    def aggregation(self) -> Aggregation:
        return aggregation(self.child.refinement(self.buffer))


class Made(Placed):
    """What the special that is statement `number` writes to element `element` of its result."""

    @property
    def special(self) -> Special:
        found = self.frame.block.statements[self.number]
        assert isinstance(found, Special)
        return found


Piece = tuple[Domain, Term]


def aggregation(ref: Refinement) -> Aggregation:
    if ref.aggregation is None:
        raise InvariantError(f"'{ref.name}' has no aggregation")
    return ref.aggregation


# -- sets over unlike dimensions ---------------------------------------------------------------


def over(domain: Domain, names: Sequence[str]) -> Domain:
    """The same set with more dimensions, or in another order."""
    return domain if domain.names == tuple(names) else domain.preimage({}, names)


def join(a: Domain, b: Domain) -> Domain:
    """The points over the dimensions of both that lie in both."""
    if a is b:
        return a
    names = (*a.names, *(name for name in b.names if name not in a.names))
    return over(a, names).intersect(over(b, names))


def onto(domain: Domain, names: Sequence[str]) -> Domain:
    return domain if domain.names == tuple(names) else domain.project_onto(names)


def union(domains: Iterable[Domain], names: Sequence[str]) -> Domain:
    """The union of sets over the same dimensions."""
    total: Domain | None = None
    for domain in domains:
        total = domain if total is None else total.union(domain)
    return Domain.empty(names) if total is None else total.coalesce()


# -- values ------------------------------------------------------------------------------------


class Values:
    """The values of one program. Dimensions get names that start with `prefix`."""

    def __init__(self, program: Program, prefix: str) -> None:
        self.program = program
        self.root = Frame(program.root, None, 0, {}, (), (prefix, "root"))
        self._load = None if program.load is None else Frame(program.load, None, 0, {}, (), (prefix, "load"))
        made = () if program.load is None else program.load.refinements
        self._made = {ref.name for ref in made if ref.direction.writes}
        self._prefix = prefix
        self._fresh = 0
        self._writers: dict[int, tuple[Block, dict[str, tuple[int, ...]]]] = {}
        self._scalars: dict[int, tuple[Block, dict[str, int]]] = {}

    def restart(self) -> None:
        """Give out the names of dimensions anew: sets of one proof don't meet those of another."""
        self._fresh = 0

    # -- reads ---------------------------------------------------------------------------------

    def source(self, read: Read) -> Read | Given:
        """The same value, asked for as far out as no write of the point stands in between."""
        frame, number, buffer, element = read.frame, read.number, read.buffer, read.element
        while True:
            before = [n for n in self.writers(frame.block, buffer) if n < number]
            ref = frame.block.refinement(buffer)
            if before or ref.direction is Direction.NEW:
                last = before[-1] + 1 if before else 0
                return Read(read.dtype, frame, last, buffer, element)
            if frame.parent is None:
                if ref.direction is not Direction.IN:
                    return Read(read.dtype, frame, 0, buffer, element)
                if frame is self._load or self._load is None or buffer not in self._made:
                    return Given(read.dtype, buffer, element)
                frame, number = self._load, len(self._load.block.statements)
                continue
            element = moved(element, ref, frame, 1)
            frame, number, buffer = frame.parent, frame.number, ref.source

    def read(self, read: Read, within: Domain) -> list[Piece]:
        """What the read sees at the points of `within`, in pieces that share no point."""
        found: list[Piece] = []
        left = within
        while True:
            at = self.source(read)
            if isinstance(at, Given):
                return [*found, (left, at)]
            ref = at.frame.block.refinement(at.buffer)
            if at.frame.parent is None and ref.direction.writes and ref.aggregation is not Aggregation.ASSIGN:
                # The root aggregates: only the caller of the program sees the result.
                return [*found, (left, Sum(at.dtype, at.frame, OWN, at.buffer, at.element))]
            for number in reversed(self.writers(at.frame.block, at.buffer)):
                if number >= at.number:
                    continue
                pieces = self._written(at.frame, number, at.buffer, at.element, left)
                if pieces:
                    found += pieces
                    left = left.subtract(union([onto(d, left.names) for d, _ in pieces], left.names))
                    if left.is_empty():
                        return found
            if at.frame.parent is None or ref.direction is Direction.NEW:
                return found  # the rest was never written; verified programs don't read it
            element = moved(at.element, ref, at.frame, 1)
            read = Read(read.dtype, at.frame.parent, at.frame.number, ref.source, element)

    def _written(
        self, frame: Frame, number: int, buffer: str, element: Element, within: Domain
    ) -> list[Piece]:
        """What one statement leaves at the element of a buffer that later writes replace."""
        statement = frame.block.statements[number]
        match statement:
            case Store(value=value):
                return _where(within, [], element, self.scalar(frame, value))
            case Special():
                return self._made_by(frame, number, statement, buffer, element, within)
            case Block(refinements=refs):
                views = [r for r in refs if r.source == buffer and r.direction.writes]
                return [p for view in views for p in self._result(frame, number, view, element, within)]
        raise InvariantError("a statement without effect writes")

    def _made_by(
        self, frame: Frame, number: int, special: Special, buffer: str, element: Element, within: Domain
    ) -> list[Piece]:
        found: list[Piece] = []
        for operand in special.operands:
            if operand.buffer != buffer or not operand.direction.writes:
                continue
            shape = frame.block.refinement(buffer).shape if operand.shape is None else operand.shape
            part = element
            if operand.access is not None:
                first = [expr.substitute(frame.values) for expr in operand.access]
                part = tuple(e - f for e, f in zip(element, first, strict=True))
            inside = [bound for e, size in zip(part, shape, strict=True) for bound in (e, -e + (size - 1))]
            dtype = frame.block.refinement(buffer).dtype
            found += _where(within, inside, (), Made(dtype, frame, number, buffer, part))
        return found

    def _result(
        self, frame: Frame, number: int, view: Refinement, element: Element, within: Domain
    ) -> list[Piece]:
        """The one write that an execution of a child block makes to the element."""
        inner, points = self.enter(frame, number, within)
        own = moved(element, view, inner, -1)
        if aggregation(view) is not Aggregation.ASSIGN:
            parts = self._collected(inner, view.name, own, points)
            covered = union([onto(domain, within.names) for domain, _ in parts], within.names)
            if covered.is_empty():
                return []
            return [(covered, Sum(view.dtype, frame, number, view.name, element))]
        found: list[Piece] = []
        for at in reversed(self.writers(inner.block, view.name)):
            pieces = self._written(inner, at, view.name, own, points)
            if pieces:
                found += pieces
                points = points.subtract(union([onto(d, points.names) for d, _ in pieces], points.names))
        return found

    # -- aggregations ----------------------------------------------------------------------------

    def writes(self, total: Sum, within: Domain) -> list[Piece]:
        """Every write to the element of the aggregation; with `inout`, the old value too."""
        if total.number == OWN:
            return self._collected(total.frame, total.buffer, total.element, within)
        inner, points = self.enter(total.frame, total.number, within)
        view = inner.block.refinement(total.buffer)
        found = self._collected(inner, view.name, moved(total.element, view, inner, -1), points)
        if view.direction is Direction.INOUT:
            found += self.read(
                Read(total.dtype, total.frame, total.number, view.source, total.element), within
            )
        return found

    def _collected(self, frame: Frame, buffer: str, element: Element, points: Domain) -> list[Piece]:
        """The writes of all `points` of an aggregating block, and of such blocks inside it."""
        found: list[Piece] = []
        for number in self.writers(frame.block, buffer):
            statement = frame.block.statements[number]
            if not isinstance(statement, Block):
                found += self._written(frame, number, buffer, element, points)
                continue
            for view in statement.refinements:
                if view.source != buffer or not view.direction.writes:
                    continue
                if aggregation(view) is Aggregation.ASSIGN:
                    found += self._result(frame, number, view, element, points)
                else:
                    inner, below = self.enter(frame, number, points)
                    found += self._collected(inner, view.name, moved(element, view, inner, -1), below)
        return found

    # -- blocks ----------------------------------------------------------------------------------

    def enter(self, frame: Frame, number: int, within: Domain) -> tuple[Frame, Domain]:
        """The child block that is statement `number`, at each of its points."""
        block = frame.block.statements[number]
        assert isinstance(block, Block)
        values: dict[str, Affine] = {}
        names: list[str] = []
        inside: list[Affine] = []
        for index in block.indexes:
            if index.passed is not None:
                values[index.name] = index.passed.substitute(frame.values)
            elif index.range == 1:
                values[index.name] = Affine()
            else:
                self._fresh += 1
                names.append(f"{self._prefix}{self._fresh}")
                own = values[index.name] = Affine.index(names[-1])
                inside += [own, -own + (index.range - 1)]
        inside += [constraint.expr.substitute(values) for constraint in block.constraints]
        made = Frame(block, frame, number, values, (*frame.dims, *names), (*frame.path, number))
        points = within.extended(names) if names else within
        return made, points.with_constraints(inside) if inside else points

    def writers(self, block: Block, buffer: str) -> tuple[int, ...]:
        """The numbers of the statements that may write the buffer, in order."""
        entry = self._writers.get(id(block))
        if entry is None:
            numbers: dict[str, list[int]] = {}
            for number, statement in enumerate(block.statements):
                for name in {name for name, how in buffers_used(statement) if how.writes}:
                    numbers.setdefault(name, []).append(number)
            entry = block, {name: tuple(found) for name, found in numbers.items()}
            self._writers[id(block)] = entry
        return entry[1].get(buffer, ())

    def scalar(self, frame: Frame, name: str) -> Term:
        """A scalar of a block, as a term; those that it is made of come first, without recursion."""
        entry = self._scalars.get(id(frame.block))
        if entry is None:
            numbers = {s.result: n for n, s in enumerate(frame.block.statements) if isinstance(s, Scalar)}
            entry = self._scalars[id(frame.block)] = frame.block, numbers
        pending = [name]
        while pending:
            number = entry[1][pending[-1]]
            statement = frame.block.statements[number]
            needs = [n for n in _operands(statement) if n not in frame.terms]
            if needs:
                pending += needs
                continue
            frame.terms[pending.pop()] = self._term(frame, number)
        return frame.terms[name]

    def _term(self, frame: Frame, number: int) -> Term:
        statement = frame.block.statements[number]
        match statement:
            case Load(buffer=buffer, dtype=dtype):
                rank = len(frame.block.refinement(buffer).shape)
                return Read(dtype, frame, number, buffer, (Affine(),) * rank)
            case Constant(value=value, dtype=dtype):
                return Known(dtype, value)
            case IndexValue(expr=expr, dtype=dtype):
                return affine_value(expr.substitute(frame.values), dtype)
            case Intrinsic(op=op, operands=operands, dtype=dtype):
                return apply(op, tuple(frame.terms[o] for o in operands), dtype)
            case Cast(operand=operand, dtype=dtype):
                return apply("cast", (frame.terms[operand],), dtype)
        raise InvariantError("a statement without result is no term")


def _operands(statement: object) -> Sequence[str]:
    match statement:
        case Intrinsic(operands=operands):
            return operands
        case Cast(operand=operand):
            return (operand,)
    return ()


def moved(element: Element, ref: Refinement, frame: Frame, sign: int) -> Element:
    """An element of the view `ref` of the frame's block, in the parent's view (sign 1); or back (-1)."""
    return tuple(
        e + expr.substitute(frame.values) * sign for e, expr in zip(element, ref.access, strict=True)
    )


def _where(within: Domain, inside: Sequence[Affine], zero: Sequence[Affine], term: Term) -> list[Piece]:
    """The term at the points where each of `inside` is >= 0 and each of `zero` is 0, if there are any."""
    more = [expr for expr in inside if not (expr.is_constant and expr.const >= 0)]
    equal = [expr for expr in zero if expr.terms or expr.const]
    domain = within.with_constraints(more, equal) if more or equal else within
    return [] if domain.is_empty() else [(domain, term)]


# -- the laws of scalars -------------------------------------------------------------------------


def apply(op: str, operands: tuple[Term, ...], dtype: DType) -> Term:
    """A scalar function of terms in a form of its own: constants folded, units left out.

    Only what holds bit for bit, whatever the values: of floats, not x + 0.0.
    """
    known = [operand for operand in operands if isinstance(operand, Known)]
    if len(known) == len(operands):
        arrays = tuple(np.asarray(k.value).astype(k.dtype.numpy) for k in known)
        result = intrinsics.cast(arrays[0], dtype) if op == "cast" else intrinsics.evaluate(op, arrays)
        return _constant(result, dtype)
    same = _unit(op, operands, dtype)
    return Apply(dtype, op, operands) if same is None else same


def affine_value(expr: Affine, dtype: DType) -> Term:
    """An affine expression of dimensions as a scalar."""
    if expr.terms:
        return Number(dtype, expr)
    return _constant(intrinsics.cast(np.asarray(expr.const, np.int64), dtype), dtype)


def _constant(value: Array, dtype: DType) -> Known:
    if dtype is DType.BOOL:
        return Known(dtype, bool(value))
    return Known(dtype, float(value) if dtype.is_float else int(value))


def is_known(term: Term, value: float) -> bool:
    # repr tells 0.0 from -0.0
    return isinstance(term, Known) and repr(float(term.value)) == repr(value)


def _unit(op: str, operands: tuple[Term, ...], dtype: DType) -> Term | None:
    """The operand that the function always gives back, if there is one."""
    match op, operands:
        case "add" | "mul", (x, y):
            unit = 1.0 if op == "mul" else -0.0 if dtype.is_float else 0.0
            return x if is_known(y, unit) else y if is_known(x, unit) else None
        case "sub" | "shl" | "shr", (x, y):
            return x if is_known(y, 0.0) else None
        case "div" | "floordiv", (x, y) if op == "div" or not dtype.is_float:
            return x if is_known(y, 1.0) else None
        case "select", (condition, x, y):
            if isinstance(condition, Known):
                return x if condition.value else y
            return x if x is y else None
        case "max" | "min" | "and" | "or", (x, y):
            return x if x is y else None
        case "neg" | "not", (Apply(op=inner, operands=(x,)),) if inner == op:
            return x
        case "cast", (x,) if x.dtype is dtype:
            return x
    return None


def is_commutative(op: str) -> bool:
    return op in INTRINSICS and INTRINSICS[op].commutative


def parts(term: Term) -> Iterator[Term]:
    """The term and those that it is made of, each once."""
    seen: set[int] = set()
    pending = [term]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, Apply):
            pending.extend(current.operands)
