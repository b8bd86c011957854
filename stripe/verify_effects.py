"""Verifier: what blocks read and write, and the rules about it (V044 to V046, V051, V052).

`Effects` says, for one block, which elements its statements touch: sets over the block's
indexes and the elements `@0, @1 ...` of a view. Seen from the parent (`external`) they are
sets over the indexes that are passed in and the elements of the parent's view. So the
effects of a block depend on the block alone, whatever is around it: they are worked out once
for each block object, and a rule that holds for all values of the passed indexes is proved
once. Where it does not, the violating points stay as an `Obligation`, which is decided in
each nest that the block stands in.

Three kinds of sets are told apart: what may be read and needs contents from before (READ),
what may be written (WRITE), and what is written for certain (SURE). They are exact but for
gather, which is taken to read its whole data operand, and scatter, which is taken to read
and to write its whole base and to write nothing for certain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from itertools import combinations, groupby
from math import gcd

from stripe.affine import Affine
from stripe.diag import Span
from stripe.ir import (
    Aggregation,
    Block,
    Direction,
    Load,
    Operand,
    Refinement,
    Special,
    Statement,
    Store,
)
from stripe.poly import Domain
from stripe.verify_structure import described


class Kind(Enum):
    READ = auto()
    WRITE = auto()
    SURE = auto()


@dataclass(frozen=True, slots=True)
class Obligation:
    """A rule that fails where a point of the nest lies in `violation`.

    `violation` is over indexes of the block, elements, and, with OTHER behind the name, the
    indexes of a second point. `message` may hold {element}, {at} and {other}, which a witness
    fills: an element, ` at` with the indexes of the nest, the indexes of the second point.
    """

    code: str
    where: str
    message: str
    help: str
    span: Span | None
    violation: Domain


@dataclass(frozen=True, slots=True)
class Use:
    """One buffer that one statement uses, and the part of it, as a set for each kind.

    A child block is asked for its part only when it is needed: `via` is its refinement.
    """

    number: int
    statement: Statement
    buffer: str
    reads: bool
    writes: bool
    via: str = ""
    regions: dict[Kind, Domain] = field(default_factory=dict, compare=False)


OTHER = "~"  # no name of the program has it


def elements(rank: int) -> tuple[str, ...]:
    """The names of the dimensions of a view; no name of the program starts like these."""
    return tuple(f"@{axis}" for axis in range(rank))


@lru_cache(maxsize=64)
def _origin(rank: int) -> Domain:
    return Domain.of(elements(rank), [], [Affine.index(name) for name in elements(rank)])


@lru_cache(maxsize=1024)
def _whole(shape: tuple[int, ...]) -> Domain:
    return Domain.box(dict(zip(elements(len(shape)), shape, strict=True)))


def _over(domain: Domain, names: Sequence[str]) -> Domain:
    """The same set with more dimensions, in another order."""
    return domain if domain.names == tuple(names) else domain.preimage({}, names)


def _aligned(a: Domain, b: Domain) -> tuple[Domain, Domain]:
    if a.names == b.names:
        return a, b
    names = sorted({*a.names, *b.names})
    return _over(a, names), _over(b, names)


def _intersect(a: Domain, b: Domain) -> Domain:
    a, b = _aligned(a, b)
    return a.intersect(b)


def _union(domains: Iterable[Domain]) -> Domain | None:
    total: Domain | None = None
    for domain in domains:
        if total is None:
            total = domain
        elif domain is not total:
            a, b = _aligned(total, domain)
            total = a.union(b).coalesce()
    return total


def _minus(need: Domain, given: Sequence[Domain]) -> Domain | None:
    """What of `need` none of `given` has; None if nothing is left."""
    if any(domain is need for domain in given):
        return None
    for domain in given:
        a, b = _aligned(need, domain)
        need = a.subtract(b)
        if need.is_empty():
            return None
    return None if need.is_empty() else need


def _same(a: Sequence[Domain], b: Sequence[Domain]) -> bool:
    """Whether two lists hold the same objects."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


