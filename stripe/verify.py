"""The verifier: proves that a program has a meaning, and says where it has none.

`findings` lists everything that is wrong; `verify` raises it. Each rule has a stable code.
Rules up to V043 look at a block and its parent (stripe.verify_structure,
stripe.verify_specials); if they find something, the others, which reason about integer sets,
are not asked.

Names and scope
  V001  names of blocks, indexes, refinements and scalars are identifiers; those of the indexes and of
        the refinements of a block are unique in it
  V002  the source of a refinement is a buffer of the parent block
  V003  constraints, accesses, locations, index statements use indexes of their own block only
  V004  an index that is passed in is an expression of the parent's indexes only
  V005  the root has no indexes; its refinements are `in`, `out` or `new`, at access 0, under their own name
  V006  the load-time program reads `const` inputs of the root and gives further inputs of the root
Shapes and types
  V010  an access and a shape have the rank of the parent's view
  V011  ranges and sizes are at least 0 (0: empty), the range of a passed index is 1, inflight is at least 1
  V012  strides, and `spread`, are given for allocations, of the right rank, and for nothing else
  V013  a view has the element type of its source
  V014  a new buffer has no source and no access
  V015  `out` and `inout` have an aggregation that their type supports; `in` and `new` have none
  V016  `const` is for inputs of the root
Scalars and statements
  V020  a scalar is defined once, before its uses, in the same block
  V021  an intrinsic is known and takes its operands
  V022  the types of results, loads and stores are those of their operands and buffers
  V023  a constant is a value of its type
  V024  an index statement gives a number
  V030  a statement uses buffers of its block
  V033  a special is known; its operands and parameters are those that it declares
  V034  the shapes and types of a special's operands fit
  V035  a tag is known, stands where it belongs, and names what it must
The target (when one is given)
  V036  memories and units that locations name exist; the numbers of banks and units are in range
  V037  what is alive at once in a memory fits: every slot in flight, copy for a unit, and part counted
  V060  an allocation starts at an aligned address and lies inside its bank or memory
  V061  of two allocations that may be alive together, or two copies of one, no byte is shared
  V062  a unit reaches the memories in which the buffers that it touches were put, copy c instance c; of a
        memory between the farthest and its own that is asked once the buffer has an address
  V063  a unit can execute its statements: they copy, or are among its operations, or use its stencil
  V064  an allocation is in one bank or spread in equal parts over all
  V066  what the load-time program reads and makes lies where the root has it
Aggregation
  V040  what is written is `out`, `inout` or `new` in every enclosing block, up to the allocation
  V041  a buffer that a block aggregates into is not read in it
  V042  `inout` stands only below `new` and `assign`
  V043  levels that aggregate one buffer use one operation
  V044  under `assign` each element is written by one point of each execution of the block
  V045  no point reads what another point of the same execution writes
  V046  two refinements, or operands, of one buffer don't touch the same element if one writes it, save
        that a point may replace an element after the statements that read it
Contents
  V050  every executed access lies inside every view around it and inside the allocation
  V051  what is read of a new buffer, an output, or an `out` view was written before, at the same point
  V052  the outputs of the root are written whole
  V900  a question about an integer set was too hard to decide

At the end of a pipeline (stripe.verify_ready.unplaced)
  V065  for a target whose memories the program manages, every buffer has an address, every statement a unit

V044 to V052 and V060 to V062 are exact: with every constraint of the nest, they hold at each point or a
witness is shown. The exceptions, all on the safe side: gather is taken to read its whole data operand;
scatter to read and perhaps write its whole base; in V046 two refinements may not write the same element
even if their results would combine; in V060 to V062 any point in flight may have any slot, and an
allocation takes the gaps that its strides leave.

Proofs are kept, by identity of the immutable blocks: a kernel (a child of the root) that a pass
left alone is not looked at again, the effects of a shared inner block are worked out once, and of kernels
that are alike up to names one is proved.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from hwconfigs.model import HwConfig
from stripe.alike import Naming, kind
from stripe.analysis.liveness import load_time
from stripe.diag import CompileError, Diagnostic, Span, did_you_mean
from stripe.ir import Block, Location, Program, Refinement, Special
from stripe.poly import PolyhedralLimit
from stripe.remembered import RememberedOf
from stripe.verify_access import Nest, access_findings, nests
from stripe.verify_capacity import capacity_findings
from stripe.verify_effects import AlikeEffects, Effects, Obligation, element_text, point_text
from stripe.verify_load import load_findings, load_place_findings
from stripe.verify_overlap import overlap_findings
from stripe.verify_places import PlaceRules
from stripe.verify_structure import Site, sites, structure


def verify(program: Program, hw: HwConfig | None = None) -> None:
    """Raise a CompileError with everything that is wrong with the program, if anything is."""
    found = findings(program, hw)
    if found:
        raise CompileError(*found)


def findings(program: Program, hw: HwConfig | None = None) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with the program; with `hw`, also its locations and capacities."""
    found: list[Diagnostic] = []
    if program.load is not None:
        found += [*load_findings(program), *_root_findings(program.load, hw, load_time(program))]
        if hw is not None and not found:
            found += load_place_findings(program, hw)
    found += _root_findings(program.root, hw, program.root)
    return tuple(found)


