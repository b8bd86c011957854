"""split: a buffer that is put together of pieces becomes a buffer for each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwconfigs.load import load_named
from stripe.diag import Source
from stripe.dtypes import DType, TensorType
from stripe.interp import interpret
from stripe.ir import Block, Program
from stripe.passes.base import PassContext
from stripe.passes.pipeline import run_pipeline
from stripe.passes.registry import make_passes, parse_pipeline
from stripe.passes.split import Split
from tests.support.passes import check_pass, program_of
from tile_frontend import compile_tile

HW = load_named("generic")


def split(program: Program, step: Split | None = None) -> tuple[Program, list[str]]:
    made, remarks = check_pass(program, step or Split(), HW)
    return made, [f"{r.block}: {r.message}" for r in remarks]


def fill(name: str, buffer: str, size: int) -> str:
    views = f"out Y = {buffer}[i]:assign f32(1)"
    return f"block {name} [i:{size}] ({views}) {{ $z = constant(0.0) f32\nY = store($z) }}\n"


def copy(name: str, source: str, target: str, size: int, to: str = "i", at: str = "i", more: str = "") -> str:
    """`target[to] = source[at]`, with `more` in front of the views."""
    return (
        f"block {name} [i:{size}] ({more} in X = {source}[{at}] f32(1)  out Y = {target}[{to}]:assign f32(1))"
        " { $x = load(X) f32\nY = store($x) }\n"
    )  # fmt: skip


def padded(*blocks: str, extra: str = "") -> Program:
    return program_of(
        "block main [] (in A[0] f32(5)  out R[0]:assign f32(8)\n"
        f"new T f32(8)\n{extra}) {{ {fill('z', 'T', 8)} {copy('a', 'A', 'T', 5)} {''.join(blocks)} }}"
    )


def sizes(block: Block) -> dict[str, tuple[int, ...]]:
    return {r.name: r.shape for r in block.refinements} | {
        b.name: tuple(b.ranges.values()) for b in block.children
    }


def test_many_buffers_are_cut_without_comparing_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would look through all blocks for each block of each buffer."""
    count = 9
    views = "".join(f"new T{n} f32(8)\nout R{n}[0]:assign f32(8)\n" for n in range(count))
    blocks = "".join(
        fill(f"z{n}", f"T{n}", 8) + copy(f"a{n}", "A", f"T{n}", 5) + copy(f"r{n}", f"T{n}", f"R{n}", 8)
        for n in range(count)
    )
    program = program_of(f"block main [] (in A[0] f32(5)\n{views}) {{ {blocks} }}")
    made, said = split(program)
    assert said == [f"main: 'T{n}' becomes T{n}(5), T{n}_1(3)" for n in range(count)]
    assert len(made.root.statements) == 4 * count

    def compared(_: Block, other: object) -> bool:
        assert not isinstance(other, Block)
        return False

    monkeypatch.setattr(Block, "__eq__", compared)
    Split().run(program, PassContext(HW))


def test_what_reads_a_copy_and_zeros_is_cut_in_two() -> None:
    made, said = split(padded(copy("r", "T", "R", 8)))
    assert sizes(made.root) == {
        "A": (5,), "R": (8,), "T": (5,), "T_1": (3,), "z": (3,), "a": (5,), "r": (5,), "r_1": (3,),
    }  # fmt: skip
    assert said == ["main: 'T' becomes T(5), T_1(3)"]


