"""A small token-stream kit with spans, shared by the Stripe and the Tile parser."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stripe.diag import CompileError, Diagnostic, Source, Span


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is the name of the rule that matched, or `end`; `text` is what stood there."""

    kind: str
    text: str
    span: Span


class Lexer:
    """Splits a text by named regular expressions, the first that matches first.

    Rules named `skip` (spaces, comments) give no tokens. A character that no rule takes is a
    CompileError with `code`.
    """

    def __init__(self, rules: dict[str, str], code: str) -> None:
        self._pattern = re.compile("|".join(f"(?P<{kind}>{rule})" for kind, rule in rules.items()))
        self._code = code

    def tokens(self, source: Source) -> list[Token]:
        found: list[Token] = []
        at = 0
        while at < len(source.text):
            match = self._pattern.match(source.text, at)
            if match is None or match.end() == at:
                raise CompileError(
                    Diagnostic(
                        self._code,
                        f"unexpected character {source.text[at]!r}",
                        Span(source, at, at + 1),
                    )
                )
            kind = match.lastgroup or ""
            if not kind.startswith("skip"):
                found.append(Token(kind, match.group(), Span(source, at, match.end())))
            at = match.end()
        found.append(Token("end", "end of the text", Span(source, len(source.text), len(source.text))))
        return found


class TokenStream:
    """A cursor over tokens with the usual questions; errors name what was expected."""

    def __init__(self, tokens: list[Token], code: str) -> None:
        self._tokens = tokens
        self._at = 0
        self._code = code

    def peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def next(self) -> Token:
        token = self.peek()
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def at(self, *texts: str) -> bool:
        """Whether the next token reads as one of `texts`."""
        return self.peek().kind != "end" and self.peek().text in texts

    def accept(self, text: str) -> Token | None:
        return self.next() if self.at(text) else None

    def expect(self, text: str, why: str = "") -> Token:
        if self.at(text):
            return self.next()
        raise self.error(f"expected '{text}'{f' {why}' if why else ''}, found {self.found()}")

    def expect_kind(self, kind: str, what: str) -> Token:
        if self.peek().kind == kind:
            return self.next()
        raise self.error(f"expected {what}, found {self.found()}")

    def found(self) -> str:
        token = self.peek()
        return token.text if token.kind == "end" else f"'{token.text}'"

    def error(self, message: str, span: Span | None = None, *notes: str) -> CompileError:
        return CompileError(Diagnostic(self._code, message, span or self.peek().span, notes))
