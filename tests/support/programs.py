"""Random Stripe programs that are valid, from an integer: for plain loops and for hypothesis.

How they come to be valid:
- A kernel starts flat, over a few dozen points. Every access is either drawn so that its range
  fits the buffer, or fenced in by constraints. All points are then enumerated.
- `assign` is only used where the enumeration finds one writing point for each element; at the
  levels of a nest likewise (tests.support.nests).
- Every tensor is written whole before it is read: where the kernel's points leave elements out,
  a fill block comes first. The outputs of the root are written whole for the same reason.
- A buffer that a kernel aggregates into is not read by it. Nesting is tiling: it keeps the
  meaning by construction.
- All arithmetic is exact (tests.support.scalars), so results of any executor compare bit for
  bit, but for the sign of float zeros, given inputs from `random_inputs`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from stripe.affine import Affine
from stripe.diag import Source
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Constraint,
    Direction,
    Index,
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
from stripe.parser import parse
from stripe.visit import map_blocks
from tests.support.nests import Ints, Points, all_points, evaluated, nest, numbered, some_strides
from tests.support.scalars import INPUT_BOUND, ScalarCode, Value, aggregated_bound, aggregations, largest

_MAX_POINTS = 600
_CORPUS = Path(__file__).parents[1] / "golden" / "corpus"
_INDEX_NAMES = ("m", "n", "k", "x", "y", "i", "j", "c")


@dataclass(frozen=True)
class Options:
    """What the programs may contain."""

    max_kernels: int = 4
    max_depth: int = 3
    dtypes: tuple[DType, ...] = tuple(DType)
    inout: bool = True  # blocks that read what they replace or add to
    specials: bool = True  # gather and scatter
    tags: bool = True  # vector and unroll on leaf blocks, tiled on outer ones
    new_in_leaves: bool = True  # scalars that go through a new buffer of the leaf
    load_time: bool = False  # a load-time program that makes an input from a const one


@dataclass(frozen=True)
class _Tensor:
    name: str
    dtype: DType
    shape: tuple[int, ...]
    bound: int


@dataclass(frozen=True)
class _Read:
    tensor: _Tensor
    access: tuple[Affine, ...]


def make_program(seed: int, options: Options = Options()) -> Program:
    """The valid program of a seed: always the same one for the same options."""
    return _Maker(random.Random(seed), options).program()


def programs(options: Options = Options()) -> st.SearchStrategy[Program]:
    """Valid programs, for hypothesis."""
    return st.integers(0, 2**32 - 1).map(lambda seed: make_program(seed, options))


def random_inputs(program: Program, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Small integers for every input of the root that a caller has to give, by name."""
    load = () if program.load is None else program.load.refinements
    made = {ref.name for ref in load if ref.direction.writes}
    return {ref.name: _random_input(ref, rng) for ref in program.inputs if ref.name not in made}


