"""A folder with two small programs, and a sweep of them that takes a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
SUM = "function (A[M, K], B[K]) -> (C) { C = A + B; }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRIPEC_DEBUG", raising=False)
    (tmp_path / "product.tile").write_text(PRODUCT, encoding="utf-8")
    (tmp_path / "sum.tile").write_text(SUM, encoding="utf-8")
    return tmp_path
