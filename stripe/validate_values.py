"""Translation validation: which value an element of a buffer has, as a term.

Loads and aggregations are opened when they are asked for:

    Values.read(load, within)    what a load sees: pieces of `within`, each with the term stored there
    Values.writes(sum, within)   what is aggregated into an element: every write, as points and a term

A piece may have further dimensions, those of the point that wrote; they are functions of the
others for `read`, and enumerate the writes for `writes`. Both look through `new` buffers, copies
of views, and levels of blocks, by the rules of the verifier: a read sees the writes of earlier
statements of its own point and of the points around it, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence

from stripe.affine import Affine
from stripe.diag import InvariantError
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
from stripe.validate_terms import (
    OWN,
    Apply,
    Element,
    Frame,
    Given,
    Known,
    Made,
    Number,
    Piece,
    Read,
    Sum,
    Term,
    affine_value,
    aggregation,
    apply,
    onto,
    union,
)
from stripe.visit import buffers_used


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


def folded(values: Values, term: Term, within: Domain) -> Term:
    """The term with what is constant at all points of `within` folded; the same object if nothing is."""
    done: dict[int, Term] = {}
    pending = [term]
    while pending:
        current = pending[-1]
        if isinstance(current, Apply):
            needs = [operand for operand in current.operands if id(operand) not in done]
            if needs:
                pending += needs
                continue
            operands = tuple(done[id(operand)] for operand in current.operands)
            same = all(new is old for new, old in zip(operands, current.operands, strict=True))
            done[id(current)] = current if same else apply(current.op, operands, current.dtype)
        else:
            done[id(current)] = _constant_of(values, current, within) or current
        pending.pop()
    return done[id(term)]


def _constant_of(values: Values, term: Term, within: Domain) -> Term | None:
    """The constant that an index or a load is at all points of `within`, if it is one."""
    if isinstance(term, Number):
        bounds = within.bounds(term.expr)
        fixed = bounds is not None and bounds[0] == bounds[1]
        return affine_value(Affine(bounds[0]), term.dtype) if fixed and bounds else None
    at = values.source(term) if isinstance(term, Read) else None
    if not isinstance(at, Read):
        return None
    found = [known for _, known in values.read(at, within)]
    if len({repr(t.value) if isinstance(t, Known) else id(t) for t in found}) != 1:
        return None
    return found[0] if isinstance(found[0], Known) else None
