"""Verifier, first part: names, ranks, types and directions. Each rule looks at one block and its
parent; the rules are listed in stripe.verify."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stripe import intrinsics
from stripe.affine import Affine
from stripe.diag import Diagnostic, Span, did_you_mean
from stripe.dtypes import DType, rounds_to
from stripe.ir import (
    SLOT,
    Aggregation,
    Block,
    Cast,
    Constant,
    Direction,
    IndexValue,
    Intrinsic,
    Load,
    Location,
    Refinement,
    Special,
    Statement,
    Store,
    Tag,
)
from stripe.tags import TAGS
from stripe.verify_specials import special_faults

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_']*")


@dataclass(frozen=True, slots=True)
class Site:
    """A block where it stands: its path (`main/dot`) and the site of its parent."""

    path: str
    block: Block
    parent: Site | None = None

    @property
    def nest(self) -> list[Site]:
        """The sites from the root to this one."""
        found = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]


def sites(root: Block, skip: frozenset[int] | set[int] = frozenset()) -> list[Site]:
    """Every block of the tree, parents first, in the order of the text; without recursion.

    Blocks whose `id` is in `skip` are left out, with all below them.
    """
    found: list[Site] = []
    pending = [Site(root.name, root)]
    while pending:
        site = pending.pop()
        found.append(site)
        children = [c for c in site.block.children if id(c) not in skip]
        pending.extend(Site(f"{site.path}/{child.name}", child, site) for child in reversed(children))
    return found


def described(number: int, statement: Statement) -> str:
    """How a message names a statement: its number in the block, from 0, and what it is."""
    match statement:
        case Load(result=result, buffer=buffer):
            what = f"${result} = load({buffer})"
        case Store(buffer=buffer, value=value):
            what = f"{buffer} = store(${value})"
        case Constant(result=result):
            what = f"${result} = constant"
        case IndexValue(result=result):
            what = f"${result} = index"
        case Intrinsic(result=result, op=op):
            what = f"${result} = {op}"
        case Cast(result=result):
            what = f"${result} = cast"
        case Special(name=name):
            what = f"special {name}"
        case Block(name=name):
            what = f"block {name}"
    return f"statement {number} ({what})"


def structure(site: Site) -> list[Diagnostic]:
    """The findings of the rules V001 to V043 about one block."""
    checker = _Structure(site)
    checker.check()
    return checker.found


class _Structure:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.path = site.path
        self.block = site.block
        self.parent = site.parent.block if site.parent else None
        self.outer = {ref.name: ref for ref in self.parent.refinements} if self.parent else {}
        self.refs = {ref.name: ref for ref in self.block.refinements}
        self.indexes = {index.name for index in self.block.indexes}
        self.types: dict[str, DType] = {}  # of the scalars defined so far
        self.found: list[Diagnostic] = []

    def check(self) -> None:
        self._names()
        self._indexes()
        for ref in self.block.refinements:
            self._refinement(ref)
        for number, statement in enumerate(self.block.statements):
            self._statement(number, statement)
        self._tags(self.block.tags, "block", self.block.span, "")
        self._location(self.block.location, "the location of the block", self.block.span)

    def report(self, code: str, where: str, message: str, span: Span | None, *notes: str) -> None:
        place = f"block {self.path}{', ' if where else ''}{where}"
        self.found.append(Diagnostic(code, f"{place}: {message}", span or self.block.span, notes))

    # -- names, indexes, constraints ---------------------------------------------------------

    def _names(self) -> None:
        named: list[tuple[str, str, Span | None]] = [("block", self.block.name, self.block.span)]
        named += [("index", index.name, index.span) for index in self.block.indexes]
        named += [("refinement", ref.name, ref.span) for ref in self.block.refinements]
        for kind, name, span in named:
            if not _NAME.fullmatch(name):
                help = "help: use a letter, then letters and digits"
                self.report("V001", "", f"{name!r} can't name a {kind}", span, help)
        for kind in ("index", "refinement"):
            seen: set[str] = set()
            for other, name, span in named:
                if other == kind and name in seen:
                    self.report("V001", f"{kind} '{name}'", "another one has this name", span)
                if other == kind:
                    seen.add(name)

    def _indexes(self) -> None:
        for index in self.block.indexes:
            where = f"index '{index.name}'"
            if self.parent is None:
                help = "help: put this block into a root block without indexes"
                self.report("V005", where, "the root runs once, so it has no indexes", index.span, help)
            elif index.passed is not None:
                names = {i.name for i in self.parent.indexes}
                for name in index.passed.names:
                    if name not in names:
                        message = f"'{name}' is not an index of the parent block"
                        self.report("V004", where, message, index.span, *did_you_mean(name, names))
            if index.range < 0 or (index.passed is not None and index.range != 1):
                wanted = "at least 0" if index.passed is None else "1, since it is passed in"
                self.report("V011", where, f"its range is {index.range}; it must be {wanted}", index.span)
        for constraint in self.block.constraints:
            self._own(constraint.expr, f"constraint '{constraint.expr} >= 0'", constraint.span)
        if self.block.inflight < 1:
            self.report("V011", "", f"inflight is {self.block.inflight}; it must be at least 1", None)

    def _own(self, expr: Affine, where: str, span: Span | None, more: tuple[str, ...] = ()) -> None:
        """An expression uses the block's own indexes only, and `more`."""
        for name in expr.names:
            if name in self.indexes or name in more:
                continue
            notes = did_you_mean(name, self.indexes)
            if self.parent is not None and any(index.name == name for index in self.parent.indexes):
                notes = (f"help: it is an index of the parent block; pass it in with `{name} = {name}`",)
            self.report("V003", where, f"'{name}' is not an index of this block", span, *notes)

    def _location(
        self, location: Location | None, where: str, span: Span | None, more: tuple[str, ...] = ()
    ) -> None:
        for expr in (location.bank, location.address) if location else ():
            if expr is not None:
                self._own(expr, where, span, more)

    def _tags(self, tags: tuple[Tag, ...], on: str, span: Span | None, where: str) -> None:
        for tag in tags:
            info = TAGS.get(tag.name)
            if info is None:
                self.report("V035", where, f"unknown tag '#{tag.name}'", span, *did_you_mean(tag.name, TAGS))
            elif info.on != on:
                self.report("V035", where, f"the tag '#{tag.name}' belongs on a {info.on}", span)
            elif bool(info.value) != bool(tag.value):
                wanted = f"names one: #{tag.name}={info.value.upper()}" if info.value else "takes no value"
                self.report("V035", where, f"the tag '#{tag.name}' {wanted}", span)
            elif info.value == "index" and tag.value not in self.indexes:
                notes = did_you_mean(tag.value, self.indexes)
                self.report("V035", where, f"the tag '{tag}' names no index of this block", span, *notes)

    # -- refinements -------------------------------------------------------------------------

    def _refinement(self, ref: Refinement) -> None:
        where = f"refinement '{ref.name}'"
        self._tags(ref.tags, "refinement", ref.span, where)
        slot = (SLOT,) if ref.direction is Direction.NEW else ()
        self._location(ref.location, f"the location of {where}", ref.span, slot)
        if any(size < 0 for size in ref.shape):
            self.report("V011", where, f"its shape {_shown(ref.shape)} has a negative size", ref.span)
        self._aggregation(ref, where)
        self._allocation(ref, where)
        if ref.const and (self.parent is not None or ref.direction is not Direction.IN):
            self.report("V016", where, "only inputs of the root are `const`", ref.span)
        if ref.direction is Direction.NEW:
            if ref.source or ref.access:
                self.report("V014", where, "a new buffer has neither a source nor an access", ref.span)
            return
        for expr in ref.access:
            self._own(expr, where, ref.span)
        if self.parent is None:
            self._signature(ref, where)
        else:
            self._view(ref, where)

    def _aggregation(self, ref: Refinement, where: str) -> None:
        op = ref.aggregation
        if ref.direction.writes and op is None:
            help = "help: write `:assign`, `:add`, `:mul`, `:max` or `:min` behind the access"
            self.report("V015", where, f"`{ref.direction}` needs an aggregation", ref.span, help)
        elif op is not None and not ref.direction.writes:
            self.report("V015", where, f"`{ref.direction}` takes no aggregation", ref.span)
        elif op is not None and not _aggregates(op, ref.dtype):
            self.report("V015", where, f"`{op}` does not aggregate {ref.dtype}", ref.span)

    def _allocation(self, ref: Refinement, where: str) -> None:
        allocates = self.parent is None or ref.direction is Direction.NEW
        if not allocates and ref.strides is not None:
            self.report("V012", where, "strides belong to allocations; those of a view are derived", ref.span)
        if allocates and (ref.strides is None or len(ref.strides) != len(ref.shape)):
            given = "no strides" if ref.strides is None else f"{len(ref.strides)} strides"
            self.report("V012", where, f"an allocation of {len(ref.shape)} dimensions has {given}", ref.span)
        spread = ref.location.spread if ref.location else None
        if spread is not None and not (allocates and 0 <= spread < len(ref.shape)):
            self.report("V012", where, f"`spread {spread}` names no dimension of an allocation", ref.span)

    def _signature(self, ref: Refinement, where: str) -> None:
        if ref.direction is Direction.INOUT:
            help = "help: take the old contents as an input"
            self.report("V005", where, "an output starts undefined, so it can't be `inout`", ref.span, help)
        if ref.source != ref.name:
            self.report("V005", where, f"the root has no parent with a buffer '{ref.source}'", ref.span)
        if len(ref.access) != len(ref.shape) or any(expr != Affine() for expr in ref.access):
            zeros = ", ".join("0" for _ in ref.shape)
            self.report("V005", where, f"a root refinement has the access [{zeros}]", ref.span)

    def _view(self, ref: Refinement, where: str) -> None:
        source = self.outer.get(ref.source)
        if source is None:
            notes = did_you_mean(ref.source, self.outer)
            self.report("V002", where, f"the parent block has no buffer '{ref.source}'", ref.span, *notes)
            return
        if len(ref.access) != len(source.shape) or len(ref.shape) != len(source.shape):
            ranks = f"its access has {len(ref.access)} and the shape {len(ref.shape)}"
            self.report(
                "V010", where, f"the rank of '{ref.source}' is {len(source.shape)}, {ranks}", ref.span
            )
        if ref.dtype is not source.dtype:
            message = f"it holds {ref.dtype}, but '{ref.source}' holds {source.dtype}"
            self.report("V013", where, message, ref.span, "help: a view can't convert; cast loaded scalars")
        self._passed(ref.direction, ref.aggregation, self.site.parent, source, where, ref.span)

    def _passed(
        self,
        direction: Direction,
        op: Aggregation | None,
        owner: Site | None,
        source: Refinement,
        where: str,
        span: Span | None,
    ) -> None:
        """The buffer `source` of the block `owner` is given to a child block or a special."""
        name = f"'{source.name}'"
        into = f"{name}, into which its block aggregates ({source.aggregation})"
        if direction.writes and source.direction is Direction.IN:
            self.report("V040", where, f"it writes {name}, which is `in` above", span, _MAKE_OUT)
        elif direction is Direction.IN and _aggregating(source):
            self.report("V041", where, f"it reads {into}", span, _READ_LATER)
        elif direction is Direction.INOUT and _aggregating(source):
            help = f"help: write `out` with `:{source.aggregation}`"
            self.report("V042", where, f"it is `inout` of {into}", span, help)
        elif op is not None and op is not Aggregation.ASSIGN:
            outer = _aggregation_above(owner, source)
            if outer not in (None, op):
                message = f"it aggregates with `{op}` below a level that aggregates {name} with `{outer}`"
                self.report("V043", where, message, span, "help: levels of one buffer use one operation")

    # -- statements --------------------------------------------------------------------------

    def _statement(self, number: int, statement: Statement) -> None:
        where = described(number, statement)
        match statement:
            case Block():
                return  # its refinements are checked from its own side
            case Store():
                self._store(statement, where)
                return
            case Special():
                self._special(statement, where)
                return
            case Load():
                self._load(statement, where)
            case Constant():
                if not _representable(statement.value, statement.dtype):
                    message = f"{statement.value!r} is no value of type {statement.dtype}"
                    self.report("V023", where, message, statement.span)
            case IndexValue():
                self._own(statement.expr, where, statement.span)
                if statement.dtype is DType.BOOL:
                    self.report("V024", where, "the value of an index is a number, not bool", statement.span)
            case Intrinsic():
                self._intrinsic(statement, where)
            case Cast():
                self._scalar(statement.operand, where, statement.span)
        if not _NAME.fullmatch(statement.result):
            self.report("V001", where, f"{statement.result!r} can't name a scalar", statement.span)
        if statement.result in self.types:
            message = f"the scalar '${statement.result}' is defined twice"
            self.report("V020", where, message, statement.span, "help: use a new name")
        self.types[statement.result] = statement.dtype

    def _scalar(self, name: str, where: str, span: Span | None) -> DType | None:
        dtype = self.types.get(name)
        if dtype is None:
            later = any(
                not isinstance(s, Block | Special | Store) and s.result == name for s in self.block.statements
            )
            what = "is used before it is defined" if later else "is not defined in this block"
            notes = () if later else did_you_mean(name, self.types)
            self.report("V020", where, f"the scalar '${name}' {what}", span, *notes)
        return dtype

    def _buffer(self, name: str, where: str, span: Span | None) -> Refinement | None:
        ref = self.refs.get(name)
        if ref is None:
            notes = did_you_mean(name, self.refs)
            self.report("V030", where, f"this block has no buffer '{name}'", span, *notes)
        return ref

    def _load(self, load: Load, where: str) -> None:
        ref = self._buffer(load.buffer, where, load.span)
        if ref is None:
            return
        if ref.dtype is not load.dtype:
            message = f"'{ref.name}' holds {ref.dtype}, the load says {load.dtype}"
            self.report("V022", where, message, load.span)
        if _aggregating(ref):
            message = f"it reads '{ref.name}', into which this block aggregates ({ref.aggregation})"
            self.report("V041", where, message, load.span, _READ_LATER)

    def _store(self, store: Store, where: str) -> None:
        dtype = self._scalar(store.value, where, store.span)
        ref = self._buffer(store.buffer, where, store.span)
        if ref is None:
            return
        if ref.direction is Direction.IN:
            self.report("V040", where, f"it writes '{ref.name}', which is `in`", store.span, _MAKE_OUT)
        if dtype is not None and dtype is not ref.dtype:
            message = f"'{ref.name}' holds {ref.dtype}, '${store.value}' is {dtype}"
            self.report("V022", where, message, store.span, f"help: cast the value to {ref.dtype}")

    def _special(self, special: Special, where: str) -> None:
        self._location(special.location, f"the location of {where}", special.span)
        for operand in special.operands:
            ref = self._buffer(operand.buffer, where, special.span)
            for expr in operand.access or ():
                self._own(expr, where, special.span)
            if ref is not None:
                self._passed(operand.direction, operand.aggregation, self.site, ref, where, special.span)
        for fault in special_faults(special, self.refs):
            self.report(fault.code, where, fault.message, special.span, *fault.notes)

    def _intrinsic(self, statement: Intrinsic, where: str) -> None:
        types = [self._scalar(name, where, statement.span) for name in statement.operands]
        info = intrinsics.INTRINSICS.get(statement.op)
        if info is None:
            notes = did_you_mean(statement.op, intrinsics.INTRINSICS)
            self.report("V021", where, f"unknown intrinsic '{statement.op}'", statement.span, *notes)
            return
        if len(types) != info.arity:
            some = "operand" if info.arity == 1 else "operands"
            message = f"'{statement.op}' takes {info.arity} {some}, not {len(types)}"
            self.report("V021", where, message, statement.span)
            return
        known = tuple(dtype for dtype in types if dtype is not None)
        if len(known) < len(types):
            return  # said already
        result = intrinsics.result_type(statement.op, known)
        if result is None:
            given = ", ".join(known)
            help = "help: cast the operands to one type that it takes"
            self.report("V021", where, f"'{statement.op}' does not take ({given})", statement.span, help)
        elif result is not statement.dtype:
            message = f"'{statement.op}' gives {result} here, not {statement.dtype}"
            self.report("V022", where, message, statement.span)


