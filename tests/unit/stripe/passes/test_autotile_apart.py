"""Operands that a stencil takes in a memory of their own count there, and not in the near one."""

from __future__ import annotations

import msgspec
import pytest

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.analysis.liveness import peaks
from stripe.diag import CompileError, Source
from stripe.ir import Program
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import check_pipeline
from tests.support.golden import input_types
from tile_frontend import compile_tile

PRODUCT = "function (X[M, K], W[K, N]) -> (R) { R[m, n : M, N] = +(X[m, k] * W[k, n]); }"


def chip(name: str = "tpu_like", **bytes_: int) -> HwConfig:
    """A target with other sizes; of the TPU-like one, weights come through a memory of their own."""
    hw = load_named(name)
    sized = tuple(msgspec.structs.replace(m, bytes=bytes_.get(m.name, m.bytes)) for m in hw.memories)
    return msgspec.structs.replace(hw, memories=sized)


def compiled(hw: HwConfig, shapes: str = "X=i8[300,1024] W=i8[1024,768]") -> Program:
    source = compile_tile(Source("product.tile", PRODUCT), input_types({"shapes": shapes}))
    return run_pipeline(source, check_pipeline(hw), hw)


@pytest.mark.parametrize("weights", [1 << 17, 1 << 18, 1 << 20])
def test_each_memory_holds_what_lies_in_it(weights: int) -> None:
    hw = chip(WFIFO=weights)
    most = peaks(compiled(hw).root, hw)
    assert 0 < most["WFIFO"].bytes <= weights
    assert most["WFIFO"].bytes >= min(weights, 1024 * 768) // 2  # not smaller tiles than it must


def test_the_near_memory_holds_results_that_pass_through_it_but_no_weights() -> None:
    """Sums of 256 rows by 256, of 4 bytes, are brought to DRAM by way of the near memory."""
    hw = chip(UB=3 << 18)
    most = peaks(compiled(hw, "X=i8[256,256] W=i8[256,1024]").root, hw)
    assert (1 << 18) < most["UB"].bytes <= 3 << 18
    assert most["WFIFO"].bytes >= 1 << 16


def test_sums_that_a_unit_brings_away_directly_take_no_room_in_the_near_memory() -> None:
    """Those of 30 rows by 24 columns, of 4 bytes, and alone half as many again as the near memory holds."""
    hw = chip("nv_full", CBUF=2048)
    most = peaks(compiled(hw, "X=i8[30,8] W=i8[8,24]").root, hw)
    assert most["CACC"].bytes >= 30 * 24 * 4 > 2048 > most["CBUF"].bytes


def test_a_use_that_does_not_fit_names_the_memory() -> None:
    with pytest.raises(
        CompileError, match=r"the smallest needs 131072 bytes of WFIFO, of which there are 32768"
    ):
        compiled(chip(WFIFO=1 << 15))


def test_factors_that_change_places_lie_where_the_stencil_takes_them() -> None:
    """Of one row, the columns stream past the row as weights; there are more than fit the other way round."""
    hw = load_named("tpu_like")
    made = compiled(hw, "X=i8[1,512] W=i8[512,1000]")
    most = peaks(made.root, hw)
    assert most["WFIFO"].bytes == 512 and most["UB"].bytes >= 512 * 1000 // 2
