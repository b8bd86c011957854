from __future__ import annotations

import pytest

from stripe.diag import CompileError, Diagnostic, Source, Span, did_you_mean, nearest


def test_a_diagnostic_shows_place_line_and_caret() -> None:
    source = Source("conv.tile", "one\n\ttwo W three\n")
    start = source.text.index("W")
    found = Diagnostic("T012", "tensor 'W' is not declared", Span(source, start, start + 1), ("help: add W",))
    assert found.render() == (
        "conv.tile:2:6: error[T012]: tensor 'W' is not declared\n"
        "    2 | \ttwo W three\n"
        "      | \t    ^\n"
        "     = help: add W"
    )


def test_without_a_place_there_is_the_message_alone() -> None:
    assert Diagnostic("P001", "no").render() == "error[P001]: no"


@pytest.mark.parametrize(("offset", "place"), [(0, (1, 1)), (3, (1, 4)), (4, (2, 1)), (9, (3, 2))])
def test_lines_and_columns_start_at_one(offset: int, place: tuple[int, int]) -> None:
    assert Source("s", "abc\ndef\ngh").line_and_column(offset) == place


def test_a_line_is_shown_without_its_break() -> None:
    assert Source("s", "ab\r\ncd").line_text(1) == "ab"
    assert Source("s", "ab").line_text(7) == ""


def test_a_span_over_several_lines_is_underlined_to_the_end_of_the_first() -> None:
    source = Source("s", "abc def\nghi")
    assert Diagnostic("S001", "m", Span(source, 4, 11)).render().endswith("      |     ^^^")


def test_at_the_end_of_the_text_there_is_one_caret() -> None:
    source = Source("s", "abc")
    assert Diagnostic("S001", "m", Span(source, 3, 3)).render().endswith("    1 | abc\n      |    ^")


def test_a_long_line_is_cut_to_a_window() -> None:
    source = Source("s", "a" * 1000 + "!" + "b" * 1000)
    shown = Diagnostic("S001", "m", Span(source, 1000, 1001)).render().split("\n")
    assert len(shown[1]) < 200
    assert shown[1][shown[2].index("^")] == "!"


def test_an_error_shows_its_findings_up_to_a_limit() -> None:
    error = CompileError(*(Diagnostic("S001", f"number {n}") for n in range(25)))
    lines = str(error).split("\n")
    assert len(lines) == 21
    assert lines[-1] == "... and 5 more"


def test_spans_join() -> None:
    source = Source("s", "abcdef")
    assert Span(source, 1, 2).to(Span(source, 4, 5)) == Span(source, 1, 5)


def test_the_nearest_name() -> None:
    assert nearest("asign", ["assign", "add"]) == "assign"
    assert nearest("qqq", ["assign", "add"]) is None
    assert did_you_mean("asign", {"assign", "add"}) == ("help: did you mean 'assign'?",)
    assert did_you_mean("qqq", {"b", "a"}) == ("known: a, b",)
    assert did_you_mean("qqq", []) == ()


def test_control_characters_of_a_source_do_not_reach_the_terminal() -> None:
    source = Source("s", "a \x1b[31m \0 \u202e b")
    shown = Diagnostic("T001", "no", Span(source, 2, 3)).render()
    assert shown.replace("\n", "").isprintable()
    assert shown.splitlines()[1].startswith("    1 | a \N{REPLACEMENT CHARACTER}[31m")
