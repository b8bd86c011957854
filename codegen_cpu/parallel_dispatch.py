"""One thread of the process from which all parallel regions are entered.

An OpenMP runtime keeps a team of threads for each thread that enters regions: ten Python threads that
call kernels would have ten teams. Here they hand their calls to one thread, the dispatcher, which
runs them one after the other, so that the process has one team, whoever calls.

The dispatcher waits on a semaphore in native code, and so does the caller, without the GIL: a hand-off
takes a few microseconds. After a fork the child has none of its parent's threads; its first call
makes a dispatcher of its own, which to the runtime is a thread like any new one, with a fresh team.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from codegen_cpu.jit import Loaded
from codegen_cpu.parallel import FORK, THREAD, THREADS
from codegen_cpu.parallel_runtime import runtime
from codegen_cpu.target import Target, process_triple

# A dispatcher's memory: 3 semaphores (callers take turns; there is work; it is done), the function, its
# argument. A semaphore of the C library has 32 bytes at most.
_SEMAPHORE_BYTES = 64
_BYTES = 3 * _SEMAPHORE_BYTES + 2 * 8

_CODE = """
declare i32 @sem_init(ptr, i32, i32)
declare i32 @sem_wait(ptr)
declare i32 @sem_post(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)

define internal void @wait(ptr %semaphore) {
entry:
  br label %again
again:  ; a signal may end a wait
  %ended = call i32 @sem_wait(ptr %semaphore)
  %good = icmp eq i32 %ended, 0
  br i1 %good, label %done, label %again
done:
  ret void
}

define internal ptr @run(ptr %state) {
entry:
  %work = getelementptr i8, ptr %state, i64 64
  %ready = getelementptr i8, ptr %state, i64 128
  %function = getelementptr i8, ptr %state, i64 192
  %argument = getelementptr i8, ptr %state, i64 200
  br label %next
next:
  call void @wait(ptr %work)
  %f = load ptr, ptr %function
  %a = load ptr, ptr %argument
  call void %f(ptr %a)
  %posted = call i32 @sem_post(ptr %ready)
  br label %next
}

define i32 @stripec_start(ptr %state) {
entry:
  %thread = alloca i64
  %work = getelementptr i8, ptr %state, i64 64
  %ready = getelementptr i8, ptr %state, i64 128
  %1 = call i32 @sem_init(ptr %state, i32 0, i32 1)
  %2 = call i32 @sem_init(ptr %work, i32 0, i32 0)
  %3 = call i32 @sem_init(ptr %ready, i32 0, i32 0)
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @run, ptr %state)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %started, label %done
started:
  %id = load i64, ptr %thread
  %4 = call i32 @pthread_detach(i64 %id)
  br label %done
done:
  ret i32 %failed
}

define void @stripec_alone(ptr %region, ptr %environment, i32 %threads, i32 %flags) {
entry:
  call void %region(ptr %environment)
  ret void
}

define i32 @stripec_zero() {
entry:
  ret i32 0
}

define i32 @stripec_one() {
entry:
  ret i32 1
}

define void @stripec_dispatch(ptr %state, ptr %f, ptr %a) {
entry:
  %work = getelementptr i8, ptr %state, i64 64
  %ready = getelementptr i8, ptr %state, i64 128
  %function = getelementptr i8, ptr %state, i64 192
  %argument = getelementptr i8, ptr %state, i64 200
  call void @wait(ptr %state)
  store ptr %f, ptr %function
  store ptr %a, ptr %argument
  %1 = call i32 @sem_post(ptr %work)
  call void @wait(ptr %ready)
  %2 = call i32 @sem_post(ptr %state)
  ret void
}
"""


class _Code:
    """The dispatcher's machine code, made once for a process and its children."""

    def __init__(self) -> None:
        target = Target(process_triple(), "", (), 16, False, False, False, ())
        head = f'target datalayout = "{target.layout()}"\ntarget triple = "{target.triple}"\n'
        loaded = Loaded(target, target.object_code(head + _CODE))
        pointer = ctypes.c_void_p
        self.start = ctypes.CFUNCTYPE(ctypes.c_int, pointer)(loaded.address("stripec_start"))
        self.dispatch = ctypes.CFUNCTYPE(None, pointer, pointer, pointer)(loaded.address("stripec_dispatch"))
        self.alone = tuple(
            (name, loaded.address(ours))
            for name, ours in (
                (FORK, "stripec_alone"), (THREAD, "stripec_zero"), (THREADS, "stripec_one")
            )
        )  # fmt: skip
        self._loaded = loaded


@cache
def _code() -> _Code:
    return _Code()


def openmp_symbols() -> tuple[tuple[str, int], ...]:
    """What code with regions calls: the OpenMP runtime, or else functions that make do with one thread."""
    found = runtime()
    return found.symbols if found is not None else _code().alone


_lock = threading.Lock()
_state: list[ctypes.Array[ctypes.c_char]] = []  # the dispatcher of this process, if there is one


def dispatch(function: int, argument: int) -> None:
    """Run `void function(ptr argument)` on the dispatcher, after the calls that came before."""
    state = _state[0] if _state else _started()
    _code().dispatch(ctypes.addressof(state), function, argument)


def _started() -> ctypes.Array[ctypes.c_char]:
    with _lock:
        if not _state:
            made = ctypes.create_string_buffer(_BYTES)
            with _signals_blocked():
                failed = _code().start(ctypes.addressof(made))
            if failed:
                raise OSError(failed, f"no thread for parallel kernels: {os.strerror(failed)}")
            _state.append(made)
        return _state[0]


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Threads that are started meanwhile take no signals: these are for the threads of Python."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_abandoned: list[ctypes.Array[ctypes.c_char]] = []


def _after_fork() -> None:
    """In a child: the thread is gone, and a call that was under way will not end."""
    global _lock
    _lock = threading.Lock()
    _abandoned.extend(_state)  # a copy of the memory that the parent's threads use
    _state.clear()


os.register_at_fork(after_in_child=_after_fork)
