"""OpenVINO's CPU plugin, kept at f32 where it would choose a narrower type."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from benchmarks.peers.base import Kind, Prepared, Setting, not_installed, version_of
from benchmarks.peers.onnx_model import model
from benchmarks.problems import Array, Problem


class OpenVINO:
    name = "openvino"
    kind: Kind = "compiler"
    default = True

    def missing(self) -> str:
        return not_installed("openvino", "onnx")

    def version(self) -> str:
        return version_of("openvino")

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        ov: Any = importlib.import_module("openvino")
        made = model(problem, arrays, setting.packed)
        core = ov.Core()
        network = core.read_model(made.text, b"")
        config = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": str(setting.threads),
            "NUM_STREAMS": "1",
            "ENABLE_CPU_PINNING": "NO",
        }
        request = core.compile_model(network, "CPU", config).create_infer_request()
        tensors = {name: ov.Tensor(array, shared_memory=True) for name, array in made.inputs.items()}
        for name, tensor in tensors.items():
            request.set_tensor(name, tensor)

        def call() -> None:
            request.infer()

        def result() -> Array:
            call()
            assert tensors is not None  # the request looks at their memory
            return made.in_layout(request.get_output_tensor().data.copy())

        return Prepared(call, result)


PEER = OpenVINO()
