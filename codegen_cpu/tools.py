"""The builder of a function together with all that writes to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codegen_cpu.access import SCALAR, Accesses, Lanes, Place
from codegen_cpu.intrinsics import Arithmetic
from codegen_cpu.ll import Function, Value
from codegen_cpu.loops import Indexing
from codegen_cpu.scalars import Scalar
from codegen_cpu.scope import Window
from codegen_cpu.squares import Square
from codegen_cpu.target import Target
from codegen_cpu.tiles import TileCode, TileRegisters, TileUse
from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import Aggregation, Block


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a block, or `lanes` of them; `indexes` are those of lane 0.

    `part` tells apart copies that may use accumulators of their own for one element. `square` is what
    it shares with the others of its square, of which it is number `number`. `steady`: which lanes are on
    depends on where they begin alone, and is the same at every point of one execution of the block.
    """

    indexes: Mapping[str, Affine]
    lanes: Lanes = SCALAR
    part: int = 0
    square: Square | None = None
    number: int = 0
    steady: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    """What writes to one function `f`: index arithmetic, arithmetic, loads and stores."""

    f: Function
    target: Target
    indexing: Indexing
    arithmetic: Arithmetic
    accesses: Accesses
    tiles: TileRegisters

    @staticmethod
    def of(f: Function, target: Target) -> Tools:
        indexing = Indexing(f)
        arithmetic = Arithmetic(f, target.native_half, target.arithmetic)
        streams = min(target.line_bytes, target.vector_bytes)  # narrower vectors fill a line one by one
        accesses = Accesses(f, indexing, streams, target.masked_memory, narrows=target.arithmetic.masks)
        return Tools(f, target, indexing, arithmetic, accesses, TileRegisters(f))

    def tiled(
        self, block: Block, use: TileUse, windows: Mapping[str, Window], passed: Mapping[str, Affine],
        replaces: bool,
    ) -> None:  # fmt: skip
        """A leaf block in registers that hold rows."""
        TileCode(
            self.f, self.indexing, self.accesses, self.tiles, use, block.ranges, windows, passed, replaces
        ).run()

    def load(self, place: Place, lanes: Lanes, dtype: DType) -> Scalar:
        """An element as a scalar of `dtype`, which a register holds as it does the buffer's type."""
        found = self.arithmetic.decode(self.accesses.load(place, lanes), place.buffer.dtype)
        return Scalar(found.value, dtype)

    def put(self, value: Value, place: Place, lanes: Lanes) -> None:
        """Store a value in a register, rounded to the buffer's type."""
        self.accesses.store(self.encoded(value, place.buffer.dtype, lanes), place, lanes)

    def encoded(self, value: Value, dtype: DType, lanes: Lanes) -> Value:
        """What memory holds for a value in a register, in each lane."""
        spread = self.f.splat(value, lanes.width)
        return self.arithmetic.encode(self.arithmetic.rounded(spread, dtype))

    def fold(self, how: Aggregation, scalar: Scalar, place: Place, lanes: Lanes) -> None:
        """Aggregate a scalar into memory. Lanes that share one element are first folded together."""
        self.put(*self.folded(how, scalar, place, lanes))

    def folded(
        self, how: Aggregation, scalar: Scalar, place: Place, lanes: Lanes
    ) -> tuple[Value, Place, Lanes]:
        """What `fold` will put, and where."""
        dtype = place.buffer.dtype
        value = Scalar(scalar.value, dtype)
        if lanes.width and place.step == 0:
            value = self.arithmetic.across(how, Scalar(self.masked(how, value, lanes), dtype))
            lanes = SCALAR
        old = self.load(place, lanes, dtype)
        if how in (Aggregation.MAX, Aggregation.MIN) and not self.arithmetic.machine.masks:
            # A NaN in the first of two is chosen. What memory holds already must not be: LLVM would make a
            # masked store of that choice, which takes Zen cores about 20 cycles.
            old, value = value, old
        return self.arithmetic.combine(how, old, value).value, place, lanes

    def masked(self, how: Aggregation, scalar: Scalar, lanes: Lanes) -> Value:
        """The value in each lane, neutral where the lane is off."""
        value = self.f.splat(scalar.value, lanes.width)
        if lanes.mask is None:
            return value
        return self.f.select(lanes.mask, value, self.arithmetic.neutral(how, scalar.dtype, lanes.width))
