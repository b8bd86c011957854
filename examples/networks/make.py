"""Writes the networks of `model.py` as Tile programs: `python examples/networks/make.py [FOLDER]`.

    f32/resnet18.tile      the whole network, with all sizes written
    f32/resnet18.json      how its inputs are drawn, and its layers: program, types, how often
    f32/layers/NAME.tile   a kind of layer, for any sizes
    i8/...                 the same for i8, with sums in i32 that are scaled, shifted and rounded to i8 again;
                           softmax, means and variances, and the error function are in f32 in between

Layers that differ in sizes only share a program.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from model import NETWORKS, UNIT, Layer, Network, Shape, values

Names = Callable[[str], str]

# The sizes that a layer's program reads from its inputs.
LETTERS = {
    "conv": {"input": "H W C", "weight": "R S C K", "scale": "K", "shift": "K"},
    "grouped": {"input": "H W D", "weight": "R S C G K", "scale": "D2", "shift": "D2"},
    "depthwise": {"input": "H W C", "weight": "R S C", "scale": "C", "shift": "C"},
    "dense": {"input": "C", "weight": "C K", "scale": "K", "shift": "K"},
    "dense3": {"input": "H W C", "weight": "H W C K", "scale": "K", "shift": "K"},
    "pool": {"input": "H W C"},
    "average": {"input": "H W C"},
    "normalise": {"input": "H W C"},
    "softmax": {"input": "K"},
    "add": {"input": "H W C", "other": "H W C"},
    "heads": {"input": "T C", "weight": "C H D", "scale": "H D", "shift": "H D"},
    "attend": {"input": "T H 64", "other": "U H 64"},
    "mix": {"input": "H T U", "other": "U H D", "scale": "H D"},
    "join": {"input": "T H D", "weight": "H D C", "scale": "C", "shift": "C"},
    "add_norm": {"input": "T C", "other": "T C", "scale": "C", "shift": "C"},
    "linear": {"input": "T C", "weight": "C K", "scale": "K", "shift": "K"},
}
ABOUT = {
    "conv": "A convolution of an H x W picture of C channels with K filters of R x S",
    "grouped": "A convolution of which each of G groups of filters sees its own C of the channels",
    "depthwise": "A convolution of each of C channels with a filter of its own",
    "dense": "A product of C numbers with a matrix",
    "dense3": "A product of a whole picture with a matrix",
    "pool": "The largest of a window in each channel",
    "average": "The mean of each channel",
    "normalise": "Each number divided by what the five channels around it hold",
    "softmax": "Scores made probabilities",
    "add": "The sum of two ways through a network",
    "heads": "A product of each of T tokens with a matrix, dealt out to H heads",
    "attend": "How much each of T tokens looks at each of U, in each of H heads of 64 features",
    "mix": "The values of U tokens, by how much each of T tokens looks at them",
    "join": "A product of each of T tokens with a matrix, over all heads",
    "add_norm": "The sum of two ways, with the mean and the variance of each token taken out",
    "linear": "A product of each of T tokens with a matrix",
}
ABOUT_I8 = {
    "attend": "How much each of T tokens looks at each of U, in each of H heads of 64 features: at most 127",
    "mix": "The mean of the values of U tokens, weighed by how much each of T tokens looks at them",
}
RESULTS = {
    "dense": "K", "dense3": "K", "average": "C", "normalise": "H W C", "softmax": "K", "add": "H W C",
    "heads": "T H D", "attend": "H T U", "mix": "T H D", "join": "T C", "add_norm": "T C", "linear": "T K",
}  # fmt: skip


def letters(layer: Layer) -> str:
    if layer.kind == "conv" and layer.groups > 1:
        return "grouped"
    return "dense3" if layer.kind == "dense" and len(layer.reads[0]) == 3 else layer.kind


def statements(layer: Layer, name: Names, sizes: list[str], channels: str, i8: bool) -> list[str]:
    """A layer in Tile. `name` gives the name of an input or of what is between; `sizes` is the shape of the
    result, and `channels` how many of each group's input channels there are, and of its output channels."""
    x, other, out, summed = name("input"), name("other"), name("output"), name("sum")
    weight, powers, most = name("weight"), name("powers"), name("most")
    shape = ", ".join(sizes)
    at = [_window(i, tap, layer) for i, tap in (("y", "r"), ("x", "s"))]
    rows = f"{at[0]}, {at[1]}"
    match letters(layer):
        case "conv":
            return [
                f"{summed}[y, x, k : {shape}] = +({x}[{rows}, c] * {weight}[r, s, c, k]);",
                _finished(layer, name, i8),
            ]
        case "grouped":
            inner, outer = channels.split()
            return [
                f"{summed}[y, x, {outer}*g + k : {shape}] = "
                f"+({x}[{rows}, {inner}*g + c] * {weight}[r, s, c, g, k]);",
                _finished(layer, name, i8),
            ]
        case "depthwise":
            return [
                f"{summed}[y, x, c : {shape}] = +({x}[{rows}, c] * {weight}[r, s, c]);",
                _finished(layer, name, i8),
            ]
        case "dense" | "dense3" as kind:
            inside = "c" if kind == "dense" else "y, x, c"
            return [
                f"{summed}[k : {shape}] = +({x}[{inside}] * {weight}[{inside}, k]);",
                _finished(layer, name, i8),
            ]
        case "pool":
            return [f"{out}[y, x, c : {shape}] = >({x}[{rows}, c]), r < {layer.window}, s < {layer.window};"]
        case "average":
            mean = f"as_float({summed}) / {channels}" if i8 else f"{summed} / {channels}"
            result = f"as_int(round({mean}), 8)" if i8 else mean
            return [f"{summed}[c : {shape}] = +({x}[y, x, c]);", f"{out} = {result};"]
        case "normalise":
            near = f"{x}[y, x, c + i - 2]"
            return [
                f"{summed}[y, x, c : {shape}] = +({near} * {near}), i < 5;",
                f"{out} = {x} / pow(2 + 0.0001 * {summed}, 0.75);",
            ]
        case "softmax":
            return [
                f"{most}[] = >({x}[k]);",
                f"{powers} = exp({x} - {most});",
                f"{summed}[] = +({powers}[k]);",
                f"{out} = {powers} / {summed};",
            ]
        case "add" if i8:
            least = 0 if layer.activation else -128
            return [f"{out} = as_int(max(min(as_int({x}, 16) + {other}, 127), {least}), 8);"]
        case "add":
            return [f"{out} = {_activated(layer, x + ' + ' + other)};"]
        case "heads":
            return [
                f"{summed}[t, h, d : {shape}] = +({x}[t, c] * {weight}[c, h, d]);",
                _finished(layer, name, i8),
            ]
        case "attend" if i8:
            products, rows = name("products"), f"{sizes[0]}, {sizes[1]}, 1"
            return [
                f"{products}[h, t, u : {shape}] = +({x}[t, h, d] * {other}[u, h, d]);",
                f"{most}[h, t, 0 : {rows}] = >({products}[h, t, u]);",
                f"{powers} = exp(as_float({products} - {most}) / {8 * UNIT**2});",
                f"{out} = as_int(round(127 * {powers}), 8);",
            ]
        case "mix" if i8:
            total = name("total")
            return [
                f"{summed}[t, h, d : {shape}] = +({x}[h, t, u] * {other}[u, h, d]);",
                f"{total}[t, h, 0 : {sizes[0]}, {sizes[1]}, 1] = +({x}[h, t, u]);",
                f"{out} = as_int(round(as_float({summed}) / as_float({total}) * {name('scale')}), 8);",
            ]
        case "attend":
            products, rows = name("products"), f"{sizes[0]}, {sizes[1]}, 1"
            return [
                f"{products}[h, t, u : {shape}] = +({x}[t, h, d] * {other}[u, h, d]);",
                f"{most}[h, t, 0 : {rows}] = >({products}[h, t, u]);",
                f"{powers} = exp(({products} - {most}) / 8);",
                f"{summed}[h, t, 0 : {rows}] = +({powers}[h, t, u]);",
                f"{out} = {powers} / {summed};",
            ]
        case "mix":
            return [f"{out}[t, h, d : {shape}] = +({x}[h, t, u] * {other}[u, h, d]);"]
        case "join":
            return [
                f"{summed}[t, c : {shape}] = +({x}[t, h, d] * {weight}[h, d, c]);",
                _finished(layer, name, i8),
            ]
        case "linear":
            return [
                f"{summed}[t, k : {shape}] = +({x}[t, c] * {weight}[c, k]);",
                *(_gelu(name, i8) if layer.activation else [_finished(layer, name, i8)]),
            ]
        case _:  # add_norm
            scale, shift = name("scale"), name("shift")
            both, away, squares = name("both"), name("away"), name("squares")
            added = f"as_float(as_int({x}, 16) + {other})" if i8 else f"{x} + {other}"
            result = f"{away} / sqrt({squares} / {sizes[1]} + 0.000000000001) * {scale} + {shift}"
            return [
                f"{both} = {added};",
                f"{summed}[t, 0 : {sizes[0]}, 1] = +({both}[t, c]);",
                f"{away} = {both} - {summed} / {sizes[1]};",
                f"{squares}[t, 0 : {sizes[0]}, 1] = +({away}[t, c] * {away}[t, c]);",
                f"{out} = as_int(round({result}), 8);" if i8 else f"{out} = {result};",
            ]


