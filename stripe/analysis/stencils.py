"""Which blocks are uses of a target's stencils, and how: by structure, never by tag.

A stencil (hwconfigs.model.Stencil) is what an instruction or an array does in one go. A leaf fits if

    body       it stores, under the stencil's aggregation or once, the stencil's expression over what it
               loads, up to the order of operands that commute; operands are converted to the type of
               the result first, nothing is rounded in between
    types      each operand has the stencil's element type
    indexes    each index of the stencil is an index of the leaf, or nothing (size 1): the operands
               whose place depends on it are those that the stencil names for it
    strides    along an index, an operand moves by the step in memory that the stencil asks for
    result     two positions of the result are two elements
    edges      a constraint masks a use: one operand has all indexes of the use that it mentions

One use has a legal size along each index. A smaller one is a padded use: it takes as long, and
computes less. Sizes count registers as padded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations, product

from hwconfigs.expressions import Apply, Body, body_operands, evaluate_sizes, parse_body
from hwconfigs.model import HwConfig, SizeRange, Stencil
from stripe.analysis.bounds import Leaf, Operand, Views, leaves
from stripe.dtypes import DType
from stripe.intrinsics import INTRINSICS
from stripe.ir import Aggregation, Block, Cast, Intrinsic, Load, Scalar, Special, Store

MAX_FITS = 512  # maps of one stencil onto one leaf that are looked at
MAX_VALUES = 128  # of an expression that a stencil can have: its text is short


@dataclass(frozen=True, slots=True)
class Fit:
    """One way in which the points of a leaf are uses of a stencil.

    `buffers` gives for each operand of the stencil the buffer of the leaf block, `operands` that
    buffer with its place over the indexes of the nest. `indexes` maps indexes of the stencil to
    those of the nest; one that is missing has size 1. The operands in `offset` hold the stencil's type
    once they are shifted to the other signedness.
    """

    stencil: Stencil
    buffers: Mapping[str, str]
    operands: Mapping[str, Operand]
    indexes: Mapping[str, str]
    offset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Matches:
    """All fits of a stencil on a leaf; of the attempts that failed, the reason of the one that came
    farthest, and how far that was: a number to compare with those of other stencils."""

    fits: tuple[Fit, ...]
    reason: str
    reached: int


# How far an attempt came.
_NOTHING, _AGGREGATION, _BODY, _TYPES, _INDEXES, _STRIDES, _SHAPE, _SIZES = range(8)


@dataclass(slots=True)
class _Reasons:
    """Keeps the reason of the attempt that came farthest."""

    step: int
    text: str

    def say(self, step: int, text: str) -> None:
        if step > self.step:
            self.step, self.text = step, text


# -------------------------------------------------------------------------------- questions


def uses(stencil: Stencil, block: Block, hw: HwConfig, views: Views) -> str:
    """Why a block is not one use of the stencil, as a clause; empty if it is one.

    The block is a leaf, or a nest of blocks of one block each; `views` are those of its parent.
    """
    nest = leaves(block, views, every_level=True)
    level = block
    while len(level.statements) == 1 and isinstance(level.statements[0], Block):
        level = level.statements[0]
    if level.children or len(nest) != 1:
        return "it is no single leaf block"
    reason = _one_use(stencil, nest[0], hw)
    joined = _joined_levels(nest[0])
    return reason if not reason or joined is nest[0] else _one_use(stencil, joined, hw)


def use_sizes(stencil: Stencil, leaf: Leaf, hw: HwConfig) -> list[dict[str, int]]:
    """The legal sizes of one use that a leaf is, for each way in which it is one."""
    found = [
        padded
        for fit in use_fits(stencil, leaf, hw)
        if not isinstance(padded := padded_sizes(stencil, _sizes_of(fit, leaf), hw), str)
    ]
    joined = _joined_levels(leaf)
    return found if found or joined is leaf else use_sizes(stencil, joined, hw)


def use_fits(stencil: Stencil, leaf: Leaf, hw: HwConfig) -> tuple[Fit, ...]:
    """The ways in which a leaf is one use, of a legal size: factors may change places, but sizes need not
    fit both ways."""
    return tuple(
        fit
        for fit in matches(stencil, leaf).fits
        if not _outside(fit, leaf) and not size_refusal(stencil, _sizes_of(fit, leaf), hw)
    )


def _sizes_of(fit: Fit, leaf: Leaf) -> dict[str, int]:
    return {name: leaf.ranges[index] for name, index in fit.indexes.items()}


def _outside(fit: Fit, leaf: Leaf) -> list[str]:
    """The indexes of a leaf that are none of the stencil's."""
    covered = set(fit.indexes.values())
    return [name for name, size in leaf.ranges.items() if size > 1 and name not in covered]


