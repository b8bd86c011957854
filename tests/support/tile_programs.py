"""Random Tile programs with inputs, and how far correct executions of one may lie apart.

A program is text made from a seed: contractions and elementwise statements over tensors of all
types, sizes 1, primes, powers of two, and now and then 0. Each value carries bounds: on its
magnitude, and on the rounding error between two correct executions (sums in any order, contracted
multiply-adds, elementary functions within a few units in the last place). Where all values
are integers that their type holds exactly the error is 0: results must agree bit for bit.
Comparisons and rounding functions are only applied to values without error, for they would
make a small difference large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Program
from tests.support.tile_reference import Access, ContractionSpec, Subscript
from tests.support.tolerance import unit_roundoff
from tile_frontend import compile_tile

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
T = TypeVar("T")

SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 33)
_EXACT = {DType.F16: 2.0**11, DType.BF16: 2.0**8, DType.F32: 2.0**24, DType.F64: 2.0**53}
_LARGEST = {DType.F16: 1e4, DType.BF16: 1e30, DType.F32: 1e30, DType.F64: 1e30}
_VOLUME = 20_000  # points of a contraction, elements of a tensor
_REJECTED = {"T032", "T033"}  # no points, or several for one element of `=`


@dataclass(frozen=True)
class Value:
    """What is known of a tensor: `bound` on |elements|, `error` between executions, `integral`."""

    name: str
    dtype: DType
    shape: Shape
    bound: float
    error: float = 0.0
    integral: bool = True

    @property
    def sharp(self) -> bool:
        """Every correct execution gives the same."""
        return self.error == 0.0


@dataclass(frozen=True)
class TileProgram:
    """A program, its inputs, and for each output the error that it may have."""

    text: str
    types: Mapping[str, TensorType]
    inputs: Mapping[str, Array]
    outputs: tuple[Value, ...]
    seed: int

    def compile(self) -> Program:
        return compile_tile(Source(f"seed_{self.seed}.tile", self.text), self.types)

    def assert_same(self, actual: Mapping[str, Array], expected: Mapping[str, Array], what: str) -> None:
        """Two executions agree: equal, or for inexact floats within the error bound."""
        place = f"{what}, seed {self.seed}\n{self.text}"
        assert list(actual) == list(expected), place
        for value in self.outputs:
            got, want = actual[value.name], expected[value.name]
            assert got.dtype == want.dtype == value.dtype.numpy and got.shape == want.shape, place
            if not value.dtype.is_float:
                np.testing.assert_array_equal(got, want, err_msg=f"{value.name}: {place}")
                continue
            np.testing.assert_allclose(
                got.astype(np.float64),
                want.astype(np.float64),
                rtol=0,
                atol=2 * value.error,
                equal_nan=True,
                err_msg=f"{value.name}: {place}",
            )


def tile_program(seed: int) -> TileProgram:
    """The program of a seed. Statements that the front end rejects for a known reason are redrawn."""
    return _Maker(np.random.default_rng(seed), seed).program()


def random_contraction(
    rng: np.random.Generator, tensors: Sequence[Value], *, volume: int = _VOLUME
) -> ContractionSpec | None:
    """A contraction over some of `tensors`; None if the draw was too large."""
    return _ContractionMaker(rng, volume).make(tensors)


class _Random:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def number(self, low: int, high: int) -> int:
        """low <= number <= high."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, items: Sequence[T], weights: Sequence[float] | None = None) -> T:
        chances = None if weights is None else np.array(weights) / sum(weights)
        return items[int(self.rng.choice(len(items), p=chances))]


