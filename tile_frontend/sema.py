"""Names, types and shapes: syntax tree -> typed function.

Statements are checked one by one, and every statement that is wrong is reported; what depends
on a wrong one is passed over. Statements that no output needs are checked, then dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.dtypes import TensorType
from tile_frontend import tree
from tile_frontend.builtins import (
    ARGUMENTS,
    CASTS,
    COMPOSITES,
    FUNCTIONS,
    IDENTITY,
    MANY,
    OPERATORS,
    PREFIXES,
    SELECT,
)
from tile_frontend.contractions import analyse_contraction
from tile_frontend.elementwise import BodyBuilder, Scalar, fail, tensor_type
from tile_frontend.promotion import Weak
from tile_frontend.scope import Abandoned, Scope
from tile_frontend.tensor_functions import TensorFunctions
from tile_frontend.tree import Binary, Call, Expr, Name, Number, Select, Unary, bottom_up, operands
from tile_frontend.typed import Elementwise, Statement, Unit

# Functions of other libraries that are contractions in Tile.
_CONTRACTIONS = frozenset({"all", "any", "conv", "dot", "matmul", "mean", "prod", "sum", "transpose"})


def analyse(function: tree.Function, types: Mapping[str, TensorType]) -> Unit:
    """The typed function for inputs of these types. CompileError T010 to T049."""
    scope = Scope(_tensor_names(function))
    problems = _bind_inputs(scope, function, types)
    if problems:
        raise CompileError(*problems)
    for statement in function.statements:
        scope.announce(statement.name.text, statement.name.span)
    for statement in function.statements:
        try:
            _statement(scope, statement)
        except CompileError as error:
            problems += error.diagnostics
            scope.abandon(statement.name.text)
        except Abandoned:
            scope.abandon(statement.name.text)
    problems += _check_outputs(scope, function)
    if problems:
        raise CompileError(*problems)
    return Unit(
        tuple((p.name.text, types[p.name.text], p.span) for p in function.params),
        tuple((o.text, scope.tensors[o.text], o.span) for o in function.outputs),
        _needed(scope.statements, {o.text for o in function.outputs}),
        function.span,
    )


def _tensor_names(function: tree.Function) -> set[str]:
    names = {p.name.text for p in function.params} | {o.text for o in function.outputs}
    return names | {s.name.text for s in function.statements}


# -- the signature -----------------------------------------------------------------------------


def _bind_inputs(scope: Scope, function: tree.Function, types: Mapping[str, TensorType]) -> list[Diagnostic]:
    """Declare the inputs and their dimensions; what is wrong with them."""
    problems: list[Diagnostic] = []
    names = [p.name.text for p in function.params]
    for name in types:
        if name not in names:
            notes = did_you_mean(name, names)
            problems.append(Diagnostic("T017", f"the function has no input '{name}'", function.span, notes))
    sources: dict[str, str] = {}
    for param in function.params:
        try:
            _bind_input(scope, param, types, sources)
        except CompileError as error:
            problems += error.diagnostics
    return problems


def _bind_input(
    scope: Scope, param: tree.Param, types: Mapping[str, TensorType], sources: dict[str, str]
) -> None:
    """`sources`: the input that gave each dimension its size."""
    name = param.name.text
    scope.claim(name, "an input", param.name.span)
    if name not in types:
        fail("T017", f"the type of input '{name}' is missing", param.span, "help: give its type and shape")
    type = types[name]
    if any(size < 0 for size in type.shape):
        fail("T035", f"input '{name}' is given a negative size: {type}", param.span)
    if param.dtype not in (None, type.dtype):
        fail("T022", f"input '{name}' is declared {param.dtype}, but given as {type}", param.span)
    scope.declare(name, type, param.span)
    if param.dims is None:
        return
    if len(param.dims) != len(type.shape):
        fail("T020", f"input '{name}' has rank {len(param.dims)}, but is given as {type}", param.span)
    for dim, size in zip(param.dims, type.shape, strict=True):
        if isinstance(dim, Number):
            if dim.value != size:
                fail("T021", f"this dimension of '{name}' is {dim.value}, but given as {size}", dim.span)
        elif dim.text in sources:
            known = scope.known[dim.text].value
            if known != size:
                other = sources[dim.text]
                fail(
                    "T021",
                    f"dimension '{dim.text}' is {known} in '{other}', but {size} in '{name}'",
                    dim.span,
                )
        else:
            scope.claim(dim.text, "a dimension", dim.span)
            scope.known[dim.text] = Weak(size)
            sources[dim.text] = name


def _check_outputs(scope: Scope, function: tree.Function) -> list[Diagnostic]:
    problems: list[Diagnostic] = []
    inputs = {p.name.text for p in function.params}
    seen: set[str] = set()
    for output in function.outputs:
        name = output.text
        if name in seen:
            problems.append(Diagnostic("T018", f"the output '{name}' is named twice", output.span))
        elif name in inputs:
            notes = (f"help: copy it to a name of its own: R = {name};",)
            problems.append(Diagnostic("T018", f"'{name}' is an input and an output", output.span, notes))
        elif name not in scope.tensors and not scope.has_failed(name):
            assigned = [s.name.text for s in function.statements]
            problems.append(
                Diagnostic(
                    "T015",
                    f"the output '{name}' is never assigned",
                    output.span,
                    did_you_mean(name, assigned),
                )
            )
        seen.add(name)
    return problems


def _needed(statements: list[Statement], wanted: set[str]) -> tuple[Statement, ...]:
    """The statements that the wanted tensors are made from, in order."""
    kept: list[Statement] = []
    for statement in reversed(statements):
        if statement.target in wanted:
            kept.append(statement)
            wanted.update(statement.reads)
    return tuple(reversed(kept))


# -- statements --------------------------------------------------------------------------------


def _statement(scope: Scope, statement: tree.Statement) -> None:
    name = statement.name
    scope.claim(name.text, "assigned", name.span)
    if isinstance(statement, tree.Contraction):
        if statement.init is not None and statement.default is not None:
            fail(
                "T038", "init gives every element a value: default has nothing to do", statement.default.span
            )
        if statement.init is not None and statement.aggregation.value == "assign":
            fail("T038", "'=' folds nothing: init has no meaning", statement.init.span)

        def evaluate(expr: Expr, builder: BodyBuilder) -> Scalar:
            return _Expression(scope, builder, name.text).value(expr)

        scope.emit(analyse_contraction(scope, statement, evaluate), name.span)
        return
    _assignment(scope, statement)


def _assignment(scope: Scope, statement: tree.Assignment) -> None:
    name, span = statement.name.text, statement.span
    before = len(scope.statements)
    builder = BodyBuilder()
    value = _Expression(scope, builder, name).value(statement.value)
    result = builder.result(value, statement.dtype, span)
    source = builder.as_read(result)
    if len(scope.statements) > before and source == scope.statements[-1].target:
        # The whole right side is one gather, scatter ...: it makes this tensor itself.
        made = scope.statements.pop()
        scope.emit(replace(made, target=name, span=span), statement.name.span)
        return
    scope.emit(Elementwise(name, tensor_type(result), builder.body(result), span), statement.name.span)
    if isinstance(value, Weak) and statement.dtype is None:
        scope.known[name] = value


# -- expressions -------------------------------------------------------------------------------


def _evaluated_first(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an expression that are values; other arguments are integers known now."""
    if isinstance(expr, Call) and expr.function.text in ARGUMENTS:
        return expr.arguments[: ARGUMENTS[expr.function.text][2]]
    return operands(expr)


