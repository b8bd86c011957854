"""JAX: XLA's CPU compiler on the formula, jitted; constants are captured where they are bound ahead."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.convolution import Conv
from benchmarks.peers.base import Kind, Prepared, Setting, Unsupported, not_installed, version_of
from benchmarks.problems import Array, Contraction, Formula, Matmul, Problem, Results

Function = Callable[..., Any]


class Jax:
    name = "jax"
    kind: Kind = "compiler"
    default = True

    def missing(self) -> str:
        return not_installed("jax", "jaxlib")

    def version(self) -> str:
        return version_of("jax")

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        jax: Any = importlib.import_module("jax")
        if setting.packed:
            raise Unsupported("XLA folds a captured constant, but doesn't pack it")
        function = jax.jit(_function(jax, problem))
        given = [jax.device_put(array) for array in _given(problem, arrays)]

        def call() -> Any:
            return jax.block_until_ready(function(*given))

        def result() -> Results:
            made = call()
            several = made if isinstance(made, tuple) else (made,)
            found = tuple(
                np.asarray(part).reshape(as_.shape)
                for part, as_ in zip(several, problem.results, strict=True)
            )
            return found if len(found) > 1 else found[0]

        return Prepared(call, result)


def _function(jax: Any, problem: Problem) -> Function:
    jnp, lax = jax.numpy, jax.lax
    match problem:
        case Matmul():
            ta, tb = problem.ta, problem.tb
            kind = {"i32": jnp.int32}.get(problem.out, jnp.float32)
            dims = (((0 if ta else 1,), (1 if tb else 0,)), ((), ()))
            return lambda a, b: lax.dot_general(a, b, dims, preferred_element_type=kind)
        case Conv():
            return _convolution(jnp, lax, problem)
        case Contraction():
            return lambda x, y: jnp.einsum(problem.einsum, x, y)
        case Formula(plain=True):
            return problem.compute
        case Formula():
            return _formula(jax, jnp, problem)
        case _:
            raise Unsupported("not written down for JAX")


def _given(problem: Problem, arrays: Mapping[str, Array]) -> list[Array]:
    """The operands, those of convolutions with all channels in one dimension."""
    found = dict(arrays)
    if isinstance(problem, Conv):
        picture, weights = problem.channels_first(arrays["I"]), problem.filters_first(arrays["F"])
        found["I"] = picture if problem.first else picture.transpose(0, 2, 3, 1)
        found["F"] = np.ascontiguousarray(weights.transpose(2, 3, 1, 0))
        if "B" in arrays:
            found["B"] = arrays["B"].reshape(-1, *((1, 1) if problem.first else ()))
    return list(found.values())


def _convolution(jnp: Any, lax: Any, problem: Conv) -> Function:
    pictures = "NCHW" if problem.first else "NHWC"

    def compute(image: Any, weights: Any, *bias: Any) -> Any:
        made = lax.conv_general_dilated(
            image,
            weights,
            (problem.stride,) * 2,
            [(pad, pad) for pad in problem.pad],
            rhs_dilation=(problem.dilation,) * 2,
            dimension_numbers=(pictures, "HWIO", pictures),
            feature_group_count=problem.groups,
        )
        return jnp.maximum(made + bias[0], 0) if bias else made

    return compute


def _formula(jax: Any, jnp: Any, problem: Formula) -> Function:
    if problem.op.startswith("permute"):
        order = tuple(int(digit) for digit in problem.op[7:])
        return lambda x: jnp.transpose(x, order)
    calls: dict[str, Function] = {
        "copy": lambda x: jnp.array(x, copy=True),
        "copy1d": lambda x: jnp.array(x, copy=True),
        "conv3d": lambda x, w: jax.lax.conv_general_dilated(
            x, w, (1, 1, 1), "VALID", dimension_numbers=("NDHWC", "DHWIO", "NDHWC")
        ),
        "transpose": lambda x: x.T,
        "row_sum": lambda x: x.sum(1),
        "column_sum": lambda x: x.sum(0),
        "row_max": lambda x: x.max(1),
        "column_max": lambda x: x.max(0),
        "row_mean": lambda x: x.mean(1),
        "column_mean": lambda x: x.mean(0),
        "middle_sum": lambda x: x.sum(1),
        "exp": jnp.exp,
        "log": jnp.log,
        "tanh": jnp.tanh,
        "sigmoid": jax.nn.sigmoid,
        "pow": jnp.power,
        "add8": lambda x, *more: sum(more, x),
        "add_row": jnp.add,
        "softmax": lambda x: jax.nn.softmax(x, axis=1),
        "layernorm": _layernorm(jnp),
        "chain": lambda x, g, b: jnp.maximum(x * g + b, 0) * 0.5 + x,
        "gelu": lambda x: jax.nn.gelu(x, approximate=False),
        "attention": _attention(jax, jnp, causal=False),
        "causal_attention": _attention(jax, jnp, causal=True),
        "gemm": lambda a, b, c: 1.5 * (a @ b) + 1.2 * c,
        "2mm": lambda a, b, c, d: (1.5 * (a @ b)) @ c + 1.2 * d,
        "3mm": lambda a, b, c, d: (a @ b) @ (c @ d),
    }
    if problem.op not in calls:
        raise Unsupported("not written down for JAX")
    return calls[problem.op]


def _attention(jax: Any, jnp: Any, causal: bool) -> Function:
    def compute(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.matmul(q, k.transpose(0, 2, 1)) * q.shape[-1] ** -0.5
        if causal:
            scores = jnp.where(jnp.tri(*scores.shape[1:], dtype=bool), scores, -jnp.inf)
        return jnp.matmul(jax.nn.softmax(scores, axis=-1), v)

    return compute


def _layernorm(jnp: Any) -> Function:
    def compute(x: Any, g: Any, b: Any) -> Any:
        d = x - x.mean(1, keepdims=True)
        return d * (1 / jnp.sqrt((d * d).mean(1, keepdims=True) + 1e-5)) * g + b

    return compute


PEER = Jax()
