"""What one core can do, measured: fused multiply-adds, and reading and copying at several sizes.

The loops are written in LLVM IR by hand, so that the yardstick owes nothing to the compiler
that is measured with it.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np

Array = np.ndarray[Any, Any]
CHAINS = 12  # independent accumulators: latency 4, two pipes, and some to spare


@dataclass(frozen=True, slots=True)
class Machine:
    """Peaks of one core: f32 GFLOP/s (2 per multiply-add) by vector width in lanes, and GB/s
    of reading and of copying (bytes read plus bytes written) by working set in bytes."""

    gflops: dict[int, float]
    read: dict[int, float]
    copy: dict[int, float]

    @property
    def peak(self) -> float:
        return max(self.gflops.values())

    def bandwidth(self, bytes_touched: int, writes: bool) -> float:
        """GB/s at the measured working set that is nearest to `bytes_touched` (in log size)."""
        table = self.copy if writes else self.read
        nearest = min(table, key=lambda size: abs(np.log(size / max(bytes_touched, 1))))
        return table[nearest]


def measure() -> Machine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    lanes = [4, *([8] if features.get("avx2") else []), *([16] if features.get("avx512f") else [])]
    widest = lanes[-1]
    text = "\n".join([*(_fma_loop(n) for n in lanes), _read_loop(widest), _copy_loop(widest)])
    engine = _compile(text)
    gflops = {n: _fma_rate(engine, n) for n in lanes}
    sizes = [16 << 10, 256 << 10, 4 << 20, 256 << 20]
    read = {size: _memory_rate(engine, "read_all", size, 1) for size in sizes}
    copy = {size: _memory_rate(engine, "copy_all", size // 2, 2) for size in sizes}
    return Machine(gflops, read, copy)


def _fma_loop(lanes: int) -> str:
    vector = f"<{lanes} x float>"
    phis = "\n".join(
        f"  %a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in range(CHAINS)
    )
    fmas = "\n".join(
        f"  %b{i} = call {vector} @llvm.fma.v{lanes}f32({vector} %x, {vector} %y, {vector} %a{i})"
        for i in range(CHAINS)
    )
    sums = "\n".join(
        f"  %s{i + 1} = fadd {vector} {'%b0' if i == 0 else f'%s{i}'}, %b{i + 1}" for i in range(CHAINS - 1)
    )
    return f"""
declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})
define void @fma{lanes}(ptr %in, ptr %out, i64 %n) {{
entry:
  %x = load {vector}, ptr %in, align 4
  %y = fneg {vector} %x
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{phis}
{fmas}
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %loop, label %done
done:
{sums}
  store {vector} %s{CHAINS - 1}, ptr %out, align 4
  ret void
}}"""


def _pass_over_memory(name: str, phis: str, body: str, step: int, end: str = "") -> str:
    """A function that goes over n elements, `step` at a time, `rounds` times; `end` closes a round."""
    return f"""
define void @{name}(ptr %in, ptr %out, i64 %n, i64 %rounds) {{
entry:
  br label %again
again:
  %r = phi i64 [ 0, %entry ], [ %next, %done ]
  br label %loop
loop:
  %i = phi i64 [ 0, %again ], [ %j, %loop ]
{phis}
{body}
  %j = add i64 %i, {step}
  %more = icmp ult i64 %j, %n
  br i1 %more, label %loop, label %done
done:
{end}
  %next = add i64 %r, 1
  %enough = icmp uge i64 %next, %rounds
  br i1 %enough, label %end, label %again
end:
  ret void
}}"""


def _read_loop(lanes: int) -> str:
    vector = f"<{lanes} x i32>"
    phis, body = [], []
    for k in range(8):
        phis.append(f"  %a{k} = phi {vector} [ zeroinitializer, %again ], [ %b{k}, %loop ]")
        body.append(f"  %o{k} = add i64 %i, {k * lanes}")
        body.append(f"  %p{k} = getelementptr i32, ptr %in, i64 %o{k}")
        body.append(f"  %v{k} = load {vector}, ptr %p{k}, align 4")
        body.append(f"  %b{k} = or {vector} %a{k}, %v{k}")
    joins = [f"  %s{k + 1} = or {vector} {'%b0' if k == 0 else f'%s{k}'}, %b{k + 1}" for k in range(7)]
    joins.append(f"  store volatile {vector} %s7, ptr %out, align 4")
    return _pass_over_memory("read_all", "\n".join(phis), "\n".join(body), 8 * lanes, "\n".join(joins))


def _copy_loop(lanes: int) -> str:
    vector = f"<{lanes} x i32>"
    body = []
    for k in range(4):
        body.append(f"  %o{k} = add i64 %i, {k * lanes}")
        body.append(f"  %p{k} = getelementptr i32, ptr %in, i64 %o{k}")
        body.append(f"  %q{k} = getelementptr i32, ptr %out, i64 %o{k}")
        body.append(f"  %v{k} = load {vector}, ptr %p{k}, align 4")
        body.append(f"  store {vector} %v{k}, ptr %q{k}, align 4")
    return _pass_over_memory("copy_all", "", "\n".join(body), 4 * lanes)


def _compile(text: str) -> Any:
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten() + ",-prefer-256-bit"
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def _best_seconds(engine: Any, name: str, source: Array, sink: Array, *counts: int) -> float:
    """The shortest of a dozen calls."""
    arguments = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * len(counts)
    function = ctypes.CFUNCTYPE(None, *arguments)(engine.get_function_address(name))
    best = float("inf")
    for _ in range(12):
        start = time.perf_counter()
        function(source.ctypes.data, sink.ctypes.data, *counts)
        best = min(best, time.perf_counter() - start)
    return best


def _fma_rate(engine: Any, lanes: int) -> float:
    count = 2_000_000
    small = np.ones(64, np.float32)
    seconds = _best_seconds(engine, f"fma{lanes}", small, np.zeros(64, np.float32), count)
    return 2 * lanes * CHAINS * count / seconds / 1e9


def _memory_rate(engine: Any, name: str, size: int, per_byte: int) -> float:
    """GB/s over a working set of `size` bytes on each side; small sets are gone over many times."""
    source = np.ones(size // 4 + 64, np.int32)
    sink = np.zeros(size // 4 + 64, np.int32)
    rounds = max(1, (64 << 20) // size)
    seconds = _best_seconds(engine, name, source, sink, size // 4, rounds)
    return per_byte * size * rounds / seconds / 1e9
