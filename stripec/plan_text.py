"""A plan as lines for people, below what the passes did to its kernel, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from codegen_cpu.assembly import CodeFacts
from stripe.analysis.cost_program import Estimate
from stripec.plan import OwnBuffer, Plan
from stripec.tables import Line

_SHOWN = 4  # parts of an expectation that are named, the longest ones
_GAP = 1.5  # measured over expected, or its inverse, from where it is worth a word
BUSY = "the core was not free, measure again"
_CALL = 1e-6  # seconds: a call from Python takes about half of that, whatever the kernel

_COUNTS = (
    ("multiply_adds", "multiply-add"),
    ("arithmetic", "other operation"),
    ("loads", "load"),
    ("broadcasts", "broadcast"),
    ("gathers", "gather"),
    ("stores", "store"),
)


def plan_lines(plan: Plan, clock: float | None, width: int) -> Iterator[Line]:
    """Its tiles, what is expected, packed and in the code. `clock`: cycles a second, if known."""
    rows = [("tiles", tile) for tile in _tiles(plan)]
    rows += [("packed", text) for text in _packed(plan)]
    if plan.expected is not None:
        rows.append(("expected", _expected(plan.expected, clock)))
    if plan.code is not None:
        rows.append(("code", _code(plan.code)))
    if plan.measured is not None:
        rows.append(("measured", _measured(plan, plan.measured, clock)))
    for head, text in rows:
        lead = f"{head:>8}  "
        for part in textwrap.wrap(
            text, max(width, 40), initial_indent=lead, subsequent_indent=" " * len(lead),
            break_on_hyphens=False,
        ):  # fmt: skip
            yield Line(part, "bold" if head == "measured" else "")


def _tiles(plan: Plan) -> Iterator[str]:
    for tile in plan.tiles:
        sizes = " ".join(f"{name}:{size}" for name, size in tile.sizes.items())
        of = f" of {tile.capacity}" if tile.capacity is not None else ""
        yield f"{tile.memory} {sizes}, which takes {tile.needed}{of} {tile.resource}"


def _packed(plan: Plan) -> Iterator[str]:
    for copy in plan.packed:
        when = "once, at load time" if copy.load_time else "at each call"
        yield f"'{copy.buffer}', {copy.bytes} bytes, {copy.cycles:.4g} cycles {when}"


def _expected(expected: Estimate, clock: float | None) -> str:
    busy = sorted(expected.parts.items(), key=lambda part: -part[1])
    parts = ", ".join(f"{name} {cycles:.4g}" for name, cycles in busy[:_SHOWN] if cycles)
    seconds = f" ({duration(expected.cycles / clock)} at {clock / 1e9:.2f} GHz)" if clock else ""
    return f"{expected.cycles:.4g} cycles{seconds}, bound by {expected.bound}: {parts}"


def _code(code: CodeFacts) -> str:
    hot = code.hot
    what = "its hot loop has" if code.loops else "it has no loop:"
    held = [plural(count, word) for name, word in _COUNTS if (count := getattr(hot, name))]
    vectors = f" of {hot.vector_bytes} bytes" if hot.registers else ""
    text = f"{what} {plural(hot.instructions, 'instruction')}{_listed(held)}; "
    text += f"{plural(hot.registers, 'vector register')}{vectors}"
    if not hot.spills and not hot.reloads:
        text += ", no spills"
    else:
        text += f", {plural(hot.spills, 'spill')} of vectors and {plural(hot.reloads, 'reload')}"
    if code.loops > 1:
        text += f"; vectors are spilled in {code.spilling or 'none'} of {code.loops} inner loops"
    return text


def own_buffers(plan: Plan) -> list[str]:
    """The buffers that name no memory, by where they are."""
    found = []
    for place in ("stack", "workspace"):
        there = [buffer for buffer in plan.own if buffer.place == place]
        if there:
            names = ", ".join(dict.fromkeys(f"'{buffer.path.rpartition('/')[2]}'" for buffer in there))
            found.append(f"{names} {where(place)} ({_bytes(there)})")
    return found


def where(place: str) -> str:
    return f"{'on' if place == 'stack' else 'in'} the {place}"


def _bytes(buffers: Sequence[OwnBuffer]) -> str:
    return plural(sum(buffer.bytes for buffer in buffers), "byte")


def _listed(held: list[str]) -> str:
    return f", {', '.join(held)}" if held else ""


def _measured(plan: Plan, seconds: float, clock: float | None) -> str:
    busy = "" if plan.core is None or plan.core >= 1 else f" (of which it ran {plan.core:.0%}: {BUSY})"
    text, expected = duration(seconds) + busy, plan.expected
    if plan.alone:
        return f"{text} on one thread, as no OpenMP runtime was found: what is expected is for several"
    if expected is None or not clock:
        return text
    ratio = seconds * clock / expected.cycles
    text += f", {ratio:.2f} times what is expected"
    if busy or 1 / _GAP < ratio < _GAP:
        return text
    of_call = 0 < seconds - expected.cycles / clock < _CALL
    return text + ("; a call itself takes about 0.5 us" if of_call else ": look at it")


def plural(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"


def plan_json(plan: Plan) -> Mapping[str, Any]:
    """The plan as JSON values."""
    made = asdict(plan)
    if plan.expected is not None:
        made["expected"]["bound"] = plan.expected.bound
    return made
