"""Parallel regions: what becomes one, what it may share, and the threads that the process has for it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from codegen_cpu import aot, parallel_dispatch
from codegen_cpu.build import Module, build
from codegen_cpu.kernel import NativeKernel
from codegen_cpu.parallel import FORK, parts_indexes
from codegen_cpu.parallel_runtime import SPIN_NANOSECONDS, idle_nanoseconds, loaded_runtimes, runtime
from hwconfigs.load import load_named
from stripe.diag import CompileError, Source
from stripe.parser import parse
from stripe.verify import verify
from tests.support.native import host
from tests.support.threads import threads_of_process, with_cores

pytestmark = pytest.mark.skipif(runtime() is None, reason="it needs an OpenMP runtime")


def module(text: str, cores: int = 4, target: str = "") -> Module:
    hw = with_cores(load_named(target) if target else host(), cores)
    program = parse(Source("test.stripe", dedent(text)))
    verify(program, hw)
    return build(program, hw)


ROWS = """
block main [] (in A[0, 0] f32(64, 50):(50, 1)  out S[0]:assign f32(64):(1)) {
  block core [c:4] @CORE[c] (in A[16*c, 0] f32(16, 50)  out S[16*c]:add f32(16)) {
    block sum [m:16, k:50] (in A[m, k] f32(1, 1)  out S[m]:add f32(1)) #vector=k {
      $a = load(A) f32
      S = store($a)
    }
  }
}
"""
A = np.arange(64 * 50, dtype=np.float32).reshape(64, 50) % 13


def rows() -> NativeKernel:
    return NativeKernel(module(ROWS))


# -- what becomes a region -------------------------------------------------------------------


def test_points_on_copies_of_a_unit_run_on_threads() -> None:
    made = module(ROWS)
    assert FORK in made.emitted
    np.testing.assert_array_equal(NativeKernel(made)(A), A.sum(1))


def test_a_target_of_one_core_has_no_region() -> None:
    text = ROWS.replace("@CORE[c] ", "")
    for made in (module(text, 1), module(text, 4)):
        assert not made.is_parallel
        assert FORK not in made.emitted


def test_sums_that_meet_in_one_element_do_not_race() -> None:
    """Planted: four copies add to the same elements, which is legal, and no work for threads."""
    made = module("""
        block main [] (in A[0, 0] f32(64, 50):(50, 1)  out S[0]:assign f32(50):(1)) {
          block core [c:4] @CORE[c] (in A[16*c, 0] f32(16, 50)  out S[0]:add f32(50)) {
            block sum [m:16, k:50] (in A[m, k] f32(1, 1)  out S[k]:add f32(1)) #vector=k {
              $a = load(A) f32
              S = store($a)
            }
          }
        }
    """)
    assert not made.is_parallel
    np.testing.assert_array_equal(NativeKernel(made)(A), A.sum(0))


@pytest.mark.parametrize(("last", "parallel"), [("c_1 - 3 >= 0", True), ("c_1 - 2 >= 0", False)])
def test_sums_that_one_copy_alone_adds_to_do_not_race(last: str, parallel: bool) -> None:
    """Each copy has its rows, and the last one the row behind them; or the last two, which would race."""
    made = module(f"""
        block main [] (in A[0, 0] f32(65, 50):(50, 1)  out S[0]:assign f32(65):(1)) {{
          block core [c:4] @CORE[c] (in A[0, 0] f32(65, 50)  out S[0]:add f32(65)) {{
            block sum [m:16, k:50, c_1 = c] (
              in A[16*c_1 + m, k] f32(1, 1)
              out S[16*c_1 + m]:add f32(1)
            ) #vector=k {{
              $a = load(A) f32
              S = store($a)
            }}
            block rest [k:50, c_1 = c] ({last}  in A[64, k] f32(1, 1)  out S[64]:add f32(1)) #vector=k {{
              $a = load(A) f32
              S = store($a)
            }}
          }}
        }}
    """)
    assert made.is_parallel == parallel
    given = np.arange(65 * 50, dtype=np.float32).reshape(65, 50) % 13
    expected = given.sum(1)
    expected[64] *= 1 if parallel else 2
    np.testing.assert_array_equal(NativeKernel(made)(given), expected)


@pytest.mark.parametrize(
    ("views", "read", "said"),
    [
        ("out S[0]:assign f32(50)", "A", "V044"),  # all copies write the same elements
        ("out S[40*c]:assign f32(50)", "A", "V044"),  # their parts overlap
        ("out S[50*c]:assign f32(50)  in T = S[150 - 50*c] f32(50)", "T", "V046"),  # one reads another's
        ("out S[50*c]:assign f32(50)", "A", ""),
    ],
)
def test_other_races_are_refused_by_the_verifier(views: str, read: str, said: str) -> None:
    text = f"""
        block main [] (in A[0] f32(50):(1)  out S[0]:assign f32(200):(1)) {{
          block zero [i:200] (out S[i]:assign f32(1)) {{
            $z = constant(0.0) f32
            S = store($z)
          }}
          block core [c:4] @CORE[c] (in A[0] f32(50)  {views}) {{
            block copy [k:50] (in {read}[k] f32(1)  out S[k]:assign f32(1)) {{
              $a = load({read}) f32
              S = store($a)
            }}
          }}
        }}
    """
    if not said:
        assert module(text).is_parallel
        return
    with pytest.raises(CompileError) as caught:
        module(text)
    assert [found.code for found in caught.value.diagnostics] == [said]


@pytest.mark.parametrize(("step", "parallel"), [(16, True), (15, False)])
def test_sums_that_meet_at_the_rim_of_their_parts(step: int, parallel: bool) -> None:
    size = step * 3 + 16
    made = module(f"""
        block main [] (in A[0] f32({size}):(1)  out S[0]:assign f32({size}):(1)) {{
          block core [c:4, i:16] @CORE[c] (in A[{step}*c + i] f32(1)  out S[{step}*c + i]:add f32(1)) {{
            $a = load(A) f32
            S = store($a)
          }}
        }}
    """)
    assert made.is_parallel == parallel
    one, want = np.ones(size, np.float32), np.zeros(size, np.float32)
    for c in range(4):
        want[step * c : step * c + 16] += 1
    np.testing.assert_array_equal(NativeKernel(made)(one), want)


def test_a_region_inside_loops_takes_their_values_along() -> None:
    """The region sees an outer index, a constraint over it, and a buffer of the point around it."""
    made = module("""
        block main [] (in A[0, 0] i32(6, 40):(40, 1)  out B[0, 0]:assign i32(6, 40):(40, 1)) {
          block row [r:6] (in A[r, 0] i32(1, 40)  out B[r, 0]:assign i32(1, 40)  new T i32(40):(1)) {
            block twice [i:40, rr = r] (in A[0, i] i32(1, 1)  out T[i]:assign i32(1)) {
              $a = load(A) i32
              $r = index(rr) i32
              $s = add($a, $r) i32
              T = store($s)
            }
            block core [c:3, rr = r] @CORE[c] (in T[14*c] i32(14)  out B[0, 14*c]:assign i32(1, 14)) {
              block copy [i:14, cc = c, q = rr] (
                39 - 14*cc - i >= 0
                in T[i] i32(1)
                out B[0, i]:assign i32(1, 1)
              ) #vector=i {
                $t = load(T) i32
                $q = index(100*q + cc) i32
                $s = add($t, $q) i32
                B = store($s)
              }
            }
          }
        }
    """)
    assert made.is_parallel
    given = np.arange(240, dtype=np.int32).reshape(6, 40)
    want = given + np.arange(6)[:, None] * 101 + np.arange(40)[None, :] // 14
    for _ in range(20):
        np.testing.assert_array_equal(NativeKernel(made)(given), want)


@pytest.mark.parametrize("size", [40, 4000])
def test_each_thread_has_buffers_of_its_own(size: int) -> None:
    """On the stack, and in the workspace."""
    made = module(f"""
        block main [] (in A[0] i64(8):(1)  out B[0, 0]:assign i64(8, {size}):({size}, 1)) {{
          block core [c:8] @CORE[c] (
            in A[c] i64(1)
            out B[c, 0]:assign i64(1, {size})
            new T i64({size}):(1)
          ) {{
            block fill [i:{size}] (in A[0] i64(1)  out T[i]:assign i64(1)) {{
              $a = load(A) i64
              T = store($a)
            }}
            block copy [i:{size}] (in T[i] i64(1)  out B[0, i]:assign i64(1, 1)) {{
              $t = load(T) i64
              B = store($t)
            }}
          }}
        }}
    """, 8)  # fmt: skip
    assert (made.entry.workspace_bytes >= 8 * 8 * size) == (size > 1000)
    kernel, given = NativeKernel(made), np.arange(8)
    for _ in range(50):
        np.testing.assert_array_equal(kernel(given), np.repeat(given[:, None], size, 1))


def test_more_points_than_threads_and_numbers_of_several_indexes() -> None:
    made = module("""
        block main [] (out B[0, 0, 0]:assign i32(2, 3, 5):(15, 5, 1)) {
          block core [a:2, x:5, b:3] @CORE[3*a + b] (out B[a, b, x]:assign i32(1, 1, 1)) {
            $v = index(100*a + 10*b + x) i32
            B = store($v)
          }
        }
    """, 6)  # fmt: skip
    a, b, x = np.ogrid[:2, :3, :5]
    np.testing.assert_array_equal(NativeKernel(made)(), 100 * a + 10 * b + x)


def test_half_precision_is_rounded_once_in_each_thread() -> None:
    text = ROWS.replace("f32", "f16")
    given = A.astype(np.float16)
    np.testing.assert_array_equal(
        NativeKernel(module(text))(given), A.astype(np.float64).sum(1).astype(np.float16)
    )


@pytest.mark.parametrize(("elements", "parts"), [("8*c + s", {"s": 8}), ("8*c", {}), ("s", {})])
def test_points_of_a_copy_are_in_parts_unless_these_add_to_one_element(
    elements: str, parts: dict[str, int]
) -> None:
    text = f"""
        block main [] (in A[0, 0] f32(32, 50):(50, 1)  out S[0]:assign f32(32):(1)) {{
          block zero [i:32] (out S[i]:assign f32(1)) {{
            $z = constant(0.0) f32
            S = store($z)
          }}
          block core [c:4, s:8] @CORE[c] (in A[8*c + s, 0] f32(1, 50)  inout S[{elements}]:add f32(1)) {{
            block sum [k:50] (in A[0, k] f32(1, 1)  out S[0]:add f32(1)) #vector=k {{
              $a = load(A) f32
              S = store($a)
            }}
          }}
        }}
    """
    root = parse(Source("test.stripe", dedent(text))).root
    assert parts_indexes(root.children[1]) == parts
    want = np.zeros(32, np.float32)
    for row in range(32):
        c, s = divmod(row, 8)
        want[{"8*c + s": 8 * c + s, "8*c": 8 * c, "s": s}[elements]] += A[row].sum()
    kernel = NativeKernel(module(text))
    for _ in range(20):
        np.testing.assert_array_equal(kernel(A[:32]), want)


def test_points_without_blocks_inside_are_no_parts() -> None:
    text = """
        block main [] (out S[0, 0]:assign i32(4, 9):(9, 1)) {
          block core [c:4, s:9] @CORE[c] (out S[c, s]:assign i32(1, 1)) {
            $v = index(10*c + s) i32
            S = store($v)
          }
        }
    """
    root = parse(Source("test.stripe", dedent(text))).root
    assert parts_indexes(root.children[0]) == {}
    want = 10 * np.arange(4)[:, None] + np.arange(9)[None, :]
    np.testing.assert_array_equal(NativeKernel(module(text))(), want)


# -- the threads of the process --------------------------------------------------------------


def in_process(code: str) -> str:
    """What a fresh Python prints that runs `code`; NumPy has no threads there."""
    start = (
        "import os, sys, threading, time; import numpy as np\n"
        "from tests.unit.codegen_cpu.test_parallel import A, rows\n"
        "from tests.support.threads import threads_of_process\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", start + dedent(code)],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=60,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it counts threads in /proc")
def test_all_python_threads_share_one_pool_and_children_have_their_own() -> None:
    """One thread that makes the team, and one less than cores that work along; the same in a forked child."""
    said = in_process("""
        import warnings; warnings.simplefilter('ignore')
        before = threads_of_process()
        kernel = rows()
        kernel(A)
        print(threads_of_process() - before)
        def work():
            for _ in range(30):
                assert (kernel(A) == A.sum(1)).all()
        callers = [threading.Thread(target=work) for _ in range(8)]
        for caller in callers: caller.start()
        busy = os.fork()  # while others call
        if busy == 0:
            os._exit(0 if (kernel(A) == A.sum(1)).all() else 1)
        print(os.waitpid(busy, 0)[1])
        for caller in callers: caller.join()
        time.sleep(0.1)
        print(threads_of_process() - before)
        child = os.fork()
        if child == 0:
            good = (kernel(A) == A.sum(1)).all()
            os._exit(threads_of_process() if good else 100)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    made, in_busy_child, after, in_child = map(int, said.split())
    assert (made, in_busy_child, after) == (4, 0, 4)
    assert in_child == 5  # the thread that forked, and four more


