"""A process of its own that measures points: `pool` starts it and talks to it through pipes.

    stdin    the job, then tasks        stdout    for each point of each task, its number and outcome

It ends when its input does, as when the process that started it is killed.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys

from stripec.exploring.measure import Job, Task, measure

ENOUGH_KIB = 1 << 20  # isl keeps what it made; a process that has grown by more than that is replaced


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not come between
    tasks = sys.stdin.buffer
    most = _used() + ENOUGH_KIB
    try:
        job: Job = pickle.load(tasks)
        while True:
            task: Task = pickle.load(tasks)
            last = task.numbers[-1]
            for number, outcome in zip(task.numbers, measure(job, task), strict=True):
                leaves = number == last and _used() > most
                pickle.dump((number, outcome, leaves), answers)
                answers.flush()
                if leaves:
                    return
    except (EOFError, BrokenPipeError, MemoryError):
        os._exit(0)  # nothing is left to be done, or to be said


def _used() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