_EFFECTS = RememberedOf[Block, Effects](4096)
_ALIKE = RememberedOf[Block, tuple[Effects, Naming]](4096)  # of one kernel of a kind, with its names
# Kernels, and kinds of them, and where they were found right:
_PROVED = RememberedOf[Block, frozenset[Hashable]](1024)
_PROVED_KINDS = RememberedOf[Block, frozenset[Hashable]](1024)


def _root_findings(root: Block, hw: HwConfig | None, held: Block) -> list[Diagnostic]:
    """The findings about one tree; a kernel proved before in the same surroundings is skipped. `held` is
    the root with all that lies in memory beside it.

    Rules about sets are asked of one kernel of each kind; if any is broken, of all, so that all are named.
    """
    target = None if hw is None else _target_text(hw)
    buffers = {ref.name: ref for ref in root.refinements}
    around = {id(kernel): _surroundings(root, buffers, kernel, target) for kernel in root.children}
    proved = {id(k) for k in root.children if around[id(k)] in (_PROVED.get(k) or ())}
    to_check = sites(root, skip=proved)
    found = [finding for site in to_check for finding in structure(site)]
    if hw is not None:
        found += [finding for site in to_check for finding in _location_findings(site, hw)]
    if not found:
        alike = _proved_by_kind([k for k in root.children if id(k) not in proved], around)
        found = _set_findings(sites(root, skip=proved | alike) if alike else to_check, hw)
        if found and alike:
            found = _set_findings(to_check, hw)
    if not found:
        for kernel in root.children:
            if id(kernel) not in proved:
                _remember(_PROVED, kernel, around[id(kernel)])
                _remember(_PROVED_KINDS, kind(kernel).block, around[id(kernel)])
    if hw is not None and not found:
        found = _memory_findings(held, hw)
    return found


_TARGET_TEXTS = RememberedOf[HwConfig, str](16)


def _target_text(hw: HwConfig) -> str:
    """What the rules ask of a target, as a text: its hash is kept."""
    return _TARGET_TEXTS.get(hw) or _TARGET_TEXTS.put(hw, repr((hw.memories, hw.units, hw.stencils)))


def _remember(proved: RememberedOf[Block, frozenset[Hashable]], block: Block, around: Hashable) -> None:
    proved.put(block, (proved.get(block) or frozenset()) | {around})


def _proved_by_kind(kernels: Iterable[Block], around: Mapping[int, Hashable]) -> set[int]:
    """The ids of those kernels that are like one that was proved, or that is before them in the list."""
    seen: set[tuple[int, Hashable]] = set()
    found: set[int] = set()
    for kernel in kernels:
        own = kind(kernel).block
        key = id(own), around[id(kernel)]
        if key in seen or around[id(kernel)] in (_PROVED_KINDS.get(own) or ()):
            found.add(id(kernel))
        seen.add(key)
    return found


def _memory_findings(root: Block, hw: HwConfig) -> list[Diagnostic]:
    try:
        return capacity_findings(root, hw) + overlap_findings(root, hw)
    except PolyhedralLimit as limit:
        return list(limit.diagnostics)


def _surroundings(
    root: Block, buffers: Mapping[str, Refinement], kernel: Block, target: Hashable
) -> Hashable:
    """What the rules about a kernel and the blocks in it depend on, beside these."""
    used = tuple(
        replace(buffers[ref.source], name="", source="") if ref.source in buffers else None
        for ref in kernel.refinements
    )
    return (used, root.location, target)


