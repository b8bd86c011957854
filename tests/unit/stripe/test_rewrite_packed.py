"""Packed copies, piece by piece."""

from __future__ import annotations

import pytest

from stripe.affine import Affine
from stripe.diag import Source
from stripe.dtypes import DType
from stripe.ir import Block, Cast, Constant, Direction, Load, Program, Refinement, Store
from stripe.names import Names
from stripe.parser import parse
from stripe.rewrite_packed import (
    Layout,
    Packed,
    at_load_time,
    from_the_original,
    pack,
    permuted,
    tiled_dimensions,
)
from stripe.verify import findings
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


TILE = """
        block tile [i:4, j:6] (in A[j, i] f16(1, 1)  out T[i, j]:assign f32(1, 1)) {
          $a = load(A) f16
          $b = cast($a) f32
          T = store($b)
        }
"""
UPPER = TILE.replace("i:4", "i:2")


@pytest.mark.parametrize(
    ("inside", "read"),
    [
        (TILE, "A[j, i]"),
        (UPPER + UPPER.replace("[j, i]", "[j, i + 2]").replace("[i, j]", "[i + 2, j]"), "T[i, j]"),
    ],
)
def test_a_copy_of_what_the_tiles_of_one_block_convert_converts_the_original(inside: str, read: str) -> None:
    head, tail = BETWEEN.index("block make"), BETWEEN.index("block copy")
    maker = f"block make [t:2] (in A[0, 4*t] f16(6, 4)  out T[4*t, 0]:assign f32(4, 6)) {{ {inside} }} "
    root = program_of(BETWEEN[:head] + maker + BETWEEN[tail:]).root
    made, copy = root.children
    (found,) = from_the_original(root, Packed((copy,), root.refinements[1], made)).copies
    ref = found.refinements[0]
    assert f"{ref.source}[{', '.join(map(str, ref.access))}]" == read


@pytest.mark.parametrize(
    ("limit", "read"),
    [
        ("7 - i - io >= 0", "A[j, i]"),  # the last tile is cut off where the buffer ends
        ("6 - i - io >= 0", "T[i, j]"),  # or an element before that
        ("7 - i - io >= 0  5 - j - io >= 0", "T[i, j]"),
    ],
)
def test_a_copy_of_what_ragged_tiles_convert_converts_the_original(limit: str, read: str) -> None:
    head, tail = BETWEEN.index("block make"), BETWEEN.index("block copy")
    tile = TILE.replace("i:4, j:6] (", f"i:3, j:6, io = 3*t] ({limit} ")
    maker = f"block make [t:3] (in A[0, 3*t] f16(6, 3)  out T[3*t, 0]:assign f32(3, 6)) {{ {tile} }} "
    root = parse(Source("test.stripe", BETWEEN[:head] + maker + BETWEEN[tail:])).root
    made, copy = root.children
    (found,) = from_the_original(root, Packed((copy,), root.refinements[1], made)).copies
    ref = found.refinements[0]
    assert f"{ref.source}[{', '.join(map(str, ref.access))}]" == read


MADE = """
    load block before [] (in W[0, 0, 0] f16(4, 1, 6)  out V[0, 0, 0]:assign f32(4, 1, 6)) {
      block make [i:4, j:6] (in W[i, 0, j] f16(1, 1, 1)  out V[i, 0, j]:assign f32(1, 1, 1)) {
        $w = load(W) f16
        $x = OPERATION f16
        $v = cast($x) f32
        V = store($v)
      }
    }

    block main [] (
      const in W[0, 0, 0] f16(4, 1, 6)
      in V[0, 0, 0] f32(4, 1, 6)
      out R[0, 0]:assign f32(6, 4)
    ) {
      block k [j:6, i:4] (in V[i, 0, j] f32(1, 1, 1)  out R[j, i]:assign f32(1, 1)) {
        $v = load(V) f32
        R = store($v)
      }
    }
"""


@pytest.mark.parametrize(
    ("operation", "children", "views"),
    [
        ("cast($w)", ["V_pack"], {"W": "in", "V_packed": "out"}),
        ("neg($w)", ["make", "V_pack"], {"W": "in", "V": "new", "V_packed": "out"}),
    ],
)
def test_what_was_made_at_load_time_stays_there_if_a_copy_of_it_needs_it(
    operation: str, children: list[str], views: dict[str, str]
) -> None:
    """The copy writes the whole buffer, so nothing fills it; dimensions of one element have no index."""
    program = program_of(MADE.replace("OPERATION", operation))
    root, (kernel,) = program.root, program.root.children
    packed = pack(root, kernel, kernel.refinements[0], Layout((), (2, 1, 0)), Names(["V", "W", "R"]))
    made = at_load_time(program, kernel, "V", packed)
    assert not findings(made)
    assert made.load is not None
    assert [b.name for b in made.load.children] == children
    assert {r.name: str(r.direction) for r in made.load.refinements} == views
    assert [r.name for r in made.root.refinements] == ["W", "V_packed", "R"]
    copy = made.load.children[-1]
    assert list(copy.ranges.items()) == [("d2", 6), ("d0", 4)]
    assert [[str(e) for e in r.access] for r in copy.refinements] == [["d0", "0", "d2"]] * 2
