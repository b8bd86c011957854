"""What has to cross the boundary of a memory, beside what does.

*Compulsory* are the distinct elements that are touched of a tensor, counted exactly by isl: what is read of
it and not written by the same kernel, and what is written, each once. It is told from the program before its
kernels were tiled and placed: copies of tiles may bring in more than is used. *Ours* is what the placed
program moves between the tensor, where it lies, and the units; a copy of it by a statement of its own counts
for the kernel that uses it next. Tensors that are kept near count nothing; of those that caches keep in part,
no more has to cross in a kernel than does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from hwconfigs.model import HwConfig
from simulator.least import least_traffic
from simulator.result import Bound
from stripe.alike import kind
from stripe.analysis.deps import accesses
from stripe.analysis.liveness import memory_of
from stripe.ir import Block, Direction, Program, Refinement, Special
from stripe.poly import Domain
from stripe.visit import buffers_used

Crossing = Mapping[tuple[int, str, str], int]  # bytes by statement of the root, memory, path of the buffer


def bounds(program: Program, source: Program, crossing: Crossing, hw: HwConfig) -> list[Bound]:
    """The bounds of each kernel of `source`, and of the whole program; `program` is the same one when it is
    placed. `crossing` is what the statements of its root move."""
    far = _memory_of_inputs(program.root, hw)
    kernels = [s for s in source.root.statements if isinstance(s, Block | Special)]
    ours = _ours(program.root, source.root, kernels, crossing, far)
    cached = any(memory.kind == "cached" for memory in hw.memories)
    touched = Touched()
    found: list[Bound] = []
    leasts: dict[str, int | None] = {}  # of each buffer, over all kernels
    for at, kernel in enumerate(kernels):
        moved = {name: size for (number, name), size in ours.items() if number == at}
        own = touched.of(source.root, kernel, tuple(moved))
        least = touched.least(source.root, kernel, tuple(moved), _near_bytes(hw, far))
        if least is not None and sum(least.values()) > sum(moved.values()):
            least = moved  # the program's own tiles are not of the kind that is searched
        if cached:  # parts of tensors stay near from one kernel to the next, and have no need to cross
            own = {buffer: min(size, moved[buffer]) for buffer, size in own.items()}
        name = f"{program.root.name}/{kernel.name}"
        for buffer, size in moved.items():
            part = least[buffer] if least is not None else None
            leasts[buffer] = _sum([leasts.get(buffer, 0), part])
            found.append(_bound(name, far, buffer, own[buffer], part, size))
        if len(moved) > 1:
            total = sum(least.values()) if least is not None else None
            found.append(_bound(name, far, "", sum(own.values()), total, sum(moved.values())))
    return [*found, *_whole(program, source, crossing, far, leasts)]


def _whole(
    program: Program, source: Program, crossing: Crossing, far: str, leasts: Mapping[str, int | None]
) -> Iterator[Bound]:
    """Inputs and outputs of the program, and all that crosses, intermediates included. The least of each
    tensor are those of its kernels together, and no less than what has to cross."""
    root = program.root
    moved: Counter[str] = Counter()
    for (_, memory, path), size in crossing.items():
        moved[path] += size if memory == far else 0
    needed = 0
    for ref in source.root.refinements:
        if ref.direction is not Direction.NEW:
            own = compulsory(source.root, _users(source.root, ref.name), ref, whole=True)
            needed += own
            least = _at_least(own, leasts.get(ref.name, 0))
            yield _bound("", far, ref.name, own, least, moved[f"{root.name}/{ref.name}"])
    yield _bound("", far, "", needed, _at_least(needed, _sum(leasts.values())), moved.total())


def _sum(parts: Iterable[int | None]) -> int | None:
    """None if one of them is not known."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _at_least(needed: int, least: int | None) -> int | None:
    return None if least is None else max(needed, least)


