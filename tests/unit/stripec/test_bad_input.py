"""Bad input through the command: a message with its place, exit code 1, no traceback, no hang.

What each front end says is tested beside it; here, that it arrives.
"""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stripec.cli import main
from tests.unit.stripec.conftest import MATMUL, TARGET

RUN = ["run", "matmul.tile", "--target", "chip.json", "--input", "A=a.npy", "--input", "B=b.npy"]
Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("folder")


def refused(arguments: list[str], capsys: Capture) -> str:
    """The message of a run that fails as a user's mistake does."""
    code = main(arguments)
    shown = capsys.readouterr()
    assert code == 1, f"exit code {code}: {shown.err[:500]}"
    assert "Traceback" not in shown.err
    assert "error[" in shown.err
    assert shown.out == ""
    return shown.err


DEEP = 3000


@pytest.mark.parametrize(
    ("tile", "place", "code"),
    [
        (MATMUL.replace("+(", "+[("), "matmul.tile:2:", "T"),
        (MATMUL.replace("B[k, n]", "X[k, n]"), "matmul.tile:2:", "T"),
        (MATMUL.replace("B[k, n]", "f(B)"), "matmul.tile:2:", "T"),
        (MATMUL.replace("B[k, n]", "B[k]"), "matmul.tile:2:", "T"),
        (MATMUL.replace("B[k, n]", "B[n, k]").replace("[K, N]", "[K, M]"), "matmul.tile:", "T"),
        (MATMUL.replace("A[m, k]", "A[q - r, k]"), "matmul.tile:2:", "T"),
        (MATMUL.replace(";", "; C = A;"), "matmul.tile:2:", "T"),
        (MATMUL.replace("+(A", "=(A"), "matmul.tile:2:", "T"),
        (MATMUL.replace(";", ", k < 2, k - 5 < 2;"), "matmul.tile:2:", "T"),
        ("", "matmul.tile:1:1", "T"),
        ("function (A, B) -> (C) { C = " + "(" * DEEP + "A" + ")" * DEEP + " + B; }", "", ""),
        ("function (A, B) -> (C) { C = " + "-" * DEEP + "A + B; }", "", ""),
        ("function (A, B) -> (C) { C = " + "A + " * DEEP + "B; }", "", ""),
    ],
)  # fmt: skip
def test_tile_programs(tile: str, place: str, code: str, capsys: Capture) -> None:
    Path("matmul.tile").write_text(tile)
    if code:
        message = refused(RUN, capsys)
        assert message.startswith(place), message
        assert f"error[{code}" in message
    else:  # deep, but no mistake: either it is compiled or it is refused, and shapes refuse A + B here
        assert main(RUN) in (0, 1)
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["", "block", "block main [] () {" * DEEP, "block main [x:" + "9" * 5000 + "] () {}", "\0", "é" * 100],
)
def test_stripe_texts(text: str, capsys: Capture) -> None:
    Path("bad.stripe").write_text(text)
    for command in (["opt"], ["compile"], ["run"]):
        assert "bad.stripe:" in refused([*command, "bad.stripe", "--target", "chip.json"], capsys)


def test_files_of_programs(capsys: Capture) -> None:
    Path("latin.tile").write_bytes(b"function (A) -> (B) { B = A; } // \xe9")
    assert "not UTF-8 text: byte 34" in refused(["run", "latin.tile"], capsys)
    assert "it is a directory" in refused(["run", "."], capsys)
    assert "No such file" in refused(["compile", "none.tile"], capsys)
    assert "No such file" in refused(["opt", "none.stripe"], capsys)
    assert "error[D001]" in refused(["run", "a\0b.tile"], capsys)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--input", "A=a.npy"], "--input A is given twice"),
        (["--input", "AA=a.npy"], "did you mean 'A'"),
        (["--output", "D=d.npy"], "--output D: no such output"),
        (["--const", "Q"], "--const Q: no such input"),
        (["--target", "chpi.json"], "there is no such file"),
        (["--target", "generc"], "did you mean 'generic'"),
    ],
)
def test_arguments(more: list[str], said: str, capsys: Capture) -> None:
    assert said in refused([*RUN, *more], capsys)


