"""Small random Stripe programs that run: nests with every direction, aggregation and constraint.

Not all obey the verifier (an `assign` may meet two points, a buffer may be read too early): the
interpreter has to say so. All stay inside their buffers, and all compute on small integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Constant,
    Constraint,
    Direction,
    Index,
    IndexValue,
    Intrinsic,
    Load,
    Program,
    Refinement,
    Statement,
    Store,
    contiguous,
)

Shape = tuple[int, ...]
_OPS = tuple(Aggregation)


def random_program(rng: np.random.Generator) -> Program:
    """A program with an input A and an output O, both i32: a fill of O, then random kernels."""
    return _Maker(rng).program()


@dataclass
class _Maker:
    rng: np.random.Generator
    count: int = 0

    def program(self) -> Program:
        a, o = self.shape(2, 5), self.shape(2, 5)
        refs = (
            Refinement(Direction.IN, "A", a, DType.I32, "A", _zeros(a), strides=contiguous(a)),
            Refinement(
                Direction.OUT, "O", o, DType.I32, "O", _zeros(o), Aggregation.ASSIGN, strides=contiguous(o)
            ),
        )
        kernels = [self.block({"A": a}, {"O": o}, {}, depth) for depth in self.rng.integers(0, 3, 2)]
        return Program(Block("main", refinements=refs, statements=(self.fill("O", o), *kernels)))

    def shape(self, low: int, high: int) -> Shape:
        return tuple(int(n) for n in self.rng.integers(low, high + 1, self.rng.integers(1, 3)))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def fill(self, buffer: str, shape: Shape) -> Block:
        indexes = tuple(Index(f"z{d}", n) for d, n in enumerate(shape))
        access = tuple(Affine.index(i.name) for i in indexes)
        ref = Refinement(
            Direction.OUT, buffer, (1,) * len(shape), DType.I32, buffer, access, Aggregation.ASSIGN
        )
        value = Constant("z", int(self.rng.integers(-3, 4)), DType.I32)
        return Block(self.name("fill"), indexes, (), (ref,), (value, Store(buffer, "z")))

    def block(
        self, readable: dict[str, Shape], writable: dict[str, Shape], outer: dict[str, int], depth: int
    ) -> Block:
        """A block that reads all of `readable` and writes all of `writable`; `outer` are ranges."""
        own = {self.name("i"): int(self.rng.integers(1, 4)) for _ in range(self.rng.integers(0, 3))}
        indexes = [Index(name, size) for name, size in own.items()]
        bounds = {name: (0, size - 1) for name, size in own.items()}
        if outer and self.chance(0.6):
            passed = Affine.index(str(self.rng.choice(list(outer))), int(self.rng.integers(1, 3)))
            passed = passed + int(self.rng.integers(-1, 2))
            index = Index(self.name("p"), 1, passed)
            indexes.append(index)
            bounds[index.name] = passed.bounds({n: (0, s - 1) for n, s in outer.items()})
        self.rng.shuffle(indexes)
        refs = [self.view(Direction.IN, n, s, bounds, depth) for n, s in readable.items()]
        for name, shape in writable.items():
            direction = Direction.INOUT if self.chance(0.25) else Direction.OUT
            refs.append(self.view(direction, name, shape, bounds, depth))
        statements: list[Statement] = []
        if depth == 0:
            statements = self.leaf(refs, bounds)
        else:
            inside = {r.name: r.shape for r in refs if r.direction is Direction.IN}
            outside = {r.name: r.shape for r in refs if r.direction.writes}
            if self.chance(0.5):
                new = self.shape(1, 3)
                refs.append(
                    Refinement(Direction.NEW, temp := self.name("T"), new, DType.I32, strides=contiguous(new))
                )
                if self.chance(0.7):
                    statements.append(self.fill(temp, new))
                statements.append(self.block(inside, {temp: new}, own, depth - 1))
                inside = {temp: new}
            statements += [
                self.block(inside, outside, own, depth - 1) for _ in range(self.rng.integers(1, 3))
            ]
        constraints = (Constraint(self.affine(bounds)),) if bounds and self.chance(0.4) else ()
        return Block(self.name("b"), tuple(indexes), constraints, tuple(refs), tuple(statements))

    def affine(self, bounds: dict[str, tuple[int, int]]) -> Affine:
        terms = {name: int(self.rng.integers(-2, 3)) for name in bounds}
        return Affine.of(terms, int(self.rng.integers(-1, 3)))

    def view(
        self,
        direction: Direction,
        name: str,
        shape: Shape,
        bounds: dict[str, tuple[int, int]],
        depth: int,
    ) -> Refinement:
        """A random view that stays inside; single elements for a leaf."""
        access: list[Affine] = []
        extent: list[int] = []
        for size in shape:
            terms = {n: int(self.rng.choice((0, 0, 1, 1, 2, -1))) for n in bounds}
            expr = Affine.of(terms)
            low, high = expr.bounds(bounds)
            if high - low >= size:
                expr, low, high = Affine(), 0, 0
            expr = expr - low + int(self.rng.integers(0, size - (high - low)))
            top = expr.bounds(bounds)[1]
            access.append(expr)
            extent.append(1 if depth == 0 else size - top)
        op = self.rng.choice(np.array(_OPS, object)) if direction.writes else None
        return Refinement(direction, name, tuple(extent), DType.I32, name, tuple(access), op)

    def leaf(self, refs: list[Refinement], bounds: dict[str, tuple[int, int]]) -> list[Statement]:
        value = self.name("v")
        statements: list[Statement] = [IndexValue(value, self.affine(bounds), DType.I32)]
        for ref in refs:
            assigned_inout = ref.direction is Direction.INOUT and ref.aggregation is Aggregation.ASSIGN
            if ref.direction is Direction.IN or assigned_inout:
                loaded, result = self.name("v"), self.name("v")
                statements.append(Load(loaded, ref.name, DType.I32))
                op = str(self.rng.choice(("add", "mul", "max", "sub")))
                statements.append(Intrinsic(result, op, (value, loaded), DType.I32))
                value = result
            if ref.direction.writes:
                statements.append(Store(ref.name, value))
        return statements


def _zeros(shape: Shape) -> tuple[Affine, ...]:
    return tuple(Affine() for _ in shape)
