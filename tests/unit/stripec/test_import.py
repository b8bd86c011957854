"""`import stripec`: quick, and clear where another package sits in the place of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stripec

ROOT = Path(stripec.__file__).parent.parent


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_another_package_named_stripe_is_recognised(tmp_path: Path) -> None:
    other = tmp_path / "stripe"
    other.mkdir()
    (other / "__init__.py").write_text("api_key = None")
    done = run("import stripec", tmp_path, ROOT)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"ImportError: the package 'stripe' that stripec needs is another package, in {other}"
    )
    assert "make a new virtual environment" in last


def test_what_few_programs_need_is_not_imported() -> None:
    done = run("import sys, stripec; stripec.compile; print(*sys.modules)", ROOT)
    loaded = set(done.stdout.split())
    assert "stripec.api" in loaded, done.stderr
    assert not loaded & {"networkx", "rich", "scipy", "sklearn", "PIL", "matplotlib"}


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compil'"):
        stripec.compil  # noqa: B018  # type: ignore[attr-defined]


def test_the_names_that_are_public() -> None:
    names = ["CompileError", "Kernel", "compile", "explore", "mapping", "openmp", "report", "simulate"]
    assert stripec.__all__ == names
    assert stripec.__version__.count(".") == 2
