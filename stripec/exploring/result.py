"""What a sweep found, as typed values and as JSON of a stated version. It holds no times of ours.

The same input gives the same bytes, however often the sweep was interrupted and wherever it ran.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

VERSION = 1  # of the JSON; a change of its meaning or of a key's name makes it another


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Bounds(_Value, frozen=True, kw_only=True):
    """Bytes that cross the boundary between a memory and what is nearer: those that have to, the least that
    was found for the near memories of this point (null if none was, and `reason` says why), and ours."""

    compulsory: int
    least: int | None
    ours: int
    reason: str = ""


class MemoryTotals(_Value, frozen=True, kw_only=True):
    """One memory: `peak` bytes are alive at most, and so many are read and written. `crossing` is null where
    nothing crosses its boundary, or what a program touches is too complicated to count."""

    memory: str
    peak: int
    read: int
    written: int
    crossing: Bounds | None = None


class Measured(_Value, frozen=True, kw_only=True):
    """One program at one point. `cycles`, and `bound`, what binds it for the most of them, are null where
    counts were taken in closed form; `seconds` where the target has no clock, too. `crossing` is that of the
    memory where inputs and outputs lie."""

    program: str
    cycles: int | None
    seconds: float | None
    energy_pj: float
    operations: int
    bound: str | None
    memories: list[MemoryTotals]
    crossing: Bounds | None = None


class Outcome(_Value, frozen=True, kw_only=True):
    """What came of a point: `mapped`, or why not. `refused` by the model of targets or by an option of a
    pass; `no mapping` by the compiler; a `fault` is one of stripec. `code` is that of the message."""

    status: Literal["mapped", "no mapping", "refused", "fault"]
    code: str = ""
    reason: str = ""
    notes: list[str] = []
    programs: list[Measured] = []


class Point(_Value, frozen=True, kw_only=True):
    """One point: its number, what it sets, what came of it, the objectives over all programs, and whether it
    is on the front: no other point is as good in all objectives and better in one."""

    number: int
    set: dict[str, Any]
    outcome: Outcome
    objectives: dict[str, float]
    front: bool


class Varied(_Value, frozen=True, kw_only=True):
    """One field that varied: its values, the JSON paths that they set, and the axis that it is on; fields of
    one axis go in step."""

    path: str
    axis: int
    sets: list[str]
    values: list[Any]


class Objective(_Value, frozen=True, kw_only=True):
    """What is to be small, and its unit."""

    name: str
    unit: str


class Exploration(_Value, frozen=True, kw_only=True):
    """A sweep: programs over variants of a target."""

    version: int = VERSION
    target: str
    programs: list[str]
    counts: Literal["closed", "simulated"]
    varied: list[Varied]
    objectives: list[Objective]
    front: list[int]
    points: list[Point]

    def to_json(self) -> str:
        """As text; the same for the same sweep."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode() + "\n"


def schema() -> dict[str, object]:
    """The JSON schema of what `stripec explore` writes."""
    return msgspec.json.schema(Exploration)
