"""`stripec explore`: what is printed, what is written, and what is said of wrong arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stripec.cli import main
from stripec.exploring import command

Capture = pytest.CaptureFixture[str]
SHAPES = ["--shape", "A=i8[64,48]", "--shape", "B=i8[48,80]"]


def explore(*more: str, program: str = "product.tile") -> int:
    return main(["explore", program, *SHAPES, "--jobs", "1", *more])


def test_a_table_and_files(folder: Path, capsys: Capture) -> None:
    assert (
        explore("--vary", "memory.SPAD.bytes=8K,16K", "--vary", "unit.MAC.shape=8x8,16x16", "-o", "out") == 0
    )
    said = capsys.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[0] == "product on systolic_16: 4 points, 2 on the front"
    assert "unit.MAC.shape sets $.stencils[0].indices.j, " in said.out
    (head,) = (line for line in lines if line.startswith("point "))
    assert head.split() == [
        "point", "memory.SPAD.bytes", "unit.MAC.shape", "energy", "latency", "bound", "by",
    ]  # fmt: skip
    rows = lines[lines.index(head) + 1 :][:4]
    assert rows[0].endswith("front") and "16x16" in rows[0] and " uJ " in rows[0] and " us " in rows[0]
    assert said.out.endswith("written: out/points.json, out/pareto.svg\n")
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "journal.jsonl",
        "pareto.svg",
        "points.json",
    ]


def test_how_many_points_of_the_front_are_alike_is_said(folder: Path, capsys: Capture) -> None:
    assert explore("--vary", "memory.SPAD.bytes=64K,128K", "-o", "out") == 0
    said = capsys.readouterr().out
    assert "2 points of the front are as good as another one of it in energy and latency" in said
    assert "capacity and array as an objective would tell more apart" in said
    more = ("--objective", "energy,latency,capacity", "-o", "out")
    assert explore("--vary", "memory.SPAD.bytes=64K,128K", *more) == 0
    assert "as good as another" not in capsys.readouterr().out


def test_json(folder: Path, capsys: Capture) -> None:
    assert explore("--vary", "memory.SPAD.bytes=8K", "--objective", " energy , cycles", "--json") == 0
    said = capsys.readouterr().out
    assert said == Path("stripec-explore", "points.json").read_text(encoding="utf-8")
    assert [o["name"] for o in json.loads(said)["objectives"]] == ["energy", "cycles"]


def test_fields_go_in_step(folder: Path, capsys: Capture) -> None:
    arguments = ["--vary", "memory.SPAD.bytes=8K,16K", "--with", "memory.SPAD.banks=2,4", "--with"]
    assert explore(*arguments, "memory.ACC.banks=1,2", "--vary", "unit.MAC.count=1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [tuple(p["set"].values()) for p in found["points"]] == [(8192, 2, 1, 1), (16384, 4, 2, 1)]
    assert [v["axis"] for v in found["varied"]] == [0, 0, 0, 1]


def test_a_wide_table_leaves_out_what_goes_in_step(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # whatever the terminal of the tests has
    vary = ["--vary", "memory.SPAD.bytes=8K,16K", "--vary", "unit.MAC.shape=8x8,16x16"]
    prices = ["memory.SPAD.read_pj_per_byte=1,2", "memory.SPAD.write_pj_per_byte=3,4"]
    step = [word for price in prices for word in ("--with", price)]
    assert explore(*vary[:2], *step, *vary[2:], "--objective", "energy,array") == 0
    lines = capsys.readouterr().out.splitlines()
    names = "memory.SPAD.read_pj_per_byte, memory.SPAD.write_pj_per_byte"
    assert f"memory.SPAD.bytes is in step with {names}" in lines
    (head,) = (line for line in lines if line.startswith("point "))
    assert head.split()[1:] == ["memory.SPAD.bytes", "unit.MAC.shape", "energy", "array", "(points/cycle)"]
    assert explore(*vary[:2], *step[:2], "-o", "narrow") == 0
    assert "memory.SPAD.bytes  memory.SPAD.read_pj_per_byte  energy" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    assert explore(*vary[:2], *step[:2], "-o", "narrower") == 0
    said = capsys.readouterr().out
    assert "memory.SPAD.bytes is in step with memory.SPAD.read_pj_per_byte\n" in said
    assert "point  memory.SPAD.bytes  energy" in said


def test_bounds_stand_beside_traffic(folder: Path, capsys: Capture) -> None:
    vary = ["--vary", "memory.SPAD.bytes=2K,64K"]
    assert explore(*vary, "--objective", "energy,traffic") == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("point "))
    assert lines[at].split("  ")[-2:] == ["compulsory", "least found"]
    needed = "26.75 KiB"  # 64 x 48 and 48 x 80 of a byte, 64 x 80 of four bytes
    assert all(needed in line for line in lines[at + 1 : at + 3])
    assert explore(*vary, "--objective", "energy") == 0
    assert "compulsory" not in capsys.readouterr().out


def test_what_is_finished_already_is_told(folder: Path, capsys: Capture) -> None:
    vary = ["--vary", "memory.SPAD.bytes=8K,16K", "-o", "out"]
    assert explore(*vary) == 0
    first = capsys.readouterr()
    assert explore(*vary, "--objective", "energy,latency") == 0
    again = capsys.readouterr()
    assert (first.err, again.err) == ("", "2 of 2 points are finished in 'out' already\n")
    assert again.out == first.out


def test_an_interruption_says_what_is_kept(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **given: Any) -> None:
        given["progress"](3, 8)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "explore", interrupted)
    assert explore("--vary", "clock_hz=1G,2G", "-o", "out") == 130
    said = capsys.readouterr().err
    assert said.startswith("3 of 8 points are finished in 'out'; the same command goes on from there\n")


@pytest.mark.parametrize("name", ["points.json", "pareto.svg"])
def test_a_result_that_can_not_be_written_is_told_at_once(folder: Path, capsys: Capture, name: str) -> None:
    Path("out", name).mkdir(parents=True)
    assert explore("--vary", "clock_hz=1G", "-o", "out") == 1
    assert f"can't write 'out/{name}': Is a directory" in capsys.readouterr().err
    assert not Path("out", "journal.jsonl").exists()


def test_programs_have_names(folder: Path, capsys: Capture) -> None:
    shapes = ["--shape", "A=i8[64,48]", "--shape", "one:B=i8[48,80]", "--shape", "sum:B=i8[48]"]
    given = ["one=product.tile", "sum.tile", *shapes, "--vary", "clock_hz=1G", "--jobs", "1"]
    assert main(["explore", *given]) == 0
    assert capsys.readouterr().out.startswith("one, sum on systolic_16: 1 point, 1 on the front\n")


def test_why_points_have_no_mapping_is_said_once(folder: Path, capsys: Capture) -> None:
    vary = ["memory.ACC.bytes=64,192K", "memory.ACC.banks=1,3", "clock_hz=1G,2G"]
    assert explore(*(word for text in vary for word in ("--vary", text))) == 0
    said = capsys.readouterr().out
    assert said.count(": no mapping [") == 1
    assert "\n2 points (0, 1): no mapping [P" in said
    assert "\n2 points (2, 3): refused [H005]: the 64 bytes of 'ACC' do not divide into 3 banks" in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--vary", "memory.SPAD.bytes_per_cycle=0"], 1, "$.memories[1].bytes_per_cycle"),
        (["--vary", "memory.SPAD.bites=1"], 1, "there is: kind, bytes"),
        (["--vary", "memory.SPAD.bytes"], 2, "expected PATH=VALUES, such as"),
        (["--vary", "clock_hz=1G", "--with", "clock_hz"], 2, "expected PATH=VALUES"),
        (["--vary", "memory.SPAD.bytes=8K", "--shape", "A=i8[1,2]"], 1, "--shape A is given twice"),
        (["--vary", "memory.SPAD.bytes=8K", "--objective", "area"], 1, "no objective is named 'area'"),
        (["--vary", "memory.SPAD.bytes=8K", "--objective", ""], 1, "no objective is named ''"),
        (["--vary", "memory.SPAD.bytes=8K", "--jobs", "0"], 2, "expected a positive integer"),
        (["--with", "memory.SPAD.bytes=8K", "--vary", "clock_hz=1"], 2, "there is no --vary before it"),
        (["--vary", "clock_hz=1", "--with", "clock_hz=2"], 1, "--vary clock_hz is given twice"),
        (["--vary", "clock_hz=1G", "-o", "product.tile"], 1, "is a file that is read"),
        (["--vary", "clock_hz=1G", "-o", "product.tile/sweep"], 1, "can't make the folder"),
        ([], 2, "--vary"),
    ],
)
def test_wrong_arguments_are_told(
    folder: Path, capsys: Capture, arguments: list[str], code: int, said: str
) -> None:
    assert explore(*arguments) == code
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_two_programs_of_one_name_are_told(folder: Path, capsys: Capture) -> None:
    assert main(["explore", "product.tile", "./product.tile", *SHAPES, "--vary", "clock_hz=1G"]) == 1
    said = capsys.readouterr().err
    assert "two programs are called 'product'" in said
    assert "product_1=product.tile product_2=product.tile" in said


def test_a_program_that_is_not_there_is_told(folder: Path, capsys: Capture) -> None:
    assert explore("--vary", "clock_hz=1G", program="none.tile") == 1
    assert "can't read 'none.tile'" in capsys.readouterr().err


def test_a_sweep_without_any_mapping_says_so(folder: Path, capsys: Capture) -> None:
    assert explore("--vary", "memory.ACC.bytes=64") == 1
    shown = capsys.readouterr()
    assert "no mapping [" in shown.out
    assert "no point of the sweep has a mapping" in shown.err


def test_a_target_with_caches_is_told(folder: Path, capsys: Capture) -> None:
    assert explore("--target", "x86_64_avx2", "--vary", "memory.L1.bytes=32K") in (0, 1)
    assert "Traceback" not in capsys.readouterr().err
