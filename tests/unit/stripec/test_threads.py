"""`threads`, OMP_NUM_THREADS and `deterministic`: how many threads run a kernel, and the resulting bits."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import stripec
from codegen_cpu.parallel_runtime import runtime, usable_cores
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.diag import CompileError
from stripec import threads as threads_module
from stripec.api import Kernel
from stripec.cli import main
from stripec.threads import threads_for
from tests.support.native import Array, runnable
from tests.support.threads import with_cores

pytestmark = pytest.mark.skipif(runtime() is None, reason="it needs an OpenMP runtime")

COUNTS = (1, 2, 3, 4, 7)
ROWS = "function (X[M, N]) -> (Y) { E = exp(X); S[m : M] = +(E[m, n]); Y = log(S); }"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@cache
def rows(count: int | None) -> Kernel:
    return stripec.compile(ROWS, {"X": "f32[600,1000]"}, threads=count)


X = np.random.default_rng(0).standard_normal((600, 1000), dtype=np.float32)


def copies(kernel: Kernel) -> int:
    """On how many copies of the unit the kernel runs."""
    return next(unit.count for unit in kernel.hw.units if unit.kind == "compute")


# -- how many ----------------------------------------------------------------------------------


def test_threads_come_before_the_environment_and_that_before_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hw = load_named("generic")
    assert threads_for(hw, None) == usable_cores()
    assert threads_for(with_cores(hw, 5), None) == 5
    monkeypatch.setenv("OMP_NUM_THREADS", " 3,2 ")
    assert threads_for(hw, None) == threads_for(with_cores(hw, 5), None) == 3
    assert threads_for(hw, 6) == 6
    assert copies(stripec.compile(ROWS, {"X": "f32[60,10]"})) == 3


def test_a_number_of_threads_is_any_whole_number_above_0() -> None:
    assert copies(stripec.compile(ROWS, {"X": "f32[60,10]"}, threads=np.int64(2))) == 2  # type: ignore[arg-type]
    for bad in (0, -1, 2.0, "2", True, np.float64(2), np.True_, 1 << 40):
        with pytest.raises(CompileError, match="D004"):
            stripec.compile(ROWS, threads=bad)  # type: ignore[arg-type]


def test_the_affinity_of_the_process_counts() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from stripec.threads import threads_for; from hwconfigs.load import load_named\n"
        "print(threads_for(load_named('generic'), None))"
    )
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("the system has no affinity")
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.stdout == "1\n", done.stderr


@pytest.mark.parametrize("text", ["0", "-1", "two", "1e3", "٣", "1025", "9" * 30])
def test_an_environment_that_is_no_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    with pytest.raises(CompileError, match=r"D004.*OMP_NUM_THREADS is") as caught:
        stripec.compile(ROWS)
    assert "unset it" in str(caught.value)
    assert stripec.compile(ROWS, threads=2) is not None


@pytest.mark.parametrize("target", ["systolic_16", "paper_figure4"])
def test_threads_on_a_target_that_is_no_cpu(target: str) -> None:
    with pytest.raises(CompileError, match=r"D004.*don't run on cores"):
        stripec.compile(ROWS, target=target, threads=2)
    assert stripec.compile(ROWS, target=target, threads=1) is not None


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="it counts threads in /proc")
def test_as_many_threads_run_as_were_asked_for() -> None:
    """The dispatcher is one of them; a kernel on one thread needs no other."""
    code = (
        "import os, numpy as np, stripec\n"
        f"kernels = [stripec.compile({ROWS!r}, {{'X': 'f32[600,1000]'}}, threads=n) for n in (1, 5)]\n"
        "x = np.ones((600, 1000), np.float32)\n"
        "for kernel in kernels:\n"
        "    before = len(os.listdir('/proc/self/task')); kernel(x)\n"
        "    print(len(os.listdir('/proc/self/task')) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["0", "5"], done.stderr


def test_small_kernels_stay_on_one_thread() -> None:
    kernel = stripec.compile(ROWS, {"X": "f32[64,32]"}, threads=4)
    assert not kernel.module.is_parallel
    reasons = [r.message for r in kernel.remarks if r.pass_name == "partition"]
    assert any("to hand it over takes" in reason for reason in reasons)
    assert rows(4).module.is_parallel


def test_without_a_runtime_one_warning_and_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "runtime", lambda: None)
    monkeypatch.setattr(threads_module, "_warned", [])
    with pytest.warns(RuntimeWarning, match=r"no OpenMP runtime.*stripec\[openmp\]") as found:
        kernel = stripec.compile(ROWS, threads=4)
        stripec.compile(ROWS, threads=4)
    assert len(found) == 1 and copies(kernel) == 1
    assert found[0].filename == __file__  # where the user's code asks for threads
    assert stripec.openmp() == "none"


def test_the_command_says_in_a_line_that_there_is_no_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threads_module, "runtime", lambda: None)
    monkeypatch.setattr(threads_module, "_warned", [])
    path = tmp_path / "rows.tile"
    path.write_text(ROWS)
    assert main(["run", str(path), "--input", "X=random:f32[600,1000]", "--threads", "2"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: no OpenMP runtime was found: kernels run on one thread")


def test_what_is_measured_on_one_thread_is_not_compared_with_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.tile"
    path.write_text(ROWS)
    command = ["explain", str(path), "--shape", "X=f32[600,1000]", "--measure"]
    for threads, found, alone in ((2, True, False), (1, False, False), (2, False, True)):
        monkeypatch.setattr("stripec.plan.runtime", runtime if found else lambda: None)
        assert main([*command, "--threads", str(threads)]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert ("on one thread, as no OpenMP runtime was found" in shown) == alone
        assert ("times what is expected" in shown) != alone
        assert ("compiled for one thread" in shown) == (threads == 1)
        assert main([*command, "--threads", str(threads), "--json"]) == 0
        made = json.loads(capsys.readouterr().out)
        assert made["threads"] == threads
        assert any(kernel["plan"] and kernel["plan"]["alone"] for kernel in made["kernels"]) == alone


def test_the_command_says_which_runtime_it_uses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"stripec {stripec.__version__}\nOpenMP: {stripec.openmp()}\n"


def test_the_command_takes_threads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.tile"
    path.write_text(ROWS)
    sizes = ["--shape", "X=f32[600,1000]"]
    assert main(["compile", str(path), *sizes]) == 0
    assert "@CORE" not in capsys.readouterr().out
    assert main(["compile", str(path), *sizes, "--threads", "2"]) == 0
    assert re.search(r"\[\w+:2(, \w+:\d+)?\] @CORE\[", capsys.readouterr().out)
    assert main(["explain", str(path), *sizes, "--threads", "2"]) == 0
    shown = capsys.readouterr().out
    assert "on 2 threads: " in shown and "2 parts for 2 CORE" in shown
    assert main(["explain", str(path), *sizes]) == 0
    assert "on 1 thread (--threads N for more): " in capsys.readouterr().out
    data = ["--input", "X=random:f32[600,1000]", "--check"]
    assert main(["run", str(path), *data, "--threads", "3", "--deterministic"]) == 0
    assert "agrees" in capsys.readouterr().out
    assert main(["run", str(path), *data, "--threads", "0"]) == 2


# -- what comes out ----------------------------------------------------------------------------


def test_results_are_right_on_any_number_of_threads() -> None:
    want = np.log(np.exp(X.astype(np.float64)).sum(1))
    for count in COUNTS:
        np.testing.assert_allclose(rows(count)(X), want, rtol=1e-5)


SUMS = {
    "sum": ("function (X[N]) -> (S) { S[] = +(X[n]); }", (1_500_007,)),
    "product": ("function (X[N]) -> (S) { P = 1 + 0.001 * X; S[] = *(P[n]); }", (1_500_007,)),
    "greatest": ("function (X[M, N]) -> (S) { S[] = >(X[m, n]); }", (1009, 1013)),
    "columns": ("function (X[M, N]) -> (S) { S[n : N] = +(X[m, n]); }", (1009, 1013)),
    "rows": (ROWS, (1009, 1013)),
    "softmax": (
        "function (X[M, N]) -> (Y) { H[m : M] = >(X[m, n]); E = exp(X - reshape(H, M, 1));"
        " S[m : M] = +(E[m, n]); Y = E / reshape(S, M, 1); }",
        (307, 1013),
    ),
    "elementwise": ("function (X[N]) -> (Y) { Y = tanh(X) * exp(X) + X; }", (300_007,)),
    "products": ("function (X[M, K]) -> (Y) { Y[m, n : M, M] = +(X[m, k] * X[n, k]); }", (251, 307)),
    "overlapping": ("function (X[N]) -> (Y) { Y[i : N + 6] = +(X[i - j]), j < 7; }", (500_009,)),
}


@pytest.mark.parametrize("name", SUMS)
def test_deterministic_results_have_the_same_bits(name: str) -> None:
    text, shape = SUMS[name]
    given = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    results: list[Array] = []
    on_threads = 0
    for count in COUNTS:
        kernel = stripec.compile(text, {"X": given}, threads=count, deterministic=True, verify="off")
        on_threads += kernel.module.is_parallel
        results += [kernel(given), kernel(given)]
    assert on_threads == len(COUNTS) - 1
    for result in results[1:]:
        assert result.tobytes() == results[0].tobytes()


SEVERAL = {
    "two products": (
        "function (X[M, N]) -> (A, B) { A[m, k : M, 9] = +(X[m, n] * X[n, k]);"
        " B[m, k : M, 9] = +(X[m, n] * X[n, k]); }",
        (5000, 64),
    ),
    "three sums": (
        "function (X[M, N]) -> (A, B, C) { A[] = +(X[m, n]); B[n : N] = +(X[m, n]); C[m : M] = +(X[m, n]); }",
        (1001, 1777),
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_deterministic_results_of_several_sums(name: str, dtype: type[np.floating]) -> None:
    """Which of them share their points is up to how many units there are, but for these."""
    text, shape = SEVERAL[name]
    given = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    found = set()
    for count in (1, 2, 3, 4, 8):
        kernel = stripec.compile(text, {"X": given}, threads=count, deterministic=True, verify="off")
        found.add(b"".join(result.tobytes() for result in kernel(given)))
    assert len(found) == 1


@pytest.mark.parametrize("hw", runnable(), ids=lambda hw: hw.name)
def test_deterministic_on_every_target(hw: HwConfig) -> None:
    """With masks for what is left of vectors, and without."""
    text, shape = SUMS["elementwise"]
    given = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    found = {
        stripec.compile(text, {"X": given}, hw, threads=n, deterministic=True, verify="off")(given).tobytes()
        for n in (1, 3)
    }
    assert len(found) == 1


def test_a_kernel_on_threads_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(rows(3)))
    assert copies(again) == 3
    np.testing.assert_array_equal(again(X), rows(3)(X))


def test_ctrl_c_during_a_long_call_on_threads(tmp_path: Path) -> None:
    path = tmp_path / "sums.tile"
    path.write_text("function (A[N]) -> (B) { B[i:N] = +(A[k] * A[i - k]); }")
    process = subprocess.Popen(
        [
            sys.executable, "-m", "stripec", "run", str(path), "--input", "A=ones:f32[2000000]",
            "--threads", "2",
        ],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "STRIPEC_DEBUG": "time"},
    )  # fmt: skip
    assert process.stderr is not None
    try:
        while "in all" not in process.stderr.readline():  # printed when the passes are done
            assert process.poll() is None
        late = time.monotonic() + 60
        while len(os.listdir(f"/proc/{process.pid}/task")) < 4:  # the kernel has its threads
            assert process.poll() is None and time.monotonic() < late
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        _, error = process.communicate(timeout=60)
        assert process.returncode == 130 and error.endswith("stripec: interrupted\n")
        assert time.monotonic() - began < 20, "native code ran to its end, minutes later"
    finally:
        process.kill()
        process.communicate()
