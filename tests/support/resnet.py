"""ResNet-18 as one Tile program, and each of its distinct layers alone. Batch normalisation is folded to a
scale and a shift for each channel (He, Zhang, Ren, Sun, "Deep Residual Learning", 2015, table 1).

`channels` are those of the four stages, `size` the edge of the square picture, `classes` how many scores
come out.
"""

from __future__ import annotations

from dataclasses import dataclass

from stripe.diag import Source
from stripe.ir import Program
from tests.support.golden import input_types
from tile_frontend import compile_tile

CHANNELS = (64, 128, 256, 512)


@dataclass(frozen=True)
class Network:
    """A program's text, and the types of its inputs as golden files write them."""

    name: str
    text: str
    shapes: str

    def compile(self) -> Program:
        return compile_tile(Source(f"{self.name}.tile", self.text), input_types({"shapes": self.shapes}))


class _Maker:
    def __init__(self, height: int, channels: int) -> None:
        self.lines: list[str] = []
        self.inputs: dict[str, tuple[int, ...]] = {"X": (height, height, channels)}
        self.shapes = {"X": (height, height, channels)}

    def conv(self, name: str, source: str, outputs: int, window: int, stride: int) -> str:
        """A convolution with its scale and shift."""
        height, _, depth = self.shapes[source]
        size, pad = (height + stride - 1) // stride, window // 2
        y, x = (f"{stride}*{i}" if stride > 1 else i for i in "yx")
        offset = f" - {pad}" if pad else ""
        rows, columns = (f"{y} + r{offset}", f"{x} + s{offset}") if window > 1 else (y, x)
        weight = f"W{name}[r, s, c, k]" if window > 1 else f"W{name}[c, k]"
        self.lines += [
            f"C{name}[y, x, k : {size}, {size}, {outputs}] = +({source}[{rows}, {columns}, c] * {weight});",
            f"N{name} = C{name} * S{name} + T{name};",
        ]
        self.inputs[f"W{name}"] = (window, window, depth, outputs)[2 if window == 1 else 0 :]
        self.inputs[f"S{name}"] = self.inputs[f"T{name}"] = (outputs,)
        self.shapes[f"N{name}"] = (size, size, outputs)
        return f"N{name}"

    def relu(self, name: str, expression: str, like: str) -> str:
        self.lines.append(f"{name} = relu({expression});")
        self.shapes[name] = self.shapes[like]
        return name

    def block(self, name: str, source: str, outputs: int, stride: int) -> str:
        """Two 3 x 3 convolutions and the way around them."""
        first = self.conv(f"{name}a", source, outputs, 3, stride)
        second = self.conv(f"{name}b", self.relu(f"R{name}", first, first), outputs, 3, 1)
        around = source
        if stride > 1 or self.shapes[source][2] != outputs:
            around = self.conv(f"{name}c", source, outputs, 1, stride)
        return self.relu(f"Y{name}", f"{second} + {around}", second)

    def pool(self, source: str) -> str:
        height, _, depth = self.shapes[source]
        size = (height + 1) // 2
        self.lines.append(
            f"P[y, x, c : {size}, {size}, {depth}] = >({source}[2*y + r - 1, 2*x + s - 1, c]), r < 3, s < 3;"
        )
        self.shapes["P"] = (size, size, depth)
        return "P"

    def scores(self, source: str, classes: int) -> str:
        height, _, depth = self.shapes[source]
        self.inputs |= {"WF": (depth, classes), "BF": (classes,)}
        self.lines += [
            f"G[c : {depth}] = +({source}[y, x, c]);",
            f"M = G / {height * height};",
            f"F[k : {classes}] = +(M[c] * WF[c, k]);",
            "Z = F + BF;",
        ]
        return "Z"

    def network(self, name: str, result: str, dtype: str = "f32") -> Network:
        shapes = " ".join(f"{n}={dtype}[{','.join(map(str, s))}]" for n, s in self.inputs.items())
        body = "\n  ".join(self.lines)
        text = f"function {name}({', '.join(self.inputs)}) -> ({result}) {{\n  {body}\n}}\n"
        return Network(name, text, shapes)


def resnet18(size: int = 224, channels: tuple[int, ...] = CHANNELS, classes: int = 1000) -> Network:
    make = _Maker(size, 3)
    stem = make.conv("0", "X", channels[0], 7, 2)
    here = make.pool(make.relu("R0", stem, stem))
    for stage, outputs in enumerate(channels, start=1):
        here = make.block(f"{stage}x", here, outputs, 1 if stage == 1 else 2)
        here = make.block(f"{stage}y", here, outputs, 1)
    return make.network("resnet18", make.scores(here, classes))


def layers(size: int = 224, channels: tuple[int, ...] = CHANNELS, classes: int = 1000) -> list[Network]:
    """Each distinct layer alone."""
    found: list[Network] = []

    def alone(name: str, height: int, depth: int) -> _Maker:
        return _Maker(height, depth)

    stem = alone("stem", size, 3)
    found.append(stem.network("stem", stem.relu("R", stem.conv("0", "X", channels[0], 7, 2), "N0")))
    height = (size + 1) // 2
    pool = alone("pool", height, channels[0])
    found.append(pool.network("pool", pool.pool("X")))
    height, depth = (height + 1) // 2, channels[0]
    for stage, outputs in enumerate(channels, start=1):
        if stage > 1:
            first = alone("first", height, depth)
            found.append(first.network(f"first{stage}", first.block("1", "X", outputs, 2)))
            height, depth = (height + 1) // 2, outputs
        block = alone("block", height, depth)
        found.append(block.network(f"block{stage}", block.block("1", "X", outputs, 1)))
    scores = alone("scores", height, depth)
    found.append(scores.network("scores", scores.scores("X", classes)))
    return found
