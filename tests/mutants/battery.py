"""What mutants are tried on: small programs, each with a step that changes it.

Cases come from the pipelines of all shipped targets on the Tile corpus and on the Stripe corpus,
and from the golden files of the passes: the program as it was before the step, and the step.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from hwconfigs.load import available, load, load_named
from hwconfigs.model import HwConfig
from stripe.ir import Program
from stripe.parser import parse
from stripe.passes.base import Pass, PassContext
from stripe.passes.pipeline import StepReport, run_pipeline
from stripe.passes.registry import PASSES, check_pipeline, make_passes, parse_pipeline, pass_spec
from stripe.printer import to_text
from stripe.validate import validate
from stripe.validate_run import is_small
from stripe.verify import findings
from tests.mutants.edits import ROOT
from tests.support.golden import read_case
from tests.support.programs import corpus
from tests.support.tile_corpus import CORPUS

GOLDEN = ROOT / "tests" / "golden" / "passes"


@dataclass(frozen=True)
class Trial:
    """A program, a step that changes it, what came of it, whether that could be proved, and whether a
    golden file pins it."""

    name: str
    step: Pass
    hw: HwConfig
    before: Program
    text: str
    proved: bool
    pinned: bool


def sources(name: str) -> list[Path]:
    """The files of a pass, and of what it is made of; `rewrite`: what passes share."""
    if name == "rewrite":
        return sorted((ROOT / "stripe").glob("rewrite*.py"))
    stem = name.replace("-", "_")
    folder = ROOT / "stripe" / "passes"
    parts = [path for path in folder.glob(f"{stem}_*.py") if _owner(path) == stem]
    return [folder / f"{stem}.py", *sorted(parts)]


def _owner(path: Path) -> str:
    names = [name.replace("-", "_") for name in PASSES]
    return max((n for n in names if path.stem == n or path.stem.startswith(n + "_")), key=len)


def trials(
    names: Sequence[str], rng: random.Random, most: int, *, wide: bool = True
) -> dict[str, list[Trial]]:
    """Up to `most` trials for each pass; those for `rewrite` are of all. Not `wide`: golden files only."""
    wanted = {name for name in names if name in PASSES} if "rewrite" not in names else set(PASSES)
    found: dict[str, list[Trial]] = {name: [] for name in PASSES}
    seen: set[tuple[str, str]] = set()
    golden = [(*case, True) for case in _golden_steps()]
    others = [(*case, False) for case in _corpus_steps(rng)] if wide else []
    for name, step, hw, before, pinned in [*golden, *others]:
        if step.name not in wanted or len(found[step.name]) >= most:
            continue
        key = (pass_spec(step), to_text(before))
        if key in seen or not is_small(before):
            continue
        seen.add(key)
        after = step.run(before, PassContext(hw))
        if after is not before and not findings(after, hw):
            proved = validate(before, after).status == "proved"
            found[step.name].append(Trial(name, step, hw, before, to_text(after), proved, pinned))
    found["rewrite"] = [trial for own in found.values() for trial in own[: most // 3 + 1]]
    return {name: found[name] for name in names}


def _golden_steps() -> Iterator[tuple[str, Pass, HwConfig, Program]]:
    """The steps of golden files that changed something."""
    for path in sorted(GOLDEN.rglob("*.stripe")):
        case = read_case(path)
        if case.errors:
            continue
        target = case.header.get("target", "generic")
        hw = load(GOLDEN.parent / target) if target.endswith(".json") else load_named(target)
        steps = make_passes(parse_pipeline(case.header["passes"], hw))
        yield from _changes(path.stem, parse(case.source), steps, hw)


def _corpus_steps(rng: random.Random) -> list[tuple[str, Pass, HwConfig, Program]]:
    """Steps that changed something of the corpus, in random order, one of each shipped target in turn."""
    programs = [(case.name, case.program()) for case in rng.sample(CORPUS, 24)]
    programs += sorted(corpus().items())
    found = []
    for hw in map(load_named, available()):
        own = [
            step
            for name, program in programs
            for step in _changes(f"{name} on {hw.name}", program, check_pipeline(hw), hw)
        ]
        rng.shuffle(own)
        found.append(own)
    return [step for turn in zip_longest(*found) for step in turn if step is not None]


def _changes(
    name: str, program: Program, steps: Sequence[Pass], hw: HwConfig
) -> list[tuple[str, Pass, HwConfig, Program]]:
    found: list[tuple[str, Pass, HwConfig, Program]] = []
    last = [program]

    def observe(report: StepReport, result: Program) -> None:
        if report.changed:
            found.append((name, report.step, hw, last[0]))
        last[0] = result

    with suppress(Exception):  # not every target can take every program; faults of passes are others' tests
        run_pipeline(program, steps, hw, observers=[observe], verify="off")
    return found
