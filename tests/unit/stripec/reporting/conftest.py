"""Reports of one program for several targets, made once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import stripec
from stripec.reporting.model import Report

CONV = Path(__file__).parents[4] / "examples" / "conv.tile"
TARGETS = ("x86_64_avx512", "systolic_16", "many_core", "vector_dsp")


@cache
def made(target: str) -> Report:
    """The report of a small convolution, without times."""
    shapes = {"I": "i8[14,14,32]", "F": "i8[3,3,32,64]"}
    if target != "systolic_16":
        shapes = {name: text.replace("i8", "f32") for name, text in shapes.items()}
    return stripec.report(CONV, shapes, target, times=False, verify="off")