class _Expression:
    """Evaluates an elementwise expression into a body, within the statement that makes `target`."""

    def __init__(self, scope: Scope, builder: BodyBuilder, target: str) -> None:
        self._scope = scope
        self._builder = builder
        self._target = target

    def value(self, expr: Expr) -> Scalar:
        return bottom_up(expr, self._visit, _evaluated_first)

    def _visit(self, expr: Expr, below: list[Scalar]) -> Scalar:
        match expr:
            case Number(value=value):
                return Weak(value)
            case Name(text=text, span=span):
                return self._scope.scalar_or_tensor(text, self._builder, span)
            case Unary(op=op, span=span):
                return self._builder.apply(PREFIXES[op], below, op, span)
            case Binary(op=op, span=span):
                return self._builder.apply(OPERATORS[op], below, op, span)
            case Select(span=span):
                return self._builder.select(below[0], below[1], below[2], span)
            case Call():
                return self._call(expr, below)

    def _call(self, call: Call, values: list[Scalar]) -> Scalar:
        name, span = call.function.text, call.span
        self._check_arguments(call)
        if name in FUNCTIONS:
            return self._builder.apply(FUNCTIONS[name], values, name, span)
        if name in SELECT:
            return self._builder.select(values[0], values[1], values[2], span)
        if name in IDENTITY:
            return values[0]
        if name in COMPOSITES:
            return self._builder.composite(name, values[0], span)
        if name in CASTS:
            return self._cast(call, values[0])
        return TensorFunctions(self._scope, self._builder, self._target).call(call, values)

    def _check_arguments(self, call: Call) -> None:
        name, count = call.function.text, len(call.arguments)
        if name not in ARGUMENTS:
            note = "help: what combines elements along an index is a contraction: S[i : N] = +(A[i, j]);"
            notes = (note,) if name in _CONTRACTIONS else did_you_mean(name, ARGUMENTS)
            fail("T013", f"unknown function '{name}'", call.function.span, *notes)
        least, most, _ = ARGUMENTS[name]
        if not least <= count <= most:
            several = f"at least {least}" if most == MANY else f"{least} to {most}"
            expected = several if least != most else str(least)
            fail(
                "T016", f"'{name}' takes {expected} argument{'s' if most > 1 else ''}, not {count}", call.span
            )

    def _cast(self, call: Call, value: Scalar) -> Scalar:
        types, usual = CASTS[call.function.text]
        bits = usual
        if len(call.arguments) > 1:
            bits = self._scope.evaluator.size(call.arguments[1])
        if bits not in types:
            known = ", ".join(map(str, types))
            fail(
                "T040",
                f"'{call.function.text}' has no type of {bits} bits",
                call.arguments[1].span,
                f"known: {known}",
            )
        return self._builder.cast(value, types[bits], call.span)
