"""Convolutions by groups of channels, of pictures with channels last or first: a `Problem` each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.problems import Array, Operand, Problem


@dataclass(frozen=True)
class Grouped(Problem):
    """Within each of `groups` groups of channels, a convolution of `ci` channels into `co`, with bias and
    maximum with 0. Pictures are (n, h, w, groups, ci), filters (kh, kw, groups, ci, co); `first`: (n, groups,
    ci, h, w) and (groups, co, ci, kh, kw). With one group that dimension is left out."""

    n: int
    h: int
    w: int
    groups: int
    ci: int
    co: int
    kh: int
    kw: int
    stride: int = 1
    pad: tuple[int, int] = (0, 0)
    dilation: int = 1
    first: bool = False

    @property
    def out_size(self) -> tuple[int, int]:
        def windows(size: int, taps: int, pad: int) -> int:
            return (size + 2 * pad - (taps - 1) * self.dilation - 1) // self.stride + 1

        return windows(self.h, self.kh, self.pad[0]), windows(self.w, self.kw, self.pad[1])

    def _picture(self, y: str, x: str, channel: str, group: str = "g") -> list[str]:
        channels = [group, channel] if self.groups > 1 else [channel]
        return ["n", *channels, y, x] if self.first else ["n", y, x, *channels]

    def _filter(self) -> list[str]:
        groups = ["g"] if self.groups > 1 else []
        return [*groups, "k", "c", "r", "s"] if self.first else ["r", "s", *groups, "c", "k"]

    @property
    def tile(self) -> str:
        def position(pixel: str, tap: str, pad: int) -> str:
            step = f"{self.stride}*{pixel}" if self.stride > 1 else pixel
            reach = f"{self.dilation}*{tap}" if self.dilation > 1 else tap
            return f"{step} + {reach}" + (f" - {pad}" if pad else "")

        picture = ", ".join(self._picture("h", "w", "c")).upper()
        read = self._picture(position("y", "r", self.pad[0]), position("x", "s", self.pad[1]), "c")
        ho, wo = self.out_size
        made = ", ".join(self._picture("y", "x", "k"))
        sizes = ", ".join(self._picture(str(ho), str(wo), "K", "G")).upper()
        taps, bias = ", ".join(self._filter()), ["k", "G"][self.groups > 1]
        bias = "G, K" if self.groups > 1 else "K"
        each = ("g, k" if self.groups > 1 else "k") + (", 0, 0" if self.first else "")
        added = "A"
        lines = [f"  T[{made} : {sizes}] = +(I[{', '.join(read)}] * F[{taps}]);"]
        if self.first:  # the bias is along inner dimensions that it does not have
            shape = f"{bias}, 1, 1"
            lines.append(f"  A[{each} : {shape}] = =(B[{each.removesuffix(', 0, 0')}]);")
        else:
            added = "B"
        lines.append(f"  O = relu(T + {added});")
        text = "\n".join(lines)
        return f"function (I[{picture}], F[{taps.upper()}], B[{bias}]) -> (O) {{\n{text}\n}}"

    def _shape(self, names: list[str], h: int, w: int, channels: int) -> tuple[int, ...]:
        size = {"n": self.n, "g": self.groups, "h": h, "w": w, "c": channels}
        return tuple(size[name] for name in names)

    @property
    def operands(self) -> tuple[Operand, ...]:
        size = {"g": self.groups, "k": self.co, "c": self.ci, "r": self.kh, "s": self.kw}
        taps = tuple(size[name] for name in self._filter())
        bias = (self.groups, self.co) if self.groups > 1 else (self.co,)
        picture = self._shape(self._picture("h", "w", "c"), self.h, self.w, self.ci)
        return Operand("I", picture), Operand("F", taps, constant=True), Operand("B", bias, constant=True)

    @property
    def result(self) -> Operand:
        return Operand("O", self._shape(self._picture("h", "w", "c"), *self.out_size, self.co))

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.result.shape) * self.kh * self.kw * self.ci

    def channels_first(self, picture: Array) -> Array:
        """A picture, or a result, as (n, channels, h, w): a view."""
        if self.first:
            return picture.reshape(self.n, -1, *picture.shape[-2:])
        return picture.reshape(*picture.shape[:3], -1).transpose(0, 3, 1, 2)

    def filters_first(self, weights: Array) -> Array:
        """The filters as (channels out, channels in of a group, kh, kw)."""
        if not self.first:
            order = (2, 4, 3, 0, 1) if self.groups > 1 else (3, 2, 0, 1)
            weights = weights.transpose(order)
        return np.ascontiguousarray(weights).reshape(-1, self.ci, self.kh, self.kw)

    def as_result(self, made: Array) -> Array:
        """Of (n, channels, h, w), the array of the problem."""
        if not self.first:
            made = made.transpose(0, 2, 3, 1)
        return np.ascontiguousarray(made).reshape(self.result.shape)

    def reference(self, *arrays: Array) -> Array:
        picture, weights, bias = arrays
        edges = ((0, 0), (0, 0), (self.pad[0],) * 2, (self.pad[1],) * 2)
        image = np.pad(self.channels_first(picture), edges)
        image = image.reshape(self.n, self.groups, self.ci, *image.shape[-2:])
        kernel = self.filters_first(weights).reshape(self.groups, self.co, self.ci, self.kh, self.kw)
        ho, wo = self.out_size
        total = np.zeros((self.n, self.groups, self.co, ho, wo), picture.dtype)
        for r in range(self.kh):
            for s in range(self.kw):
                y, x = r * self.dilation, s * self.dilation
                window = image[..., y : y + (ho - 1) * self.stride + 1 : self.stride, :]
                window = window[..., x : x + (wo - 1) * self.stride + 1 : self.stride]
                total += np.einsum("ngcyx,gkc->ngkyx", window, kernel[..., r, s])
        total = np.maximum(total + bias.reshape(1, self.groups, self.co, 1, 1), 0)
        return self.as_result(total.reshape(self.n, -1, ho, wo))
