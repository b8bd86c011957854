"""Every mechanical edit of a Python source: operators, constants, comparisons, conditions.

An edit is one change of one node of the syntax tree. Texts, annotations, remarks, errors and the
bounds of options are left alone: nothing is computed from them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

_SWAPS: dict[type[ast.AST], type[Any]] = {  # to an operator of the same kind
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SILENT = {
    "remark",
    "option",
    "Diagnostic",
    "CompileError",
    "InvariantError",
    "RewriteRefused",
    "ClassVar",
    "cast",
}


@dataclass(frozen=True)
class Edit:
    """One edit. `number` counts the edits of the file; `key` names it without the line."""

    path: Path
    number: int
    line: int
    function: str
    kind: str
    old: str
    new: str

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts)

    @property
    def key(self) -> str:
        return f"{self.path.relative_to(ROOT)} {self.function}: {self.old} -> {self.new}"

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} {self.function}: {self.old} -> {self.new}"


def edits_of(path: Path) -> list[Edit]:
    """All edits of a file, in the order of its text."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for number, (node, function, _, kind, old, new) in enumerate(_sites(tree)):
        found.append(Edit(path, number, node.lineno, function, kind, old, new))
    return found


def mutated(edit: Edit) -> ast.Module:
    """The syntax tree of the file with the edit made."""
    tree = ast.parse(edit.path.read_text(encoding="utf-8"))
    for number, (_, _, change, *_) in enumerate(_sites(tree)):
        if number == edit.number:
            change()
            return ast.fix_missing_locations(tree)
    raise LookupError(str(edit))


def _sites(tree: ast.Module) -> Iterator[tuple[ast.expr, str, Callable[[], None], str, str, str]]:
    for node, function in _nodes(tree, ""):
        for kind, changed in _variants(node):
            old, new = ast.unparse(node), ast.unparse(changed)

            def change(node: ast.AST = node, changed: ast.AST = changed) -> None:
                node.__class__ = changed.__class__
                node.__dict__.clear()
                node.__dict__.update(changed.__dict__)

            yield node, function, change, kind, old, new


def _nodes(node: ast.AST, function: str) -> Iterator[tuple[ast.expr, str]]:
    """The expressions whose value is computed with, and the functions that they stand in."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "msg", "exc"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            if isinstance(child, ast.Call) and _callee(child) in _SILENT:
                continue
            if isinstance(node, ast.Call) and _callee(node) == "isinstance" and child is node.args[-1]:
                continue  # types
            if isinstance(child, ast.JoinedStr | ast.Raise | ast.Assert):
                continue
            if isinstance(child, ast.Assign | ast.AnnAssign) and isinstance(node, ast.ClassDef):
                continue  # fields and options
            if isinstance(child, ast.AnnAssign) and ast.unparse(child.annotation) == "TypeAlias":
                continue
            inside = function
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inside = f"{function}.{child.name}" if function else child.name
            # Of what puts texts together a part may be an edit; all of it reads otherwise in Python 3.12.
            if isinstance(child, ast.expr) and not any(isinstance(n, ast.JoinedStr) for n in ast.walk(child)):
                yield child, inside
            yield from _nodes(child, inside)


def _callee(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _variants(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What the node may be changed into, with the kind of change."""

    def fresh() -> ast.expr:
        return copy.deepcopy(node)

    match node:
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _SWAPS:
            if any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (left, right)):
                return  # texts, or types
            made = fresh()
            assert isinstance(made, ast.BinOp)
            made.op = _SWAPS[type(op)]()
            yield "arithmetic", made
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "negation", copy.deepcopy(operand)
        case ast.Compare(ops=[op]) if type(op) in _SWAPS:
            made = fresh()
            assert isinstance(made, ast.Compare)
            made.ops = [_SWAPS[type(op)]()]
            yield "comparison", made
        case ast.BoolOp(op=op):
            made = fresh()
            assert isinstance(made, ast.BoolOp)
            made.op = _SWAPS[type(op)]()
            yield "logic", made
        case ast.Constant(value=bool(value)):
            yield "constant", ast.copy_location(ast.Constant(not value), node)
        case ast.Constant(value=int(value)):
            yield "constant", ast.copy_location(ast.Constant(value + 1), node)
            yield "constant", ast.copy_location(ast.Constant(value - 1), node)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            made = fresh()
            assert isinstance(made, ast.Call)
            made.func = ast.copy_location(ast.Name(_CALLS[name], ast.Load()), node)
            yield "extreme", made
        case ast.IfExp(test=test):
            made = fresh()
            assert isinstance(made, ast.IfExp)
            made.test = ast.copy_location(ast.UnaryOp(ast.Not(), copy.deepcopy(test)), node)
            yield "condition", made
