"""What has to cross the boundary of each memory, beside what does.

The boundary of a memory lies between the tensors in it and all that is nearer: units, the memories that
copies go to, those that lie beside it. *Compulsory* are the distinct elements that are touched of a tensor,
counted exactly by isl: what is read of it and not written by the same kernel, and what is written, each once.
It is told from the program before its kernels were tiled and placed: copies of tiles may bring in more than
is used. *Least* is the least that is found for a kernel at this boundary alone: see `_least`. *Ours* is what
the placed program moves there: see `simulator.crossing`.

Nothing of what lives in a kernel has to cross. Tensors that are kept near count nothing; of those that caches
keep in part, and of those that go past a memory in part, no more has to cross in a kernel than does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hwconfigs.model import HwConfig
from simulator.crossing import Crossing, Moved, moved_by_kernels, place_of
from simulator.least import least_traffic
from simulator.result import Bound
from simulator.taken import taken
from stripe.alike import kind
from stripe.analysis.deps import accesses
from stripe.analysis.liveness import memory_of
from stripe.ir import Block, Direction, Program, Refinement, Special
from stripe.poly import Domain, PolyhedralLimit
from stripe.visit import buffers_used, walk


def bounds(program: Program, source: Program, crossing: Crossing, hw: HwConfig) -> list[Bound]:
    """The bounds of each kernel of `source` at each memory, and of the whole program; `program` is the same
    one when it is placed. `crossing` is what its blocks move."""
    kernels = [s for s in source.root.statements if isinstance(s, Block | Special)]
    moved = moved_by_kernels(program.root, source.root, kernels, crossing, hw)
    touched = Touched(source.root, hw)
    found: list[Bound] = []
    every: dict[str, list[_Crossed]] = {}  # by memory
    for (at, memory), tensors in moved.items():
        name = f"{program.root.name}/{kernels[at].name}"
        own = _of_kernel(kernels[at], memory, tensors, touched, hw)
        found += _rows(name, memory, own)
        every.setdefault(memory, []).extend(own)
    for memory in sorted(every, key=lambda name: place_of(name, hw)):
        found += _whole(source.root, memory, every[memory], hw)
    return found


@dataclass(frozen=True, slots=True)
class _Crossed:
    """The bounds of one tensor in one kernel; `reason` says why no least was found."""

    kernel: Block | Special
    tensor: str
    compulsory: int
    least: int | None
    ours: int
    around: bool
    reason: str = ""


def _of_kernel(
    kernel: Block | Special, memory: str, tensors: Mapping[str, Moved], touched: Touched, hw: HwConfig
) -> list[_Crossed]:
    cached = bool(hw.caches)
    needed = touched.of(kernel, tuple(tensors))
    least, reasons = _least(kernel, memory, tensors, touched, hw)
    ours = sum(own.bytes for own in tensors.values())
    # Ours moves less, since it is not of the kind that is searched; or it moves no more than has to cross.
    if (not reasons and sum(least.values()) > ours) or (reasons and sum(needed.values()) == ours):
        least, reasons = {name: own.bytes for name, own in tensors.items()}, {}
    return [
        _Crossed(
            kernel, name, min(needed[name], own.bytes) if cached or own.around else needed[name],
            None if name in reasons else least[name], own.bytes, own.around, reasons.get(name, ""),
        )
        for name, own in tensors.items()
    ]  # fmt: skip


def _least(
    kernel: Block | Special, memory: str, tensors: Mapping[str, Moved], touched: Touched, hw: HwConfig
) -> tuple[dict[str, int], dict[str, str]]:
    """The least of each tensor that was found, or why there is none.

    Where memories are nearer than this one, it is that of the tilings of one level that they hold, whatever
    the tiles of the program are. They are those that lead to it by `backing`, and those that copies go to; a
    tensor without either goes to units as it is, and they take what `simulator.taken` says.
    """
    behind = _behind(memory, hw)
    tiled = {name for name, own in tensors.items() if behind or own.handed}
    nearer = behind.union(*(own.handed | _behind_all(own.handed, hw) for own in tensors.values()))
    found: dict[str, int] = {}
    reasons: dict[str, str] = {}
    if tiled:
        made = touched.least(kernel, tuple(n for n in tensors if n in tiled), _bytes(nearer - {memory}, hw))
        if isinstance(made, str):
            reasons = dict.fromkeys(tiled, made)
        else:
            found |= made
    direct = {name: name.rpartition("/")[2] for name in tensors if name not in tiled}  # as the kernel says
    if direct:
        taken_there = touched.taken(kernel, tuple(direct.values()), memory)
        found |= {name: taken_there.get(own, tensors[name].bytes) for name, own in direct.items()}
    return found, reasons


def _rows(kernel: str, memory: str, parts: Sequence[_Crossed]) -> Iterator[Bound]:
    for own in parts:
        yield _bound(kernel, memory, own.tensor, own.compulsory, own.least, own.ours, own.reason)
    if len(parts) > 1:
        needed, ours = sum(own.compulsory for own in parts), sum(own.ours for own in parts)
        yield _bound(kernel, memory, "", needed, _sum(own.least for own in parts), ours, _reason(parts))


def _whole(root: Block, memory: str, parts: Sequence[_Crossed], hw: HwConfig) -> Iterator[Bound]:
    """Inputs and outputs of the program, and all that crosses, intermediates included. At another memory than
    theirs, what has to cross is told from the kernels that they cross it for. The least of each tensor are
    those of its kernels together, and no less than what has to cross."""
    needed = 0
    for ref in root.refinements:
        own = [part for part in parts if part.tensor == ref.name]
        at_home = memory == memory_of(ref, True, hw)
        if ref.direction is Direction.NEW or not (own or at_home):
            continue
        ours = sum(part.ours for part in own)
        users = _users(root, ref.name) if at_home else [part.kernel for part in own]
        has_to = compulsory(root, users, ref, whole=at_home)
        has_to = min(has_to, ours) if any(part.around for part in own) else has_to
        needed += has_to
        least = _at_least(has_to, _sum(part.least for part in own))
        yield _bound("", memory, ref.name, has_to, least, ours, _reason(own))
    ours = sum(part.ours for part in parts)
    least = _at_least(needed, _sum(part.least for part in parts))
    yield _bound("", memory, "", needed, least, ours, _reason(parts))


def _sum(parts: Iterable[int | None]) -> int | None:
    """None if one of them is not known."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _reason(parts: Iterable[_Crossed]) -> str:
    return next((part.reason for part in parts if part.reason), "")


