"""The threads of the process: a team that one OpenMP runtime makes, and callers that work along.

An OpenMP runtime keeps a team of threads for each thread that enters regions: ten Python threads that
call kernels would have ten teams. Here one thread of our own enters one region for good, so that
the process has one team. Its master sleeps; the others, its members, wait for parts of kernels. A thread that
calls a kernel takes its turn, offers each region to the members, and works along in the master's place:

    caller    turn . offer, wake . parts . close . wait for those inside . next region . over
    member              spin or sleep . enter . parts . leave . spin or sleep

The caller does not wait for members to wake up: what they have not begun it does itself
(codegen_cpu.parallel deals parts out as they are asked for), and who comes late finds the region closed.

To wake a thread that sleeps takes 30 to 50 microseconds, to hand it work while it spins less than one. So
whoever waits spins for about as long as waking takes, and then sleeps: at worst that costs twice what
knowing better would. During a call all do, or longer; between calls members do as the environment says
(`codegen_cpu.parallel_runtime.idle_nanoseconds`).

Members that have to be woken are kept off the caller's core (codegen_cpu.parallel_cores).

A fork waits for its turn, and the members leave ahead of it: of a runtime that is in a region just then, or
is making threads, the child's copy would be of no use. The child has none of its parent's threads; its
first call makes a team of its own.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate

from codegen_cpu.jit import Loaded, plain_object_code
from codegen_cpu.llvm import architecture, llvm_lock
from codegen_cpu.parallel import FORK, THREAD
from codegen_cpu.parallel_cores import CORES, MASK, MOST, NO_CORES
from codegen_cpu.parallel_runtime import SPIN_NANOSECONDS, binds_threads, idle_nanoseconds, runtime
from codegen_cpu.target import Target, process_triple

# What a team shares, each field on cache lines of its own that others write at the same time.
_FIELDS = (
    "turn",  # semaphore: callers take turns, and forks
    "held",  # whether a fork has the turn
    "work",  # semaphore: members that sleep
    "done",  # semaphore: the caller, while members are still inside
    "form",  # semaphore: the master, until a larger team is wanted
    "epoch",  # counts what members are to look at: regions, and teams
    "asleep",  # members that sleep, or are about to, and have not been woken
    "wanted",  # threads of the team that is wanted ...
    "formed",  # ... and of the one there is; members leave if they differ
    "places",  # how many members may still enter the region; no more than 0 if there is none
    "inside",  # members that have not left, less those that will be known to have entered
    "limit",  # nanoseconds that members spin now
    "idle",  # nanoseconds that they spin between calls
    "region",  # the function ...
    "environment",  # ... and its argument
    "roams",  # whether members may be kept off the caller's core
    "cores",  # how many cores they may use ...
    "mask",  # ... and which
    "avoided",  # upper half: the core that they are kept off, from 1 on; lower half: how many of them are
    "known",  # how many threads are known ...
    "threads",  # ... here
)
_LINE = 64  # bytes; a semaphore of the C library has 32 at most
_BYTES = {"mask": MASK, "threads": 8 * MOST}  # of fields larger than a line
_SLEEPS = 1 << 40  # in `inside`: the caller sleeps until all have left
_PAUSES = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}

# `%at_turn` and its like are the addresses of fields of `%team`.
_CODE = """
declare i32 @sem_init(ptr, i32, i32)
declare i32 @sem_wait(ptr)
declare i32 @sem_trywait(ptr)
declare i32 @sem_post(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @posix_memalign(ptr, i64, i64)
declare i32 @clock_gettime(i32, ptr)
declare ptr @memset(ptr, i32, i64)

@team = internal global ptr null
@parallel = internal global ptr null
@number = internal global ptr null

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

define internal i64 @now() {
entry:
  %time = alloca { i64, i64 }
  %1 = call i32 @clock_gettime(i32 1, ptr %time)  ; CLOCK_MONOTONIC
  %seconds = load i64, ptr %time
  %2 = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %2
  %3 = mul i64 %seconds, 1000000000
  %4 = add i64 %3, %rest
  ret i64 %4
}

; Spin while a word has (`same`) or has not got a value, for as long as the word `limit` says just then.
define internal void @spin(ptr %word, i64 %value, i1 %same, ptr %limit) {
entry:
  %start = call i64 @now()
  br label %clock
clock:
  %now = call i64 @now()
  %passed = sub i64 %now, %start
  %most = load atomic i64, ptr %limit monotonic, align 8
  %more = icmp slt i64 %passed, %most
  br i1 %more, label %look, label %over
look:
  %count = phi i64 [ 0, %clock ], [ %next, %pause ]
  %found = load atomic i64, ptr %word seq_cst, align 8
  %equal = icmp eq i64 %found, %value
  %go = icmp eq i1 %equal, %same
  br i1 %go, label %pause, label %over
pause:
  PAUSE
  %next = add i64 %count, 1
  %long = icmp eq i64 %next, 8
  br i1 %long, label %clock, label %look
over:
  ret void
}

; Run parts of the region that is open, if one is and there is room. The one step that takes a place decides:
; who has one is waited for, and to who has none the region is over at any time, or is another one.
define internal void @take_part(ptr %team) {
entry:
  %places = atomicrmw sub ptr %at_places, i64 1 acq_rel
  %room = icmp sgt i64 %places, 0
  br i1 %room, label %inside, label %over
inside:
  %region = load ptr, ptr %at_region
  %environment = load ptr, ptr %at_environment
  call void %region(ptr %environment)
  %others = atomicrmw sub ptr %at_inside, i64 1 acq_rel
  %waits = icmp eq i64 %others, LAST
  br i1 %waits, label %last, label %over
last:
  %1 = call i32 @sem_post(ptr %at_done)
  br label %over
over:
  ret void
}

; What each thread of a team does.
define internal void @work(ptr %team) {
entry:
  %formed = load atomic i64, ptr %at_formed monotonic, align 8
  %ask = load ptr, ptr @number
  %number = call i32 %ask()
  %is_master = icmp eq i32 %number, 0
  br i1 %is_master, label %master, label %known
master:  ; the others are there, or will be soon
  %1 = call i32 @sem_post(ptr %at_done)
  call void @wait(ptr %at_form)
  br label %leave
known:
  call void @register(ptr %team, i32 %number)
  br label %member
member:
  %epoch = load atomic i64, ptr %at_epoch seq_cst, align 8
  %wanted = load atomic i64, ptr %at_wanted seq_cst, align 8
  %stays = icmp eq i64 %wanted, %formed
  br i1 %stays, label %work, label %leave
work:
  call void @take_part(ptr %team)
  call void @spin(ptr %at_epoch, i64 %epoch, i1 true, ptr %at_limit)
  %2 = load atomic i64, ptr %at_epoch seq_cst, align 8
  %idle = icmp eq i64 %2, %epoch
  br i1 %idle, label %tired, label %member
tired:
  %3 = atomicrmw add ptr %at_asleep, i64 1 seq_cst
  %4 = load atomic i64, ptr %at_epoch seq_cst, align 8
  %still = icmp eq i64 %4, %epoch
  br i1 %still, label %sleep, label %rouse
rouse:  ; there is work after all: take back that we sleep, unless somebody is about to wake us
  %asleep = load atomic i64, ptr %at_asleep seq_cst, align 8
  %woken = icmp eq i64 %asleep, 0
  br i1 %woken, label %sleep, label %back
back:
  %less = sub i64 %asleep, 1
  %5 = cmpxchg ptr %at_asleep, i64 %asleep, i64 %less seq_cst seq_cst
  %taken = extractvalue { i64, i1 } %5, 1
  br i1 %taken, label %member, label %rouse
sleep:
  call void @wait(ptr %at_work)
  br label %member
leave:
  ret void
}

; The thread that makes teams.
define internal ptr @lead(ptr %team) {
entry:
  br label %rest
rest:
  call void @wait(ptr %at_form)
  br label %next
next:  ; nobody is left of the team before
  call void @forget(ptr %team)
  %threads = load atomic i64, ptr %at_wanted seq_cst, align 8
  store atomic i64 %threads, ptr %at_formed seq_cst, align 8
  %none = icmp eq i64 %threads, 0
  br i1 %none, label %gone, label %form
form:
  %few = trunc i64 %threads to i32
  %parallel = load ptr, ptr @parallel
  call void %parallel(ptr @work, ptr %team, i32 %few, i32 0)
  br label %next
gone:
  %1 = call i32 @sem_post(ptr %at_done)
  br label %rest
}

define i32 @stripec_start(ptr %into, ptr %parallel, ptr %number, i64 %idle, i64 %roams) {
entry:
  %thread = alloca i64
  %memory = alloca ptr
  %no_memory = call i32 @posix_memalign(ptr %memory, i64 LINE, i64 BYTES)
  %there = icmp eq i32 %no_memory, 0
  br i1 %there, label %begin, label %done
begin:
  %team = load ptr, ptr %memory
  %1 = call ptr @memset(ptr %team, i32 0, i64 BYTES)
  %2 = call i32 @sem_init(ptr %at_turn, i32 0, i32 1)
  %3 = call i32 @sem_init(ptr %at_work, i32 0, i32 0)
  %4 = call i32 @sem_init(ptr %at_done, i32 0, i32 0)
  %5 = call i32 @sem_init(ptr %at_form, i32 0, i32 0)
  store i64 %idle, ptr %at_limit
  store i64 %idle, ptr %at_idle
  store i64 %roams, ptr %at_roams
  store ptr %team, ptr @team
  store ptr %parallel, ptr @parallel
  store ptr %number, ptr @number
  store ptr %team, ptr %into
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @lead, ptr %team)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %started, label %done
started:
  %id = load i64, ptr %thread
  %6 = call i32 @pthread_detach(i64 %id)
  br label %done
done:
  %result = phi i32 [ %no_memory, %entry ], [ %failed, %begin ], [ 0, %started ]
  ret i32 %result
}

