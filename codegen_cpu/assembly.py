"""What the innermost loops of assembly hold: registers, spills, multiply-adds, loads and stores.

    text of functions -> their innermost loops -> counts of each; the one that computes most is the hot one

A loop is what lies between a label and the last jump back to it. x86 (AT&T) and AArch64 are read; of other
architectures nothing is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codegen_cpu.llvm import architecture


@dataclass(frozen=True, slots=True)
class InnerLoop:
    """One turn of an innermost loop, or code without loops. Counts are of instructions: `multiply_adds`
    and `arithmetic` (other arithmetic on vectors and floats), `loads` of whole vectors or scalars from
    memory, those folded into arithmetic too, `broadcasts` of one element, `gathers`, `stores`; vectors that
    go to the stack because registers run out (`spills`), and come back from there (`reloads`), count apart.
    `registers`: different vector registers, `vector_bytes` the widest of them."""

    instructions: int = 0
    multiply_adds: int = 0
    arithmetic: int = 0
    loads: int = 0
    broadcasts: int = 0
    gathers: int = 0
    stores: int = 0
    spills: int = 0
    reloads: int = 0
    registers: int = 0
    vector_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CodeFacts:
    """The hot loop, how many innermost loops there are, and in how many of them vectors are spilled or
    reloaded."""

    hot: InnerLoop
    loops: int
    spilling: int


def code_facts(asm: str, triple: str) -> CodeFacts | None:
    """What the functions of a text hold; None where its architecture is not known, or there is no function.
    Where no function has a loop, the longest counts as one turn of a loop."""
    dialect = _dialect(triple)
    functions = list(_functions(asm))
    if dialect is None or not functions:
        return None
    loops, whole = [], []
    for lines in functions:
        stack = _stack(lines, dialect, dialect.spill)
        loops += [_count(piece, dialect, stack) for piece in _innermost(lines, dialect)]
        whole.append(_count(lines, dialect, stack))
    hot = max(loops or whole, key=lambda loop: (loop.multiply_adds, loop.arithmetic, loop.instructions))
    return CodeFacts(hot, len(loops), sum(loop.spills + loop.reloads > 0 for loop in loops))


def spilled(asm: str, triple: str) -> int:
    """How often the innermost loops of a text store a vector to the stack, or load one from there, buffers
    that lie there included; 0 where its architecture is not known."""
    dialect = _dialect(triple)
    if dialect is None:
        return 0
    found = 0
    for lines in _functions(asm):
        stack = _stack(lines, dialect, dialect.touch)
        found += sum(
            bool(stack.search(line) and re.search(dialect.vector, line))
            for loop in _innermost(lines, dialect)
            for line in loop
        )
    return found


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How an architecture writes what is counted: patterns for the start of an instruction, or (`base` to
    `vector`) for its operands."""

    jump: str
    frame: str  # what makes a second register an address of the stack
    base: str
    base_by_frame: str
    spill: str  # an address on the stack without an index: what is indexed is a buffer that lies there
    touch: str  # any address on the stack
    memory: str
    vector: str  # with the width's name and the number as groups
    widths: dict[str, int]
    multiply_add: str
    arithmetic: str
    broadcast: str
    gather: str
    store: str


_X86 = _Dialect(
    jump=r"j\w+\s+(\.L\w+)",
    frame=r"movq\s+%rsp, %rbp",
    base=r"%rsp",
    base_by_frame=r"%r[sb]p",
    spill=r"\(BASE\)",
    touch=r"\(BASE[,)]",
    memory=r"\(%",
    vector=r"%([xyzt])mm(\d+)",
    widths={"x": 16, "y": 32, "z": 64, "t": 1024},
    multiply_add=r"vf(n?m(add|sub)|maddsub|msubadd)|vpdp|vdpbf|tdp",
    arithmetic=r"v?(add|sub|mul|div|min|max|sqrt|scalef|reduce|rndscale|round|p?and|p?or|p?xor|cmp|cvt"
    r"|padd|psub|pmul|pmadd|pmin|pmax|psll|psra|psrl|p?blend|pternlog|pcmp|psad|getexp|fixup)",
    broadcast=r"v?p?broadcast",
    gather=r"vp?gather",
    store=r"v?p?(mov|compress|scatter|extract)|tilestore",
)
_AARCH64 = _Dialect(
    jump=r"(?:b\.\w+|b|cbn?z|tbn?z)\s+(?:\w+, )?(?:#\d+, )?(\.L\w+)",
    frame=r"mov\s+x29, sp",
    base=r"sp",
    base_by_frame=r"(sp|x29)",
    spill=r"\[BASE(\]|, #)",
    touch=r"\[BASE[,\]]",
    memory=r"\[(x|sp)",
    vector=r"\b([bhsdqv])(\d+)\b",
    widths={"b": 1, "h": 2, "s": 4, "d": 8, "q": 16, "v": 16},
    multiply_add=r"fml[as]|fn?m(add|sub)|[su]dot|bfdot|ml[as]\b",
    arithmetic=r"f(add|sub|mul|div|min|max|sqrt|abs|neg|cm|cvt|rint)|[su]?(add|sub|mul|min|max|shl|shr)\s+v",
    broadcast=r"ld1r|dup",
    gather=r"$^",
    store=r"st",
)


