"""torch.compile with frozen weights: slow to build, so it takes part only when it is named."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from benchmarks.convolution import Conv
from benchmarks.peers import torch as eager_torch
from benchmarks.peers.base import Kind, Prepared, Setting, Unsupported, not_installed, version_of
from benchmarks.problems import Array, Formula, Matmul, Problem


class TorchCompile:
    name = "torch_compile"
    kind: Kind = "compiler"
    default = False

    def missing(self) -> str:
        return not_installed("torch")

    def version(self) -> str:
        return version_of("torch")

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        torch = eager_torch.load(setting.threads)
        config: Any = importlib.import_module("torch._inductor.config")
        config.freezing = True
        config.cpp.threads = setting.threads
        torch._dynamo.reset()
        model, given = _model(torch, problem, arrays, setting.packed)
        compiled = torch.compile(model.eval())
        torch.set_grad_enabled(False)
        with torch.no_grad():
            compiled(*given)

        def call() -> Any:
            return compiled(*given)

        return Prepared(call, lambda: eager_torch.as_numpy(torch, problem, call()))


def _model(torch: Any, problem: Problem, arrays: Mapping[str, Array], packed: bool) -> tuple[Any, list[Any]]:
    """A module that holds the constant operands, and the others. Operands given with each call are
    arguments in the order of the problem."""
    f = torch.nn.functional
    tensors = {name: eager_torch.tensor(torch, array) for name, array in arrays.items()}
    if isinstance(problem, Conv):
        made = eager_torch.operands(torch, problem, list(tensors.values()))
        tensors = dict(zip(tensors, made, strict=True))
    constant = {operand.name for operand in problem.operands if operand.constant and packed}
    if packed and not constant:
        raise Unsupported("the problem has no constant operands")
    compute = _compute(torch, f, problem)

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name in constant:
                self.register_parameter(name, torch.nn.Parameter(tensors[name], requires_grad=False))

        def forward(self, *given: Any) -> Any:
            rest = iter(given)
            return compute(*(getattr(self, name) if name in constant else next(rest) for name in tensors))

    return Model(), [value for name, value in tensors.items() if name not in constant]


def _compute(torch: Any, f: Any, problem: Problem) -> Any:
    match problem:
        case Matmul(left="f32"):
            ta, tb = problem.ta, problem.tb
            return lambda a, b: torch.mm(a.t() if ta else a, b.t() if tb else b)
        case Conv():
            how = (problem.stride, problem.pad, problem.dilation, problem.groups)
            if problem.epilogue:
                return lambda i, k, b: f.conv2d(i, k, b, *how).relu()
            return lambda i, k: f.conv2d(i, k, None, *how)
        case Formula(op="copy"):
            return lambda x: x.clone()
        case Formula(op="transpose"):
            return lambda x: x.t().contiguous()
        case Formula(op="row_sum"):
            return lambda x: x.sum(1)
        case Formula(op="column_sum"):
            return lambda x: x.sum(0)
        case Formula(op="softmax"):
            return lambda x: torch.softmax(x, 1)
        case Formula(op="layernorm"):
            return lambda x, g, b: f.layer_norm(x, (x.shape[1],), g, b, 1e-5)
        case Formula(op="chain"):
            return lambda x, g, b: torch.relu(x * g + b) * 0.5 + x
        case Formula(op="gelu"):
            return f.gelu
        case Formula(op="attention"):
            return f.scaled_dot_product_attention
        case Formula(op="causal_attention"):
            return lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True)
        case _:
            raise Unsupported("not written down for torch.compile")


PEER = TorchCompile()