def test_what_is_written_over_everywhere_goes() -> None:
    program = program_of(
        "block main [] (in A[0] f32(8)  out R[0]:assign f32(8)\nnew T f32(8)) {"
        f"{fill('z', 'T', 8)} {copy('a', 'A', 'T', 8)}"
        f"{copy('r', 'T', 'R', 3)} {copy('s', 'T', 'R', 5, 'i + 3', 'i + 3')}}}"
    )
    made, _ = split(program)
    assert [b.name for b in made.root.children] == ["a", "a_1", "r", "s"]


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        (
            fill("f", "R", 8) + copy("r", "T", "R", 4, at="2*i"),
            "'r' does not go through it in steps of one along each dimension",
        ),
        (fill("f", "R", 8) + copy("r", "T", "R", 8, more="6 - i >= 0"), "'r' has constraints"),
        (copy("r", "T", "R", 8).replace(":assign", ":max"), "'r' aggregates"),
        (
            copy("r", "T", "R", 4) + copy("b", "A", "T", 3) + copy("s", "T", "R", 4, "i + 4", "i"),
            "it is written again after it was read",
        ),
        (
            copy("r", "T", "R", 8, more="in Z = T[7 - i] f32(1)").replace("store($x)", "store($z)")
            .replace("Y =", "$z = load(Z) f32\nY =", 2).replace("$z = load(Z) f32\nY = R", "Y = R"),
            "'r' uses it in several views",
        ),
        (
            fill("f", "R", 8) + copy("w", "A", "T", 5, more="out V = R[i]:assign f32(1)")
            .replace("Y =", "V = store($x)\nY =", 2).replace("V = store($x)\nY = T", "Y = T")
            + copy("q", "T", "R", 8).replace("Y = R", "Y = S"),
            "'w' has other results, too",
        ),
        (
            "block w [i:5] (out T[i]:assign f32(1)) { $o = constant(0.0) f32 }" + copy("r", "T", "R", 8),
            "'w' stores nothing in it",
        ),
        (
            "block n [i:8] (out I[i]:assign i32(1)) { $o = constant(0) i32\nI = store($o) }\n"
            "special gather(in T, in I, out R:assign) {axis=0}",
            "it is used as a whole",
        ),
    ],
)  # fmt: skip
def test_it_says_why_a_buffer_stays(blocks: str, why: str) -> None:
    made, said = split(program := padded(blocks, extra="new I i32(8)\nnew S f32(8)\n"))
    assert made is program
    assert said == [f"main: 'T' stays one buffer: {why}"]


def test_steps_of_one_along_one_of_two_dimensions_are_not_enough() -> None:
    def moved(name: str, source: str, target: str, rows: int) -> str:
        return (
            f"block {name} [i:{rows}, j:3] (in X = {source} f32(1, 1)  out Y = {target}:assign f32(1, 1))"
            " { $x = load(X) f32\nY = store($x) }\n"
        )

    program = program_of(
        "block main [] (in A[0, 0] f32(5, 3)  out R[0, 0]:assign f32(4, 3)\nnew T f32(8, 3)) {\n"
        "block z [i:8, j:3] (out Y = T[i, j]:assign f32(1, 1)) { $z = constant(0.0) f32\nY = store($z) }\n"
        f"{moved('a', 'A[i, j]', 'T[i, j]', 5)} {moved('r', 'T[2*i, j]', 'R[i, j]', 4)} }}"
    )
    made, said = split(program)
    assert made is program
    why = "'r' does not go through it in steps of one along each dimension"
    assert said == [f"main: 'T' stays one buffer: {why}"]


def test_there_are_limits() -> None:
    program = padded(*(copy(f"r{n}", "T", "R", 1, f"i + {n}", f"i + {n}") for n in range(8)))
    _, said = split(program, Split(pieces=7))
    assert said == ["main: 'T' stays one buffer: it would have 8 pieces, more than the limit of 7"]
    _, said = split(program, Split(blocks=9))
    assert said == ["main: 'T' stays one buffer: its users would be 16 blocks, more than the limit of 9"]


