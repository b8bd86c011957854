"""What each pass did to each kernel of a program, or why it did nothing: the data of `stripec explain`.

    programs after each pass + remarks -> Story of each kernel, step by step, and of the whole program

Passes fuse kernels, split them and make new ones. A story is told of every kernel of the program that
came in: it goes on under the name that the kernel keeps; a kernel that is fused into another one goes on
there. What becomes of a kernel is seen from the buffers of the root that it writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stripe.diag import Remark
from stripe.ir import Block, Direction, Program, Special
from stripe.passes.pipeline import StepReport
from stripe.passes.registry import pass_spec
from stripe.printer import location_text
from stripe.visit import walk


@dataclass(frozen=True, slots=True)
class Note:
    """One step, as far as it concerns a kernel. `changed`: the kernel is another one after it; `into`
    names the kernel that it went into, `gone` says that nothing of it is left."""

    number: int
    changed: bool
    remarks: tuple[Remark, ...] = ()
    into: str = ""
    gone: bool = False

    @property
    def silent(self) -> bool:
        return not (self.changed or self.remarks or self.into or self.gone)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer that a kernel holds: its path, memory and place; `points` in flight have one each."""

    path: str
    memory: str
    place: str
    bytes: int
    points: int


@dataclass(slots=True)
class Story:
    """What happened to a kernel; `path` is where it stood first. `made_by` is the step that made it, 0 for
    a kernel of the input; `blocks` are what it is in the end, by their paths."""

    path: str
    made_by: int = 0
    notes: list[Note] = field(default_factory=list)
    blocks: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    buffers: tuple[Buffer, ...] = ()

    @property
    def held(self) -> dict[str, tuple[int, int]]:
        """For each memory the number of buffers there, and their bytes, of all points in flight."""
        found: dict[str, tuple[int, int]] = {}
        for buffer in self.buffers:
            count, size = found.get(buffer.memory, (0, 0))
            found[buffer.memory] = count + 1, size + buffer.points * buffer.bytes
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Explanation:
    """`steps` are those that ran; `whole` has what concerns no kernel alone."""

    steps: tuple[StepReport, ...]
    kernels: tuple[Story, ...]
    whole: Story

    def spec(self, number: int) -> str:
        return pass_spec(self.steps[number - 1].step)


def explain(stages: Sequence[Program], steps: Sequence[StepReport]) -> Explanation:
    """The stories of all kernels. `stages` has the program before the first step and after each one."""
    kernels: list[Story] = []
    told: set[int] = set()  # remarks that belong to a kernel, by identity
    for part in ("load", "root"):
        roots = [getattr(program, part) for program in stages]
        if any(root is not None for root in roots):
            kernels += _Tracker(steps).run(roots, told)
    whole = Story(stages[0].root.name)
    for before, step in zip(stages, steps, strict=False):
        said = tuple(r for r in step.remarks if id(r) not in told)
        root = stages[step.number].root
        changed = _frame(before.root) != _frame(root)
        whole.notes.append(Note(step.number, changed, said))
    return Explanation(tuple(steps), tuple(kernels), whole)


def _frame(root: Block) -> tuple[object, ...]:
    """What a root has beside its kernels: its buffers, and their order in time."""
    return root.refinements, tuple(s.name for s in root.statements if isinstance(s, Block | Special))


