"""Machines of odd sizes and rates, on which nothing divides: three levels of memory, an array of
5 x 7 x 3, and three cores; and CPUs with small caches."""

from __future__ import annotations

from math import prod
from typing import Any

import msgspec

from hwconfigs.load import check, load_named
from hwconfigs.model import HwConfig

_FIRST = ("canonicalize", "fuse", "localize", "scalarize", "canonicalize")


def _machine(
    name: str, memories: list[dict[str, Any]], units: list[dict[str, Any]], steps: list[Any], **more: Any
) -> HwConfig:
    explicit = {"kind": "explicit", "line_bytes": 4}
    told = {
        "name": name,
        "description": "odd",
        "executor": "interpreter",
        "memories": [{**explicit, **memory} for memory in memories],
        "units": units,
        "pipeline": [{"name": step, "options": {}} if isinstance(step, str) else step for step in steps],
        **more,
    }
    made = msgspec.convert(told, HwConfig)
    check(made)
    return made


def _step(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "options": options}


def levels() -> HwConfig:
    """Two small memories in front of DRAM, none of which delivers what the units take."""
    return _machine(
        "odd_levels",
        [
            {"name": "L0", "bytes": 5004, "align_bytes": 12, "bytes_per_cycle": 11.3, "latency_cycles": 3,
             "backing": "L1"},
            {"name": "L1", "bytes": 77004, "align_bytes": 4, "bytes_per_cycle": 5.1, "latency_cycles": 7,
             "backing": "DRAM"},
            {"name": "DRAM", "align_bytes": 16, "bytes_per_cycle": 2.9, "latency_cycles": 101},
        ],
        [
            {"name": "CORE", "vector_bytes": 24, "fma_per_cycle": 0.7, "loads_per_cycle": 1.3,
             "reaches": ["L0"]},
            {"name": "FAR", "kind": "transfer", "bytes_per_cycle": 3.7, "startup_cycles": 13.5,
             "reaches": ["L1", "DRAM"]},
            {"name": "NEAR", "kind": "transfer", "bytes_per_cycle": 9.1, "startup_cycles": 2,
             "reaches": ["L0", "L1"]},
        ],
        [
            *_FIRST, _step("separate", memory="L0"), _step("autotile", memory="L1"),
            _step("autotile", memory="L0", accumulators="L0", inflight=2),
            _step("localize", accumulators="L0"), "canonicalize", _step("transfer", memory="L1"),
            _step("transfer", memory="L0"), "schedule", "place",
        ],
    )  # fmt: skip


def array() -> HwConfig:
    """An array beside a vector unit, three points in flight, and a scratchpad in three banks."""
    use = {
        "indices": {"i": 5, "j": 7, "p": 3}, "body": "acc += x * y", "unit": "MAC", "cycles": "i + p / 3",
        "operands": {"x": ["i", "p"], "y": ["p", "j"], "acc": ["i", "j"]}, "startup_cycles": 4.5,
        "memory": {"x": "SPAD", "y": "SPAD", "acc": "ACC"},
    }  # fmt: skip
    return _machine(
        "odd_array",
        [
            {"name": "ACC", "bytes": 3328, "align_bytes": 32, "bytes_per_cycle": 70, "backing": "SPAD"},
            {"name": "SPAD", "bytes": 3 * 7040, "banks": 3, "align_bytes": 32, "bytes_per_cycle": 13,
             "backing": "DRAM"},
            {"name": "DRAM", "align_bytes": 32, "bytes_per_cycle": 5, "latency_cycles": 40},
        ],
        [
            {"name": "MAC", "reaches": ["SPAD", "ACC"], "operations": [], "specials": []},
            {"name": "VPU", "vector_bytes": 20, "reaches": ["SPAD", "ACC"]},
            {"name": "DMA", "kind": "transfer", "bytes_per_cycle": 6, "startup_cycles": 17,
             "reaches": ["SPAD", "ACC", "DRAM"]},
        ],
        [
            *_FIRST, _step("separate", memory="SPAD"), "stencil",
            _step("autotile", memory="SPAD", accumulators="ACC", inflight=3),
            _step("localize", accumulators="ACC"), "canonicalize", _step("transfer", memory="SPAD"),
            "schedule", _step("partition", memory="SPAD"), "place",
        ],
        stencils=[
            {**use, "name": "f", "types": {"x": "f32", "y": "f32", "acc": "f32"}},
            {**use, "name": "b", "types": {"x": "i8", "y": "i8", "acc": "i32"}},
        ],
    )  # fmt: skip


def cores() -> HwConfig:
    """Three cores with memories of their own, and five banks that they share."""
    return _machine(
        "odd_cores",
        [
            {"name": "SRAM", "bytes": 9000, "count": 3, "align_bytes": 8, "bytes_per_cycle": 33,
             "latency_cycles": 2, "backing": "SHARED"},
            {"name": "SHARED", "bytes": 5 * 16000, "banks": 5, "align_bytes": 8, "bytes_per_cycle": 9,
             "backing": "DRAM"},
            {"name": "DRAM", "align_bytes": 8, "bytes_per_cycle": 7},
        ],
        [
            {"name": "CORE", "count": 3, "vector_bytes": 16, "reaches": ["SRAM"]},
            {"name": "DMA", "kind": "transfer", "count": 3, "bytes_per_cycle": 6.5, "startup_cycles": 11,
             "reaches": ["SRAM", "SHARED", "DRAM"]},
        ],
        [
            *_FIRST, _step("separate", memory="SRAM"), _step("partition", unit="CORE"),
            _step("autotile", memory="SRAM", inflight=2), "canonicalize", _step("transfer", memory="SRAM"),
            _step("schedule", memory="SHARED"), _step("partition", memory="SHARED"), "place",
        ],
    )  # fmt: skip


def caches(name: str, cores: int = 1, replacement: str = "lru") -> HwConfig:
    """A shipped CPU with as many cores, and small caches of 3, 5 and 7 ways."""
    hw, change = load_named(name), msgspec.structs.replace
    sizes = {"L1": (3, 8), "L2": (5, 16), "L3": (7, 32)}
    memories = tuple(
        change(
            m, ways=sizes[m.name][0], bytes=prod(sizes[m.name]) * m.line_bytes, replacement=replacement,
            count=cores if m.name == "L1" else 1,
        )
        if m.name in sizes
        else m
        for m in hw.memories
    )  # fmt: skip
    units = tuple(change(u, count=cores, startup_cycles=1.0) for u in hw.units)
    made = change(hw, name=f"{name}_{cores}_{replacement}", memories=memories, units=units)
    check(made)
    return made


MACHINES = (levels(), array(), cores())
