"""Problems as ONNX models, for the two peers that read them. Pictures are NCHW, as the format has them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from benchmarks.convolution import Conv
from benchmarks.peers.base import Unsupported
from benchmarks.problems import DTYPES, Array, Contraction, Formula, Matmul, Problem

OPSET = 20


@dataclass
class Model:
    """The model as bytes, the arrays of its inputs, and the type and shape of its output `result`."""

    text: bytes
    inputs: dict[str, Array]
    shape: tuple[int, ...]
    type: np.dtype[Any]
    problem: Problem

    def in_layout(self, made: Array) -> Array:
        """The output in the layout of the problem."""
        return self.problem.as_result(made) if isinstance(self.problem, Conv) else made


@dataclass
class Graph:
    """Nodes under construction; every value has a name."""

    helper: Any
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def number(self, value: float | list[int]) -> str:
        name = f"c{len(self.constants)}"
        made = np.array(value, np.int64) if isinstance(value, list) else np.array(value, np.float32)
        self.constants[name] = made
        return name


def model(problem: Problem, arrays: Mapping[str, Array], packed: bool) -> Model:
    """`packed`: constant operands become initialisers, which a run time may rearrange when it loads."""
    helper = importlib.import_module("onnx.helper")
    numpy_helper = importlib.import_module("onnx.numpy_helper")
    graph = Graph(helper)
    constant = {operand.name for operand in problem.operands if operand.constant and packed}
    if packed and not constant:
        raise Unsupported("the problem has no constant operands")
    given = _given(problem, arrays)
    last = _build(graph, problem)
    graph.nodes.append(helper.make_node("Identity", [last], ["result"]))
    if graph.nodes[-2].output[0] == last:  # the last node itself gives the result
        graph.nodes.pop()
        graph.nodes[-1].output[0] = "result"
    graph.constants |= {name: array for name, array in given.items() if name in constant}
    inputs = {name: array for name, array in given.items() if name not in constant}
    shape = problem.result.shape
    if isinstance(problem, Conv):
        shape = (problem.n, problem.groups * problem.co, *problem.out_size)
    dtype = DTYPES[problem.result.type]
    made = helper.make_graph(
        graph.nodes,
        "case",
        [_value(helper, name, array.dtype, array.shape) for name, array in inputs.items()],
        [_value(helper, "result", dtype, shape)],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    whole = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return Model(whole.SerializeToString(), inputs, shape, dtype, problem)


def _value(helper: Any, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


def _given(problem: Problem, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The operands in the layout of the format."""
    found = dict(arrays)
    if isinstance(problem, Conv):
        found["I"] = np.ascontiguousarray(problem.channels_first(arrays["I"]))
        found["F"] = problem.filters_first(arrays["F"])
        if "B" in arrays:
            found["B"] = arrays["B"].reshape(-1)
    return found


def _build(graph: Graph, problem: Problem) -> str:
    """Add the nodes; gives the name of the last value."""
    match problem:
        case Matmul(left="f32", right="f32"):
            a = graph.add("Transpose", "A", perm=[1, 0]) if problem.ta else "A"
            b = graph.add("Transpose", "B", perm=[1, 0]) if problem.tb else "B"
            return graph.add("MatMul", a, b)
        case Matmul(left="u8", right="i8", ta=False, tb=False):
            return graph.add("MatMulInteger", "A", "B")
        case Matmul():
            raise Unsupported("no product of these types on CPUs")
        case Conv():
            pads = [problem.pad[0], problem.pad[1]] * 2
            made = graph.add(
                "Conv",
                "I",
                "F",
                *(["B"] if problem.epilogue else []),
                kernel_shape=[problem.kh, problem.kw],
                strides=[problem.stride] * 2,
                dilations=[problem.dilation] * 2,
                pads=pads,
                group=problem.groups,
            )
            return graph.add("Relu", made) if problem.epilogue else made
        case Contraction():
            return graph.add("Einsum", "X", "Y", equation=problem.einsum)
        case Formula():
            return _formula(graph, problem)
        case _:
            raise Unsupported("no operator for it")


def _formula(graph: Graph, problem: Formula) -> str:
    add, number = graph.add, graph.number
    if problem.op.startswith("permute"):
        return add("Transpose", "X", perm=[int(digit) for digit in problem.op[7:]])
    match problem.op:
        case "copy":
            return add("Identity", "X")
        case "transpose":
            return add("Transpose", "X", perm=[1, 0])
        case "row_sum":
            return add("ReduceSum", "X", number([1]), keepdims=0)
        case "column_sum":
            return add("ReduceSum", "X", number([0]), keepdims=0)
        case "row_max" | "column_max":
            return add("ReduceMax", "X", number([int(problem.op == "row_max")]), keepdims=0)
        case "row_mean" | "column_mean":
            return add("ReduceMean", "X", number([int(problem.op == "row_mean")]), keepdims=0)
        case "middle_sum":
            return add("ReduceSum", "X", number([1]), keepdims=0)
        case "exp" | "log" | "tanh" | "sigmoid":
            return add(problem.op.capitalize(), "X")
        case "pow":
            return add("Pow", "X", "Y")
        case "add_row":
            return add("Add", "X", "Y")
        case "add8":
            return reduce(lambda total, operand: add("Add", total, operand.name), problem.given[1:], "A")
        case "softmax":
            return add("Softmax", "X", axis=-1)
        case "layernorm":
            return add("LayerNormalization", "X", "G", "B", axis=-1, epsilon=1e-5)
        case "chain":
            line = add("Add", add("Mul", "X", "G"), "B")
            return add("Add", add("Mul", add("Relu", line), number(0.5)), "X")
        case "gelu":
            return add("Gelu", "X")
        case "attention":
            scores = add("MatMul", "Q", add("Transpose", "K", perm=[0, 2, 1]))
            scaled = add("Mul", scores, number(problem.gives[-1] ** -0.5))
            return add("MatMul", add("Softmax", scaled, axis=-1), "V")
        case "gemm":
            return add("Gemm", "A", "B", "C", alpha=1.5, beta=1.2)
        case "2mm":
            product = add("MatMul", add("Mul", add("MatMul", "A", "B"), number(1.5)), "C")
            return add("Add", product, add("Mul", "D", number(1.2)))
        case "3mm":
            return add("MatMul", add("MatMul", "A", "B"), add("MatMul", "C", "D"))
        case _:
            raise Unsupported("no operator for it")
