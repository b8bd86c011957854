"""The part of stencil-pack that moves what depends on constants alone into the load-time program."""

from __future__ import annotations

from dataclasses import replace

from stripe.affine import Affine
from stripe.ir import Aggregation, Block, Direction, Program, Refinement, Statement
from stripe.visit import buffers_used


def made_at_load_time(program: Program, buffers: frozenset[str]) -> Program:
    """The program with those of the root's new `buffers` made at load time that follow from `const`
    inputs alone; what only the load-time program uses of them lives there."""
    root = program.root
    movable = follows(root, buffers)
    if not movable:
        return program
    moved = tuple(s for s in root.statements if _writes(s) & movable)
    left = tuple(s for s in root.statements if not _writes(s) & movable)
    handed = {name for s in left for name, _ in buffers_used(s)} & movable
    load = program.load or Block("pack")
    known = {r.name for r in load.refinements}
    wanted = {name for s in moved for name in _reads(s)} - movable - known
    inputs = [replace(root.refinement(name), const=False) for name in sorted(wanted)]
    own, outputs, given = [], [], []
    for ref in root.refinements:
        if ref.name in handed:
            view = replace(ref, source=ref.name, access=(Affine(),) * len(ref.shape))
            given.append(replace(view, direction=Direction.IN))
            outputs.append(replace(view, direction=Direction.OUT, aggregation=Aggregation.ASSIGN))
        elif ref.name in movable:
            own.append(ref)
    load = replace(
        load,
        refinements=(*inputs, *load.refinements, *outputs, *own),
        statements=(*load.statements, *moved),
    )
    kept = [r for r in root.refinements if r.name not in movable]
    first: list[Refinement] = [r for r in kept if r.direction is Direction.IN]
    rest = [r for r in kept if r.direction is not Direction.IN]
    root = replace(root, refinements=(*first, *given, *rest), statements=left)
    return replace(program, root=root, load=load)


def follows(root: Block, buffers: frozenset[str], alone: bool = True) -> frozenset[str]:
    """The most of the buffers that are written by blocks which read constants, or such buffers (`alone`:
    that nothing else reads), and write nothing else."""
    constants = frozenset(r.name for r in root.refinements if r.const)
    found = buffers
    while found:
        makers = [s for s in root.statements if _writes(s) & found]
        spoilt = {
            name for s in makers if not (_writes(s) <= found and _reads(s) <= found | constants)
            for name in _writes(s)
        }  # fmt: skip
        if alone:
            within = {name for s in makers for name in _reads(s)} & found
            others = {name for s in root.statements if s not in makers for name, _ in buffers_used(s)}
            spoilt |= within & others
        if not spoilt & found:
            break
        found -= spoilt
    return found


def _writes(statement: Statement) -> frozenset[str]:
    return frozenset(name for name, how in buffers_used(statement) if how.writes)


def _reads(statement: Statement) -> frozenset[str]:
    return frozenset(name for name, how in buffers_used(statement) if how.reads)