def _at_least(needed: int, least: int | None) -> int | None:
    return None if least is None else max(needed, least)


def _bound(
    kernel: str, memory: str, tensor: str, needed: int, least: int | None, ours: int, reason: str
) -> Bound:
    ratio = ours / needed if needed else None
    return Bound(
        kernel=kernel, memory=memory, tensor=tensor, compulsory=needed, least=least, ours=ours, ratio=ratio,
        reason=reason,
    )  # fmt: skip


# ------------------------------------------------------------------------------ compulsory


def compulsory(root: Block, kernels: Sequence[Block | Special], ref: Refinement, whole: bool = False) -> int:
    """Bytes of a buffer of the root that statements of it have to move, whatever is near; `whole`: they are
    all that the program has."""
    names = tuple(f"@{dim}" for dim in range(len(ref.shape)))
    read = written = made = changed = Domain.empty(names)
    for kernel in kernels:
        for access in accesses(root, kernel):
            if access.buffer != ref.name:
                continue
            elements = access.domain().image(access.element, names)
            if access.reads and access.writes:
                changed = changed.union(elements)  # old contents and new ones
            elif access.reads:
                read = read.union(elements)
            else:
                made = made.union(elements)
            if access.writes:
                written = written.union(elements)
    needed = _less(read, written).union(_less(changed, made))
    if whole and ref.direction is Direction.OUT:
        needed = Domain.empty(names)  # the program wrote it itself
    return (needed.coalesce().count() + written.coalesce().count()) * ref.dtype.bytes


def _less(elements: Domain, other: Domain) -> Domain:
    return elements if other.is_empty() or elements.is_empty() else elements.subtract(other)


def _users(root: Block, buffer: str) -> list[Block | Special]:
    return [
        s
        for s in root.statements
        if isinstance(s, Block | Special) and any(name == buffer for name, _ in buffers_used(s))
    ]


