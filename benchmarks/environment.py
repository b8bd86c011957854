"""The conditions of a run: thread pools that sleep, one allocator policy, a core that is quiet.

Sizes and waiting policies of thread pools are read from the environment when a library is loaded, those
of the allocator when the process starts; so the process starts again with them set.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

MARK = "STRIPEC_BENCHMARK_THREADS"


def settings(threads: int, amx: bool) -> dict[str, str]:
    """Variables for all peers alike: so many threads, waiting ones asleep, blocks of memory kept for the
    next call and in huge pages (peers that allocate their results would else pay for new pages)."""
    count = str(threads)
    found = dict.fromkeys(
        (
            "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
            "HL_NUM_THREADS",
        ),
        count,
    )  # fmt: skip
    found |= {
        "OMP_WAIT_POLICY": "passive",
        "KMP_BLOCKTIME": "0",
        "GOMP_SPINCOUNT": "0",
        "KMP_WARNINGS": "0",
        "OMP_DYNAMIC": "false",
        "MKL_DYNAMIC": "false",
        "MKL_THREADING_LAYER": "SEQUENTIAL" if threads == 1 else "GNU",
        "OPENBLAS_THREAD_TIMEOUT": "4",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}",
        "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296"
        ":glibc.malloc.hugetlb=1",
        "PYTHONHASHSEED": "0",
    }
    if not amx:
        found |= {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "MKL_ENABLE_INSTRUCTIONS": "AVX512_E3"}
    return found


def prepare(threads: int, amx: bool) -> None:
    """Start this process again with `settings`, unless it has them."""
    mark = f"{threads}{'' if amx else ' without AMX'}"
    if os.environ.get(MARK) == mark:
        return
    environment = os.environ | settings(threads, amx) | {MARK: mark}
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], environment)


def pin(threads: int) -> tuple[list[int], str]:
    """Bind the process to the quietest of its cores; gives them, and a line that says what was seen."""
    if not hasattr(os, "sched_setaffinity"):
        return [], "this system does not let a process choose its core"
    allowed = sorted(os.sched_getaffinity(0))
    speeds = {cpu: _quiet_speed(cpu) for cpu in allowed}
    chosen = sorted(sorted(speeds, key=lambda cpu: -speeds[cpu])[:threads])
    os.sched_setaffinity(0, chosen)
    fastest = max(speeds.values())
    seen = ", ".join(f"core {cpu} {speeds[cpu] / fastest:.0%}" for cpu in allowed)
    named = " and ".join(map(str, chosen))
    return chosen, f"pinned to core {named}; a probe of 0.2 s saw, of the best: {seen}"


def _quiet_speed(cpu: int) -> float:
    """Steps of a loop in a second of wall time on this core: other work on it lowers the figure."""
    os.sched_setaffinity(0, {cpu})
    found = []
    for _ in range(20):
        start = time.perf_counter()
        total = 0
        for step in range(100_000):
            total += step
        found.append(1 / (time.perf_counter() - start))
        if sum(1 / speed for speed in found) > 0.2:
            break
    return statistics.mean(found)
