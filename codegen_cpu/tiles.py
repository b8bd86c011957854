"""Blocks that are uses of an instruction on registers that hold rows: x86's tiles (AMX).

    block c [k:64, p:4, m:32, n:32] (in A[m, 4*k + p] u8  in B[k, n, p] i8  out C[m, n]:add i32) #group=p

is run by blocks of 16 rows, 16 lanes and 16 groups: the sums of as many as there are registers for stay in
these over all that the block sums up, one register for each; operands are loaded as blocks of rows.
What is left at an edge is a block of fewer rows or shorter ones, so that no byte beside is touched. A
register has its shape from a configuration of all registers, which takes long to load: a function
loads one when it begins, the one that its first such block needs, and another one only for blocks
of other shapes. At its end it gives the registers back. What functions called there do is their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from codegen_cpu.access import Accesses
from codegen_cpu.ll import I8, I64, PTR, VOID, Function, Module, Value, constant
from codegen_cpu.loops import Indexing, Loop
from codegen_cpu.scope import Window
from stripe.affine import Affine
from stripe.analysis.bounds import Leaf
from stripe.analysis.stencils import Fit
from stripe.analysis.stencils_groups import Summing, Tiles
from stripe.diag import CompileError, Diagnostic

_MOST_PIECES = 64  # that the results of a block are taken in
_CONFIG_BYTES = 64
_REGISTERS, _ROWS, _ROW_BYTES = 8, 16, 64  # what the processor has
# The instructions of this kind that LLVM has, by the features that have them; it ends the process on others.
_KNOWN = {
    "llvm.x86.tdpbssd": {"amx-tile", "amx-int8"},
    "llvm.x86.tdpbsud": {"amx-tile", "amx-int8"},
    "llvm.x86.tdpbusd": {"amx-tile", "amx-int8"},
    "llvm.x86.tdpbuud": {"amx-tile", "amx-int8"},
    "llvm.x86.tdpbf16ps": {"amx-tile", "amx-bf16"},
}
# Linux gives the registers to a process that asks for them: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA).
ASK, ASK_FOR, TILE_DATA = 158, 0x1023, 18

Shape = tuple[int, int]  # rows, and the bytes of each


@dataclass(frozen=True, slots=True)
class TileUse:
    """A leaf block as uses of such an instruction: for its indexes those of the block, and for its operands
    the views of the block."""

    made: Summing
    indexes: Mapping[str, str]
    views: Mapping[str, str]

    @property
    def tiles(self) -> Tiles:
        assert self.made.tiles is not None  # it is what makes a use one of this kind
        return self.made.tiles

    @property
    def target(self) -> str:
        return self.views[self.made.target]


def tile_use(made: Summing, fit: Fit, leaf: Leaf, features: Sequence[str]) -> TileUse | None:
    """The use that a leaf is; None where its code would be too long. Raises CompileError C006 if the
    intrinsic is none that this back end has, or the target lacks its features."""
    stencil, tiles = made.stencil, made.tiles
    assert tiles is not None
    needed = _KNOWN.get(stencil.intrinsic)
    limits = (
        tiles.registers <= _REGISTERS and max(tiles.most.values()) <= _ROWS and tiles.row_bytes <= _ROW_BYTES
    )
    if needed is None or not needed <= set(features) or not limits:
        if needed is None:
            known = ", ".join(sorted(_KNOWN))
            reason = f"which works on no registers that hold rows: those that do are {known}"
        elif not limits:
            reason = f"whose {_REGISTERS} registers hold {_ROWS} rows of {_ROW_BYTES} bytes, not more"
        else:
            reason = f"which needs the feature '{min(needed - set(features))}' of 'cpu.features'"
        text = f"stencil '{stencil.name}' names the intrinsic '{stencil.intrinsic}', {reason}"
        note = f"in the config: the entry of '$.stencils' named '{stencil.name}', 'intrinsic' and 'features'"
        raise CompileError(Diagnostic("C006", text, notes=(note,)))
    sizes = {fit.indexes[name]: most for name, most in tiles.most.items() if name in fit.indexes}
    result = fit.operands[made.target]
    pieces = 1
    for name in result.indexes & leaf.ranges.keys():
        pieces *= -(-leaf.ranges[name] // sizes.get(name, 1))
    return TileUse(made, fit.indexes, fit.buffers) if pieces <= _MOST_PIECES else None


class TileRegisters:
    """The registers of one function: how they are configured."""

    def __init__(self, f: Function) -> None:
        self._f = f
        self._places = [f.mark()]
        self._usual: dict[int, Shape] = {}
        self._now: dict[int, Shape] = {}

    def lost(self) -> None:
        """Behind a call of a function that may have configured them."""
        self._places.append(self._f.mark())

    def configure(self, shapes: Mapping[int, Shape]) -> None:
        """From here on, registers have these shapes; of others, nothing is asked."""
        if any(self._now.get(number) != shape for number, shape in shapes.items()):
            made = {number: shapes.get(number, (_ROWS, _ROW_BYTES)) for number in range(_REGISTERS)}
            if self._usual:
                self._f.line(_configuration(self._f.module, made))
            else:
                self._usual = made
            self._now = made

    def as_usual(self) -> None:
        """Behind a block: whatever comes next finds them as the function began."""
        if self._now != self._usual:
            self._f.line(_configuration(self._f.module, self._usual))
            self._now = self._usual

    def finish(self) -> None:
        """In front of the return."""
        if not self._usual:
            return
        for place in self._places:
            place.append(f"  {_configuration(self._f.module, self._usual)}")
        self._f.module.declare("llvm.x86.tilerelease", VOID, [])
        self._f.line("call void @llvm.x86.tilerelease()")


def _configuration(module: Module, shapes: Mapping[int, Shape]) -> str:
    """The instruction that gives registers their shapes."""
    table = bytearray(_CONFIG_BYTES)
    table[0] = 1
    for number, (rows, row_bytes) in shapes.items():
        table[16 + 2 * number] = row_bytes
        table[48 + number] = rows
    name = "tiles." + bytes(table[16:]).rstrip(b"\0").hex()
    text = "".join(f"\\{byte:02X}" for byte in table)
    module.helper(
        name,
        f'@{name} = private unnamed_addr constant [{_CONFIG_BYTES} x i8] c"{text}", align {_CONFIG_BYTES}',
    )
    if "linux" in module.triple:
        module.helper("tiles.ask", _ASKING)
    module.declare("llvm.x86.ldtilecfg", VOID, [PTR])
    return f"call void @llvm.x86.ldtilecfg(ptr @{name})"


_ASKING = f"""declare i64 @syscall(i64, ...)
define internal void @tiles.ask() {{
  call i64 (i64, ...) @syscall(i64 {ASK}, i64 {ASK_FOR}, i64 {TILE_DATA})
  ret void
}}
@llvm.global_ctors = appending global [1 x {{ i32, ptr, ptr }}]
    [{{ i32, ptr, ptr }} {{ i32 65535, ptr @tiles.ask, ptr null }}]"""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows, or lanes, that go into one register: where they begin, and how many they are."""

    at: Mapping[str, Affine]
    size: int


