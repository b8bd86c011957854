"""The journal: what is in it stays, what was cut off goes, and what is not its own is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stripe.diag import CompileError
from stripec.exploring.journal import NAME, Journal
from stripec.exploring.result import Measured, Outcome

HEADER: dict[str, Any] = {
    "compiler": "1-ab",
    "programs": {"p": "12"},
    "target": "34",
    "varied": [{"a": [1, 2]}],
}
OUTCOMES = [
    Outcome(
        status="mapped",
        programs=[
            Measured(
                program="p", cycles=n, seconds=n / 3, energy_pj=0.1 * n, operations=7, bound="U", memories=[]
            )
        ],
    )
    if n % 3
    else Outcome(status="no mapping", code="P1", reason=f"no \n room {n}\N{SNOWMAN}", notes=["so"])
    for n in range(6)
]  # fmt: skip


def opened(folder: Path, header: dict[str, Any] = HEADER, points: int = 6) -> Journal:
    return Journal(folder, header, points)


def written(folder: Path, count: int) -> bytes:
    with opened(folder) as journal:
        for number in range(count):
            journal.add(number, OUTCOMES[number])
    return (folder / NAME).read_bytes()


def refused(folder: Path, header: dict[str, Any] = HEADER) -> str:
    """What is said, and that the file stays as it is."""
    before = (folder / NAME).read_bytes()
    with pytest.raises(CompileError) as caught:
        opened(folder, header)
    assert (folder / NAME).read_bytes() == before
    return str(caught.value)


def test_what_is_added_is_found(tmp_path: Path) -> None:
    data = written(tmp_path / "new" / "folder", 6)
    assert data.count(b"\n") == 7
    with opened(tmp_path / "new" / "folder") as journal:
        assert journal.finished == dict(enumerate(OUTCOMES))
    assert (tmp_path / "new" / "folder" / NAME).read_bytes() == data


def test_a_line_is_on_disk_when_it_is_added(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.add(2, OUTCOMES[2])
        assert (tmp_path / NAME).read_bytes().count(b'"point":2') == 1


def test_a_last_line_that_was_cut_off_is_dropped_wherever_it_was_cut(tmp_path: Path) -> None:
    data = written(tmp_path, 3)
    start = data[:-1].rfind(b"\n") + 1
    for end in range(start, len(data)):
        (tmp_path / NAME).write_bytes(data[:end])
        with opened(tmp_path) as journal:
            assert journal.finished.keys() == {0, 1}
            journal.add(2, OUTCOMES[2])
        assert (tmp_path / NAME).read_bytes() == data


def test_a_header_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    data = written(tmp_path, 0)
    for end in range(len(data)):
        (tmp_path / NAME).write_bytes(data[:end])
        with opened(tmp_path) as journal:
            assert journal.finished == {}
        assert (tmp_path / NAME).read_bytes() == data


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_damage_is_refused_with_its_line(tmp_path: Path, data: st.DataObject) -> None:
    (tmp_path / NAME).unlink(missing_ok=True)
    whole = written(tmp_path, 4)
    place = data.draw(st.integers(0, len(whole) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != whole[place]))
    (tmp_path / NAME).write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
    line = whole.count(b"\n", 0, place) + 1
    assert f"{NAME}:{line}: " in refused(tmp_path)


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], 3, "point 0, which is finished above"),
        (lambda lines: [lines[0], b"", *lines[1:]], 2, "not as it was written"),
        (lambda lines: [lines[0], b"{}", *lines[1:]], 2, "not as it was written"),
        (lambda lines: [lines[0], lines[1] + b" ", *lines[2:]], 2, "not as it was written"),
        (lambda lines: lines[1:], 1, "no journal of stripec explore"),
        (lambda lines: [b"[1]"], 1, "no journal of stripec explore"),
        (lambda lines: [b"hello"], 1, "no journal of stripec explore"),
        (lambda lines: [b"\xff\xfe\x00"], 1, "no journal of stripec explore"),
    ],
)
def test_lines_that_are_not_its_own_are_refused(tmp_path: Path, change: Any, line: int, said: str) -> None:
    lines = written(tmp_path, 3).split(b"\n")[:-1]
    (tmp_path / NAME).write_bytes(b"\n".join(change(lines)) + b"\n")
    told = refused(tmp_path)
    assert f"{NAME}:{line}: " in told and said in told
    assert "as it is" in told


def test_a_point_that_is_none_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 6)
    with pytest.raises(CompileError, match="point 4; there are 4"):
        opened(tmp_path, points=4)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("compiler", "1-cd", "another version of stripec"),
        ("programs", {"q": "12"}, "other programs or types"),
        ("target", "35", "another target"),
        ("varied", [{"a": [1, 3]}], "other varied fields or values"),
    ],
)
def test_the_journal_of_another_sweep_is_refused(tmp_path: Path, key: str, value: Any, said: str) -> None:
    written(tmp_path, 2)
    told = refused(tmp_path, HEADER | {key: value})
    assert "error[D104]" in told and said in told and f"{NAME}:1: " in told


def test_text_without_an_end_that_is_no_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"notes of mine")
    assert "no journal of stripec explore" in refused(tmp_path)


def test_two_sweeps_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with opened(tmp_path):
        assert "error[D106]" in refused(tmp_path)
    opened(tmp_path).close()


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / NAME).mkdir()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path):
        with pytest.raises(CompileError, match=r"error\[D010\]"):
            opened(folder)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to("/dev/zero")
    with pytest.raises(CompileError, match="it is no file"):
        opened(tmp_path)


def test_a_full_disk_is_told_and_what_was_written_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[:40])

    with opened(tmp_path) as journal:
        journal.add(0, OUTCOMES[0])
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(CompileError, match=r"can't write .*No space left"):
            journal.add(1, OUTCOMES[1])
    monkeypatch.undo()
    with opened(tmp_path) as journal:
        assert journal.finished == {0: OUTCOMES[0]}
