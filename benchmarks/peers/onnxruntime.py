"""onnxruntime, its CPU provider, with inputs and the output bound to fixed memory."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from benchmarks.peers.base import Kind, Prepared, Setting, not_installed, version_of
from benchmarks.peers.onnx_model import model
from benchmarks.problems import Array, Problem, aligned


class OnnxRuntime:
    name = "onnxruntime"
    kind: Kind = "compiler"
    default = True

    def missing(self) -> str:
        return not_installed("onnxruntime", "onnx")

    def version(self) -> str:
        return version_of("onnxruntime")

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        ort: Any = importlib.import_module("onnxruntime")
        made = model(problem, arrays, setting.packed)
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = setting.threads, 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = ort.InferenceSession(made.text, options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        values = [ort.OrtValue.ortvalue_from_numpy(array) for array in made.inputs.values()]
        for name, value in zip(made.inputs, values, strict=True):
            binding.bind_ortvalue_input(name, value)
        out = aligned(made.shape, made.type)
        bound = ort.OrtValue.ortvalue_from_numpy(out)
        binding.bind_ortvalue_output("result", bound)

        def call() -> None:
            session.run_with_iobinding(binding)

        def result() -> Array:
            call()
            return made.in_layout(bound.numpy())

        return Prepared(call, result)


PEER = OnnxRuntime()
