"""The tokens of Tile: numbers, names, marks; spaces and comments give none."""

from __future__ import annotations

from stripe.diag import CompileError, Diagnostic, Source
from stripe.lexing import Lexer, Token

KEYWORDS = frozenset({"function", "default", "init", "accumulate", "no_defract", "no_reduce"})

# Operators of other languages, and what Tile has for them.
_FOREIGN = {"**": "pow(a, b)", "%": "mod(a, b)", "&&": "a & b", "||": "a | b", "!": "~a"}

_LEXER = Lexer(
    {
        "skip_space": r"\s+",
        "skip_line": r"//[^\n]*",
        "skip_block": r"/\*(?s:.*?)\*/",
        "unclosed": r"/\*",
        "float": r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+",
        "int": r"[0-9]+",
        "keyword": rf"(?:{'|'.join(sorted(KEYWORDS))})\b",
        "name": r"[A-Za-z_][A-Za-z0-9_]*'?",
        "foreign": r"\*\*|%|&&|\|\||!(?!=)",
        "mark": r"->|<<|>>|==|!=|<=|>=|[-+*/<>=&|^~?:;,(){}\[\]]",
    },
    "T001",
)


def tokenize(source: Source) -> list[Token]:
    """The tokens of a Tile text, the last of kind `end`. T001: what is no part of the language."""
    tokens = _LEXER.tokens(source)
    for token in tokens:
        if token.kind == "unclosed":
            raise CompileError(
                Diagnostic("T001", "this comment is never closed", token.span, ("help: end it with '*/'",))
            )
        if token.kind == "foreign":
            note = f"help: write {_FOREIGN[token.text]}"
            raise CompileError(
                Diagnostic("T001", f"'{token.text}' is no operator of Tile", token.span, (note,))
            )
    return tokens