def _one_use(stencil: Stencil, leaf: Leaf, hw: HwConfig) -> str:
    found = matches(stencil, leaf)
    reasons = _Reasons(found.reached, found.reason)
    for fit in found.fits:
        if outside := _outside(fit, leaf):
            reasons.say(_INDEXES, f"its index {outside[0]} can't be one of the stencil's")
            continue
        sizes = {name: leaf.ranges[index] for name, index in fit.indexes.items()}
        if not (refusal := size_refusal(stencil, sizes, hw)):
            return ""
        reasons.say(_SIZES, refusal)
    return reasons.text


def _joined_levels(leaf: Leaf) -> Leaf:
    """The leaf with each index that an inner level counts on as one: `4*k + l`, for l < 4."""
    for outer, inner in permutations(leaf.ranges, 2):
        size = leaf.ranges[inner]
        exprs = [*leaf.constraints, *(e for o in leaf.operands for e in o.access)]
        if size > 1 and all(e.coefficient(outer) == size * e.coefficient(inner) for e in exprs):
            gone = {outer}
            ranges = {n: s * (leaf.ranges[outer] if n == inner else 1) for n, s in leaf.ranges.items()}
            del ranges[outer]
            operands = tuple(
                replace(o, access=tuple(e.without(gone) for e in o.access)) for o in leaf.operands
            )
            constraints = tuple(e.without(gone) for e in leaf.constraints)
            return _joined_levels(Leaf(leaf.block, ranges, operands, constraints))
    return leaf


def matches(stencil: Stencil, leaf: Leaf, offsets: bool = False) -> Matches:
    """Every map of the stencil's operands and indexes onto those of a leaf that fits.

    Sizes are not looked at. With `offsets`, an integer operand whose type differs from the
    stencil's by its signedness alone fits where the body is a product of it and others.
    """
    value = _value(leaf.block)
    if isinstance(value, str):
        return Matches((), value, _NOTHING)
    body = parse_body(stencil.body)
    store, tree = value
    aggregation = leaf.block.refinement(store.buffer).aggregation or Aggregation.ASSIGN
    # An element that is assigned has one write, and one write is the value under any aggregation.
    if aggregation.value not in (body.aggregation, "assign"):
        text = f"its result is aggregated by {aggregation.value}, that of the stencil by {body.aggregation}"
        return Matches((), text, _AGGREGATION)
    reasons = _Reasons(_BODY, f"it does not compute '{stencil.body}'")
    seen: dict[object, Fit] = {}
    for read in islice(_bindings(body.value, tree), MAX_FITS):
        buffers = {**{name: buffer for name, (buffer, _) in read.items()}, body.target: store.buffer}
        for fit in islice(_fits(stencil, body, leaf, buffers, offsets, reasons), MAX_FITS):
            seen.setdefault((tuple(fit.buffers.items()), tuple(fit.indexes.items())), fit)
    text = "" if seen and reasons.step == _BODY else reasons.text
    return Matches(_largest(tuple(seen.values())), text, reasons.step)


def _largest(fits: tuple[Fit, ...]) -> tuple[Fit, ...]:
    """Without those that another one, with the same operands, only adds an index to."""
    pairs = [set(fit.indexes.items()) for fit in fits]
    return tuple(
        fit
        for fit, own in zip(fits, pairs, strict=True)
        if not any(own < other and fit.buffers == f.buffers for f, other in zip(fits, pairs, strict=True))
    )


