"""No text makes the front end fall over: it is compiled, or refused with a place."""

from __future__ import annotations

import random
import re

import pytest

from stripe.diag import CompileError, Source
from stripe.dtypes import DType, TensorType
from tests.support.tile_corpus import CORPUS
from tile_frontend import compile_tile, signature

SHORT = [case for case in CORPUS if len(case.text) < 1000]
TOKENS = re.compile(r"\w+'?|->|<<|>>|[<>=!]=|\s+|.", re.DOTALL)


def mangled(text: str, rng: random.Random) -> str:
    """The text with a few tokens dropped, doubled, swapped or replaced."""
    tokens = TOKENS.findall(text)
    for _ in range(rng.randint(1, 3)):
        at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(4):
            case 0:
                tokens[at] = ""
            case 1:
                tokens[at] *= 2
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case _:
                tokens[at] = rng.choice(
                    ["[", "]", "0", "-1", "/", "*", "N", "i", "A", "?", ":", "1e9", "99", "<", "="]
                )
    return "".join(tokens)


def check(text: str, types: dict[str, TensorType]) -> None:
    source = Source("bad.tile", text)
    try:
        compile_tile(source, types)
    except CompileError as error:
        for diagnostic in error.diagnostics:
            assert re.fullmatch("T[0-9]{3}", diagnostic.code), text
            assert diagnostic.span is not None and diagnostic.span.source is source, text
            assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text), text
            assert diagnostic.render()


@pytest.mark.parametrize("seed", range(20))
def test_mangled_programs(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        case = rng.choice(SHORT)
        check(mangled(case.text, rng), case.types)


@pytest.mark.parametrize("seed", range(5))
def test_cut_programs(seed: int) -> None:
    rng = random.Random(seed)
    case = rng.choice(SHORT)
    for end in range(len(case.text)):
        check(case.text[:end], case.types)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\x00",
        "函数",
        "function",
        "/*",
        "//",
        "function (",
        "9" * 5000,
        "function (A) -> (B) { B = " + "9" * 5000 + "; }",
    ],
)
def test_odd_texts(text: str) -> None:
    with pytest.raises(CompileError):
        signature(Source("odd.tile", text))


@pytest.mark.parametrize(
    "text",
    [
        "B = " + "-" * 5000 + "A",
        "B = " + "(" * 5000 + "A",
        "B = " + "A ? " * 5000 + "A",
        "B[" + "-" * 5000 + "i : 3] = +(A[i])",
        "B[i : " + "(1 + " * 5000 + "1" + ")" * 5000 + "] = +(A[i])",
        "B[i : 3] = +(A[i])" + ", i < 3" * 500,
        "B = reshape(A" + ", 1" * 3000 + ", 3)",
    ],
    ids=["minus", "open", "select", "index", "size", "constraints", "rank"],
)
def test_long_and_deep_texts(text: str) -> None:
    case = next(case for case in CORPUS if case.name == "copies")
    types = {"A": TensorType(case.types["A"].dtype, (3,))}
    check(f"function (A) -> (B) {{ {text}; }}", types)


@pytest.mark.parametrize(
    ("expression", "code", "note"),
    [
        ("A ** 2", "T001", "help: write pow(a, b)"),
        ("A % 2", "T001", "help: write mod(a, b)"),
        ("A > 0 && A < 1", "T001", "help: write a & b"),
        ("A > 0 || A < 1", "T001", "help: write a | b"),
        ("!A", "T001", "help: write ~a"),
        ("sum(A)", "T013", "is a contraction"),
        ("sqr(A)", "T013", "did you mean 'sqrt'"),
    ],
)
def test_what_other_languages_have_is_answered_with_what_tile_has(
    expression: str, code: str, note: str
) -> None:
    with pytest.raises(CompileError) as caught:
        source = Source("foreign.tile", f"function (A[N]) -> (R) {{ R = {expression}; }}")
        compile_tile(source, {"A": TensorType(DType.F32, (4,))})
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert any(note in text for text in found.notes)