def _window(index: str, tap: str, layer: Layer) -> str:
    if layer.window == 1 and layer.kind == "pool":
        return index
    first = index if layer.stride == 1 else f"{layer.stride}*{index}"
    return f"{first} + {tap}" + (f" - {layer.pad}" if layer.pad else "")


def _finished(layer: Layer, name: Names, i8: bool) -> str:
    """What becomes of sums: scaled, shifted, cut off."""
    if i8 and layer.name.startswith("scores"):
        return f"{name('output')} = as_float({name('sum')}) * {name('scale')} + {name('shift')};"
    if i8:
        value = f"as_float({name('sum')}) * {name('scale')} + {name('shift')}"
        # 6 is the largest number that i8 stands for where results are cut off there.
        result = f"round({f'relu({value})' if layer.activation else value})"
        return f"{name('output')} = as_int({result}, 8);"
    scaled = f"{name('sum')} * {name('scale')}" if layer.scaled else name("sum")
    return f"{name('output')} = {_activated(layer, scaled + ' + ' + name('shift'))};"


def _activated(layer: Layer, value: str) -> str:
    match layer.activation:
        case "relu":
            return f"relu({value})"
        case "relu6":
            return f"min(relu({value}), 6)"
        case _:
            return value


def _gelu(name: Names, i8: bool) -> list[str]:
    inner = name("inner")
    if i8:
        value = f"{inner} * (0.5 + 0.5 * erf({inner} * {0.5**0.5 / UNIT:.16g}))"
        return [
            f"{inner} = as_float({name('sum')}) * {name('scale')} + {name('shift')};",
            f"{name('output')} = as_int(round({value}), 8);",
        ]
    return [
        f"{inner} = {name('sum')} + {name('shift')};",
        f"{name('output')} = {inner} * (0.5 + 0.5 * erf({inner} * 0.7071067811865476));",
    ]


