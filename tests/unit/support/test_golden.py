"""The golden harness must be able to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from stripe.dtypes import DType, TensorType
from tests.support.golden import GoldenFailure, input_types, read_case, run_case

GOOD = "block main [] () {\n}\n"


def write(folder: Path, text: str, name: str = "case.stripe") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def run(path: Path, update: bool = False) -> None:
    run_case(read_case(path), update)


def test_the_expected_text_passes(tmp_path: Path) -> None:
    run(write(tmp_path, f"// why: x\n{GOOD}// ---- expect\n{GOOD}"))


def test_a_difference_is_shown(tmp_path: Path) -> None:
    with pytest.raises(GoldenFailure, match=r"-block other \[\] \(\) \{\n\+block main"):
        run(write(tmp_path, f"{GOOD}// ---- expect\nblock other [] () {{\n}}\n"))


def test_a_missing_expectation_fails_and_can_be_written(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    with pytest.raises(GoldenFailure, match="--update-golden"):
        run(path)
    run(path, update=True)
    assert path.read_text(encoding="utf-8") == f"{GOOD}// ---- expect\n{GOOD}"
    run(path)


def test_an_update_keeps_header_and_input(tmp_path: Path) -> None:
    path = write(tmp_path, "// why: x\nblock [] () {}\n// ---- expect\nstale\n")
    run(path, update=True)
    assert path.read_text(encoding="utf-8") == f"// why: x\nblock [] () {{}}\n// ---- expect\n{GOOD}"


def test_a_text_that_does_not_parse_fails(tmp_path: Path) -> None:
    with pytest.raises(GoldenFailure, match="S001"):
        run(write(tmp_path, "block\n// ---- expect\n"))


def test_what_stands_behind_a_code_is_part_of_the_message(tmp_path: Path) -> None:
    run(write(tmp_path, "block main [x;4] () {}  // error: S001 expected  // a remark\n"))
    with pytest.raises(GoldenFailure, match=r"line 1: no S001 says 'at x=3'"):
        run(write(tmp_path, "block main [x;4] () {}  // error: S001 at x=3\n"))


def test_errors_must_match_code_and_line(tmp_path: Path) -> None:
    run(write(tmp_path, "block main [x;4] () {}  // error: S001\n"))
    with pytest.raises(GoldenFailure, match=r"line 1: expected S002\nline 1: unexpected S001"):
        run(write(tmp_path, "block main [x;4] () {}  // error: S002\n"))
    with pytest.raises(GoldenFailure, match="line 2: expected S001\nline 1: unexpected S001"):
        run(write(tmp_path, "block main [x;4] () {}\n// error: S001\n"))


def test_one_comment_for_each_error(tmp_path: Path) -> None:
    with pytest.raises(GoldenFailure, match="line 1: expected S001"):
        run(write(tmp_path, "block main [x;4] () {}  // error: S001 // error: S001\n"))


@pytest.mark.parametrize("folder", ["passes", "errors"])
def test_a_folder_says_what_its_files_are(tmp_path: Path, folder: str) -> None:
    inside = tmp_path / folder
    inside.mkdir()
    with pytest.raises(GoldenFailure, match=f"a file under {folder}/"):
        run(write(inside, f"{GOOD}// ---- expect\n{GOOD}"))


def test_a_pipeline_runs(tmp_path: Path) -> None:
    path = write(tmp_path, f"// passes: unroll\n// target: generic\n{GOOD}")
    run(path, update=True)
    run(path)


def test_an_error_in_the_pipeline_belongs_on_its_line(tmp_path: Path) -> None:
    run(write(tmp_path, f"// why: x\n// passes: canonicalise  // error: P002\n{GOOD}"))


def test_shapes() -> None:
    assert input_types({"shapes": "A=f32[4, 5] S=i8[]"}) == {
        "A": TensorType(DType.F32, (4, 5)),
        "S": TensorType(DType.I8, ()),
    }
    with pytest.raises(GoldenFailure, match="can't read"):
        input_types({"shapes": "A=f32"})