; Wake so many of the members that sleep, if there are as many.
define internal void @rouse(ptr %team, i64 %most) {
entry:
  br label %look
look:
  %asleep = load atomic i64, ptr %at_asleep seq_cst, align 8
  %some = icmp sgt i64 %asleep, 0
  br i1 %some, label %claim, label %over
claim:
  %woken = call i64 @llvm.smin.i64(i64 %asleep, i64 %most)
  %left = sub i64 %asleep, %woken
  %1 = cmpxchg ptr %at_asleep, i64 %asleep, i64 %left seq_cst seq_cst
  %claimed = extractvalue { i64, i1 } %1, 1
  br i1 %claimed, label %post, label %look
post:
  %count = phi i64 [ %woken, %claim ], [ %fewer, %post ]
  %2 = call i32 @sem_post(ptr %at_work)
  %fewer = sub i64 %count, 1
  %more = icmp sgt i64 %fewer, 0
  br i1 %more, label %post, label %over
over:
  ret void
}

; Have another number of threads in the team: its members leave, and there is a new one, or none.
define internal void @change(ptr %team, i64 %threads) {
entry:
  %had = atomicrmw xchg ptr %at_wanted, i64 %threads seq_cst
  %1 = atomicrmw add ptr %at_epoch, i64 1 seq_cst
  call void @rouse(ptr %team, i64 %had)
  %2 = call i32 @sem_post(ptr %at_form)
  call void @wait(ptr %at_done)
  ret void
}