def _dialect(triple: str) -> _Dialect | None:
    return {"x86_64": _X86, "aarch64": _AARCH64}.get(architecture(triple))


def _functions(asm: str) -> Iterator[list[str]]:
    """The instructions and labels of each function, without comments and directives."""
    found: list[str] | None = None
    for raw in asm.splitlines():
        line = re.split(r"//|#\s|##|#(?:NO_)?APP", raw)[0].strip()
        if found is None:
            found = [] if re.fullmatch(r"[A-Za-z_][\w.]*:", line) else None
        elif line.startswith(".Lfunc_end"):
            yield found
            found = None
        elif line and (not line.startswith(".") or line.endswith(":")):
            found.append(line)


def _innermost(lines: Sequence[str], dialect: _Dialect) -> list[Sequence[str]]:
    """The lines of each loop that holds no other."""
    at = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        target = re.match(dialect.jump, line)
        if target and at.get(target[1], number) < number:
            ends[at[target[1]]] = number
    spans = ends.items()
    inner = [
        (start, end)
        for start, end in spans
        if not any((a, b) != (start, end) and start <= a and b <= end for a, b in spans)
    ]
    return [[line for line in lines[start : end + 1] if not line.endswith(":")] for start, end in inner]


def _stack(lines: Sequence[str], dialect: _Dialect, pattern: str) -> re.Pattern[str]:
    """What addresses the stack in a function, in the way of a pattern."""
    on_frame = any(re.match(dialect.frame, line) for line in lines)
    return re.compile(pattern.replace("BASE", dialect.base_by_frame if on_frame else dialect.base))


def _count(lines: Sequence[str], dialect: _Dialect, stack: re.Pattern[str]) -> InnerLoop:
    counts: dict[str, int] = {}
    registers: dict[int, int] = {}
    for line in lines:
        if line.endswith(":"):
            continue
        for kind, number in re.findall(dialect.vector, line):
            registers[int(number)] = max(registers.get(int(number), 0), dialect.widths[kind])
        for what in _kinds(line, dialect, stack):
            counts[what] = counts.get(what, 0) + 1
    widest = max(registers.values(), default=0)
    return InnerLoop(**counts, registers=len(registers), vector_bytes=widest)


def _kinds(line: str, dialect: _Dialect, stack: re.Pattern[str]) -> Iterator[str]:
    """What an instruction counts as."""
    yield "instructions"
    if re.match(dialect.multiply_add, line):
        yield "multiply_adds"
    elif re.match(dialect.arithmetic, line) and re.search(dialect.vector, line):
        yield "arithmetic"
    if re.match(r"lea|prefetch|prfm|nop", line) or not re.search(dialect.memory, line):
        return
    stores = _is_store(line, dialect)
    if stack.search(line):
        # Addresses and counts that come from there cost next to nothing.
        if re.search(dialect.vector, line):
            yield "spills" if stores else "reloads"
    elif stores:
        yield "stores"
    elif re.match(dialect.gather, line):
        yield "gathers"
    elif re.match(dialect.broadcast, line) or "{1to" in line:
        yield "broadcasts"
    elif dialect is not _X86 or re.search(dialect.vector, line):
        yield "loads"


def _is_store(line: str, dialect: _Dialect) -> bool:
    """Whether the operand in memory is written: in AT&T's order the last operand of what moves."""
    if not re.match(dialect.store, line):
        return False
    return dialect is not _X86 or bool(re.search(r"\)(\s*\{%k\d\})?$", line))
