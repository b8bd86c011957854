"""PyTorch: eager operators, and for constant weights the packed operators of its oneDNN back end.

Pictures are given as `channels_last` tensors, whose memory is that of the problem. Biases and
rectifiers are fused where the operator can (packed), and separate operators in place where not (eager).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.convolution import Conv
from benchmarks.peers.base import Kind, Prepared, Setting, Unsupported, not_installed, quickest, version_of
from benchmarks.problems import Array, Contraction, Formula, Matmul, Problem, Results

Call = Callable[[], Any]


class Torch:
    name = "torch"
    kind: Kind = "library"
    default = True

    def missing(self) -> str:
        return not_installed("torch")

    def version(self) -> str:
        return version_of("torch")

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        torch = load(setting.threads)
        tensors = [tensor(torch, array) for array in arrays.values()]
        if setting.packed:
            call, note = packed(torch, problem, tensors)
        else:
            call, note = eager(torch, problem, tensors), ""

        def guarded() -> Any:
            with torch.inference_mode():
                return call()

        rounded = 2e-2 if isinstance(problem, Matmul) and problem.left in ("bf16", "f16") else None
        if rounded:
            note = f"gives {problem.operands[0].type}"
        torch.set_grad_enabled(False)
        return Prepared(call, lambda: as_numpy(torch, problem, guarded()), note, rounded)


def load(threads: int) -> Any:
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    return torch


def tensor(torch: Any, array: Array) -> Any:
    """The same memory; NumPy's bf16 is not known to PyTorch, so it goes by way of 16-bit integers."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_numpy(torch: Any, problem: Problem, made: Any) -> Results:
    if isinstance(made, tuple):
        return tuple(part.contiguous().numpy() for part in made)
    if isinstance(problem, Conv):
        return problem.as_result(made.numpy())
    if made.dtype in (torch.bfloat16, torch.float16):
        made = made.float()
    return np.ascontiguousarray(made.numpy())


def operands(torch: Any, problem: Conv, given: list[Any]) -> list[Any]:
    """Picture (n, channels, h, w), filters (out, in of a group, kh, kw) in the memory order that PyTorch
    likes for such a picture, and the bias if there is one."""
    picture, weights, *bias = given
    image = torch.from_numpy(problem.channels_first(picture.numpy()))
    kernel = torch.from_numpy(problem.filters_first(weights.numpy()))
    order = torch.contiguous_format if problem.first else torch.channels_last
    return [image, kernel.contiguous(memory_format=order), *(b.reshape(-1) for b in bias)]


def eager(torch: Any, problem: Problem, given: list[Any]) -> Call:
    f = torch.nn.functional
    match problem:
        case Matmul():
            a, b = given
            if problem.left != problem.right:
                raise Unsupported("no product of u8 and i8")
            a, b = (a.t() if problem.ta else a), (b.t() if problem.tb else b)
            out = torch.empty(problem.m, problem.n, dtype=a.dtype)
            return lambda: torch.mm(a, b, out=out)
        case Conv():
            image, kernel, *bias = operands(torch, problem, given)
            how = (problem.stride, problem.pad, problem.dilation, problem.groups)
            if bias:
                return lambda: f.conv2d(image, kernel, bias[0], *how).relu_()
            return lambda: f.conv2d(image, kernel, None, *how)
        case Contraction():
            return lambda: torch.einsum(problem.einsum, *given)
        case Formula():
            return _formula(torch, problem, given)
        case _:
            raise Unsupported("no operator for it")