; Take the turn, and send the members away.
define void @stripec_hold(ptr %team) {
entry:
  call void @wait(ptr %at_turn)
  store i64 1, ptr %at_held
  %threads = load atomic i64, ptr %at_wanted monotonic, align 8
  %none = icmp eq i64 %threads, 0
  br i1 %none, label %over, label %leave
leave:
  call void @change(ptr %team, i64 0)
  br label %over
over:
  ret void
}

; Give back the turn, if it was taken for a fork: Python may have been interrupted before.
define void @stripec_resume(ptr %team) {
entry:
  %had = atomicrmw xchg ptr %at_held, i64 0 seq_cst
  %held = icmp ne i64 %had, 0
  br i1 %held, label %give, label %over
give:
  %1 = call i32 @sem_post(ptr %at_turn)
  br label %over
over:
  ret void
}

; What a kernel calls for each region: run it on so many threads.
define void @stripec_fork(ptr %region, ptr %environment, i32 %few, i32 %flags) {
entry:
  %team = load ptr, ptr @team
  %threads = zext i32 %few to i64
  %had = load atomic i64, ptr %at_wanted monotonic, align 8
  %larger = icmp sgt i64 %threads, %had
  br i1 %larger, label %grow, label %open
grow:
  call void @change(ptr %team, i64 %threads)
  br label %open
open:
  store ptr %region, ptr %at_region
  store ptr %environment, ptr %at_environment
  store atomic i64 0, ptr %at_inside monotonic, align 8
  %helpers = sub i64 %threads, 1
  store atomic i64 %helpers, ptr %at_places release, align 8
  %1 = atomicrmw add ptr %at_epoch, i64 1 seq_cst
  %asleep = load atomic i64, ptr %at_asleep seq_cst, align 8
  %some = icmp sgt i64 %asleep, 0
  br i1 %some, label %wake, label %run
wake:
  call void @keep_off(ptr %team)
  call void @rouse(ptr %team, i64 %helpers)
  br label %run
run:
  call void %region(ptr %environment)
  %places = atomicrmw xchg ptr %at_places, i64 0 acq_rel
  %free = call i64 @llvm.smax.i64(i64 %places, i64 0)
  %members = sub i64 %helpers, %free
  %gone = atomicrmw add ptr %at_inside, i64 %members acq_rel
  %still = add i64 %gone, %members
  %alone = icmp eq i64 %still, 0
  br i1 %alone, label %over, label %join
join:
  call void @spin(ptr %at_inside, i64 0, i1 false, ptr @busy)
  %inside = load atomic i64, ptr %at_inside seq_cst, align 8
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %over, label %tired
tired:
  %before = atomicrmw add ptr %at_inside, i64 SLEEPS seq_cst
  %late = icmp eq i64 %before, 0
  br i1 %late, label %over, label %sleep
sleep:
  call void @wait(ptr %at_done)
  br label %over
over:
  ret void
}

