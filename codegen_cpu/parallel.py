"""Parallel regions: blocks whose points are dealt out to the copies of a unit run on several threads.

    block core [c:4, s:8] @CORE[c] (...) {...}   the points of 4 copies, in 8 parts each

The block becomes a function `void region(environment)`, which the OpenMP runtime enters on every
thread (`GOMP_parallel`, which the runtimes of GCC, LLVM and Intel all have). The environment holds
what the body uses of the function around it: pointers of buffers and values of loops. Buffers that the
body makes lie on the stack of a thread, or in the part of the workspace that belongs to the thread.

Nobody knows when a thread begins, nor how fast it is. So each takes the parts of one copy, one after the
other, and then what is left of the others': counters that all share say which part is next. The points of
a copy are in parts along its other indexes, as far as no two parts write one element.

Points of different copies may combine in one element (`add` over them). Threads would meet in it:
`writes_apart` says whether they can, and such a block runs on one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from codegen_cpu.layout import ALIGNMENT, Memory, View
from codegen_cpu.ll import I8, I32, I64, PTR, VOID, Function, Value, constant
from codegen_cpu.loops import Loop
from codegen_cpu.scope import Scope
from codegen_cpu.target import Target
from codegen_cpu.tools import Tools
from codegen_cpu.written import Cells, written_cells
from stripe.affine import Affine, box_of
from stripe.ir import Aggregation, Block, Index
from stripe.poly import Domain, PolyhedralLimit

FORK = "GOMP_parallel"  # the symbol that object code with regions needs
THREAD = "omp_get_thread_num"  # what our own threads ask the runtime

_SLOT_BYTES = 8  # of a pointer, and of an index, in the environment


def copies_used(block: Block, target: Target) -> int:
    """On how many copies of the target's unit the points of a block are to run; 1 if it is not spread."""
    location = block.location
    if location is None or location.bank is None or location.unit != target.unit or target.threads < 2:
        return 1
    number, ranges = location.bank, block.ranges
    if not any(ranges.get(name, 1) > 1 for name in number.names) or not all(ranges.values()):
        return 1
    if any(name not in ranges for name in number.names):
        return target.threads
    bounds = box_of(ranges)
    return max(1, min(target.threads, number.bounds(bounds)[1] + 1))


def writes_apart(block: Block, part: Affine | None = None) -> bool:
    """Whether points on different copies of the unit write different elements, or those of different parts
    that an expression over the block's indexes numbers.

    Only sums and the like can meet: of an `assign`, one point writes an element.
    """
    assert block.location is not None
    assert block.location.bank is not None
    number = block.location.bank if part is None else part
    summed = {
        ref.source
        for ref in block.refinements
        if ref.direction.writes and ref.aggregation is not Aggregation.ASSIGN
    }
    try:
        for source in summed:
            cells = [
                found
                for ref in block.refinements
                if ref.direction.writes and ref.source == source
                for found in written_cells(block, ref, block.ranges.keys() & set(number.names))
            ]
            if any(_meet(block, number, one, other) for one in cells for other in cells):
                return False
    except PolyhedralLimit:
        return False
    return True


def parts_indexes(block: Block) -> dict[str, int]:
    """The indexes along which the points of a copy are in parts, outermost first, and their ranges."""
    assert block.location is not None
    assert block.location.bank is not None
    number, found = block.location.bank, dict[str, int]()
    if not any(isinstance(s, Block) for s in block.statements):
        return found  # its points are too short to be counted
    for name, size in block.ranges.items():
        if name in block.location.bank.names or size < 2:
            continue
        # Counted through, no two copies and no two parts of one have the same number.
        number = number * size + Affine.index(name)
        if not writes_apart(block, number):
            break
        found[name] = size
    return found