# -- programs ------------------------------------------------------------------------------------------


def typed(dtype: str, part: str, layer: Layer | None = None) -> str:
    """The element type of an input of a network of this type."""
    if dtype == "i8" and (part in ("scale", "shift") or (layer is not None and layer.kind == "softmax")):
        return "f32"
    return dtype


def inputs_of(layer: Layer, dtype: str) -> dict[str, tuple[str, Shape]]:
    """Element type and shape of each input of a layer's program."""
    parts = dict(zip(("input", "other"), layer.reads, strict=False)) | _weights(layer, dtype)
    return {part: (typed(dtype, part, layer), shape) for part, shape in parts.items()}


def _weights(layer: Layer, dtype: str) -> dict[str, Shape]:
    found = layer.weights
    if dtype == "i8" and layer.kind == "mix":
        return {"scale": layer.shape[1:]}
    if dtype == "i8" and "weight" in found:
        return {"weight": found["weight"], "scale": found["shift"], "shift": found["shift"]}
    return found


def layers_of(network: Network, dtype: str) -> list[Layer]:
    """Those of the network; i8 numbers are not normalised."""
    if dtype != "i8":
        return network.layers
    left_out = {layer.name: layer.sources[0] for layer in network.layers if layer.kind == "normalise"}
    return [
        replace(layer, sources=tuple(left_out.get(source, source) for source in layer.sources))
        for layer in network.layers
        if layer.name not in left_out
    ]


def program_name(layer: Layer, dtype: str) -> str:
    """What the layer's program is called: layers of one name have one text."""
    parts = [letters(layer)]
    if layer.kind in ("conv", "depthwise", "pool"):
        parts += [f"s{layer.stride}", f"p{layer.pad}"]
    if layer.kind == "pool":
        parts[1:1] = [str(layer.window)]
    if layer.kind in ("conv", "dense") and dtype != "i8":
        parts += ["scale"] if layer.scaled else []
    if layer.name == "scores" and dtype == "i8":
        parts += ["f32"]
    cut = "relu" if dtype == "i8" and layer.activation == "relu6" else layer.activation
    return "_".join(parts + ([cut] if cut else []))


def layer_text(layer: Layer, dtype: str) -> str:
    kind = letters(layer)
    params = []
    for part, (type_, _) in inputs_of(layer, dtype).items():
        sizes = LETTERS[kind][part].replace("D2", "P").split()
        params.append(f"{part}[{', '.join(sizes)}] : {type_}")
    channels = "C K"
    if kind == "average":
        channels = "(H * W)"
    if kind in RESULTS:
        sizes = RESULTS[kind].split()
    else:
        taps = [str(layer.window)] * 2 if kind == "pool" else ["R", "S"]
        sizes = [_size(size, tap, layer) for size, tap in zip("HW", taps, strict=True)]
        sizes.append({"conv": "K", "grouped": "G * K"}.get(kind, "C"))
    lines = statements(layer, lambda part: part, sizes, channels, dtype == "i8")
    return _function(_about(layer, dtype), program_name(layer, dtype), params, "output", lines)