# -- rules about sets --------------------------------------------------------------------------


def _set_findings(to_check: list[Site], hw: HwConfig | None) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    site = to_check[0]
    try:
        for site in reversed(to_check):  # blocks before those that they stand in
            _effects_of(site.block, at_root=site.parent is None)
        places = None if hw is None else PlaceRules(hw)
        for nest in nests(to_check):
            site = nest.site
            found += access_findings(nest)
            if places is not None:
                found += places.findings(nest)
            found += _obligation_findings(nest)
    except PolyhedralLimit as limit:
        found += [
            Diagnostic(d.code, f"block {site.path}: {d.message}", site.block.span, d.notes)
            for d in limit.diagnostics
        ]
    return found


def _kernel_effects(kernel: Block) -> Effects | AlikeEffects:
    """The effects of a kernel, or those of one that it is like."""
    known = _EFFECTS.get(kernel)
    if known is not None:
        return known
    own = kind(kernel)
    like = _ALIKE.get(own.block)
    if like is not None:
        effects, names = like
        return AlikeEffects(effects, own.names.then(names.inverse()).buffers)
    made = _effects_of(kernel)
    _ALIKE.put(own.block, (made, own.names))
    return made


def _effects_of(block: Block, *, at_root: bool = False) -> Effects:
    """The effects of a block; those of blocks inside are made first, without recursion."""
    if at_root:
        known = _EFFECTS.get(block)
        if known is None:
            known = Effects(block, {id(kernel): _kernel_effects(kernel) for kernel in block.children})
            _EFFECTS.put(block, known)
        return known
    made: dict[int, Effects] = {}
    pending = [(block, False)]
    while pending:
        current, ready = pending.pop()
        known = made.get(id(current)) or _EFFECTS.get(current)
        if known is None and not ready:
            pending.append((current, True))
            pending.extend((child, False) for child in current.children)
            continue
        if known is None:
            known = Effects(current, {id(child): made[id(child)] for child in current.children})
            _EFFECTS.put(current, known)
        made[id(current)] = known
    return made[id(block)]


def _obligation_findings(nest: Nest) -> list[Diagnostic]:
    """What is left to prove about a block, where the nest has a point that refutes it."""
    if nest.never_runs:
        return []
    effects = _effects_of(nest.site.block, at_root=nest.site.parent is None)
    owed = list(effects.obligations)
    if nest.site.parent is None:
        whole = (effects.unwritten(ref) for ref in nest.site.block.refinements if ref.direction.writes)
        owed += [obligation for obligation in whole if obligation is not None]
    findings = (_refuted(nest, obligation) for obligation in owed)
    return [finding for finding in findings if finding is not None]


def _refuted(nest: Nest, owed: Obligation) -> Diagnostic | None:
    own = {name: expr for name, expr in nest.values.items() if name in owed.violation.names}
    used = {dimension for expr in own.values() for dimension in expr.names}
    others = [name for name in owed.violation.names if name not in own]
    point = nest.witness(owed.violation.preimage(own, [*sorted(used), *others]))
    if point is None:
        return None
    message = owed.message.format(element=element_text(point), at=nest.shown(point), other=point_text(point))
    place = f"block {nest.site.path}, {owed.where}"
    return Diagnostic(owed.code, f"{place}: {message}", owed.span or nest.site.block.span, (owed.help,))


# -- the target ------------------------------------------------------------------------------------


def _location_findings(site: Site, hw: HwConfig) -> Iterator[Diagnostic]:
    """V036: the memories and units that a block names exist in the target."""
    block = site.block
    memories = [memory.name for memory in hw.memories]
    units = [unit.name for unit in hw.units]
    asked: list[tuple[str, Location | None, str, list[str], Span | None]] = [
        ("the block", block.location, "unit", units, block.span)
    ]
    asked += [
        (f"refinement '{ref.name}'", ref.location, "memory", memories, ref.span) for ref in block.refinements
    ]
    asked += [
        (f"special {s.name}", s.location, "unit", units, s.span)
        for s in block.statements
        if isinstance(s, Special)
    ]
    for where, location, what, known, span in asked:
        if location is not None and location.unit not in known:
            message = f"block {site.path}: {where} is at '{location.unit}', no {what} of {hw.name}"
            yield Diagnostic("V036", message, span or block.span, did_you_mean(location.unit, known))
