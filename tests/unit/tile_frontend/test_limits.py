"""A question that isl gives up is an error with a place, or costs a block of zeros."""

from __future__ import annotations

import pytest

from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType
from stripe.poly import Domain, PolyhedralLimit
from tile_frontend import compile_tile, ranges

TYPES = {"A": TensorType(DType.F32, (4,))}


def give_up(*arguments: object) -> None:
    raise PolyhedralLimit


def test_points_that_are_too_hard_to_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "reparametrise", give_up)
    with pytest.raises(CompileError) as caught:
        compile_tile(Source("hard.tile", "function (A[N]) -> (B) { B[i : N] = +(A[i]); }"), TYPES)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "T039"
    assert diagnostic.span is not None and diagnostic.span.start == 25


def test_coverage_that_is_too_hard_to_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Domain, "is_subset", give_up)
    source = Source("hard.tile", "function (A[N]) -> (B) { B[i + j : N + 1] = +(A[i]), j < 2; }")
    assert [b.name for b in compile_tile(source, TYPES).root.children] == ["B_fill", "B"]