@dataclass(frozen=True, slots=True)
class TileCode:
    """Writes the code of a leaf block that is such uses. `passed`: the indexes that the block is passed;
    `replaces`: what was in the result plays no part."""

    f: Function
    indexing: Indexing
    accesses: Accesses
    registers: TileRegisters
    use: TileUse
    ranges: Mapping[str, int]
    windows: Mapping[str, Window]
    passed: Mapping[str, Affine]
    replaces: bool

    def run(self) -> None:
        use, tiles, ranges = self.use, self.use.tiles, self.ranges
        moves = self.windows[use.target].moves
        kept = [n for n in ranges if n not in use.indexes.values() and moves.coefficient(n)]
        x, y = (self.windows[use.views[name]].moves for name in use.made.operands)
        of_columns = [n for n in kept if y.coefficient(n) and not x.coefficient(n)]
        apart = [n for n in kept if y.coefficient(n) and x.coefficient(n)]
        of_rows = [n for n in kept if not y.coefficient(n)]
        depth, size = tiles.most[tiles.step], self._size(tiles.step)
        whole = size - size % depth
        phases = [(0, whole, depth), (whole, size, size - whole)]
        loops = [n for n in ranges if n not in kept and n not in self._written_out]
        rows, columns = self._chosen(of_rows, tiles.row), self._chosen(of_columns, use.made.lane)
        for place, part in product(self._places(apart), self._together(rows, columns)):
            fresh = self.replaces
            for first, stop, deep in phases:
                if first < stop:
                    self._sums(*part, loops, (first, stop, deep), place, fresh)
                    fresh = False
        self.registers.as_usual()

    def _places(self, names: Sequence[str]) -> Iterator[dict[str, Affine]]:
        """Every combination of values of some indexes."""
        choices = ([(name, Affine(value)) for value in range(self.ranges[name])] for name in names)
        yield from (dict(chosen) for chosen in product(*choices))

    def _chosen(self, kept: Sequence[str], along: str) -> list[_Piece]:
        """The pieces along an index of the stencil, for each combination of what else moves them."""
        return [
            _Piece({**place, **piece.at}, piece.size)
            for place in self._places(kept)
            for piece in self._pieces(along)
        ]

    @property
    def _written_out(self) -> set[str]:
        made, indexes = self.use.made, self.use.indexes
        return {indexes[name] for name in (self.use.tiles.row, made.lane, made.group) if name in indexes}

    def _size(self, name: str) -> int:
        """The points along an index of the stencil."""
        return self.ranges[self.use.indexes[name]] if name in self.use.indexes else 1

    def _pieces(self, name: str) -> Iterator[_Piece]:
        own, most, size = self.use.indexes.get(name), self.use.tiles.most[name], self._size(name)
        for first in range(0, size, most):
            yield _Piece({own: Affine(first)} if own else {}, min(most, size - first))

    def _together(
        self, rows: list[_Piece], columns: list[_Piece]
    ) -> Iterator[tuple[list[_Piece], list[_Piece]]]:
        """The results in such parts that there are registers for what one of them needs."""
        if _Numbers.of(rows, columns).count <= self.use.tiles.registers:
            yield rows, columns
        elif len(rows) >= len(columns):
            half = (len(rows) + 1) // 2
            yield from self._together(rows[:half], columns)
            yield from self._together(rows[half:], columns)
        else:
            half = (len(columns) + 1) // 2
            yield from self._together(rows, columns[:half])
            yield from self._together(rows, columns[half:])

    def _sums(
        self, rows: list[_Piece], columns: list[_Piece], loops: Sequence[str], steps: tuple[int, int, int],
        where: Mapping[str, Affine], fresh: bool,
    ) -> None:  # fmt: skip
        """The sums of one part over so many steps, from the first up to the last, some at a time. `where`:
        the values of indexes that move all operands."""
        use, made, numbers = self.use, self.use.made, _Numbers.of(rows, columns)
        first, stop, deep = steps
        self.registers.configure(self._shapes(rows, columns, deep))
        sums = [
            (number, {**where, **rows[row].at, **columns[column].at})
            for (row, column), number in numbers.sums.items()
        ]
        for number, place in sums:
            if fresh:
                self._call("tilezero", number)
            else:
                self._move("tileloadd64", number, made.target, use.tiles.row, place)
        opened: list[Loop] = []
        at = dict(where)
        step = use.indexes.get(use.tiles.step, "")
        for name in loops:
            low, high, by = (first, stop, deep) if name == step else (0, self.ranges[name], 1)
            if high - low == by:
                at[name] = Affine(low)
                continue
            opened.append(self.indexing.open(name, _i64(low), _i64(high), by, (low, high - by)))
            at[name] = opened[-1].value
        self._step(rows, columns, at)
        for loop in reversed(opened):
            self.indexing.close(loop)
        for number, place in sums:
            self._move("tilestored64", number, made.target, use.tiles.row, place)

    def _shapes(self, rows: list[_Piece], columns: list[_Piece], deep: int) -> dict[int, Shape]:
        numbers, tiles = _Numbers.of(rows, columns), self.use.tiles
        word = tiles.row_bytes // tiles.most[self.use.made.lane]
        shapes = {
            number: (rows[row].size, columns[column].size * word)
            for (row, column), number in numbers.sums.items()
        }
        shapes |= {n: (row.size, deep * word) for n, row in zip(numbers.rows, rows, strict=True)}
        shapes |= {n: (deep, column.size * word) for n, column in zip(numbers.columns, columns, strict=True)}
        return shapes

    def _step(self, rows: list[_Piece], columns: list[_Piece], at: Mapping[str, Affine]) -> None:
        """Each operand once, and all products. Of rows, or of the only one, what they meet stays."""
        made, tiles, numbers = self.use.made, self.use.tiles, _Numbers.of(rows, columns)
        x, y = made.operands
        product_of = made.stencil.intrinsic.removeprefix("llvm.x86.")

        def load_row(row: int) -> None:
            self._move("tileloadd64", numbers.rows[row], x, tiles.row, {**at, **rows[row].at})

        def load_column(column: int) -> None:
            self._move("tileloadd64", numbers.columns[column], y, tiles.step, {**at, **columns[column].at})

        held, passing = (load_column, load_row) if len(rows) > 1 else (load_row, load_column)
        for number in range(len(columns) if len(rows) > 1 else 1):
            held(number)
        loaded = -1
        for row, column in numbers.sums:
            current = row if len(rows) > 1 else column
            if current != loaded:
                passing(current)
                loaded = current
            self._call(product_of, numbers.sums[row, column], numbers.rows[row], numbers.columns[column])

    def _call(self, name: str, *numbers: int) -> None:
        self.f.module.declare(f"llvm.x86.{name}", VOID, [I8] * len(numbers))
        self.f.line(f"call void @llvm.x86.{name}({', '.join(f'i8 {number}' for number in numbers)})")

    def _move(self, name: str, number: int, operand: str, along: str, at: Mapping[str, Affine]) -> None:
        """A register to memory or back: its rows go along an index of the stencil."""
        window, own = self.windows[self.use.views[operand]], self.use.indexes.get(along)
        buffer = window.buffer
        offset = window.offset({**self.passed, **dict.fromkeys(self.ranges, Affine()), **at})
        pointer = self.accesses.pointer(buffer, offset)
        stride = _i64(window.moves.coefficient(own) * buffer.dtype.bytes if own else 0)
        if buffer.birth is not None and name == "tilestored64":
            buffer.birth.is_written = True
        self.f.module.declare(f"llvm.x86.{name}", VOID, [I8, PTR, I64])
        self.f.line(f"call void @llvm.x86.{name}(i8 {number}, {pointer}, {stride})")


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The registers that a part needs: of each sum; of what meets all rows, or the only one; and of what
    comes and goes, one for each size."""

    sums: Mapping[tuple[int, int], int]
    rows: Sequence[int]
    columns: Sequence[int]

    @staticmethod
    def of(rows: Sequence[_Piece], columns: Sequence[_Piece]) -> _Numbers:
        sums = {which: number for number, which in enumerate(product(range(len(rows)), range(len(columns))))}
        held, passing = (columns, rows) if len(rows) > 1 else (rows, columns)
        first = len(sums) + len(held)
        sizes = {size: number for number, size in enumerate(dict.fromkeys(p.size for p in passing), first)}
        kept, shared = list(range(len(sums), first)), [sizes[piece.size] for piece in passing]
        return _Numbers(sums, shared, kept) if len(rows) > 1 else _Numbers(sums, kept, shared)

    @property
    def count(self) -> int:
        return len({*self.sums.values(), *self.rows, *self.columns})


def _i64(value: int) -> Value:
    return constant(I64, value)
