"""What it takes to run a program: its object code, and what its functions are called with.

A `Native` can be kept on disk under the name of what the program was compiled from, so that another
process finds it without compiling: a note says what the functions take, and names the entry
of the object code (codegen_cpu.cache).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from codegen_cpu import cache as disk
from codegen_cpu.target import Target
from hwconfigs.model import HwConfig
from stripe.dtypes import DType
from stripe.ir import Direction, Refinement


@dataclass(frozen=True, slots=True)
class Entry:
    """A function that runs one root block: its symbol, its tensors in order, its workspace."""

    symbol: str
    tensors: tuple[Refinement, ...]
    workspace_bytes: int

    @property
    def in_workspace(self) -> str:
        """The symbol of the variant that takes its workspace from the caller."""
        return f"{self.symbol}_in_workspace"

    @property
    def packed(self) -> str:
        """The symbol of the variant that takes an array of its arguments."""
        return f"{self.symbol}_packed"


@dataclass(frozen=True, slots=True)
class Native:
    """`load_entry` is the load-time program, which runs once, ahead of the other. `is_parallel`: it runs on
    several threads, and needs an OpenMP runtime. `is_short`: one run is over at once."""

    hw: HwConfig
    target: Target
    object_code: bytes
    entry: Entry
    load_entry: Entry | None
    is_parallel: bool
    is_short: bool

    @property
    def inputs(self) -> tuple[Refinement, ...]:
        return tuple(r for r in self.entry.tensors if r.direction is Direction.IN)

    @property
    def outputs(self) -> tuple[Refinement, ...]:
        return tuple(r for r in self.entry.tensors if r.direction.writes)


class _Tensor(msgspec.Struct, array_like=True):
    name: str
    direction: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    const: bool

    @staticmethod
    def of(ref: Refinement) -> _Tensor:
        return _Tensor(
            ref.name, ref.direction.value, ref.dtype.value, ref.shape, ref.strides or (), ref.const
        )

    def refinement(self) -> Refinement:
        return Refinement(
            Direction(self.direction), self.name, self.shape, DType(self.dtype), strides=self.strides,
            const=self.const,
        )  # fmt: skip


class _Note(msgspec.Struct, array_like=True):
    code: str  # the entry of the object code
    symbol: str
    tensors: list[_Tensor]
    load: list[_Tensor] | None
    is_parallel: bool
    is_short: bool


def keep(folder: Path, name: str, native: Native, code: str) -> None:
    """Add a note, if the folder can be written; `code` is the entry of the object code."""
    load = native.load_entry
    note = _Note(
        code,
        native.entry.symbol,
        [_Tensor.of(ref) for ref in native.entry.tensors],
        None if load is None else [_Tensor.of(ref) for ref in load.tensors],
        native.is_parallel,
        native.is_short,
    )
    disk.keep_note(folder, name, msgspec.msgpack.encode(note))


def find(folder: Path, name: str, hw: HwConfig) -> Native | None:
    """What was kept, if note and object code are there and whole; `hw` is the target that it was made for."""
    data = disk.find_note(folder, name)
    if data is None:
        return None
    try:
        note = msgspec.msgpack.decode(data, type=_Note)
        tensors = tuple(tensor.refinement() for tensor in note.tensors)
        load = None if note.load is None else tuple(tensor.refinement() for tensor in note.load)
    except (msgspec.MsgspecError, ValueError):
        return None
    code = disk.find(folder, note.code)
    if code is None:
        return None
    return Native(
        hw,
        Target.of(hw),
        code.object_code,
        Entry(note.symbol, tensors, code.workspace_bytes),
        None if load is None else Entry(f"{note.symbol}_load", load, code.load_workspace_bytes),
        note.is_parallel,
        note.is_short,
    )