def _about(layer: Layer, dtype: str) -> str:
    texts = ABOUT | ABOUT_I8 if dtype == "i8" else ABOUT
    said = [texts[letters(layer)]]
    if layer.kind in ("conv", "depthwise", "pool"):
        said.append(f"stride {layer.stride}, border {layer.pad}")
    return ", ".join(said) + "."


def _size(size: str, taps: str, layer: Layer) -> str:
    inside = f"{size} + {2 * layer.pad} - {taps}" if layer.pad else f"{size} - {taps}"
    return f"({inside}) / {layer.stride} + 1" if layer.stride > 1 else f"{inside} + 1"


def network_text(network: Network, dtype: str) -> str:
    params = [
        f"{name}[{', '.join(map(str, shape))}] : {type_}" for name, type_, shape, *_ in drawn(network, dtype)
    ]
    lines = []
    layers = layers_of(network, dtype)
    for layer in layers:

        def name(part: str, layer: Layer = layer) -> str:
            if part in ("input", "other"):
                return layer.sources[-1 if part == "other" else 0]
            return layer.name if part == "output" else f"{layer.name}_{part}"

        channels = f"{layer.reads[0][-1] // layer.groups} {layer.shape[-1] // layer.groups}"
        if layer.kind == "average":
            channels = str(layer.reads[0][0] * layer.reads[0][1])
        lines += statements(layer, name, [str(size) for size in layer.shape], channels, dtype == "i8")
    return _function(network.about, network.name, params, layers[-1].name, lines)


def _function(about: str, name: str, params: list[str], result: str, lines: list[str]) -> str:
    said = "".join(f"// {line}\n" for line in about.splitlines())
    inputs, body = (",\n  ".join(params), "\n  ".join(lines))
    return f"{said}function {name}(\n  {inputs}\n) -> ({result}) {{\n  {body}\n}}\n"


# -- data ----------------------------------------------------------------------------------------------


def drawn(network: Network, dtype: str) -> list[tuple[str, str, Shape, float, float]]:
    """The inputs in order: name, element type, shape, mean, standard deviation."""
    first = network.layers[0].sources[0]
    found = [(first, dtype, network.input, 0.0, float(UNIT) if dtype == "i8" else 1.0)]
    for layer in layers_of(network, dtype):
        for part, shape in _weights(layer, dtype).items():
            found.append((f"{layer.name}_{part}", typed(dtype, part), shape, *values(layer, part, dtype)))
    return found


def network_json(network: Network, dtype: str) -> str:
    """One input and one layer to a line."""
    layers: dict[tuple[str, str], list[str]] = {}
    sums: dict[tuple[str, str], int] = {}
    for layer in layers_of(network, dtype):
        shapes = {part: _type(*typed_) for part, typed_ in inputs_of(layer, dtype).items()}
        key = f"layers/{program_name(layer, dtype)}.tile", json.dumps(shapes)
        layers.setdefault(key, []).append(layer.name)
        sums[key] = layer.multiply_adds
    inputs = [
        f'"{name}": {{"type": "{_type(type_, shape)}", "mean": {mean:.6g}, "deviation": {deviation:.6g}}}'
        for name, type_, shape, mean, deviation in drawn(network, dtype)
    ]
    rows = [
        f'{{"program": "{path}", "shapes": {types}, "multiply_adds": {sums[path, types]}, '
        f'"names": {json.dumps(names)}}}'
        for (path, types), names in layers.items()
    ]
    total = sum(layer.multiply_adds for layer in network.layers)
    head = f'"program": "{network.name}.tile",\n  "multiply_adds": {total},\n  "seed": {network.seed}'
    return (
        f"{{\n  {head},\n  \"inputs\": {{\n    " + ",\n    ".join(inputs) + "\n  },\n  \"layers\": [\n    "
        + ",\n    ".join(rows) + "\n  ]\n}\n"
    )  # fmt: skip


def _type(dtype: str, shape: Shape) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def files() -> dict[str, str]:
    """All files by their path."""
    found = {}
    for name, maker in NETWORKS.items():
        for dtype in ("f32", "i8"):
            network = maker()
            found[f"{dtype}/{name}.tile"] = network_text(network, dtype)
            found[f"{dtype}/{name}.json"] = network_json(network, dtype)
            for layer in layers_of(network, dtype):
                path = f"{dtype}/layers/{program_name(layer, dtype)}.tile"
                text = layer_text(layer, dtype)
                assert found.setdefault(path, text) == text, f"two programs are called {path}"
    return found


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for path, text in files().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
