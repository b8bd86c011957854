"""Tile programs of all kinds, each with the types of its inputs and what NumPy gives for it.

`CORPUS` is for every test that wants programs: the interpreter must agree with the references,
passes must keep the results, native code must agree with the interpreter.
"""

from __future__ import annotations

from tests.support.tile_cases import TileCase, assert_agrees, expected, make_inputs
from tests.support.tile_contractions import CONTRACTIONS
from tests.support.tile_elementwise import ELEMENTWISE
from tests.support.tile_tensors import PIPELINES, TENSORS

__all__ = ["CORPUS", "TileCase", "assert_agrees", "expected", "make_inputs"]

CORPUS: tuple[TileCase, ...] = (*ELEMENTWISE, *CONTRACTIONS, *TENSORS, *PIPELINES)
