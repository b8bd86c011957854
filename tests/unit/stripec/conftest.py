"""A folder to work in, with a target that the interpreter runs and some programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

MATMUL = """function matmul(A[M, K], B[K, N]) -> (C) {
    C[m, n : M, N] = +(A[m, k] * B[k, n]);
}
"""
TARGET = {
    "name": "chip",
    "description": "what the interpreter runs",
    "executor": "interpreter",
    "memories": [{"name": "DRAM", "kind": "explicit"}],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with matmul.tile, a.npy (2 x 3), b.npy (3 x 4) and chip.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRIPEC_DEBUG", raising=False)
    (tmp_path / "matmul.tile").write_text(MATMUL)
    (tmp_path / "chip.json").write_text(json.dumps(TARGET))
    np.save(tmp_path / "a.npy", np.arange(6, dtype="f4").reshape(2, 3))
    np.save(tmp_path / "b.npy", np.arange(12, dtype="f4").reshape(3, 4))
    return tmp_path
