"""Object code on disk: found again, never trusted when damaged, no fault when there is no place for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from codegen_cpu import cache
from codegen_cpu.build import Module, build
from codegen_cpu.cache import Code
from codegen_cpu.kernel import NativeKernel
from hwconfigs.load import load_named
from stripe.diag import Source
from stripe.parser import parse

TEXT = """
block main [] (in A[0] f32(9):(1)  out B[0]:assign f32(9):(1)  new T f32(9):(1)) {
  block twice [n:9] (in A[n] f32(1)  out T[n]:assign f32(1)) #vector=n {
    $a = load(A) f32
    $b = add($a, $a) f32
    T = store($b)
  }
  block back [n:9] (in T[n] f32(1)  out B[8 - n]:assign f32(1)) {
    $t = load(T) f32
    B = store($t)
  }
}
"""


def module(folder: Path, target: str = "generic", text: str = TEXT) -> Module:
    return build(parse(Source("test.stripe", text)), load_named(target), cache=folder)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.o"))


def check(made: Module) -> None:
    values = np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(NativeKernel(made)(values), 2 * values[::-1])


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The symbols of the modules that were compiled, as it happens."""
    found: list[str] = []
    original = Module._compiled

    def compile_it(self: Module) -> Code:
        found.append(self.symbol)
        return original(self)

    monkeypatch.setattr(Module, "_compiled", compile_it)
    return found


def test_a_second_module_finds_the_code(tmp_path: Path, compiled: list[str]) -> None:
    check(module(tmp_path))
    assert len(entries(tmp_path)) == 1 and len(compiled) == 1
    check(module(tmp_path))
    assert len(compiled) == 1
    left = [p for p in tmp_path.iterdir() if p.suffix not in (".o", ".note")]
    assert not left, "temporary files stay behind"


def test_what_shapes_the_code_is_in_the_key(tmp_path: Path) -> None:
    module(tmp_path).object_code  # noqa: B018
    module(tmp_path, "x86_64_avx2").object_code  # noqa: B018
    module(tmp_path, text=TEXT.replace("#vector=n", "")).object_code  # noqa: B018
    build(parse(Source("t", TEXT)), load_named("generic"), name="other", cache=tmp_path).object_code  # noqa: B018
    assert len(entries(tmp_path)) == 4


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d[:20], lambda d: b"", lambda d: d[:99] + b"x" + d[100:]]
)
def test_damaged_entries_are_made_anew(
    tmp_path: Path, compiled: list[str], damage: Callable[[bytes], bytes]
) -> None:
    check(module(tmp_path))
    (entry,) = entries(tmp_path)
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    check(module(tmp_path))
    assert len(compiled) == 2 and entry.read_bytes() == whole


def test_a_folder_that_is_none_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("here first")
    check(module(file))
    check(module(file / "below"))
    check(module(Path("/proc/nowhere")))
    assert file.read_text() == "here first"


def test_the_oldest_entries_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_BYTES", 10_000)
    for number in range(6):
        cache.keep(tmp_path, f"e{number}", Code(bytes(3000), 0, 0))
        if entries(tmp_path):
            os.utime(tmp_path / f"e{number}.o", (number, number))
    names = [p.stem for p in entries(tmp_path)]
    assert names[-1] == "e5" and "e0" not in names
    assert sum(p.stat().st_size for p in entries(tmp_path)) <= 10_000


def test_other_processes_find_it(tmp_path: Path) -> None:
    made = module(tmp_path)
    assert made.object_code
    (entry,) = entries(tmp_path)
    before = entry.stat().st_ino
    script = (
        "import sys; from pathlib import Path; from tests.unit.codegen_cpu.test_cache import *;"
        "check(module(Path(sys.argv[1])))"
    )
    root = Path(__file__).parents[3]
    runs = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=root, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for process in runs:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert entries(tmp_path) == [entry] and entry.stat().st_ino == before
