"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stripe.diag import CompileError
from stripe.files import make_folder, write_whole


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")
    write_whole(path, b"new")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    write_whole(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_an_older_file_stays_whole_when_the_new_one_can_not_be_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(CompileError, match=r"error\[D010\]: can't write '.*a.txt': No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("name", ["none/a.txt", "a\0b", "x" * 300, "file/a.txt"])
def test_places_that_can_not_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompileError, match=r"error\[D010\]"):
        write_whole(tmp_path / name, "text")
    with pytest.raises(CompileError, match=r"error\[D010\]"):
        write_whole(tmp_path, "text")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    read, write = os.pipe()
    write_whole(Path(f"/dev/fd/{write}"), "text")
    os.close(write)
    assert os.read(read, 10) == b"text"
    os.close(read)
    write_whole(Path(os.devnull), "text")
    assert Path(os.devnull).is_char_device()


def test_folders(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(CompileError, match="can't make the folder"):
        make_folder(tmp_path / "file")
