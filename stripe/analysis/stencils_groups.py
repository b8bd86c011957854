"""Stencils that are one instruction: products of groups of neighbours, summed in each lane.

    acc[j] += x[p] * y[p, j]      j runs along the lanes, p through a group, whose size is fixed

Of an operand, the elements of a group lie one after the other; of one that differs from lane to
lane, so do the groups of the lanes. What does not differ is the same word for all lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from hwconfigs.expressions import body_operands, parse_body
from hwconfigs.model import HwConfig, SizeRange, Stencil
from stripe.analysis.bounds import Leaf
from stripe.analysis.stencils import Fit, matches


@dataclass(frozen=True, slots=True)
class Summing:
    """A stencil that is such an instruction, with the names of its indexes and the size of a group.

    `operands` are those that it multiplies, in the order of its body.
    """

    stencil: Stencil
    lane: str
    group: str
    size: int
    target: str
    operands: tuple[str, ...]

    def loose(self) -> Stencil:
        """The stencil without its strides: what fits it once the operands are laid out for it."""
        return msgspec.structs.replace(self.stencil, stride={})


def summing(stencil: Stencil) -> Summing | None:
    """The stencil as an instruction that sums groups; None if it is none."""
    if not stencil.intrinsic or len(stencil.indices) != 2:
        return None
    body = parse_body(stencil.body)
    kept = stencil.operands[body.target]
    lanes = [
        n for n, rule in stencil.indices.items() if isinstance(rule, SizeRange) and rule.multiple == "lanes"
    ]
    groups = [n for n, rule in stencil.indices.items() if isinstance(rule, int) and n not in kept]
    if len(lanes) != 1 or len(groups) != 1 or lanes[0] not in kept:
        return None
    made = Summing(
        stencil, lanes[0], groups[0], int(str(stencil.indices[groups[0]])), body.target,
        body_operands(body.value),
    )  # fmt: skip
    return made if len(set(made.operands)) == len(made.operands) and _laid_out(made) else None


def _laid_out(made: Summing) -> bool:
    stride, operands = made.stencil.stride, made.stencil.operands
    if stride.get(made.target, {}).get(made.lane) != 1:
        return False
    for name in made.operands:
        steps = stride.get(name, {})
        if made.group not in operands[name] or steps.get(made.group) != 1:
            return False
        if made.lane in operands[name] and steps.get(made.lane) != made.size:
            return False
    return True


def instructions(hw: HwConfig) -> tuple[Summing, ...]:
    """The target's stencils that are such instructions, in order."""
    if hw.executor != "cpu":
        return ()
    found = (summing(stencil) for stencil in hw.stencils)
    return tuple(made for made in found if made is not None)


def use_of(known: Iterable[Summing], leaf: Leaf, lane: str, group: str) -> tuple[Summing, Fit] | None:
    """The first instruction that a leaf is uses of, with `lane` along its lanes and `group` as its group."""
    if any(group in expr.names for expr in leaf.constraints):
        return None
    for made in known:
        if leaf.ranges[group] != made.size:
            continue
        for fit in matches(made.stencil, leaf).fits:
            if fit.indexes == {made.lane: lane, made.group: group}:
                return made, fit
    return None


def lane_operands(made: Summing) -> Mapping[str, bool]:
    """For each operand that is multiplied, in order, whether it differs from lane to lane."""
    return {name: made.lane in made.stencil.operands[name] for name in made.operands}