def _bound(kernel: str, memory: str, tensor: str, needed: int, least: int | None, ours: int) -> Bound:
    ratio = ours / needed if needed else None
    return Bound(
        kernel=kernel, memory=memory, tensor=tensor, compulsory=needed, least=least, ours=ours, ratio=ratio
    )


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
    """Answers about kernels; those that are alike are asked once."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Block, list[int] | None]] = {}  # each keeps its block alive

    def of(self, root: Block, kernel: Block | Special, buffers: tuple[str, ...]) -> dict[str, int]:
        """Compulsory bytes of each buffer that a kernel uses."""
        if not isinstance(kernel, Block):
            return {name: compulsory(root, [kernel], root.refinement(name)) for name in buffers}
        key = self._key("compulsory", root, kernel, buffers)
        if key not in self._known:
            value = [compulsory(root, [kernel], root.refinement(name)) for name in buffers]
            self._known[key] = kind(kernel).block, value
        return dict(zip(buffers, self._known[key][1] or (), strict=True))

    def least(
        self, root: Block, kernel: Block | Special, buffers: tuple[str, ...], capacity: int | None
    ) -> dict[str, int] | None:
        """Bytes of each in the least traffic that is found."""
        if not isinstance(kernel, Block):
            return None
        key = self._key(f"least {capacity}", root, kernel, buffers)
        if key not in self._known:
            made = least_traffic(root, kernel, self.of(root, kernel, buffers), capacity)
            value = None if made is None else [made.bytes.get(name, 0) for name in buffers]
            self._known[key] = kind(kernel).block, value
        found = self._known[key][1]
        return None if found is None else dict(zip(buffers, found, strict=True))

    def _key(self, what: str, root: Block, kernel: Block, buffers: tuple[str, ...]) -> tuple[object, ...]:
        used = list(dict.fromkeys(name for name, _ in buffers_used(kernel)))
        refs = (root.refinement(name) for name in used)
        shapes = tuple((r.shape, r.dtype, r.aggregation) for r in refs)
        return what, id(kind(kernel).block), shapes, tuple(used.index(name) for name in buffers)


# ------------------------------------------------------------------------------ ours


def _memory_of_inputs(root: Block, hw: HwConfig) -> str:
    """Where the inputs and outputs of the program lie."""
    ref = next(r for r in root.refinements if r.direction is not Direction.NEW)
    return memory_of(ref, True, hw)


def _near_bytes(hw: HwConfig, far: str) -> int | None:
    """Bytes of all memories that are nearer than one; None if one of them has no limit."""
    total = 0
    for memory in hw.memories:
        if memory.name != far and _leads_to(memory.name, far, hw):
            if memory.bytes is None:
                return None
            total += memory.bytes * memory.count
    return total


def _leads_to(memory: str, far: str, hw: HwConfig) -> bool:
    known = set[str]()
    at: str | None = memory
    while at is not None and at not in known and at != far:
        known.add(at)
        found = hw.memory(at)
        at = found.backing if found is not None else None
    return at == far


def _ours(
    root: Block, source: Block, kernels: Sequence[Block | Special], crossing: Crossing, far: str
) -> dict[tuple[int, str], int]:
    """Bytes that cross for each kernel of the source, by the number of it, and each of its buffers."""
    place = {k.name: at for at, k in enumerate(kernels)}
    uses = [dict.fromkeys(name for name, _ in buffers_used(k)) for k in kernels]
    owners: list[int | None] = []
    for statement in root.statements:
        owners.append(place.get(statement.name) if isinstance(statement, Block | Special) else None)
    found: Counter[tuple[int, str]] = Counter()
    for (number, memory, path), size in crossing.items():
        name = path.removeprefix(f"{root.name}/")
        if memory != far or not any(name in used for used in uses):
            continue
        nearby = (owners[number], *owners[number + 1 :], *reversed(owners[:number]))
        owner = next((at for at in nearby if at is not None and name in uses[at]), None)
        if owner is not None:
            found[owner, name] += size
    order = {name: at for at, name in enumerate(r.name for r in source.refinements)}
    return dict(sorted(found.items(), key=lambda pair: (pair[0][0], order[pair[0][1]])))
