"""The blocks that a running sum in pieces becomes. See stripe.passes.prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stripe.affine import Affine
from stripe.analysis.prefix import Running
from stripe.ir import (
    Aggregation,
    Block,
    Constraint,
    Direction,
    Index,
    Intrinsic,
    Load,
    Refinement,
    Store,
)
from stripe.names import Names
from stripe.passes.rewriter import Rewriter
from stripe.visit import substitute_indexes


@dataclass(slots=True)
class Builder:
    """Makes the blocks of a sum in pieces, with names and buffers of the block that they go `into`."""

    into: Rewriter

    def in_pieces(self, running: Running, sizes: Sequence[int]) -> list[Block]:
        """A running sum in pieces of so many points, and the sums of pieces the same way."""
        if not sizes:
            return [running.block]
        made: list[Block] = []
        if any(isinstance(s, Intrinsic) for s in running.block.statements):
            terms, running = self._computed(running)
            made.append(terms)
        return [*made, *self._cut(running, sizes), *self._beyond(running)]

    def _cut(self, running: Running, sizes: Sequence[int]) -> list[Block]:
        size, block = sizes[0], running.block
        pieces = -(-running.used // size)
        part = self._buffer(running, f"{block.name}_part", pieces - 1)
        ahead = self._buffer(running, f"{block.name}_ahead", pieces - 1)
        names = Names(block.ranges)
        at = _Place(running, size, names.fresh(running.along), names.fresh(running.over))
        sums = self._sums(at, part)
        total = self._total(running, part, ahead)
        before = self.in_pieces(total, sizes[1:]) if pieces > 2 else [replace(total.block, constraints=())]
        return [sums, *before, self._within(at, pieces), self._rest(at, ahead)]

    def _buffer(self, running: Running, name: str, pieces: int) -> Refinement:
        """A buffer with an element for each piece, that lies as the result does."""
        ranges = {**running.block.ranges, running.along: pieces}
        shape = tuple(ranges[name] for name in running.places)
        return self.into.buffer(name, shape, running.result.dtype)

    def _computed(self, running: Running) -> tuple[Block, Running]:
        """The block that computes the terms, once each, and the running sum of these."""
        block, result, over = running.block, running.result, running.over
        # What no result combines may not be there.
        ahead = running.terms - running.used if running.mirrored else 0
        needed = {over: running.used + ahead}
        unused = (Constraint(Affine.index(over) - ahead),) if ahead else ()
        terms = self._buffer(running, f"{block.name}_term", running.terms)
        view = _view(terms, Direction.OUT, running, over, Aggregation.ASSIGN)
        first = replace(
            block,
            name=self.into.blocks.fresh(f"{block.name}_term"),
            indexes=_indexes(running, {running.along: {}, over: needed}),
            constraints=unused,
            refinements=tuple(replace(view, name=r.name) if r is result else r for r in block.refinements),
        )
        read = _view(terms, Direction.IN, running, over)
        second = replace(
            block,
            refinements=(read, replace(result, name=Names([read.name]).fresh(result.name))),
            statements=(),
        )
        written = second.refinements[1]
        second = replace(second, statements=(Load("v", read.name, read.dtype), Store(written.name, "v")))
        return first, replace(running, block=second, result=written)

    def _sums(self, at: _Place, part: Refinement) -> Block:
        """The sum of each piece but the last."""
        running, over = at.running, at.running.over
        pieces = part.shape[running.places.index(running.along)]
        ranges = {over: pieces, at.term: at.size}
        term = at.over(Affine.index(over), Affine.index(at.term))
        view = replace(
            _view(part, Direction.OUT, running, over, running.result.aggregation), name=running.result.name
        )
        block = substitute_indexes(replace(running.block, constraints=()), {over: term})
        return replace(
            block,
            name=self.into.blocks.fresh(f"{block.name}_parts"),
            indexes=_indexes(running, {running.along: {}, over: ranges}),
            refinements=tuple(view if r.name == view.name else r for r in block.refinements),
        )

    def _total(self, running: Running, part: Refinement, ahead: Refinement) -> Running:
        """The running sum of the sums of pieces."""
        along, over = running.along, running.over
        pieces = part.shape[running.places.index(along)]
        result = _view(ahead, Direction.OUT, running, along, running.result.aggregation)
        block = Block(
            self.into.blocks.fresh(f"{running.block.name}_ahead"),
            _indexes(running, {along: {along: pieces}, over: {over: pieces}}),
            (Constraint(Affine.index(along) - Affine.index(over)),),
            (_view(part, Direction.IN, running, over), result),
            (Load("v", part.name, part.dtype), Store(result.name, "v")),
            span=running.block.span,
        )
        return Running(block, result, along, over, 0, False)

    def _within(self, at: _Place, pieces: int) -> Block:
        """The running sum in each piece."""
        running, (along, over) = at.running, (at.running.along, at.running.over)
        piece, result, term = (Affine.index(name) for name in (along, at.result, over))
        ranges = {along: pieces, at.result: at.size}
        here, there = at.along(piece, result), at.over(piece, term)
        block = substitute_indexes(replace(running.block, constraints=()), {along: here, over: there})
        up_to = term - result if running.mirrored else result - term
        indexes = _indexes(running, {along: ranges, over: {over: at.size}})
        return replace(block, indexes=indexes, constraints=(Constraint(up_to), *at.limits(here, ranges)))

    def _rest(self, at: _Place, ahead: Refinement) -> Block:
        """What is ahead of a piece, added to its results."""
        running, along = at.running, at.running.along
        pieces = ahead.shape[running.places.index(along)]
        ranges = {along: pieces, at.result: at.size}
        here = at.along(Affine.index(along) + 1, Affine.index(at.result))
        access = tuple(expr.substitute({along: here}) for expr in running.result.access)
        written = Names([ahead.name]).fresh(running.result.name)
        return Block(
            self.into.blocks.fresh(f"{running.block.name}_rest"),
            _indexes(running, {along: ranges, running.over: {}}),
            at.limits(here, ranges),
            (
                _view(ahead, Direction.IN, running, along),
                replace(running.result, name=written, direction=Direction.INOUT, access=access),
            ),
            (Load("v", ahead.name, ahead.dtype), Store(written, "v")),
            span=running.block.span,
        )

    def _beyond(self, running: Running) -> list[Block]:
        """Results behind the last term are all the same."""
        along, result, count = running.along, running.result, running.results
        last = running.terms + running.shift - 1
        more = count - 1 - last
        if more <= 0:
            return []
        here = Affine.index(along) + last + 1
        places = [Affine.of({}, last), here]
        if running.mirrored:
            places = [-expr + (count - 1) for expr in places]
        read, written = (
            replace(
                result, name=name, direction=direction, aggregation=how,
                access=tuple(expr.substitute({along: place}) for expr in result.access),
            )
            for name, direction, how, place in (
                (result.name, Direction.IN, None, places[0]),
                (Names([result.name]).fresh(result.name), Direction.OUT, Aggregation.ASSIGN, places[1]),
            )
        )  # fmt: skip
        block = Block(
            self.into.blocks.fresh(f"{running.block.name}_beyond"),
            _indexes(running, {along: {along: more}, running.over: {}}),
            (),
            (read, written),
            (Load("v", read.name, read.dtype), Store(written.name, "v")),
            span=running.block.span,
        )
        return [block]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the points of pieces of a running sum lie: `result` and `term` count those in a piece."""

    running: Running
    size: int
    result: str
    term: str

    def along(self, piece: Affine, point: Affine) -> Affine:
        return self._at(piece, point, self.running.shift, self.running.results)

    def over(self, piece: Affine, point: Affine) -> Affine:
        return self._at(piece, point, 0, self.running.terms)

    def _at(self, piece: Affine, point: Affine, first: int, count: int) -> Affine:
        """Pieces are counted from the end of what is mirrored; their points never, so that they lie side by
        side in ascending order."""
        if self.running.mirrored:
            return piece * -self.size + point + (count - first - self.size)
        return piece * self.size + point + first

    def limits(self, along: Affine, ranges: Mapping[str, int]) -> tuple[Constraint, ...]:
        """That there is such a result, and a last term for it, where the ranges of indexes do not say so."""
        running = self.running
        number = -along + (running.results - 1) if running.mirrored else along
        low, high = number.bounds({name: (0, size - 1) for name, size in ranges.items()})
        last = min(running.results, running.terms + running.shift) - 1
        made = [number] if low < 0 else []
        made += [-number + last] if high > last else []
        return tuple(Constraint(expr) for expr in made)


def _view(
    buffer: Refinement, direction: Direction, running: Running, index: str, how: Aggregation | None = None
) -> Refinement:
    """The element of a buffer of pieces that an index names."""
    places = (index if name == running.along else name for name in running.places)
    ones = (1,) * len(buffer.shape)
    access = tuple(Affine.index(name) for name in places)
    return Refinement(direction, buffer.name, ones, buffer.dtype, buffer.name, access, how)


def _indexes(running: Running, split: Mapping[str, Mapping[str, int]]) -> tuple[Index, ...]:
    """The indexes of a running sum with others in the place of some."""
    return tuple(
        made
        for index in running.block.indexes
        for made in (
            [Index(name, size) for name, size in split[index.name].items()]
            if index.name in split
            else [index]
        )
    )
