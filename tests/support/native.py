"""Native code in tests: targets that this machine runs, programs of one block, guarded memory."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np

from codegen_cpu.build import build
from codegen_cpu.host import check_runs_here, complete_host, host_target_name
from codegen_cpu.kernel import NativeKernel
from hwconfigs.load import available, load_named
from hwconfigs.model import HwConfig
from stripe.affine import Affine
from stripe.diag import CompileError
from stripe.dtypes import DType
from stripe.ir import (
    Aggregation,
    Block,
    Cast,
    Direction,
    Index,
    Intrinsic,
    Load,
    Program,
    Refinement,
    Statement,
    Store,
    Tag,
)
from stripe.visit import map_program

Array = np.ndarray[Any, Any]

TWO_OUTPUTS = """
block main [] (in A[0] i32(3):(1)  out B[0]:assign i32(3):(1)  out C[0]:assign i32(3):(1)) {
  block copy [n:3] (in A[n] i32(1)  out B[n]:assign i32(1)  out C[2 - n]:assign i32(1)) {
    $a = load(A) i32
    B = store($a)
    C = store($a)
  }
}
"""
LOAD_TIME = """
load block prepare [] (const in W[0] f32(4):(1)  out P[0]:assign f32(4):(1)) {
  block turn [n:4] (in W[n] f32(1)  out P[3 - n]:assign f32(1)) {
    $w = load(W) f32
    P = store($w)
  }
}

block main [] (const in W[0] f32(4):(1)  in P[0] f32(4):(1)  in A[0] f32(4):(1)  out B[0]:assign f32(4):(1)) {
  block product [n:4] (in A[n] f32(1)  in P[n] f32(1)  out B[n]:assign f32(1)) {
    $a = load(A) f32
    $p = load(P) f32
    $b = mul($a, $p) f32
    B = store($b)
  }
}
"""


@cache
def host() -> HwConfig:
    """The config of this machine."""
    return complete_host(load_named(host_target_name()))


@cache
def runnable() -> tuple[HwConfig, ...]:
    """The shipped configs whose code this machine can run, and its own."""
    found = [host()]
    for name in available():
        hw = load_named(name)
        if hw.executor == "cpu":
            try:
                check_runs_here(hw)
            except CompileError:
                continue
            found.append(hw)
    return tuple(found)


def with_lines(hw: HwConfig, line_bytes: int) -> HwConfig:
    """The target with caches that have lines of so many bytes."""
    memories = (msgspec.structs.replace(m, line_bytes=line_bytes) for m in hw.memories)
    return msgspec.structs.replace(hw, memories=tuple(memories))


def run(program: Program, inputs: Mapping[str, Array], hw: HwConfig | None = None) -> dict[str, Array]:
    """The outputs by name."""
    kernel = NativeKernel(build(program, hw or host()))
    results = kernel(**inputs)
    results = results if isinstance(results, tuple) else (results,)
    return dict(zip(kernel.outputs, results, strict=True))


def without_tags(program: Program) -> Program:
    return map_program(program, lambda block: replace(block, tags=()) if block.tags else None)


def elementwise(
    functions: Mapping[str, tuple[str, Sequence[DType], DType]], size: int, vector: bool
) -> Program:
    """One block for each function, over tensors of one dimension.

    `functions`: output name -> (intrinsic or "cast", types of the operands, type of the result).
    Operand number d of type T is the input `T_d`.
    """
    inputs: dict[str, DType] = {}
    outputs: list[Refinement] = []
    blocks: list[Block] = []
    for name, (op, operands, dtype) in functions.items():
        named = [f"{operand.value}_{at}" for at, operand in enumerate(operands)]
        inputs |= dict(zip(named, operands, strict=True))
        outputs.append(_tensor(Direction.OUT, name, dtype, size))
        statements: list[Statement] = [
            Load(f"x{at}", source, operand)
            for at, (source, operand) in enumerate(zip(named, operands, strict=True))
        ]
        if op == "cast":
            statements.append(Cast("y", "x0", dtype))
        else:
            statements.append(Intrinsic("y", op, tuple(f"x{at}" for at in range(len(operands))), dtype))
        statements.append(Store(name, "y"))
        views = [_element(Direction.IN, n, d) for n, d in zip(named, operands, strict=True)]
        tags = (Tag("vector", "n"),) if vector else ()
        views.append(_element(Direction.OUT, name, dtype))
        blocks.append(Block(name, (Index("n", size),), (), tuple(views), tuple(statements), tags=tags))
    tensors = [_tensor(Direction.IN, n, d, size) for n, d in inputs.items()]
    return Program(Block("main", refinements=(*tensors, *outputs), statements=tuple(blocks)))


def _tensor(direction: Direction, name: str, dtype: DType, size: int) -> Refinement:
    how = Aggregation.ASSIGN if direction.writes else None
    return Refinement(direction, name, (size,), dtype, name, (Affine(),), how, (1,))


def _element(direction: Direction, name: str, dtype: DType) -> Refinement:
    how = Aggregation.ASSIGN if direction.writes else None
    return Refinement(direction, name, (1,), dtype, name, (Affine.index("n"),), how)


class Guarded:
    """Memory between two pages that can't be touched: a stray access ends the process.

    `at_end(array)` is a copy that ends where the second page begins, `at_start` one that begins
    where the first ends.
    """

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self._inner = -(-size // page) * page
        self._map = mmap.mmap(-1, self._inner + 2 * page)
        self._bytes = np.frombuffer(self._map, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        address = self._bytes.ctypes.data
        for start in (address, address + page + self._inner):
            if libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(page), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        self._usable = self._bytes[page : page + self._inner]

    def at_end(self, array: Array) -> Array:
        return self._placed(self._usable[self._inner - array.nbytes :], array)

    def at_start(self, array: Array) -> Array:
        return self._placed(self._usable[: array.nbytes], array)

    def _placed(self, memory: Array, array: Array) -> Array:
        view = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view
