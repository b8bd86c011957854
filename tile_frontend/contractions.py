"""Typing of contractions: accesses, points, accumulation, default and init."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from stripe.affine import Affine
from stripe.diag import Span, did_you_mean
from stripe.dtypes import DType, TensorType
from stripe.ir import Aggregation
from stripe.poly import Lattice, PolyhedralLimit
from tile_frontend import tree
from tile_frontend.elementwise import BodyBuilder, Scalar, Strong, broadcast, fail, shape_text
from tile_frontend.polynomials import Polynomial
from tile_frontend.promotion import Weak, accumulation_type, common_type, promote
from tile_frontend.ranges import Limits, clash, covers, find_points, writes_once
from tile_frontend.scope import Scope, check_size
from tile_frontend.typed import Body, Contraction, Operand, Space

Evaluate = Callable[[tree.Expr, BodyBuilder], Scalar]


def analyse_contraction(scope: Scope, syntax: tree.Contraction, evaluate: Evaluate) -> Contraction:
    """The typed form of a contraction; `evaluate` gives the value of `default` and `init`.

    T012, T020 to T022, T030 to T042; T039: its points are too hard to find.
    """
    try:
        return _analyse(scope, syntax, evaluate)
    except PolyhedralLimit as error:
        found = error.diagnostics[0]
        fail("T039", found.message, syntax.span, *found.notes)


def _analyse(scope: Scope, syntax: tree.Contraction, evaluate: Evaluate) -> Contraction:
    shape = _sizes(scope, syntax)
    operands = [_OperandSyntax.of(scope, access) for access in syntax.operands]
    accesses = _Accesses.of(scope, syntax, shape, operands)
    types = _types(syntax, [o.type.dtype for o in operands])
    type = TensorType(types.result, shape)
    check_size(type, syntax.name.text, syntax.target.span)
    lattice = accesses.points(syntax)
    write = _rewritten(lattice, accesses.target)
    single = lattice is None or writes_once(lattice, write)
    if lattice is not None and syntax.aggregation is Aggregation.ASSIGN and not single:
        _check_assigned_once(lattice, write, syntax)
        single = True
    covered = lattice is not None and covers(lattice, write, shape)
    direct = single and syntax.init is None  # nothing is folded: the value goes where it belongs
    buffered = TensorType(types.result if direct else types.accumulated, shape)
    plain = direct and not syntax.combination and syntax.accumulate is None
    fill = _start(syntax.default, "default", types, buffered, evaluate)
    return Contraction(
        syntax.name.text,
        type,
        buffered.dtype,
        syntax.aggregation,
        syntax.combination,
        tuple(
            Operand(o.name, o.type.dtype, _rewritten(lattice, polynomials), o.span)
            for o, polynomials in zip(operands, accesses.operands, strict=True)
        ),
        types.compared,
        operands[0].type.dtype if plain else types.accumulated,
        None if lattice is None else Space(dict(lattice.ranges), lattice.constraints),
        write,
        covered,
        single,
        None if covered else fill,
        _start(syntax.init, "init", types, buffered, evaluate),
        syntax.span,
    )


# -- accesses --------------------------------------------------------------------------------


def _sizes(scope: Scope, syntax: tree.Contraction) -> tuple[int, ...]:
    rank = len(syntax.target.subscripts)
    if len(syntax.sizes) != rank:
        sizes = _counted(len(syntax.sizes), "size", "sizes")
        fail(
            "T020",
            f"the output '{syntax.name.text}' has {_counted(rank, 'index', 'indexes')} and {sizes}",
            syntax.target.span,
            "help: write one size for each index, as in C[i, j : M, N]",
        )
    evaluator = scope.evaluator
    shape = tuple(evaluator.size(expr) for expr in syntax.sizes)
    for size, expr in zip(shape, syntax.sizes, strict=True):
        if size < 0:
            fail("T035", f"this size is negative: {size}", expr.span)
    return shape


def _counted(number: int, one: str, many: str) -> str:
    return f"{number or 'no'} {one if number == 1 else many}"


@dataclass(frozen=True, slots=True)
class _OperandSyntax:
    name: str
    type: TensorType
    subscripts: tuple[tree.Expr, ...]
    span: Span

    @staticmethod
    def of(scope: Scope, access: tree.Access) -> _OperandSyntax:
        name = access.tensor.text
        type = scope.tensor(name, access.tensor.span)
        if len(access.subscripts) != len(type.shape):
            fail(
                "T020",
                f"'{name}' has rank {len(type.shape)}, but is given"
                f" {_counted(len(access.subscripts), 'index', 'indexes')}",
                access.span,
                f"'{name}' is {type}",
            )
        return _OperandSyntax(name, type, access.subscripts, access.span)


@dataclass(frozen=True, slots=True)
class _Accesses:
    """The polynomials of a contraction, and the indexes in the order of the loops: those of the
    output as written, then the others in order of appearance."""

    target: tuple[Polynomial, ...]
    operands: tuple[tuple[Polynomial, ...], ...]
    limits: Limits
    indexes: dict[str, Span]
    is_empty: bool  # a dimension of size 0 leaves no points

    @staticmethod
    def of(
        scope: Scope, syntax: tree.Contraction, shape: tuple[int, ...], operands: list[_OperandSyntax]
    ) -> _Accesses:
        evaluator = scope.evaluator
        target = tuple(evaluator.polynomial(expr) for expr in syntax.target.subscripts)
        reads = tuple(tuple(evaluator.polynomial(expr) for expr in o.subscripts) for o in operands)
        indexes: dict[str, Span] = {}
        for polynomial in (*target, *(p for polynomials in reads for p in polynomials)):
            for name in polynomial.coefficients:
                indexes.setdefault(name, polynomial.span)
        constraints = [(evaluator.polynomial(p), evaluator.polynomial(e)) for p, e in syntax.constraints]
        for polynomial in (side for pair in constraints for side in pair):
            for name in polynomial.coefficients:
                if name not in indexes:
                    fail(
                        "T012",
                        f"unknown index '{name}': it is in no access of this contraction",
                        polynomial.span,
                        *did_you_mean(name, indexes),
                    )
        sized = list(zip(target, shape, strict=True))
        for operand, polynomials in zip(operands, reads, strict=True):
            sized += zip(polynomials, operand.type.shape, strict=True)
        limits = Limits(sized, constraints)
        is_empty = prod(shape) == 0 or any(prod(o.type.shape) == 0 for o in operands)
        return _Accesses(target, reads, limits, indexes, is_empty)

    def points(self, syntax: tree.Contraction) -> Lattice | None:
        if self.is_empty:
            return None
        written = {name for polynomial in self.target for name in polynomial.coefficients}
        return find_points(self.indexes, self.limits, syntax.span, written)


def _rewritten(lattice: Lattice | None, polynomials: tuple[Polynomial, ...]) -> tuple[Affine, ...]:
    return () if lattice is None else tuple(lattice.rewrite(p.linear) for p in polynomials)


def _check_assigned_once(lattice: Lattice, write: tuple[Affine, ...], syntax: tree.Contraction) -> None:
    found = clash(lattice, write)
    if found is None:
        return
    element, *points = found
    texts = [", ".join(f"{name}={value}" for name, value in point.items()) for point in points]
    fail(
        "T033",
        f"'=' writes the element {syntax.name.text}{shape_text(element)} at several points",
        syntax.span,
        f"two of them: ({texts[0]}) and ({texts[1]})",
        "help: use one of the aggregations + * > < to combine them, or a constraint to choose one",
    )


# -- types -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Types:
    """`compared`: operands of `==`; `accumulated`: what is aggregated; `result`: the output."""

    compared: DType
    accumulated: DType
    result: DType


def _types(syntax: tree.Contraction, dtypes: list[DType]) -> _Types:
    """docs/tile.md, Types: accumulation is wider than the element type where that is narrow."""
    compared = common_type(dtypes[:2])
    valued = dtypes[2:] if syntax.combination == "?" else dtypes
    value = DType.BOOL if syntax.combination == "==" else common_type(valued)
    sums = syntax.aggregation in (Aggregation.ADD, Aggregation.MUL)
    natural = value
    if sums:
        natural = accumulation_type([DType.BOOL] if syntax.combination == "==" else valued, value)
    result = syntax.dtype or (value if value.is_float else natural)
    accumulated = result if promote(natural, result) is result else natural
    if syntax.accumulate is not None:
        accumulated = syntax.accumulate
        numeric = accumulated.is_float or (accumulated.is_integer and not value.is_float)
        if not numeric and (sums or accumulated is not value):
            fail(
                "T022",
                f"values of type {value.value} can't be accumulated in {accumulated.value}",
                syntax.span,
            )
    return _Types(compared, accumulated, result)


def _start(
    expr: tree.Expr | None, clause: str, types: _Types, buffered: TensorType, evaluate: Evaluate
) -> Body | None:
    """The value of `default` or `init`, in the type of the buffer that it is written to."""
    if expr is None:
        return None
    builder = BodyBuilder()
    value = evaluate(expr, builder)
    for dtype in (types.result, buffered.dtype):
        kept = common_type([dtype], [value] if isinstance(value, Weak) else []) is dtype
        if isinstance(value, Strong):
            kept = promote(dtype, value.dtype) is dtype
        if not kept:
            fail(
                "T022",
                f"the {clause} value is {value.dtype.value}, but the output is {dtype.value}",
                expr.span,
                "help: convert the value, for example with as_float(x, 32), or declare the output's type",
            )
    shape = value.shape if isinstance(value, Strong) else ()
    if broadcast([buffered.shape, shape], expr.span) != buffered.shape:
        fail(
            "T021",
            f"the {clause} value has shape {shape_text(shape)}, which does not stretch to"
            f" {shape_text(buffered.shape)}",
            expr.span,
        )
    return builder.body(builder.convert(value, buffered.dtype, expr.span))
