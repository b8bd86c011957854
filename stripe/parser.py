"""Text -> program, with spans. The inverse of `stripe.printer`; the grammar is in docs/stripe.md.

Recursive descent over a token stream. The parser reports what can't be put into the IR; what
can be expressed but is wrong is for `stripe.verify`. It reads canonical text back exactly, and
accepts what the Stripe paper prints (Figure 5): statement labels, `block []:1`, anonymous
blocks, and scalar types that follow from the rest.

Codes
  S001  the text does not follow the grammar
  S002  an unknown element type, direction or aggregation
  S003  a number that is too large, or out of the range that its place allows
  S004  blocks or parentheses nested too deeply
  S005  an expression that is not affine (a product of two indexes)
  S006  strides of a view that are not those of its allocation
  S007  an iteration count that is not the product of the ranges
  S008  an element type was left out and nothing determines it
  S009  an aggregation is missing or out of place, or `const` on what is not an input
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from stripe.affine import Affine
from stripe.diag import CompileError, Source, Span
from stripe.dtypes import DTYPE_NAMES, DType
from stripe.infer import fill_types
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Constant,
    Constraint,
    Direction,
    Index,
    IndexValue,
    Intrinsic,
    Load,
    Location,
    Operand,
    Program,
    Refinement,
    Special,
    Statement,
    Store,
    Tag,
    contiguous,
)
from stripe.names import Names
from stripe.reading import Reader

_DIRECTIONS = frozenset(d.value for d in Direction)
_AGGREGATIONS = frozenset(a.value for a in Aggregation)
_Strides = dict[str, tuple[int, ...] | None]  # of the buffers of a block; None where unknown


def parse(source: Source | str) -> Program:
    """The program that a text describes. Raises a CompileError with all that was found wrong."""
    if isinstance(source, str):
        source = Source("<string>", source)
    return _Parser(source).program()


@dataclass(slots=True)
class _Body:
    """What a block's braces hold; `untyped` are the positions of statements without a type."""

    statements: list[Statement]
    untyped: set[int]