class Effects:
    """What one block reads and writes, and what it leaves to prove in each nest."""

    def __init__(self, block: Block, children: Mapping[int, Effects | AlikeEffects]) -> None:
        """`children` has the effects of the blocks inside, by `id`."""
        self.block = block
        self.obligations: list[Obligation] = []
        self._refs = {ref.name: ref for ref in block.refinements}
        self._ranges = block.ranges
        self._children = children
        self._external: dict[tuple[str, Kind], Domain] = {}
        for child in children.values():
            child.settle()
        self._uses: dict[str, list[Use]] = {ref.name: [] for ref in block.refinements}
        self._exposed: dict[str, list[Domain]] = {}
        if 0 in self._ranges.values():
            return  # no statement is executed
        for number, statement in enumerate(block.statements):
            self._collect(number, statement)
        for ref in block.refinements:
            self._exposed[ref.name] = self._read_before_written(ref)
            if ref.direction.writes and ref.aggregation is Aggregation.ASSIGN:
                self._one_writer(ref)
                if ref.direction is Direction.INOUT:
                    self._foreign_reads(ref)
        self._aliases()

    # -- what statements touch -----------------------------------------------------------------

    def _collect(self, number: int, statement: Statement) -> None:
        match statement:
            case Load(buffer=buffer) | Store(buffer=buffer):
                origin = _origin(len(self._refs[buffer].shape))
                is_load = isinstance(statement, Load)
                regions = dict.fromkeys(Kind, origin)
                self._uses[buffer].append(
                    Use(number, statement, buffer, is_load, not is_load, regions=regions)
                )
            case Special(operands=operands):
                for operand in operands:
                    region = self._part(operand)
                    partial = operand.direction is Direction.INOUT
                    sure = Domain.empty(region.names) if partial else region
                    regions = {Kind.READ: region, Kind.WRITE: region, Kind.SURE: sure}
                    reads, writes = operand.direction.reads, operand.direction.writes
                    use = Use(number, statement, operand.buffer, reads, writes, regions=regions)
                    self._uses[operand.buffer].append(use)
                self._overlapping_operands(number, statement)
            case Block(refinements=refinements):
                for ref in refinements:
                    if ref.direction is not Direction.NEW:
                        reads, writes = ref.direction.reads, ref.direction.writes
                        use = Use(number, statement, ref.source, reads, writes, via=ref.name)
                        self._uses[ref.source].append(use)

    def _region(self, use: Use, kind: Kind) -> Domain:
        found = use.regions.get(kind)
        if found is None:
            assert isinstance(use.statement, Block)
            found = use.regions[kind] = self._inside_child(use.statement, use.via, kind)
        return found

    def _part(self, operand: Operand) -> Domain:
        """The elements of a view that a special's operand names, at each point."""
        ref = self._refs[operand.buffer]
        if operand.access is None or operand.shape is None:
            return _whole(ref.shape)
        indexes = sorted({name for expr in operand.access for name in expr.names})
        inequalities: list[Affine] = []
        for element, first, size in zip(elements(len(ref.shape)), operand.access, operand.shape, strict=True):
            offset = Affine.index(element) - first
            inequalities += [offset, -offset + (size - 1)]
        return Domain.of((*elements(len(ref.shape)), *indexes), inequalities)

    def _inside_child(self, child: Block, name: str, kind: Kind) -> Domain:
        """What a child does to the view `name`, over the indexes of this block."""
        region = self._children[id(child)].external(name, kind)
        passed = {index.name: index.passed for index in child.indexes if index.passed is not None}
        values = {name: expr for name, expr in passed.items() if name in region.names}
        if not values:
            return region
        kept = [name for name in region.names if name not in values]
        return region.preimage(
            values, sorted({*kept, *(used for expr in values.values() for used in expr.names)})
        )

    # -- as the parent sees it -----------------------------------------------------------------

    def external(self, name: str, kind: Kind) -> Domain:
        """What one execution of the block does to the parent's view, over passed indexes and
        elements of that view."""
        found = self._external.get((name, kind))
        if found is None:
            ref = self._refs[name]
            regions = self._regions(ref, kind)
            for other in Kind:  # mostly, all that may be written is written
                if (name, other) in self._external and _same(regions, self._regions(ref, other)):
                    found = self._external[name, other]
            if found is None:
                outward = (self._outward(region, ref) for region in regions)
                found = _union(outward) or Domain.empty(elements(len(ref.shape)))
            self._external[name, kind] = found
        return found

    def settle(self) -> None:
        """Work out all that the parent may ask, from the inside out, so that no stack grows."""
        for ref in self.block.refinements:
            if ref.direction.reads:
                self.external(ref.name, Kind.READ)
            if ref.direction.writes:
                self.external(ref.name, Kind.WRITE)
                self.external(ref.name, Kind.SURE)

    def _regions(self, ref: Refinement, kind: Kind) -> list[Domain]:
        """What the block's statements do to its own view, without doubles."""
        if kind is not Kind.READ:
            regions = [self._region(use, kind) for use in self._uses[ref.name] if use.writes]
        elif ref.direction is Direction.INOUT and ref.aggregation is not Aggregation.ASSIGN:
            # Old contents are folded in wherever there is a write.
            regions = self._regions(ref, Kind.WRITE)
        else:
            regions = self._exposed.get(ref.name, [])
        return list({id(region): region for region in regions}.values())

    def _outward(self, region: Domain, ref: Refinement) -> Domain:
        simple = self._simple_image(region, ref)
        if simple is not None:
            return simple
        moved = self._executed(self._in_parent(region, ref))
        passed = [i.name for i in self.block.indexes if i.passed is not None and i.name in moved.names]
        return moved.project_onto([*elements(len(ref.shape)), *passed]).compact(passed)

    def _simple_image(self, region: Domain, ref: Refinement) -> Domain | None:
        """The image of single elements under an access such as [m, 3, n + 1]: a box."""
        if region is not _origin(len(ref.shape)) or self.block.constraints:
            return None
        inequalities: list[Affine] = []
        used: set[str] = set()
        for element, expr in zip(elements(len(ref.shape)), ref.access, strict=True):
            low, high = expr.const, expr.const
            for name, coefficient in expr.terms:
                if len(expr.terms) > 1 or coefficient != 1 or name in used or name not in self._ranges:
                    return None
                used.add(name)
                high += self._ranges[name] - 1
            inequalities += [Affine(-low, ((element, 1),)), Affine(high, ((element, -1),))]
        return Domain.of(elements(len(ref.shape)), inequalities)

    def _in_parent(self, region: Domain, ref: Refinement) -> Domain:
        """A region of the view `ref` in the coordinates of the parent's view."""
        names = elements(len(ref.shape))
        shift = {
            name: Affine.index(name) - expr
            for name, expr in zip(names, ref.access, strict=True)
            if expr.terms or expr.const
        }
        if not shift:
            return region
        used = {name for expr in ref.access for name in expr.names}
        return region.preimage(shift, sorted({*region.names, *used}))

    def _executed(self, region: Domain, more: Iterable[str] = ()) -> Domain:
        """A region at the points that the block has. Indexes that neither the region nor a
        constraint names are left out: their ranges are not empty."""
        constraints = [constraint.expr for constraint in self.block.constraints]
        named = {name for expr in constraints for name in expr.names}
        names = sorted({*region.names, *named, *more})
        for name in names:
            if name in self._ranges:
                own = Affine.index(name)
                constraints += [own, -own + (self._ranges[name] - 1)]
        return _over(region, names).with_constraints(constraints)

    # -- rules -----------------------------------------------------------------------------------

    def _owe(
        self, code: str, where: str, message: str, help: str, span: Span | None, violation: Domain | None
    ) -> None:
        if violation is not None and not violation.is_empty():
            self.obligations.append(Obligation(code, where, message, help, span, violation))

    def _read_before_written(self, ref: Refinement) -> list[Domain]:
        """What is read of the view before the same point has written it (V051 where the view
        starts undefined)."""
        uses = self._uses[ref.name]
        if ref.direction is Direction.IN:
            return [self._region(use, Kind.READ) for use in uses]
        if not any(use.reads for use in uses):
            return []
        exposed: list[Domain] = []
        given: list[Domain] = []
        for _, group in groupby(uses, key=lambda use: use.number):
            statement = list(group)
            for use in statement:  # a statement reads before it writes
                missing = _minus(self._region(use, Kind.READ), given) if use.reads else None
                if missing is not None and ref.direction is Direction.INOUT:
                    exposed.append(missing)
                elif missing is not None:
                    self._owe_undefined(ref, use, missing)
            for use in statement:
                sure = self._region(use, Kind.SURE) if use.writes else None
                if sure is not None and not any(sure is known for known in given):
                    given.append(sure)
        return exposed

    def _owe_undefined(self, ref: Refinement, use: Use, missing: Domain) -> None:
        why, help = "which nothing has written before", "help: write it first, for example with a fill block"
        if ref.direction is Direction.OUT:
            why = "which this point has not written before (`out` does not see old contents)"
            help = "help: write it first; a view of an outer buffer may also be `inout`"
        self._owe(
            "V051", described(use.number, use.statement),
            f"it reads element {{element}} of '{ref.name}'{{at}}, {why}", help,
            use.statement.span or ref.span, self._executed(missing),
        )  # fmt: skip

    def unwritten(self, ref: Refinement) -> Obligation | None:
        """V052: what no statement of the root is sure to write of its output."""
        missing = _minus(_whole(ref.shape), self._regions(ref, Kind.SURE))
        if missing is None:
            return None
        return Obligation(
            "V052", f"refinement '{ref.name}'",
            "element {element} of this output is written by no statement",
            "help: fill the output first, or correct the constraints of the blocks that write it",
            ref.span, missing,
        )  # fmt: skip

    def _one_writer(self, ref: Refinement) -> None:
        """V044: under `assign`, no two points of one execution write the same element."""
        regions = self._regions(ref, Kind.WRITE)
        unresolved = self._unresolved(ref)
        if not regions or not unresolved:
            return
        written = _union(regions)
        assert written is not None
        moved = self._executed(self._in_parent(written, ref), unresolved)
        self._owe(
            "V044", f"refinement '{ref.name}'",
            f"under `assign`, element {{element}} of '{ref.source}' is written{{at}} and also at {{other}}",
            "help: aggregate with an operation, or write each element at one point only",
            ref.span, self._clash(moved, moved, unresolved, both_orders=False),
        )  # fmt: skip

    def _unresolved(self, ref: Refinement) -> list[str]:
        """The indexes that the place of a write does not determine, by a quick sound test.

        In one dimension of the access, sum(c*i) + t with 0 <= t < size, taken from the largest
        |c| down: |c| > the greatest difference that all smaller terms can make => the sum
        determines i. Indexes that are determined drop out of other dimensions.
        """
        left = {name for name, size in self._ranges.items() if size > 1}
        progress = True
        while left and progress:
            progress = False
            for expr, size in zip(ref.access, ref.shape, strict=True):
                terms = sorted((abs(c), name) for name, c in expr.terms if name in left)
                reach = [size - 1]
                for c, name in terms:
                    reach.append(reach[-1] + c * (self._ranges[name] - 1))
                for (c, name), smaller in zip(reversed(terms), reversed(reach[:-1]), strict=True):
                    if c <= smaller:
                        break
                    left.discard(name)
                    progress = True
        return sorted(left)

    def _foreign_reads(self, ref: Refinement) -> None:
        """V045: under `inout ... :assign`, no point reads an old value that another replaces."""
        writes = self._regions(ref, Kind.WRITE)
        reads = [r for r in self._exposed[ref.name] if _minus(r, writes) is not None]
        if not reads or not writes:
            return  # each point reads what it alone replaces (V044), or nothing
        self._owe(
            "V045", f"refinement '{ref.name}'",
            f"element {{element}} of '{ref.source}' is read{{at}} and written at {{other}}",
            "help: write to another buffer",
            ref.span, self._crossing(_union(reads), ref, _union(writes), ref),
        )  # fmt: skip

    def _crossing(
        self, a: Domain | None, ref_a: Refinement, b: Domain | None, ref_b: Refinement
    ) -> Domain | None:
        """Where region `a` at one point meets region `b` at another."""
        assert a is not None
        assert b is not None
        several = [name for name, size in self._ranges.items() if size > 1]
        if not several:
            return None
        first = self._executed(self._in_parent(a, ref_a), several)
        second = self._executed(self._in_parent(b, ref_b), several)
        return self._clash(first, second, several, both_orders=True)

    def _clash(self, a: Domain, b: Domain, different: Sequence[str], *, both_orders: bool) -> Domain | None:
        """The pairs of points, not the same in `different`, with a common element."""
        second = b.renamed(lambda name: name + OTHER if name in self._ranges else name)
        common = _intersect(a, second)
        if common.is_empty():
            return None
        found: list[Domain] = []
        for name in different:
            gap = Affine.of({name + OTHER: 1, name: -1}, -1)
            found.append(common.with_constraints([gap]))
            if both_orders:
                gap = Affine.of({name + OTHER: -1, name: 1}, -1)
                found.append(common.with_constraints([gap]))
        return _union(domain for domain in found if not domain.is_empty())

    def _aliases(self) -> None:
        """V046: two refinements of one buffer, one of which writes, are kept apart.

        Different points touch different elements; one point may replace an element through
        one refinement only in a statement after those that read it through the other.
        """
        by_source: dict[str, list[Refinement]] = {}
        for ref in self.block.refinements:
            if ref.direction is not Direction.NEW:
                by_source.setdefault(ref.source, []).append(ref)
        for refs in by_source.values():
            for one, two in combinations(refs, 2):
                self._alias(one, two)
                self._alias(two, one)

    def _alias(self, writer: Refinement, other: Refinement) -> None:
        if not any(use.writes for use in self._uses[writer.name]) or self._apart(writer, other):
            return
        message = (
            f"element {{element}} of '{writer.source}' is written{{at}}, and used through '{other.name}'"
        )
        help = "help: use one refinement (`inout`), or another buffer"
        for write in self._uses[writer.name]:
            for use in self._uses[other.name]:
                reads = use.reads and other.direction.reads
                if not write.writes or not (reads or use.writes):
                    continue
                a = self._region(write, Kind.WRITE)
                b = _union(
                    self._region(use, kind)
                    for kind, used in ((Kind.READ, reads), (Kind.WRITE, use.writes))
                    if used
                )
                crossing = self._crossing(a, writer, b, other)
                where = f"refinement '{writer.name}'"
                self._owe("V046", where, message + " at {other}", help, writer.span, crossing)
                if use.writes or use.number >= write.number:
                    assert b is not None
                    same = _intersect(self._in_parent(a, writer), self._in_parent(b, other))
                    self._owe("V046", where, message, help, writer.span, self._executed(same))

    def _apart(self, one: Refinement, two: Refinement) -> bool:
        """A quick proof that two views of one buffer never overlap, at whatever points.

        In some dimension the origins differ by d = c + sum(a*i) - sum(b*i'), which for an
        overlap is in [-(size of one - 1), size of two - 1]. Intervals, or the greatest common
        divisor of the coefficients, exclude that.
        """
        for a, b, size_a, size_b in zip(one.access, two.access, one.shape, two.shape, strict=True):
            low = high = a.const - b.const
            step = 0
            for expr, sign in ((a, 1), (b, -1)):
                for name, c in expr.terms:
                    if name in self._ranges:
                        step = gcd(step, c)
                        reach = sign * c * (self._ranges[name] - 1)
                        low, high = low + min(0, reach), high + max(0, reach)
            passed = (a - b).without(set(self._ranges))
            if passed.terms:
                continue
            first, last = max(low, 1 - size_a), min(high, size_b - 1)
            # The differences are a.const - b.const plus multiples of step.
            if first > last or (step > 1 and first + (a.const - b.const - first) % step > last):
                return True
        return False

    def _overlapping_operands(self, number: int, special: Special) -> None:
        for one, two in combinations(special.operands, 2):
            if one.buffer == two.buffer and (one.direction.writes or two.direction.writes):
                common = _intersect(self._part(one), self._part(two))
                self._owe(
                    "V046", described(number, special),
                    f"two operands share element {{element}} of '{one.buffer}'{{at}}, and one writes it",
                    "help: use another buffer", special.span, self._executed(common),
                )  # fmt: skip


class AlikeEffects:
    """What a block reads and writes, from the effects of one that differs in names alone."""

    def __init__(self, effects: Effects, names: Mapping[str, str]) -> None:
        """`names` has the names of the other block's refinements."""
        self._effects = effects
        self._names = names

    def external(self, name: str, kind: Kind) -> Domain:
        return self._effects.external(self._names[name], kind)

    def settle(self) -> None:
        self._effects.settle()


def point_text(point: Mapping[str, int]) -> str:
    """`x=5, y=2` for the indexes of the second point of a violation."""
    return ", ".join(f"{n.removesuffix(OTHER)}={v}" for n, v in sorted(point.items()) if n.endswith(OTHER))


def element_text(point: Mapping[str, int]) -> str:
    """`[3, 0]` for the element of a violation."""
    axes = sorted((int(name[1:]), value) for name, value in point.items() if name.startswith("@"))
    return str([value for _, value in axes])
