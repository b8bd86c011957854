"""`stripec explain` and `stripec passes`: what passes did to a program, and what they are."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING
from pathlib import Path

import msgspec

from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.ir import Program
from stripe.passes.manual import example, sections, tag_readers, tag_setters
from stripe.passes.pipeline import StepReport
from stripe.passes.registry import (
    PASSES,
    OptionInfo,
    PassInfo,
    json_value,
    kind_text,
    pass_class,
    pass_info,
    value_text,
)
from stripe.tags import TAGS
from stripec import explain_text
from stripec.commands import input_types, print_validation
from stripec.driver import begun, optimise, read_program, resolve_target
from stripec.explain import Explanation
from stripec.explain import explain as make_explanation
from stripec.mappings import mapped
from stripec.plan import Plans, make_plans
from stripec.tables import print_lines, print_table, width
from stripec.threads import copies, with_arguments


def explain(arguments: argparse.Namespace) -> None:
    """What each pass did to each kernel. If a pass fails, what those before it did, and the error."""
    frontend = read_program(Path(arguments.file))
    frontend, hw = mapped(arguments.mapping, frontend, resolve_target(arguments.target))
    hw = with_arguments(hw, arguments.threads, arguments.deterministic)
    for name in arguments.const:
        if name not in frontend.inputs:
            message = f"--const {name}: no such input"
            raise CompileError(Diagnostic("D031", message, notes=did_you_mean(name, frontend.inputs)))
    lowered = frontend.lower(input_types(arguments.shape, frontend), arguments.const)
    program = begun(lowered, hw)
    stages: list[Program] = [program]
    steps: list[StepReport] = []

    def observe(report: StepReport, result: Program) -> None:
        stages.append(result)
        steps.append(report)

    failed: CompileError | None = None
    try:
        done = optimise(program, hw, verify=arguments.verify, name=frontend.name, observe=observe)
        print_validation(done.validation)
    except CompileError as error:
        failed = error
    try:
        if steps or failed is None:
            found = make_explanation(stages, steps)
            whole = failed is None
            plans = make_plans(stages[-1], found.kernels, hw, arguments.measure) if whole else Plans()
            _print(arguments, found, plans, frontend.name, hw, _other_shapes(lowered, program))
    except CompileError as error:  # no such block; what a pass says comes first
        failed = failed or error
    if failed is not None:
        raise failed


def _print(
    arguments: argparse.Namespace, found: Explanation, plans: Plans, name: str, hw: HwConfig, seen: str
) -> None:  # fmt: skip
    if arguments.block is not None:
        found = explain_text.select(found, arguments.block)
    if arguments.json:
        print(json.dumps(explain_text.to_json(found, name, hw.name, plans), indent=2))
        return
    passes = f"{len(found.steps)} pass{'es' * (len(found.steps) != 1)}"
    title = f"{name}{seen} for {hw.name}{_on_threads(hw, arguments.threads)}: {passes}"
    print_lines(explain_text.lines(found, title, plans, verbose=arguments.verbose, width=width()))


def _other_shapes(given: Program, seen: Program) -> str:
    """Which arrays are seen in other shapes than callers give them (stripe.delinearize)."""
    both = zip(given.root.refinements, seen.root.refinements, strict=True)
    found = [f"{ref.name} as {ref.shape}" for before, ref in both if before.shape != ref.shape]
    return f", which sees {', '.join(found)}," if found else ""


def _on_threads(hw: HwConfig, wanted: int | None) -> str:
    """How many threads the code is for: a kernel may run on more, if nobody said how many."""
    if hw.executor != "cpu":
        return ""
    count = copies(hw)
    more = " (--threads N for more)" if wanted is None and count == 1 else ""
    return f" on {count} thread{'s' * (count != 1)}{more}"


def passes(arguments: argparse.Namespace) -> None:
    """The table of passes or of tags, the documentation of a pass, or the document of all."""
    if arguments.markdown:
        sys.stdout.write(passes_markdown())
    elif arguments.tags:
        print_table(_TAG_HEAD, [row for _, *row in _tag_rows()])
    elif arguments.name is None:
        print_table(("pass", "what it does"), [(name, pass_info(name).summary) for name in PASSES])
    else:
        _print_pass(pass_info(arguments.name))


_TAG_HEAD = ("tag", "meaning", "set by", "read by")
_OPTION_HEAD = ("option", "type", "default", "meaning")


def _tag_rows() -> Iterator[tuple[str, str, str, str, str]]:
    for tag in TAGS.values():
        shown = f"#{tag.name}" + (f"={tag.value}" if tag.value else "")
        readers = (*tag_readers(tag.name), *tag.readers)
        yield tag.name, shown, tag.meaning, ", ".join(tag_setters(tag.name)), ", ".join(readers)


def _option_rows(info: PassInfo) -> list[tuple[str, str, str, str]]:
    return [
        (
            option.name,
            kind_text(option.kind),
            "(must be given)"
            if option.default is MISSING
            else value_text(json_value(option.default, option.kind)),
            option.help + _bounds(option) + (f" [{option.unit}]" if option.unit else ""),
        )
        for option in info.options
    ]


def _bounds(option: OptionInfo) -> str:
    known = [
        f"{word} {bound}"
        for word, bound in (("at least", option.least), ("at most", option.most))
        if bound is not None
    ]
    return f" ({', '.join(known)})" if known else ""


def _tags_text(tags: Sequence[str]) -> str:
    return ", ".join(f"#{tag}" for tag in tags) or "none"


def _print_pass(info: PassInfo) -> None:
    body, legal = sections(info)
    shown = example(info.name)
    print(f"{info.name}: {info.summary}\n")
    if body:
        print(f"{body}\n")
    print(f"{legal}\n")
    print(f"tags read: {_tags_text(info.tags_read)}; tags set: {_tags_text(info.tags_set)}\n")
    rows = _option_rows(info)
    if rows:
        print_table(_OPTION_HEAD, rows)
    else:
        print("It takes no options.")
    print(f"\n{_choices_text(info.name)}")
    print(f"\nexample: {shown.pipeline} for {shown.target}: {shown.why}\n")
    print(f"{shown.before}\nbecomes\n\n{shown.after}", end="")


def _choices_text(name: str) -> str:
    """What the record of a mapping says for a pass, with its fields."""
    kind = pass_class(name).choice
    if kind is None:
        return "A mapping has no record for it: its options and the program say all."
    fields = ", ".join(field.name for field in msgspec.structs.fields(kind))
    return f"Its record in a mapping ({fields}), by block:\n{inspect.getdoc(kind)}"


def passes_markdown() -> str:
    """docs/passes.md: all passes and tags, from the code."""
    parts = [_MARKDOWN_HEAD]
    parts += [f"| [`{name}`](#{name}) | {_cell(pass_info(name).summary)} |\n" for name in PASSES]
    parts += map(_pass_markdown, PASSES)
    parts.append("\n## Tags\n\nA tag has no meaning: dropping every tag leaves all results as they are.\n\n")
    parts.append(_markdown_table(_TAG_HEAD, [(f"`{shown}`", *rest) for _, shown, *rest in _tag_rows()]))
    return "".join(parts)


_MARKDOWN_HEAD = """\
# Passes and tags

Written by `stripec passes --markdown`; the tests run the examples. `stripec passes NAME` prints one section.
A pipeline is a list of passes, as text, `autotile{memory=L1},localize`, or in the JSON of a target. An option
called `memory` or `unit` holds the name of one of the target's.

| pass | what it does |
|---|---|
"""


def _pass_markdown(name: str) -> str:
    info, shown = pass_info(name), example(name)
    body, legal = sections(info)
    rows = [(f"`{option}`", kind, f"`{default}`", text) for option, kind, default, text in _option_rows(info)]
    options = _markdown_table(_OPTION_HEAD, rows) if rows else "It takes no options.\n"
    return (
        f"\n## {name}\n\n{info.summary}\n\n```text\n{body}\n```\n\n{legal}\n\n"
        f"Tags read: {_tags_text(info.tags_read)}. Tags set: {_tags_text(info.tags_set)}.\n\n{options}\n"
        f"{_choices_text(name)}\n\n"
        f"Example: `{shown.pipeline}` for `{shown.target}`: {shown.why}.\n\n"
        f"```stripe\n{shown.before}```\n\nbecomes\n\n```stripe\n{shown.after}```\n"
    )


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