class _Parser(Reader):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        named = zip(self.tokens, self.tokens[1:], strict=False)
        self._names = Names(b.text for a, b in named if a.text == "block" and b.kind == "name")

    def program(self) -> Program:
        load: Block | None = None
        try:
            if self.cursor.at("load"):
                self.next()
                load = self._block(None, "load")
            root = self._block(None, "main")
            if self.cursor.peek().kind != "end":
                self.fail("S001", f"expected the end of the text, found {self.cursor.found()}")
        except CompileError as error:
            raise CompileError(*self.errors, *error.diagnostics) from None
        if self.errors:
            raise CompileError(*self.errors)
        return Program(root, load)

    # Blocks

    def _block(self, outer: _Strides | None, anonymous: str) -> Block:
        """`outer` holds the strides of the parent's buffers; None at the root."""
        first = self.expect("block", "to start a block")
        self.enter(first.span)
        named = self.cursor.peek().kind == "name"
        name = self.next().text if named else self._names.fresh(anonymous)
        indexes = self._indexes()
        span = first.span.to(self.last.span)
        self._iteration_count(indexes)
        location = self._location()
        inflight = 1
        if self.cursor.at("inflight"):
            self.next()
            self.expect("=")
            inflight = self.integer("the number of points in flight", low=1)
        constraints, refinements = self._declarations(outer)
        tags = self._tags()
        known = self._strides(refinements, outer)
        inner = "kernel" if outer is None else "inner"
        statements = self._statements(refinements, known, inner)
        self.depth -= 1
        return Block(name, indexes, constraints, refinements, statements, location, inflight, tags, span)

    def _indexes(self) -> tuple[Index, ...]:
        self.expect("[", "before the indexes of the block")
        indexes: list[Index] = []
        while not self.cursor.at("]"):
            name = self.expect_name("an index")
            if self.accept("="):
                passed = self.affine()
                indexes.append(Index(name.text, 1, passed, name.span.to(self.last.span)))
            else:
                self.expect(":", "and the range of the index, or '=' and a value from the parent")
                size = self.integer("the range of the index")
                indexes.append(Index(name.text, size, None, name.span.to(self.last.span)))
            if not self.accept(","):
                break
        self.expect("]", "after the indexes")
        return tuple(indexes)

    def _iteration_count(self, indexes: tuple[Index, ...]) -> None:
        if not self.accept(":"):
            return
        count = self.integer("the number of iterations")
        product = math.prod(index.range for index in indexes)
        if count != product:
            self.report("S007", f"the ranges make {product} iterations, not {count}", self.last.span)

    def _declarations(self, outer: _Strides | None) -> tuple[tuple[Constraint, ...], tuple[Refinement, ...]]:
        constraints: list[Constraint] = []
        refinements: list[Refinement] = []
        self.expect("(", "before the refinements of the block")
        while not self.cursor.at(")"):
            with self.recovering(self._at_declaration):
                if self._at_refinement():
                    refinements.append(self._refinement(outer))
                elif refinements:
                    self.fail(
                        "S001",
                        f"expected a refinement or ')', found {self.cursor.found()}",
                        "help: a refinement starts with in, out, inout or new; constraints stand before them",
                    )
                else:
                    constraints.append(self._constraint())
        self.expect(")", "after the refinements")
        return tuple(constraints), tuple(refinements)

    def _statements(
        self, refinements: tuple[Refinement, ...], strides: _Strides, anonymous: str
    ) -> tuple[Statement, ...]:
        body = _Body([], set())
        self.expect("{", "before the statements of the block")
        while not self.cursor.at("}"):
            if self.cursor.peek().kind == "integer" and self.cursor.peek(1).text == ":":
                self.next()
                self.next()
            if self.cursor.at("block") and self.cursor.peek(1).text != "=":
                body.statements.append(self._block(strides, anonymous))
                continue
            with self.recovering(self._at_statement):
                self._statement(body)
        self.expect("}")
        if self.errors:
            return tuple(body.statements)  # types that were not read would look like unknown ones
        try:
            types = {ref.name: ref.dtype for ref in refinements}
            return fill_types(body.statements, frozenset(body.untyped), types)
        except CompileError as error:
            self.errors += error.diagnostics
            return tuple(body.statements)

    # Constraints and refinements

    def _at_declaration(self) -> bool:
        """Whether a constraint, a refinement or the end of their list may start here."""
        token, after = self.cursor.peek(), self.cursor.peek(1)
        if token.text in ("block", "special") or after.text in ("=", ":"):
            return False
        return token.kind in ("name", "integer") or self.cursor.at("(", ")", "-")

    def _at_refinement(self) -> bool:
        """A name before a name starts a refinement; `in + x >= 0` is about an index `in`."""
        first, second = self.cursor.peek(), self.cursor.peek(1)
        if first.kind != "name":
            return False
        word = first.text in _DIRECTIONS or first.text == "const"
        return second.kind == "name" or (word and second.text not in ("+", "-", "*", ">="))

    def _constraint(self) -> Constraint:
        first = self.cursor.peek()
        expr = self.affine()
        self.expect(">=", "in a constraint `expression >= 0`")
        if not (self.cursor.peek().kind == "integer" and self.cursor.at("0")):
            help = "help: a constraint is `expression >= 0`; bring all terms to the left"
            self.fail("S001", f"expected 0 after '>=', found {self.cursor.found()}", help)
        self.next()
        return Constraint(expr, first.span.to(self.last.span))

    def _refinement(self, outer: _Strides | None) -> Refinement:
        first = self.cursor.peek()
        const = self.cursor.at("const") and self.cursor.peek(1).kind == "name" and self.next() is not None
        direction = self._direction()
        if const and direction is not Direction.IN:
            self.report("S009", "only inputs can be const", first.span)
        name = self.expect_name("the name of a buffer").text
        source = ""
        access: tuple[Affine, ...] = ()
        aggregation: Aggregation | None = None
        if direction is not Direction.NEW:
            source = self.expect_name("the buffer of the parent").text if self.accept("=") else name
            access = self.access()
            aggregation = self._refinement_aggregation(direction, name)
        dtype = self._expect_type(f"the element type of '{name}'")
        shape = self.sizes("the shape")
        before_strides = self.cursor.peek().span
        written = self.sizes("the strides") if self.accept(":") else None
        strides_span = before_strides.to(self.last.span)
        ref = Refinement(
            direction, name, shape, dtype, source, access, aggregation,
            self._own_strides(direction, shape, written, outer),
            self._location(), const, self._tags(),
        )  # fmt: skip
        if ref.strides is None and written is not None and outer is not None:
            self._check_strides(ref, written, outer, strides_span)
        return replace(ref, span=first.span.to(self.last.span))

    def _refinement_aggregation(self, direction: Direction, name: str) -> Aggregation | None:
        if not self.cursor.at(":"):
            if direction.writes:
                self.fail(
                    "S009",
                    f"'{direction.value} {name}' needs an aggregation",
                    f"help: write ':assign' after the access, or one of {', '.join(sorted(_AGGREGATIONS))}",
                )
            return None
        colon = self.next()
        if not direction.writes:
            span = colon.span.to(self.cursor.peek().span)
            self.fail("S009", f"'{direction.value} {name}' is not written and has no aggregation", span=span)
        return self._aggregation()

    @staticmethod
    def _own_strides(
        direction: Direction, shape: tuple[int, ...], written: tuple[int, ...] | None, outer: _Strides | None
    ) -> tuple[int, ...] | None:
        """Strides belong to allocations: new buffers and the root's refinements."""
        if direction is not Direction.NEW and outer is not None:
            return None
        return contiguous(shape) if written is None else written

    def _check_strides(self, ref: Refinement, written: tuple[int, ...], outer: _Strides, span: Span) -> None:
        """A view's strides are its allocation's. A view of an unknown buffer, or of another rank
        than its buffer, is for the verifier, which knows more to say."""
        allocated = outer.get(ref.source)
        if allocated is None or len(allocated) != len(ref.shape) or written == allocated:
            return
        shown = f"({', '.join(map(str, allocated))})"
        self.report(
            "S006",
            f"the strides of '{ref.name}' are not those of '{ref.source}', which are {shown}",
            span,
            "help: a view has the strides of its allocation; they may be left out",
        )

    @staticmethod
    def _strides(refinements: tuple[Refinement, ...], outer: _Strides | None) -> _Strides:
        return {
            ref.name: ref.strides if ref.strides is not None or outer is None else outer.get(ref.source)
            for ref in refinements
        }

    # Parts of both

    def _direction(self) -> Direction:
        word = self.expect_name("in, out, inout or new")
        if word.text not in _DIRECTIONS:
            raise CompileError(self.unknown("direction", word, _DIRECTIONS))
        return Direction(word.text)

    def _aggregation(self) -> Aggregation:
        word = self.expect_name("an aggregation")
        if word.text not in _AGGREGATIONS:
            self.errors.append(self.unknown("aggregation", word, _AGGREGATIONS))
            return Aggregation.ASSIGN
        return Aggregation(word.text)

    def _expect_type(self, what: str) -> DType:
        word = self.expect_name(what)
        if word.text not in DTYPE_NAMES:
            self.errors.append(self.unknown("element type", word, DTYPE_NAMES))
            return DType.BOOL
        return DType(word.text)

    def _location(self) -> Location | None:
        """`@UNIT[bank, spread d]:address`, all but the unit optional."""
        if not self.accept("@"):
            return None
        token = self.cursor.peek()
        unit = self.string() if token.kind == "string" else self.expect_name("the name of a unit").text
        bank: Affine | None = None
        spread: int | None = None
        if self.accept("["):
            if not self._at_spread():
                bank = self.affine()
                if self.accept(",") and not self._at_spread():
                    self.fail("S001", f"expected 'spread' and a dimension, found {self.cursor.found()}")
            if self._at_spread():
                self.next()
                spread = self.integer("the dimension to spread")
            self.expect("]", "after the bank")
        address = self.affine() if self.accept(":") else None
        return Location(unit, bank, address, spread)

    def _at_spread(self) -> bool:
        return self.cursor.at("spread") and self.cursor.peek(1).kind == "integer"

    def _tags(self) -> tuple[Tag, ...]:
        tags: list[Tag] = []
        while self.accept("#"):
            name = self.expect_name("the name of a tag").text
            value = ""
            if self.accept("="):
                token = self.cursor.peek()
                if token.kind == "string":
                    value = self.string()
                elif token.kind in ("name", "integer"):
                    value = self.next().text
                else:
                    self.fail("S001", f"expected the value of tag '{name}', found {self.cursor.found()}")
            tags.append(Tag(name, value))
        return tuple(tags)

    # Statements

    def _at_statement(self) -> bool:
        token, after = self.cursor.peek(), self.cursor.peek(1)
        label = token.kind == "integer" and after.text == ":"
        return token.kind == "scalar" or label or after.text == "=" or self.cursor.at("block", "special", "}")

    def _statement(self, body: _Body) -> None:
        first = self.cursor.peek()
        if first.kind == "scalar":
            self._scalar(body)
        elif first.text == "special" and self.cursor.peek(1).text != "=":
            body.statements.append(self._special())
        elif first.kind == "name":
            self.next()
            self.expect("=", "and store($value)")
            self.expect("store", "(a scalar starts with '$')")
            self.expect("(")
            value = self.expect_scalar()
            self.expect(")")
            body.statements.append(Store(first.text, value, first.span.to(self.last.span)))
        else:
            self.fail("S001", f"expected a statement or '}}', found {self.cursor.found()}")

    def _scalar(self, body: _Body) -> None:
        first = self.next()
        result = first.text[1:]
        self.expect("=", "after the scalar")
        op = self.expect_name("load, constant, index, cast or an intrinsic").text
        self.expect("(", f"after '{op}'")
        statement: Load | Constant | IndexValue | Cast | Intrinsic
        some = DType.BOOL  # a stand-in until the type is read or inferred
        match op:
            case "load":
                statement = Load(result, self.expect_name("the buffer to load from").text, some)
            case "constant":
                statement = Constant(result, self.number(), some)
            case "index":
                statement = IndexValue(result, self.affine(), some)
            case "cast":
                statement = Cast(result, self.expect_scalar(), some)
            case _:
                statement = Intrinsic(result, op, self._operands(), some)
        self.expect(")")
        dtype = self._optional_type()
        if dtype is None:
            body.untyped.add(len(body.statements))
        span = first.span.to(self.last.span)
        body.statements.append(replace(statement, dtype=dtype or some, span=span))

    def _operands(self) -> tuple[str, ...]:
        operands: list[str] = []
        while not self.cursor.at(")"):
            operands.append(self.expect_scalar())
            if not self.accept(","):
                break
        return tuple(operands)

    def _optional_type(self) -> DType | None:
        """A type, or None where the next statement begins; a wrong one is seen on the same line."""
        token, after = self.cursor.peek(), self.cursor.peek(1)
        if token.kind != "name" or after.text == "=":
            return None
        if token.text in DTYPE_NAMES:
            return DType(self.next().text)
        if self.starts_line(token) or token.text in ("block", "special"):
            return None
        self.errors.append(self.unknown("element type", self.next(), DTYPE_NAMES))
        return DType.BOOL

    def _special(self) -> Special:
        first = self.next()
        name = self.expect_name("the name of the special").text
        self.expect("(", f"before the operands of '{name}'")
        operands: list[Operand] = []
        while not self.cursor.at(")"):
            operands.append(self._operand())
            if not self.accept(","):
                break
        self.expect(")", "after the operands")
        params = self._params() if self.accept("{") else ()
        location = self._location()
        return Special(name, tuple(operands), params, location, first.span.to(self.last.span))

    def _operand(self) -> Operand:
        direction = self._direction()
        buffer = self.expect_name("a buffer").text
        access = self.access() if self.cursor.at("[") else None
        shape = self.sizes("the shape of the part") if self.cursor.at("(") else None
        aggregation = self._aggregation() if self.accept(":") else None
        return Operand(direction, buffer, aggregation, access, shape)

    def _params(self) -> tuple[tuple[str, int | float | str], ...]:
        params: list[tuple[str, int | float | str]] = []
        while not self.cursor.at("}"):
            name = self.expect_name("a parameter").text
            self.expect("=", "and the value of the parameter")
            is_text = self.cursor.peek().kind == "string"
            params.append((name, self.string() if is_text else self.number()))
            if not self.accept(","):
                break
        self.expect("}", "after the parameters")
        return tuple(params)