def test_waiting_threads_sleep() -> None:
    said = in_process("""
        kernel = rows()
        for _ in range(50): kernel(A)
        time.sleep(0.05)
        began = time.process_time()
        time.sleep(0.4)
        print(time.process_time() - began)
    """)
    assert float(said) < 0.04


def test_threads_that_wait_between_calls_sleep_soon() -> None:
    """However short the gaps are: a member spins about as long as it takes to wake it, once for each call."""
    said = in_process("""
        kernel = rows()
        kernel(A)
        def used(call):
            began = time.process_time()
            for _ in range(100):
                call()
                time.sleep(0.002)
            return time.process_time() - began
        print(used(lambda: kernel(A)) - used(lambda: A.sum(1)))
    """)
    # A hundred times three members, 50 microseconds each, and what they compute.
    assert float(said) < 0.06


@pytest.mark.parametrize(
    ("environment", "nanoseconds"),
    [
        ({}, SPIN_NANOSECONDS),
        ({"OMP_WAIT_POLICY": "passive"}, 0),
        ({"OMP_WAIT_POLICY": " ACTIVE"}, 200_000_000),
        ({"OMP_WAIT_POLICY": "other"}, SPIN_NANOSECONDS),
        ({"KMP_BLOCKTIME": "0", "OMP_WAIT_POLICY": "active"}, 0),
        ({"KMP_BLOCKTIME": "3"}, 3_000_000),
        ({"KMP_BLOCKTIME": "70us"}, 70_000),
        ({"KMP_BLOCKTIME": "0.5 S"}, 500_000_000),
        ({"KMP_BLOCKTIME": "infinite"}, 200_000_000),
        ({"KMP_BLOCKTIME": "soon"}, SPIN_NANOSECONDS),
        ({"GOMP_SPINCOUNT": "0"}, 0),
        ({"GOMP_SPINCOUNT": "1000"}, SPIN_NANOSECONDS),
    ],
)
def test_the_environment_says_how_long_threads_spin_between_calls(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], nanoseconds: int
) -> None:
    for name in ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert idle_nanoseconds() == nanoseconds


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it counts threads in /proc")
def test_a_team_grows_to_what_is_asked_for_and_no_further() -> None:
    said = in_process("""
        from codegen_cpu.kernel import NativeKernel
        from tests.unit.codegen_cpu.test_parallel import ROWS, module
        def kernel(cores):
            text = ROWS.replace('c:4', f'c:{cores}').replace('16', str(64 // cores))
            return NativeKernel(module(text, cores))
        before = threads_of_process()
        for cores in (2, 8, 4, 2, 8):
            made = kernel(cores)
            for _ in range(10):
                assert (made(A) == A.sum(1)).all()
            print(threads_of_process() - before)
    """)
    assert said.split() == ["2", "8", "8", "8", "8"]