def test_what_was_computed_and_is_read_in_parts_stays_whole() -> None:
    """Its maker would be cut, though it may be one block with what it reads."""
    program = program_of(
        "block main [] (in A[0] f32(8)  out R[0]:assign f32(8)\nnew S f32(8)\nnew T f32(8)) {"
        f"{copy('s', 'A', 'S', 8)} {copy('t', 'S', 'T', 8)}"
        f"{copy('r', 'T', 'R', 3)} {copy('u', 'T', 'R', 5, 'i + 3', 'i + 3')}}}"
    )
    made, said = split(program)
    assert made is program
    assert said == [
        "main: 'T' stays one buffer: 't', which writes all of it, reads what others have computed"
    ]


def test_neighbours_of_what_was_computed_do_not_cut_each_other_without_end() -> None:
    """Each piece of the one would cut the others, one row further in each time."""
    text = (
        """function (X[N]) -> (R) { M = X * X; P[y : N] = =(M[y - 1]); Q[y : N] = =(M[y + 1]); R = P + Q; }"""
    )
    program = compile_tile(Source("rows.tile", text), {"X": TensorType(DType.F32, (500,))})
    made, said = split(run_pipeline(program, make_passes(parse_pipeline("canonicalize")), HW))
    assert len(made.root.children) == 9
    assert "main: 'M' stays one buffer: 'M' writes all of it, and others read pieces that overlap" in said


def test_one_that_nothing_puts_together_is_not_spoken_of() -> None:
    program = compile_tile(
        Source(
            "dense.tile",
            "function (A[8, 8], B[8, 8]) -> (R) { C[i, j : 8, 8] = +(A[i, k] * B[k, j]); R = relu(C); }",
        ),
        {name: TensorType(DType.F32, (8, 8)) for name in "AB"},
    )
    made, said = split(program)
    assert made is program
    assert said == []


@st.composite
def put_together(draw: st.DrawFn) -> tuple[str, dict[str, tuple[int, ...]]]:
    """Tensors at places of a larger one, apart or over each other, their sum, and what is made of it."""
    rank = draw(st.integers(1, 2))
    whole = tuple(draw(st.integers(2, 7)) for _ in range(rank))
    shapes, lines, terms = dict[str, tuple[int, ...]](), list[str](), list[str]()
    for number in range(draw(st.integers(1, 3))):
        places = [
            sorted(draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in whole
        ]
        names = "ij"[:rank]
        shapes[f"A{number}"] = tuple(stop - first for first, stop in places)
        to = ", ".join(f"{n}+{first}" for n, (first, _) in zip(names, places, strict=True))
        size = ", ".join(map(str, whole))
        lines.append(f"T{number}[{to} : {size}] = =(A{number}[{', '.join(names)}]);")
        terms.append(draw(st.sampled_from((f"T{number}", f"exp(T{number})", f"2 * T{number}"))))
    lines.append(f"S = {' + '.join(terms)};")
    lines.append(draw(st.sampled_from(("R = S;", "R = relu(S) - S;", "R[i : 1] = +(Q[i]);"))))
    if "Q" in lines[-1]:
        lines[-1] = "R = S * T0; " + ("M[0 : 1] = >(S[i]);" if rank == 1 else "M[i : 1] = >(S[i, j]), i < 1;")
        results = "R, M"
    else:
        results = "R"
    declared = ", ".join(f"{n}[{', '.join(map(str, s))}]" for n, s in shapes.items())
    return f"function ({declared}) -> ({results}) {{ {' '.join(lines)} }}", shapes


@settings(max_examples=60)
@given(put_together())
def test_it_computes_the_same(case: tuple[str, dict[str, tuple[int, ...]]]) -> None:
    text, shapes = case
    program = compile_tile(
        Source("pieces.tile", text), {n: TensorType(DType.F32, s) for n, s in shapes.items()}
    )
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    expected = interpret(program, arrays)
    made, _ = split(program)
    fused = run_pipeline(
        made, make_passes(parse_pipeline("fuse,localize,scalarize,canonicalize,fuse,localize")), HW
    )
    for result in (made, fused):
        for name, value in interpret(result, arrays).items():
            np.testing.assert_array_equal(value, expected[name])
