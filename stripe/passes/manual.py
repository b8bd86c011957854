"""What is told of passes and tags beside their options: sections of docstrings, examples, who sets which tag.

An example is a file `examples/PASS.stripe`: a header in comments, a program, the line
`// ---- expect`, and the program that the pass makes of it. Tests run all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stripe.passes.registry import PASSES, PassInfo, pass_info

FOLDER = Path(__file__).parent / "examples"
_MARKER = "// ---- expect\n"
_LEGAL = ("Legal ", "Always legal")


@dataclass(frozen=True, slots=True)
class Example:
    """`pipeline` on the target turns the text `before` into `after`; `why` says what to look at."""

    pipeline: str
    target: str
    why: str
    before: str
    after: str


def example(name: str) -> Example:
    """The example of a registered pass."""
    text, _, after = (FOLDER / f"{name}.stripe").read_text(encoding="utf-8").partition(_MARKER)
    lines = text.splitlines(keepends=True)
    head = list(itertools.takewhile(lambda line: line.startswith("//"), lines))
    said = dict(line[2:].strip().split(": ", 1) for line in head)
    return Example(
        said["passes"], said.get("target", "generic"), said["why"], "".join(lines[len(head) :]), after
    )


def sections(info: PassInfo) -> tuple[str, str]:
    """The description of a pass without, and what it says on, when the pass is legal."""
    paragraphs = list(_paragraphs(info.description))
    legal = [text for text in paragraphs if text.startswith(_LEGAL)]
    return "\n\n".join(text for text in paragraphs if text not in legal), "\n\n".join(legal)


def _paragraphs(text: str) -> Iterator[str]:
    yield from (part.rstrip() for part in text.split("\n\n"))


def tag_setters(tag: str) -> tuple[str, ...]:
    """The passes that set a tag."""
    return tuple(name for name in PASSES if tag in pass_info(name).tags_set)


def tag_readers(tag: str) -> tuple[str, ...]:
    """The passes that look at a tag."""
    return tuple(name for name in PASSES if tag in pass_info(name).tags_read)
