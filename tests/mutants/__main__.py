"""Make mutants of the passes and report which check catches each: `python -m tests.mutants --help`."""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from stripe.passes.registry import PASSES, pass_class
from tests.mutants.battery import Trial, sources, trials
from tests.mutants.edits import ROOT, Edit, edits_of
from tests.mutants.judge import Judgement, judge
from tests.mutants.report import explained, meaning, table, unexplained

MUTANTS = 340  # in a full run
TRIALS = 24  # programs for each pass
SEED = 20190315


def _rank(edit: Edit, seed: int) -> str:
    """A place in a random order that other edits, and lines that move, do not change."""
    return hashlib.sha256(f"{seed} {edit.key}".encode()).hexdigest()


def chosen(names: Sequence[str], limit: int, seed: int) -> list[tuple[str, Edit]]:
    """Edits of the passes, `limit` in all, with as even a share for each as they have."""
    pools = {
        name: sorted((e for path in sources(name) for e in edits_of(path)), key=lambda e: _rank(e, seed))
        for name in names
    }
    taken: list[tuple[str, Edit]] = []
    while len(taken) < limit and any(pools.values()):
        for name, pool in pools.items():
            if pool and len(taken) < limit:
                taken.append((name, pool.pop()))
    return taken


def tests_of(name: str) -> list[str]:
    """The golden files of a pass, and the unit tests that have its name or import it; those of `rewrite`."""
    unit = ROOT / "tests" / "unit" / "stripe"
    if name == "rewrite":
        return [str(path) for path in sorted(unit.glob("test_rewrite*.py"))]
    stem = name.replace("-", "_")
    files = sorted((unit / "passes").glob("test_*.py"), key=lambda path: (stem not in path.stem, path))
    imported = f"from stripe.passes.{stem} import "
    found = [path for path in files if path.stem.startswith(f"test_{stem}") or imported in path.read_text()]
    return [str(path) for path in (ROOT / "tests" / "golden" / "passes" / stem, *found) if path.exists()]


def judged(
    names: Sequence[str],
    limit: int,
    seed: int,
    jobs: int,
    *,
    tests: bool,
    most: int = TRIALS,
    wide: bool = True,
) -> Iterator[Judgement]:
    """The judgements, in the order in which they are made."""
    rng = random.Random(seed)
    for name in PASSES:
        pass_class(name)  # all modules are loaded before the first fork
    tried: dict[str, list[Trial]] = trials(names, rng, most, wide=wide)
    mutants = chosen(names, limit, seed)
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(
            lambda m: judge(m[0], m[1], tried[m[0]], tests_of(m[0]) if tests else ()), mutants
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", action="append", metavar="PASS", help="a pass, or rewrite; may be repeated")
    parser.add_argument("--limit", type=int, default=MUTANTS, help=f"how many mutants (default {MUTANTS})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the sample (default {SEED})")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--quick", action="store_true", help="leave out the tests of the passes")
    arguments = parser.parse_args(argv)
    names = arguments.only or [*PASSES, "rewrite"]
    print(f"seed {arguments.seed}", flush=True)
    found: list[Judgement] = []
    for judgement in judged(
        names, arguments.limit, arguments.seed, arguments.jobs, tests=not arguments.quick
    ):
        found.append(judgement)
        checks = "+".join(judgement.checks) or "SURVIVED"
        print(f"{checks:<22} {judgement.edit}  {judgement.detail[:90]}", flush=True)
    print(f"\n{table(found)}\n{meaning(found)}")
    known = explained()
    count = sum(j.first == "survived" and j.key in known for j in found)
    print(f"{count} survivors are explained in survivors.md")
    rest = unexplained(found)
    for judgement in rest:
        print(f"not explained: {judgement.key}")
    return 1 if rest else 0


if __name__ == "__main__":
    sys.exit(main())
