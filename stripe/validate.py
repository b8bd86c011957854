"""Translation validation: do two programs compute the same?

`validate(before, after)` compares the programs alone; it does not know what a pass did. For each
buffer that the roots of both have it proves, for all elements at once, that the last value
written in the one program equals that in the other, as stripe.validate_agree says: the same
scalar functions of the same inputs, aggregations up to the order of their writes. A buffer that is
proved serves as an input for those that are made from it, so a kernel is compared with the
kernels that became it, and one that did not change is not looked at. The programs are verified ones.

    proved     every output is the same function of the inputs (floating-point sums may be reassociated, and
               factors of what they sum up be summed up ahead of the others)
    refuted    an element was found that differs
    unproved   neither; the reason says what did not fit, and where

The method is that of Verdoolaege, Janssens and Bruynooghe (2009), Equivalence checking of static
affine programs using widening to handle recurrences, without recurrences: Stripe has none.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from stripe.affine import Affine
from stripe.alike import kind
from stripe.ir import Block, Direction, Program, Refinement, Special, Statement
from stripe.poly import Domain, PolyhedralLimit
from stripe.remembered import Remembered
from stripe.validate_agree import GaveUp, Prover
from stripe.validate_terms import Read, onto, union
from stripe.validate_values import Values
from stripe.visit import buffers_used

Status: TypeAlias = Literal["proved", "refuted", "unproved"]


@dataclass(frozen=True, slots=True)
class BufferVerdict:
    """What is known of one buffer of both roots. `element` is one that could not be proved."""

    buffer: str
    status: Status
    reason: str = ""
    element: tuple[int, ...] | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelVerdict:
    """What is known of a changed kernel, by its path: that of the buffers it writes for others."""

    kernel: str
    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`kernels` are those of the later program that the earlier one does not have. `ran` says that
    the programs were run on random inputs, and gave the same: without a proof, or on addresses."""

    status: Status
    reason: str = ""
    kernels: tuple[KernelVerdict, ...] = ()
    buffers: tuple[BufferVerdict, ...] = ()
    ran: bool = False

    @property
    def proved_kernels(self) -> int:
        return sum(kernel.status == "proved" for kernel in self.kernels)

    def __str__(self) -> str:
        count = f"{self.proved_kernels} of {len(self.kernels)} changed kernels proved"
        if self.ran:
            count += ", and run on its addresses" if self.status == "proved" else ", the rest by example"
        return f"{self.status} ({count})" + (f": {self.reason}" if self.reason else "")


def validate(before: Program, after: Program) -> Verdict:
    """Whether two verified programs compute the same outputs from the same inputs."""
    if before is after:
        return Verdict("proved")
    reason = _unlike_signatures(before, after)
    if reason:
        return Verdict("refuted", reason)
    return _Validation(before, after).verdict()


def _unlike_signatures(before: Program, after: Program) -> str:
    one, two = _signature(before), _signature(after)
    for name in {**one, **two}:
        if name not in one or name not in two:
            return f"'{name}' is in the signature of one program only"
        if one[name] != two[name]:
            return f"'{name}' has another direction, type or shape"
    return ""


def _signature(program: Program) -> dict[str, tuple[object, ...]]:
    made = () if program.load is None else program.load.refinements
    inner = {ref.name for ref in made if ref.direction.writes}
    refs = [r for r in program.root.refinements if r.direction is not Direction.NEW and r.name not in inner]
    return {r.name: (r.direction, r.dtype, r.shape) for r in refs}


@dataclass(frozen=True, slots=True)
class _Same:
    """A block as a key, by identity."""

    block: Block

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.block is other.block

    def __hash__(self) -> int:
        return id(self.block)


def _bare(statement: Statement) -> Statement:
    """A statement without what has no meaning: tags, places, points in flight, the order of indexes."""
    if isinstance(statement, Special):
        return replace(statement, location=None)
    if not isinstance(statement, Block):
        return statement
    return replace(
        statement,
        indexes=tuple(sorted(statement.indexes, key=lambda index: index.name)),
        refinements=tuple(replace(ref, tags=(), location=None) for ref in statement.refinements),
        statements=tuple(_bare(below) for below in statement.statements),
        location=None, inflight=1, tags=(),
    )  # fmt: skip


MAX_GROUP = 24  # kernels that a proof is kept for
_PROVED = Remembered[Hashable, bool](4096)  # pairs of kernels that were proved, up to names


