"""Small machines with memories that programs manage, for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from hwconfigs.model import HwConfig

_ARRAY: dict[str, Any] = {
    "indices": {"i": 16, "j": 16, "p": 16},
    "body": "acc += x * y",
    "operands": {"x": ["i", "p"], "y": ["p", "j"], "acc": ["i", "j"]},
    "memory": {"x": "SPAD", "y": "SPAD", "acc": "ACC"},
    "unit": "MAC",
    "cycles": "16",
}


def array_machine(spad: int = 262144, acc: int = 65536, **changes: Any) -> HwConfig:
    """DRAM, a scratchpad in 4 banks, accumulators, a DMA, a 16x16x16 array and a vector unit."""
    return msgspec.convert(
        {
            "name": "array_machine",
            "description": "a systolic array beside a vector unit",
            "executor": "interpreter",
            "memories": [
                {"name": "ACC", "kind": "registers", "bytes": acc, "align_bytes": 64, "backing": "SPAD"},
                {"name": "SPAD", "kind": "explicit", "bytes": spad, "banks": 4, "align_bytes": 64,
                 "bytes_per_cycle": 64, "backing": "DRAM"},
                {"name": "DRAM", "kind": "explicit", "align_bytes": 64, "bytes_per_cycle": 16},
            ],
            "units": [
                {"name": "MAC", "reaches": ["SPAD", "ACC"], "operations": [], "specials": []},
                {"name": "VPU", "vector_bytes": 64, "reaches": ["SPAD", "ACC"]},
                {"name": "DMA", "kind": "transfer", "bytes_per_cycle": 16, "startup_cycles": 100,
                 "reaches": ["SPAD", "DRAM"]},
            ],
            "stencils": [
                {**_ARRAY, "name": "mac_f32", "types": {"x": "f32", "y": "f32", "acc": "f32"}},
                {**_ARRAY, "name": "mac_i8", "types": {"x": "i8", "y": "i8", "acc": "i32"}},
            ],
            **changes,
        },
        HwConfig,
    )  # fmt: skip