class _ContractionMaker(_Random):
    def __init__(self, rng: np.random.Generator, volume: int) -> None:
        super().__init__(rng)
        self.volume = volume
        self.extents: dict[str, int] = {}  # at most so many values of each index

    def make(self, tensors: Sequence[Value]) -> ContractionSpec | None:
        operands = [self.pick(tensors) for _ in range(self.pick((1, 2, 3), (4, 6, 1)))]
        accesses = [tuple(self.subscript(size) for size in value.shape) for value in operands]
        target, sizes = self.target()
        kept = {n for s in target if s.divisor == 1 and len(s.terms) == 1 for n, _ in s.terms}
        if (
            math.prod(max(e, 1) for e in self.extents.values()) > self.volume
            or math.prod(sizes) > self.volume
        ):
            return None
        aggregation = self.pick("+*><", (5, 1, 2, 2))
        if self.chance(0.7 if kept == set(self.extents) else 0.04):
            aggregation = "="
        combination = {1: "", 2: self.pick(("*", "+", "=="), (6, 2, 1)), 3: self.pick(("*", "+", "?"))}
        return ContractionSpec(
            target,
            sizes,
            aggregation,
            combination[len(operands)],
            tuple((v.name, a) for v, a in zip(operands, accesses, strict=True)),
            self.constraints(),
        )

    def index(self, extent: int) -> str:
        name = "xyijklmnopqrstuvw"[len(self.extents)]
        self.extents[name] = extent
        return name

    def subscript(self, size: int) -> Subscript:
        """An expression for a dimension of an operand; a new index is bounded by it."""
        same = [n for n, extent in self.extents.items() if extent == size]
        some = list(self.extents)
        kind = self.pick(
            ("same", "new", "window", "shifted", "other", "divided", "reversed", "constant"),
            (5, 4, 2, 1, 0.5, 0.5, 0.5, 0.3),
        )
        if kind == "same" and same:
            return Subscript(((self.pick(same), 1),))
        if kind == "window" and some:
            base = self.pick(some)
            stride = self.pick((1, 1, 2, 3, -1))
            reach = size + abs(stride) * self.extents[base]
            terms = tuple(sorted(((base, stride), (self.index(reach), self.pick((1, 1, 1, 2))))))
            return Subscript(terms, self.number(-2, 2))
        if kind == "shifted":
            name = self.pick(some) if some and self.chance(0.6) else self.index(size)
            return Subscript(((name, 1),), self.number(-2, 2))
        if kind == "other" and some:
            return Subscript(((self.pick(some), self.pick((1, 2))),))
        if kind == "divided":
            divisor = self.number(2, 3)
            if some and self.chance(0.4):
                base = self.pick(some)
                terms = ((base, 1), (self.index(divisor * size + self.extents[base]), -1))
                return Subscript(terms, self.number(-1, 2), divisor)
            return Subscript(((self.index(divisor * size), 1),), self.number(-2, 1), divisor)
        if kind == "reversed":
            return Subscript(((self.index(size), -1),), size - 1)
        if kind == "constant" and size:
            return Subscript((), self.number(0, size - 1))
        return Subscript(((self.index(size), 1),))

    def target(self) -> tuple[Access, Shape]:
        names = [n for n in self.extents if self.chance(0.55)]
        self.rng.shuffle(names)
        access: list[Subscript] = []
        sizes: list[int] = []
        for name in names[:4]:
            extent = self.extents[name]
            kind = self.pick(
                ("plain", "truncated", "shifted", "strided", "sum", "divided"), (12, 1, 1, 1, 0.5, 0.4)
            )
            if kind == "truncated":
                access.append(Subscript(((name, 1),)))
                sizes.append(max(1, extent + self.number(-2, 2)))
            elif kind == "shifted":
                shift = self.number(0, 2)
                access.append(Subscript(((name, 1),), shift))
                sizes.append(extent + shift + self.number(0, 1))
            elif kind == "strided":
                access.append(Subscript(((name, 2),), self.number(0, 1)))
                sizes.append(2 * extent + self.number(0, 1))
            elif kind == "sum":
                other = self.pick(list(self.extents))
                access.append(Subscript(((name, 1), (other, 1)) if other != name else ((name, 3),)))
                sizes.append(3 * extent + self.extents[other])
            elif kind == "divided":
                access.append(Subscript(((name, 1),), 0, 2))
                sizes.append(extent // 2 + 1)
            else:
                access.append(Subscript(((name, 1),)))
                sizes.append(extent)
        if self.chance(0.05):
            size = self.pick((1, 3))
            access.append(Subscript(((self.index(size), 1),)))
            sizes.append(size)
        return tuple(access), tuple(sizes)

    def constraints(self) -> tuple[tuple[Subscript, int], ...]:
        if not self.extents or not self.chance(0.2):
            return ()
        names = list(self.extents)
        first, second = self.pick(names), self.pick(names)
        terms = ((first, 1),) if first == second else ((first, 1), (second, self.pick((1, -1))))
        return ((Subscript(terms, self.number(-1, 1)), self.number(1, 6)),)


@dataclass
class _Maker(_Random):
    rng: np.random.Generator
    seed: int
    types: dict[str, TensorType] = field(default_factory=dict)
    inputs: dict[str, Array] = field(default_factory=dict)
    tensors: list[Value] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def program(self) -> TileProgram:
        sizes = [self.pick(SIZES) for _ in range(3)]
        if self.chance(0.03):
            sizes[0] = 0
        dtype = self.pick(list(DType), [1, 2, 1, 2, 1, 2, 1, 1, 1, 2, 2, 6, 2])
        for number in range(self.number(1, 3)):
            other = self.chance(0.2)
            self.add_input(f"A{number}", self.pick(list(DType)) if other else dtype, sizes)
        for number in range(self.number(1, 4)):
            self.add_statement(f"T{number}")
        made = self.tensors[len(self.types) :]
        outputs = tuple(v for v in made if v is made[-1] or self.chance(0.2))
        return TileProgram(self.text(self.statements, outputs), self.types, self.inputs, outputs, self.seed)

    def text(self, statements: Sequence[str], outputs: Sequence[Value]) -> str:
        names = ", ".join(value.name for value in outputs)
        body = "".join(f"  {s}\n" for s in statements)
        return f"function ({', '.join(self.types)}) -> ({names}) {{\n{body}}}\n"

    # Inputs

    def add_input(self, name: str, dtype: DType, sizes: Sequence[int]) -> None:
        if self.tensors and self.chance(0.5):  # what broadcasts against another input
            shape = self.pick(self.tensors).shape
            shape = tuple(1 if self.chance(0.15) else n for n in shape[self.number(0, len(shape)) // 2 :])
        else:
            shape = tuple(self.pick(sizes) for _ in range(self.pick((0, 1, 2, 3), (0.3, 3, 5, 2))))
        while math.prod(shape) > _VOLUME // 4:
            shape = shape[1:]
        values: Array
        integral, bound = True, 3.0
        if dtype is DType.BOOL:
            values, bound = self.rng.integers(0, 2, shape), 1.0
        elif dtype.is_float and self.chance(0.4):
            values, bound, integral = self.rng.uniform(-2, 2, shape), 2.0, False
        elif dtype.is_integer and self.chance(0.3):
            limits = np.iinfo(dtype.numpy)
            values = self.rng.integers(limits.min, limits.max, shape, dtype.numpy, endpoint=True)
            bound = 2.0**dtype.bits
        else:
            values = self.rng.integers(-3 if dtype.is_signed else 0, 4, shape)
        array = np.asarray(values).astype(dtype.numpy)
        if dtype.is_float and array.size and self.chance(0.08):
            array.flat[self.number(0, array.size - 1)] = self.pick((np.nan, np.inf, -np.inf, -0.0))
        self.types[name] = TensorType(dtype, shape)
        self.inputs[name] = array
        self.tensors.append(Value(name, dtype, shape, bound, 0.0, integral))

    # Statements

    def tensor(self) -> Value:
        """One of the tensors so far; those made last more often, to get chains."""
        made = len(self.tensors) - len(self.types)
        if made and self.chance(0.6):
            return self.tensors[-1]  # what was made last
        return self.pick(self.tensors)

    def add_statement(self, name: str) -> None:
        for _ in range(50):
            made = self.contraction(name) if self.chance(0.55) else self.elementwise(name)
            if made is not None:
                self.statements.append(made[0])
                self.tensors.append(made[1])
                return
        raise AssertionError(f"no statement found for seed {self.seed}:\n{self.statements}")

    def typed(self, statement: str, name: str) -> TensorType | None:
        """The type that a further statement gives, or None where the front end rejects it."""
        value = Value(name, DType.BOOL, (), 0)
        text = self.text([*self.statements, statement], [value])
        try:
            program = compile_tile(Source(f"seed_{self.seed}.tile", text), self.types)
        except CompileError as error:
            codes = {d.code for d in error.diagnostics}
            assert codes <= _REJECTED, f"seed {self.seed}\n{text}\n{error}"
            return None
        return TensorType(program.outputs[0].dtype, program.outputs[0].shape)

    def contraction(self, name: str) -> tuple[str, Value] | None:
        maker = _ContractionMaker(self.rng, _VOLUME)
        spec = maker.make([self.tensor() for _ in range(3)])
        if spec is None:
            return None
        by_name = {value.name: value for value in self.tensors}
        read = [by_name[tensor] for tensor, _ in spec.operands]
        if spec.combination in ("==", "?") and not (read[0].sharp and read[1].sharp):
            return None
        start = self.default(spec, read[-1].dtype)
        if start is not None:
            spec = replace(spec, default=start.name)
        statement = spec.text(name)
        type = self.typed(statement, name)
        if type is None:
            return None
        terms = math.prod(
            extent for index, extent in maker.extents.items() if not any(index in s for s in spec.target)
        )
        value = self.aggregated(spec, read, max(terms, 1), type)
        if value is None:
            return None
        if start is not None:
            value = replace(
                value, bound=max(value.bound, start.bound), error=max(value.error, start.error),
                integral=value.integral and start.integral,
            )  # fmt: skip
        return statement, replace(value, name=name)

    def default(self, spec: ContractionSpec, dtype: DType) -> Value | None:
        if spec.combination == "==" or not self.chance(0.15):
            return None
        fitting = [v for v in self.tensors if v.shape == spec.sizes and v.dtype is dtype]
        if fitting and self.chance(0.7):
            return self.pick(fitting)
        return None if dtype is DType.BOOL else Value("1", dtype, (), 1.0)

    def aggregated(
        self, spec: ContractionSpec, read: Sequence[Value], terms: int, type: TensorType
    ) -> Value | None:
        """Bounds of a contraction whose elements aggregate at most `terms` values."""
        value = self.combined(spec.combination, read, type)
        bound, error = value.bound, value.error
        if spec.aggregation == "+":
            bound, error = bound * terms, error * terms
        elif spec.aggregation == "*":
            if terms * math.log2(max(bound + error, 2)) > 900:
                if type.dtype.is_float:
                    return None
                terms, bound = 1, 2.0**type.dtype.bits
            bound, error = bound**terms, (bound + error) ** terms - bound**terms
        return self.rounded(type, bound, error, value.integral, steps=terms)

    def combined(self, combination: str, read: Sequence[Value], type: TensorType) -> Value:
        if combination == "==":
            return Value("", type.dtype, (), 1.0)
        if combination == "?":
            return replace(read[2])
        bound, error = read[0].bound, read[0].error
        for value in read[1:]:
            if combination == "*":
                error = error * (value.bound + value.error) + bound * value.error
                bound *= value.bound
            else:
                bound, error = bound + value.bound, error + value.error
        return Value("", type.dtype, (), bound, error, all(v.integral for v in read))

    def rounded(
        self, type: TensorType, bound: float, error: float, integral: bool, steps: int = 1
    ) -> Value | None:
        """A result after `steps` roundings; None if it may overflow."""
        dtype = type.dtype
        if not dtype.is_float:
            return Value("", dtype, type.shape, min(bound, 2.0**dtype.bits))
        if bound > _LARGEST[dtype]:
            return None
        if not integral or error or bound > _EXACT[dtype]:
            error += (steps + 4) * unit_roundoff(dtype) * bound + 1e-30
        if error > bound / 4:
            return None
        return Value("", dtype, type.shape, bound, error, integral and error == 0)

    # Elementwise statements

    def elementwise(self, name: str) -> tuple[str, Value] | None:
        main = self.tensor()
        made = _Expressions(self, main).make(self.number(1, 3))
        if made is None:
            return None
        statement = f"{name} = {made.name};"
        type = self.typed(statement, name)
        if type is None or math.prod(type.shape) > _VOLUME:
            return None
        assert type.dtype is made.dtype, f"{statement}: expected {made.dtype}, found {type}"
        return statement, replace(made, name=name, shape=type.shape)


class _Expressions(_Random):
    """Elementwise expressions around a main tensor; the name of a Value is its text."""

    def __init__(self, maker: _Maker, main: Value) -> None:
        super().__init__(maker.rng)
        self.maker = maker
        self.main = main

    def make(self, depth: int) -> Value | None:
        if depth == 0:
            return self.main if self.chance(0.6) else self.other()
        value = self.make(depth - 1)
        if value is None:
            return None
        if value.dtype is DType.BOOL:
            return self.on_bool(value)
        if self.chance(0.15):
            return self.cast(value)
        if self.chance(0.15) and value.sharp:
            return self.select(value)
        return self.on_float(value) if value.dtype.is_float else self.on_integer(value)

    def other(self) -> Value:
        """A tensor that broadcasts against the main one."""
        fitting = []
        for value in self.maker.tensors:
            try:
                shape = np.broadcast_shapes(value.shape, self.main.shape)
            except ValueError:
                continue
            if math.prod(shape) <= _VOLUME and shape == self.main.shape:
                fitting.append(value)
        others = [v for v in fitting if v is not self.main]
        return self.pick(others if others and self.chance(0.8) else fitting)

    def partner(self, dtype: DType) -> Value:
        """A second operand of this type."""
        value = self.other()
        if value.dtype is dtype:
            return value
        if not dtype.is_float or self.chance(0.3):
            literal = self.number(0 if not dtype.is_signed else 1, 3)
            return Value(str(literal), dtype, (), float(literal))
        same = [v for v in self.maker.tensors if v.dtype is dtype and v.shape == self.main.shape]
        return self.pick(same) if same else Value("2", dtype, (), 2.0)

    def result(self, text: str, dtype: DType, bound: float, error: float, integral: bool) -> Value | None:
        value = self.maker.rounded(TensorType(dtype, self.main.shape), bound, error, integral)
        return None if value is None else replace(value, name=text)

    def on_bool(self, value: Value) -> Value | None:
        a = value.name
        if self.chance(0.5):
            return self.cast(value)
        other = self.partner(DType.BOOL)
        if other.name.isdigit() or self.chance(0.3):
            return replace(value, name=f"~({a})")
        return replace(value, name=f"({a} {self.pick('&|^')} {other.name})")

    def on_integer(self, value: Value) -> Value | None:
        dtype, a = value.dtype, value.name
        b = self.partner(dtype)
        wide = 2.0**dtype.bits
        pattern, bound = self.pick(
            [
                ("({a} + {b})", value.bound + b.bound),
                ("({a} - {b})", value.bound + b.bound if dtype.is_signed else wide),
                ("({a} * {b})", value.bound * b.bound),
                ("max({a}, {b})", max(value.bound, b.bound)),
                ("min({a}, {b})", max(value.bound, b.bound)),
                ("({a} & {b})", wide),
                ("({a} | {b})", wide),
                ("({a} ^ {b})", wide),
                ("(~{a})", wide),
                ("(-{a})", value.bound if dtype.is_signed else wide),
                ("abs({a})", value.bound),
                ("floordiv({a}, {b})", wide),
                ("mod({a}, {b})", wide),
                ("({a} << 2)", wide),
                ("({a} >> 1)", value.bound),
                ("relu({a})", value.bound),
                ("pow({a}, 3)", value.bound**3 if value.bound < 1e9 else wide),
            ]
        )
        if b.name.startswith("-") and pattern.startswith("floordiv"):
            return None
        text = pattern.format(a=a, b=b.name)
        return Value(text, dtype, self.main.shape, bound if bound < wide / 2 else wide)

    def on_float(self, value: Value) -> Value | None:
        dtype, a = value.dtype, value.name
        b = self.partner(dtype)
        bound, error = value.bound, value.error
        both = value.integral and b.integral
        sums = (bound + b.bound, error + b.error, both)
        most = (max(bound, b.bound), max(error, b.error), both)
        patterns: list[tuple[str, float, float, bool]] = [
            ("({a} + {b})", *sums),
            ("({a} - {b})", *sums),
            ("({a} * {b})", bound * b.bound, error * (b.bound + b.error) + bound * b.error, both),
            ("max({a}, {b})", *most),
            ("min({a}, {b})", *most),
            ("(-{a})", bound, error, value.integral),
            ("abs({a})", bound, error, value.integral),
            ("relu({a})", bound, error, value.integral),
            ("({a} * 0.5)", bound / 2, error / 2, False),
            ("({a} / 3)", bound / 3, error / 3, False),
            ("({a} / (abs({b}) + 1))", bound, error + bound * b.error, False),
            ("sin({a})", 1.0, error, False),
            ("cos({a})", 1.0, error, False),
            ("tanh({a})", 1.0, error, False),
            ("atan({a})", 1.6, error, False),
            ("sigmoid({a})", 1.0, error, False),
            ("erf({a})", 1.0, 1.2 * error, False),
            ("log(abs({a}) + 1)", math.log1p(bound) + 1e-3, error, False),
            ("sqrt(abs({a}) + 1)", math.sqrt(bound + 1), error, False),
        ]
        if bound <= 4:
            patterns.append(("exp({a})", math.exp(bound), math.exp(bound) * math.expm1(error), False))
        if value.sharp:
            rounding = self.pick(("floor", "ceil", "round", "trunc"))
            patterns.append((f"{rounding}({{a}})", bound + 1, 0.0, bound < _EXACT[dtype] / 2))
        pattern, bound, error, integral = self.pick(patterns)
        # A narrow elementary function of an argument that is off by a unit is off by its slope.
        return self.result(pattern.format(a=a, b=b.name), dtype, bound, error, integral)

    def select(self, value: Value) -> Value | None:
        """A comparison, or a choice by one."""
        b = self.partner(value.dtype)
        if not b.sharp:
            return None
        comparison = f"{value.name} {self.pick(('<', '<=', '>', '>=', '==', '!='))} {b.name}"
        if self.chance(0.4):
            return Value(f"({comparison})", DType.BOOL, self.main.shape, 1.0)
        c = self.partner(value.dtype)
        text = f"(({comparison}) ? {value.name} : {c.name})"
        return replace(
            value, name=text, bound=max(value.bound, c.bound), error=max(value.error, c.error),
            integral=value.integral and c.integral,
        )  # fmt: skip

    def cast(self, value: Value) -> Value | None:
        target = self.pick([d for d in DType if d is not DType.BOOL])
        if target.is_integer and not value.sharp:
            return None
        function = {"i": "as_int", "u": "as_uint", "f": "as_float", "b": "as_bfloat"}[target.value[0]]
        text = f"{function}({value.name}, {target.bits})"
        if target.is_integer:
            fits = value.bound < 2.0 ** (target.bits - 1) and target.is_signed
            return Value(text, target, self.main.shape, value.bound if fits else 2.0**target.bits)
        return self.result(text, target, value.bound, value.error, value.integral)
