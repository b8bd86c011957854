"""What the documents show, works: their programs run, their commands print what they say.

In the fenced blocks of README.md, CONTRIBUTING.md, examples/README.md and docs/*.md

    python          runs; the blocks of one document share their names, in order
    tile, stripe    parses; a name behind the language (`tile blur.tile`) writes the file, too
    json            is JSON; with a name behind it, the file is written; with `add` behind the name, its
                    keys are put into that file, as the text around it asks of the reader
    console         each line `$ stripec ...` runs; lines below it, if any, are what it prints, where
                    `...` stands for anything, and on a line of its own for any lines or none

All blocks of a document run in one folder, which holds the Tile and Stripe programs beside it, a
folder `networks`, if any, and the folder `examples`.
Other blocks (`sh`, `text`) are only read.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from stripe.diag import Source
from stripe.parser import parse
from stripec.cli import main
from tile_frontend import signature

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "examples" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)


@dataclass(frozen=True)
class Fenced:
    language: str
    name: str
    text: str
    line: int


def blocks(text: str) -> list[Fenced]:
    found = []
    pattern = r"^([ ]*)```(\w+)[ ]*([^\n]*)\n(.*?)^\1```[ ]*$"
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        indent, language, name, body = match.groups()
        lines = [line.removeprefix(indent) for line in body.split("\n")]
        found.append(Fenced(language, name.strip(), "\n".join(lines), text.count("\n", 0, match.start()) + 1))
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_does_what_it_says(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")  # text is cut to the width of the terminal
    for program in (*document.parent.glob("*.tile"), *document.parent.glob("*.stripe")):
        shutil.copy(program, tmp_path)
    if (networks := document.parent / "networks").is_dir():
        shutil.copytree(networks, tmp_path / "networks")
    (tmp_path / "examples").symlink_to(ROOT / "examples", target_is_directory=True)  # only read
    module = ModuleType("document")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, "document", module)
    for block in blocks(document.read_text(encoding="utf-8")):
        place = f"{document.name}:{block.line}"
        write(block)
        match block.language:
            case "python":
                exec(compile("\n" * block.line + block.text, str(document), "exec"), module.__dict__)
            case "tile":
                signature(Source(place, block.text))
            case "stripe":
                parse(Source(place, block.text))
            case "json":
                json.loads(block.text)
            case "console":
                capsys.readouterr()
                run_console(block, place, capsys)
            case _:
                pass


def write(block: Fenced) -> None:
    """The file that a block is, or the keys that it adds to one."""
    name, _, how = block.name.partition(" ")
    if how == "add":
        whole = json.loads(Path(name).read_text(encoding="utf-8")) | json.loads(block.text)
        Path(name).write_text(json.dumps(whole), encoding="utf-8")
    elif name:
        assert not how, f"line {block.line}: {block.language} {block.name}"
        Path(name).write_text(block.text, encoding="utf-8")


def pattern(expected: str) -> str:
    """What is printed, as an expression: `...` is anything, and on a line of its own, any lines or none."""
    gaps = {"...": ".*", "...\n": "(?:.*\n)?", "\n...": "(?:\n.*)?"}
    parts = re.split(r"((?m:^)\.\.\.\n|\n\.\.\.\Z|\.\.\.)", expected)
    return "".join(gaps.get(part) or re.escape(part) for part in parts)


def run_console(block: Fenced, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in re.split(r"^\$ ", block.text.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        line, _, expected = command.partition("\n")
        words = shlex.split(line, comments=True)
        assert words[0] == "stripec", f"{place}: only stripec is run, not {words[0]}"
        code = main(words[1:])
        shown = capsys.readouterr()
        printed = shown.out + shown.err
        if expected.strip():
            fits = re.fullmatch(pattern(expected.strip()), printed.strip(), re.DOTALL)
            assert fits, f"{place}: {line} printed\n{printed}"
        else:
            assert code == 0, f"{place}: {line} failed\n{printed}"


@pytest.mark.parametrize(
    ("command", "document"),
    [(["passes", "--markdown"], "passes.md"), (["targets", "schema", "--markdown"], "hwconfig.md")],
)
def test_documents_made_from_the_code_are_up_to_date(
    command: list[str], document: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    shown = (ROOT / "docs" / document).read_text(encoding="utf-8")
    assert shown == capsys.readouterr().out, f"run: stripec {' '.join(command)} > docs/{document}"
