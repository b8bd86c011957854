"""The part of transpose that weighs copies: which there may be of what a kernel reads, where they can be
made, and what each of them costs and saves."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod

from hwconfigs.model import HwConfig, Stencil, own_cache
from stripe.analysis.bounds import leaves
from stripe.analysis.cost_layout import Brought, layout_cycles
from stripe.analysis.cost_sets import usable_bytes
from stripe.analysis.stencils import matches
from stripe.ir import Block, Direction, Program, Refinement, Special
from stripe.locks import cached_property
from stripe.names import Names
from stripe.passes.transpose_between import exchanged, parted, places, uneven
from stripe.passes.transpose_hoist import hoisted, root_source
from stripe.passes.transpose_measures import Measure, Measures
from stripe.passes.transpose_tree import (
    at_path,
    buffer_of,
    computed_with,
    copied,
    layouts,
    levels,
    put,
    reach,
)
from stripe.rewrite import RewriteRefused
from stripe.rewrite_packed import Layout, Packed, known_at_load_time, pack
from stripe.visit import View, views_of, walk

Views = Mapping[str, View]


LARGE = 0.03  # of the time with a large copy: what another may take longer that a cache holds
SHUT_OUT = 0.05  # the same: what a copy has to gain of rows that suit the lanes, but crowd out each other
FAR = 0.1  # of the time for a copy that is made in front of a whole kernel: what it takes longer to read it


@dataclass(frozen=True, slots=True)
class Offer:
    """A copy of what a block reads through `view`; cycles of the whole program.

    `path` leads from the root to the block, `number` is the place of the view among its refinements.
    The copy is made in the block that the first `depth` steps of the path lead to: in the root once,
    ahead of the kernel or at load time; inside those loops of that block that are `outside`, if there are
    any. A `large` one is made at each call and leaves the core's own caches before it is read; what it saves
    is counted as if all that is asked for ahead came in time, where it can. What it reads is `far` if no
    cache keeps it from one call to the next.
    """

    path: tuple[int, ...]
    number: int
    view: Refinement
    layout: Layout
    depth: int
    outside: tuple[str, ...]
    saved: float
    copy: float
    load_time: bool = False
    large: bool = False
    far: bool = False

    @property
    def place(self) -> Hashable:
        """Which view of the kernel it is about, and where it is made, wherever the kernel stands."""
        return self.path[1:], self.number, self.depth, self.outside

    @property
    def gain(self) -> float:
        return self.saved - (0.0 if self.load_time else self.copy)

    def text(self, total: float) -> str:
        layout = self.layout
        panels = f" in panels along {', '.join(name for name, _ in layout.panels)}" if layout.panels else ""
        order = "" if list(layout.order) == sorted(layout.order) else f" in the order {list(layout.order)}"
        where = " between its loops" if self.outside else ""
        # What is made at load time is not weighed: how long that takes, the kernel that makes it tells best.
        cost = "it is copied at load time" if self.load_time else f"the copy takes {self.copy:.4g}{where}"
        return f"'{self.view.source}'{panels}{order}: saves {self.saved:.4g} of {total:.4g} cycles, {cost}"


def offered(root: Block, offer: Offer) -> tuple[Block, tuple[int, ...], int]:
    """The root with room for a copy, the path of the block that is to read it, and how many steps of that
    path lead to the block in which the copy is made."""
    if not offer.outside:
        return root, offer.path, offer.depth
    front, rest = offer.path[: offer.depth], offer.path[offer.depth :]
    return put(root, front, parted(at_path(root, front), offer.outside)), (*front, 0, *rest), offer.depth


@dataclass(frozen=True, slots=True)
class Barred:
    """What a kernel gets no copies of: at `places` where one was refused, and of the `buffers` of copies that
    were made for it just before, as another layout of these would serve as well."""

    places: frozenset[Hashable] = frozenset()
    buffers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Room:
    """A place for copies of what a block reads: `chain` are the blocks from the one in which they are made,
    whose views are `views`, to the parent of the block; `times`: how often it is executed; `dearer`: cycles
    that the program takes longer with its loops in the order that makes the place."""

    depth: int
    outside: tuple[str, ...]
    chain: tuple[Block, ...]
    block: Block
    views: Views
    times: float
    again: bool  # one copy after another takes the same place
    packed: bool = False  # copies may also be made later, in tiles to come
    dearer: float = 0.0
    known: dict[bool, tuple[Measure, float]] = field(default_factory=dict, compare=False)
    readers: dict[Hashable, Block] = field(default_factory=dict, compare=False)

    @property
    def nest(self) -> Block:
        """What reads there: the block next to the copies, with all inside it."""
        return [*self.chain, self.block][1]

    def settled(self, hw: HwConfig, tiled: bool, best: bool = False) -> tuple[Measure, float]:
        """How what reads there is measured, and what it costs as it is, or is at `best`: the same for all
        layouts."""
        if best not in self.known:
            measure = replace(Measure.of(self.nest, self.views, hw, tiled, self.packed), best=best)
            self.known[best] = measure, measure.cycles(self.nest, self.views)
        return self.known[best]

    def reader(self, name: str, layout: Layout, packed: Packed) -> Block:
        """What reads a copy: the same block in whichever order its dimensions lie, so that answers about
        it are found again."""
        return self.readers.setdefault((name, layout.panels), packed.block)


@dataclass(frozen=True)
class _Candidate:
    """A copy of which it is known what it saves. What else there is to know takes long to find, and is asked
    only where it matters, once."""

    free: Offer  # if it costs nothing to make
    room: _Room
    packed: Packed
    inside: Views  # where it is made
    hw: HwConfig
    tiled: bool

    def gains(self, least: float) -> bool:
        """Whether it gains so many cycles."""
        return not least or (self.free.gain > least and self.made.gain > least)

    @cached_property
    def at_best(self) -> Offer:
        """A large one saves only what it would if all that is asked for ahead could come in time."""
        if not self.free.large:
            return self.free
        offer, room = self.free, self.room
        weighed = _saved(offer.view.name, offer.layout, room, self.hw, self.tiled, best=True)
        assert weighed is not None  # it can be made
        return replace(offer, saved=min(offer.saved, weighed[0] * room.times - room.dearer))

    @cached_property
    def made(self) -> Offer:
        """With what it costs to make."""
        each = _making(self.packed, self.inside, self.room, self.hw, self.free.far)
        return replace(self.at_best, copy=each * self.room.times)


@dataclass(slots=True)
class _Found:
    """The copy that gains most of those weighed so far, the first among equals; those at `barred` places do
    not count. None saves more than the kernel takes in `total`; with a `large` copy it counts as so many
    times as long."""

    barred: frozenset[Hashable]
    total: float
    large: float = 1.0
    best: Offer | None = None

    def among(self, candidates: Iterable[_Candidate]) -> Offer | None:
        for candidate in candidates:
            if candidate.free.place in self.barred or not self._gains_more(candidate.free):
                continue
            if self._gains_more(candidate.at_best) and self._gains_more(candidate.made):
                self.best = candidate.made
        return self.best

    def _gains_more(self, offer: Offer) -> bool:
        return self.best is None or self._gain(offer) > self._gain(self.best)

    def _gain(self, offer: Offer) -> tuple[float, float]:
        """What is left of the kernel's cycles counts, and among equals what its readers take. What is made in
        front of a whole kernel, at each call, has left the caches when it is read, mostly."""
        left = self.total - offer.gain + max(0.0, offer.saved - self.total)
        far = FAR * offer.copy if offer.depth == 0 and not offer.load_time else 0.0
        return -left * (self.large if offer.large else 1) - far, offer.saved


def best_offer(
    program: Program, at: int, measures: Measures, load_time: bool, barred: Barred, least: float
) -> Offer | None:
    """Of all copies that may be made of an input of a kernel, at every level of the nest, the one that gains
    most and is not `barred`. In place of a large one that gains more than a share `least` of the kernel's
    cycles, another that does is taken if it costs little more; only then may loops leave the order that tiles
    gave them."""
    kernel, around = at_path(program.root, (at,)), views_of(program.root, {})
    total = measures.of(kernel, around).cycles(kernel, around)
    candidates = list(_candidates(program, at, measures, load_time, False, total, barred.buffers))
    best = _Found(barred.places, total).among(candidates)
    if best is None or not best.large or best.gain <= least * total:
        return best
    candidates += _candidates(program, at, measures, load_time, True, total, barred.buffers)
    spared = _Found(barred.places, total, 1 + LARGE).among(candidates)
    assert spared is not None
    return spared if spared.gain > least * total else best


def _candidates(
    program: Program, at: int, measures: Measures, load_time: bool, moved: bool, total: float,
    barred: frozenset[str],
) -> Iterator[_Candidate]:  # fmt: skip
    """The copies of the inputs of a kernel that save anything, at all places, or only at those that there are
    with loops `moved`; none of the buffers `barred`. The kernel takes `total` cycles."""
    hw, tiled = measures.hw, measures.settled(at_path(program.root, (at,)))
    constants, root_views = known_at_load_time(program), views_of(program.root, {})
    for path, parents, views in levels(program.root, (at,)):
        parent, block = parents[-1], at_path(program.root, path)
        if any(b.has_tag("stencil") for _, b in walk(block)) or (not tiled and len(parents) > 1):
            continue
        often = prod(size for level in parents for size in level.ranges.values())
        here = _Room(len(path) - 1, (), (parent,), block, views, often, len(parents) > 1, measures.free)
        measure = Measure.of(block, views, hw, tiled)
        for view in copied(parent, block):
            if buffer_of(parents, view.source) in barred:
                continue
            serves = measure.serves(block, views, view.name)
            shut_out = serves and measure.shuts_out(block, views, view.name)
            if serves and not shut_out:
                continue
            source = root_source(parents, view.source)
            loads = load_time and source in constants
            far = source is not None and not made_for_copies(block) and _is_far(root_views[source], hw)
            if not loads and not computed_with(block, view.name):
                continue  # a copy of what a copy reads
            if loads and moved:
                continue  # it is made at load time, wherever loops stand
            later = measures.free and not loads
            root = _Room(0, (), parents, block, root_views, 1, False, later)
            between = [] if loads or not tiled else list(_between(path, parents, block, view, hw, moved))
            ahead = [root] if source is not None and len(parents) > 1 and not moved else []
            own = [room for room in between if room.depth == len(path)]
            number = block.refinements.index(view)
            blank = Offer(path, number, view, Layout((), ()), 0, (), 0.0, 0.0, loads, far=far)
            crowds = shut_out or measure.crowds(block, views, view.name)
            least = SHUT_OUT * total if shut_out else 0.0
            rooms = [root] if loads else [here, *ahead, *(r for r in between if r.depth < len(path))]
            for layout in layouts(parent, block, view, views, crowds):
                for room in rooms:
                    candidate = _weighed(blank, layout, room, measures, tiled)
                    if candidate is None and room is here:
                        break  # what saves nothing there saves nothing farther out
                    if candidate is not None and not (moved and room is here) and candidate.gains(least):
                        yield candidate
            for room in own:
                (outer,), inside = room.chain, room.views
                seen = room.block.refinement(view.name)
                for layout in layouts(outer, room.block, seen, inside, crowds):
                    candidate = _weighed(blank, layout, room, measures, tiled)
                    if candidate is not None and candidate.gains(least):
                        yield candidate


def made_for_copies(block: Block) -> bool:
    """Whether tiles settled a lane index in a block with copies in view, and so found these to pay."""
    return any(level.has_tag("vector") for _, level in walk(block))


def _is_far(view: View, hw: HwConfig) -> bool:
    """Whether a buffer is larger than what the caches keep from one call to the next."""
    capacity = usable_bytes(hw.caches[-1]) if hw.caches else None
    return capacity is not None and view.bytes > capacity


def _between(
    path: tuple[int, ...], parents: Sequence[Block], block: Block, view: Refinement, hw: HwConfig, moved: bool
) -> Iterator[_Room]:
    """The places between the loops of a block, and of those around it up to the root, as these loops stand or
    once they are `moved`."""
    root, name = parents[0], view.name
    for depth in range(len(path), 0, -1):
        level = [*parents, block][depth]
        seen = level.refinement(name)
        if seen.direction is not Direction.IN or (level is not block and level.constraints):
            return
        name = seen.source
        outside = parents[:depth]
        views: Views = views_of(root, {})
        for around in outside[1:]:
            views = views_of(around, views)
        often = prod(size for b in outside for size in b.ranges.values())
        for loops in places(level, seen):
            if exchanged(level, loops) is not moved:
                continue
            outer = parted(level, loops)
            rest = (0, *path[depth:])
            chain = tuple(at_path(outer, rest[:steps]) for steps in range(len(rest)))
            times = often * outer.points * uneven(outer, hw)
            reader = at_path(outer, rest)
            dearer = often * _dearer(level, outer, views, hw) if moved else 0.0
            yield _Room(depth, loops, chain, reader, views_of(outer, views), times, True, dearer=dearer)


def _dearer(level: Block, nest: Block, views: Views, hw: HwConfig) -> float:
    """Cycles that a block takes longer as a nest with its loops in another order."""
    measure = Measure.of(level, views, hw, True)
    return measure.cycles(nest, views) - measure.cycles(level, views)


def _weighed(
    made: Offer, layout: Layout, room: _Room, measures: Measures, tiled: bool
) -> _Candidate | None:  # fmt: skip
    """A copy with this layout, made there, if it saves anything."""
    hw, times = measures.hw, room.times
    tiled = tiled or bool(room.outside)
    weighed = _saved(made.view.name, layout, room, hw, tiled, made.load_time, pays=True)
    if weighed is None or weighed[0] <= 0:
        return None
    saved, packed, inside = weighed
    size, cache = packed.buffer.bytes, own_cache(hw.memories)
    held = usable_bytes(cache) if cache is not None else None
    large = not made.load_time and held is not None and size > held
    offer = replace(
        made, layout=layout, depth=room.depth, outside=room.outside, saved=saved * times - room.dearer,
        large=large,
    )  # fmt: skip
    return _Candidate(offer, room, packed, inside, hw, tiled)


def _saved(
    name: str, layout: Layout, room: _Room, hw: HwConfig, tiled: bool, load_time: bool = False,
    best: bool = False, pays: bool = False,
) -> tuple[float, Packed, Views] | None:  # fmt: skip
    """Cycles that a copy saves what reads it each time, the copy, and the views where it is made; none if
    there can't be one. `best`: what it saves where all that is asked for ahead can come in time. `pays`: of
    one that saves nothing it is enough to know that."""
    chain, block, views = room.chain, room.block, room.views
    view = block.refinement(name)
    try:
        packed = pack(
            chain[-1], block, view, layout, Names(r.name for b in chain for r in b.refinements), False
        )
        packed = hoisted(chain, block, view.source, packed)
    except RewriteRefused:
        return None
    buffer = packed.buffer
    inside = {**views, buffer.name: View(buffer.dtype, buffer.shape, buffer.strides or ())}
    near = {} if load_time else {name if len(chain) == 1 else buffer.name: buffer.bytes}
    measure, before = room.settled(hw, tiled, best)
    reader = room.reader(name, layout, packed)
    return before - measure.cycles(reader, inside, near, before if pays else inf), packed, inside


def _making(packed: Packed, inside: Views, room: _Room, hw: HwConfig, far: bool = False) -> float:
    """Cycles to make a copy once. Its place is in a cache already where the last copy took the same, or where
    that cache holds all that its readers touch, and the copy."""
    size, cycles = packed.buffer.bytes, 0.0
    touched = (r for r in room.nest.refinements if r.direction is not Direction.NEW)
    held = size + sum(ref.bytes for ref in touched)
    for copy in packed.copies:
        read, written = (ref.name for ref in copy.refinements)
        near = (written, size if room.again else held)
        brought = Brought((near,), frozenset({read} if far else ()))
        cycles += layout_cycles(copy, inside, hw, brought=brought, squares=True)
    return cycles


def needed(program: Program, at: int, measures: Measures, stencil: Stencil, barred: Barred) -> Offer | None:
    """The copy of one input of a leaf block with which most indexes of the stencil fit; the smallest of
    several. None if it is `barred`."""
    found: list[tuple[int, int, Offer]] = []
    for path, parents, views in levels(program.root, (at,)):
        block, parent = at_path(program.root, path), parents[-1]
        if block.children or any(isinstance(s, Special) for s in block.statements):
            continue
        (leaf,) = (found_leaf for found_leaf in leaves(block, views) if found_leaf.block is block)
        reached = reach(matches(stencil, leaf).fits)
        room = _Room(len(path) - 1, (), (parent,), block, views, 1, False)
        for view in copied(parent, block):
            for layout in layouts(parent, block, view, views):
                packed = pack(parent, block, view, layout, Names(views), exact=False)
                operands = tuple(
                    replace(o, strides=packed.buffer.strides or (), access=o.access)
                    if o.name == view.name and not layout.panels
                    else o
                    for o in leaf.operands
                )
                more = reach(matches(stencil, replace(leaf, operands=operands)).fits)
                if more > reached:
                    hw, tiled = measures.hw, measures.settled(block)
                    weighed = _saved(view.name, layout, room, hw, tiled)
                    assert weighed is not None
                    saved, made, inside = weighed
                    number, copy = block.refinements.index(view), _making(made, inside, room, hw)
                    offer = Offer(path, number, view, layout, room.depth, (), saved, copy)
                    found.append((-more, prod(packed.buffer.shape), offer))
    found.sort(key=lambda entry: entry[:2])
    return found[0][2] if found and found[0][2].place not in barred.places else None
