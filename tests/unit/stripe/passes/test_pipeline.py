"""The driver holds passes to their contract, reports each step, and dumps what it saw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from hwconfigs.model import HwConfig, Memory
from stripe.affine import Affine
from stripe.diag import CompileError, InvariantError, Source
from stripe.ir import Location, Program
from stripe.parser import parse
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.observers import DumpPasses, Timing, write_dump
from stripe.passes.pipeline import StepReport, run_pipeline
from tests.unit.stripe.passes.toys import Break, Copy, Crash, Rename, Shift, Toy

HW = HwConfig("chip", "", "interpreter")

PROGRAM = parse(
    Source(
        "copy.stripe",
        """
block main [] (
  in A[0] f32(8):(1)
  out B[0]:assign f32(8):(1)
) {
  block copy [i:8] (
    in A[i] f32(1):(1)
    out B[i]:assign f32(1):(1)
  ) {
    $a = load(A) f32
    B = store($a)
  }
}
""",
    )
)


def test_steps_run_in_order_and_are_reported() -> None:
    seen: list[tuple[StepReport, Program]] = []
    steps = (Rename(to="one"), Toy(), Rename(to="two"))
    result = run_pipeline(PROGRAM, steps, HW, observers=[lambda r, p: seen.append((r, p))])
    assert result.root.name == "two"
    assert [(r.number, r.changed, p.root.name) for r, p in seen] == [
        (1, True, "one"),
        (2, False, "one"),
        (3, True, "two"),
    ]
    assert [m.message for m in seen[1][0].remarks] == ["a toy does nothing"]
    assert all(r.seconds >= 0 and r.verify_seconds >= 0 for r, _ in seen)


def test_no_steps_give_the_same_object() -> None:
    assert run_pipeline(PROGRAM, (), HW) is PROGRAM


def test_an_invalid_result_names_the_step_and_what_came_before() -> None:
    with pytest.raises(InvariantError) as caught:
        run_pipeline(PROGRAM, (Rename(to="one"), Break()), HW)
    text = str(caught.value)
    assert "the pass 'break' (step 2: break after rename{to=one}) made an invalid program" in text
    assert "error[V" in text


def test_without_verification_an_invalid_result_passes() -> None:
    assert run_pipeline(PROGRAM, (Break(),), HW, verify="off").root.statements == ()


def test_a_copy_of_the_input_breaks_the_contract() -> None:
    with pytest.raises(InvariantError, match=r"'copy' .step 1: copy. rebuilt the program"):
        run_pipeline(PROGRAM, (Copy(),), HW, verify="off")


def test_a_crash_says_in_which_pass() -> None:
    with pytest.raises(AssertionError) as caught:
        run_pipeline(PROGRAM, (Toy(), Crash()), HW)
    assert caught.value.__notes__ == ["in the pass 'crash' (step 2: crash after toy)"]


def test_a_wrong_input_is_the_users() -> None:
    broken = replace(PROGRAM, root=replace(PROGRAM.root, statements=()))
    with pytest.raises(CompileError, match=r"error\[V"):
        run_pipeline(broken, (Toy(),), HW)


@dataclass(frozen=True)
class At(Pass):
    """Say where the buffers of the root lie."""

    name: ClassVar[str] = "at"

    first: int | None = option(None, "address of the first", "bytes")
    second: int | None = option(None, "address of the second", "bytes")
    unit: str = option("FAR", "the memory")

    def run(self, program: Program, context: PassContext) -> Program:
        addresses = [None if at is None else Affine(at) for at in (self.first, self.second)]
        located = tuple(
            replace(ref, location=Location(self.unit, None, at))
            for ref, at in zip(program.root.refinements, addresses, strict=True)
        )
        return replace(program, root=replace(program.root, refinements=located))


SMALL = HwConfig("small", "", "interpreter", memories=(Memory("FAR", "explicit", 64),))


def test_what_does_not_suit_the_target_is_the_configs_fault() -> None:
    near = Memory("NEAR", "explicit", 32, line_bytes=32, backing="FAR")
    tiny = msgspec.structs.replace(SMALL, name="tiny", memories=(near, *SMALL.memories))
    with pytest.raises(CompileError) as caught:
        run_pipeline(PROGRAM, (Toy(), At(unit="NEAR")), tiny)
    (found,) = caught.value.diagnostics
    assert found.code == "P006"
    assert found.message.startswith(
        "after the pass 'at' (step 2: at{unit=NEAR}), 'tiny' can't run this: block main"
    )
    assert "64 bytes are alive at once in NEAR, 32 more than the 32" in found.message


def test_addresses_that_meet_are_a_fault_unless_they_were_there_before() -> None:
    with pytest.raises(InvariantError, match=r"the pass 'at' \(step 1.*\n.*V061"):
        run_pipeline(PROGRAM, (At(first=0, second=16),), SMALL)
    with pytest.raises(CompileError, match=r"P006.*the pass 'at' \(step 2.*V061(.*\n)*.*at the end"):
        run_pipeline(PROGRAM, (At(first=0, second=32), At(first=0, second=16)), SMALL)


def test_levels_of_verification() -> None:
    with pytest.raises(CompileError, match="'off', 'on' or 'full', not 'of'"):
        run_pipeline(PROGRAM, (), HW, verify="of")  # type: ignore[arg-type]


def test_full_verification_proves_each_step_that_changed_something() -> None:
    seen: list[StepReport] = []
    run_pipeline(PROGRAM, (Toy(), Rename(to="x")), HW, observers=[lambda r, _: seen.append(r)], verify="full")
    assert [r.verdict and r.verdict.status for r in seen] == [None, "proved"]
    assert seen[1].validate_seconds > 0


def test_full_verification_names_the_pass_the_element_and_the_block() -> None:
    with pytest.raises(InvariantError) as caught:
        run_pipeline(PROGRAM, (Toy(), Shift()), HW, verify="full")
    text = str(caught.value)
    assert "the pass 'shift' (step 2: shift after toy) made a program that computes something else" in text
    assert "output 'B', element [0]: " in text
    assert "in main/copy: " in text
    run_pipeline(PROGRAM, (Shift(),), HW)  # which verifies: nothing else notices


def test_dumps_are_numbered_readable_and_replace_older_ones(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "dumps"
    write_dump(tmp_path, 7, "old", PROGRAM)
    (tmp_path / "08_mine.stripe").write_text("not a dump")
    run_pipeline(PROGRAM, (Toy(),), HW, observers=[DumpPasses(tmp_path, PROGRAM)])
    assert sorted(p.name for p in tmp_path.glob("*.stripe")) == [
        "00_input.stripe",
        "01_toy.stripe",
        "08_mine.stripe",
    ]
    run_pipeline(PROGRAM, (Rename(to="x"), Toy(count=2)), HW, observers=[DumpPasses(folder, PROGRAM)])
    texts = {p.name: p.read_text() for p in folder.iterdir()}
    assert set(texts) == {"00_input.stripe", "01_rename.stripe", "02_toy.stripe"}
    assert texts["01_rename.stripe"].startswith("// step 1: rename{to=x}\nblock x")
    toy = "// step 2: toy{count=2} (unchanged)\n//   left alone main: a toy does nothing\n"
    assert texts["02_toy.stripe"].startswith(toy)
    assert parse(Source("dump", texts["02_toy.stripe"])).root.name == "x"


def test_dumps_before_a_crash_stay(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_pipeline(PROGRAM, (Toy(), Crash()), HW, observers=[DumpPasses(tmp_path, PROGRAM)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00_input.stripe", "01_toy.stripe"]


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompileError, match=r"error\[D010\].*can't make the folder"):
        DumpPasses(tmp_path / "file" / "dumps", PROGRAM)


def test_timing_lists_every_step() -> None:
    timing = Timing()
    run_pipeline(PROGRAM, (Toy(), Rename(to="x")), HW, observers=[timing])
    lines = timing.table().splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["toy", "rename{to=x}", "all"]
