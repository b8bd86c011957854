"""Tasks on a Dask cluster, whose workers have the same stripec installed: the extra `stripec[cluster]`.

The scheduler gives a task of a worker that died to another one. What comes back is noted here, so that
the sweep goes on after a kill of this process as any other.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Generator, Sequence
from typing import Any

from stripe.diag import CompileError, Diagnostic
from stripec.exploring.identity import compiler
from stripec.exploring.measure import Job, Task, measure
from stripec.exploring.result import Outcome

CONNECT_SECONDS = 10
_ADDRESS = re.compile(r"(?:(?:tcp|tls|ucx|ws|wss)://)?(?:[^\s/:\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")
_AHEAD = 4  # tasks that wait at the scheduler for each thread of a worker
_LEAST_AHEAD = 64


def run_tasks(job: Job, tasks: Sequence[Task], address: str) -> Generator[tuple[int, Outcome], None, None]:
    """The outcomes of all points of all tasks, as they come. Raises CompileError D108."""
    if not _ADDRESS.fullmatch(address):
        message = f"'{address[:100]}' is no address of a scheduler"
        raise CompileError(Diagnostic("D108", message, notes=("help: such as tcp://localhost:8786",)))
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        notes = ("help: pip install 'stripec[cluster]'",)
        raise CompileError(
            Diagnostic("D091", "a cluster needs the package 'distributed'", notes=notes)
        ) from None
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        message = f"no scheduler answers at '{address}': {str(error)[:200]}"
        raise CompileError(Diagnostic("D108", message, notes=("help: dask scheduler --port 8786",))) from None
    try:
        yield from _gathered(distributed, client, job, tasks)
    finally:
        client.close()


def _gathered(
    distributed: Any, client: Any, job: Job, tasks: Sequence[Task]
) -> Generator[tuple[int, Outcome], None, None]:
    # The job as a task, not as data that was put on a worker: the scheduler can make it again.
    common = client.submit(_same, job, pure=False)
    waiting = iter(tasks)
    running = distributed.as_completed(loop=client.loop)
    sent: dict[Any, Task] = {}

    def send() -> None:
        task = next(waiting, None)
        if task is not None:
            future = client.submit(answer, common, task, pure=False, retries=1)
            sent[future] = task
            running.add(future)

    for _ in range(max(_LEAST_AHEAD, _AHEAD * sum(client.nthreads().values()))):
        send()
    for future in running:
        task = sent.pop(future)
        if future.status != "finished":
            reason = str(future.exception())[:300] if future.status == "error" else future.status
            points = ", ".join(map(str, task.numbers[:8]))
            message = f"the cluster gives nothing back for point {points}: {reason}"
            raise CompileError(Diagnostic("D108", message, notes=("note: what is finished is kept",)))
        answers = future.result()
        if isinstance(answers, str):
            message = f"a worker of the cluster has another version of stripec: {answers}"
            raise CompileError(Diagnostic("D108", message, notes=("help: install the same on all machines",)))
        send()
        yield from zip(task.numbers, answers, strict=True)


def _same(job: Job) -> Job:
    return job


def answer(job: Job, task: Task) -> list[Outcome] | str:
    """What a worker does: the outcomes of a task, or its own version where that is another."""
    own = compiler()
    return list(measure(job, task)) if own == job.compiler else own
