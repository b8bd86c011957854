"""The command: what each subcommand prints and writes, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stripe.diag import Source
from stripe.parser import parse
from stripe.passes.registry import PASSES
from stripec import cli, commands
from stripec.__main__ import main as launch
from stripec.cli import main
from tests.unit.stripe.passes.toys import TOYS

RUN = ["run", "matmul.tile", "--target", "chip.json"]
COMPILE = [
    "compile",
    "matmul.tile",
    "--target",
    "chip.json",
    "--shape",
    "A=f32[2,3]",
    "--shape",
    "B=f32[3,4]",
]
DATA = ["--input", "A=a.npy", "--input", "B=b.npy"]

pytestmark = pytest.mark.usefixtures("folder")
Capture = pytest.CaptureFixture[str]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent)}


def stripec(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stripec", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def test_run_writes_outputs_checks_and_times(capsys: Capture) -> None:
    assert main([*RUN, *DATA, "--output", "C=c.npy", "--check", "--time"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "C: f32[2, 4] = [[20., 23., 26., 29.], [56., 68., 80., 92.]]"
    assert lines[1] == "C: agrees with the interpreter: 0 off, 0.000121 allowed"
    assert lines[2].startswith("median of ")
    assert "(48 operations)" in lines[2] and "(104 bytes in inputs and outputs)" in lines[2]
    np.testing.assert_array_equal(np.load("c.npy"), np.load("a.npy") @ np.load("b.npy"))


def test_run_makes_inputs_and_binds_constants(capsys: Capture) -> None:
    made = ["--input", "A=random:i8[20,30]", "--input", "B=ones:i8[30,4]"]
    assert main([*RUN, *made, "--const", "B", "--seed", "7", "--check"]) == 0
    first = capsys.readouterr().out
    assert first.startswith("C: i32[20, 4], from ")
    assert first.endswith("C: equal to the interpreter's\n")
    assert main([*RUN, *made, "--seed", "7"]) == 0
    assert first.startswith(capsys.readouterr().out)


def test_check_reports_a_difference(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "interpret", lambda *_: {"C": np.zeros((2, 4), "f4")})
    assert main([*RUN, *DATA, "--check"]) == 1
    error = capsys.readouterr().err
    assert "error[D050]: output 'C' differs from the interpreter's at [0, 0]: 20.0 instead of 0.0" in error


def test_nan_infinities_and_empty_arrays_are_data(capsys: Capture) -> None:
    np.save("a.npy", np.array([[np.nan, np.inf, 0]], "f4"))
    assert main([*RUN, *DATA, "--check"]) == 0
    assert "[nan, nan, nan, nan]" in capsys.readouterr().out
    empty = ["--input", "A=zeros:f32[0,3]", "--input", "B=b.npy", "--output", "C=c.npy", "--check"]
    assert main([*RUN, *empty]) == 0
    assert np.load("c.npy").shape == (0, 4)


def test_bf16_goes_through_files(capsys: Capture) -> None:
    Path("double.tile").write_text("function (X) -> (Y) { Y = X + X; }")
    run = ["run", "double.tile", "--target", "chip.json"]
    assert main([*run, "--input", "X=arange:bf16[3]", "--output", "Y=y.npy"]) == 0
    assert main([*run, "--input", "X=y.npy"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "Y: bf16[3] = [0, 4, 8]"


def test_compile_prints_stripe_and_dumps(capsys: Capture) -> None:
    assert main([*COMPILE, "--dump-passes", "dumps"]) == 0
    text = capsys.readouterr().out
    assert parse(Source("out", text)).root.name == "main"
    assert [p.name for p in Path("dumps").iterdir()] == ["00_input.stripe"]
    assert main([*COMPILE, "-o", "out.stripe"]) == 0
    assert Path("out.stripe").read_text() == text
    assert main(["compile", "out.stripe", "--target", "chip.json"]) == 0
    assert capsys.readouterr().out == text


def test_opt_parses_verifies_and_prints(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(COMPILE) == 0
    text = capsys.readouterr().out
    Path("in.stripe").write_text(text)
    for arguments in (["in.stripe"], ["in.stripe", "--target", "x86_64_avx2"], ["in.stripe", "--passes", ""]):
        assert main(["opt", *arguments]) == 0
        assert capsys.readouterr().out == text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["opt", "-"]) == 0
    assert capsys.readouterr().out == text


def test_opt_runs_the_passes_that_are_named(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, where in TOYS.items():
        monkeypatch.setitem(PASSES, name, where)
    assert main([*COMPILE, "-o", "in.stripe"]) == 0
    passes = ["--passes", "toy{memory=DRAM},rename{to=x}", "--dump-passes", "dumps"]
    assert main(["opt", "in.stripe", "--target", "chip.json", *passes]) == 0
    assert parse(Source("out", capsys.readouterr().out)).root.name == "x"
    names = ["00_input.stripe", "01_toy.stripe", "02_rename.stripe"]
    assert sorted(p.name for p in Path("dumps").iterdir()) == names
    assert main(["opt", "in.stripe", "--target", "chip.json", "--passes", "toy{memory=L7}"]) == 1
    assert "error[P005]" in capsys.readouterr().err
    assert main(["opt", "in.stripe", "--passes", "rename,break"]) == 70
    fault = capsys.readouterr().err
    assert "this is a fault of stripec" in fault and "the pass 'break'" in fault
    assert "Traceback" not in fault


def test_targets_are_listed_shown_and_checked(capsys: Capture) -> None:
    assert main(["targets"]) == 0
    listed = capsys.readouterr().out
    assert "paper_figure4" in listed and "(host)" in listed
    assert main(["targets", "show", "chip.json"]) == 0
    assert json.loads(capsys.readouterr().out)["memories"] == [{"name": "DRAM", "kind": "explicit"}]
    assert main(["targets", "check", "chip.json"]) == 0
    assert capsys.readouterr().out == "chip.json: 'chip' is fine: 1 memories, 0 units, 0 passes\n"


def test_what_is_shown_of_a_target_is_a_config_again(capsys: Capture) -> None:
    assert main(["targets", "show", "x86_64_avx512"]) == 0
    shown = capsys.readouterr().out
    Path("again.json").write_text(shown)
    assert main(["targets", "show", "again.json"]) == 0
    assert capsys.readouterr().out == shown


def test_tables_are_drawn_for_a_terminal(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["targets"]) == 0
    assert "paper_figure4" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frobnicate"],
        ["run"],
        ["run", "x.tile", "--input", "A"],
        ["run", "x.tile", "--seed", "-1"],
        ["compile", "x.tile", "--emit", "fortran"],
        ["opt", "x", "--verify", "perhaps"],
        ["targets", "show"],
        ["explain"],
        ["passes", "fuse", "--tags"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: Capture) -> None:
    assert main(arguments) == 2
    assert "usage: stripec" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"], ["targets", "--help"]])
def test_help_exits_with_0(arguments: list[str], capsys: Capture) -> None:
    assert main(arguments) == 0
    assert "stripec" in capsys.readouterr().out


def test_a_fault_of_ours_is_an_apology(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(commands, "compile", crash)
    assert main([*RUN, *DATA]) == 70
    error = capsys.readouterr().err
    assert error.startswith("stripec: this is a fault of stripec, not of your program: ZeroDivisionError")
    assert "Traceback" not in error
    monkeypatch.setenv("STRIPEC_DEBUG", "time")
    assert main([*RUN, *DATA]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt(), 130), (MemoryError(), 1)])
def test_interruption_and_exhausted_memory(
    raised: BaseException, code: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(commands, "compile", stop)
    assert main([*RUN, *DATA]) == code
    error = capsys.readouterr().err
    assert error.startswith("stripec: ") and "Traceback" not in error


def test_debug_words(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPEC_DEBUG", "dump, time")
    assert main(COMPILE) == 0
    assert "in all" in capsys.readouterr().err
    assert Path("stripec-dumps/matmul/00_input.stripe").exists()
    monkeypatch.setenv("STRIPEC_DEBUG", "dmp")
    assert main(COMPILE) == 1
    assert "did you mean 'dump'" in capsys.readouterr().err


def finished(process: subprocess.Popen[str], close: Callable[[], None] = lambda: None) -> tuple[int, str]:
    close()
    _, error = process.communicate(timeout=60)
    return process.returncode, error


def opened_by_reader(name: str, process: subprocess.Popen[str]) -> int:
    """The writing end of a named pipe, once the process reads it, and so waits."""
    while process.poll() is None:
        try:
            return os.open(name, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.01)
    raise AssertionError(finished(process)[1])


def test_ctrl_c_in_a_real_process() -> None:
    os.mkfifo("pipe")
    process = stripec("opt", "pipe")
    writing = opened_by_reader("pipe", process)
    time.sleep(0.3)  # from opening to reading: a signal in between waits for the end of the reading
    process.send_signal(signal.SIGINT)
    code, error = finished(process)
    os.close(writing)
    assert (code, error) == (130, "stripec: interrupted\n")


def test_a_reader_that_goes_away() -> None:
    process = stripec("targets", "schema")
    assert process.stdout is not None
    code, error = finished(process, process.stdout.close)
    assert (code, error) == (141, "")


def test_ctrl_c_during_a_long_call_of_native_code() -> None:
    Path("sums.tile").write_text("function (A[N]) -> (B) { B[i:N] = +(A[k] * A[i - k]); }")
    process = subprocess.Popen(
        [sys.executable, "-m", "stripec", "run", "sums.tile", "--input", "A=ones:f32[2000000]"],
        stderr=subprocess.PIPE, text=True, env=ENVIRONMENT | {"STRIPEC_DEBUG": "time"},
    )  # fmt: skip
    assert process.stderr is not None
    while "in all" not in process.stderr.readline():  # printed when the passes are done
        assert process.poll() is None
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    code, error = finished(process)
    assert code == 130 and error.endswith("stripec: interrupted\n")
    assert time.monotonic() - began < 10, "native code ran to its end, minutes later"


def test_a_table_at_a_terminal_is_no_markup(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["passes", "unroll"]) == 0
    assert "[statements]" in " ".join(capsys.readouterr().out.split())


def test_a_pass_shows_its_record(capsys: Capture) -> None:
    assert main(["passes", "unroll"]) == 0
    assert "Its record in a mapping (indexes, pieces), by block:" in capsys.readouterr().out
    assert main(["passes", "scalarize"]) == 0
    assert "A mapping has no record for it" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it needs a device that is always full")
@pytest.mark.parametrize("arguments", [["targets"], ["targets", "schema"], ["opt", "small.stripe"]])
def test_standard_output_that_is_full(arguments: list[str]) -> None:
    Path("small.stripe").write_text("block main [] () {\n}\n")
    done = subprocess.run(
        f"exec {shlex.join([sys.executable, '-m', 'stripec', *arguments])} > /dev/full",
        shell=True, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, timeout=60,
    )  # fmt: skip
    said = "stripec: can't write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize(("closed", "arguments", "code"), [
    (">&-", ["targets"], 1), (">&-", ["compile", "none.tile"], 1), ("2>&-", ["run", "none.tile"], 1),
    ("<&-", ["opt", "-"], 1),
])  # fmt: skip
def test_standard_streams_that_are_closed(closed: str, arguments: list[str], code: int) -> None:
    done = subprocess.run(
        f"exec {shlex.join([sys.executable, '-m', 'stripec', *arguments])} {closed}",
        shell=True, capture_output=True, text=True, env=ENVIRONMENT, timeout=60,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stdout == ""


def test_an_output_of_rank_0_keeps_its_rank() -> None:
    Path("sum.tile").write_text("function (A[M, K]) -> (S) { S[] = +(A[m, k]); }")
    assert (
        main(["run", "sum.tile", "--target", "chip.json", "--input", "A=a.npy", "--output", "S=s.npy"]) == 0
    )
    found = np.load("s.npy")
    assert (found.shape, found.item()) == ((), 15)


@pytest.mark.parametrize("emit", ["obj", "shared"])
@pytest.mark.parametrize("out", [".", "..", "/"])
def test_code_does_not_go_to_a_folder(emit: str, out: str, capsys: Capture) -> None:
    arguments = ["compile", "matmul.tile", "--shape", "A=f32[2,3]", "--shape", "B=f32[3,4]", "--emit", emit]
    assert main([*arguments, "--target", "generic", "-o", out]) == 1
    assert "Is a directory" in capsys.readouterr().err


def test_ctrl_c_while_the_command_loads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("stripec.__main__._command", interrupted)
    assert launch() == 130
    assert capsys.readouterr().err == "stripec: interrupted\n"


def test_full_verification_says_what_it_proved(capsys: Capture) -> None:
    assert main(["run", "matmul.tile", "--target", "generic", *DATA, "--verify", "full", "--check"]) == 0
    shown = capsys.readouterr()
    assert "validated " in shown.err and "checked 0 steps by running" in shown.err
    assert "agrees with the interpreter" in shown.out or "equal to the interpreter's" in shown.out
    compile_ = [
        "compile",
        "matmul.tile",
        "--target",
        "generic",
        "--shape",
        "A=f32[2,3]",
        "--shape",
        "B=f32[3,4]",
    ]
    assert main([*compile_, "--verify", "full"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("block main") and "validated " in shown.err


def test_shapes_behind_one_option_are_told_apart(capsys: Capture) -> None:
    assert main(["compile", "matmul.tile", "--shape", "A=f32[2,3]", "B=f32[3,4]", "C=f32[4]"]) == 2
    said = capsys.readouterr().err
    assert "unrecognized arguments: B=f32[3,4] C=f32[4]" in said
    assert said.endswith("--shape B=f32[3,4] --shape C=f32[4]\n")
    assert main(["compile", "matmul.tile", "--shapes"]) == 2
    assert "help:" not in capsys.readouterr().err
