"""On which cores the threads of parallel regions run, as far as that is ours to say."""

from __future__ import annotations

import os
import sys

import pytest

from codegen_cpu.parallel_runtime import binds_threads
from tests.unit.codegen_cpu.test_parallel import in_process

LINUX = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs two cores, and Linux"
)
NAMES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")

# Kernels for two threads and for more than there are cores; the threads that a team of two brought, and how
# many of them may run on all cores but one.
START = """
import warnings; warnings.simplefilter('ignore')
os.environ['OMP_WAIT_POLICY'] = 'passive'
from codegen_cpu.kernel import NativeKernel
from tests.unit.codegen_cpu.test_parallel import ROWS, module

def kernel(count):
    return NativeKernel(module(ROWS.replace('c:4', f'c:{count}').replace('64', str(16 * count)), count))

def call(core, count=2):
    os.sched_setaffinity(0, {core})
    for _ in range(3):
        time.sleep(0.02)
        assert (kernels[count](A[:16 * count]) == A[:16 * count].sum(1)).all()

def kept_off(core):
    return sum(os.sched_getaffinity(member) == cores - {core} for member in members)

before, cores = set(os.listdir('/proc/self/task')), os.sched_getaffinity(0)
one, other, *_ = sorted(cores)
A = np.ones((16 * (len(cores) + 2), 50), np.float32)
kernels = {count: kernel(count) for count in (2, len(cores) + 2)}
kernels[2](A[:32])
members = [int(task) for task in set(os.listdir('/proc/self/task')) - before]
"""


@LINUX
def test_a_member_that_is_woken_is_kept_off_the_core_of_the_caller() -> None:
    """Of two threads one makes the team; the other one is its only member."""
    said = in_process(START + "for core in (one, other, one): call(core); print(kept_off(core))")
    assert said.split() == ["1", "1", "1"]


@LINUX
def test_members_that_somebody_has_moved_stay_there() -> None:
    said = in_process(
        START + "call(one)\n"
        "for member in members: os.sched_setaffinity(member, {one})\n"
        "call(other); call(one)\n"
        "print(all(os.sched_getaffinity(member) == {one} for member in members))"
    )
    assert said.split() == ["True"]


@LINUX
def test_members_stay_where_the_environment_says_where_threads_run() -> None:
    said = in_process(
        "import codegen_cpu.parallel_dispatch as dispatch\n"
        "dispatch.binds_threads = lambda: True\n" + START + "call(one); print(kept_off(one))"
    )
    assert said.split() == ["0"]


@LINUX
def test_with_more_threads_than_cores_members_may_use_all() -> None:
    """Those of the smaller team, too, which the runtime takes again."""
    said = in_process(
        START + "call(one); print(kept_off(one)); call(one, len(cores) + 2); print(kept_off(one))"
    )
    assert said.split() == ["1", "0"]


@pytest.mark.parametrize(
    ("environment", "bound"),
    [
        ({}, False),
        ({"OMP_PROC_BIND": "false"}, False),
        ({"OMP_PROC_BIND": " TRUE"}, True),
        ({"OMP_PROC_BIND": "spread,close"}, True),
        ({"OMP_PLACES": "cores"}, True),
        ({"GOMP_CPU_AFFINITY": "0-3"}, True),
        ({"KMP_AFFINITY": "granularity=fine,compact"}, True),
        ({"KMP_AFFINITY": "verbose,none"}, False),
        ({"KMP_AFFINITY": "disabled"}, False),
    ],
)
def test_the_environment_says_whether_threads_are_bound(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], bound: bool
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert binds_threads() is bound
