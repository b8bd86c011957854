from __future__ import annotations

import pytest

from stripe.diag import CompileError, Source
from stripe.lexing import Lexer, TokenStream

LEXER = Lexer({"skip": r"\s+", "skip_comment": r"#.*", "name": r"[a-z]+", "sign": r"<=|<"}, "X001")


def stream(text: str) -> TokenStream:
    return TokenStream(LEXER.tokens(Source("s", text)), "X002")


def test_tokens_have_kind_text_and_place() -> None:
    tokens = LEXER.tokens(Source("s", "ab <= # no\n c"))
    assert [(t.kind, t.text, t.span.start, t.span.end) for t in tokens] == [
        ("name", "ab", 0, 2),
        ("sign", "<=", 3, 5),
        ("name", "c", 12, 13),
        ("end", "end of the text", 13, 13),
    ]


def test_a_character_that_no_rule_takes() -> None:
    with pytest.raises(CompileError) as caught:
        LEXER.tokens(Source("s", "ab 7"))
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == ("X001", "unexpected character '7'")
    assert found.span is not None
    assert found.span.start == 3


def test_a_rule_that_matches_nothing_does_not_hang() -> None:
    with pytest.raises(CompileError):
        Lexer({"none": r"q*"}, "X001").tokens(Source("s", "ab"))


def test_the_cursor_stays_at_the_end() -> None:
    tokens = stream("a")
    assert [tokens.next().kind for _ in range(3)] == ["name", "end", "end"]
    assert tokens.peek(5).kind == "end"


def test_a_token_named_like_the_end_is_not_the_end() -> None:
    tokens = stream("")
    assert not tokens.at("end of the text")


def test_accept_takes_only_what_it_names() -> None:
    tokens = stream("a b")
    assert tokens.accept("b") is None
    assert tokens.accept("a") is not None
    assert tokens.expect("b").text == "b"


def test_expectations_say_what_was_found() -> None:
    with pytest.raises(CompileError, match=r"error\[X002\]: expected 'b' after a, found '<'"):
        stream("<").expect("b", "after a")
    with pytest.raises(CompileError, match="expected a name, found end of the text"):
        stream("").expect_kind("name", "a name")
