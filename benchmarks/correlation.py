"""`python -m benchmarks.correlation`: do the cost models rank tilings as the machine does?

For each of its kernels, tilings are drawn by a seed from all legal ones: for the cache that the pipeline
tiles for, any size of each index whose tile fits there, and inside it any tile of whole vectors that
fits in the registers. Each is compiled by the pipeline of the target, with the sizes given to its passes
(`autotile{tile={...}}`) and nothing else changed, and measured. The rank correlation (Spearman) of
the measured time with the one that is expected of the program that comes of that tiling
(stripe.analysis.cost_program) is printed, that with the one by which the search for tiles compares sizes, and
the time of the tiling that the pipeline chooses by itself.

What was compiled and measured is kept in a folder, so that a run goes on where it was broken off, and
a changed model is compared without measuring again what did not change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import inf, nan
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

import stripe
from benchmarks import environment, formulas
from benchmarks.convolution import Conv, depthwise
from benchmarks.machine import Machine, Probe, measure
from benchmarks.main import plain_console
from benchmarks.options import new_file, target
from benchmarks.problems import DTYPES, Array, Contraction, Matmul, Problem, aligned
from codegen_cpu.build import build
from codegen_cpu.kernel import NativeKernel
from hwconfigs.model import HwConfig
from stripe.analysis.cost import COST_MODELS, roofline
from stripe.analysis.cost_problem import CostModel
from stripe.analysis.cost_problem import Problem as Tiling
from stripe.analysis.cost_program import Estimate, estimate
from stripe.analysis.work import operations
from stripe.diag import Remark
from stripe.files import write_whole
from stripe.ir import Program
from stripe.passes.autotile import Autotile
from stripe.passes.base import Pass, PassContext
from stripe.passes.registry import check_pipeline
from stripe.printer import to_text
from stripec import prediction
from stripec.driver import read_program, resolve_target
from stripec.prediction import predict
from stripec.tensors import as_type

KERNELS: dict[str, Problem] = {
    "product 96x96x96": Matmul(96, 96, 96),
    "product 768x512x640": Matmul(768, 512, 640),
    "product 32x1024x1024": Matmul(32, 1024, 1024),
    "product 256x256x512, B transposed": Matmul(256, 256, 512, tb=True),
    "3x3 convolution 64-64 @28": Conv(1, 28, 28, 64, 64, 3, 3, 1, (1, 1)),
    "3x3 convolution 64-64 @28, stride 2": Conv(1, 28, 28, 64, 64, 3, 3, 2, (1, 1)),
    "1x1 convolution 256-64 @28": Conv(1, 28, 28, 256, 64, 1, 1),
    "batch of products 16x128x128x64": Contraction(
        "bmn-bmk-bkn", (("b", 16), ("m", 128), ("n", 128), ("k", 64))
    ),
    "contraction abcd-aebf-dfce, 20": Contraction("abcd-aebf-dfce", tuple((c, 20) for c in "abcdef")),
    "depthwise 3x3 128 @28": depthwise(1, 28, 28, 128),
    "column sum 2048x1024": formulas.column_sum(2048, 1024),
}

BATCH = 4096  # combinations of sizes from which a legal one is taken
FEWEST = 10  # tilings that have a rank correlation worth a look
TRIES = 4  # draws for each tiling that is wanted: some come twice
READINGS = 4  # of a tiling in a round, the least of which counts
READING = 0.002  # seconds, of as many calls as it takes: the clocks of virtual machines go in steps
MOST_CALLS = 1 << 20
REJECTED = 20  # readings that no machine can have made, until a run gives up
ABOVE = 1.02  # times the peak: the clock rate goes up and down by so much
LARGEST_ERROR = 2e-5  # of a result, relative to the largest magnitude

TIMED = "several calls together"  # in which way: times that were taken in another one are not used again
UNKNOWN = Estimate(nan, {})  # of a target that nothing is known of

Sizes: TypeAlias = Mapping[str, int]
Tick: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Drawn:
    """A tiling: the sizes for each step of the pipeline that tiles, None where it tiles nothing; the
    program, what is expected of it, and the cycles by which the search compares sizes."""

    sizes: tuple[Sizes | None, ...]
    program: Program
    expected: Estimate
    searched: float

    @property
    def key(self) -> str:
        return hashlib.sha256(to_text(self.program).encode()).hexdigest()[:24]

    @property
    def text(self) -> str:
        return " | ".join(
            "-" if sizes is None else " ".join(f"{n}:{s}" for n, s in sizes.items()) for sizes in self.sizes
        )


def lowered(problem: Problem) -> Program:
    types = {name: as_type(array, name) for name, array in problem.arrays().items()}
    return read_program(problem.tile).lower(types, ())


class Lottery:
    """Draws tilings of one kernel. What comes before the first tile is done once."""

    def __init__(self, problem: Problem, hw: HwConfig) -> None:
        self.hw = hw
        program = lowered(problem)
        self._steps = check_pipeline(hw)
        first = next(n for n, step in enumerate(self._steps) if isinstance(step, Autotile))
        self._ahead = self._run(self._steps[:first], program, [])
        self._rest = self._steps[first:]
        # Of steps that tile what is the same for all draws, by identity.
        self._models: dict[int, CostModel | None] = {}

    def draw(self, rng: np.random.Generator | None) -> Drawn:
        """A tiling by chance; without a generator, what the passes choose by themselves."""
        program, remarks, given = self._ahead, list[Remark](), list[Sizes | None]()
        for step in self._rest:
            if isinstance(step, Autotile):
                model = self._model(step, program) if rng is not None else None
                sizes = _legal(model, rng) if model is not None and rng is not None else None
                given.append(sizes)
                if sizes is not None:
                    step = replace(step, tile=tuple(sizes.items()))
            program = self._run((step,), program, remarks)
        weighed = predict(remarks, self.hw)
        expected = estimate(program, self.hw) or UNKNOWN
        return Drawn(tuple(given), program, expected, weighed.cycles if weighed is not None else nan)

    def _run(self, steps: Sequence[Pass], program: Program, remarks: list[Remark]) -> Program:
        for step in steps:
            context = PassContext(self.hw)
            program = step.run(program, context)
            remarks += context.remarks
        return program

    def _model(self, step: Autotile, program: Program) -> CostModel | None:
        if program is not self._ahead:
            return self._model_of(step, program)
        if id(step) not in self._models:
            self._models[id(step)] = self._model_of(step, program)
        return self._models[id(step)]

    def _model_of(self, step: Autotile, program: Program) -> CostModel | None:
        """The model of the block that this step would tile, the one with most points if there are several."""
        seen: list[CostModel] = []

        def spy(problem: Tiling) -> CostModel:
            model = roofline(problem)
            seen.append(model)
            return model

        COST_MODELS["spy"] = spy
        try:
            replace(step, cost="spy", max_candidates=1).run(program, PassContext(self.hw))
        finally:
            del COST_MODELS["spy"]
        # A block that fits whole is not tiled by the pipeline, but it may be.
        cached = step.memory and self.hw.memory(step.memory) != self.hw.memories[0]
        found = [model for model in seen if (cached and model.problem.leaves) or not model.refusal()]
        return max(found, key=lambda m: max(leaf.points for leaf in m.problem.leaves), default=None)


def _legal(model: CostModel, rng: np.random.Generator) -> Sizes:
    """Sizes of all indexes that a tile for this memory may have, by chance among those that fit."""
    registers = model.problem.memory.kind == "registers"
    if registers:
        choices = {name: np.asarray(sizes) for name, sizes in model.choices().items()}
    else:
        choices = {name: np.arange(1, model.problem.ranges[name] + 1) for name in model.indices}
    while True:
        table = {name: rng.choice(sizes, BATCH) for name, sizes in choices.items()}
        fits = np.broadcast_to(model.evaluate(table, model.indices).fits, BATCH)
        if fits.any():
            return {name: int(sizes[fits.argmax()]) for name, sizes in table.items()}


class Peak:
    """The multiply-adds of this core, by the clock that kernels are timed with: no reading is above them."""

    def __init__(self, make: Callable[[], Machine] = measure) -> None:
        self._make = make
        self._best = 0.0

    @cached_property
    def _machine(self) -> Machine:
        """Made when it is asked for the first time; it holds the code of its probes."""
        return self._make()

    @cached_property
    def _probe(self) -> Probe:
        return self._machine.fma("f32")

    def admits(self, rate: float) -> bool:
        """Whether the core makes so many operations a second. It is asked again if it does not seem so:
        others may have slowed it down when it was asked last."""
        if rate > ABOVE * self._best:
            # The median, as a clock may slip here too.
            rates = [self._probe.amount / seconds_of_calls(self._probe.call) for _ in range(5)]
            self._best = max(self._best, statistics.median(rates))
        return rate <= ABOVE * self._best


def seconds_of_calls(call: Callable[[], object]) -> float:
    """Processor seconds of a call, from as many as take READING together."""
    calls = 1
    while True:
        start = time.thread_time()
        for _ in range(calls):
            call()
        spent = time.thread_time() - start
        if spent > 0 and (spent >= READING or calls >= MOST_CALLS):
            return spent / calls
        calls = min(2 * calls, MOST_CALLS)


class Folder:
    """What is known of one kernel: the tilings that were drawn, their object code, and their times. `peak` is
    asked what readings there can be."""

    def __init__(
        self, name: str, problem: Problem, hw: HwConfig, options: argparse.Namespace, peak: Peak
    ) -> None:
        folder: Path = options.folder
        folder.mkdir(parents=True, exist_ok=True)
        self._peak = peak
        kernel = _digest(TIMED, name, problem.tile, repr(problem.operands), repr(hw))
        self._hw, self._problem, self._objects = hw, problem, folder / "objects"
        self._times = folder / f"{kernel}.jsonl"
        self._drawn = folder / f"{_digest(kernel, str(options.seed), _sources())}.pickle"
        self.seconds: dict[str, float] = {}
        self.rounds: Counter[str] = Counter()  # in which each was timed
        if self._times.exists():
            for row in map(json.loads, self._times.read_text().splitlines()):
                self._timed(row["key"], row["seconds"])
        self.kept: list[Drawn] = []
        self._attempt = 0
        if self._drawn.exists():
            self._attempt, self.kept = pickle.loads(self._drawn.read_bytes())
        self._given: list[Array] = []

    def tilings(self, seed: int, number: int, tick: Callable[[], None]) -> list[Drawn]:
        """What the pipeline chooses, then so many different tilings, as far as there are so many."""
        found: list[Drawn] = list(self.kept)
        attempt, lottery = self._attempt, None
        for _ in found[1:]:
            tick()
        seen = {drawn.key for drawn in found}
        while len(found) <= number and attempt <= TRIES * number:
            lottery = lottery or Lottery(self._problem, self._hw)
            rng = np.random.default_rng([seed, attempt]) if found else None
            drawn = lottery.draw(rng)
            attempt += rng is not None
            if drawn.key not in seen or rng is None:
                seen.add(drawn.key)
                found.append(drawn)
                tick()
            if len(found) % 10 == 0:
                write_whole(self._drawn, pickle.dumps((attempt, found)))
        if lottery is not None:
            write_whole(self._drawn, pickle.dumps((attempt, found)))
        return found[: number + 1]

    def compile(self, drawn: Drawn) -> None:
        """Object code, into the folder."""
        build(drawn.program, self._hw, cache=self._objects).object_code  # noqa: B018

    def time(self, drawn: Drawn) -> None:
        """Seconds of a call, the least of a few readings, and of what was measured before. The first call is
        compared with float64."""
        kernel = NativeKernel(build(drawn.program, self._hw, cache=self._objects), {})
        if not self._given:
            self._given = list(self._problem.arrays().values())
            self._operations = operations(lowered(self._problem))
            self._wanted = self._problem.reference(*(a.astype(np.float64) for a in self._given))
            self._out = aligned(self._problem.result.shape, DTYPES[self._problem.result.type])
        self._out.fill(np.nan)  # what is not written is not right
        kernel(*self._given, out=(self._out,))
        off = float(np.abs(self._out - self._wanted).max() / np.abs(self._wanted).max())
        if not off < LARGEST_ERROR:
            raise SystemExit(f"{drawn.text}: the result is wrong, {off:.3g} off")
        seconds: list[float] = []
        rejected = 0
        while len(seconds) < READINGS:
            spent = seconds_of_calls(lambda: kernel(*self._given, out=(self._out,)))
            if self._peak.admits(self._operations / spent):
                seconds.append(spent)
                continue
            rejected += 1
            if rejected > REJECTED:
                made = self._operations / spent / 1e9
                raise SystemExit(f"{drawn.text}: {made:.0f} GFLOP/s is more than this core makes")
        self._timed(drawn.key, min(seconds))
        with self._times.open("a") as file:
            row = {"key": drawn.key, "seconds": min(seconds), "tiling": drawn.text}
            file.write(json.dumps(row) + "\n")

    def _timed(self, key: str, seconds: float) -> None:
        self.seconds[key] = min(seconds, self.seconds.get(key, inf))
        self.rounds[key] += 1


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def _sources() -> str:
    """What draws and weighs tilings: passes and models. Another version of them draws anew."""
    root = Path(stripe.__file__).parent
    files = sorted([*root.rglob("*.py"), Path(prediction.__file__), Path(__file__)])
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """The correlation of the ranks, equal values sharing one."""
    return float(np.corrcoef(ranks(left), ranks(right))[0, 1])


def ranks(values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """For each value its place in ascending order, the mean of their places where some are equal."""
    _, place, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    found: np.ndarray[Any, np.dtype[np.float64]] = (last - (counts - 1) / 2)[place]
    return found


@dataclass(frozen=True)
class Ranking:
    """A kernel's tilings: what was expected (cycles) and measured (seconds) of each. `chosen` is that of
    the pipeline itself."""

    name: str
    drawn: Sequence[Drawn]
    seconds: Sequence[float]
    chosen: Drawn
    chosen_seconds: float

    @property
    def correlation(self) -> float:
        return spearman([d.expected.cycles for d in self.drawn], self.seconds)

    @property
    def correlation_of_search(self) -> float:
        """NaN where the search weighs nothing."""
        return spearman([d.searched for d in self.drawn], self.seconds)

    @property
    def residuals(self) -> list[tuple[float, Drawn, float]]:
        """For each tiling by how much it is slower than expected, relative to the others, worst first."""
        expected = np.asarray([d.expected.cycles for d in self.drawn])
        ratio = np.asarray(self.seconds) / expected
        factor = ratio / np.median(ratio)
        order = np.argsort(-np.abs(np.log(factor)))
        return [(float(factor[at]), self.drawn[at], self.seconds[at]) for at in order]


def rank(
    name: str,
    problem: Problem,
    hw: HwConfig,
    options: argparse.Namespace,
    until: float,
    tick: Tick,
    peak: Peak,
) -> Ranking | None:
    """Draw, compile and time the tilings of a kernel; None if too few are timed in the end."""
    folder = Folder(name, problem, hw, options, peak)
    if options.stage == "compile" or options.stage == "all":
        drawn = folder.tilings(options.seed, options.tilings, lambda: tick("drawing"))
        for tiling in drawn:
            tick("compiling")
            if tiling.key not in folder.seconds:
                folder.compile(tiling)
    else:
        drawn = folder.kept[: options.tilings + 1]
    for number in range(options.rounds if options.stage != "compile" else 0):
        for tiling in drawn:
            tick("measuring")
            if folder.rounds[tiling.key] <= number and time.monotonic() < until:
                folder.time(tiling)
    timed = [d for d in drawn if d.key in folder.seconds]
    if len(timed) <= FEWEST or drawn[0] is not timed[0]:
        return None
    own, *others = timed
    return Ranking(name, others, [folder.seconds[d.key] for d in others], own, folder.seconds[own.key])


def _tilings(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) >= FEWEST):
        raise argparse.ArgumentTypeError(f"'{text}': a rank correlation takes {FEWEST} tilings or more")
    return int(text)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.correlation", description=__doc__)
    parser.add_argument("--tilings", type=_tilings, default=200, help="of each kernel (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--only", help="kernels whose name contains this")
    parser.add_argument("--target", type=target, default="host", help="what is compiled for (default host)")
    parser.add_argument(
        "--folder", type=Path, default=Path("correlation"), help="what is kept (default %(default)s)"
    )
    parser.add_argument(
        "--stage", choices=("compile", "measure", "all"), default="all", help="do only a part of the work"
    )
    parser.add_argument("--measure-for", type=float, metavar="SECONDS", help="measure no longer than this")
    parser.add_argument(
        "--rounds", type=int, default=5, help="in which all are timed; the least counts (default %(default)s)"
    )
    parser.add_argument(
        "--worst", type=int, default=0, metavar="N", help="show the N tilings that are off most"
    )
    parser.add_argument("--json", type=new_file, help="write all figures to this file")
    return parser.parse_args(argv)


def main() -> None:
    options = arguments()
    chosen = {name: p for name, p in KERNELS.items() if not options.only or options.only in name}
    if not chosen:
        raise SystemExit(f"--only {options.only}: no such kernel; there are {', '.join(KERNELS)}")
    console = plain_console()
    if options.stage != "compile":
        console.print(environment.pin(1)[1], highlight=False)
    hw = resolve_target(options.target)
    console.print(f"{options.tilings} tilings a kernel for {hw.name}, seed {options.seed}", highlight=False)
    found: list[Ranking] = []
    until = time.monotonic() + (options.measure_for or inf)
    peak = Peak()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        for name, problem in chosen.items():
            task = progress.add_task(name, total=(2 + options.rounds) * options.tilings)

            def tick(what: str, name: str = name, task: TaskID = task) -> None:
                progress.update(task, advance=1, description=f"{name}: {what}")

            ranking = rank(name, problem, hw, options, until, tick, peak)
            progress.remove_task(task)
            if ranking is not None:
                found.append(ranking)
    print_rankings(console, found, options.worst)
    for text in left_out(found, chosen, options.tilings):
        console.print(text, highlight=False, soft_wrap=True)
    if options.json:
        write_whole(options.json, json.dumps(as_record(found, options, hw), indent=1).encode())


def left_out(found: Sequence[Ranking], chosen: Iterable[str], tilings: int) -> list[str]:
    """Which kernels the table lacks, and which have fewer tilings than were asked for."""
    named = {ranking.name for ranking in found}
    missing = [name for name in chosen if name not in named]
    fewer = [f"{r.name} ({len(r.seconds)})" for r in found if len(r.seconds) < tilings]
    texts = []
    if missing:
        few = f"fewer than {FEWEST} tilings of them are measured, which is too few for a rank correlation"
        texts.append(f"not in the table: {', '.join(missing)}: {few}")
    if fewer:
        texts.append(
            f"fewer tilings than asked for: {', '.join(fewer)}: no others differ, or not all are measured"
        )
    return texts


def print_rankings(console: Console, found: Sequence[Ranking], worst: int) -> None:
    """A line for each kernel, the mean, and the tilings whose times are expected worst."""
    table = Table(box=None, pad_edge=False)
    table.add_column("kernel", no_wrap=True)
    for head in (
        "tilings", "rank correlation", "of the search", "slowest / fastest", "chosen / fastest",
        "chosen is before",
    ):  # fmt: skip
        table.add_column(head, justify="right")
    for ranking in found:
        fastest, own = min(ranking.seconds), ranking.chosen_seconds
        before = sum(own <= seconds for seconds in ranking.seconds) / len(ranking.seconds)
        table.add_row(
            ranking.name, str(len(ranking.seconds)), f"{ranking.correlation:.3f}",
            f"{ranking.correlation_of_search:.3f}",
            f"{max(ranking.seconds) / fastest:.1f}", f"{own / fastest:.2f}", f"{before:.0%}",
        )  # fmt: skip
    if len(found) > 1:
        mean = sum(ranking.correlation for ranking in found) / len(found)
        search = sum(ranking.correlation_of_search for ranking in found) / len(found)
        table.add_row("mean", "", f"{mean:.3f}", f"{search:.3f}", "", "", "")
    console.print(table)
    for ranking in found if worst else ():
        console.print(f"\n{ranking.name}: times as often as expected, in comparison with the others")
        for factor, drawn, seconds in ranking.residuals[:worst]:
            busy = sorted(drawn.expected.parts.items(), key=lambda part: -part[1])[:3]
            parts = ", ".join(f"{name} {cycles:.3g}" for name, cycles in busy)
            console.print(
                f"  {factor:5.2f}  {seconds * 1e3:8.3f} ms, {drawn.expected.cycles:.4g} cycles expected"
                f" ({parts})  {drawn.text}",
                highlight=False, soft_wrap=True,
            )  # fmt: skip


def as_record(found: Sequence[Ranking], options: argparse.Namespace, hw: HwConfig) -> dict[str, Any]:
    """All figures as JSON values."""
    return {
        "format": 1,
        "target": hw.name,
        "seed": options.seed,
        "kernels": [
            {
                "kernel": ranking.name,
                "correlation": ranking.correlation,
                "correlation_of_search": ranking.correlation_of_search,
                "chosen": {
                    "seconds": ranking.chosen_seconds,
                    "cycles": ranking.chosen.expected.cycles if ranking.chosen.expected.parts else None,
                },
                "tilings": [
                    {
                        "sizes": [dict(sizes) if sizes is not None else None for sizes in drawn.sizes],
                        "seconds": seconds,
                        "cycles": drawn.expected.cycles,
                        "parts": dict(drawn.expected.parts),
                        "searched": drawn.searched,
                    }
                    for drawn, seconds in zip(ranking.drawn, ranking.seconds, strict=True)
                ],
            }
            for ranking in found
        ],
    }


if __name__ == "__main__":
    main()