@busy = internal constant i64 SPIN

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

; In place of the runtime where there is none.
define void @stripec_alone(ptr %region, ptr %environment, i32 %few, i32 %flags) {
entry:
  call void %region(ptr %environment)
  ret void
}

; Call a function of one argument, after the calls that came before.
define void @stripec_dispatch(ptr %team, ptr %f, ptr %a) {
entry:
  call void @wait(ptr %at_turn)
  %idle = load i64, ptr %at_idle
  %busy = call i64 @llvm.smax.i64(i64 %idle, i64 SPIN)
  store atomic i64 %busy, ptr %at_limit release, align 8
  call void %f(ptr %a)
  store atomic i64 %idle, ptr %at_limit release, align 8
  %1 = call i32 @sem_post(ptr %at_turn)
  ret void
}
"""


def _text(target: Target) -> str:
    """The code, with the addresses of fields, and words in capitals replaced by what they stand for."""
    values: dict[str, object] = {
        "BYTES": sum(_BYTES.get(name, _LINE) for name in _FIELDS), "LINE": _LINE, "SLEEPS": _SLEEPS,
        "LAST": _SLEEPS + 1, "SPIN": SPIN_NANOSECONDS, "PAUSE": _PAUSES.get(architecture(target.triple), ""),
        "MASK": MASK, "WORDS": MASK // 8, "BITS": 8 * MASK, "MOST": MOST, "THREADS": 8 * MOST,
    }  # fmt: skip
    code = _CODE + (CORES if "linux" in target.triple else NO_CORES)
    code = "\n\n".join(map(_with_addresses, code.split("\n\n")))
    code = re.sub(rf"\b(?:{'|'.join(values)})\b", lambda found: str(values[found[0]]), code)
    return f'target datalayout = "{target.layout()}"\ntarget triple = "{target.triple}"\n{code}'


def _with_addresses(function: str) -> str:
    """A function with `%at_FIELD` for each field that it uses, from where on it knows its team."""
    offsets = accumulate((_BYTES.get(name, _LINE) for name in _FIELDS), initial=0)
    addresses = "".join(
        f"  %at_{name} = getelementptr i8, ptr %team, i64 {offset}\n"
        for name, offset in zip(_FIELDS, offsets, strict=False)
        if f"%at_{name}" in function
    )
    known = r"  %team = .*\n" if "  %team = " in function else r"entry:\n"
    return re.sub(known, lambda found: found[0] + addresses, function)


class _Code:
    """The machine code of teams, made once for a process and its children."""

    def __init__(self) -> None:
        target = Target(process_triple(), "", (), 16, False, False, False, ())
        names = [f"stripec_{name}" for name in ("start", "dispatch", "hold", "resume", "fork", "alone")]
        loaded = Loaded(target, plain_object_code(target, _text(target)), names)
        start, dispatch, hold, resume, self.fork, self.alone = map(loaded.address, names)
        pointer = ctypes.c_void_p
        self.start = ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 3, *[ctypes.c_int64] * 2)(start)
        self.dispatch = ctypes.CFUNCTYPE(None, pointer, pointer, pointer)(dispatch)
        self.hold = ctypes.CFUNCTYPE(None, pointer)(hold)
        self.resume = ctypes.CFUNCTYPE(None, pointer)(resume)
        self._loaded = loaded


_codes: list[_Code] = []


def _code() -> _Code:
    if not _codes:
        with llvm_lock():  # kernels that threads make at the same time shall all know one team
            if not _codes:
                _codes.append(_Code())
    return _codes[0]


def openmp_symbols() -> tuple[tuple[str, int], ...]:
    """What code with regions calls: our team's fork, or where there is no runtime what does without it."""
    code = _code()
    return ((FORK, code.alone if runtime() is None else code.fork),)


