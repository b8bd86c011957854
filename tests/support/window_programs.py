"""Random Tile programs of blocks that read windows of each other: with strides, ratios, borders, rows.

All values are small integers in f32, so that every order of the sums gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Program
from tile_frontend import compile_tile

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class WindowProgram:
    text: str
    inputs: dict[str, Array]

    def compile(self) -> Program:
        types = {name: TensorType(DType.F32, a.shape) for name, a in self.inputs.items()}
        return compile_tile(Source("windows.tile", self.text), types)


def window_program(seed: int, statements: int = 6) -> WindowProgram:
    """2 to `statements` blocks, one after the other; the last is the result, at times one more."""
    return _Maker(np.random.default_rng(seed)).make(statements)


class _Maker:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._shapes: dict[str, tuple[int, int]] = {}
        self._lines: list[str] = []

    def _number(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high + 1))

    def make(self, statements: int) -> WindowProgram:
        shape = self._number(5, 21), self._number(5, 21)
        inputs = {"X": self._rng.integers(-2, 3, shape).astype(np.float32)}
        self._shapes["X"] = shape
        makers = [self._window, self._window, self._padded, self._pooled, self._spread, self._map]
        makers += [self._map, self._rows, self._turned, self._pair]
        count = self._number(2, statements)
        while len(self._lines) < count:
            source = list(self._shapes)[
                -1 if self._rng.random() < 0.75 else -self._number(1, len(self._shapes))
            ]
            makers[self._number(0, len(makers) - 1)](f"T{len(self._lines)}", source)
        made = [name for name in self._shapes if name != "X"]
        outputs = made[-1:] if self._rng.random() < 0.7 else [made[self._number(0, len(made) - 1)], made[-1]]
        head = f"function (X[H, W]) -> ({', '.join(dict.fromkeys(outputs))})"
        return WindowProgram(f"{head} {{\n  " + "\n  ".join(self._lines) + "\n}\n", inputs)

    def _add(self, name: str, shape: tuple[int, int], line: str) -> None:
        if min(shape) > 0 and shape[0] * shape[1] <= 900:
            self._shapes[name] = shape
            self._lines.append(line)

    def _operation(self) -> str:
        return "+" if self._rng.random() < 0.7 else ">"

    def _window(self, name: str, source: str) -> None:
        """Every point reads a window, somewhere inside."""
        height, width = self._shapes[source]
        i, j, a, b = (self._number(1, 3) for _ in range(4))
        s, t = (1 if self._rng.random() < 0.7 else self._number(1, 3) for _ in range(2))
        shape = (height - (i - 1) * a - 1) // s + 1, (width - (j - 1) * b - 1) // t + 1
        self._add(
            name,
            shape,
            f"{name}[y, x : {shape[0]}, {shape[1]}] = {self._operation()}"
            f"({source}[{s}*y + {a}*i, {t}*x + {b}*j]), i < {i}, j < {j};",
        )

    def _padded(self, name: str, source: str) -> None:
        """A window that reaches over the border, where it is cut."""
        shape = self._shapes[source]
        i, j = self._number(1, 3), self._number(1, 3)
        self._add(
            name,
            shape,
            f"{name}[y, x : {shape[0]}, {shape[1]}] = {self._operation()}"
            f"({source}[y + i - {i // 2}, x + j - {j // 2}]), i < {i}, j < {j};",
        )

    def _pooled(self, name: str, source: str) -> None:
        """Each point reads a cell of its own."""
        height, width = self._shapes[source]
        s, t = self._number(1, 3), self._number(1, 3)
        shape = height // s, width // t
        self._add(
            name,
            shape,
            f"{name}[y, x : {shape[0]}, {shape[1]}] = >({source}[{s}*y + i, {t}*x + j]), i < {s}, j < {t};",
        )

    def _spread(self, name: str, source: str) -> None:
        """The elements, with zeros between."""
        height, width = self._shapes[source]
        step, off = self._number(1, 2), self._number(0, 1)
        shape = step * height + off, width
        self._add(name, shape, f"{name}[{step}*y + {off}, x : {shape[0]}, {shape[1]}] = =({source}[y, x]);")

    def _map(self, name: str, source: str) -> None:
        shape = self._shapes[source]
        others = [n for n, other in self._shapes.items() if other == shape]
        other = others[self._number(0, len(others) - 1)]
        self._add(name, shape, f"{name} = relu({source}) - {other};")

    def _pair(self, name: str, source: str) -> None:
        """Two windows of one block, apart from each other."""
        height, width = self._shapes[source]
        off = self._number(0, 2)
        shape = height - off, width
        self._add(
            name,
            shape,
            f"{name}[y, x : {shape[0]}, {shape[1]}] = +({source}[y, x] * {source}[y + {off}, x]);",
        )

    def _rows(self, name: str, source: str) -> None:
        """A reduction of each row, or column, which is then taken from its elements."""
        height, width = self._shapes[source]
        if self._rng.random() < 0.5:
            reduction = f"{name}s[y, 0 : {height}, 1] = >({source}[y, x]);"
        else:
            reduction = f"{name}s[0, x : 1, {width}] = +({source}[y, x]);"
        self._add(name, (height, width), f"{reduction} {name} = {source} - {name}s;")

    def _turned(self, name: str, source: str) -> None:
        height, width = self._shapes[source]
        self._add(name, (width, height), f"{name}[x, y : {width}, {height}] = =({source}[y, x]);")
