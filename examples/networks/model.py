"""Six networks as lists of layers: what `make.py` writes as Tile programs, and tests compute with NumPy.

A layer is data: what kind it is, what it reads, its sizes. Batch normalisation is folded into a scale and
a shift of each channel. Tensors are (height, width, channels), or (tokens, features).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod, sqrt

Shape = tuple[int, ...]

UNIT = 40  # what stands for 1 in i8, between layers


@dataclass(frozen=True)
class Layer:
    """`sources` are the inputs of the network, or names of layers; `shape` is that of the result.

    `scaled`: sums are scaled before the shift is added. `groups`: each part of the channels has filters of
    its own.
    """

    kind: str
    name: str
    sources: tuple[str, ...]
    reads: tuple[Shape, ...]
    shape: Shape
    window: int = 1
    stride: int = 1
    pad: int = 0
    groups: int = 1
    activation: str = ""
    scaled: bool = False

    @property
    def weights(self) -> dict[str, Shape]:
        """The parameters by their part: weight, scale, shift."""
        first, last = self.reads[0], self.shape[-1]
        match self.kind:
            case "conv" if self.groups > 1:
                each = first[-1] // self.groups, self.groups, last // self.groups
                shape: Shape = (self.window, self.window, *each)
            case "conv":
                shape = (self.window, self.window, first[-1], last)
            case "depthwise":
                shape = (self.window, self.window, last)
            case "dense":
                shape = (*first, last)
            case "linear":
                shape = (first[-1], last)
            case "heads":
                shape = (first[-1], *self.shape[1:])
            case "join":
                shape = (*first[1:], last)
            case "add_norm":
                return {"scale": (last,), "shift": (last,)}
            case _:
                return {}
        channels = self.shape[1:] if self.kind == "heads" else (last,)
        return {"weight": shape} | ({"scale": channels} if self.scaled else {}) | {"shift": channels}

    @property
    def terms(self) -> int:
        """How many products are added up for each element of the result, padding included."""
        first = self.reads[0]
        match self.kind:
            case "conv":
                return self.window**2 * first[-1] // self.groups
            case "depthwise":
                return self.window**2
            case "dense":
                return prod(first)
            case "linear" | "heads" | "attend":
                return first[-1]
            case "mix":
                return first[-1]
            case "join":
                return prod(first[1:])
            case _:
                return 0

    @property
    def multiply_adds(self) -> int:
        return self.terms * prod(self.shape)


@dataclass
class Network:
    name: str
    about: str
    input: Shape
    seed: int
    layers: list[Layer] = field(default_factory=list)

    def shape(self, name: str) -> Shape:
        return next((layer.shape for layer in self.layers if layer.name == name), self.input)

    def add(self, kind: str, name: str, sources: tuple[str, ...], shape: Shape, **options: object) -> str:
        reads = tuple(self.shape(source) for source in sources)
        self.layers.append(Layer(kind, name, sources, reads, shape, **options))  # type: ignore[arg-type]
        return name

    def conv(
        self,
        name: str,
        source: str,
        outputs: int,
        window: int,
        stride: int = 1,
        pad: int = 0,
        **options: object,
    ) -> str:
        height, width, _ = self.shape(source)
        sizes = tuple((size + 2 * pad - window) // stride + 1 for size in (height, width))
        kind = "depthwise" if outputs == 0 else "conv"
        channels = outputs or self.shape(source)[-1]
        return self.add(
            kind, name, (source,), (*sizes, channels), window=window, stride=stride, pad=pad, **options
        )

    def pool(self, name: str, source: str, window: int, stride: int, pad: int = 0) -> str:
        height, width, channels = self.shape(source)
        sizes = tuple((size + 2 * pad - window) // stride + 1 for size in (height, width))
        return self.add("pool", name, (source,), (*sizes, channels), window=window, stride=stride, pad=pad)

    def dense(self, name: str, source: str, outputs: int, activation: str = "") -> str:
        return self.add("dense", name, (source,), (outputs,), activation=activation)

    def same(self, kind: str, name: str, *sources: str, activation: str = "") -> str:
        """A layer whose result has the shape of its first source."""
        return self.add(kind, name, sources, self.shape(sources[0]), activation=activation)

    def head(self, source: str, classes: int) -> None:
        """The mean of each channel, scores, probabilities."""
        mean = self.add("average", "mean", (source,), self.shape(source)[-1:])
        self.same("softmax", "probabilities", self.dense("scores", mean, classes))


def alexnet(size: int = 227, divide: int = 1, classes: int = 1000) -> Network:
    about = """AlexNet: Krizhevsky, Sutskever, Hinton, "ImageNet classification with deep convolutional neural