def lanes(stencil: Stencil, hw: HwConfig) -> int:
    """The elements of the result that fill a vector of the stencil's unit."""
    unit = hw.unit(stencil.unit)
    width = unit.vector_bytes if unit is not None else 1
    return max(1, width // DType(stencil.types[parse_body(stencil.body).target]).bytes)


def padded_size(stencil: Stencil, index: str, size: int, hw: HwConfig) -> int | None:
    """The least legal size of an index that holds `size` points; None if there is none."""
    rule = stencil.indices[index]
    if rule == "any":
        return size
    if isinstance(rule, int):
        return rule if size <= rule else None
    assert isinstance(rule, SizeRange)
    step = rule.multiple if isinstance(rule.multiple, int) else lanes(stencil, hw)
    legal = -(-max(size, rule.least) // step) * step
    return None if rule.most is not None and legal > rule.most else legal


def padded_sizes(stencil: Stencil, sizes: Mapping[str, int], hw: HwConfig) -> dict[str, int] | str:
    """The sizes of one use that holds `sizes` points (1 where none is given), or why there is none."""
    found = {}
    for index in stencil.indices:
        legal = padded_size(stencil, index, sizes.get(index, 1), hw)
        if legal is None:
            return f"{sizes.get(index, 1)} points along its index {index} are more than one use takes"
        found[index] = legal
    return found


def size_refusal(stencil: Stencil, sizes: Mapping[str, int], hw: HwConfig) -> str:
    """Why one use can't hold `sizes` points, as a clause; empty if it can."""
    padded = padded_sizes(stencil, sizes, hw)
    if isinstance(padded, str):
        return padded
    unit = hw.unit(stencil.unit)
    needed = registers(stencil, padded, hw)
    if unit is not None and not needed <= unit.registers:  # NaN is no number of registers
        return f"it needs {needed:g} registers, '{unit.name}' has {unit.registers}"
    return ""


def registers(stencil: Stencil, padded: Mapping[str, int], hw: HwConfig) -> float:
    """The vector registers that one use of these (legal) sizes takes."""
    values = {**padded, "lanes": lanes(stencil, hw)}
    return sum(float(evaluate_sizes(text, values)) for text in stencil.registers.values())


# ------------------------------------------------------------------------------- the body


@dataclass(frozen=True, slots=True)
class _Read:
    """A value that is loaded, and converted to the type of the result."""

    buffer: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class _Applied:
    op: str
    operands: tuple[_Applied | _Read, ...]


_Tree = _Applied | _Read


class _NoTree(Exception):
    """A leaf computes something that no body says."""


def _value(block: Block) -> tuple[Store, _Tree] | str:
    """The one store of a leaf and the expression that it stores, or why there is no such thing."""
    if any(isinstance(s, Block | Special) for s in block.statements):
        return "it is no leaf block" if block.children else "it holds a special"
    stores = [s for s in block.statements if isinstance(s, Store)]
    if len(stores) != 1 or block.statements[-1] is not stores[0]:
        return f"it has {len(stores)} stores" if len(stores) != 1 else "it goes on after its store"
    scalars = {s.result: s for s in block.statements if isinstance(s, Scalar)}
    used: list[str] = []
    dtype = block.refinement(stores[0].buffer).dtype
    try:
        tree = _tree(stores[0].value, scalars, dtype, used)
    except _NoTree as refused:
        return str(refused)
    spare = next((name for name in scalars if name not in set(used)), None)
    return (stores[0], tree) if spare is None else f"nothing uses ${spare}"


def _tree(name: str, scalars: Mapping[str, Scalar], dtype: DType, used: list[str]) -> _Tree:
    used.append(name)
    if len(used) > MAX_VALUES:
        raise _NoTree("it computes more than any stencil does")
    match scalars[name]:
        case Load(buffer=buffer, dtype=own):
            return _Read(buffer, own)
        case Intrinsic(op=op, operands=operands):
            return _Applied(op, tuple(_tree(o, scalars, dtype, used) for o in operands))
        case Cast(operand=operand, dtype=own):
            source = _tree(operand, scalars, dtype, used)
            if own is not dtype and not _holds(own, scalars[operand].dtype):
                raise _NoTree(f"${name} rounds or wraps to {own.value}")
            if not isinstance(source, _Read):
                raise _NoTree(f"${name} converts what was computed")
            return source
    raise _NoTree(f"it computes with ${name}, which is not loaded")


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of one type is a value of the other."""
    if wide.is_float and narrow.is_float:
        return wide is narrow or wide is DType.F64 or (wide is DType.F32 and narrow.bits == 16)
    if wide.is_integer and narrow.is_integer and wide.is_signed is narrow.is_signed:
        return wide.bits >= narrow.bits
    return wide.is_integer and narrow.is_integer and wide.is_signed and wide.bits > narrow.bits


def _bindings(value: Apply | str, tree: _Tree) -> Iterator[dict[str, tuple[str, DType]]]:
    """Every way to read a stencil's expression as that of a leaf: operand -> buffer and type."""
    if isinstance(value, str):
        if isinstance(tree, _Read):
            yield {value: (tree.buffer, tree.dtype)}
        return
    if isinstance(tree, _Read) or tree.op != value.op or len(tree.operands) != len(value.operands):
        return
    info = INTRINSICS.get(value.op)
    commutes = info is not None and info.commutative
    for order in permutations(tree.operands) if commutes else (tree.operands,):
        yield from _joined(value.operands, order)


def _joined(values: Sequence[Apply | str], trees: Sequence[_Tree]) -> Iterator[dict[str, tuple[str, DType]]]:
    if not values:
        yield {}
        return
    for first in _bindings(values[0], trees[0]):
        for rest in _joined(values[1:], trees[1:]):
            if all(rest.get(name, found) == found for name, found in first.items()):
                yield {**rest, **first}


# ------------------------------------------------------------------------------ the indexes


def _fits(
    stencil: Stencil, body: Body, leaf: Leaf, buffers: Mapping[str, str], offsets: bool, reasons: _Reasons
) -> Iterator[Fit]:
    """The maps of indexes for one choice of operands."""
    placed = _placed(leaf)
    operands = {name: placed[buffer, name == body.target] for name, buffer in buffers.items()}
    shifted = []
    for name, operand in operands.items():
        wanted = DType(stencil.types[name])
        if operand.dtype is wanted:
            continue
        reasons.say(
            _TYPES, f"its operand {name} is {wanted.value}, {buffers[name]} holds {operand.dtype.value}"
        )
        if not (offsets and _offset_helps(body, operands, buffers, name, wanted)):
            return
        shifted.append(name)
    candidates = {
        index: _candidates(stencil, index, leaf, operands, buffers, reasons) for index in stencil.indices
    }
    for chosen in product(*((*found, None) for found in candidates.values())):
        named = [index for index in chosen if index is not None]
        if len(set(named)) < len(named):
            continue
        indexes = {s: n for s, n in zip(candidates, chosen, strict=True) if n is not None}
        if not _separate(operands[body.target], named, leaf.ranges):
            reasons.say(_SHAPE, "several points of a use would write one element")
        elif masked := _unmaskable(leaf, operands.values(), named):
            reasons.say(_SHAPE, f"no operand has all indexes of the constraint {masked}")
        else:
            yield Fit(stencil, buffers, operands, indexes, tuple(shifted))


def _placed(leaf: Leaf) -> dict[tuple[str, bool], Operand]:
    """The operands of a leaf by the buffer in the leaf block, and whether it is stored to."""
    touched = dict.fromkeys(
        (s.buffer, isinstance(s, Store)) for s in leaf.block.statements if isinstance(s, Load | Store)
    )
    return dict(zip(touched, leaf.operands, strict=True))


def _candidates(
    stencil: Stencil,
    index: str,
    leaf: Leaf,
    operands: Mapping[str, Operand],
    buffers: Mapping[str, str],
    reasons: _Reasons,
) -> tuple[str, ...]:
    """The indexes of the leaf that an index of the stencil may be."""
    found = []
    for name, size in leaf.ranges.items():
        if size < 2:
            continue
        wrong = [o for o in operands if (name in operands[o].indexes) != (index in stencil.operands[o])]
        if wrong:
            continue
        rules = {o: strides[index] for o, strides in stencil.stride.items() if index in strides}
        off = [o for o, step in rules.items() if operands[o].stride(name) != step]
        if off:
            stride = operands[off[0]].stride(name)
            reasons.say(
                _STRIDES,
                f"the stride of operand {off[0]} ({buffers[off[0]]}) along {index} ({name}) is {stride} "
                f"and must be {rules[off[0]]}",
            )
            continue
        found.append(name)
    return tuple(found)


def _separate(result: Operand, named: Sequence[str], ranges: Mapping[str, int]) -> bool:
    """Whether each point of a use writes an element of its own, as far as the written indexes go.

    Indexes are settled one dimension after the other: where the steps of those that are left grow
    faster than what the smaller ones span, the dimension tells their values apart.
    """
    left = {n for n in named if n in result.indexes}
    while left:
        for expr in result.access:
            terms = sorted((abs(c), ranges[n], n) for n, c in expr.terms if n in left)
            span, apart = 0, bool(terms)
            for step, size, _ in terms:
                apart = apart and step > span
                span += step * (size - 1)
            if apart:
                left -= {name for *_, name in terms}
                break
        else:
            return False
    return True


def _unmaskable(leaf: Leaf, operands: Iterable[Operand], named: Sequence[str]) -> str:
    """A constraint that mentions indexes of a use which no operand has together; empty if none."""
    inside = frozenset(named)
    held = [operand.indexes for operand in operands]
    for expr in leaf.constraints:
        mentioned = inside.intersection(expr.names)
        if len(mentioned) > 1 and not any(mentioned <= indexes for indexes in held):
            return f"{expr} >= 0"
    return ""


def _offset_helps(
    body: Body, operands: Mapping[str, Operand], buffers: Mapping[str, str], name: str, wanted: DType
) -> bool:
    """Whether an operand can be had in the type of other signedness, at the price of a second sum."""
    own = operands[name].dtype
    factors = body_operands(body.value)
    return (
        own.is_integer
        and wanted.is_integer
        and own.bits == wanted.bits
        and own.is_signed is not wanted.is_signed
        and name != body.target
        and operands[body.target].dtype.is_integer
        and body.aggregation == "add"
        and factors.count(name) == 1
        and list(buffers.values()).count(buffers[name]) == 1
        and _is_product(body.value)
    )


def _is_product(value: Apply | str) -> bool:
    return isinstance(value, str) or (value.op == "mul" and all(map(_is_product, value.operands)))
