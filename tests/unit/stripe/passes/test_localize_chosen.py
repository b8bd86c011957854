"""localize with choices: which sums gather in near memory, and which buffers lie there."""

from __future__ import annotations

import pytest

from hwconfigs.load import load_named
from stripe.diag import CompileError
from stripe.ir import Program
from stripe.passes.base import PassContext
from stripe.passes.choices import Choice, Given
from stripe.passes.localize import Localize
from stripe.passes.localize_chosen import Kept
from stripe.visit import walk
from tests.support.passes import program_of

REGISTERS = Localize(accumulators="REG")
HW = load_named("generic")
TWO = """
    block main [] (
      in A[0, 0] f32(8, 9):(9, 1)
      out B[0]:assign f32(8):(1)
      out C[0]:assign f32(8):(1)
    ) {
      block t [i:2] (in A[4*i, 0] f32(4, 9)  out B[4*i]:assign f32(4)  out C[4*i]:assign f32(4)) #tiled {
        block b [m:4, k:9] (in A[m, k] f32(1, 1)  out B[m]:add f32(1)) {
          $a = load(A)
          B = store($a)
        }
        block c [m:4, k:9] (in A[m, k] f32(1, 1)  out C[m]:max f32(1)) {
          $a = load(A)
          C = store($a)
        }
      }
    }
    """
ROWS = """
    block main [] (in X[0] f32(8):(1)  out Y[0]:assign f32(8):(1)) {
      block r [m:2] (in X[4*m] f32(4)  out Y[4*m]:assign f32(4)  new S f32(4):(1)  new T f32(4):(1)) {
        block s [i:4] (in X[i] f32(1)  out S[i]:assign f32(1)) { $x = load(X)  S = store($x) }
        block t [i:4] (in S[i] f32(1)  out T[i]:assign f32(1)) { $x = load(S)  T = store($x) }
        block y [i:4] (in T[i] f32(1)  out Y[i]:assign f32(1)) { $x = load(T)  Y = store($x) }
      }
    }
    """


def run(text: str, step: Localize, records: dict[str, Choice] | None) -> tuple[Program, PassContext]:
    given = None if records is None else Given(records, place="at $.pipeline[0].choices")
    context = PassContext(HW, given=given)
    return step.run(program_of(text), context), context


def kept(program: Program, memory: str) -> set[str]:
    return {
        ref.name
        for _, block in walk(program.root)
        for ref in block.refinements
        if ref.location is not None and ref.location.unit == memory
    }


def test_what_is_chosen_is_said_and_gives_the_same() -> None:
    found, context = run(TWO, REGISTERS, None)
    assert context.choices == {"main/t": Kept(sums=("B", "C"))}
    assert run(TWO, REGISTERS, dict(context.choices))[0] == found
    found, context = run(ROWS, Localize(memory="L1"), None)
    assert context.choices == {"main/r": Kept(near=("S", "T"))}
    assert run(ROWS, Localize(memory="L1"), dict(context.choices))[0] == found


def test_only_what_is_named_is_kept() -> None:
    found, _ = run(TWO, REGISTERS, {"main/t": Kept(sums=("C",))})
    assert kept(found, "REG") == {"C_acc"}
    found, context = run(TWO, REGISTERS, {})
    assert not kept(found, "REG") and not context.choices
    found, _ = run(ROWS, Localize(memory="L1"), {"main/r": Kept(near=("T",))})
    assert kept(found, "L1") == {"T"}


@pytest.mark.parametrize(
    ("text", "step", "record", "said"),
    [
        (TWO, REGISTERS, Kept(sums=("D",)), ("no statement of it adds up in 'D'", "known: A, B, C", ".sums")),
        (TWO, REGISTERS, Kept(sums=("A",)), ("no statement of it adds up in 'A'", ".sums")),
        (TWO, REGISTERS, Kept(sums=("b.C",)), ("no statement of it adds up in 'b.C'", ".sums")),
        (TWO, REGISTERS, Kept(sums=("B", "B")), ("no statement of it adds up in 'B'", ".sums")),
        (ROWS, Localize(memory="L1"), Kept(near=("Y",)), ("'Y' is no buffer of its own", ".near")),
    ],
)  # fmt: skip
def test_what_can_not_be_kept_is_refused(
    text: str, step: Localize, record: Kept, said: tuple[str, ...]
) -> None:
    path = "main/t" if text is TWO else "main/r"
    with pytest.raises(CompileError, match="P009") as error:
        run(text, step, {path: record})
    for words in said:
        assert words in str(error.value)


def test_sums_that_do_not_fit_are_refused() -> None:
    text = TWO.replace("(8, 9)", "(8192, 9)").replace("f32(8)", "f32(8192)").replace("4*i", "4096*i")
    text = text.replace("f32(4)", "f32(4096)").replace("(4, 9)", "(4096, 9)").replace("m:4", "m:4096")
    with pytest.raises(CompileError, match=r"P009(.|\n)*bytes of accumulators of 'B' exceed the \d+ left"):
        run(text, REGISTERS, {"main/t": Kept(sums=("B",))})