@pytest.mark.parametrize("policy", ["", "passive", "active"])
def test_calls_of_many_threads_with_many_sizes_of_team(policy: str) -> None:
    """Members that come late, sleep, leave for a larger team or ahead of a fork: each part runs once."""
    in_process(f"""
        if {policy!r}: os.environ['OMP_WAIT_POLICY'] = {policy!r}
        from codegen_cpu.kernel import NativeKernel
        from tests.unit.codegen_cpu.test_parallel import ROWS, module
        kernels = []
        for cores in (2, 4, 8):
            text = ROWS.replace('c:4', f'c:{{cores}}').replace('16', str(64 // cores))
            kernels.append(NativeKernel(module(text, cores)))
        def work(seed):
            for step in range(150):
                kernel = kernels[(seed + step // 3) % 3]
                assert (kernel(A) == A.sum(1)).all()
                time.sleep((seed * step) % 5 * 2e-5)
        callers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        for caller in callers: caller.start()
        for caller in callers: caller.join()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0 if (kernels[1](A) == A.sum(1)).all() else 1)
            assert os.waitpid(child, 0)[1] == 0
            assert (kernels[2](A) == A.sum(1)).all()
    """)


def test_pauses_between_any_two_steps_change_nothing() -> None:
    """A pause follows some steps that other threads see, as if the system had stopped the thread there."""
    in_process("""
        import random, re
        from codegen_cpu import parallel_dispatch
        from codegen_cpu.kernel import NativeKernel
        from tests.unit.codegen_cpu.test_parallel import ROWS, module
        code, steps = re.subn(
            r'^  .*(atomicrmw|cmpxchg|load atomic|store atomic).*$',
            lambda step: step[0] + '\\n  call void @pause()', parallel_dispatch._CODE, flags=re.M,
        )
        assert steps > 10
        parallel_dispatch._CODE = code + '''
            declare i32 @rand()
            declare i32 @usleep(i32)
            define internal void @pause() {
            entry:
              %number = call i32 @rand()
              %some = and i32 %number, 31
              %now = icmp eq i32 %some, 0
              br i1 %now, label %sleep, label %over
            sleep:
              %woken = call i32 @usleep(i32 500)
              br label %over
            over:
              ret void
            }
        '''
        kernels = []
        for cores in (2, 4, 8):
            text = ROWS.replace('c:4', f'c:{cores}').replace('16', str(64 // cores))
            kernels.append(NativeKernel(module(text, cores)))
        def work(seed):
            chosen = random.Random(seed)
            for _ in range(1500):
                assert (chosen.choice(kernels)(A) == A.sum(1)).all()
        callers = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(3)]
        for caller in callers: caller.start()
        for caller in callers: caller.join(8)
        assert not any(caller.is_alive() for caller in callers)
    """)


