"""partition: deal the points of kernels out to equal units, or buffers to the banks of a memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import ClassVar

from hwconfigs.model import HwConfig, Memory, Unit
from stripe.affine import Affine, row_major
from stripe.analysis.bounds import Operand, operands, touched_elements
from stripe.analysis.deps import accesses, relation
from stripe.diag import CompileError, Diagnostic
from stripe.ir import Aggregation, Block, Direction, Location, Program, Refinement, Special, Statement
from stripe.names import Names
from stripe.passes.base import Pass, PassContext, option
from stripe.passes.choices import Choice
from stripe.passes.partition_banks import banked
from stripe.passes.partition_chosen import Share, given_parts, given_piece
from stripe.passes.partition_sums import in_parts
from stripe.passes.partition_threads import ALONE, dealt, is_alone
from stripe.rewrite import tile_block
from stripe.visit import View, map_roots, map_statements, views_of

MAX_SPLITS = 1 << 16  # ways to cut a kernel that are weighed


@dataclass(frozen=True)
class Partition(Pass):
    """Give each of several equal units its share of every kernel, or each buffer its bank.

    With `unit`, a child block of the root is cut along indexes on which all its results depend, and
    each unit gets one part:

    before:  block t [m:64, n:64, k:9] (in A[m, k]  in B[k, n]  out C[m, n]:add) {...}
    after:   block t [m:4, n:4] @CORE[4*m + n] (in A[16*m, 0]  in B[0, 16*n]  out C[16*m, 16*n]:add) {
               block t [m:16, n:16, k:9] (in A[m, k]  in B[k, n]  out C[m, n]:add) {...} }

    The parts are chosen so that the largest is as small as can be, and, of those, so that what the
    units touch, in bytes, is the least. A kernel that can't be cut, since its results depend on none
    of its indexes, runs on the first unit.

    Of native code the copies of the unit are threads. Its step is the last of a pipeline: a nest that is
    tiled and vectorised is cut at its outermost block, or, where that is more even, further in. It stays
    as it is where handing it over (`handover_cycles`) takes longer than that saves, and all nests of a
    program do where waking the threads (`startup_cycles`) takes longer than all that they save. Each unit's
    part is cut once more along its outermost index, and the next one where that is short, so that who is done
    early finds more to do:

    before:  block t [m:64, n:64] #tiled (out C[16*m, 16*n]:assign) {...}
    after:   block t [m:2, m_1:8] @CORE[m] (out C[512*m + 64*m_1, 0]:assign) {
               block t [m:4, n:64] #tiled (out C[16*m, 16*n]:assign) {...} }

    A loop around several nests that would be cut unevenly is left whole, and the nests inside are handed
    over one by one; or each unit runs the loop, makes for itself what only it uses, such as packed operands,
    and has its piece of the nests that write results, or, of one that can't be cut, runs all in its piece of
    the loop. That saves handing over, and lines that travel between cores (`shared_bytes_per_cycle`), for
    whose sake a nest is also cut where its parts read what is theirs.

    before:  block t [k:7] (new P) {block pack (out P) {...}  block u [m:6] (in P  out C[m]) {...}}
    after:   block t [m:2] @CORE[m] {
               block t [k:7, m_1 = m] (new P) {
                 block pack (out P) {...}  block u [m:3, mo = 3*m_1] (in P  out C[m + mo]) {...} } }

    Neighbours are handed over as one where no unit reads or writes what another one writes in them, and
    are cut so that this holds; but not where the longest would lose its turns by that.

    before:  block pack [k:8, n:8] (out P[n, k]) {...}  block u [n:8, k:8] (in P[n, k]  out C[n]) {...}
    after:   block u [n:2] @CORE[n] { block u [n_1 = n] {
               block pack [k:8, n:4] (out P[n + 4*n_1, k]) {...}
               block u [n:4, k:8] (in P[n + 4*n_1, k]  out C[n + 4*n_1]) {...} } }

    With `sums`, an earlier step, a kernel whose points all add to one element becomes partial sums and the
    sum of those; so does one that adds up the rows of an input which it reads once, where that is more than
    stays in the caches of a unit: cut along its results, each unit would read a piece of every row. What it
    computes for each row stays as it is. Such kernels may be nests.

    before:  block s [k:6400] (in X[k]  out S[]:add) {...}
    after:   block s_parts [k:64, k_1:100] (in X[100*k + k_1]  out P[k]:add) {...}
             block s [k:64] (in P[k]  out S[]:add) {...}

    With `memory`, buffers of that memory without a bank get one. Where the points of a block are
    spread over units, a buffer of which these touch different parts along one dimension is spread over the
    banks along it, if fewer units meet in a bank then. Other buffers that the units of one block use at the
    same time lie in different banks, as far as there are banks and each is large enough. A remark says
    that no two units which work at the same time meet in a bank, or where they may.

    before:  block t [] (new X (64, 64) @SPAD  new Y (64, 64) @SPAD) {... reads X and Y ...}
    after:   block t [] (new X (64, 64) @SPAD[0]  new Y (64, 64) @SPAD[1]) {...}

    Legal because the points of a block are independent and no two parts write the same element, and
    because banks have no meaning. Stripe paper, section 2.3, "Banking and Partitioning".
    """

    name: ClassVar[str] = "partition"
    tags_read: ClassVar[tuple[str, ...]] = ("unroll", "vector")
    choice: ClassVar[type[Choice]] = Share

    unit: str = option("", "the unit, of which the target has several, to deal points out to")
    memory: str = option("", "the memory, of several banks, to deal buffers out to")
    sums: bool = option(
        False, "cut the kernels that add up to one element, or rows that stream past, and no others"
    )
    deterministic: bool = option(
        False, "with `sums`: for every number of units alike, one too, so that results have the same bits"
    )

    @property
    def alike(self) -> bool:
        return self.deterministic

    @property
    def deals(self) -> bool:
        return bool(self.unit) and not self.sums

    def check(self, hw: HwConfig) -> None:
        if not self.unit and not self.memory:
            raise CompileError(
                Diagnostic(
                    "P140", "partition: over what?",
                    notes=("help: name a unit (`unit=CORE`) or a memory (`memory=SPAD`)",),
                )
            )  # fmt: skip
        unit, memory = hw.unit(self.unit), hw.memory(self.memory)
        if unit is not None and unit.count < 2 and hw.executor != "cpu":
            message = f"partition: '{hw.name}' has one {unit.name}, not several"
            advice = f"help: give {unit.name} a 'count' of two or more, or leave the step out"
            raise CompileError(Diagnostic("P141", message, None, (advice,)))
        if self.sums and unit is None:
            raise CompileError(
                Diagnostic(
                    "P140", "partition: sums are cut for a unit", notes=("help: name it: `unit=CORE`",)
                )
            )
        if unit is not None and unit.kind != "compute":
            raise CompileError(Diagnostic("P141", f"partition: {unit.name} does not compute"))
        if memory is not None and memory.banks < 2:
            message = f"partition: {memory.name} of '{hw.name}' has one bank, not several"
            advice = f"help: give {memory.name} two 'banks' or more, or leave the step out"
            raise CompileError(Diagnostic("P141", message, None, (advice,)))
        if memory is not None and memory.bytes is None:
            message = f"partition: {memory.name} of '{hw.name}' has no size, nor have its banks"
            raise CompileError(Diagnostic("P141", message, None, ("help: give the memory 'bytes'",)))

    def run(self, program: Program, context: PassContext) -> Program:
        self.check(context.hw)
        unit, memory = context.hw.unit(self.unit), context.hw.memory(self.memory)
        if unit is not None and self.sums:
            adding = unit
            program = map_roots(program, lambda root: self._sums(root, adding, context))
        elif unit is not None:
            over = unit
            program = map_roots(program, lambda root: _over_units(root, over, context))
        if memory is not None:
            spread = memory
            program = map_roots(program, lambda root: self._banked(root, spread, context))
        return program

    def _sums(self, root: Block, unit: Unit, context: PassContext) -> Block:
        """The root with each sum of few results in two steps, where that pays."""
        if not self.deterministic and is_alone(unit, context):
            context.remark(root.name, False, ALONE)
            return root
        views, statements, buffers = views_of(root, {}), list[Statement](), list[Refinement]()
        names = Names([*views, *(child.name for child in root.children)])
        for statement in root.statements:
            made: tuple[Statement, ...] = (statement,)
            if isinstance(statement, Block):
                path = f"{root.name}/{statement.name}"
                key = context.key(path)
                given = context.explicit(key, Share)
                left = given is None and not context.searches
                own = names.copy() if left else names
                piece = None if given is None else given_piece(given, key, statement, context)
                parted = in_parts(statement, views, own, unit, context.hw, piece)
                if not parted.buffers and given is not None:
                    raise context.refused(key, parted.reason, "sizes")
                if not parted.buffers:
                    context.remark(path, False, f"not cut: {parted.reason}", cycles=parted.cycles)
                elif left:
                    context.undecided(path)
                else:
                    count = parted.buffers[0].shape[0]
                    held = " and ".join(f"'{buffer.name}'" for buffer in parted.buffers)
                    context.remark(
                        path, True,
                        f"{count} partial results in {held}; it takes about {parted.cycles:.0f} cycles",
                        parts=count, cycles=parted.cycles,
                    )  # fmt: skip
                    buffers += parted.buffers
                    context.chose(key, Share(dict([parted.piece])))
                    made = parted.statements
            statements += made
        if not buffers:
            return root
        refinements = (*root.refinements, *buffers)
        return replace(root, refinements=refinements, statements=tuple(statements))

    def _banked(self, root: Block, memory: Memory, context: PassContext) -> Block:
        def given(path: str) -> Mapping[str, int | str] | None:
            found = context.explicit(path, Share)
            if found is None or not found.banks:
                return None
            context.chose_also(path, Share, banks=found.banks)
            return found.banks

        return banked(root, memory, context, given)


def _over_units(root: Block, unit: Unit, context: PassContext) -> Block:
    if is_alone(unit, context):
        context.remark(root.name, False, ALONE)
        return root
    if context.hw.executor == "cpu":
        return dealt(root, unit, context)
    views = views_of(root, {})

    def located(statement: Statement) -> Statement:
        match statement:
            case Block() if statement.location is None:
                return _cut(root, statement, views, unit, context)
            case Special() if statement.location is None:
                context.remark(
                    f"{root.name}/{statement.name}", False,
                    f"a special runs whole, on {unit.name}[0]",
                )  # fmt: skip
                return replace(statement, location=Location(unit.name, Affine()))
            case Block(location=Location(unit=name)) | Special(location=Location(unit=name)):
                path = f"{root.name}/{statement.name}"
                context.remark(path, False, f"it runs on {name} already")
        return statement

    return map_statements(root, located)


def _cut(root: Block, block: Block, outer: Mapping[str, View], unit: Unit, context: PassContext) -> Block:
    """The block in parts, one for each unit; whole and on the first unit where it can't be cut."""
    path = f"{root.name}/{block.name}"
    key = context.key(path)
    given = context.explicit(key, Share)
    if given is None and not context.searches:
        context.undecided(path)
        return block
    used = operands(block, outer)

    def free(name: str) -> bool:
        return block.ranges[name] > 1 and not _reduced(name, used) and _apart(root, block, name)

    if given is not None:
        best = given_parts(given, key, block, unit, free, context)
    else:
        splits = _splits(block, [name for name in block.ranges if free(name)], unit.count)
        best = min(splits, key=lambda s: _rank(s, block, used), default={})
    context.chose(key, Share(best))
    if not best:
        reason = (
            "it has one point" if block.points <= 1 else "points along each of its indexes add to one element"
        )
        context.remark(path, False, f"not cut: {reason}; it runs on {unit.name}[0]")
        return replace(block, location=Location(unit.name, Affine()))
    whole = tile_block(block, best)
    share = prod(best.values()) / prod(block.ranges[name] for name in best)
    context.remark(
        path, True,
        f"{whole.points} parts for {unit.count} {unit.name}: "
        f"{', '.join(f'{name} in pieces of {size}' for name, size in best.items())}; "
        f"the largest has {share:.1%} of the points",
        parts=whole.points, sizes=dict(best), largest=share,
    )  # fmt: skip
    return replace(whole, location=Location(unit.name, row_major(whole.ranges)))


def _reduced(name: str, used: tuple[Operand, ...]) -> bool:
    """Whether points that differ in this index write one element."""
    return any(
        o.direction.writes and o.aggregation is not Aggregation.ASSIGN and name not in o.indexes for o in used
    )


def _apart(root: Block, block: Block, name: str) -> bool:
    """Whether points that differ in this index add to elements of their own, however sums overlap along
    other indexes."""
    written = [r for r in block.refinements if r.direction.writes and r.direction is not Direction.NEW]
    summed = {r.source for r in written if r.aggregation is not Aggregation.ASSIGN}
    alone = {
        r.source
        for r in written
        if any(e.names == (name,) and s == 1 for e, s in zip(r.access, r.shape, strict=True))
    }
    for buffer in summed - alone:
        one, other = (
            [a for a in accesses(root, block, prefix) if a.buffer == buffer and a.writes]
            for prefix in ("a.", "b.")
        )
        apart = Affine.index(f"a.{name}") - Affine.index(f"b.{name}") - 1
        if any(not relation(x, y).with_constraints([apart]).is_empty() for x in one for y in other):
            return False
    return True


def _splits(block: Block, free: list[str], count: int) -> Iterator[dict[str, int]]:
    """Sizes of the pieces along each index that is cut, at most `count` pieces in all, two at least."""
    pieces = {
        name: sorted(
            {-(-block.ranges[name] // p) for p in range(1, min(count, block.ranges[name], MAX_SPLITS) + 1)}
        )
        for name in free
    }
    while prod(map(len, pieces.values())) > MAX_SPLITS:
        pieces.popitem()  # the outermost indexes stay
    for sizes in product(*pieces.values()):
        parts = prod(-(-block.ranges[n] // size) for n, size in zip(pieces, sizes, strict=True))
        if 1 < parts <= count:
            yield {n: size for n, size in zip(pieces, sizes, strict=True) if size < block.ranges[n]}


def _rank(sizes: dict[str, int], block: Block, used: tuple[Operand, ...]) -> tuple[float, ...]:
    """Points of the largest part; bytes that all parts touch; indexes cut, and how far inside."""
    whole = block.ranges | sizes
    parts = prod(-(-block.ranges[name] // size) for name, size in sizes.items())
    touched = sum(int(touched_elements(o, whole)) * o.dtype.bytes for o in used if not o.local)
    places = [at for at, name in enumerate(block.ranges) if name in sizes]
    return prod(whole.values()), parts * touched, len(sizes), *places