_MAKE_OUT = "help: make it `out` or `inout`, or write to another buffer"
_READ_LATER = "help: read it in a statement after that block has ended"


def _aggregating(ref: Refinement) -> bool:
    """Whether the block that holds `ref` combines the writes to it with an operation."""
    return ref.direction.writes and ref.aggregation is not Aggregation.ASSIGN


def _aggregation_above(owner: Site | None, ref: Refinement) -> Aggregation | None:
    """The operation of the nearest level, `ref` of `owner` or above, that aggregates the buffer."""
    while True:
        if ref.direction is Direction.NEW:
            return None
        if _aggregating(ref):
            return ref.aggregation
        owner = owner.parent if owner else None
        outer = next((r for r in owner.block.refinements if r.name == ref.source), None) if owner else None
        if outer is None:
            return None
        ref = outer


def _aggregates(op: Aggregation, dtype: DType) -> bool:
    return op is Aggregation.ASSIGN or intrinsics.result_type(op, (dtype, dtype)) is dtype


def _representable(value: int | float | bool, dtype: DType) -> bool:
    """Whether a constant has a value of the type: floats round, but a finite one stays finite."""
    if isinstance(value, bool) or dtype is DType.BOOL:
        return isinstance(value, bool) and dtype is DType.BOOL
    if dtype.is_integer:
        low = -(2 ** (dtype.bits - 1)) if dtype.is_signed else 0
        return isinstance(value, int) and low <= value < low + 2**dtype.bits
    return rounds_to(value, dtype)


def _shown(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