def test_kernels_that_threads_make_at_the_same_time_know_one_team() -> None:
    said = in_process("""
        from codegen_cpu.parallel_dispatch import openmp_symbols
        sys.setswitchinterval(1e-6)
        gate, found = threading.Barrier(8), []
        def make():
            gate.wait()
            found.append(openmp_symbols())
        makers = [threading.Thread(target=make) for _ in range(8)]
        for maker in makers: maker.start()
        for maker in makers: maker.join()
        print(len(found), len(set(found)))
    """)
    assert said.split() == ["8", "1"]


def test_a_fork_waits_for_the_call_that_is_under_way() -> None:
    """The child's copy of the runtime is whole, and its team gone; the parent calls on."""
    in_process("""
        import ctypes
        from codegen_cpu.parallel_dispatch import dispatch
        kernel = rows()
        kernel(A)
        sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
        sleeper = threading.Thread(target=dispatch, args=(sleep, 300_000))
        sleeper.start()
        time.sleep(0.1)
        began = time.perf_counter()
        child = os.fork()
        if child == 0:
            os._exit(0 if (kernel(A) == A.sum(1)).all() else 1)
        assert time.perf_counter() - began > 0.1
        assert os.waitpid(child, 0)[1] == 0
        sleeper.join()
        assert (kernel(A) == A.sum(1)).all()
    """)


