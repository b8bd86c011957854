"""What a case computes: the Tile program, its operands, what is counted, and the result in float64.

A problem is data. Peers recognise it by its class and fields (a library has a function for a matrix
product, not for a Tile program); stripec is given the Tile text and nothing else.

Counting rules: 2 operations for each multiply-add, nominal, so the zeros of padding count; bytes are
each operand and each result once, unless the problem says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Results = Array | tuple[Array, ...]

BYTES = {"f64": 8, "f32": 4, "i32": 4, "bf16": 2, "f16": 2, "i8": 1, "u8": 1}
DTYPES: dict[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "i32": np.dtype(np.int32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
}


@dataclass(frozen=True, slots=True)
class Operand:
    """An array: `constant` marks weights, which a peer may pack ahead of time; numbers of one that is
    `positive` are."""

    name: str
    shape: tuple[int, ...]
    type: str = "f32"
    constant: bool = False
    positive: bool = False

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * BYTES[self.type]


class Problem:
    """What all problems answer. `dot` is the kind of multiply-add that sets the peak."""

    @property
    def tile(self) -> str:
        raise NotImplementedError

    @property
    def operands(self) -> tuple[Operand, ...]:
        raise NotImplementedError

    @property
    def result(self) -> Operand:
        raise NotImplementedError

    @property
    def results(self) -> tuple[Operand, ...]:
        return (self.result,)

    @property
    def flops(self) -> int:
        """0 where bytes per second are what counts."""
        return 0

    @property
    def dot(self) -> str:
        return "f32"

    @property
    def bytes_in(self) -> int:
        return sum(operand.bytes for operand in self.operands)

    @property
    def bytes_out(self) -> int:
        return sum(result.bytes for result in self.results)

    @property
    def counted_bytes(self) -> int:
        return self.bytes_in + self.bytes_out

    @property
    def products(self) -> tuple[tuple[int, int, int], ...]:
        """(m, n, k) of the matrix products with as many operations, for the yardstick; else none."""
        return ()

    def reference(self, *arrays: Array) -> Results:
        """The result for arrays of float64 (int64 where the operands are integers), or all of several."""
        raise NotImplementedError

    def arrays(self) -> dict[str, Array]:
        """Random operands, the same in every run, each aligned to a cache line."""
        rng = np.random.default_rng(0)
        return {operand.name: _random(operand, rng) for operand in self.operands}


@dataclass(frozen=True)
class Matmul(Problem):
    """C[m, n] = sum over k of A[m, k] * B[k, n]; `ta`, `tb`: that operand lies transposed in memory."""

    m: int
    n: int
    k: int
    ta: bool = False
    tb: bool = False
    left: str = "f32"
    right: str = "f32"
    out: str = "f32"

    @property
    def tile(self) -> str:
        a = "A[k, m]" if self.ta else "A[m, k]"
        b = "B[n, k]" if self.tb else "B[k, n]"
        cast = f" : {self.out}" if self.left in ("bf16", "f16") else ""
        return f"function ({a.upper()}, {b.upper()}) -> (C) {{\n  C[m, n : M, N]{cast} = +({a} * {b});\n}}"

    @property
    def operands(self) -> tuple[Operand, ...]:
        a = (self.k, self.m) if self.ta else (self.m, self.k)
        b = (self.n, self.k) if self.tb else (self.k, self.n)
        return Operand("A", a, self.left), Operand("B", b, self.right, constant=True)

    @property
    def result(self) -> Operand:
        return Operand("C", (self.m, self.n), self.out)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def dot(self) -> str:
        return {"bf16": "bf16", "i8": "i8", "u8": "i8"}.get(self.left, "f32")

    @property
    def products(self) -> tuple[tuple[int, int, int], ...]:
        return ((self.m, self.n, self.k),)

    def reference(self, *arrays: Array) -> Array:
        a, b = arrays
        return np.asarray(np.matmul(a.T if self.ta else a, b.T if self.tb else b))


@dataclass(frozen=True)
class Contraction(Problem):
    """Index strings "C-A-B", as "ab-acd-dbc", row-major, each letter with its size."""

    strings: str
    sizes: tuple[tuple[str, int], ...]

    @property
    def split(self) -> tuple[str, str, str]:
        out, left, right = self.strings.split("-")
        return out, left, right

    @property
    def einsum(self) -> str:
        out, left, right = self.split
        return f"{left},{right}->{out}"

    @property
    def tile(self) -> str:
        out, left, right = self.split

        def access(name: str, letters: str) -> str:
            return f"{name}[{', '.join(letters)}]"

        given = f"{access('X', left.upper())}, {access('Y', right.upper())}"
        header = f"{', '.join(out)} : {', '.join(out.upper())}"
        return (
            f"function ({given}) -> (Z) {{\n"
            f"  Z[{header}] = +({access('X', left)} * {access('Y', right)});\n}}"
        )

    @property
    def operands(self) -> tuple[Operand, ...]:
        size = dict(self.sizes)
        _, left, right = self.split
        return Operand("X", tuple(size[c] for c in left)), Operand("Y", tuple(size[c] for c in right))

    @property
    def result(self) -> Operand:
        size = dict(self.sizes)
        return Operand("Z", tuple(size[c] for c in self.split[0]))

    @property
    def flops(self) -> int:
        return 2 * math.prod(size for _, size in self.sizes)

    @property
    def products(self) -> tuple[tuple[int, int, int], ...]:
        size = dict(self.sizes)
        out, left, right = self.split
        m = math.prod(size[c] for c in left if c in out)
        n = math.prod(size[c] for c in right if c in out)
        k = math.prod(size[c] for c in left if c not in out)
        return ((m, n, k),)

    def reference(self, *arrays: Array) -> Array:
        return np.asarray(np.einsum(self.einsum, *arrays, optimize=True))


Function = Callable[..., Results]


@dataclass(frozen=True)
class Formula(Problem):
    """Anything else: its Tile text, its operands, and the same in NumPy (`compute`), which is also what
    the NumPy peer runs. `op` is the word by which the other peers know it; what is `plain` they compute as
    NumPy does. A problem with several results gives the shapes of those behind the first in `also`."""

    op: str
    text: str
    given: tuple[Operand, ...]
    gives: tuple[int, ...]
    compute: Function
    operations: int = 0
    gemms: tuple[tuple[int, int, int], ...] = ()
    counted: int | None = None
    also: tuple[tuple[int, ...], ...] = ()
    plain: bool = False

    @property
    def tile(self) -> str:
        return self.text

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.given

    @property
    def result(self) -> Operand:
        return Operand("result", self.gives, self.given[0].type)

    @property
    def results(self) -> tuple[Operand, ...]:
        return (self.result, *(Operand("result", shape, self.given[0].type) for shape in self.also))

    @property
    def flops(self) -> int:
        return self.operations

    @property
    def counted_bytes(self) -> int:
        return self.bytes_in + self.bytes_out if self.counted is None else self.counted

    @property
    def products(self) -> tuple[tuple[int, int, int], ...]:
        return self.gemms

    def reference(self, *arrays: Array) -> Results:
        return self.compute(*arrays)


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array that starts on a cache line; large ones lie in huge pages where the system has them."""
    bytes_needed = math.prod(shape) * dtype.itemsize
    raw = np.empty(bytes_needed + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + bytes_needed].view(dtype).reshape(shape)


def exact(arrays: Mapping[str, Array]) -> list[Array]:
    """The arrays as `reference` wants them."""
    return [a.astype(np.int64 if a.dtype.kind in "iu" else np.float64) for a in arrays.values()]


def _random(operand: Operand, rng: np.random.Generator) -> Array:
    dtype = DTYPES[operand.type]
    made = aligned(operand.shape, dtype)
    if operand.type in ("i8", "u8"):
        limits = np.iinfo(dtype)
        made[...] = rng.integers(limits.min, limits.max, operand.shape, dtype, endpoint=True)
    else:
        made[...] = rng.standard_normal(operand.shape, np.float32)
        if operand.positive:
            np.abs(made, out=made)
    return made
