"""Traces for Perfetto: the documented part of the Chrome trace event format, and what they say."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

import stripec
from simulator import Simulation
from stripe.diag import CompileError
from stripec.cli import main
from stripec.driver import resolve_target
from stripec.trace import trace_events, write_trace

PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
KINDS = {"systolic_16": "i8", "many_core": "f32"}

# What "Trace Event Format" (Google, 2016) asks for of the three kinds of events that docs/simulator.md names.
_PLACE = {"pid": {"type": "integer", "minimum": 1}, "tid": {"type": "integer", "minimum": 0}}
_TIME = {"type": "number", "minimum": 0}
_META = {
    **_PLACE,
    "ph": {"const": "M"},
    "name": {"enum": ["process_name", "thread_name", "process_sort_index", "thread_sort_index"]},
    "args": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "sort_index": {"type": "integer"}},
        "minProperties": 1,
        "additionalProperties": False,
    },
}
_TASK = {
    **_PLACE,
    "ph": {"const": "X"},
    "name": {"type": "string", "minLength": 1},
    "cat": {"type": "string"},
    "ts": _TIME,
    "dur": _TIME,
    "args": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
_COUNTER = {
    "pid": _PLACE["pid"],
    "ph": {"const": "C"},
    "name": {"type": "string", "minLength": 1},
    "ts": _TIME,
    "args": {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1},
}
SCHEMA = {
    "type": "object",
    "required": ["traceEvents"],
    "additionalProperties": False,
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object"},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    {"properties": kind, "required": list(kind), "additionalProperties": False}
                    for kind in (_META, _TASK, _COUNTER)
                ]
            },
        },
    },
}


def made(target: str, tasks: int = 10_000) -> tuple[Simulation, dict[str, Any]]:
    kind = KINDS[target]
    found = stripec.simulate(
        PRODUCT, shapes={"A": f"{kind}[150,70]", "B": f"{kind}[70,90]"}, target=target, trace=tasks
    )
    return found, json.loads(json.dumps(trace_events(found, resolve_target(target))))


@pytest.mark.parametrize("target", KINDS)
def test_a_trace_follows_the_format(target: str) -> None:
    found, trace = made(target)
    jsonschema.validate(trace, SCHEMA)
    events = trace["traceEvents"]
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    tasks = [e for e in events if e["ph"] == "X"]
    assert {(e["pid"], e["tid"]) for e in tasks} == named
    assert {e["pid"] for e in events} == processes
    assert len(tasks) == len(found.trace) == sum(unit.tasks for unit in found.units)
    assert trace["otherData"]["tasks left out"] == 0


@pytest.mark.parametrize("target", KINDS)
def test_a_unit_does_one_thing_at_a_time_and_is_as_busy_as_the_report_says(target: str) -> None:
    found, trace = made(target)
    names = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"
    }
    lanes = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            lanes[names[event["pid"], event["tid"]]].append((event["ts"], event["dur"]))
    several = {unit.unit for unit in found.units if unit.number}
    for unit in found.units:
        own = sorted(lanes.get(f"{unit.unit}[{unit.number}]" if unit.unit in several else unit.unit, []))
        assert all(a + n <= b for (a, n), (b, _) in pairwise(own))
        # Both ends of a slice are the nearest eighth of a cycle.
        lasts = unit.busy + sum(unit.stalled.values())
        assert abs(sum(n for _, n in own) - lasts) <= len(own) / 8 + 1e-6 * lasts


def test_times_are_whole_nanoseconds_and_slices_of_a_thread_do_not_overlap() -> None:
    """As an importer reads them that cuts microseconds down to nanoseconds: Perfetto drops what overlaps."""
    hw = resolve_target("systolic_16")
    units = tuple(replace(u, bytes_per_cycle=6.7) if u.kind == "transfer" else u for u in hw.units)
    slow = replace(hw, units=units)
    found = stripec.simulate(PRODUCT, shapes={"A": "i8[150,70]", "B": "i8[70,90]"}, target=slow, trace=10_000)
    assert any(task.begin % 1 and task.begin * 1000 % 1 for task in found.trace), "some begin within a cycle"
    lanes = defaultdict(list)
    for event in json.loads(json.dumps(trace_events(found, slow)))["traceEvents"]:
        if event["ph"] != "M":
            assert event["ts"] * 1000 % 1 == 0 and event.get("dur", 0) * 1000 % 1 == 0
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append((int(event["ts"] * 1000), int(event["dur"] * 1000)))
    for own in lanes.values():
        assert all(a + n <= b for (a, n), (b, _) in pairwise(sorted(own)))


def test_names_come_before_what_they_name_and_each_lane_has_one() -> None:
    _, trace = made("many_core")
    events = trace["traceEvents"]
    kinds = [event["ph"] == "M" for event in events]
    assert kinds == sorted(kinds, reverse=True)
    for what in ("process_name", "thread_name"):
        lanes = [(e["pid"], e["tid"]) for e in events if e["name"] == what]
        assert len(lanes) == len({*lanes})
    tids = [e["tid"] for e in events if e["name"] == "thread_name"]
    assert len(tids) == len({*tids}), "a thread is known by its number alone"
    memories = [e["name"] for e in events if e["ph"] == "C"]
    for name in {*memories}:
        times = [e["ts"] for e in events if e["name"] == name]
        assert times == sorted(times)


def test_counters_say_what_is_alive() -> None:
    found, trace = made("systolic_16")
    counted = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            counted[event["name"]].append(event["args"]["bytes"])
    assert counted == {f"{own.memory} bytes alive": own.bytes for own in found.occupancy}


def test_the_first_tasks_and_how_many_are_left_out() -> None:
    found, trace = made("many_core", 5)
    assert len([e for e in trace["traceEvents"] if e["ph"] == "X"]) == 5
    assert trace["otherData"]["tasks left out"] == sum(unit.tasks for unit in found.units) - 5


def test_the_command_writes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, out = tmp_path / "product.tile", tmp_path / "trace.json"
    program.write_text(PRODUCT, encoding="utf-8")
    given = ["simulate", str(program), "--shape=A=i8[150,70]", "--shape=B=i8[70,90]", f"--trace={out}"]
    assert main(given) == 0
    assert "tasks for ui.perfetto.dev" in capsys.readouterr().out
    first = out.read_bytes()
    jsonschema.validate(json.loads(first), SCHEMA)
    assert main([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trace"]
    assert out.read_bytes() == first, "the same input gives the same bytes"
    assert main([*given, "--tasks=2"]) == 0
    assert "are left out: --tasks takes more" in capsys.readouterr().out
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_nothing_is_written_where_there_is_no_place(tmp_path: Path) -> None:
    found, _ = made("systolic_16", 2)
    for path in (tmp_path, tmp_path / "none" / "t.json"):
        with pytest.raises(CompileError, match="D010"):
            write_trace(path, found, resolve_target("systolic_16"))
    assert list(tmp_path.iterdir()) == []
