"""Halide with schedules written for these cases; peers of their own kind, as an expert wrote them down.

Contractions: accumulators for 4 vectors of the innermost output dimension times 4 to 6 points of the next
one (or fewer vectors times 7) stay in registers over the whole reduction; as an expert would, the peer tries
the handful of register tiles in `TILES` and keeps the fastest. For convolutions this is the schedule that
Halide publishes for its conv_layer example: channels outermost, filter vectors staged at the reduction loop,
pixels broadcast, input channels unrolled by 2. It was written for the Chapter H convolution, with the first
of the tiles. Zeros around a picture are copied into place first, inside the timed call, in sliding rows for
depthwise layers.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from benchmarks.convolution import Conv
from benchmarks.peers.base import (
    Kind,
    Prepared,
    Setting,
    Unsupported,
    no_packing,
    not_installed,
    quickest,
    version_of,
)
from benchmarks.problems import DTYPES, Array, Formula, Matmul, Problem, aligned

TILES = (
    (4, 5),
    (4, 4),
    (4, 6),
    (3, 7),
    (2, 7),
)  # vectors and points of a register tile; the first is published


class Halide:
    name = "halide"
    kind: Kind = "schedule"
    default = True

    def missing(self) -> str:
        return not_installed("halide")

    def version(self) -> str:
        return version_of("halide")

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        no_packing(setting)
        out = aligned(problem.result.shape, DTYPES[problem.result.type])
        tiles = TILES if isinstance(problem, Conv | Matmul) else TILES[:1]
        found = []
        for tile in tiles:
            builder = Builder(setting.threads, arrays, tile)
            call = builder.callable(builder.build(problem), out)
            found.append((quickest(call, 5) if len(tiles) > 1 else 0.0, tile, call))
        _, tile, call = min(found, key=lambda entry: entry[0])

        def result() -> Array:
            call()
            return out

        note = f"register tile of {tile[0]} vectors x {tile[1]}" if len(tiles) > 1 else ""
        return Prepared(call, result, note)


class Builder:
    """One pipeline: its inputs as parameters of fixed sizes, and small helpers for schedules."""

    def __init__(self, threads: int, arrays: Mapping[str, Array], tile: tuple[int, int]) -> None:
        self.hl: Any = importlib.import_module("halide")
        self.threads = threads
        self.vectors, self.points = tile
        self.arrays = arrays
        self.target = self.hl.get_host_target()
        self.vec = self.target.natural_vector_size(self.hl.Float(32))
        self.inputs = {name: self._parameter(name, array) for name, array in arrays.items()}
        self.x, self.y, self.c, self.n = (self.hl.Var(name) for name in ("x", "y", "c", "n"))

    def _parameter(self, name: str, array: Array) -> Any:
        """Halide counts dimensions from the innermost; sizes and strides are known when it compiles."""
        if array.dtype.name != "float32":
            raise Unsupported("schedules are written for f32")
        made = self.hl.ImageParam(self.hl.Float(32), array.ndim, name)
        stride = 1
        for axis, extent in enumerate(reversed(array.shape)):
            made.dim(axis).set_bounds(0, extent)
            made.dim(axis).set_stride(stride)
            stride *= extent
        return made

    def callable(self, func: Any, out: Array) -> Any:
        stride, buffer = 1, func.output_buffer()
        for axis, extent in enumerate(reversed(out.shape)):
            buffer.dim(axis).set_bounds(0, extent)
            buffer.dim(axis).set_stride(stride)
            stride *= extent
        arguments = [self.hl.Argument(made) for made in self.inputs.values()]
        function = func.compile_to_callable(arguments, self.target)
        held = [self.hl.Buffer(array) for array in (*self.arrays.values(), out)]
        return lambda: function(*held)

    def build(self, problem: Problem) -> Any:
        match problem:
            case Matmul():
                return self._matmul(problem)
            case Conv(first=False) if problem.depthwise:
                return self._depthwise(problem)
            case Conv(first=False, groups=1) if problem.kh * problem.kw <= 100 and problem.ci > 1:
                return self._convolution(problem)
            case Formula(
                op="copy" | "transpose" | "row_sum" | "column_sum" | "softmax" | "layernorm" | "chain"
            ):
                return getattr(self, f"_{problem.op}")(problem.gives[-1])
            case Formula(op="gelu"):
                raise Unsupported("Halide has no erf")
            case _:
                raise Unsupported("no schedule was written for it")

    def _whole(self, vectors: int, extent: int) -> int:
        """Elements of that many vectors, or of as many as there are."""
        if extent < self.vec:
            raise Unsupported("the schedule wants whole vectors")
        return int(self.vec * min(vectors, extent // self.vec))

    def _parallel(self, func: Any, var: Any) -> None:
        if self.threads > 1:
            func.parallel(var)

    def _matmul(self, problem: Matmul) -> Any:
        hl, x, y = self.hl, self.x, self.y
        a, b = self.inputs["A"], self.inputs["B"]
        width = self._whole(self.vectors if problem.m > 1 else 16, problem.n)
        rows = min(self.points, problem.m)
        panel, product, out = hl.Func("panel"), hl.Func("product"), hl.Func("out")
        panel[x, y] = b[y, x] if problem.tb else b[x, y]
        right = panel if problem.m > 32 or problem.tb else b
        k = hl.RDom([(0, problem.k)], "k")
        product[x, y] = hl.f32(0)
        product[x, y] += (a[y, k.x] if problem.ta else a[k.x, y]) * right[x, k.x]
        out[x, y] = product[x, y]
        xo, yo, xi, yi = (hl.Var(name) for name in ("xo", "yo", "xi", "yi"))
        out.split(x, xo, xi, width).split(y, yo, yi, rows).reorder(xi, yi, yo, xo)
        out.vectorize(xi, self.vec).unroll(xi).unroll(yi)
        self._parallel(out, xo if problem.n // width >= self.threads else yo)
        product.compute_at(out, yo).vectorize(x, self.vec).unroll(x).unroll(y)
        product.update().reorder(x, y, k.x).vectorize(x, self.vec).unroll(x).unroll(y)
        if problem.k % 2 == 0:
            product.update().unroll(k.x, 2)
        if right is panel:
            panel.compute_at(out, xo).vectorize(x, self.vec).unroll(x)
        return out

    def _padded(self, problem: Conv) -> Any:
        """The picture with zeros around it, and the function to read it by; nothing where none are read."""
        hl, image = self.hl, self.inputs["I"]
        if problem.pad == (0, 0):
            return None
        none = hl.Expr()
        bounds = [(none, none), (0, problem.w), (0, problem.h), (none, none)]
        return hl.BoundaryConditions.constant_exterior(image, 0, bounds)

    def _convolution(self, problem: Conv) -> Any:
        hl, c, x, y, n = self.hl, self.c, self.x, self.y, self.n
        weights, padded = self.inputs["F"], self._padded(problem)
        image = padded if padded is not None else self.inputs["I"]
        conv, out = hl.Func("conv"), hl.Func("out")
        r = hl.RDom([(0, problem.ci), (0, problem.kw), (0, problem.kh)], "r")
        px = x * problem.stride + r.y * problem.dilation - problem.pad[1]
        py = y * problem.stride + r.z * problem.dilation - problem.pad[0]
        conv[c, x, y, n] = self.inputs["B"][c] if problem.epilogue else hl.f32(0)
        if padded is not None:
            staged = hl.Func("staged")
            staged[c, x, y, n] = padded[c, x, y, n]
            staged.compute_root()
            if problem.ci >= self.vec:
                staged.vectorize(c, self.vec)
            px, py, image = px + problem.pad[1], py + problem.pad[0], hl.Func("moved")
            image[c, x, y, n] = staged[c, x - problem.pad[1], y - problem.pad[0], n]
        conv[c, x, y, n] += weights[c, r.x, r.y, r.z] * image[r.x, px, py, n]
        out[c, x, y, n] = hl.max(conv[c, x, y, n], 0) if problem.epilogue else conv[c, x, y, n]
        points = min(self.points, problem.out_size[1])
        channels = self._whole(self.vectors, problem.co)
        co, ci, xo, xi = (hl.Var(name) for name in ("co", "ci", "xo", "xi"))
        out.split(c, co, ci, channels).split(x, xo, xi, points).reorder(ci, xi, xo, y, n, co)
        out.vectorize(ci, self.vec).unroll(ci).unroll(xi)
        self._parallel(out, co if problem.co // channels >= self.threads else y)
        conv.compute_at(out, xo).vectorize(c, self.vec).unroll(c).unroll(x).unroll(y)
        update = conv.update().reorder(c, x, y, r.x, r.y, r.z, n)
        update.vectorize(c, self.vec).unroll(c).unroll(x).unroll(y)
        update.unroll(r.x, 2 if problem.ci % 2 == 0 else problem.ci)
        vectors = weights.in_()
        names = [hl.Var(f"_{axis}") for axis in range(4)]
        vectors.compute_at(conv, r.x).vectorize(names[0], self.vec).unroll(names[0]).unroll(names[1])
        return out

    def _depthwise(self, problem: Conv) -> Any:
        hl, c, x, y, n = self.hl, self.c, self.x, self.y, self.n
        weights, padded = self.inputs["F"], self._padded(problem)
        out, rows = hl.Func("out"), hl.Func("rows")
        if padded is not None:
            rows[c, x, y, n] = padded[c, x, y, n]
        source = rows if padded is not None else self.inputs["I"]
        step, reach = problem.stride, problem.dilation
        total = self.inputs["B"][c] if problem.epilogue else hl.f32(0)
        for r in range(problem.kh):
            for s in range(problem.kw):
                at = (x * step + s * reach - problem.pad[1], y * step + r * reach - problem.pad[0])
                total = total + weights[c, s, r] * source[c, at[0], at[1], n]
        out[c, x, y, n] = hl.max(total, 0) if problem.epilogue else total
        ho, wo = problem.out_size
        points = next((p for p in (7, 6, 5, 4) if wo % p == 0), min(wo, 4))
        co, ci, xo, xi, yo, yi = (hl.Var(name) for name in ("co", "ci", "xo", "xi", "yo", "yi"))
        lanes, strip = self._whole(1, problem.groups), -(-ho // self.threads)
        out.split(c, co, ci, lanes).split(x, xo, xi, points).split(y, yo, yi, strip)
        out.reorder(ci, xi, xo, co, yi, yo, n).vectorize(ci).unroll(xi)
        self._parallel(out, yo)
        if padded is not None:
            rows.store_at(out, yo).compute_at(out, yi).vectorize(c, lanes)
        return out

    def _copy(self, width: int) -> Any:
        lanes = self._whole(4, width)
        out, x, y = self.hl.Func("out"), self.x, self.y
        out[x, y] = self.inputs["X"][x, y]
        out.vectorize(x, lanes)
        self._parallel(out, y)
        return out

    def _transpose(self, width: int) -> Any:
        hl, x, y = self.hl, self.x, self.y
        if min(self.arrays["X"].shape) < 64:
            raise Unsupported("the schedule wants tiles of 64 x 64")
        out, block = hl.Func("out"), hl.Func("block")
        block[x, y] = self.inputs["X"][y, x]
        out[x, y] = block[x, y]
        side = min(self.vec, 8)
        xo, yo, xi, yi, xt, yt = (hl.Var(name) for name in ("xo", "yo", "xi", "yi", "xt", "yt"))
        out.tile(x, y, xo, yo, x, y, 64, 64).tile(x, y, xt, yt, xi, yi, side, side).vectorize(xi).unroll(yi)
        self._parallel(out, yo)
        block.compute_at(out, xt).reorder_storage(y, x).reorder(y, x).vectorize(y, side).unroll(x)
        return out

    def _row_sum(self, width: int) -> Any:
        hl, x, y = self.hl, self.x, self.y
        image = self.inputs["X"]
        columns = self.arrays["X"].shape[1]
        lanes = 4 * self.vec
        if columns % lanes:
            raise Unsupported("the schedule wants rows of whole vectors")
        r, v = hl.RDom([(0, columns // lanes)], "r"), hl.RDom([(0, lanes)], "v")
        part, out = hl.Func("part"), hl.Func("out")
        part[x, y] = hl.f32(0)
        part[x, y] += image[r.x * lanes + x, y]
        out[y] = hl.f32(0)
        out[y] += part[v.x, y]
        part.compute_at(out, y).vectorize(x, self.vec).unroll(x)
        part.update().reorder(x, r.x).vectorize(x, self.vec).unroll(x)
        out.update().atomic().vectorize(v.x)
        whole = hl.Func("whole")
        whole[y] = out[y]
        out.compute_at(whole, y)
        self._parallel(whole, y)
        return whole

    def _column_sum(self, width: int) -> Any:
        hl, x = self.hl, self.x
        total, out = hl.Func("total"), hl.Func("out")
        r = hl.RDom([(0, self.arrays["X"].shape[0])], "r")
        total[x] = hl.f32(0)
        total[x] += self.inputs["X"][x, r.x]
        out[x] = total[x]
        xo, xi = hl.Var("xo"), hl.Var("xi")
        out.split(x, xo, xi, self._whole(16, width)).vectorize(xi, self.vec).unroll(xi)
        self._parallel(out, xo)
        total.compute_at(out, xo).vectorize(x, self.vec).unroll(x)
        total.update().reorder(x, r.x).vectorize(x, self.vec).unroll(x)
        return out

    def _lanes_of_row(self, name: str, term: Any, width: int, combine: str) -> tuple[Any, Any, Any]:
        """Partial results in 4 vectors, and the function that folds them: (fold, partial, its domain)."""
        hl, x, y = self.hl, self.x, self.y
        lanes = 4 * self.vec
        if width % lanes:
            raise Unsupported("the schedule wants rows of whole vectors")
        r, v = hl.RDom([(0, width // lanes)], f"r_{name}"), hl.RDom([(0, lanes)], f"v_{name}")
        part, fold = hl.Func(f"part_{name}"), hl.Func(name)
        at = r.x * lanes + x
        if combine == "max":
            part[x, y] = hl.f32(-3.4e38)
            part[x, y] = hl.max(part[x, y], term(at, y))
            fold[y] = hl.f32(-3.4e38)
            fold[y] = hl.max(fold[y], part[v.x, y])
        else:
            part[x, y] = hl.f32(0)
            part[x, y] += term(at, y)
            fold[y] = hl.f32(0)
            fold[y] += part[v.x, y]
        part.vectorize(x, self.vec).unroll(x)
        part.update().reorder(x, r.x).vectorize(x, self.vec).unroll(x)
        fold.update().atomic().vectorize(v.x)
        return fold, part, v

    def _softmax(self, width: int) -> Any:
        hl, x, y = self.hl, self.x, self.y
        image = self.inputs["X"]
        top, top_part, _ = self._lanes_of_row("top", lambda at, row: image[at, row], width, "max")
        e = hl.Func("e")
        e[x, y] = hl.exp(image[x, y] - top[y])
        total, total_part, _ = self._lanes_of_row("total", lambda at, row: e[at, row], width, "sum")
        scale, out = hl.Func("scale"), hl.Func("out")
        scale[y] = hl.f32(1) / total[y]
        out[x, y] = e[x, y] * scale[y]
        out.vectorize(x, self.vec).unroll(x, 4)
        for func in (top_part, top, e, total_part, total, scale):
            func.compute_at(out, y)
        e.vectorize(x, self.vec).unroll(x, 4)
        self._parallel(out, y)
        return out

    def _layernorm(self, width: int) -> Any:
        hl, x, y = self.hl, self.x, self.y
        image, g, b = (self.inputs[name] for name in ("X", "G", "B"))
        total, total_part, _ = self._lanes_of_row("total", lambda at, row: image[at, row], width, "sum")
        mean = hl.Func("mean")
        mean[y] = total[y] / width

        def squared(at: Any, row: Any) -> Any:
            away = image[at, row] - mean[row]
            return away * away

        spread, spread_part, _ = self._lanes_of_row("spread", squared, width, "sum")
        scale, out = hl.Func("scale"), hl.Func("out")
        scale[y] = hl.f32(1) / hl.sqrt(spread[y] / width + hl.f32(1e-5))
        out[x, y] = (image[x, y] - mean[y]) * scale[y] * g[x] + b[x]
        out.vectorize(x, self.vec).unroll(x, 4)
        for func in (total_part, total, mean, spread_part, spread, scale):
            func.compute_at(out, y)
        self._parallel(out, y)
        return out

    def _chain(self, width: int) -> Any:
        hl, x, y = self.hl, self.x, self.y
        image, g, b = (self.inputs[name] for name in ("X", "G", "B"))
        if width % (4 * self.vec):
            raise Unsupported("the schedule wants rows of whole vectors")
        out = hl.Func("out")
        out[x, y] = hl.max(image[x, y] * g[x] + b[x], 0) * hl.f32(0.5) + image[x, y]
        out.vectorize(x, self.vec).unroll(x, 4)
        self._parallel(out, y)
        return out


PEER = Halide()
