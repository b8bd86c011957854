"""No command writes over what it reads, nor two results to one file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stripec.cli import main

ROWS = "function (X[M, N]) -> (S, T) { S[m : M] = +(X[m, n]); T = S + S; }"
SHAPE = "--shape=X=f32[4,5]"
INPUT = "--input=X=random:f32[4,5]"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("rows.tile").write_text(ROWS)
    Path("link.tile").symlink_to("rows.tile")
    Path("rows.h").write_text(ROWS)
    shutil.copy("rows.tile", "sub.tile")
    assert main(["map", "rows.tile", SHAPE, "-o", "m.json"]) == 0
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "rows.tile", SHAPE, "-o", "rows.tile"],
        ["compile", "rows.tile", SHAPE, "--emit=asm", "-o", "./rows.tile"],
        ["compile", "rows.tile", SHAPE, "--emit=llvm", "-o", "link.tile"],
        ["compile", "link.tile", SHAPE, "--emit=obj", "-o", "rows.tile"],
        ["compile", "rows.h", SHAPE, "--emit=obj"],  # the header would go there
        ["compile", "rows.tile", SHAPE, "--emit=obj", "-o", "new.h"],
        ["compile", "rows.tile", SHAPE, "--mapping=m.json", "-o", "m.json"],
        ["map", "rows.tile", SHAPE, "-o", "rows.tile"],
        ["report", "rows.tile", SHAPE, "-o", "rows.tile"],
        ["report", "rows.tile", SHAPE, "--diff", "sub.tile", "-o", "sub.tile"],
        ["run", "rows.tile", INPUT, "--output=S=rows.tile"],
        ["run", "rows.tile", INPUT, "--output=S=new.npy", "--output=T=./new.npy"],
        ["simulate", "rows.tile", SHAPE, "--trace=rows.tile"],
    ],
    ids=" ".join,
)
def test_files_that_are_read_stay(folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert main(words) == 1
    assert "error[D012]: can't write '" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_an_input_array_stays() -> None:
    assert main(["run", "rows.tile", INPUT, "--output=S=x.npy"]) == 0
    before = Path("x.npy").read_bytes()
    Path("twice.tile").write_text("function (X[M]) -> (Y) { Y = X + X; }")
    assert main(["run", "twice.tile", "--input=X=x.npy", "--output=Y=x.npy"]) == 1
    assert Path("x.npy").read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "rows.tile", SHAPE, "-o", "rows.stripe"],
        ["compile", "rows.tile", SHAPE, "--emit=obj", "-o", "/dev/null"],
        ["run", "rows.tile", INPUT, "--output=S=/dev/null", "--output=T=/dev/null"],
        ["map", "rows.tile", SHAPE, "-o", "host"],  # the name of a target, which is no file
    ],
    ids=" ".join,
)
def test_other_files_and_devices_are_written(words: list[str]) -> None:
    assert main(words) == 0
    assert not Path("/dev/null.h").exists()


@pytest.mark.parametrize("emit", ["obj", "shared"])
def test_code_that_can_not_be_written_leaves_no_header(emit: str, folder: Path) -> None:
    if emit == "shared" and not (shutil.which("cc") or shutil.which("ld")):
        pytest.skip("no linker here")
    Path("taken.so").mkdir()
    before = set(folder.iterdir())
    for out in ("taken.so", "no/folder/rows.so", "x" * 300):
        assert main(["compile", "rows.tile", SHAPE, f"--emit={emit}", "-o", out]) == 1
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize("name", ["x" * 300, "\0", "x/" * 3000])
@pytest.mark.parametrize(
    "words",
    [
        ["compile", "rows.tile", SHAPE, "-o"],
        ["compile", "rows.tile", SHAPE, "--emit=obj", "-o"],
        ["map", "rows.tile", SHAPE, "-o"],
        ["report", "rows.tile", SHAPE, "-o"],
        ["simulate", "rows.tile", SHAPE, "--trace"],
        ["explore", "rows.tile", SHAPE, "--vary=memory.SPAD.bytes=64K", "-o"],
        ["run", "rows.tile", INPUT, "--output", "S="],
    ],
    ids=" ".join,
)
def test_names_that_no_file_can_have(
    words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    words = [*words[:-1], words[-1] + name] if words[-1] == "S=" else [*words, name]
    assert main(words) == 1
    assert "error[D010]" in capsys.readouterr().err
