"""The law: algorithms are written once per operation, targets once per architecture, nothing per pair.

No pass, analysis or back end knows an operation by name or a program by its arity; no target does. They see
iteration spaces, affine accesses, aggregations and tags. What a choice rests on is tested elsewhere: results
do not change when everything is renamed (tests/unit/stripe/passes, tests.support.renaming).
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("stripe", "codegen_cpu", "hwconfigs")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
TEXTS = [*sorted((ROOT / "hwconfigs").rglob("*.json")), *sorted((ROOT / "stripe").rglob("*.stripe"))]

# Words for what programs compute as a whole. Scalar functions (`max`, `exp`, `tanh`) are intrinsics.
_OPERATIONS = """
    attention avgpool batchnorm bmm conv convnd convolution convolutional convolve deconv depthwise einsum elu
    embedding fft gelu gemm gemv groupnorm gru layernorm lstm matmul matvec maxpool mlp pointwise pool pooling
    relu resnet rmsnorm sgemm sigmoid silu softmax softplus swish transformer upsample winograd xsmm
"""
OPERATIONS = frozenset(_OPERATIONS.split())
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words(text: str) -> Iterator[str]:
    """The words of a text in lower case; `conv2d`, `poolForward` and `POOL_SIZE` are several."""
    yield from (word.lower() for word in _WORD.findall(text))


def named(text: str) -> set[str]:
    return set(words(text)) & OPERATIONS


def pieces(source: str) -> Iterator[tuple[int, str]]:
    """Names, strings and comments, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.STRING, tokenize.COMMENT):
            yield token.start[0], token.string


@pytest.mark.parametrize("package", PACKAGES)
def test_no_operation_is_named(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {', '.join(sorted(names))}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] == package
        for line, text in pieces(path.read_text(encoding="utf-8"))
        if (names := named(text))
    ]
    assert found == []


def test_no_target_and_no_example_of_a_pass_names_one() -> None:
    found = {path.name: named(path.read_text(encoding="utf-8")) for path in TEXTS}
    assert {name: names for name, names in found.items() if names} == {}


def of_whole_programs(tree: ast.AST) -> Iterator[ast.AST]:
    """Comparisons with the number of inputs or outputs of a program, and patterns of so many."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                match side:
                    case ast.Call(func=ast.Name("len"), args=[ast.Attribute(attr="inputs" | "outputs")]):
                        yield node
        elif isinstance(node, ast.Match):
            match node.subject:
                case ast.Attribute(attr="inputs" | "outputs"):
                    yield node


def test_nothing_is_decided_by_the_arity_of_a_program() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        for path in SOURCES
        for node in of_whole_programs(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_the_search_finds_what_it_looks_for() -> None:
    source = 'def fuse_conv2d(x):\n    # a MaxPool\n    return "softmax" if len(p.inputs) == 2 else max\n'
    assert [line for line, text in pieces(source) if named(text)] == [1, 2, 3]
    assert len(list(of_whole_programs(ast.parse(source)))) == 1
    assert not named("pooled spool max maximum exp tanh convert reluctant")