class _Validation:
    """The comparison of two programs, buffer by buffer."""

    def __init__(self, before: Program, after: Program) -> None:
        self.before, self.after = Values(before, "a"), Values(after, "b")
        self.known: dict[str, BufferVerdict] = {}
        self.prover = Prover(self.before, self.after, self._is_cut)
        self.roots = {"a": before.root, "b": after.root}
        self.names = {side: {r.name for r in root.refinements} for side, root in self.roots.items()}
        self.old = {s.name: s for s in before.root.children}

    def verdict(self) -> Verdict:
        for ref in self._common():
            started = time.perf_counter()
            self.known[ref.name] = found = self._prove(ref)
            if found.status != "proved":
                self.known[ref.name] = BufferVerdict(
                    ref.name, found.status, found.reason, found.element, time.perf_counter() - started
                )
        outputs = [self.known[ref.name] for ref in self.after.program.outputs]
        wrong = next((v for v in outputs if v.status != "proved"), None)
        kernels = tuple(self._kernels(wrong))
        buffers = tuple(self.known.values())
        if wrong is None:
            return Verdict("proved", "", kernels, buffers)
        at = "" if wrong.element is None else f" at element {list(wrong.element)}"
        return Verdict(wrong.status, f"output '{wrong.buffer}'{at}: {wrong.reason}", kernels, buffers)

    def _common(self) -> Iterator[Refinement]:
        """The buffers of both roots that are written, in the order in which the later program is
        done with them; all outputs are among them."""
        refs = {ref.name: ref for ref in self.before.program.root.refinements}
        done: dict[str, int] = {}
        for ref in self.after.program.root.refinements:
            old = refs.get(ref.name)
            writers = self.after.writers(self.roots["b"], ref.name)
            if old is None or (old.dtype, old.shape) != (ref.dtype, ref.shape):
                continue
            if ref.direction.writes or (writers and self.before.writers(self.roots["a"], ref.name)):
                done[ref.name] = writers[-1] if writers else -1
        for name in sorted(done, key=lambda name: (done[name], name)):
            yield refs[name]

    def _is_cut(self, read: Read) -> bool:
        """Whether a read sees the last value of a buffer of the root that is equal in both."""
        path = read.frame.path
        if len(path) != 2 or path[1] != "root":
            return False
        found = self.known.get(read.buffer)
        return found is not None and found.status == "proved" and self._is_last(str(path[0]), read)

    def _is_last(self, side: str, read: Read) -> bool:
        values = self.before if side == "a" else self.after
        writers = values.writers(self.roots[side], read.buffer)
        return not writers or read.number > writers[-1]

    # -- one buffer ------------------------------------------------------------------------------

    def _prove(self, ref: Refinement) -> BufferVerdict:
        if self._unchanged(ref.name):
            return BufferVerdict(ref.name, "proved")
        pair = self._pair(ref.name)
        if pair is not None and _PROVED.get(pair):
            return BufferVerdict(ref.name, "proved")
        found = self._compare(ref)
        if pair is not None and found.status == "proved":
            _PROVED.put(pair, True)
        return found

    def _pair(self, name: str) -> Hashable | None:
        """What the proof about a buffer depends on, up to names, if that is few kernels of each
        program: these, which of their buffers are one, and what these are in the roots."""
        groups = [self._group(side, name) for side in ("a", "b")]
        kernels = [kernel for group in groups for kernel in group or ()]
        if not all(groups) or len(kernels) > MAX_GROUP:
            return None
        names = [kind(kernel).names.buffers for kernel in kernels]
        shared = {r.source: None for k in kernels for r in k.refinements if r.direction is not Direction.NEW}
        views = tuple(
            (
                source == name,
                tuple(own.get(source) for own in names),
                tuple(self._view(side, source) for side in ("a", "b")),
            )
            for source in shared
        )
        # The blocks are interned: equal ones are one object, which this key keeps.
        return tuple(_Same(kind(kernel).block) for kernel in kernels), len(groups[0] or ()), views

    def _view(self, side: str, name: str) -> Hashable:
        """What a buffer is in a root, and whether it is known to hold the same in both."""
        ref = next((r for r in self.roots[side].refinements if r.name == name), None)
        known = name in self.known and self.known[name].status == "proved"
        return None if ref is None else (ref.direction, ref.dtype, ref.shape, ref.aggregation, known)

    def _group(self, side: str, name: str) -> list[Block] | None:
        """The kernels that make a buffer out of such as are known to be equal, in order."""
        values = self.before if side == "a" else self.after
        root = self.roots[side]
        numbers = set(values.writers(root, name))
        pending = list(numbers)
        while pending and len(numbers) <= MAX_GROUP:
            number = pending.pop()
            for source in {source for source, _ in buffers_used(root.statements[number])} - {name}:
                if not self._is_known(values, side, source, number):
                    if root.refinement(source).direction is Direction.IN:
                        return None  # made by the load-time program
                    more = {n for n in values.writers(root, source) if n < number} - numbers
                    numbers |= more
                    pending += more
        found = [root.statements[number] for number in sorted(numbers)]
        kernels = [kernel for kernel in found if isinstance(kernel, Block)]
        return kernels if len(kernels) == len(found) else None

    def _is_known(self, values: Values, side: str, name: str, number: int) -> bool:
        """Whether a buffer of the root holds the same in both, before a statement of one of them."""
        ref = self.roots[side].refinement(name)
        at = values.source(Read(ref.dtype, values.root, number, name, (Affine(),) * len(ref.shape)))
        return not isinstance(at, Read) or self._is_cut(at)

    def _compare(self, ref: Refinement) -> BufferVerdict:
        """The proof for all elements of a buffer."""
        self.prover.restart()
        names = [f"@{axis}" for axis in range(len(ref.shape))]
        element = tuple(Affine.index(name) for name in names)
        whole = Domain.box(dict(zip(names, ref.shape, strict=True)))
        one, two = (
            Read(ref.dtype, values.root, len(values.root.block.statements), ref.name, element)
            for values in (self.before, self.after)
        )
        try:
            agreed = self.prover.agree(one, two, whole)
            left = whole if agreed is whole else whole.subtract(agreed)
            if agreed is whole or left.is_empty():
                return BufferVerdict(ref.name, "proved")
            if not ref.direction.writes:
                # What one of the two never writes, no one reads.
                for values, read in ((self.before, one), (self.after, two)):
                    left = left.intersect(union([onto(d, names) for d, _ in values.read(read, left)], names))
                if left.is_empty():
                    return BufferVerdict(ref.name, "proved")
            point = left.sample()
        except GaveUp as error:
            return BufferVerdict(ref.name, "unproved", str(error))
        except PolyhedralLimit:
            return BufferVerdict(ref.name, "unproved", "an integer set is too complicated to reason about")
        except RecursionError:
            return BufferVerdict(ref.name, "unproved", "the expressions are nested too deeply")
        reason = "; ".join(self.prover.reasons[:3]) or "other elements are read"
        at = None if point is None else tuple(point[name] for name in names)
        return BufferVerdict(ref.name, "unproved", reason, at)

    def _unchanged(self, name: str) -> bool:
        """Whether the same statements write the buffer in both, from equal buffers."""
        ones = self.before.writers(self.roots["a"], name)
        twos = self.after.writers(self.roots["b"], name)
        how = [self.roots[side].refinement(name).aggregation for side in ("a", "b")]
        if len(ones) != len(twos) or how[0] is not how[1]:
            return False
        for one, two in zip(ones, twos, strict=True):
            old, new = self.roots["a"].statements[one], self.roots["b"].statements[two]
            if not (old is new or old == new or _bare(old) == _bare(new)):
                return False
            reads = {buffer for buffer, _ in buffers_used(new)} - {name}
            if not all(self._same_source(buffer, one, two) for buffer in reads):
                return False
        return True

    def _same_source(self, name: str, one: int, two: int) -> bool:
        """Whether a buffer of the root holds the same in both, before statements of these numbers."""
        sides = ((self.before, "a", one), (self.after, "b", two))
        return all(self._is_known(values, side, name, number) for values, side, number in sides)

    # -- kernels -----------------------------------------------------------------------------------

    def _kernels(self, wrong: BufferVerdict | None) -> Iterator[KernelVerdict]:
        """The verdict on each changed kernel. One whose buffers are all its own, or the earlier
        program's no more, is as good as the outputs."""
        root = self.roots["b"]
        for statement in root.statements:
            if not isinstance(statement, Block) or self._stays(statement):
                continue
            path = f"{root.name}/{statement.name}"
            written = [name for name, how in buffers_used(statement) if how.writes]
            found = [self.known[name] for name in written if name in self.known]
            bad = next((v for v in found if v.status != "proved"), None if found else wrong)
            yield (
                KernelVerdict(path, "proved") if bad is None else KernelVerdict(path, bad.status, bad.reason)
            )

    def _stays(self, kernel: Block) -> bool:
        old = self.old.get(kernel.name)
        return kernel is old or kernel == old