def _formula(torch: Any, problem: Formula, given: list[Any]) -> Call:
    if problem.plain:
        return lambda: problem.compute(*given)
    f = torch.nn.functional
    x, *more = given
    if problem.op.startswith("permute"):
        out, view = torch.empty(problem.gives), x.permute([int(c) for c in problem.op[7:]])
        return lambda: out.copy_(view)
    out = torch.empty(problem.gives)
    if problem.op == "conv3d":
        taps = more[0].permute(4, 3, 0, 1, 2).contiguous(memory_format=torch.channels_last_3d)
    calls: dict[str, Call] = {
        "copy": lambda: out.copy_(x),
        "copy1d": lambda: out.copy_(x),
        "conv3d": lambda: f.conv3d(x.permute(0, 4, 1, 2, 3), taps).permute(0, 2, 3, 4, 1),
        "transpose": lambda: out.copy_(x.t()),
        "row_sum": lambda: torch.sum(x, 1, out=out),
        "column_sum": lambda: torch.sum(x, 0, out=out),
        "row_max": lambda: torch.amax(x, 1, out=out),
        "column_max": lambda: torch.amax(x, 0, out=out),
        "row_mean": lambda: torch.mean(x, 1, out=out),
        "column_mean": lambda: torch.mean(x, 0, out=out),
        "middle_sum": lambda: torch.sum(x, 1, out=out),
        "exp": lambda: torch.exp(x, out=out),
        "log": lambda: torch.log(x, out=out),
        "tanh": lambda: torch.tanh(x, out=out),
        "sigmoid": lambda: torch.sigmoid(x, out=out),
        "pow": lambda: torch.pow(x, more[0], out=out),
        "add8": lambda: torch.add(sum(more[:-1], x), more[-1], out=out),
        "add_row": lambda: torch.add(x, more[0], out=out),
        "softmax": lambda: torch.softmax(x, 1),
        "layernorm": lambda: f.layer_norm(x, (x.shape[1],), more[0], more[1], 1e-5),
        "chain": lambda: torch.addcmul(more[1], x, more[0]).relu_().mul_(0.5).add_(x),
        "gelu": lambda: f.gelu(x),
        "attention": lambda: f.scaled_dot_product_attention(x, *more),
        "causal_attention": lambda: f.scaled_dot_product_attention(x, *more, is_causal=True),
        "gemm": lambda: torch.addmm(more[1], x, more[0], beta=1.2, alpha=1.5, out=out),
        "2mm": lambda: torch.addmm(more[2], torch.mm(x, more[0]), more[1], beta=1.2, alpha=1.5, out=out),
        "3mm": lambda: torch.mm(torch.mm(x, more[0]), torch.mm(more[1], more[2]), out=out),
    }
    if problem.op not in calls:
        raise Unsupported("no operator for it")
    return calls[problem.op]


def packed(torch: Any, problem: Problem, given: list[Any]) -> tuple[Call, str]:
    """The operators that torch.compile uses for frozen weights, called by themselves."""
    ops = torch.ops.mkldnn
    match problem:
        case Matmul() if problem.left == problem.right and not problem.ta and problem.left != "f16":
            if problem.left == "bf16" and not ops._is_mkldnn_bf16_supported():
                raise Unsupported("oneDNN packs no bf16 on this CPU")
            a, b = given
            weights = (b if problem.tb else b.t()).contiguous()
            if problem.left == "f32" and torch.backends.mkl.is_available():
                made = torch.ops.mkl._mkl_reorder_linear_weight(weights, problem.m)
                mkl = lambda: torch.ops.mkl._mkl_linear(a, made, weights, None, problem.m)  # noqa: E731
            else:
                mkl = None
            own = ops._reorder_linear_weight(weights, problem.m)
            direct = lambda: ops._linear_pointwise(a, own, None, "none", [], "")  # noqa: E731
            return faster(direct, mkl) if mkl else (direct, "")
        case Conv():
            image, kernel, *bias = operands(torch, problem, given)
            groups = problem.groups
            pad, step, reach = list(problem.pad), [problem.stride] * 2, [problem.dilation] * 2
            made = ops._reorder_convolution_weight(kernel, pad, step, reach, groups, list(image.shape))
            end, last = (bias[0], "relu") if bias else (None, "none")
            return lambda: ops._convolution_pointwise(
                image, made, end, pad, step, reach, groups, last, [], ""
            ), ""  # fmt: skip
        case _:
            raise Unsupported("no operator with packed weights")


def faster(oneDNN: Call, MKL: Call) -> tuple[Call, str]:
    """The faster of the two packed products, by a few calls of each."""
    if quickest(oneDNN, 3) <= quickest(MKL, 3):
        return oneDNN, "packed by oneDNN"
    return MKL, "packed by MKL"


PEER = Torch()
