"""The networks of `examples/networks`: their inputs, and what they give, with NumPy."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from math import erf, prod
from pathlib import Path
from typing import Any

import numpy as np

from stripec.tensors import parse_type

Array = np.ndarray[Any, Any]

FOLDER = Path(__file__).parents[2] / "examples" / "networks"
sys.path.insert(0, str(FOLDER))
make = importlib.import_module("make")
model = importlib.import_module("model")

# Narrow, with few pixels: the same layers in the same order.
SMALL = {
    "alexnet": {"size": 67, "divide": 16, "classes": 10},
    "vgg16": {"size": 32, "divide": 16, "classes": 10},
    "resnet18": {"size": 33, "divide": 8, "classes": 10},
    "resnet50": {"size": 33, "divide": 16, "classes": 10},
    "mobilenet_v2": {"size": 33, "divide": 8, "classes": 10},
    "bert_layer": {"size": 10, "divide": 4},
}
KINDS = [(dtype, name) for dtype in ("f32", "i8") for name in SMALL]


def draw(description: Mapping[str, Any]) -> dict[str, Array]:
    """The inputs that a network's JSON file describes."""
    rng = np.random.default_rng(description["seed"])
    found = {}
    for name, how in description["inputs"].items():
        type_ = parse_type(how["type"], name)
        values = how["mean"] + how["deviation"] * rng.standard_normal(type_.shape, np.float32)
        narrow = not type_.dtype.is_float
        found[name] = (np.clip(np.round(values), -127, 127) if narrow else values).astype(type_.dtype.numpy)
    return found


def drawn(network: Any, dtype: str) -> dict[str, Array]:
    return draw(json.loads(make.network_json(network, dtype)))


def computed(network: Any, dtype: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The result of every layer, in f64; in whole numbers between layers if `dtype` is i8."""
    found = {network.layers[0].sources[0]: next(iter(inputs.values())).astype(np.float64)}
    for layer in make.layers_of(network, dtype):
        parameters = {part: inputs[f"{layer.name}_{part}"] for part in make._weights(layer, dtype)}
        found[layer.name] = _layer(layer, [found[s] for s in layer.sources], parameters, dtype == "i8")
    return found


def _layer(layer: Any, x: list[Array], parameters: Mapping[str, Array], i8: bool) -> Array:
    wide = {part: array.astype(np.float64) for part, array in parameters.items()}
    weight, scale, shift = (wide.get(part) for part in ("weight", "scale", "shift"))
    first = x[0]
    match layer.kind:
        case "conv" | "depthwise":
            assert weight is not None
            windows = _windows(first, layer, 0.0)
            if layer.kind == "depthwise":
                sums = np.einsum("yxcrs,rsc->yxc", windows, weight)
            elif layer.groups > 1:
                split = windows.reshape(*windows.shape[:2], layer.groups, -1, *windows.shape[3:])
                sums = np.einsum("yxgcrs,rscgk->yxgk", split, weight, optimize=True).reshape(layer.shape)
            else:
                sums = np.einsum("yxcrs,rsck->yxk", windows, weight, optimize=True)
        case "dense" | "linear" | "heads":
            assert weight is not None
            sums = np.tensordot(first, weight, first.ndim if layer.kind == "dense" else 1)
        case "join":
            assert weight is not None
            sums = np.tensordot(first, weight, 2)
        case "pool":
            return np.asarray(_windows(first, layer, -np.inf).max((3, 4)))
        case "average":
            mean = first.mean((0, 1))
            return np.asarray(np.round(mean) if i8 else mean)
        case "normalise":
            squares = np.pad(first**2, ((0, 0), (0, 0), (2, 2)))
            near = np.lib.stride_tricks.sliding_window_view(squares, 5, axis=2).sum(-1)
            return np.asarray(first / (2 + 1e-4 * near) ** 0.75)
        case "softmax":
            return _softmax(first)
        case "add":
            total = first + x[1]
            if i8:
                return np.asarray(np.clip(total, 0 if layer.activation else -128, 127))
            return _activated(layer.activation, total)
        case "attend" if i8:
            products = np.einsum("thd,uhd->htu", first, x[1])
            away = products - products.max(-1, keepdims=True)
            return np.asarray(np.round(127 * np.exp(away / (8 * model.UNIT**2))))
        case "mix" if i8:
            weighed = np.einsum("htu,uhd->thd", first, x[1]) / first.sum(-1).T[:, :, None]
            return _narrowed(weighed * scale)
        case "attend":
            return _softmax(np.einsum("thd,uhd->htu", first, x[1]) / 8)
        case "mix":
            return np.asarray(np.einsum("htu,uhd->thd", first, x[1]))
        case _:  # add_norm
            both = first + x[1]
            away = both - both.mean(1, keepdims=True)
            normed = away / np.sqrt(both.var(1, keepdims=True) + 1e-12) * scale + shift
            return _narrowed(normed) if i8 else np.asarray(normed)
    total = (sums if scale is None else sums * scale) + shift
    if not i8:
        return _activated(layer.activation, total)
    if layer.name == "scores":
        return np.asarray(total)
    if layer.activation == "gelu":
        return _narrowed(_activated("gelu", total / model.UNIT) * model.UNIT)
    return _narrowed(_activated("relu" if layer.activation else "", total))


def _narrowed(x: Array) -> Array:
    """Rounded, and cut off at what i8 holds."""
    return np.asarray(np.clip(np.round(x), -128, 127))


def _windows(x: Array, layer: Any, outside: float) -> Array:
    pad, step = layer.pad, layer.stride
    wide = np.pad(x, ((pad, pad), (pad, pad), (0, 0)), constant_values=outside)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (layer.window, layer.window), axis=(0, 1))
    return windows[::step, ::step]


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _activated(activation: str, x: Array) -> Array:
    match activation:
        case "relu":
            return np.maximum(x, 0)
        case "relu6":
            return np.clip(x, 0, 6)
        case "gelu":
            return np.asarray(x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))))
        case _:
            return x


def products_inside(layer: Any) -> int:
    """The products of a layer without those of padding, which a program leaves out."""
    if layer.kind not in ("conv", "depthwise"):
        return int(layer.multiply_adds)
    inside = []
    for size, result in zip(layer.reads[0][:2], layer.shape[:2], strict=True):
        at = layer.stride * np.arange(result)[:, None] + np.arange(layer.window) - layer.pad
        inside.append(int(((at >= 0) & (at < size)).sum()))
    return int(prod(inside) * layer.terms // layer.window**2 * layer.shape[-1])