def test_inputs_that_are_missing_or_of_a_wrong_shape(capsys: Capture) -> None:
    message = refused(RUN[:-2], capsys)
    assert "input 'B' is not given" in message and "--input B=random:" in message
    np.save("b.npy", np.zeros((4, 4), "f4"))
    assert "error[T" in refused(RUN, capsys)
    np.save("b.npy", np.zeros(3, "f4"))
    assert "error[T" in refused(RUN, capsys)
    np.save("b.npy", np.zeros((3, 4), complex))
    assert "complex128" in refused(RUN, capsys)
    Path("b.npy").write_bytes(Path("a.npy").read_bytes()[:-4])
    assert "truncated" in refused(RUN, capsys)
    np.save("b.npy", np.array([[{}]]), allow_pickle=True)
    assert "pickled Python objects" in refused(RUN, capsys)


def config(**changes: Any) -> str:
    return json.dumps(TARGET | changes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1, column 2"),
        (config(memorise=[]), "did you mean 'memories'"),
        (config(memories=[{"name": "A", "kind": "cahced"}]), "did you mean 'cached'"),
        (config(memories=[{"name": "A", "kind": "cached", "backing": "B"}]), "no memory is named 'B'"),
        (config(pipeline=[{"pass": "autotyle"}]), "did you mean 'autotile'"),
        (config(extends="chip.json"), "chip.json -> chip.json"),
        (config(extends="nothing"), "no target is named 'nothing'"),
    ],
)
def test_configs(text: str, said: str, capsys: Capture) -> None:
    Path("chip.json").write_text(text)
    for arguments in (["targets", "check", "chip.json"], ["targets", "show", "chip.json"], RUN):
        assert said in refused(arguments, capsys)


def test_an_output_that_can_not_be_written_keeps_the_old_file(capsys: Capture) -> None:
    Path("c.npy").mkdir()
    main([*RUN, "--output", "C=c.npy"])
    assert "can't write 'c.npy': Is a directory" in capsys.readouterr().err
    assert "can't write 'none/c.npy'" in main_error([*RUN, "--output", "C=none/c.npy"], capsys)


def main_error(arguments: list[str], capsys: Capture) -> str:
    assert main(arguments) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("f64[1000000,1000000]", "of memory; this machine has"),
        ("f64[1000000000,1000000000,1000000000]", "of memory; this machine has"),
        ("f64[99999999999999999999]", "sizes go from 0"),
    ],
)
def test_tensors_too_large(shape: str, said: str, capsys: Capture) -> None:
    Path("double.tile").write_text("function (X) -> (Y) { Y = X + X; }")
    arguments = ["run", "double.tile", "--target", "chip.json", "--input", f"X=zeros:{shape}"]
    assert said in refused(arguments, capsys)


def test_an_output_too_large_for_memory(capsys: Capture) -> None:
    Path("outer.tile").write_text("function (X[N]) -> (Y) { Y[i, j : N, N] = +(X[i] * X[j]); }")
    arguments = ["run", "outer.tile", "--target", "chip.json", "--input", "X=zeros:f64[4000000]"]
    assert "the largest tensor is 'Y', f64[4000000, 4000000]" in refused(arguments, capsys)


def test_hundreds_of_statements_take_seconds(capsys: Capture) -> None:
    names = ["A", *(f"X{number}" for number in range(600))]
    steps = "".join(f"  {new} = {old} + 1;\n" for old, new in itertools.pairwise(names))
    Path("long.tile").write_text(f"function (A) -> ({names[-1]}) {{\n{steps}}}\n")
    began = time.monotonic()
    assert main(["run", "long.tile", "--target", "generic", "--input", "A=zeros:f32[3]"]) == 0
    assert "[600., 600., 600.]" in capsys.readouterr().out
    assert time.monotonic() - began < 30, "it took minutes when each fusion rebuilt all that was fused before"
