"""How fast the clock of this machine runs: cycles that are expected become seconds."""

from __future__ import annotations

import ctypes
import time
from functools import cache

from codegen_cpu.host import complete_host, host_target_name
from codegen_cpu.jit import Loaded
from codegen_cpu.target import Target
from hwconfigs.load import load_named

SHORT, LONG = 1000, 6000  # steps of two chains, each of which needs the one before it, and takes a cycle
ROUNDS = 300


@cache
def cycles_per_second() -> float:
    """Of the core that this runs on: by how much longer a chain of additions and exclusive ors takes if
    it is longer, each the least of many times."""
    target = Target.of(complete_host(load_named(host_target_name())))
    text = "\n".join([f'target triple = "{target.triple}"', _chain(SHORT), _chain(LONG)])
    names = [f"chain{steps}" for steps in (SHORT, LONG)]
    loaded = Loaded(target, target.object_code(text), names)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    chains = [kind(loaded.address(name)) for name in names]
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        for at, chain in enumerate(chains):
            start = time.perf_counter()
            chain(1, 3)
            least[at] = min(least[at], time.perf_counter() - start)
    return (LONG - SHORT) / (least[1] - least[0])


def _chain(steps: int) -> str:
    lines = [f"  %x{n + 1} = {('add', 'xor')[n % 2]} i64 %x{n}, %y" for n in range(steps)]
    body = "\n".join(lines)
    return f"define i64 @chain{steps}(i64 %x0, i64 %y) {{\n{body}\n  ret i64 %x{steps}\n}}"
