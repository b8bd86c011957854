"""Children that are forked while other threads compile, and kernels that threads make at the same time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import stripec
from codegen_cpu.build import Module, build
from stripe.locks import ThreadLock, cached_property

TEXT = "function (A[N]) -> (B) { B = exp(A); }"
CHILDREN = 6

# Threads compile one program after the other, while children do something; each has a while for it.
BESIDE = """
import os, threading, time
import numpy as np
import stripec
x = np.zeros(3001, np.float32)
kernel = stripec.compile("function (A[N]) -> (B) { B = exp(A); }", {"A": "f32[3001]"}, threads=1)
def work():
    for i in range(10**6):
        text = f"function (A[N]) -> (B) { B = exp(A) + {i}; }"
        stripec.compile(text, {"A": "f32[3001]"}, threads=1)(x)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
def child(i):
    CHILD
for i in range(COUNT):
    made = os.fork()
    if made == 0:
        os._exit(0 if child(i) else 1)
    for _ in range(200):
        done, status = os.waitpid(made, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(made, 9)
        status = "it hangs"
    print(status, flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
@pytest.mark.parametrize(
    "child",
    [
        "return bool((kernel(x) == 1).all())",
        """
        text = f"function (A[N]) -> (B, S) {{ B = tanh(A) + {i}; S[] = +(B[n]); }}"
        made = stripec.compile(text, {"A": "f32[3001]"}, threads=2)
        return bool((made(x)[0] == i).all())
        """,
    ],
    ids=["calls", "compiles"],
)
def test_a_child_goes_on_whatever_other_threads_were_at(child: str) -> None:
    body = "\n    ".join(dedent(child).strip().splitlines())
    code = BESIDE.replace("{ B = exp(A) + {i}; }", "{{ B = exp(A) + {i}; }}")
    code = code.replace("CHILD", body).replace("COUNT", str(CHILDREN))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=Path(__file__).parents[3], capture_output=True,
        text=True, timeout=120, env={**os.environ, "STRIPEC_CACHE_DIR": "off"},
    )  # fmt: skip
    assert done.stdout.split("\n") == ["0"] * CHILDREN + [""], done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
def test_a_lock_is_free_in_a_child() -> None:
    lock, holds, ends = ThreadLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            holds.set()
            ends.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        with lock:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    ends.set()
    holder.join()
    with lock:
        pass


def test_kernels_do_not_wait_for_each_other() -> None:
    """What one thread is about to make for one kernel, and another for another."""
    begun, ends = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, waits: bool) -> None:
            self._waits = waits

        @cached_property
        def made(self) -> int:
            """What takes long."""
            if self._waits:
                begun.set()
                assert ends.wait(30)
            return 3

    slow = Slow(waits=True)
    thread = threading.Thread(target=lambda: slow.made)
    thread.start()
    assert begun.wait(30)
    assert Slow(waits=False).made == 3
    ends.set()
    thread.join()
    assert slow.made == 3
    assert Slow.__dict__["made"].__doc__ == "What takes long."


def test_a_kernel_is_made_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    count, ready = list[int](), threading.Barrier(3)

    def counted(*args: Any, **more: Any) -> Module:
        count.append(1)
        return build(*args, **more)

    monkeypatch.setattr("stripec.api.build", counted)
    kernel = stripec.compile(TEXT, {"A": "f32[64]"}, threads=1)

    def call() -> None:
        ready.wait()
        assert (kernel(np.zeros(64, np.float32)) == 1).all()

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(count) == 1
