"""What a core can do, measured: multiply-adds, and reading, copying and streaming at any size, on several
cores at once, too, as these share caches and memory.

The loops are written in LLVM IR by hand, so that the yardstick owes nothing to the compiler
that is measured with it. Each is a `Probe`, a function that takes about a millisecond and the
amount of work that it does, so that it can be timed among the contenders of a case: the clock of a
shared machine drifts, and a limit measured a minute ago is not the limit of now.
"""

from __future__ import annotations

import ctypes
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from benchmarks.problems import Array, aligned
from codegen_cpu.host import host_features

CHAINS = 12  # independent accumulators: latency 4, two pipes, and some to spare
PROBE_SECONDS = 0.001
FREE = 0.95  # of the multiply-adds of all cores, each alone: the cores are free
SMALL = 32 << 20  # bytes; below it a probe goes over its memory several times


@dataclass(frozen=True)
class Probe:
    """`amount` is in operations, or in bytes read plus bytes written."""

    call: Callable[[], object]
    amount: float

    def rate(self, repeats: int = 7) -> float:
        """Thousands of millions a second, the median of a few calls."""
        self.call()
        return self.amount / statistics.median(_seconds(self.call) for _ in range(repeats)) / 1e9


@dataclass
class Machine:
    """The probes of this core. `lanes`: vector widths in f32 numbers; `dots`: kinds of multiply-add, `blocks`
    those of them that go in blocks of 16 by 16 (AMX)."""

    engine: Any
    lanes: tuple[int, ...]
    dots: tuple[str, ...]
    blocks: tuple[str, ...] = ()
    widths: dict[int, float] = field(default_factory=dict)
    memory: dict[tuple[str, int, int], Probe] = field(default_factory=dict)

    @functools.cached_property
    def best_lanes(self) -> int:
        """The vector width of the highest rate, the wider one where they are alike."""
        self.widths = {lanes: self._multiply_adds(f"fma{lanes}", 2 * lanes).rate() for lanes in self.lanes}
        best = max(self.widths.values())
        return max(lanes for lanes, rate in self.widths.items() if rate > 0.97 * best)

    def fma(self, dot: str) -> Probe:
        """Multiply-adds of this kind; where the core has no such instruction, or a slow one, those of f32."""
        if dot in self.dots and self.dot_rates[dot] > self.widths[self.best_lanes]:
            return self._dot(dot)
        return self._multiply_adds(f"fma{self.best_lanes}", 2 * self.best_lanes)

    @functools.cached_property
    def dot_rates(self) -> dict[str, float]:
        """Operations of the dot product instructions, thousands of millions a second."""
        return {dot: self._dot(dot).rate() for dot in self.dots if self.best_lanes}

    def _dot(self, dot: str) -> Probe:
        operations = 2 * 16 * {"i8": 4, "bf16": 2}[dot]
        return self._multiply_adds(f"dot_{dot}", operations * (256 if dot in self.blocks else 1))

    def read(self, size: int, threads: int = 1) -> Probe:
        """Reading `size` bytes, of which each of so many threads has its part."""
        return self._over_memory("read_all", size, 1, threads)

    def copy(self, size: int, threads: int = 1) -> Probe:
        """Copying between two halves of `size` bytes."""
        return self._over_memory("copy_all", size // 2, 2, threads)

    def stream(self, size: int, threads: int = 1) -> Probe:
        """The same with stores that go past the caches."""
        return self._over_memory("stream_all", size // 2, 2, threads)

    def _multiply_adds(self, name: str, operations: int) -> Probe:
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            self.engine.get_function_address(name)
        )
        source, sink = aligned((64,), np.dtype(np.float32)), aligned((64,), np.dtype(np.float32))
        source[...], count = 1, 20_000
        call = functools.partial(_call, function, source, sink)
        seconds = min(_seconds(lambda: call(count)) for _ in range(3))
        count = max(1000, int(count * PROBE_SECONDS / seconds))
        return Probe(lambda: call(count), operations * CHAINS * count)

    def _over_memory(self, name: str, size: int, per_byte: int, threads: int) -> Probe:
        size = max(2048, size // threads // 2048 * 2048)
        found = self.memory.get((name, size, threads))
        if found is None:
            function = ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * 2), *([ctypes.c_int64] * 2))(
                self.engine.get_function_address(name)
            )
            rounds, calls = max(1, SMALL // size), list[Callable[[], object]]()
            for _ in range(threads):
                source = aligned((size // 4,), np.dtype(np.int32))
                sink = aligned((size // 4 if per_byte == 2 else 64,), np.dtype(np.int32))
                source[...], sink[...] = 1, 0
                calls.append(functools.partial(_call, function, source, sink, size // 4, rounds))
            found = Probe(_at_once(calls), per_byte * size * rounds * threads)
            if len(self.memory) > 24:
                self.memory.clear()
            self.memory[name, size, threads] = found
        return found


def measure(amx: bool = True) -> Machine:
    """Compile the probes for this core; `amx`: blocks count, where the system grants the registers."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    lanes = (4, *((8,) if features.get("avx2") else ()), *((16,) if features.get("avx512f") else ()))
    widest = lanes[-1]
    dots = tuple(d for d, f in (("i8", "avx512vnni"), ("bf16", "avx512bf16")) if features.get(f))
    text = [_fma_loop(n) for n in lanes]
    granted = host_features() if amx else frozenset[str]()
    blocks = tuple(d for d, f in (("i8", "amx-int8"), ("bf16", "amx-bf16")) if d in dots and f in granted)
    text += [_block_loop(d) if d in blocks else _dot_loop(d) for d in dots]
    text += [_BLOCKS] if blocks else []
    text += [
        _read_loop(widest),
        _copy_loop("copy_all", widest),
        _copy_loop("stream_all", widest, "!nontemporal !0"),
    ]
    return Machine(_compile("\n".join(text) + "\n!0 = !{i32 1}\n"), lanes, dots, blocks)


def together(machine: Machine, threads: int) -> float:
    """Multiply-adds on so many cores at once over those of one alone: as many if all of them are free."""
    probe = machine.fma("f32")
    alone = probe.rate()
    both = _at_once([lambda: [probe.call() for _ in range(50)]] * threads)
    return Probe(both, 50 * threads * probe.amount).rate() / alone


def caches(cpu: int) -> dict[str, int]:
    """Bytes of the data caches of a core by level, `{"L1": 49152, ...}`; empty where nothing says."""
    found = {}
    for index in sorted(Path(f"/sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
        if (index / "type").read_text().strip() == "Instruction":
            continue
        text = (index / "size").read_text().strip()
        factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
        found[f"L{(index / 'level').read_text().strip()}"] = int(text.rstrip("KM")) * factor
    return found


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _at_once(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """All of them, each on a thread of its own."""
    if len(calls) == 1:
        return calls[0]
    pool = ThreadPoolExecutor(len(calls))
    return lambda: [done.result() for done in [pool.submit(call) for call in calls]]


def _call(function: Callable[..., None], source: Array, sink: Array, *counts: int) -> None:
    function(source.ctypes.data, sink.ctypes.data, *counts)


def _chains_loop(name: str, declare: str, vector: str, setup: str, step: Callable[[int], str]) -> str:
    """A function that runs CHAINS independent chains of accumulators n times."""
    phis = "\n".join(
        f"  %a{i} = phi {vector} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in range(CHAINS)
    )
    add = "fadd" if "float" in vector else "add"
    sums = "\n".join(
        f"  %s{i + 1} = {add} {vector} {'%b0' if i == 0 else f'%s{i}'}, %b{i + 1}" for i in range(CHAINS - 1)
    )
    steps = "\n".join(step(i) for i in range(CHAINS))
    return f"""
{declare}
define void @{name}(ptr %in, ptr %out, i64 %n) {{
entry:
{setup}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{phis}
{steps}
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %loop, label %done
done:
{sums}
  store {vector} %s{CHAINS - 1}, ptr %out, align 4
  ret void
}}"""


def _fma_loop(lanes: int) -> str:
    vector, name = f"<{lanes} x float>", f"@llvm.fma.v{lanes}f32"
    return _chains_loop(
        f"fma{lanes}",
        f"declare {vector} {name}({vector}, {vector}, {vector})",
        vector,
        f"  %x = load {vector}, ptr %in, align 4\n  %y = fneg {vector} %x",
        lambda i: f"  %b{i} = call {vector} {name}({vector} %x, {vector} %y, {vector} %a{i})",
    )


def _dot_loop(dot: str) -> str:
    """The instruction that multiplies pairs of bf16, or fours of 8-bit integers, and adds them up."""
    vector, narrow, name = {
        "i8": ("<16 x i32>", "<16 x i32>", "@llvm.x86.avx512.vpdpbusd.512"),
        "bf16": ("<16 x float>", "<32 x bfloat>", "@llvm.x86.avx512bf16.dpbf16ps.512"),
    }[dot]
    if dot == "i8" and llvm.llvm_version_info >= (22,):
        narrow = "<64 x i8>"
    return _chains_loop(
        f"dot_{dot}",
        f"declare {vector} {name}({vector}, {narrow}, {narrow})",
        vector,
        f"  %x = load {narrow}, ptr %in, align 4",
        lambda i: f"  %b{i} = call {vector} {name}({vector} %a{i}, {narrow} %x, {narrow} %x)",
    )


# Eight registers of 16 rows of 64 bytes.
_SHAPES = bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8])
_SHOWN = "".join(f"\\{byte:02X}" for byte in _SHAPES)
_BLOCKS = f"""
@shapes = private constant [64 x i8] c"{_SHOWN}", align 64
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tilerelease()"""


def _block_loop(dot: str) -> str:
    """The same for a block of 16 by 16 of them, in four registers; what holds the operands are zeros."""
    name = {"i8": "@llvm.x86.tdpbusd", "bf16": "@llvm.x86.tdpbf16ps"}[dot]
    zeros = "\n".join(f"  call void @llvm.x86.tilezero(i8 {number})" for number in range(8))
    steps = "\n".join(
        f"  call void {name}(i8 {i % 4}, i8 {4 + i // 2 % 2}, i8 {6 + i % 2})" for i in range(CHAINS)
    )
    return f"""
declare void {name}(i8, i8, i8)
define void @dot_{dot}(ptr %in, ptr %out, i64 %n) {{
entry:
  call void @llvm.x86.ldtilecfg(ptr @shapes)
{zeros}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{steps}
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %loop, label %done
done:
  call void @llvm.x86.tilerelease()
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
        body.append(f"  %v{k} = load {vector}, ptr %p{k}, align {4 * lanes}")
        body.append(f"  %b{k} = or {vector} %a{k}, %v{k}")
    joins = [f"  %s{k + 1} = or {vector} {'%b0' if k == 0 else f'%s{k}'}, %b{k + 1}" for k in range(7)]
    joins.append(f"  store volatile {vector} %s7, ptr %out, align 4")
    return _pass_over_memory("read_all", "\n".join(phis), "\n".join(body), 8 * lanes, "\n".join(joins))


def _copy_loop(name: str, lanes: int, hint: str = "") -> str:
    vector, end = f"<{lanes} x i32>", f", {hint}" if hint else ""
    body = []
    for k in range(4):
        body.append(f"  %o{k} = add i64 %i, {k * lanes}")
        body.append(f"  %p{k} = getelementptr i32, ptr %in, i64 %o{k}")
        body.append(f"  %q{k} = getelementptr i32, ptr %out, i64 %o{k}")
        body.append(f"  %v{k} = load {vector}, ptr %p{k}, align {4 * lanes}")
        body.append(f"  store {vector} %v{k}, ptr %q{k}, align {4 * lanes}{end}")
    return _pass_over_memory(name, "", "\n".join(body), 4 * lanes)


def _compile(text: str) -> Any:
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten() + ",-prefer-256-bit"
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
