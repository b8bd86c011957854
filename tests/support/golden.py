"""Golden files: a text, what is done to it, and the text that must come out.

What a file says about itself stands in its header, the comment lines before the first text:

    // passes: autotile{indices=x y},localize     run these passes on a Stripe program
    // target: paper_figure4                      the hardware configuration (default: generic), or a
                                                  JSON file, by its path from the folder golden
    // placed: yes                                ask that every buffer and statement has its place
    // shapes: A=f32[4,5] B=f32[5]                types of the inputs of a Tile program
    // why: ...                                   what the case is for

A `.stripe` file with `passes` is parsed, passed through them and printed; one without is parsed
and printed; a `.tile` file is lowered and printed. The result must equal what stands after the
line `// ---- expect`. A file with trailing comments `// error: V010` must instead be refused,
with these codes on these lines and no others; what stands behind a code, such as a witness, is part of the
message: `// error: V050 at x=7`. The files of golden/corpus are canonical: below
the header they are their own expectation. An error without a place in the file (in the
pipeline's text, say) belongs on the `// passes:` line.
"""

from __future__ import annotations

import difflib
import importlib
import itertools
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stripe.diag import CompileError, Diagnostic, Source
from stripe.dtypes import DType, TensorType
from stripe.ir import Program
from stripe.parser import parse
from stripe.printer import to_text

MARKER = "// ---- expect"
SUFFIXES = (".stripe", ".tile")
DEFAULT_TARGET = "generic"
_ERROR = re.compile(r"//\s*error:\s*([A-Z][0-9]{3})\b(?: +((?:(?! *//).)+))?")
_TYPE = re.compile(r"(\w+)=(\w+)\[([0-9, ]*)\]")


class GoldenFailure(Exception):
    """The case does not hold; the text says how."""


@dataclass(frozen=True)
class Case:
    """One golden file, split into its parts. `expected` is None where the file has none."""

    path: Path
    text: str
    header: dict[str, str]
    expected: str | None

    @property
    def source(self) -> Source:
        return Source(self.path.name, self.text)

    @property
    def errors(self) -> Counter[tuple[int, str]]:
        """The (line, code) of each error that the file announces."""
        return Counter((number, code) for number, code, _ in self.announced)

    @property
    def announced(self) -> list[tuple[int, str, str]]:
        """The line and code of each error, and what its message must hold."""
        lines = enumerate(self.text.split("\n"), start=1)
        return [(number, code, part) for number, line in lines for code, part in _ERROR.findall(line)]

    @property
    def passes_line(self) -> int:
        lines = self.text.split("\n")
        found = (n for n, line in enumerate(lines, start=1) if line.startswith("// passes:"))
        return next(found, 1)


def read_case(path: Path) -> Case:
    text, marker, expected = path.read_text(encoding="utf-8").partition(MARKER + "\n")
    header: dict[str, str] = {}
    for line in _header_of(text).splitlines():
        key, colon, value = line[2:].partition(":")
        if colon and key.strip() in ("passes", "target", "placed", "shapes", "why"):
            header[key.strip()] = _ERROR.sub("", value).strip()
    if path.parent.name == "corpus":
        return Case(path, text, header, text[len(_header_of(text)) :])
    return Case(path, text, header, expected if marker else None)


def _header_of(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(itertools.takewhile(lambda line: line.startswith("//"), lines))


def run_case(case: Case, update: bool) -> None:
    """Raises GoldenFailure where the case does not hold; with `update`, rewrites its expectation."""
    folders = case.path.parts
    if "passes" in folders and "passes" not in case.header:
        raise GoldenFailure("a file under passes/ names its pipeline: // passes: canonicalize")
    if "errors" in folders and not case.errors:
        raise GoldenFailure("a file under errors/ says which: // error: V010 at the end of a line")
    if case.errors:
        _check_errors(case)
        return
    try:
        got = to_text(_result(case))
    except CompileError as error:
        raise GoldenFailure(str(error)) from error
    if got == case.expected:
        return
    if update:
        kept = _header_of(case.text) if case.path.parent.name == "corpus" else f"{case.text}{MARKER}\n"
        case.path.write_text(kept + got, encoding="utf-8")
        return
    if case.expected is None:
        raise GoldenFailure(f"no line '{MARKER}' in the file; --update-golden would write:\n{got}")
    diff = difflib.unified_diff(case.expected.splitlines(), got.splitlines(), "expected", "got", lineterm="")
    raise GoldenFailure("\n".join(diff))


def _check_errors(case: Case) -> None:
    if case.expected is not None:
        raise GoldenFailure("the file announces errors, and an expected text as well")
    found: tuple[Diagnostic, ...] = ()
    try:
        program = _result(case)
        if case.path.suffix == ".stripe":
            found = _module("stripe.verify").findings(program, _target(case))
            if "placed" in case.header:
                found += _module("stripe.verify_ready").unplaced(program, _target(case))
    except CompileError as error:
        found = error.diagnostics
    got = Counter((_line(case, diagnostic), diagnostic.code) for diagnostic in found)
    problems = [
        f"line {line}: no {code} says '{part}'"
        for line, code, part in case.announced
        if not any((_line(case, d), d.code) == (line, code) and part in d.message for d in found)
    ]
    if got == case.errors and not problems:
        return
    problems += [f"line {line}: expected {code}" for line, code in (case.errors - got).elements()]
    problems += [f"line {line}: unexpected {code}" for line, code in (got - case.errors).elements()]
    shown = "\n".join(diagnostic.render() for diagnostic in found)
    raise GoldenFailure("\n".join(problems) + f"\nfound:\n{shown or 'no error at all'}")


def _line(case: Case, diagnostic: Diagnostic) -> int:
    if diagnostic.span is None or diagnostic.span.source != case.source:
        return case.passes_line
    return diagnostic.span.source.line_and_column(diagnostic.span.start)[0]


def _result(case: Case) -> Program:
    """What the file's header asks for, done to its text."""
    if case.path.suffix == ".tile":
        lowered: Program = _module("tile_frontend").compile_tile(case.source, input_types(case.header))
        return lowered
    program = parse(case.source)
    if "passes" not in case.header:
        return program
    registry = _module("stripe.passes.registry")
    steps = [registry.make_pass(s.name, s.options) for s in registry.parse_pipeline(case.header["passes"])]
    target = _target(case) or _module("hwconfigs.load").load_named(DEFAULT_TARGET)
    result: Program = _module("stripe.passes.pipeline").run_pipeline(program, steps, target)
    return result


def _target(case: Case) -> Any:
    name = case.header.get("target")
    if name is None:
        return None
    if name.endswith(".json"):
        return _module("hwconfigs.load").load(_golden_folder(case.path) / name)
    return _module("hwconfigs.load").load_named(name)


def _golden_folder(path: Path) -> Path:
    return next((above for above in path.parents if above.name == "golden"), path.parent)


def input_types(header: dict[str, str]) -> dict[str, TensorType]:
    """The types in a `shapes` header: `A=f32[4,5] S=f32[]`."""
    text = header.get("shapes", "")
    if _TYPE.sub("", text).strip():
        raise GoldenFailure(f"can't read the header `// shapes: {text}`: write A=f32[4,5] S=f32[]")
    return {
        name: TensorType(DType(dtype), tuple(int(size) for size in shape.split(",") if size.strip()))
        for name, dtype, shape in _TYPE.findall(text)
    }


def _module(name: str) -> Any:
    # Late, so that a case about the text form says nothing about passes or front end.
    return importlib.import_module(name)
