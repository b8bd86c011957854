"""Program -> canonical text: the one way to write a program. `stripe.parser` reads it back.

    to_text(parse(text)) == text for canonical text;  parse(to_text(program)) == program

The grammar is in docs/stripe.md. Printing never fails: a malformed program (a view of a buffer
that does not exist, say) is printed as far as it goes, with `?` for strides that can't be
derived, so that it can be looked at; the parser then refuses it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from stripe.affine import Affine
from stripe.ir import (
    Block,
    Cast,
    Constant,
    Direction,
    Index,
    IndexValue,
    Intrinsic,
    Load,
    Location,
    Operand,
    Program,
    Refinement,
    Special,
    Store,
    Tag,
)

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_']*|0|[1-9][0-9]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_']*")

_Strides = dict[str, tuple[int, ...] | None]  # by buffer name; None where they can't be derived


def to_text(program: Program) -> str:
    """The canonical text of a program, with a line break at its end.

    Lossless for well-formed programs: names match `[A-Za-z_][A-Za-z0-9_']*` (units and tag
    values may be any text), a root refinement's `source` is its own name, and fields that the
    IR says are unset for a kind of node are unset.
    """
    lines: list[str] = []
    if program.load is not None:
        _block(program.load, {}, "", lines, "load ")
        lines.append("")
    _block(program.root, {}, "", lines)
    return "\n".join(lines) + "\n"


def _block(block: Block, outer: _Strides, indent: str, lines: list[str], lead: str = "") -> None:
    strides: _Strides = {
        ref.name: ref.strides if ref.strides is not None else outer.get(ref.source)
        for ref in block.refinements
    }
    head = f"{indent}{lead}block {block.name} [{', '.join(map(_index, block.indexes))}]"
    if block.location is not None:
        head += f" {location_text(block.location)}"
    if block.inflight != 1:
        head += f" inflight={block.inflight}"
    inner = indent + "  "
    declared = [f"{inner}{constraint.expr} >= 0" for constraint in block.constraints]
    declared += [f"{inner}{_refinement(ref, strides[ref.name])}" for ref in block.refinements]
    tags = _tags(block.tags)
    if declared:
        lines += [f"{head} (", *declared, f"{indent}){tags} {{"]
    else:
        lines.append(f"{head} (){tags} {{")
    for statement in block.statements:
        if isinstance(statement, Block):
            _block(statement, strides, inner, lines)
        else:
            lines.append(inner + statement_text(statement))
    lines.append(f"{indent}}}")


def statement_text(statement: Load | Store | Constant | IndexValue | Intrinsic | Cast | Special) -> str:
    """One statement other than a block, as it stands in the text (also for messages)."""
    match statement:
        case Load():
            return f"${statement.result} = load({statement.buffer}) {statement.dtype.value}"
        case Store():
            return f"{statement.buffer} = store(${statement.value})"
        case Constant():
            value = literal_text(statement.value)
            return f"${statement.result} = constant({value}) {statement.dtype.value}"
        case IndexValue():
            return f"${statement.result} = index({statement.expr}) {statement.dtype.value}"
        case Intrinsic():
            operands = ", ".join(f"${name}" for name in statement.operands)
            return f"${statement.result} = {statement.op}({operands}) {statement.dtype.value}"
        case Cast():
            return f"${statement.result} = cast(${statement.operand}) {statement.dtype.value}"
        case Special():
            return _special(statement)


def literal_text(value: int | float | bool | str) -> str:
    """A constant: `true`, `-3`, `0.5`, `1e+20`, `-0.0`, `inf`, `-inf`, `nan` or `"text"`.

    A float is never written like an integer, so that the kind of number comes back too.
    """
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return repr(float(value))


def _refinement(ref: Refinement, strides: tuple[int, ...] | None) -> str:
    text = "const " if ref.const else ""
    text += f"{ref.direction.value} {ref.name}"
    if ref.direction is not Direction.NEW:
        renamed = "" if ref.source == ref.name else f" = {ref.source}"
        text += f"{renamed}{_access(ref.access)}"
    if ref.aggregation is not None:
        text += f":{ref.aggregation.value}"
    text += f" {ref.dtype.value}({_list(ref.shape)})"
    text += f":({'?' if strides is None else _list(strides)})"
    if ref.location is not None:
        text += f" {location_text(ref.location)}"
    return text + _tags(ref.tags)


def _index(index: Index) -> str:
    return f"{index.name}:{index.range}" if index.passed is None else f"{index.name} = {index.passed}"


def location_text(location: Location) -> str:
    """`@SPAD[bank]:address`, as a text has it."""
    unit = location.unit if _NAME.fullmatch(location.unit) else json.dumps(location.unit)
    inside = [] if location.bank is None else [str(location.bank)]
    if location.spread is not None:
        inside.append(f"spread {location.spread}")
    text = f"@{unit}[{', '.join(inside)}]" if inside else f"@{unit}"
    return text if location.address is None else f"{text}:{location.address}"


def _tags(tags: tuple[Tag, ...]) -> str:
    text = ""
    for tag in tags:
        bare = not tag.value or _BARE.fullmatch(tag.value)
        text += f" {tag}" if bare else f" #{tag.name}={json.dumps(tag.value)}"
    return text


def _special(special: Special) -> str:
    text = f"special {special.name}({', '.join(map(_operand, special.operands))})"
    if special.params:
        text += f" {{{', '.join(f'{name}={literal_text(value)}' for name, value in special.params)}}}"
    return text if special.location is None else f"{text} {location_text(special.location)}"


def _operand(operand: Operand) -> str:
    text = f"{operand.direction.value} {operand.buffer}"
    if operand.access is not None:
        text += _access(operand.access)
    if operand.shape is not None:
        text += f"({_list(operand.shape)})"
    return text if operand.aggregation is None else f"{text}:{operand.aggregation.value}"


def _access(access: tuple[Affine, ...]) -> str:
    return f"[{_list(access)}]"


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
