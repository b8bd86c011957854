"""Compiled programs between pages that can't be touched, in a child of this process.

Every tensor of a call, what the load-time program makes and the workspace lie in memory of their own, with
a page that can't be touched behind the last byte or in front of the first. The bytes that are left of the
other page are 0xFF: NaN of every float type. They must neither change nor be seen in a result. A child
that a stray access ends is told by its signal.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from codegen_cpu import kernel as kernel_module
from codegen_cpu.build import Module, build
from codegen_cpu.kernel import NativeKernel
from codegen_cpu.layout import ALIGNMENT
from hwconfigs.model import HwConfig
from stripe.diag import Source
from stripe.dtypes import DType
from stripe.interp import interpret
from stripe.ir import Program
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import check_pipeline
from tests.support.golden import input_types
from tests.support.meaning import random_inputs
from tests.support.native import Guarded
from tests.support.tolerance import assert_same
from tile_frontend import compile_tile

Array = np.ndarray[Any, Any]
Side = Literal["end", "start"]

FILL = 0xFF
OFFSETS = (1, 2, 5, 8, 15)  # elements behind a page at which tensors are put, too


class Fenced(Guarded):
    """Guarded memory for one array, the rest of it full of FILL."""

    def __init__(self, size: int) -> None:
        super().__init__(max(size, 1))
        self._usable[...] = FILL
        self._taken = slice(0, 0)

    def bytes_at(self, side: Side, size: int, offset: int = 0) -> Array:
        """So many bytes at the end, or `offset` bytes behind the start."""
        start = self._usable.size - size if side == "end" else offset
        self._taken = slice(start, start + size)
        return self._usable[self._taken]

    def room(self, array: Array, side: Side, offset: int = 0) -> Array:
        """A copy of an array."""
        return self._placed(self.bytes_at(side, array.nbytes, offset), array)

    def is_whole(self) -> bool:
        """Whether nothing but the array was written to."""
        before, behind = self._usable[: self._taken.start], self._usable[self._taken.stop :]
        return bool((before == FILL).all() and (behind == FILL).all())


@dataclass(frozen=True)
class Case:
    """A Tile program; `constants` are inputs that are bound ahead. `terms`: of its longest sum, where its
    results are rounded."""

    text: str
    shapes: str
    constants: tuple[str, ...] = ()
    terms: int = 0

    def program(self) -> Program:
        program = compile_tile(Source("case.tile", self.text), input_types({"shapes": self.shapes}))
        refinements = tuple(replace(r, const=r.name in self.constants) for r in program.root.refinements)
        return replace(program, root=replace(program.root, refinements=refinements))


def in_child(work: Callable[[], None]) -> str:
    """Run `work` in a copy of this process: what went wrong, empty if nothing did."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        faulthandler.disable()  # a crash is what the parent tells, and may be what it waits for
        said = ""
        try:
            work()
        except BaseException:  # noqa: BLE001 - whatever it is, the parent tells it
            said = traceback.format_exc()
        with os.fdopen(writer, "w") as pipe:
            pipe.write(said)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"{said}ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return said


def compiled(program: Program, hw: HwConfig) -> Module:
    return build(run_pipeline(program, check_pipeline(hw), hw), hw)


def check_fenced(case: Case, hw: HwConfig, seed: int = 0) -> None:
    """Run a program with everything fenced on either side, at odd places, and with NaN and infinities among
    its inputs: it gives what the interpreter does."""
    program = case.program()
    module = compiled(program, hw)
    rounds = list(_rounds(program, seed))
    said = in_child(lambda: _check(module, case, rounds))
    assert not said, f"{hw.name}: {case.shapes}: {case.text}\n{said}"


def _rounds(program: Program, seed: int) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    """Inputs and what they give: small integers, and the same with values that are not finite."""
    rng = np.random.default_rng(seed)
    inputs = random_inputs(program, rng)
    yield inputs, dict(interpret(program, inputs))
    strange = {name: _sprinkled(array, rng) for name, array in inputs.items()}
    if any(strange[name] is not array for name, array in inputs.items()):
        with np.errstate(all="ignore"):
            yield strange, dict(interpret(program, strange))


def _sprinkled(array: Array, rng: np.random.Generator) -> Array:
    """With some elements that are NaN or infinite, if it holds floats."""
    if array.dtype.kind in "iub" or not array.size:
        return array
    made = array.copy()
    for value in (np.nan, np.inf, -np.inf):
        made.flat[rng.integers(array.size, size=1 + array.size // 500)] = value
    return made


def _check(module: Module, case: Case, rounds: list[tuple[dict[str, Array], dict[str, Array]]]) -> None:
    for inputs, want in rounds:
        places: list[tuple[Side, int]] = [("end", 0), ("start", 0), *(("start", n) for n in OFFSETS)]
        for side, offset in places:
            _run(module, case, inputs, want, side, offset)


def _plain(array: Array) -> Array:
    """NumPy does not know a NaN of bf16."""
    return array.astype(np.float32) if array.dtype == DType.BF16.numpy else array


def _run(
    module: Module,
    case: Case,
    inputs: Mapping[str, Array],
    want: Mapping[str, Array],
    side: Side,
    offset: int,
) -> None:
    fences: list[tuple[str, Fenced]] = []

    def fenced(name: str, array: Array) -> Array:
        fence = Fenced(array.nbytes + offset * array.itemsize)
        fences.append((name, fence))
        made = fence.room(array, side, offset * array.itemsize)
        made.flags.writeable = name not in inputs
        return made

    def memory(size: int, what: str) -> Array:
        whole = -(-size // ALIGNMENT) * ALIGNMENT
        fence = Fenced(whole)
        fences.append((what, fence))
        return fence.bytes_at(side, whole)

    def empty(tensor: Any) -> Array:
        flat = fenced(f"'{tensor.name}' of the kernel", np.zeros(tensor.elements, tensor.dtype))
        return np.lib.stride_tricks.as_strided(flat, tensor.shape, tensor.strides)

    # Only this child sees it.
    kernel_module._memory = memory
    setattr(kernel_module._Tensor, "empty", empty)  # noqa: B010 - as a method
    given = {name: fenced(name, array) for name, array in inputs.items()}
    constants = {name: given[name] for name in case.constants}
    kernel = NativeKernel(module, constants)
    arrays = {name: array for name, array in given.items() if name not in constants}
    for turn in range(4):  # the later ones take the quick way
        out = tuple(fenced(f"out {n}", np.zeros_like(a)) for n, a in want.items()) if turn % 2 else None
        got = kernel(**arrays, out=out)
        named = dict(zip(want, got if isinstance(got, tuple) else (got,), strict=True))
        where = (
            f"call {turn}, {offset} elements behind the {side}" if offset else f"call {turn}, at the {side}"
        )
        if case.terms:
            assert_same(named, want, terms=case.terms, scale=1.0, what=where)
        else:
            for name, value in want.items():
                np.testing.assert_array_equal(_plain(named[name]), _plain(value), err_msg=f"{name}, {where}")
    for name, fence in fences:
        assert fence.is_whole(), f"bytes beside {name} were written to"
    for name, array in inputs.items():
        assert given[name].tobytes() == array.tobytes(), f"input {name} was written to"
