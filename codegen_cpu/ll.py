"""LLVM IR as text: types, values, and a builder of functions.

llvmlite's own `ir` module has no bfloat, no vectors of pointers and no metadata on single
accesses, and makes an object per operand. Here an instruction is one line of text; LLVM parses
and checks the whole. Names are numbered per function, so the same program always gives the same text.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from stripe.diag import InvariantError


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar type of LLVM, or a vector of `lanes` of them (`lanes` 0 is the scalar itself)."""

    element: str
    lanes: int = 0

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.element}>" if self.lanes else self.element

    def times(self, lanes: int) -> Type:
        """The same element type with another number of lanes."""
        return Type(self.element, lanes) if lanes != self.lanes else self

    @property
    def is_float(self) -> bool:
        return self.element in ("half", "float", "double")

    @property
    def bits(self) -> int:
        """The width of one element."""
        known = {"half": 16, "float": 32, "double": 64, "ptr": 64}
        return known.get(self.element) or int(self.element[1:])

    @property
    def fills_avx512(self) -> bool:
        """Whether an AVX-512 register is full of it, or a half or a quarter of one. Masks have registers of
        their own, and not all such CPUs have vectors of elements shorter than 4 bytes."""
        return self.bits in (32, 64) and self.element != "ptr" and self.lanes * self.bits in (128, 256, 512)

    @property
    def mangled(self) -> str:
        """The type as the names of LLVM's overloaded intrinsics spell it."""
        name = f"f{self.bits}" if self.is_float else "p0" if self.element == "ptr" else self.element
        return f"v{self.lanes}{name}" if self.lanes else name