def _meet(block: Block, number: Affine, one: Cells, other: Cells) -> bool:
    """Whether two copies, the first of a greater number, write one element."""
    passed = tuple(i.name for i in block.indexes if i.passed is not None)
    names: list[str] = [f"{name}|" for name in passed]
    limits: list[Affine] = []
    numbers: list[Affine] = []
    elements: list[tuple[Affine, ...]] = []
    for prefix, cells in (("a|", one), ("b|", other)):
        ranges = dict(cells.ranges)
        # An index that no element depends on has been projected out: it may have any value.
        ranges |= {f"{n}.0": size for n, size in block.ranges.items() if n in number.names}
        renamed = {n: Affine.index(prefix + n) for n in ranges}
        renamed |= {n: Affine.index(f"{n}|") for n in passed}
        names += [prefix + n for n in ranges]
        for n, size in ranges.items():
            at = Affine.index(prefix + n)
            limits += [at, -at + (size - 1)]
        limits += [c.substitute(renamed) for c in cells.constraints]
        own = {n: renamed[f"{n}.0"] for n in block.ranges if n in number.names}
        numbers.append(number.substitute({**renamed, **own}))
        elements.append(tuple(e.substitute(renamed) for e in cells.access))
    apart = numbers[0] - numbers[1] - 1
    same = [a - b for a, b in zip(*elements, strict=True)]
    return not Domain.of(names, [*limits, apart], same).is_empty()


# -- the function of a region ------------------------------------------------------------------


@dataclass(slots=True)
class Region:
    """A region whose body is being written: its function, and what it takes from the one around it.

    `scope` is that of the body, in values of its own function; `captured` are the values of the function
    around that the environment holds, in order. `counters`, which all threads share, count the threads that
    came, and of each copy the parts that were taken; `thread` is the number of this one.
    """

    tools: Tools
    memory: Memory
    scope: Scope
    captured: list[Value]
    counters: Value
    thread: Value
    copies: int

    def points(self, block: Block) -> Iterator[tuple[Block, Scope]]:
        """Emits the loops over copies, their parts, and the indexes that say which copy runs a point, with
        the test whether it is this one. What the caller emits meanwhile is the body: one execution of the
        block given, which is passed these indexes."""
        assert block.location is not None
        assert block.location.bank is not None
        f, indexing, number = self.tools.f, self.tools.indexing, block.location.bank
        spread = {name: size for name, size in block.ranges.items() if name in number.names}
        along = parts_indexes(block)
        parts = prod(along.values())
        one, copies = constant(I64, 1), constant(I64, self.copies)
        turns = indexing.open("turn", constant(I64, 0), copies, 1, (0, self.copies - 1))
        turn = f.binary("add", indexing.value(turns.value), self.thread)
        copy = f.binary("urem", turn, copies)
        line = f.binary("mul", f.binary("add", copy, one), constant(I64, ALIGNMENT))
        taken = f.offset(self.counters, I8, line)
        again, some, none = f.fresh("again"), f.fresh("some"), f.fresh("none")
        f.branch(again)
        f.start(again)
        part = f.emit(I64, f"atomicrmw add {taken}, {one} monotonic, align {_SLOT_BYTES}", "part")
        f.branch_if(f.compare("icmp ult", part, constant(I64, parts)), some, none)
        f.start(some)
        indexes = dict(self.scope.indexes)
        loops: list[Loop] = []
        for name, size in spread.items():
            loop = indexing.open(name, constant(I64, 0), constant(I64, size), 1, (0, size - 1))
            loops.append(loop)
            indexes[name] = loop.value
        whose = f.binary("urem", indexing.value(number.substitute(indexes)), copies)
        end = indexing.guarded(f.compare("icmp eq", whose, copy))
        for name, value in zip(along, _counted(part, list(along.values()), f), strict=True):
            indexes[name] = indexing.name(value, (0, along[name] - 1))
        innermost = indexes[list(along)[-1]] if along else Affine()
        indexing.begin_steps(innermost, [turns, *loops])
        settled = {*spread, *along}
        passed = tuple(
            Index(i.name, 1, Affine.index(i.name)) if i.passed is not None or i.name in settled else i
            for i in block.indexes
        )
        yield replace(block, indexes=passed, location=None), replace(self.scope, indexes=indexes)
        indexing.end_steps(innermost)
        f.branch(end)
        f.start(end)
        for loop in reversed(loops):
            indexing.close(loop)
        f.branch(again)
        f.start(none)
        indexing.close(turns)


def _counted(number: Value, ranges: Sequence[int], f: Function) -> list[Value]:
    """The values of indexes, outermost first, in the iteration of this number through all their ranges."""
    values = list[Value]()
    for size in reversed(ranges[1:]):
        values.append(f.binary("urem", number, constant(I64, size)))
        number = f.binary("udiv", number, constant(I64, size))
    return [number, *reversed(values)] if ranges else []


