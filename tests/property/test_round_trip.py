"""The text form loses nothing, and there is one canonical text for each program."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stripe.diag import CompileError
from stripe.ir import Program
from stripe.parser import parse
from stripe.printer import to_text
from tests.support.decorate import decorate
from tests.support.programs import Options, corpus, make_program, programs

CORPUS = corpus()


def assert_round_trip(program: Program) -> None:
    text = to_text(program)
    again = parse(text)
    assert again == program
    assert to_text(again) == text


@given(programs(Options(load_time=True)))
def test_valid_programs(program: Program) -> None:
    assert_round_trip(program)


@given(programs(Options(load_time=True)), st.randoms(use_true_random=True))
def test_anything_the_ir_can_hold(program: Program, rng: random.Random) -> None:
    assert_round_trip(decorate(program, random.Random(rng.getrandbits(32))))


@pytest.mark.parametrize("name", CORPUS)
def test_corpus(name: str) -> None:
    assert_round_trip(CORPUS[name])


@pytest.mark.slow
def test_many_programs() -> None:
    for seed in range(5000):
        program = make_program(seed, Options(load_time=seed % 3 == 0))
        assert_round_trip(program)
        assert_round_trip(decorate(program, random.Random(seed)))


@given(st.sampled_from(sorted(CORPUS)), st.randoms(use_true_random=False))
def test_layout_does_not_matter(name: str, rng: random.Random) -> None:
    words = to_text(CORPUS[name]).split()
    spaces = [rng.choice((" ", "\n", "\t", " // what is this {\n", "\r\n", "\u00a0")) for _ in words]
    text = "".join(word + space for word, space in zip(words, spaces, strict=True))
    assert parse(text) == CORPUS[name]


@given(st.sampled_from(sorted(CORPUS)), st.data())
def test_damaged_text_is_refused_or_read(name: str, data: st.DataObject) -> None:
    """Whatever is cut out of a text or put into it: a program or a CompileError with places."""
    text = to_text(CORPUS[name])
    start = data.draw(st.integers(0, len(text)))
    end = min(len(text), start + data.draw(st.integers(0, 12)))
    junk = data.draw(
        st.sampled_from(["", "(", ")", "}", "{", "$", "in", ":", "-", "9" * 5000, "block", '"', "\0"])
    )
    damaged = text[:start] + junk + text[end:]
    try:
        program = parse(damaged)
    except CompileError as error:
        assert error.diagnostics
        for diagnostic in error.diagnostics:
            assert diagnostic.span is not None
            assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(damaged) + 1
            assert diagnostic.code.startswith("S")
            assert diagnostic.render()
    else:
        assert_round_trip(program)


@given(st.text(alphabet=st.sampled_from("block[](){}:,=+-*@#$xin01 .\"\n>'"), max_size=60))
def test_noise_is_refused_or_read(text: str) -> None:
    try:
        program = parse(text)
    except CompileError as error:
        assert str(error)
    else:
        assert_round_trip(program)
