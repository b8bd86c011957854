"""An explanation as lines for people, and as JSON.

main/A
   2  fuse
      + fused with 'P' over n, h
      - not fused with 'MX': ...
 3-5  localize, scalarize, canonicalize: unchanged
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from stripe.diag import CompileError, Diagnostic, Remark, did_you_mean
from stripec.explain import Explanation, Note, Story
from stripec.plan import Plans
from stripec.plan_text import own_buffers, plan_json, plan_lines, plural, where
from stripec.tables import WIDTH, Line

LEGEND = "+ what a pass did, - why it left something as it was"
NO_PLANS = Plans()
_DETAIL = 10  # columns in front of what is said of a step
_LONG = ("chosen", "candidates")  # data that has lines of its own
_TREE = 12  # candidates shown for one remark


def select(explanation: Explanation, path: str) -> Explanation:
    """What concerns a kernel or a block below it. Raises CompileError D061 if there is none of this path."""
    root = explanation.whole.path
    if path == root:
        return Explanation(explanation.steps, (), explanation.whole)
    known: dict[str, Story] = {}
    for story in explanation.kernels:
        said = (remark.block for note in story.notes for remark in note.remarks)
        known |= dict.fromkeys((story.path, *story.blocks, *_above(said)), story)
    wanted = path if path in known else f"{root}/{path}"
    if wanted not in known:
        message = f"--block {path}: no pass met such a block"
        raise CompileError(Diagnostic("D061", message, notes=did_you_mean(wanted, [root, *known])))
    story = known[wanted]
    if wanted != story.path:
        story = _below(story, wanted)
    return Explanation(explanation.steps, (story,), Story(root))


def _above(paths: Iterator[str]) -> Iterator[str]:
    """The paths of blocks, and of the blocks around these below the root."""
    for path in paths:
        parts = path.partition(",")[0].split("/")
        yield from ("/".join(parts[:end]) for end in range(2, len(parts) + 1))


def _below(story: Story, path: str) -> Story:
    """The story with what was said of one block, and of those in it, alone."""

    def concerns(remark: Remark) -> bool:
        return remark.block == path or remark.block.startswith((f"{path}/", f"{path},"))

    notes = [Note(note.number, False, tuple(filter(concerns, note.remarks))) for note in story.notes]
    return Story(path, story.made_by, [note for note in notes if note.remarks])


def lines(
    explanation: Explanation,
    title: str,
    plans: Plans = NO_PLANS,
    *,
    verbose: bool = False,
    width: int = WIDTH,
) -> list[Line]:
    """The explanation; with `verbose`, each choice has its candidates and other figures. `plans` say why
    kernels are as fast as they are."""
    shown = [Line(title, "bold"), Line(LEGEND, "dim")]
    for story in (*explanation.kernels, explanation.whole):
        if story.notes:
            shown += [Line(""), *_story(explanation, story, plans, verbose, width)]
    return shown


def _story(explanation: Explanation, story: Story, plans: Plans, verbose: bool, width: int) -> Iterator[Line]:
    made = f"  (made by step {story.made_by}, {explanation.spec(story.made_by)})" if story.made_by else ""
    what = "" if story is not explanation.whole else "  (the whole program)"
    yield Line(f"{story.path}{made}{what}", "bold cyan")
    quiet: list[int] = []
    for note in story.notes:
        if note.silent:
            quiet.append(note.number)
            continue
        yield from _quiet(explanation, quiet, width)
        quiet.clear()
        yield from _note(explanation, story, note, verbose, width)
    yield from _quiet(explanation, quiet, width)
    if story.blocks and not story.notes[-1].into:
        plan = plans.kernels.get(story.path)
        unplaced = own_buffers(plan) if plan is not None else []
        yield from _wrapped(f"{'now':>8}  ", _result(story, unplaced), "bold", width)
        own = plan.own if plan is not None else ()
        placed = [(buffer.path, buffer.bytes, buffer.place) for buffer in story.buffers]
        placed += [(buffer.path, buffer.bytes, where(buffer.place)) for buffer in own]
        for path, size, place in placed if verbose else ():
            yield Line(f"{'':{_DETAIL}}    | {_short(path)}: {plural(size, 'byte')} {place}", "dim")
    if story is explanation.whole and plans.idle:
        yield Line(f"{'now':>8}  nothing to compute", "bold")
    if story.path in plans.kernels:
        yield from plan_lines(plans.kernels[story.path], plans.clock, width)


def _quiet(explanation: Explanation, numbers: Sequence[int], width: int) -> Iterator[Line]:
    """The steps that have nothing to say, on one line where they follow each other."""
    if not numbers:
        return
    label = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
    names = ", ".join(explanation.spec(number) for number in numbers)
    yield from _wrapped(f"{label:>8}  ", f"{names}: unchanged", "dim", width)


def _note(explanation: Explanation, story: Story, note: Note, verbose: bool, width: int) -> Iterator[Line]:
    acted = any(remark.acted for remark in note.remarks)
    more = ": changed" if note.changed and not acted and not (note.into or note.gone) else ""
    yield from _wrapped(f"{note.number:>8}  ", f"{explanation.spec(note.number)}{more}", "cyan", width)
    seen: set[tuple[str, str]] = set()
    for remark in note.remarks:
        if (remark.block, remark.message) in seen:
            continue
        seen.add((remark.block, remark.message))
        place = "" if remark.block == story.path else f"{_short(remark.block)}: "
        mark, style = ("+", "green") if remark.acted else ("-", "yellow")
        lead = f"{'':{_DETAIL}}{mark} "
        yield from _wrapped(lead, place + " ".join(remark.message.split()), style, width)
        if verbose:
            yield from _figures(remark.data, width)
    lead = f"{'':{_DETAIL}}> "
    if note.into:
        yield from _wrapped(lead, f"goes on in {note.into}", "bold", width)
    elif note.gone:
        yield from _wrapped(lead, "gone: nothing needs it any more", "bold", width)


def _short(path: str) -> str:
    """A path without the root."""
    return path.partition("/")[2] or path


def _figures(data: Mapping[str, object], width: int) -> Iterator[Line]:
    plain = {key: value for key, value in data.items() if key not in _LONG}
    lead = f"{'':{_DETAIL}}    "
    if plain:
        text = ", ".join(f"{key} {_value(value)}" for key, value in plain.items())
        yield from _wrapped(lead, text, "dim", width)
    candidates = data.get("candidates")
    if isinstance(candidates, list | tuple):
        for row in candidates[:_TREE]:
            yield from _wrapped(f"{lead}| ", _value(row), "dim", width)
        if len(candidates) > _TREE:
            yield Line(f"{lead}| {len(candidates) - _TREE} more in --json", "dim")


def _value(value: object) -> str:
    match value:
        case Mapping():
            return "  ".join(f"{key}={_inner(item)}" for key, item in value.items())
        case _:
            return _inner(value)


def _inner(value: object) -> str:
    match value:
        case float():
            return f"{value:.4g}"
        case Mapping():
            return " ".join(f"{key}:{_inner(item)}" for key, item in value.items())
        case list() | tuple():
            return f"[{', '.join(map(_inner, value))}]"
        case _:
            return str(value)


def _result(story: Story, own: Sequence[str]) -> str:
    """What a kernel is in the end: its blocks, the units that execute it, its buffers; `own` says where
    those are that name no memory."""
    parts = [", ".join(story.blocks)]
    units = [unit for unit in story.units if unit]
    if units:
        parts.append(f"executed by {', '.join(units)}")
    held = [f"{count} in {memory} ({plural(size, 'byte')})" for memory, (count, size) in story.held.items()]
    held += own
    if held:
        parts.append(f"with buffers: {', '.join(held)}")
    return " ".join(parts)


def _wrapped(lead: str, text: str, style: str, width: int) -> Iterator[Line]:
    for part in textwrap.wrap(
        text, max(width, 40), initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
    ):
        yield Line(part, style)


def to_json(explanation: Explanation, name: str, target: str, plans: Plans = NO_PLANS) -> dict[str, Any]:
    """The explanation as JSON values: the steps, and for each kernel the notes by step, and its plan."""
    return {
        "program": name,
        "target": target,
        "threads": plans.threads,
        "steps": [
            {
                "number": step.number,
                "pass": explanation.spec(step.number),
                "changed": step.changed,
                "seconds": step.seconds,
                "verify_seconds": step.verify_seconds,
            }
            for step in explanation.steps
        ],
        "cycles_per_second": plans.clock,
        "kernels": [_story_json(story, plans) for story in explanation.kernels],
        "whole": _story_json(explanation.whole, plans),
    }


def _story_json(story: Story, plans: Plans) -> dict[str, Any]:
    return {
        "plan": plan_json(plans.kernels[story.path]) if story.path in plans.kernels else None,
        "block": story.path,
        "made_by": story.made_by or None,
        "becomes": list(story.blocks),
        "units": [unit for unit in story.units if unit],
        "buffers": [asdict(buffer) for buffer in story.buffers],
        "steps": [
            {
                "number": note.number,
                "changed": note.changed,
                "into": note.into or None,
                "gone": note.gone,
                "remarks": [
                    {"block": r.block, "acted": r.acted, "message": r.message, "data": _plain(r.data)}
                    for r in note.remarks
                ],
            }
            for note in story.notes
        ],
    }


def _plain(value: object) -> Any:
    """A value of a remark as JSON has it."""
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