class Touched:
    """Answers about the kernels of a root; those that are alike are asked once."""

    def __init__(self, root: Block, hw: HwConfig) -> None:
        self._root = root
        self._hw = hw
        self._known: dict[Hashable, tuple[Block, list[int] | str]] = {}  # each keeps its block alive

    def of(self, kernel: Block | Special, buffers: tuple[str, ...]) -> dict[str, int]:
        """Compulsory bytes of each buffer; nothing of those that are the kernel's own."""
        refs = {ref.name: ref for ref in self._root.refinements}

        def count() -> list[int]:
            return [compulsory(self._root, [kernel], refs[n]) if n in refs else 0 for n in buffers]

        found = self._asked("compulsory", kernel, buffers, count)
        assert not isinstance(found, str)
        return found

    def least(
        self, kernel: Block | Special, buffers: tuple[str, ...], capacity: int | None
    ) -> dict[str, int] | str:
        """Bytes of each in the least traffic of tilings that is found, or why there is none."""
        if not isinstance(kernel, Block):
            return "a special goes through its operands as it is"
        here = tuple(ref.name for ref in self._root.refinements)

        def search() -> list[int] | str:
            crossing = {n: size for n, size in self.of(kernel, buffers).items() if n in here}
            try:
                made = least_traffic(self._root, kernel, crossing, capacity)
            except PolyhedralLimit:
                return "what its tiles touch is too complicated to count"
            return made if isinstance(made, str) else [made.bytes.get(name, 0) for name in buffers]

        return self._asked(f"least {capacity}", kernel, buffers, search)

    def taken(self, kernel: Block | Special, buffers: tuple[str, ...], memory: str) -> dict[str, int]:
        """Bytes of each that units load and store in the memory; without those that no statement of the
        kernel names, and empty where specials execute, which take what they do."""
        if not isinstance(kernel, Block) or _specials(kernel):
            return {}

        def count() -> list[int]:
            made = taken(self._root, kernel, buffers, memory, self._hw)
            return [made[name] for name in buffers]

        found = self._asked(f"taken in {memory}", kernel, buffers, count)
        assert not isinstance(found, str)
        named = {name for name, _ in buffers_used(kernel)} | set(_own(kernel))
        return {name: size for name, size in found.items() if name in named}

    def _asked(
        self, what: str, kernel: Block | Special, buffers: tuple[str, ...], ask: Callable[[], list[int] | str]
    ) -> dict[str, int] | str:
        if not isinstance(kernel, Block):
            value = ask()
        else:
            used = list(dict.fromkeys((*(name for name, _ in buffers_used(kernel)), *_own(kernel))))
            refs = (r for name in used for r in self._root.refinements if r.name == name)
            shapes = tuple((r.shape, r.dtype, r.aggregation) for r in refs)
            places = tuple(used.index(name) if name in used else -1 for name in buffers)
            key = what, id(kind(kernel).block), shapes, places
            if key not in self._known:
                self._known[key] = kind(kernel).block, ask()
            value = self._known[key][1]
        return value if isinstance(value, str) else dict(zip(buffers, value, strict=True))


def _own(kernel: Block) -> list[str]:
    """The buffers that live in a kernel."""
    return [r.name for _, block in walk(kernel) for r in block.refinements if r.direction is Direction.NEW]


def _specials(kernel: Block) -> bool:
    return any(isinstance(s, Special) for _, block in walk(kernel) for s in block.statements)


# ------------------------------------------------------------------------------ what is nearer


def _behind(memory: str, hw: HwConfig) -> set[str]:
    """The memories that lead to one, the nearest first."""
    return {m.name for m in hw.memories if m.name != memory and _leads_to(m.name, memory, hw)}


def _behind_all(memories: Iterable[str], hw: HwConfig) -> set[str]:
    return {name for memory in memories for name in _behind(memory, hw)}


def _leads_to(memory: str, far: str, hw: HwConfig) -> bool:
    known = set[str]()
    at: str | None = memory
    while at is not None and at not in known and at != far:
        known.add(at)
        found = hw.memory(at)
        at = found.backing if found is not None else None
    return at == far


def _bytes(names: Collection[str], hw: HwConfig) -> int | None:
    """Bytes of some memories together, all instances; None if one of them has no limit."""
    total = 0
    for memory in hw.memories:
        if memory.name in names:
            if memory.bytes is None:
                return None
            total += memory.bytes * memory.count
    return total