def _random_input(ref: Refinement, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    low = -INPUT_BOUND if ref.dtype.is_signed else 0
    return rng.integers(low, INPUT_BOUND + 1, size=ref.shape).astype(ref.dtype.numpy)


def corpus() -> dict[str, Program]:
    """The hand-written programs of tests/golden/corpus, by name. They are valid."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(_CORPUS.glob("*.stripe"))}
    return {name: parse(Source(f"{name}.stripe", text)) for name, text in texts.items()}


class _Maker:
    def __init__(self, rng: random.Random, options: Options) -> None:
        self._rng = rng
        self._options = options
        # Apart, so that programs that differ in `max_depth` or `tags` alone compute the same.
        self._shaping = random.Random(rng.getrandbits(32))
        self._names = Names()
        self._inputs: list[_Tensor] = []
        self._made: list[_Tensor] = []
        self._statements: list[Statement] = []

    def program(self) -> Program:
        rng, options = self._rng, self._options
        self._inputs += [self._new_tensor("A", INPUT_BOUND) for _ in range(rng.randint(1, 3))]
        load = self._load_time() if options.load_time else None
        kinds: list[Callable[[], None]] = [self._kernel] * 4
        kinds += [self._in_place, self._accumulate] if options.inout else []
        kinds += [self._gather, self._scatter] if options.specials else []
        for _ in range(rng.randint(1, options.max_kernels)):
            rng.choice(kinds)()
        if not self._made:
            self._kernel()
        root = self._finished("main", self._inputs, keep_some=True)
        return Program(root, load)

    def _finished(self, name: str, inputs: Sequence[_Tensor], keep_some: bool) -> Block:
        """A root block of the statements so far: some results are outputs, the others new."""
        rng = self._rng
        is_output = [not keep_some or rng.random() < 0.3 for _ in self._made]
        is_output[-1] = True
        outputs = [t for t, out in zip(self._made, is_output, strict=True) if out]
        buffers = [t for t, out in zip(self._made, is_output, strict=True) if not out]
        refinements = [_root_view(t, Direction.IN) for t in inputs]
        refinements += [_root_view(t, Direction.OUT) for t in outputs]
        refinements += [
            Refinement(Direction.NEW, t.name, t.shape, t.dtype, strides=some_strides(t.shape, rng))
            for t in buffers
        ]
        block = Block(name, refinements=tuple(refinements), statements=tuple(self._statements))
        return map_blocks(block, self._tagged) if self._options.tags else block

    def _load_time(self) -> Block:
        """A program that makes a tensor from a const input, which then counts as an input."""
        source = self._new_tensor("W", INPUT_BOUND)
        inputs, self._inputs = self._inputs, [source]
        self._kernel()
        block = self._finished("prepare", [source], keep_some=False)
        self._inputs = [*inputs, source, *self._made]
        self._made, self._statements = [], []
        return block

    def _tagged(self, block: Block) -> Block | None:
        ranged = list(block.ranges)
        if block.children or not ranged or block.name in ("main", "prepare"):
            return None
        rng = self._shaping
        tags = [Tag(name, rng.choice(ranged)) for name in ("vector", "unroll") if rng.random() < 0.3]
        return replace(block, tags=tuple(tags)) if tags else None

    # Tensors and accesses

    def _new_tensor(self, name: str, bound: int, shape: tuple[int, ...] | None = None) -> _Tensor:
        rng = self._rng
        if shape is None:
            shape = tuple(rng.randint(1, 5) for _ in range(rng.randint(0, 3)))
        dtype = rng.choice(self._options.dtypes)
        return _Tensor(self._names.fresh(name), dtype, shape, min(bound, largest(dtype)))

    def _any_tensor(self) -> _Tensor:
        return self._rng.choice(self._inputs + self._made)

    def _output_access(
        self, shape: tuple[int, ...], indexes: list[Index], fences: list[Affine]
    ) -> tuple[Affine, ...]:
        """One index for each dimension, forwards or backwards, or two of a split dimension."""
        rng = self._rng
        access: list[Affine] = []
        for size in shape:
            if size == 1 and rng.random() < 0.5:
                access.append(Affine())
                continue
            if size > 2 and rng.random() < 0.2:
                part = rng.randint(2, size - 1)
                expr = self._fresh_index(-(-size // part), indexes) * part + self._fresh_index(part, indexes)
                fences += [-expr + (size - 1)] if size % part else []
            else:
                expr = self._fresh_index(size, indexes)
            access.append(expr if rng.random() < 0.8 else -expr + (size - 1))
        return tuple(access)

    @staticmethod
    def _fresh_index(size: int, indexes: list[Index]) -> Affine:
        name = Names(i.name for i in indexes).fresh(_INDEX_NAMES[len(indexes) % len(_INDEX_NAMES)])
        indexes.append(Index(name, size))
        return Affine.index(name)

    def _input_access(self, size: int, indexes: list[Index], fences: list[Affine] | None) -> Affine:
        """An expression for one dimension; where it does not fit the size, fences keep it in."""
        rng = self._rng
        box = {i.name: (0, i.range - 1) for i in indexes}
        expr = Affine()
        for index in rng.sample(indexes, min(len(indexes), rng.choice((0, 1, 1, 1, 2)))):
            expr += Affine.index(index.name, rng.choice((1, 1, 1, 2, -1, -2)))
        low, high = expr.bounds(box)
        if high - low < size:
            return expr + (rng.randint(0, size - 1 - (high - low)) - low)
        if fences is None:
            return Affine(rng.randint(0, size - 1))
        expr += rng.randint(-1, 1) - (low if rng.random() < 0.7 else 0)
        fences += [expr, -expr + (size - 1)]
        return expr

    # Kernels

    def _kernel(self) -> None:
        """A block that makes a tensor, filled first where it does not reach."""
        self._contract(self._new_tensor("T", 0), Direction.OUT)

    def _in_place(self) -> None:
        """A block that replaces each element of a tensor by a function of it."""
        if not self._made:
            self._kernel()
            return
        at = self._rng.randrange(len(self._made))
        target = self._made[at]
        indexes: list[Index] = []
        fences: list[Affine] = []
        access = self._output_access(target.shape, indexes, fences)
        reads = [_Read(target, access), *self._reads(indexes, None, target, 1)]
        block, bound = self._leaf(target, access, indexes, fences, reads, Direction.INOUT, 1)
        values = all_points(block.indexes, fences)
        self._emit(block, values, target, access, {})
        self._made[at] = replace(target, bound=max(bound, target.bound))

    def _accumulate(self) -> None:
        """A block that aggregates into what a tensor holds."""
        if not self._made:
            self._kernel()
            return
        target = self._rng.choice(self._made)
        self._made.remove(target)
        self._contract(target, Direction.INOUT)

    def _contract(self, target: _Tensor, direction: Direction) -> None:
        rng = self._rng
        for attempt in range(20):
            indexes: list[Index] = []
            fences: list[Affine] = []
            access = self._output_access(target.shape, indexes, fences)
            for _ in range(rng.randint(0, 2) if attempt < 10 else 0):
                self._fresh_index(rng.randint(1, 3), indexes)
            reads = self._reads(indexes, fences if attempt < 10 else None, target, 3)
            if len(indexes) > 1 and rng.random() < 0.3 and attempt < 10:
                first, second = rng.sample([i.name for i in indexes], 2)
                fences.append(Affine.of({first: rng.choice((1, -1, 2)), second: -1}, rng.randint(0, 2)))
            if np.prod([i.range for i in indexes], dtype=int) > _MAX_POINTS:
                continue
            rng.shuffle(indexes)
            values = all_points(indexes, fences)
            count = _count(values)
            if count:
                break
        else:
            raise AssertionError("without fences every point is feasible")
        element = _elements(access, values, count)
        writes = int(np.bincount(element).max())
        block, bound = self._leaf(target, access, indexes, fences, reads, direction, writes)
        covered = len(np.unique(element)) == int(np.prod(target.shape, dtype=int))
        if direction is Direction.OUT and not covered:
            bound = max(bound, self._fill(target))
        one_each = aggregations(target.dtype, bound, 1) if direction is Direction.OUT else []
        self._emit(block, values, target, access, {target.name: one_each})
        self._made.append(replace(target, bound=max(bound, target.bound)))

    def _reads(
        self, indexes: list[Index], fences: list[Affine] | None, target: _Tensor, most: int
    ) -> list[_Read]:
        others = [t for t in self._inputs + self._made if t.name != target.name]
        chosen = [self._rng.choice(others) for _ in range(self._rng.randint(0, most))] if others else []
        return [_Read(t, tuple(self._input_access(s, indexes, fences) for s in t.shape)) for t in chosen]

    def _leaf(
        self, target: _Tensor, access: tuple[Affine, ...], indexes: list[Index], fences: list[Affine],
        reads: list[_Read], direction: Direction, writes: int,
    ) -> tuple[Block, int]:  # fmt: skip
        """The flat block, and a bound on what it leaves in the target."""
        rng = self._rng
        code = ScalarCode(rng)
        local = Names([target.name])
        in_place = any(read.tensor is target for read in reads)
        refinements: list[Refinement] = []
        values: list[Value] = []
        for read in reads:
            tensor, name = read.tensor, target.name
            if tensor is not target:
                name = local.fresh(tensor.name)
                ones = (1,) * len(tensor.shape)
                view = Refinement(Direction.IN, name, ones, tensor.dtype, tensor.name, read.access)
                refinements.append(view)
            values.append(code.load(name, tensor.dtype, tensor.bound))
        if indexes and rng.random() < 0.2:
            index = rng.choice(indexes)
            values.append(code.index(Affine.index(index.name, 2) - 1, 2 * index.range))
        result = code.combined(values, target.dtype)
        ops = [Aggregation.ASSIGN] if writes == 1 and (in_place or rng.random() < 0.5) else []
        old = target.bound if direction is Direction.INOUT and not in_place else 0
        held = max(result.bound, old)
        total = writes + (1 if old else 0)
        if not ops:
            ops = aggregations(target.dtype, held, total)
        op = rng.choice(ops)
        if self._options.new_in_leaves and rng.random() < 0.15:
            result = self._through_buffer(code, result, local, refinements)
        code.statements.append(Store(target.name, result.name))
        ones = (1,) * len(target.shape)
        view = Refinement(direction, target.name, ones, target.dtype, target.name, access, op)
        block = Block(
            local.fresh(f"{target.name.lower()}_{op.value}"), tuple(indexes), tuple(map(Constraint, fences)),
            (*refinements, view), tuple(code.statements),
        )  # fmt: skip
        return block, min(aggregated_bound(op, held, total), largest(target.dtype))

    @staticmethod
    def _through_buffer(code: ScalarCode, value: Value, local: Names, refinements: list[Refinement]) -> Value:
        """Store the value in a new buffer of the block and load it again."""
        name = local.fresh("held")
        refinements.append(Refinement(Direction.NEW, name, (1,), value.dtype, strides=(1,)))
        code.statements.append(Store(name, value.name))
        return code.load(name, value.dtype, value.bound)

    def _emit(
        self, block: Block, values: dict[str, Ints], target: _Tensor, access: tuple[Affine, ...],
        ops: dict[str, list[Aggregation]],
    ) -> None:  # fmt: skip
        """Nest the block to some depth and add it to the root."""
        count = _count(values)
        written = {target.name: _elements(access, values, count)}
        points = Points(values, np.zeros(count, dtype=np.int64), written)
        depth = self._shaping.randint(1, self._options.max_depth)
        self._statements.append(nest(block, points, depth, self._shaping, ops))

    def _fill(self, target: _Tensor) -> int:
        """A block that writes one constant to every element; the magnitude of the constant."""
        indexes: list[Index] = []
        access = tuple(self._fresh_index(size, indexes) for size in target.shape)
        code = ScalarCode(self._rng)
        value = code.constant(target.dtype)
        ones = (1,) * len(target.shape)
        view = Refinement(
            Direction.OUT, target.name, ones, target.dtype, target.name, access, Aggregation.ASSIGN
        )
        statements = (*code.statements, Store(target.name, value.name))
        name = f"{target.name.lower()}_fill"
        self._statements.append(Block(name, tuple(indexes), (), (view,), statements))
        return value.bound

    # Specials

    def _index_tensor(self) -> _Tensor:
        shape = tuple(self._rng.randint(1, 3) for _ in range(self._rng.randint(1, 2)))
        dtype = self._rng.choice((DType.I32, DType.I64))
        tensor = _Tensor(self._names.fresh("I"), dtype, shape, INPUT_BOUND)
        self._inputs.append(tensor)
        return tensor

    def _gather(self) -> None:
        data = self._any_tensor()
        if not data.shape:
            self._kernel()
            return
        index, axis = self._index_tensor(), self._rng.randrange(len(data.shape))
        shape = (*data.shape[:axis], *index.shape, *data.shape[axis + 1 :])
        result = _Tensor(self._names.fresh("G"), data.dtype, shape, data.bound)
        operands = (
            Operand(Direction.IN, data.name),
            Operand(Direction.IN, index.name),
            Operand(Direction.OUT, result.name, Aggregation.ASSIGN),
        )
        self._statements.append(Special("gather", operands, (("axis", axis),)))
        self._made.append(result)

    def _scatter(self) -> None:
        """Aggregate a tensor made for it into one that was made before."""
        targets = [t for t in self._made if t.shape]
        if not targets:
            self._kernel()
            return
        base = self._rng.choice(targets)
        index, axis = self._index_tensor(), self._rng.randrange(len(base.shape))
        shape = (*base.shape[:axis], *index.shape, *base.shape[axis + 1 :])
        updates = _Tensor(self._names.fresh("U"), base.dtype, shape, 0)
        self._contract(updates, Direction.OUT)
        writes = int(np.prod(index.shape, dtype=int)) + 1
        bound = max(base.bound, self._made[-1].bound)
        op = self._rng.choice([Aggregation.ASSIGN, *aggregations(base.dtype, bound, writes)])
        operands = (
            Operand(Direction.IN, updates.name),
            Operand(Direction.IN, index.name),
            Operand(Direction.INOUT, base.name, op),
        )
        self._statements.append(Special("scatter", operands, (("axis", axis),)))
        at = next(i for i, t in enumerate(self._made) if t.name == base.name)
        self._made[at] = replace(base, bound=min(aggregated_bound(op, bound, writes), largest(base.dtype)))


def _root_view(tensor: _Tensor, direction: Direction) -> Refinement:
    return Refinement(
        direction, tensor.name, tensor.shape, tensor.dtype, tensor.name, (Affine(),) * len(tensor.shape),
        Aggregation.ASSIGN if direction.writes else None, contiguous(tensor.shape),
        const=direction is Direction.IN and tensor.name.startswith("W"),
    )  # fmt: skip


def _count(values: dict[str, Ints]) -> int:
    return len(next(iter(values.values()))) if values else 1


def _elements(access: tuple[Affine, ...], values: dict[str, Ints], count: int) -> Ints:
    """A number for the element that each point writes."""
    columns = [evaluated(expr, values, count) for expr in access]
    return numbered(*columns) if columns else np.zeros(count, dtype=np.int64)