class _Tracker:
    """Follows the kernels of one root through the steps."""

    def __init__(self, steps: Sequence[StepReport]) -> None:
        self._steps = steps
        self._stories: dict[str, Story] = {}
        self._owner: dict[str, str] = {}  # kernel of now -> key of its story

    def run(self, roots: Sequence[Block | None], told: set[int]) -> Iterator[Story]:
        first = roots[0]
        for child in first.children if first else ():
            self._begin(first, child.name, 0)
        for before, after, step in zip(roots, roots[1:], self._steps, strict=False):
            self._step(before, after, step, told)
        self._end(roots[-1])
        return iter(self._stories.values())

    def _begin(self, root: Block | None, name: str, step: int) -> str:
        key = f"{root.name if root else ''}/{name}"
        self._stories.setdefault(key, Story(key, step))
        self._owner[name] = key
        return key

    def _step(self, before: Block | None, after: Block | None, step: StepReport, told: set[int]) -> None:
        old, new = _kernels(before), _kernels(after)
        owner = {name: self._owner[name] for name in old}
        self._owner = {name: owner[name] for name in new if name in owner}
        for name in new.keys() - old.keys():
            parent = next((k for k in old if _writes(old[k]) & _writes(new[name])), None)
            if parent is None:
                self._begin(after, name, step.number)
            else:
                self._owner[name] = owner[parent]
        said: dict[str, list[Remark]] = {}
        for remark in step.remarks:
            top = (before or after or _NOTHING).name
            key = self._key(remark.block, top, owner)
            if key is not None:
                said.setdefault(key, []).append(remark)
                told.add(id(remark))
        for key in dict.fromkeys([*owner.values(), *self._owner.values()]):
            mine = [n for n, k in owner.items() if k == key]
            now = [n for n, k in self._owner.items() if k == key]
            into = "" if now else self._destination(mine, old, new)
            changed = [old[n] for n in mine] != [new[n] for n in now]
            note = Note(step.number, changed, tuple(said.pop(key, ())), into, not (now or into))
            self._stories[key].notes.append(note)

    def _key(self, path: str, root: str, owner: Mapping[str, str]) -> str | None:
        """The story that a remark belongs to; its path names a kernel from before or after the step."""
        head, *rest = re.split(r"[/,]", path)
        if not rest or head != root:
            return None
        return owner.get(rest[0]) or self._owner.get(rest[0])

    def _destination(self, names: Sequence[str], old: Mapping[str, Block], new: Mapping[str, Block]) -> str:
        """Where kernels are that have no successor of their own: the path of the kernel, or empty."""
        written = {buffer for name in names for buffer in _writes(old[name])}
        found = [n for n, block in new.items() if written & _writes(block)]
        inside = [n for n, block in new.items() if any(b.name in names for _, b in walk(block))]
        return next((self._owner[name] for name in (*found, *inside)), "")

    def _end(self, root: Block | None) -> None:
        now = _kernels(root)
        for key, story in self._stories.items():
            mine = [name for name, owner in self._owner.items() if owner == key]
            story.blocks = tuple(f"{root.name if root else ''}/{name}" for name in mine)
            blocks = [now[name] for name in mine]
            story.units = tuple(sorted({unit for block in blocks for unit in _units(block, "")}))
            story.buffers = tuple(_buffers(root.name if root else "", blocks))


_NOTHING = Block(name="")


def _kernels(root: Block | None) -> dict[str, Block]:
    return {child.name: child for child in root.children} if root is not None else {}


def _writes(block: Block) -> frozenset[str]:
    written = (Direction.OUT, Direction.INOUT)
    return frozenset(ref.source for ref in block.refinements if ref.direction in written)


def _units(block: Block, around: str) -> Iterator[str]:
    """The units that execute the leaves and specials of a nest."""
    here = block.location.unit if block.location is not None else around
    nested = False
    for statement in block.statements:
        if isinstance(statement, Block):
            nested = True
            yield from _units(statement, here)
        elif isinstance(statement, Special):
            nested = True
            yield statement.location.unit if statement.location is not None else here
    if not nested:
        yield here


def _buffers(path: str, blocks: Sequence[Block]) -> Iterator[Buffer]:
    for block in blocks:
        for names, nested in walk(block):
            for ref in nested.refinements:
                if ref.direction is Direction.NEW and ref.location is not None:
                    where = "/".join((path, *names, ref.name))
                    place = location_text(ref.location)
                    yield Buffer(where, ref.location.unit, place, ref.bytes, nested.inflight)
