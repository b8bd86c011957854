"""Convolutions as problems: of all channels or within groups of them, channels last or first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.problems import Array, Operand, Problem


@dataclass(frozen=True)
class Conv(Problem):
    """Within each of `groups` groups, a convolution of `ci` channels into `co`, zeros around by `pad`;
    `epilogue` adds a bias and takes the maximum with 0.

    Pictures are (n, h, w, ci) and filters (kh, kw, ci, co); with `first`, (n, ci, h, w) and (co, ci, kh, kw).
    Several groups are one more dimension, in front of the channels, of which those of size 1 are left out:
    a depthwise layer has pictures (n, h, w, groups) and filters (kh, kw, groups).
    """

    n: int
    h: int
    w: int
    ci: int
    co: int
    kh: int
    kw: int
    stride: int = 1
    pad: tuple[int, int] = (0, 0)
    dilation: int = 1
    epilogue: bool = True
    groups: int = 1
    first: bool = False

    @property
    def depthwise(self) -> bool:
        return self.groups > 1 and self.ci == self.co == 1

    @property
    def out_size(self) -> tuple[int, int]:
        def windows(size: int, taps: int, pad: int) -> int:
            return (size + 2 * pad - (taps - 1) * self.dilation - 1) // self.stride + 1

        return windows(self.h, self.kh, self.pad[0]), windows(self.w, self.kw, self.pad[1])

    @property
    def tile(self) -> str:
        ho, wo = self.out_size
        read = self._picture("c", self._position("y", "r", 0), self._position("x", "s", 1))
        made, sizes = self._picture("k", "y", "x"), self._picture("k", str(ho), str(wo))
        weights = self._filter()
        given = [f"I[{_upper(self._picture('c', 'h', 'w'))}]", f"F[{_upper(weights)}]"]
        product = f"I[{', '.join(read)}] * F[{', '.join(weights)}]"
        sums = f"[{', '.join(made)} : {_upper(sizes)}] = +({product});"
        if not self.epilogue:
            return f"function ({', '.join(given)}) -> (O) {{\n  O{sums}\n}}"
        given.append(f"B[{_upper([*self._channels('k'), *('uv' if self.first else '')])}]")
        return f"function ({', '.join(given)}) -> (O) {{\n  T{sums}\n  O = relu(T + B);\n}}"

    def _position(self, pixel: str, tap: str, axis: int) -> str:
        """`2*y + r - 1`: where the window at `pixel` reads for `tap`."""
        step = f"{self.stride}*{pixel}" if self.stride > 1 else pixel
        reach = f"{self.dilation}*{tap}" if self.dilation > 1 else tap
        return f"{step} + {reach}" + (f" - {self.pad[axis]}" if self.pad[axis] else "")

    def _channels(self, names: str) -> list[str]:
        """Of the names c (in) and k (out) those that are dimensions, behind that of the groups."""
        if self.groups == 1:
            return [*names]
        size = {"c": self.ci, "k": self.co}
        return ["g", *(name for name in names if size[name] > 1)]

    def _picture(self, channel: str, y: str, x: str) -> list[str]:
        channels = self._channels(channel)
        return ["n", *channels, y, x] if self.first else ["n", y, x, *channels]

    def _filter(self) -> list[str]:
        return [*self._channels("kc"), "r", "s"] if self.first else ["r", "s", *self._channels("ck")]

    def _shape(self, names: list[str], size: tuple[int, int]) -> tuple[int, ...]:
        known = {"n": self.n, "g": self.groups, "c": self.ci, "k": self.co, "r": self.kh, "s": self.kw}
        known |= {"h": size[0], "w": size[1], "u": 1, "v": 1}
        return tuple(known[name] for name in names)

    @property
    def operands(self) -> tuple[Operand, ...]:
        size = (self.h, self.w)
        picture = Operand("I", self._shape(self._picture("c", "h", "w"), size))
        weights = Operand("F", self._shape(self._filter(), size), constant=True)
        shape = self._shape([*self._channels("k"), *("uv" if self.first else "")], size)
        return picture, weights, *((Operand("B", shape, constant=True),) if self.epilogue else ())

    @property
    def result(self) -> Operand:
        return Operand("O", self._shape(self._picture("k", "h", "w"), self.out_size))

    @property
    def flops(self) -> int:
        return 2 * math.prod(self.result.shape) * self.kh * self.kw * self.ci

    @property
    def bytes_in(self) -> int:
        """Where strides leave pixels out (1x1 filters), these are not read."""
        seen = min(1.0, self.kh * self.kw / self.stride**2)
        return int(self.operands[0].bytes * seen) + sum(operand.bytes for operand in self.operands[1:])

    @property
    def products(self) -> tuple[tuple[int, int, int], ...]:
        """With one channel out, a product of its shape would be bound by memory, and no yardstick: products
        of 1024 x 1024 matrices instead, as many as there are operations for. Groups have none either."""
        if self.groups > 1:
            return ()
        if self.co == 1:
            return ((1024, 1024, 1024),) * (self.flops // (2 * 1024**3))
        ho, wo = self.out_size
        return ((self.n * ho * wo, self.co, self.kh * self.kw * self.ci),)

    def reference(self, *arrays: Array) -> Array:
        picture, weights, *bias = arrays
        image = self.channels_first(picture).transpose(0, 2, 3, 1)
        kernel = self.filters_first(weights).reshape(self.groups, self.co, self.ci, self.kh, self.kw)
        plain = self.n == self.ci == self.co == self.groups == self.stride == self.dilation == 1
        if plain and self.kh * self.kw > 1000:
            total = _correlation(padded(image, self.pad)[0, :, :, 0], kernel[0, 0, 0])[None, :, :, None]
        else:
            total = np.zeros((self.n, *self.out_size, self.groups * self.co), picture.dtype)
            for r, s, window in taps(padded(image, self.pad), self):
                total += self._products(window, kernel[..., r, s])
        made = finish(total, [b.reshape(-1) for b in bias])
        return self.as_result(made.transpose(0, 3, 1, 2))

    def _products(self, window: Array, kernel: Array) -> Array:
        """What one tap adds: pixels (n, h, w, channels) times (groups, out, in)."""
        if self.groups == 1:
            return np.asarray(np.matmul(window, kernel[0].T))
        if self.depthwise:
            return np.asarray(window * kernel[:, 0, 0])
        apart = window.reshape(*window.shape[:3], self.groups, self.ci)
        made = np.asarray(np.einsum("nyxgc,gkc->nyxgk", apart, kernel))
        return made.reshape(*window.shape[:3], -1)

    def channels_first(self, picture: Array) -> Array:
        """A picture as (n, channels, h, w): a view."""
        if self.first:
            return picture.reshape(self.n, -1, *picture.shape[-2:])
        return picture.reshape(*picture.shape[:3], -1).transpose(0, 3, 1, 2)

    def filters_first(self, weights: Array) -> Array:
        """The filters as (channels out, channels in of a group, kh, kw)."""
        if not self.first:
            grouped = weights.reshape(self.kh, self.kw, self.groups, self.ci, self.co)
            weights = np.ascontiguousarray(grouped.transpose(2, 4, 3, 0, 1))
        return weights.reshape(-1, self.ci, self.kh, self.kw)

    def as_result(self, made: Array) -> Array:
        """(n, channels, h, w) in the layout of the problem."""
        ordered = made if self.first else made.transpose(0, 2, 3, 1)
        return np.ascontiguousarray(ordered).reshape(self.result.shape)


def depthwise(
    n: int,
    h: int,
    w: int,
    channels: int,
    kh: int = 3,
    kw: int = 3,
    stride: int = 1,
    pad: tuple[int, int] = (1, 1),
    dilation: int = 1,
    epilogue: bool = True,
) -> Conv:
    """A convolution within each channel."""
    return Conv(n, h, w, 1, 1, kh, kw, stride, pad, dilation, epilogue, groups=channels)


def padded(picture: Array, pad: tuple[int, int]) -> Array:
    return np.pad(picture, ((0, 0), (pad[0],) * 2, (pad[1],) * 2, (0, 0))) if any(pad) else picture


def taps(picture: Array, conv: Conv) -> Iterator[tuple[int, int, Array]]:
    """For each tap of the filter the pixels that it meets, a view of the shape (n, ho, wo, channels)."""
    ho, wo = conv.out_size
    step = conv.stride
    for r in range(conv.kh):
        for s in range(conv.kw):
            y, x = r * conv.dilation, s * conv.dilation
            yield r, s, picture[:, y : y + (ho - 1) * step + 1 : step, x : x + (wo - 1) * step + 1 : step]


def finish(total: Array, bias: list[Array]) -> Array:
    return np.maximum(total + bias[0], 0) if bias else total


def _upper(names: list[str]) -> str:
    return ", ".join(names).upper()


def _correlation(image: Array, taps: Array) -> Array:
    """sum over (r, s) of image[y + r, x + s] * taps[r, s] by Fourier transforms."""
    spectrum = np.fft.rfft2(image) * np.conj(np.fft.rfft2(taps, image.shape))
    whole = np.fft.irfft2(spectrum, image.shape)
    return np.asarray(whole[: image.shape[0] - taps.shape[0] + 1, : image.shape[1] - taps.shape[1] + 1])