def open_region(tools: Tools, memory: Memory, block: Block, outer: Scope, copies: int) -> Region:
    """Begin the function of a block at a point of its parent."""
    f = tools.f
    environment = (Value(PTR, "%environment"), "noalias readonly")
    name = f.module.unused(f"{f.name}.region")
    body = Function(f.module, name, VOID, [environment], "noinline ", "internal ")
    f.module.add(body)
    inner = Tools.of(body, tools.target)
    captured: list[Value] = []

    def take(value: Value, hint: str) -> Value:
        slot = body.at_entry(
            PTR, f"getelementptr {I8}, {PTR} %environment, i64 {_SLOT_BYTES * len(captured)}", "slot"
        )
        captured.append(value)
        return body.at_entry(value.type, f"load {value.type}, {slot}, align {_SLOT_BYTES}", hint)

    entered = outer.enter(block)
    views = {ref.source: outer.views[ref.source] for ref in block.refinements if ref.source}
    used = {name for expr in entered.indexes.values() for name in expr.names}
    used |= {name for view in views.values() for expr in view.origin for name in expr.names}
    renamed: dict[str, Affine] = {}
    for name in sorted(used):
        value = take(Value(I64, f"%{name}"), name)
        renamed[name] = inner.indexing.name(value, tools.indexing.ranges[name])
    pointers: dict[str, Value] = {}

    def taken(view: View) -> View:
        buffer = view.buffer
        if buffer.pointer.text not in pointers:
            pointers[buffer.pointer.text] = take(buffer.pointer, buffer.name)
        # Threads share it: no lane that is off may be written back, not even on a stack.
        shared = replace(buffer, pointer=pointers[buffer.pointer.text], spare=None, birth=None)
        return replace(view, buffer=shared, origin=tuple(e.substitute(renamed) for e in view.origin))

    scope = replace(
        entered,
        indexes={name: expr.substitute(renamed) for name, expr in entered.indexes.items()},
        views={name: taken(view) for name, view in views.items()},
        facts=tuple(e.substitute(renamed) for e in outer.facts if used.issuperset(e.names)),
    )
    # Filled in when the body is done: the workspace, the bytes of it that each thread has, the counters.
    base = take(Value(PTR, "null"), "shared")
    part = take(Value(I64, "0"), "part")
    counters = take(Value(PTR, "null"), "counters")
    came = f"atomicrmw add {counters}, {constant(I64, 1)} monotonic, align {_SLOT_BYTES}"
    thread = body.at_entry(I64, came, "thread")
    skip = body.at_entry(I64, f"mul nsw i64 {thread.text}, {part.text}", "skip")
    body.at_entry(PTR, f"getelementptr {I8}, {base}, {skip}", "workspace")
    return Region(inner, memory.of_thread(body), scope, captured, counters, thread, copies)


def close_region(tools: Tools, memory: Memory, region: Region) -> None:
    """End the function, and run it on as many threads as there are copies."""
    region.tools.tiles.finish()
    region.tools.f.result()
    f, part, copies = tools.f, region.memory.workspace_bytes, region.copies
    base = memory.reserve(part * copies, "parts") if part else Value(PTR, "null")
    # Each on a cache line of its own.
    counters = f.alloca(I8, "counters", (copies + 1) * ALIGNMENT, ALIGNMENT)
    for number in range(copies + 1):
        f.store(constant(I64, 0), f.offset(counters, I8, constant(I64, number * ALIGNMENT)), _SLOT_BYTES)
    values = [*region.captured[:-3], base, constant(I64, part), counters]
    environment = f.alloca(I64, "environment", len(values), _SLOT_BYTES)
    for number, value in enumerate(values):
        slot = f.offset(environment, I64, constant(I64, number))
        f.store(value, slot, _SLOT_BYTES)
    f.module.declare(FORK, VOID, [PTR, PTR, I32, I32])
    f.line(
        f"call void @{FORK}(ptr @{region.tools.f.name}, {environment}, "
        f"{constant(I32, copies)}, {constant(I32, 0)})"
    )
    tools.tiles.lost()