def test_threads_that_the_environment_keeps_awake_are_awake_in_a_call() -> None:
    said = in_process("""
        os.environ['OMP_WAIT_POLICY'] = 'active'
        import ctypes
        from codegen_cpu.parallel_dispatch import dispatch
        rows()(A)
        sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
        began = time.process_time()
        dispatch(sleep, 500_000)  # others may be at work on the machine
        print(time.process_time() - began)
    """)
    assert float(said) > 0.02


def test_a_hand_over_takes_microseconds() -> None:
    function = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    assert function is not None
    seconds = []
    for _ in range(300):
        began = time.perf_counter()
        parallel_dispatch.dispatch(function, 0)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 100e-6


def test_the_gil_is_released_while_a_region_runs() -> None:
    """Python goes on in this thread while another one waits for its kernel."""
    libc = ctypes.CDLL(None)
    sleep = ctypes.cast(libc.usleep, ctypes.c_void_p).value
    assert sleep is not None
    sleeper = threading.Thread(target=parallel_dispatch.dispatch, args=(sleep, 200_000))
    began = time.perf_counter()
    sleeper.start()
    counted = time.perf_counter() - began
    sleeper.join()
    assert counted < 0.15 and time.perf_counter() - began > 0.19


def test_the_runtime_that_is_loaded_is_the_one_that_is_used() -> None:
    """The environment of a process says how waiting threads wait, and is left as it was."""
    said = in_process("""
        from codegen_cpu.parallel_runtime import runtime, loaded_runtimes
        before = dict(os.environ)
        found = runtime()
        assert dict(os.environ) == before
        import ctypes
        print(len(loaded_runtimes()), found)
    """)
    assert said.startswith("1 ")
    assert loaded_runtimes()


def test_without_a_runtime_there_is_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegen_cpu.parallel_dispatch.runtime", lambda: None)
    before = threads_of_process()
    np.testing.assert_array_equal(rows()(A), A.sum(1))
    assert threads_of_process() <= before + 1
    monkeypatch.undo()
    np.testing.assert_array_equal(rows()(A), A.sum(1))


# -- files -----------------------------------------------------------------------------------


def test_the_header_says_what_to_link_with() -> None:
    made, alone = module(ROWS, target="generic"), module(ROWS.replace("@CORE[c] ", ""), 1, "generic")
    assert "4 threads of an OpenMP runtime: link with -fopenmp" in aot.c_header(made)
    assert "OpenMP" not in aot.c_header(alone)


def test_a_shared_library_runs_on_threads(tmp_path: Path) -> None:
    path = tmp_path / "rows.so"
    path.write_bytes(aot.shared_library(module(ROWS)))
    library = ctypes.CDLL(str(path))
    result = np.empty(64, np.float32)
    given = np.ascontiguousarray(A)
    assert library.main_program(ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(result.ctypes.data)) == 0
    np.testing.assert_array_equal(result, A.sum(1))
