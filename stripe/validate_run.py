"""Translation validation by example: two programs run on random inputs and compared.

It proves nothing, but it refutes, and it is what is left where stripe.validate has no proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from hwconfigs.model import HwConfig
from stripe.arena import interpret_placed
from stripe.arena_cells import is_placed
from stripe.diag import CompileError
from stripe.dtypes import DType
from stripe.interp import interpret
from stripe.intrinsics import Array
from stripe.ir import Block, Program
from stripe.poly import PolyhedralLimit, nest_domain
from stripe.validate import Verdict, validate
from stripe.visit import walk

MAX_EXECUTIONS = 20_000_000  # statements, counted over all points: a few seconds
MAX_ELEMENTS = 1 << 24
RUNS = 2

# Relative error of a result: sums may be reassociated. Inputs are small integers, so that most are exact.
ERRORS = {DType.F16: 2e-2, DType.BF16: 1e-1, DType.F32: 1e-4, DType.F64: 1e-10}

Run: TypeAlias = Callable[[Program, Mapping[str, Array]], dict[str, Array]]


@dataclass(frozen=True, slots=True)
class Difference:
    """An element of an output that two programs give unlike values."""

    output: str
    element: tuple[int, ...]
    before: object
    after: object

    def __str__(self) -> str:
        at = f"output '{self.output}', element {list(self.element)}"
        return f"{at}: {self.before} before, {self.after} after"


def checked(before: Program, after: Program, hw: HwConfig | None = None) -> Verdict:
    """The verdict of `validate`; where that has no proof, or the later program lies on addresses, about
    which a proof of values says nothing, and the programs are small, of running them.

    A program whose buffers have addresses runs on these, in the memories of `hw`.
    """
    verdict = validate(before, after)
    on_addresses = hw is not None and before is not after and _has_addresses(after)
    if verdict.status == "refuted" or (verdict.status == "proved" and not on_addresses):
        return verdict
    what = f"{verdict.reason}; " if verdict.reason else ""
    if not (is_small(before) and is_small(after)):
        return replace(verdict, reason=f"{what}too large to be run for a comparison")
    try:
        found = difference(before, after, partial(_run, hw=hw))
    except CompileError as error:
        text = "; ".join(d.message for d in error.diagnostics)
        return replace(verdict, reason=f"{what}not run for a comparison: {text}")
    if found is not None:
        why = (
            f"\nno proof: {verdict.reason}"
            if verdict.reason
            else " (the values are right, the places are not)"
        )
        return replace(verdict, status="refuted", reason=f"{found}{why}")
    return replace(verdict, ran=True)


def _has_addresses(program: Program) -> bool:
    roots = [root for root in (program.load, program.root) if root is not None]
    return any(is_placed(ref) for root in roots for _, block in walk(root) for ref in block.refinements)


def _run(program: Program, inputs: Mapping[str, Array], hw: HwConfig | None) -> dict[str, Array]:
    if hw is not None and _has_addresses(program):
        return interpret_placed(program, inputs, hw)
    return interpret(program, inputs)


def is_small(program: Program) -> bool:
    """Whether the interpreter runs the program in seconds."""
    roots = [root for root in (program.load, program.root) if root is not None]
    elements = sum(prod(ref.shape) for root in roots for ref in root.refinements)
    try:
        return elements <= MAX_ELEMENTS and sum(_executions(root, ()) for root in roots) <= MAX_EXECUTIONS
    except PolyhedralLimit:
        return False


def _executions(block: Block, path: tuple[Block, ...]) -> int:
    here = (*path, block)
    below = sum(_executions(child, here) for child in block.children)
    return below + len(block.statements) * nest_domain(here).count()


def difference(before: Program, after: Program, run: Run = interpret) -> Difference | None:
    """Where the outputs differ on random inputs, beyond what the order of sums explains."""
    for seed in range(RUNS):
        inputs = random_inputs(before, np.random.default_rng(seed))
        wanted, got = run(before, inputs), run(after, inputs)
        for name, value in wanted.items():
            dtype = next(ref.dtype for ref in before.outputs if ref.name == name)
            wrong = _unlike(value, got[name], dtype)
            if wrong.any():
                at = tuple(map(int, np.argwhere(wrong)[0]))
                return Difference(name, at, value[at].item(), got[name][at].item())
    return None


def _unlike(wanted: Array, got: Array, dtype: DType) -> Array:
    if not dtype.is_float:
        return np.asarray(wanted != got)
    one, two = wanted.astype(np.float64), got.astype(np.float64)
    scale = np.abs(one[np.isfinite(one)]).max(initial=1.0)
    with np.errstate(all="ignore"):
        return ~np.isclose(one, two, rtol=ERRORS[dtype], atol=ERRORS[dtype] * scale, equal_nan=True)


def random_inputs(program: Program, rng: np.random.Generator) -> dict[str, Array]:
    """Small integers of the type of each input: sums of them are exact in every order."""
    made = set() if program.load is None else {r.name for r in program.load.refinements if r.direction.writes}
    return {
        ref.name: np.asarray(rng.integers(-3 if ref.dtype.is_signed else 0, 4, ref.shape)).astype(
            ref.dtype.numpy
        )
        for ref in program.inputs
        if ref.name not in made
    }
