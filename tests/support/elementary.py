"""Elementary functions against exact values: points, references, errors in units in the last place.

    python -m tests.support.elementary            # measure on samples, print the table of docs/numerics.md
    python -m tests.support.elementary --whole    # f32 over all 2**32 bit patterns: minutes a function
    python -m tests.support.elementary --write    # put the table into docs/numerics.md

f32 results are compared with NumPy's f64 functions (SciPy's erf), f64 results with long doubles of
64 bits where the platform has them, and with mpmath.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from scipy import special

from codegen_cpu.build import build
from codegen_cpu.kernel import NativeKernel
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import Source
from stripe.dtypes import DType
from stripe.parser import parse
from tests.support.native import elementwise, runnable

Array = np.ndarray[Any, Any]
DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "numerics.md"

NUMPY: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": special.erf,
    "pow": np.power,
}
UNARY = tuple(name for name in NUMPY if name != "pow")
PARITY = dict.fromkeys(("cos", "cosh"), 1) | dict.fromkeys(
    ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf"), -1
)
LONG = np.finfo(np.longdouble).nmant >= 63


# -- points ------------------------------------------------------------------------------------


def every(step: int) -> Array:
    """Each `step`-th bit pattern of f32."""
    return np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def hard_points(dtype: type[np.floating[Any]], count: int) -> Array:
    """Ends, borders between pieces, neighbours of multiples of pi / 2, and everyday values."""
    rng = np.random.default_rng(7)
    info = np.finfo(dtype)
    ends = [0.0, 1.0, 0.5, float(info.max), float(info.tiny), float(info.smallest_subnormal), np.inf, np.nan]
    ends += [88.72284, 103.97, 104.0, 709.782712893384, 745.13, 746.0, 710.4758600739439, 11.0, 20.0, 40.0]
    ends += [0.625, 0.84375, 1.0 - float(info.epsneg), 1.0 + float(info.eps), 2.0**0.5, 0.5**0.5]
    ends += [2.0**0.5 - 1, 2.0**0.5 + 1, 4.0, 6.0, 2.0**16, 2.0**20, 2.0**21, 2.0**28, 2.0**100]
    with np.errstate(over="ignore", under="ignore"):
        around = np.array([*ends, *(-e for e in ends)]).astype(dtype)
    around = np.concatenate([around, np.nextafter(around, dtype(9.0)), np.nextafter(around, dtype(-9.0))])
    turns = (np.arange(1, count // 4) * (np.longdouble(np.pi) / 2)).astype(dtype)
    with np.errstate(over="ignore"):
        anywhere = np.exp(rng.uniform(-700, 700, count)).astype(dtype)
    parts = [
        around,
        turns,
        anywhere,
        np.linspace(-1.2, 1.2, count).astype(dtype),
        np.linspace(-12, 12, count).astype(dtype),
        np.linspace(-800, 800, count).astype(dtype),
        (1 + np.linspace(-1e-3, 1e-3, count // 4)).astype(dtype),
    ]
    return np.concatenate(parts)


def power_points(dtype: type[np.floating[Any]], count: int) -> tuple[Array, Array]:
    """Pairs: a grid of hard numbers, any bits, and powers that are neither 0 nor infinite."""
    rng = np.random.default_rng(8)
    info = np.finfo(dtype)
    last, eps = info.nmant, float(info.eps)
    hard = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 1 / 3, 0.1, 10.0, 1e5, 1e-3, np.inf, np.nan]
    hard += [1 + eps, 1 - eps / 2, 127.0, 128.0, 149.0, 150.0, 1023.0, 1074.0, 1075.0, 2.0**0.5, 0.5**0.5]
    hard += [2.0**last, 2.0**last + 1, 2.0 ** (last + 1), 2.0 ** (last + 1) - 1, 2.0 ** (last - 1) + 0.5]
    hard += [float(v) for v in (info.max, info.tiny, info.smallest_subnormal)]
    grid = np.array([*hard, *(-h for h in hard)]).astype(dtype)
    x, y = (axis.ravel() for axis in np.meshgrid(grid, grid))
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    anything = rng.integers(0, np.iinfo(bits).max, (2, count), bits, endpoint=True).view(dtype)
    pairs = [(x, y), (anything[0], anything[1])]
    for base in (np.exp(rng.normal(size=count) * 20), 1 + rng.normal(size=count) * 1e-3):
        base = base.astype(dtype)
        base = np.where(base == 1, dtype(2), base)
        limit = info.maxexp * 0.7 / np.log(base.astype(np.float64))
        pairs.append((base, (rng.uniform(-1, 1, count) * limit).astype(dtype)))
    pairs.append((rng.uniform(-20, 20, count).astype(dtype), rng.integers(-30, 30, count).astype(dtype)))
    return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])


# -- exact values ------------------------------------------------------------------------------


def wide(name: str, operands: Sequence[Array]) -> Array:
    """The function in a wider type: f64 of f32, long double of f64 (not erf: SciPy has it in f64 only)."""
    with np.errstate(all="ignore"):
        if operands[0].dtype == np.float32:
            return np.asarray(NUMPY[name](*(o.astype(np.float64) for o in operands)))
        return np.asarray(NUMPY[name](*(o.astype(np.longdouble) for o in operands)))


def exact(name: str, operands: Sequence[Array]) -> Array:
    """The function of finite f64 within its domain to 100 bits, as what f64 misses: pairs in a last axis."""
    function = getattr(mpmath, {"pow": "power"}.get(name, name))
    found = np.empty((operands[0].size, 2))
    with mpmath.workprec(140):
        for at, values in enumerate(zip(*operands, strict=True)):
            value = function(*(mpmath.mpf(float(v)) for v in values))
            found[at, 0] = float(value)
            found[at, 1] = float(value - mpmath.mpf(found[at, 0])) if np.isfinite(found[at, 0]) else 0.0
    return found


# -- errors ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Errors:
    """The largest error in units in the last place, where it is, and what is wrong otherwise."""

    largest: float
    at: str
    wrong: tuple[str, ...] = ()


def errors(got: Array, want: Array, operands: Sequence[Array], rest: Array | float = 0.0) -> Errors:
    """`want` is wider than `got`, or of the same type with a `rest` that it misses.

    Of a result that overflows, infinity counts as the next power of two. NaN, infinities that are
    exact, and the signs of zeros must be equal.
    """
    with np.errstate(all="ignore"):
        info = np.finfo(got.dtype)
        near = want.astype(got.dtype)
        top = np.asarray(2.0, want.dtype if want.dtype != got.dtype else np.longdouble) ** info.maxexp
        unequal = np.isnan(got) != np.isnan(near)
        endless = np.isinf(want)
        unequal |= endless & (got != near)
        unequal |= (got == 0) & (near == 0) & (np.signbit(got) != np.signbit(near))
        value = np.where(np.isinf(got), np.copysign(top, got), got.astype(top.dtype))
        bound = np.clip(want, -top, top)
        difference = np.abs(value - bound - rest)
        # NumPy's spacing of the largest float is infinite.
        highest = top / 2 ** (info.nmant + 1)
        unit = np.minimum(np.spacing(np.abs(near)).astype(top.dtype), highest)
        unit = np.where(np.isinf(near), highest, unit)
        ulps = np.where(np.isnan(want) | endless, 0.0, difference / unit).astype(np.float64)
    worst = int(ulps.argmax())

    def show(at: int) -> str:
        return f"{', '.join(repr(o[at]) for o in operands)} -> {got[at]!r}"

    wrong = tuple(show(int(at)) for at in np.flatnonzero(unequal)[:3])
    return Errors(float(ulps[worst]), show(worst), wrong)


def worse(a: Errors, b: Errors) -> Errors:
    first, second = sorted((a, b), key=lambda e: -e.largest)
    return Errors(first.largest, first.at, (*first.wrong, *second.wrong))


class Compiled:
    """Functions of one type for one target, over arrays of one size."""

    def __init__(
        self, names: Sequence[str], dtype: DType, size: int, hw: HwConfig, vector: bool = True
    ) -> None:
        self.names = tuple(names)
        self._type = dtype
        arity = {name: 2 if name == "pow" else 1 for name in names}
        functions = {f"r_{n}": (n, [dtype] * arity[n], dtype) for n in names}
        self._kernel = NativeKernel(build(elementwise(functions, size, vector), hw))

    def __call__(self, *operands: Array) -> dict[str, Array]:
        named = {f"{self._type.value}_{at}": values for at, values in enumerate(operands)}
        results = self._kernel(**named)
        return dict(zip(self.names, results if isinstance(results, tuple) else (results,), strict=True))


FILTER = """
block main [] (
  in X[0] f32(N):(1)
  in W[0] f64(N):(1)
  in U[] f64():()
  out R[0]:assign f32(N):(1)
  out FAR[0]:assign bool(N):(1)
) {
  block far [n:N] (
    in X[n] f32(1)
    in W[n] f64(1)
    in U[] f64()
    out R[n]:assign f32(1)
    out FAR[n]:assign bool(1)
  ) #vector=n {
    $x = load(X) f32
    $w = load(W) f64
    $u = load(U) f64
    $r = NAME($x) f32
    $v = cast($r) f64
    $d = sub($v, $w) f64
    $off = abs($d) f64
    $size = abs($w) f64
    $limit = mul($size, $u) f64
    $least = constant(1e-44) f64
    $near = le($off, $limit) bool
    $normal = ge($limit, $least) bool
    $close = and($near, $normal) bool
    $both = ne($v, $v) bool
    $none = ne($w, $w) bool
    $nan = and($both, $none) bool
    $fine = or($close, $nan) bool
    $far = not($fine) bool
    R = store($r)
    FAR = store($far)
  }
}
"""


def over_all_patterns(name: str, hw: HwConfig, chunk: int = 1 << 18, report: bool = False) -> Errors:
    """f32 over all 2**32 bit patterns. Of odd and even functions the negative half is compared with the
    other one, bit for bit."""
    function = Compiled([name], DType.F32, chunk, hw)
    # A unit in the last place is at least 2**-24 of the value, but for subnormals: what lies further from
    # it than the worst so far is looked at closely.
    text = FILTER.replace("NAME", name).replace("N)", f"{chunk})").replace("n:N", f"n:{chunk}")
    filtered = NativeKernel(build(parse(Source("filter.stripe", text)), hw))
    found, wrong = Errors(0.5, ""), ""
    parity = PARITY.get(name, 0)
    for start in range(0, 1 << 31 if parity else 1 << 32, chunk):
        x = np.arange(start, start + chunk, dtype=np.uint32).view(np.float32)
        want = wide(name, [x])
        got, far = filtered(x, want, np.float64(found.largest * 2.0**-24))
        if far.any():
            with np.errstate(all="ignore"):
                exact = got[far].view(np.uint32) == want[far].astype(np.float32).view(np.uint32)
            far[far] = ~exact
            if far.any():
                found = worse(found, errors(got[far], want[far], [x[far]]))
        if parity and not wrong:
            mirrored = (parity * function(-x)[name]).view(np.uint32) != got.view(np.uint32)
            if mirrored.any():
                mirrored &= ~np.isnan(got)
            if mirrored.any():
                wrong = f"the sign of the argument changes the result's size at {x[mirrored][0]!r}"
        if report and start % (1 << 28) == 0:
            print(f"\r{name} {start / (1 << 32):4.0%}", end="", file=sys.stderr, flush=True)
    return Errors(found.largest, found.at, (*found.wrong, *([wrong] if wrong else [])))


# -- the table of the document -------------------------------------------------------------------


def stated() -> dict[str, tuple[float, float]]:
    """The limits that docs/numerics.md states: function -> (f32, f64)."""
    rows = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" `") for cell in line.split("|")[1:-1]]
        if len(cells) == 5 and cells[0] in NUMPY:
            rows[cells[0]] = (float(cells[1]), float(cells[3]))
    return rows


def f64_errors(name: str, hw: HwConfig, count: int, exact_count: int) -> Errors:
    """f64 against long doubles where there are any, and a smaller sample against mpmath."""
    if name == "pow":
        operands: tuple[Array, ...] = power_points(np.float64, count)
    else:
        rng = np.random.default_rng(9)
        anything = rng.integers(0, 2**64 - 1, count, np.uint64, endpoint=True).view(np.float64)
        operands = (np.concatenate([hard_points(np.float64, count), anything]),)
    got = Compiled([name], DType.F64, operands[0].size, hw)(*operands)[name]
    found = Errors(0.0, "")
    if LONG and name != "erf":
        found = errors(got, wide(name, operands), operands)
    with np.errstate(all="ignore"):
        plain = np.isfinite(np.asarray(NUMPY[name](*operands)))
    for values in operands:
        plain &= np.isfinite(values) & (np.abs(values) < 2.0**1000)
    picked = np.flatnonzero(plain & np.isfinite(got))
    picked = picked[:: max(1, picked.size // exact_count)]
    some = [values[picked] for values in operands]
    pairs = exact(name, some)
    # A zero of mpmath has no sign; the long doubles look at that.
    wanted = np.where(pairs[:, 0] == 0, got[picked] * 0, pairs[:, 0])
    return worse(found, errors(got[picked], wanted, some, pairs[:, 1]))


def f32_errors(names: Sequence[str], hw: HwConfig, step: int) -> dict[str, Errors]:
    x = np.concatenate([every(step), hard_points(np.float32, 20_000)])
    unary = [name for name in names if name != "pow"]
    results = Compiled(unary, DType.F32, x.size, hw)(x)
    found = {name: errors(results[name], wide(name, [x]), [x]) for name in unary}
    if "pow" in names:
        pair = power_points(np.float32, 100_000)
        got = Compiled(["pow"], DType.F32, pair[0].size, hw)(*pair)["pow"]
        found["pow"] = errors(got, wide("pow", pair), pair)
    return found


def _rows(targets: Sequence[HwConfig], whole: Sequence[str]) -> Iterator[str]:
    measured: dict[str, Errors] = {}
    for hw in targets:
        for name, error in f32_errors(tuple(NUMPY), hw, 997).items():
            measured[name] = worse(measured[name], error) if name in measured else error
    for name in NUMPY:
        single = measured[name]
        if name in whole:
            single = worse(single, over_all_patterns(name, targets[0], report=True))
        double = Errors(0.0, "")
        for hw in targets:
            double = worse(double, f64_errors(name, hw, 100_000, 4_000))
        for error in (single, double):
            if error.wrong:
                print(f"{name}: {error.wrong}", file=sys.stderr)
        limits = [max(1.0, np.ceil((error.largest + 0.2) * 2) / 2) for error in (single, double)]
        yield f"| `{name}` | {limits[0]} | {single.largest:.2f} | {limits[1]} | {double.largest:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--whole", nargs="*", metavar="NAME", help="f32 over all bit patterns (no name: all)")
    parser.add_argument("--write", action="store_true", help="into docs/numerics.md")
    options = parser.parse_args()
    whole: Sequence[str] = () if options.whole is None else options.whole or UNARY
    names = ("x86_64_avx512", "x86_64_avx2", "generic")
    targets = [hw for hw in runnable() if hw.name in names] or [load_named("generic")]
    rows = []
    for row in _rows(targets, whole):
        print(row, flush=True)
        rows.append(row)
    if options.write:
        lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if not line.startswith("| `")]
        at = next(i for i, line in enumerate(kept) if line.startswith("|---"))
        DOCUMENT.write_text("\n".join([*kept[: at + 1], *rows, *kept[at + 1 :]]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
