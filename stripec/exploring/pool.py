"""Tasks on processes of this machine.

A process that dies at a point, for want of memory for example, is replaced, and the point tried again;
one that kills several processes ends the sweep, and what is finished is kept.
"""

from __future__ import annotations

import json
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from stripe.diag import CompileError, Diagnostic
from stripec.exploring.measure import Job, Task
from stripec.exploring.result import Outcome

MAX_DEATHS = 3  # of processes at one point

# The same modules are found as here; the main module of this process is not run again.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from stripec.exploring.worker import main; main()"
)


def run_tasks(job: Job, tasks: Sequence[Task], jobs: int) -> Generator[tuple[int, Outcome], None, None]:
    """The outcomes of all points of all tasks, as they come. Raises CompileError D107."""
    todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        todo.put(task)
    found: queue.SimpleQueue[tuple[int, Outcome] | BaseException] = queue.SimpleQueue()
    workers = [_Worker(job, todo, found) for _ in range(min(jobs, len(tasks)))]
    try:
        for worker in workers:
            worker.start()
        for _ in range(sum(len(task.numbers) for task in tasks)):
            item = found.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        for worker in workers:
            worker.stop()


class _Worker(threading.Thread):
    """A thread that keeps one process busy until no task is left."""

    def __init__(self, job: Job, todo: queue.SimpleQueue[Task], found: queue.SimpleQueue[Any]) -> None:
        super().__init__(daemon=True)
        self._job, self._todo, self._found = pickle.dumps(job), todo, found
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def run(self) -> None:
        try:
            while not self._stopped:
                self._do(self._todo.get_nowait())
        except queue.Empty:
            self.stop()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self._found.put(error)

    def stop(self) -> None:
        """End the process, whatever it does."""
        with self._lock:
            self._stopped = True
            process, self._process = self._process, None
        _end(process)

    def _do(self, task: Task) -> None:
        deaths = 0
        while task.numbers and not self._stopped:
            done, died = self._send(task)
            deaths = deaths + 1 if not done else int(died)
            task = replace(task, numbers=task.numbers[done:], targets=task.targets[done:])
            if deaths == MAX_DEATHS and not self._stopped:
                message = f"{deaths} processes died at point {task.numbers[0]}, one after the other"
                notes = ("note: memory may be short", "help: fewer --jobs; what is finished is kept")
                raise CompileError(Diagnostic("D107", message, notes=notes))

    def _send(self, task: Task) -> tuple[int, bool]:
        """How many points of a task came back, and whether the process died meanwhile."""
        done = 0
        try:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None  # they are pipes
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            while done < len(task.numbers):
                number, outcome, leaves = pickle.load(process.stdout)
                self._found.put((number, outcome))
                done += 1
                if leaves:
                    self._drop()
        except (EOFError, OSError, pickle.UnpicklingError):
            self._drop()
            return done, True
        return done, False

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise EOFError
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _START, json.dumps(sys.path)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )  # fmt: skip
                assert self._process.stdin is not None
                self._process.stdin.write(self._job)
            return self._process

    def _drop(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        _end(process)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue  # what it did not read any more