_lock = threading.RLock()
_teams: list[int] = []  # the address of this process's, if there is one: never freed, threads sleep in it


def dispatch(function: int, argument: int) -> None:
    """Call `void function(ptr argument)`, which may enter regions, after the calls that came before."""
    team = _teams[0] if _teams else _started()
    _code().dispatch(team, function, argument)


def _started() -> int:
    with _lock:
        if not _teams:
            made = ctypes.c_void_p()
            found = runtime()
            symbols = dict(found.symbols) if found is not None else {}
            with _signals_blocked():
                failed = _code().start(
                    ctypes.addressof(made), symbols.get(FORK), symbols.get(THREAD), idle_nanoseconds(),
                    not binds_threads(),
                )  # fmt: skip
            if failed:
                raise OSError(failed, f"no thread for parallel kernels: {os.strerror(failed)}")
            assert made.value is not None
            _teams.append(made.value)
        return _teams[0]


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Threads that are started meanwhile take no signals: these are for the threads of Python."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _before_fork() -> None:
    _lock.acquire()
    for team in _teams:
        _code().hold(team)


def _after_fork() -> None:
    for team in _teams:
        _code().resume(team)
    _lock.release()


def _after_fork_in_child() -> None:
    """The threads are gone."""
    _teams.clear()
    _lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