I1, I8, I16, I32, I64 = (Type(f"i{bits}") for bits in (1, 8, 16, 32, 64))
HALF, FLOAT, DOUBLE, PTR = Type("half"), Type("float"), Type("double"), Type("ptr")
VOID = Type("void")


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: a type and the text that names it."""

    type: Type
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def is_constant(self) -> bool:
        return not self.text.startswith("%")

    @property
    def is_number(self) -> bool:
        """Whether it is a floating-point constant, the same in each lane, and no NaN."""
        found = _FLOAT.search(self.text)
        return found is not None and not math.isnan(_float_of(found[1]))


def constant(type_: Type, value: int | float | bool) -> Value:
    """A constant, the same in each lane of a vector."""
    if type_.is_float:
        text = _float_text(type_.element, float(value))
    elif type_.element == "i1":
        text = "true" if value else "false"
    else:
        text = str(_wrapped(int(value), type_.bits))
    return Value(type_, f"splat ({type_.element} {text})" if type_.lanes else text)


def constants(element: Type, values: Iterable[int | bool]) -> Value:
    """A vector constant with a value for each lane."""
    texts = [str(constant(element, value)) for value in values]
    return Value(element.times(len(texts)), f"<{', '.join(texts)}>")


def zero(type_: Type) -> Value:
    """The constant 0, in each lane of a vector."""
    return Value(type_, "zeroinitializer" if type_.lanes else constant(type_, 0).text)


def poison(type_: Type) -> Value:
    """No value yet: what is inserted into or shuffled with."""
    return Value(type_, "poison")


def _wrapped(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _float_text(element: str, value: float) -> str:
    # LLVM writes a `float` as the double that equals it.
    if element == "float":
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _float_of(digits: str) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", int(digits, 16)))[0]
    return value


_FLOAT = re.compile(r"^(?:splat \(\w+ )?0x([0-9A-F]{16})\)?$")
_RARELY = '!{!"branch_weights", i32 1, i32 2000}'
_FOREIGN = re.compile(r"[^A-Za-z0-9_.]|^(?=[0-9])")  # what LLVM's names can't hold unquoted


@lru_cache(maxsize=1024)  # most names are asked for again and again
def _plain(name: str) -> str:
    return _FOREIGN.sub("_", name)


class Module:
    """The text of one LLVM module: functions, declarations and metadata, each written once. `mask_lanes`: of
    so many lanes are the registers for masks, which AVX-512 has; 0 without it."""

    def __init__(self, triple: str, layout: str, tuned_for: str = "", mask_lanes: int = 0) -> None:
        tuning = f' "tune-cpu"="{tuned_for}"' if tuned_for else ""
        self._attributes = f"attributes #0 = {{ nounwind{tuning} }}"
        self.triple = triple
        self.mask_lanes = mask_lanes
        self._head = [f'target datalayout = "{layout}"', f'target triple = "{triple}"', ""]
        self._functions: list[Function] = []
        self._helpers: dict[str, str] = {}
        self._declarations: dict[str, str] = {}
        self._metadata: list[str] = []

    def function(
        self, name: str, result: Type, parameters: Sequence[tuple[Value, str]], attributes: str = ""
    ) -> Function:
        """A function to fill in; each parameter comes with its attributes."""
        made = Function(self, name, result, parameters, attributes)
        self.add(made)
        return made

    def add(self, function: Function) -> None:
        self._functions.append(function)

    def unused(self, name: str) -> str:
        """A name that no function has: this one, or with a number."""
        taken = {function.name for function in self._functions}
        number = next(n for n in itertools.count() if f"{name}{n or ''}" not in taken)
        return f"{name}{number or ''}"

    def declare(self, name: str, result: Type, operands: Sequence[Type], attributes: str = "") -> None:
        if name not in self._helpers:
            listed = ", ".join(str(o) for o in operands)
            self._declarations[name] = f"declare {result} @{name}({listed}) {attributes}".rstrip()

    def helper(self, name: str, text: str) -> None:
        """A function of fixed text, defined once however often it is asked for."""
        self._helpers.setdefault(name, text)

    def metadata(self, text: str) -> str:
        """Add a metadata node; its name."""
        self._metadata.append(text)
        return f"!{len(self._metadata) - 1}"

    def reserve_metadata(self) -> int:
        """A node whose text is given later, by `fill_metadata`."""
        self._metadata.append("!{}")
        return len(self._metadata) - 1

    def fill_metadata(self, number: int, text: str) -> None:
        self._metadata[number] = text

    def text(self) -> str:
        lines = list(self._head)
        for function in self._functions:
            lines += [*function.lines(), ""]
        lines += [text for _, text in sorted(self._helpers.items())]
        lines += [text for _, text in sorted(self._declarations.items())]
        lines.append(self._attributes)
        lines += [f"!{number} = {text}" for number, text in enumerate(self._metadata)]
        return "\n".join(lines) + "\n"


class Function:
    """A function under construction. Instructions go to the end of the current basic block."""

    def __init__(
        self,
        module: Module,
        name: str,
        result: Type,
        parameters: Sequence[tuple[Value, str]],
        attributes: str = "",
        linkage: str = "",
    ) -> None:
        self.module = module
        self.name = name
        listed = ", ".join(
            f"{p.type} {attributes} {p.text}".replace("  ", " ") for p, attributes in parameters
        )
        self._head = f"define {linkage}{result} @{name}({listed}) {attributes}#0 {{"
        self._counts: dict[str, int] = {p.text[1:]: 0 for p, _ in parameters}
        self._allocas: list[str] = []
        self._body: list[Any] = []  # lines, and places with lines
        self.label = "entry"
        self.is_elsewhere = False  # lines go to a place that `mark` gave
        self.has_idle_lanes = False  # what is computed has lanes that are masked off: these may hold anything
        self._known: dict[str, Value] = {}  # what is computed wherever this basic block runs, by its text
        self._inherited: dict[str, dict[str, Value]] = {}  # the same for blocks that are yet to start
        self._fixed: dict[str, Value] = {}  # what the entry block has computed for all

    def lines(self) -> list[str]:
        flat = [self._head, "entry:", *self._allocas]
        for line in self._body:
            flat += [line] if isinstance(line, str) else line
        return [*flat, "}"]

    # -- structure -----------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """A name of this function that is not taken; `hint` is a name of Stripe's, or our own."""
        hint = _plain(hint)
        count = self._counts.get(hint)
        if count is None:
            self._counts[hint] = 0
            return hint
        name = hint
        while name in self._counts:
            count += 1
            name = f"{hint}.{count}"
        self._counts[hint] = count
        self._counts[name] = 0
        return name

    def line(self, text: str) -> None:
        self._body.append(f"  {text}")

    def mark(self) -> list[str]:
        """A place to which lines can still be added later."""
        place: list[str] = []
        self._body.append(place)
        return place

    @contextmanager
    def at(self, place: list[str]) -> Iterator[None]:
        """Lines go to a place that `mark` gave, for now; they must not begin a basic block. What was
        computed since comes too late for them."""
        here = self._body, self._known, self.label, self.is_elsewhere
        self._body, self._known, self.label, self.is_elsewhere = place, {}, self.fresh("earlier"), True
        yield
        self._body, self._known, self.label, self.is_elsewhere = here

    def start(self, label: str) -> None:
        """Begin a basic block; the one before must have ended with a branch."""
        self._body.append(f"{label}:")
        self.label = label
        self._known = self._inherited.pop(label, {})

    def leads_to(self, *labels: str) -> None:
        """Basic blocks yet to start that no way reaches but through here: what has been computed so far
        serves them too."""
        for label in labels:
            self._inherited.setdefault(label, dict(self._known))

    def branch(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch_if(self, condition: Value, yes: str, no: str, rarely: bool = False) -> None:
        """`rarely`: the condition hardly ever holds, so that registers are for the other way."""
        weights = f", !prof {self.module.metadata(_RARELY)}" if rarely else ""
        self.line(f"br {condition}, label %{yes}, label %{no}{weights}")

    def result(self, value: Value | None = None) -> None:
        self.line("ret void" if value is None else f"ret {value}")

    def alloca(self, type_: Type, hint: str, count: int = 1, align: int = 0) -> Value:
        """Stack memory, in the entry block: LLVM keeps it in registers where it can."""
        name = self.fresh(hint)
        kind = str(type_) if count == 1 else f"[{count} x {type_}]"
        tail = f", align {align}" if align else ""
        self._allocas.append(f"  %{name} = alloca {kind}{tail}")
        return Value(PTR, f"%{name}")

    def at_entry(self, type_: Type, text: str, hint: str) -> Value:
        """An instruction on parameters alone, in the entry block, so that all can use it."""
        name = self.fresh(hint)
        self._allocas.append(f"  %{name} = {text}")
        return Value(type_, f"%{name}")

    def fixed(self, pointer: Value, element: Type, count: int) -> Value:
        """A place in stack memory, `count` elements behind its start: in the entry block, once."""
        text = f"getelementptr {element}, {pointer}, {constant(I64, count)}"
        if text not in self._fixed:
            self._fixed[text] = self.at_entry(PTR, text, "p")
        return self._fixed[text]

    # -- instructions --------------------------------------------------------------------

    def emit(self, type_: Type, text: str, hint: str = "v") -> Value:
        name = self.fresh(hint)
        self.line(f"%{name} = {text}")
        return Value(type_, f"%{name}")

    def pure(self, type_: Type, text: str, hint: str = "v") -> Value:
        """An instruction that depends on its operands alone, so that a basic block needs it once: the
        copies of a loop that is written out share most of their addresses."""
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self.emit(type_, text, hint)
        return known

    def opaque(self, value: Value) -> Value:
        """The same value, of which LLVM knows nothing more: in a general register, or an AVX-512 vector."""
        if value.type.lanes and not value.type.fills_avx512:
            raise InvariantError(f"LLVM: no vector register holds {value.type}")
        kind = "v" if value.type.lanes else "r"
        return self.pure(value.type, f'call {value.type} asm "", "={kind},0"({value})')

    def opaque_mask(self, mask: Value) -> Value:
        """The same mask, of whose lanes LLVM knows nothing more.

        It stays in a register for masks, if there are any. Of a comparison and a move to a general register
        LLVM 22 makes one instruction that takes vectors above 15 for others (llvm/llvm-project#191304).
        """
        lanes, most = mask.type.lanes, self.module.mask_lanes or I64.bits
        if lanes > most:  # two halves, which may share a lane
            half = -(-lanes // 2)
            first = self.opaque_mask(self.shuffle(mask, mask, range(half)))
            second = self.opaque_mask(self.shuffle(mask, mask, range(lanes - half, lanes)))
            return self.shuffle(first, second, [*range(half), *range(3 * half - lanes, 2 * half)])
        if not self.module.mask_lanes:
            return self.opaque_word(mask)
        spare = max(8, 1 << (lanes - 1).bit_length()) - lanes
        whole = self.shuffle(mask, mask, [*range(lanes), *[-1] * spare]) if spare else mask
        held = self.pure(whole.type, f'call {whole.type} asm "", "=k,0"({whole})')
        return self.shuffle(held, held, range(lanes)) if spare else held

    def opaque_word(self, mask: Value) -> Value:
        """The same of at most 64 lanes, by way of a general register: such as a constant, which a loop may
        keep there."""
        lanes = mask.type.lanes
        bits, word = Type(f"i{lanes}"), I32 if lanes <= I32.bits else I64
        number = self.pure(bits, f"bitcast {mask} to {bits}")
        number = number if bits == word else self.convert("zext", number, word)
        number = self.opaque(number)
        number = number if bits == word else self.convert("trunc", number, bits)
        return self.pure(mask.type, f"bitcast {number} to {mask.type}")

    def decided(self, value: Value) -> Value:
        """The same value, on which code may branch, or divide by it, whatever lanes hold that are masked off.
        Where there are none LLVM is not told: it would see to it in the loops that compute the value."""
        return self.unary("freeze", value) if self.has_idle_lanes else value

    def in_turn(self) -> None:
        """LLVM moves no load from behind this place to in front of it."""
        self.line('call void asm sideeffect "", ""() nounwind memory(inaccessiblemem: readwrite)')

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """An instruction with two operands of one type; `op` may carry flags."""
        if a.type != b.type:
            raise InvariantError(f"LLVM: {op} of {a.type} and {b.type}")
        return self.pure(a.type, f"{op} {a.type} {a.text}, {b.text}")

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """`op` is for example `icmp slt` or `fcmp olt`."""
        if a.type != b.type:
            raise InvariantError(f"LLVM: {op} of {a.type} and {b.type}")
        return self.pure(I1.times(a.type.lanes), f"{op} {a.type} {a.text}, {b.text}", "t")

    def unary(self, op: str, a: Value) -> Value:
        return self.pure(a.type, f"{op} {a}")

    def convert(self, op: str, a: Value, to: Type) -> Value:
        """`op` is for example `sext` or `bitcast`; lanes are those of the operand."""
        to = to.times(a.type.lanes)
        return a if op == "bitcast" and to == a.type else self.pure(to, f"{op} {a} to {to}")

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        if yes.type != no.type:
            raise InvariantError(f"LLVM: select of {yes.type} and {no.type}")
        return self.pure(yes.type, f"select {condition}, {yes}, {no}")

    def call(
        self, name: str, result: Type, operands: Sequence[Value], attributes: str = "", flags: str = ""
    ) -> Value:
        """A call of a function that is declared on the way; `flags` are those of fast arithmetic."""
        self.module.declare(name, result, [o.type for o in operands], attributes)
        op = f"call {flags}" if flags else "call"
        return self.emit(result, f"{op} {result} @{name}({', '.join(map(str, operands))})")

    def intrinsic(self, name: str, operands: Sequence[Value], *more: Value, flags: str = "") -> Value:
        """`llvm.name`, overloaded on the type of its first operand, which is its result's."""
        type_ = operands[0].type
        return self.call(f"llvm.{name}.{type_.mangled}", type_, [*operands, *more], flags=flags)

    # -- memory --------------------------------------------------------------------------

    def offset(self, pointer: Value, element: Type, offset: Value) -> Value:
        """`pointer` advanced by a number of elements (a vector of numbers: a vector of pointers)."""
        result = PTR.times(offset.type.lanes)
        return self.pure(result, f"getelementptr {element}, {pointer}, {offset}", "p")

    def load(self, type_: Type, pointer: Value, align: int, suffix: str = "") -> Value:
        return self.emit(type_, f"load {type_}, {pointer}, align {align}{suffix}")

    def store(self, value: Value, pointer: Value, align: int, suffix: str = "") -> None:
        self.line(f"store {value}, {pointer}, align {align}{suffix}")

    # -- vectors -------------------------------------------------------------------------

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in each of `lanes` lanes; 0 lanes leave it as it is. Where an AVX-512 register has it
        already, its lower lanes serve: LLVM would fill those anew, on a port that multiply-adds wait for."""
        if lanes == 0 or value.type.lanes == lanes:
            return value
        type_ = value.type.times(lanes)
        if value.is_constant:
            return Value(type_, f"splat ({value})")
        known = f"splat {value}"
        wide = self._known.get(known)
        if wide is not None and wide.type.lanes > lanes and self.module.mask_lanes and wide.type.fills_avx512:
            return self.shuffle(self.opaque(wide), poison(wide.type), range(lanes))
        first = self.insert(poison(type_), value, 0)
        mask = Value(I32.times(lanes), "zeroinitializer")
        self._known[known] = self.pure(type_, f"shufflevector {first}, {poison(type_)}, {mask}")
        return self._known[known]

    def insert(self, vector: Value, value: Value, lane: int) -> Value:
        return self.pure(vector.type, f"insertelement {vector}, {value}, i64 {lane}")

    def extract(self, vector: Value, lane: int) -> Value:
        return self.pure(vector.type.times(0), f"extractelement {vector}, i64 {lane}")

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """The lanes of `a` and then `b` that `lanes` names (-1: any)."""
        picked = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
        type_ = a.type.times(len(lanes))
        return self.pure(type_, f"shufflevector {a}, {b}, <{len(lanes)} x i32> <{picked}>")