networks", NIPS 2012. The variant with groups, for pictures of 227 x 227."""
    made = Network("alexnet", about, (size, size, 3), 1)
    c = [channels // divide for channels in (96, 256, 384, 384, 256, 4096, 4096)]
    here = made.conv("conv1", "picture", c[0], 11, 4, activation="relu")
    here = made.pool("pool1", made.same("normalise", "norm1", here), 3, 2)
    here = made.conv("conv2", here, c[1], 5, 1, 2, groups=2, activation="relu")
    here = made.pool("pool2", made.same("normalise", "norm2", here), 3, 2)
    here = made.conv("conv3", here, c[2], 3, 1, 1, activation="relu")
    here = made.conv("conv4", here, c[3], 3, 1, 1, groups=2, activation="relu")
    here = made.conv("conv5", here, c[4], 3, 1, 1, groups=2, activation="relu")
    here = made.dense("dense6", made.pool("pool5", here, 3, 2), c[5], "relu")
    here = made.dense("dense7", here, c[6], "relu")
    made.same("softmax", "probabilities", made.dense("scores", here, classes))
    return made


def vgg16(size: int = 224, divide: int = 1, classes: int = 1000) -> Network:
    about = """VGG-16: Simonyan, Zisserman, "Very deep convolutional networks for large-scale image
recognition", 2014, configuration D."""
    made = Network("vgg16", about, (size, size, 3), 2)
    here = "picture"
    for stage, (channels, depth) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for number in range(1, depth + 1):
            here = made.conv(f"conv{stage}_{number}", here, channels // divide, 3, 1, 1, activation="relu")
        here = made.pool(f"pool{stage}", here, 2, 2)
    here = made.dense("dense6", here, 4096 // divide, "relu")
    here = made.dense("dense7", here, 4096 // divide, "relu")
    made.same("softmax", "probabilities", made.dense("scores", here, classes))
    return made


def _stem(made: Network, channels: int) -> str:
    here = made.conv("conv1", "picture", channels, 7, 2, 3, scaled=True, activation="relu")
    return made.pool("pool1", here, 3, 2, 1)


def resnet18(size: int = 224, divide: int = 1, classes: int = 1000) -> Network:
    about = (
        """ResNet-18: He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015, table 1."""
    )
    made = Network("resnet18", about, (size, size, 3), 3)
    here = _stem(made, 64 // divide)
    for stage, width in enumerate((64, 128, 256, 512), 2):
        for number in (1, 2):
            name, channels = f"conv{stage}_{number}", width // divide
            stride = 2 if stage > 2 and number == 1 else 1
            a = made.conv(f"{name}a", here, channels, 3, stride, 1, scaled=True, activation="relu")
            b = made.conv(f"{name}b", a, channels, 3, 1, 1, scaled=True)
            if stride == 2:
                here = made.conv(f"{name}_around", here, channels, 1, stride, scaled=True)
            here = made.same("add", name, b, here, activation="relu")
    made.head(here, classes)
    return made


def resnet50(size: int = 224, divide: int = 1, classes: int = 1000) -> Network:
    about = """ResNet-50: He, Zhang, Ren, Sun, "Deep residual learning for image recognition", 2015, table 1,
with the strides at the 3 x 3 convolutions, as most libraries have it now."""
    made = Network("resnet50", about, (size, size, 3), 4)
    here = _stem(made, 64 // divide)
    for stage, (width, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 2):
        for number in range(1, depth + 1):
            name, channels = f"conv{stage}_{number}", width // divide
            stride = 2 if stage > 2 and number == 1 else 1
            a = made.conv(f"{name}a", here, channels, 1, scaled=True, activation="relu")
            b = made.conv(f"{name}b", a, channels, 3, stride, 1, scaled=True, activation="relu")
            c = made.conv(f"{name}c", b, 4 * channels, 1, scaled=True)
            if number == 1:
                here = made.conv(f"{name}_around", here, 4 * channels, 1, stride, scaled=True)
            here = made.same("add", name, c, here, activation="relu")
    made.head(here, classes)
    return made


def mobilenet_v2(size: int = 224, divide: int = 1, classes: int = 1000) -> Network:
    about = """MobileNet-v2: Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: inverted residuals and
linear bottlenecks", 2018, table 2, of width 1."""
    made = Network("mobilenet_v2", about, (size, size, 3), 5)
    here = made.conv("conv1", "picture", 32 // divide, 3, 2, 1, scaled=True, activation="relu6")
    table = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for stage, (times, width, depth, first) in enumerate(table, 2):
        for number in range(1, depth + 1):
            name, before, wide = f"block{stage}_{number}", here, here
            channels, stride = width // divide, first if number == 1 else 1
            if times > 1:
                inside = times * made.shape(here)[-1]
                wide = made.conv(f"{name}_expand", here, inside, 1, scaled=True, activation="relu6")
            deep = made.conv(f"{name}_depthwise", wide, 0, 3, stride, 1, scaled=True, activation="relu6")
            here = made.conv(f"{name}_project", deep, channels, 1, scaled=True)
            if made.shape(here) == made.shape(before):
                here = made.same("add", name, here, before)
    here = made.conv("conv9", here, 1280 // divide, 1, scaled=True, activation="relu6")
    made.head(here, classes)
    return made


def bert_layer(size: int = 128, divide: int = 1, classes: int = 0) -> Network:
    """`size` is the number of tokens; heads have 64 features whatever `divide` is."""
    about = """A layer of BERT-base: Devlin, Chang, Lee, Toutanova, "BERT: pre-training of deep bidirectional
transformers for language understanding", 2018. All tokens see all others."""
    features, heads = 768 // divide, 12 // divide
    made = Network("bert_layer", about, (size, features), 6)
    each = size, heads, 64
    q, k, v = (made.add("heads", name, ("tokens",), each) for name in ("query", "key", "value"))
    p = made.add("attend", "attention", (q, k), (heads, size, size))
    mixed = made.add("mix", "mixed", (p, v), each)
    joined = made.add("join", "joined", (mixed,), (size, features))
    here = made.same("add_norm", "norm1", joined, "tokens")
    wide = made.add("linear", "wide", (here,), (size, 4 * features), activation="gelu")
    narrow = made.add("linear", "narrow", (wide,), (size, features))
    made.same("add_norm", "norm2", narrow, here)
    return made


NETWORKS: dict[str, Callable[..., Network]] = {
    maker.__name__: maker for maker in (alexnet, vgg16, resnet18, resnet50, mobilenet_v2, bert_layer)
}


def values(layer: Layer, part: str, dtype: str) -> tuple[float, float]:
    """Mean and standard deviation of a parameter, for which results keep their order of size."""
    terms, narrow = max(1, layer.terms), dtype == "i8"
    match part:
        case "scale" if narrow and layer.kind == "add_norm":
            return UNIT, 0.1 * UNIT
        case "scale" if narrow and layer.kind == "mix":
            return sqrt(terms / 2.7), 0.0  # a mean of so many is that much smaller
        case "weight":
            return 0.0, 30.0 if narrow else sqrt((2 if layer.activation else 1) / terms)
        case "scale" if narrow:
            return 1 / (30 * sqrt(terms)), 0.0
        case "scale":
            return 1.0, 0.1
        case _:
            return 0.0, 4.0 if narrow else 0.1
