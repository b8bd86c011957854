"""Packed copies, piece by piece."""

from __future__ import annotations

import pytest

from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import Block, Cast, Constant, Direction, Load, Program, Refinement, Store
from stripe.rewrite_packed import (
    Packed,
    at_load_time,
    from_the_original,
    permuted,
    tiled_dimensions,
)
from tests.support.passes import program_of


def test_strides_of_an_order() -> None:
    assert permuted((2, 3, 5), (0, 1, 2)) == (15, 5, 1)
    assert permuted((2, 3, 5), (2, 0, 1)) == (3, 1, 6)


@pytest.mark.parametrize(
    ("access", "shape", "found"),
    [
        ("8*n, k", "(8, 64)", (("n", 0),)),
        ("8*n + 1, k", "(8, 64)", ()),  # does not start at a tile
        ("8*n + k, 0", "(8, 64)", ()),  # shared with another index
        ("4*n, k", "(8, 64)", ()),  # tiles overlap
        ("n, k", "(1, 64)", ()),  # elements are no tiles
        ("8*n, 8*n", "(8, 8)", ()),  # both dimensions move
        ("2*n, k", "(2, 64)", (("n", 0),)),  # two elements are a tile
        ("64*p, k", "(64, 64)", (("p", 0),)),  # two tiles
        ("64*q, k", "(64, 64)", ()),  # one tile
        ("8*o, k", "(8, 64)", ()),  # the tiles are those of a block around
    ],
)
def test_indexes_that_cut_a_dimension_into_tiles(access: str, shape: str, found: tuple[object, ...]) -> None:
    program = program_of(
        f"""
        block main [] (in A[0, 0] f32(128, 128):(128, 1)  out R[0, 0]:assign f32(4, 64):(64, 1)) {{
          block outer [o:2] (in A[0, 0] f32(128, 128)  out R[0, 0]:max f32(4, 64)) {{
            block t [n:4, k:64, p:2, q:1, o = o] (in A[{access}] f32{shape}  out R[n, k]:max f32(1, 1)) {{
              block c [] (in A[0, 0] f32(1, 1)  out R[0, 0]:assign f32(1, 1)) {{
                $a = load(A) f32
                R = store($a) }} }} }} }}
        """
    )
    (block,) = program.root.children[0].children
    assert tiled_dimensions(block, block.refinement("A")) == found


@pytest.mark.parametrize(
    ("dtype", "zero"), [(DType.BOOL, False), (DType.I8, 0), (DType.U8, 0), (DType.F32, 0.0)]
)
def test_padding_is_zero(dtype: DType, zero: object) -> None:
    """A buffer that no copy writes whole is filled first, with the zero of its type."""
    given = Refinement(
        Direction.IN, "W", (3, 1), dtype, "W", (Affine(), Affine()), strides=(1, 1), const=True
    )
    buffer = Refinement(Direction.NEW, "P", (4, 1), dtype, strides=(1, 1))
    kernel = Block("k")
    program = Program(Block("main", refinements=(given,), statements=(kernel,)))
    made = at_load_time(program, kernel, "W", Packed((), buffer, kernel))
    assert made.load is not None
    (fill,) = made.load.children
    constant, store = fill.statements
    assert isinstance(constant, Constant) and isinstance(store, Store)
    assert constant.value == zero and type(constant.value) is type(zero)
    assert fill.ranges == {"d0": 4}
    assert [(str(r.direction), r.name) for r in made.load.refinements] == [("in", "W"), ("out", "P")]
    assert [r.name for r in made.root.refinements] == ["W", "P"]


BETWEEN = """
    block main [] (
      in A[0, 0] f16(6, 8):(8, 1)
      out R[0, 0]:assign f32(8, 6):(6, 1)
      new T f32(8, 6):(6, 1)
    ) {
      block make [i:8, j:6] (in A[j, i] f16(1, 1)  out T[i, j]:assign f32(1, 1)) {
        $a = load(A) f16
        $b = cast($a) f32
        STORE
      }
      block copy [i:8, j:6] (in T[i, j] f32(1, 1)  out R[i, j]:assign f32(1, 1)) {
        $v = load(T) f32
        R = store($v)
      }
    }
"""


def test_a_copy_of_what_was_converted_converts_the_original() -> None:
    root = program_of(BETWEEN.replace("STORE", "T = store($b)")).root
    made, copy = root.children
    (found,) = from_the_original(root, Packed((copy,), root.refinements[1], made)).copies
    read, written = found.refinements
    assert (read.source, read.dtype, [str(a) for a in read.access]) == ("A", DType.F16, ["j", "i"])
    assert [type(s).__name__ for s in found.statements] == ["Load", "Cast", "Store"]
    load, cast, store = found.statements
    assert isinstance(load, Load) and isinstance(cast, Cast) and isinstance(store, Store)
    assert (cast.operand, cast.dtype, store.value, store.buffer) == (
        load.result, DType.F32, cast.result, written.name,
    )  # fmt: skip


def test_a_copy_of_what_was_computed_stays() -> None:
    root = program_of(BETWEEN.replace("STORE", "$c = neg($b) f32\n T = store($c)")).root
    made, copy = root.children
    assert from_the_original(root, Packed((copy,), root.refinements[1], made)).copies[0] is copy
