"""What reaches the first level of memory, in closed form: isl counts what a run writes down.

The elements that an access moves in a step are the distinct ones of each of its instructions; so over
the program they are the distinct triples of a step, an instruction and an element, all of which are
affine in the points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from simulator.caches_nodes import Plan, Scalars
from simulator.caches_steps import Access, Steps, moves_in_words
from simulator.work import Site
from stripe.affine import Affine
from stripe.ir import Block
from stripe.poly import nest_domain


class ClosedAccesses:
    """Counts of a plan, as `Stream` has them."""

    def __init__(self, plan: Plan) -> None:
        self.words: Counter[int] = Counter()
        self.instructions: Counter[int] = Counter()
        self.counts: Counter[tuple[Site, str, str]] = Counter()
        for nest, entry in plan.entries():
            blocks = [node.block for node in nest]
            if isinstance(entry, Scalars):
                self._scalars(entry, blocks, nest[-1].own)
                continue
            times = nest_domain(blocks).count()
            self.counts[entry.site, "vectors", entry.unit.name] += times * entry.vectors
            for part in entry.parts:
                self.words[part.tag] += times * part.words
                self.instructions[part.tag] += times * len(part.offsets)

    def _scalars(self, entry: Scalars, blocks: Sequence[Block], own: bool) -> None:
        name = entry.unit.name
        if not own:
            times = nest_domain(blocks).count()
            for what in ("points", "vectors"):
                self.counts[entry.site, what, name] += times
            for tag in entry.tags:
                self.words[tag] += times
                self.instructions[tag] += times
            return
        shape = _Shape(entry.steps, blocks)
        self.counts[entry.site, "points", name] += shape.domain.count()
        self.counts[entry.site, "vectors", name] += shape.vectors()
        for tag, access in zip(entry.tags, entry.steps.accesses, strict=True):
            instructions, words = shape.moved(access)
            self.instructions[tag] += instructions
            self.words[tag] += words


class _Shape:
    """The points of a nest whose innermost block has steps. Lanes along an index are numbered through:
    `group n` says which vector they are in, `lane n` where."""

    def __init__(self, steps: Steps, blocks: Sequence[Block]) -> None:
        self._steps = steps
        self._depth = len(blocks) - 1
        self.domain = nest_domain(blocks)
        self._split: dict[str, tuple[str, str]] = {}
        split = self.domain
        for name in dict.fromkeys(n for n in (steps.lane, steps.across) if n):
            group, lane = f"group {name}", f"lane {name}"
            self._split[name] = group, lane
            inside = Affine.index(lane)
            split = split.extended([group, lane]).with_constraints(
                [inside, -inside + (steps.width - 1)],
                [Affine.index(self._named(name)) - Affine.index(group, steps.width) - inside],
            )
        self._points = split
        over = {axis.name for axis in steps.over}
        kept = [f"{level}.{name}" for level, block in enumerate(blocks[:-1]) for name in block.ranges]
        kept += [self._named(n) for n in over - set(self._split)]
        kept += [self._split[n][0] for n in over & set(self._split)]
        self._kept = sorted(kept)
        own = set(blocks[-1].ranges)
        self._within = own - (over - set(self._split))  # what the points of a step differ in

    def _named(self, name: str) -> str:
        return f"{self._depth}.{name}"

    def vectors(self) -> int:
        """How many vectors have a point."""
        steps = self._steps
        names = list(self._kept)
        for axis in steps.within:
            if axis.name == steps.lane:
                names.append(self._split[axis.name][0])
            elif axis.name != steps.group:
                names.append(self._named(axis.name))
        return self._points.project_onto(list(dict.fromkeys(names))).count()

    def moved(self, access: Access) -> tuple[int, int]:
        """How many instructions an access is, and how many elements these move."""
        first: dict[str, Affine] = {}
        if access.vector:
            first[access.vector] = Affine.index(f"group {access.vector}", self._steps.width)
        if moves_in_words(access, self._steps.group):
            first[self._steps.group] = Affine()
        moving = [expr for expr in access.place if set(expr.names) & self._within]
        starts = [self._at(expr, first) for expr in moving]
        places = [self._at(expr, {}) for expr in moving]
        instructions = self._distinct(starts)
        return instructions, instructions if starts == places else self._distinct([*starts, *places])

    def _at(self, expr: Affine, values: Mapping[str, Affine]) -> Affine:
        named = {name: values.get(name, Affine.index(self._named(name))) for name in expr.names}
        return expr.substitute(named)

    def _distinct(self, values: Sequence[Affine]) -> int:
        values = list(dict.fromkeys(values))
        if not values:
            return self._points.project_onto(self._kept).count()
        kept = [Affine.index(name) for name in self._kept]
        names = [*self._kept, *(f"place {at}" for at in range(len(values)))]
        return self._points.image([*kept, *values], names).count()
