"""What the values of a target say together: names are known, nothing backs itself, sizes divide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf, lcm
from pathlib import Path
from typing import Any, TypeAlias, get_args

from hwconfigs.expressions import ExpressionError, body_operands, evaluate_size, parse_body, size_names
from hwconfigs.faults import did_you_mean
from hwconfigs.model import (
    CAPABILITIES,
    LEAST_CPU_LINE_BYTES,
    MAX_CPU_VECTOR_BYTES,
    ConfigError,
    ElementType,
    HwConfig,
    Memory,
    SizeRange,
    Stencil,
    Unit,
)

Fault: TypeAlias = tuple[str, str, tuple[str, ...]]  # JSON path below the part, message, notes

LEAST_RATE = 1e-6  # per cycle; times are exact in a double for rates from here on
_RATES = ("bytes_per_cycle", "fma_per_cycle", "loads_per_cycle", "stores_per_cycle")
_TYPES: tuple[str, ...] = get_args(ElementType)
# The intrinsics of LLVM that are instructions of one architecture; others it can make of what there is.
_ARCHITECTURES = re.compile(r"llvm\.(x86|aarch64|arm|riscv|ppc|s390|wasm|loongarch|mips|hexagon|ve)\.")


def cross_check(config: HwConfig, file: Path, own: dict[str, Any]) -> None:
    """Raises ConfigError for the first fault.

    A path counts as `own`, the JSON of the file, does; parts that it inherits are counted as merged.
    """

    def at(key: str, name: str) -> str:
        merged = [part.name for part in getattr(config, key)]
        written = [part["name"] for part in own.get(key, ())]
        return f"$.{key}[{(written if name in written else merged).index(name)}]"

    memories, units, stencils = config.memories, config.units, config.stencils
    found: list[tuple[str, Iterator[Fault]]] = [
        *((at("memories", memory.name), _rate_faults(memory)) for memory in memories),
        *((at("units", unit.name), _rate_faults(unit)) for unit in units),
        *((at("memories", memory.name), _memory_faults(memory, config)) for memory in memories),
        *((at("memories", memory.name), _ring_faults(memory, config)) for memory in memories),
        *((at("units", unit.name), _unit_faults(unit, config)) for unit in units),
        *((at("stencils", stencil.name), _stencil_faults(stencil, config)) for stencil in stencils),
    ]
    if config.executor == "cpu":
        found.append(("$", _cpu_faults(config)))
        found += ((at("units", unit.name), _vector_faults(unit)) for unit in units)
        found += ((at("memories", memory.name), _line_faults(memory)) for memory in config.caches)
    for place, faults in found:
        for path, message, notes in faults:
            raise ConfigError(message, code="H005", file=str(file), path=f"{place}{path}", notes=notes)


def _rate_faults(part: Memory | Unit) -> Iterator[Fault]:
    for name in _RATES:
        rate = getattr(part, name, None)
        if rate is not None and rate < LEAST_RATE:
            yield f".{name}", f"expected a number of {LEAST_RATE:g} or more, found {rate:g}", ()


def _memory_faults(memory: Memory, config: HwConfig) -> Iterator[Fault]:
    names = [other.name for other in config.memories]
    if memory.backing is not None and memory.backing not in names:
        yield ".backing", f"no memory is named '{memory.backing}'", did_you_mean(memory.backing, names)
    if memory.bytes is None:
        return
    if left := memory.bytes % memory.line_bytes:
        message = (
            f"the {memory.bytes} bytes of '{memory.name}' are no whole number of lines "
            f"of {memory.line_bytes}: {left} left over"
        )
        default = f"note: the key 'line_bytes' is {Memory('', 'cached').line_bytes} where it is left out"
        yield ".bytes", message, (default, _nearest(memory))
    if memory.bytes < (memory.ways or 0) * memory.line_bytes:
        message = (
            f"the {memory.bytes} bytes of '{memory.name}' are less than one line for "
            f"each of its {memory.ways} ways"
        )
        yield ".ways", message, ()
    if left := memory.bytes % (memory.banks * memory.align_bytes):
        align = memory.align_bytes
        message = (
            f"the {memory.bytes} bytes of '{memory.name}' do not divide into {memory.banks} banks"
            f"{f' of a multiple of {align} bytes each' if align > 1 else ''}: {left} left over"
        )
        yield ".banks", message, (_nearest(memory),)


def _ring_faults(memory: Memory, config: HwConfig) -> Iterator[Fault]:
    """Whether a memory is behind itself. Of a ring, the last in the file has the fault: as a rule it should
    have no memory behind it."""
    chain = [memory.name]
    while (farther := _memory(config, chain[-1]).backing) is not None and farther not in chain:
        chain.append(farther)
    names = [other.name for other in config.memories]
    if farther == memory.name == max(chain, key=names.index):
        message = f"memories back each other: {' -> '.join([*chain, farther])}"
        yield ".backing", message, ("help: the memory behind all others has no 'backing'",)


def _unit_faults(unit: Unit, config: HwConfig) -> Iterator[Fault]:
    memories = [memory.name for memory in config.memories]
    for place, name in enumerate(unit.reaches):
        if name not in memories:
            yield f".reaches[{place}]", f"no memory is named '{name}'", did_you_mean(name, memories)
            continue
        instances = _memory(config, name).count
        if 1 < unit.count != instances > 1:
            message = (
                f"'{unit.name}' has {unit.count} copies and '{name}' {instances} instances; "
                "copy number c reaches instance c alone"
            )
            yield f".reaches[{place}]", message, ("help: give both the same 'count', or one of them 1",)
    for place, name in enumerate(unit.types):
        if name not in (*_TYPES, "*"):
            yield f".types[{place}]", f"no element type is named '{name}'", did_you_mean(name, _TYPES)
    for place, name in enumerate(unit.capabilities):
        if name not in CAPABILITIES:
            known = did_you_mean(name, CAPABILITIES)
            yield f".capabilities[{place}]", f"no capability is named '{name}'", known


def _cpu_faults(config: HwConfig) -> Iterator[Fault]:
    if config.cpu is None or not config.units:
        lacks = "cpu" if config.cpu is None else "units"
        message = "a target that a CPU executes needs the keys 'cpu' and 'units'"
        yield "", message, (f"missing: {lacks}",)


def _vector_faults(unit: Unit) -> Iterator[Fault]:
    size = unit.vector_bytes
    if size & (size - 1) or size > MAX_CPU_VECTOR_BYTES:
        message = (
            f"vectors of native code have a power of two of bytes, at most {MAX_CPU_VECTOR_BYTES}, "
            f"found {size}"
        )
        yield ".vector_bytes", message, ()


def _line_faults(cache: Memory) -> Iterator[Fault]:
    size = cache.line_bytes
    if size & (size - 1) or size < LEAST_CPU_LINE_BYTES:
        message = (
            f"lines of the caches of a CPU have a power of two of bytes, {LEAST_CPU_LINE_BYTES} or more, "
            f"found {size}"
        )
        yield ".line_bytes", message, ()


def _stencil_faults(stencil: Stencil, config: HwConfig) -> Iterator[Fault]:
    units = [unit.name for unit in config.units]
    if stencil.unit not in units:
        yield ".unit", f"no unit is named '{stencil.unit}'", did_you_mean(stencil.unit, units)
    try:
        body = parse_body(stencil.body)
    except ExpressionError as error:
        yield ".body", str(error), ()
        return
    yield from _operand_faults(stencil, {body.target, *body_operands(body.value)})
    yield from _index_faults(stencil)
    yield from _place_faults(stencil, config)
    yield from _expression_faults(stencil, config, body.target)
    yield from _instruction_faults(stencil, config)
    yield from _inner_faults(stencil, config)


def _operand_faults(stencil: Stencil, named: set[str]) -> Iterator[Fault]:
    """`named` are the operands that the body names."""
    for name in sorted(named - stencil.operands.keys()):
        yield ".operands", f"the operand '{name}' of the body is missing", ()
    for name in sorted(stencil.operands.keys() - named):
        yield f".operands.{name}", f"the body does not use '{name}'", ()
    for key in ("types", "stride", "memory", "registers", "loads"):
        for name in getattr(stencil, key):
            if name not in stencil.operands:
                yield f".{key}.{name}", f"no operand is named '{name}'", did_you_mean(name, stencil.operands)
    for name in sorted(stencil.operands.keys() - stencil.types.keys()):
        yield ".types", f"the element type of '{name}' is missing", ()


def _index_faults(stencil: Stencil) -> Iterator[Fault]:
    uses = [(f".operands.{o}", i) for o, indexes in stencil.operands.items() for i in indexes]
    uses += [(f".stride.{o}", i) for o, strides in stencil.stride.items() for i in strides]
    for path, name in uses:
        if name not in stencil.indices:
            yield path, f"no index is named '{name}'", did_you_mean(name, stencil.indices)
    for name, rule in stencil.indices.items():
        if isinstance(rule, SizeRange) and rule.most is not None:
            step = rule.multiple if isinstance(rule.multiple, int) else 1
            if -(-rule.least // step) * step > rule.most:
                text = f"no multiple of {rule.multiple} lies between {rule.least} and {rule.most}"
                yield f".indices.{name}", text, ()


def _place_faults(stencil: Stencil, config: HwConfig) -> Iterator[Fault]:
    memories = [memory.name for memory in config.memories]
    for operand, name in stencil.memory.items():
        if name not in memories:
            yield f".memory.{operand}", f"no memory is named '{name}'", did_you_mean(name, memories)
        elif (unit := config.unit(stencil.unit)) is not None and name not in unit.reaches:
            others = f"it reaches {', '.join(unit.reaches) or 'no memory'}"
            note = f"help: add '{name}' to the 'reaches' of '{unit.name}', or name another memory"
            yield f".memory.{operand}", f"the unit '{unit.name}' does not reach '{name}': {others}", (note,)


def _expression_faults(stencil: Stencil, config: HwConfig, result: str) -> Iterator[Fault]:
    """`result` is the operand that the body adds to."""
    unit = config.unit(stencil.unit)
    sizes = [
        (f".{key}.{operand}", text)
        for key in ("registers", "loads")
        for operand, text in getattr(stencil, key).items()
    ]
    for path, text in [*sizes, *([(".cycles", stencil.cycles)] if stencil.cycles else [])]:
        try:
            unknown = sorted(size_names(text) - stencil.indices.keys() - {"lanes"})
        except ExpressionError as error:
            yield path, str(error), ()
            continue
        if unknown:
            yield path, f"no index is named '{unknown[0]}'", did_you_mean(unknown[0], stencil.indices)
        elif unit is not None and result in stencil.types:
            wrong = _value_fault(text, _least_sizes(stencil, unit, result))
            if wrong:
                yield path, wrong, ()


def _instruction_faults(stencil: Stencil, config: HwConfig) -> Iterator[Fault]:
    if _ARCHITECTURES.match(stencil.intrinsic) and not stencil.features:
        note = "help: name those of 'cpu.features' that have the instruction in the key 'features'"
        yield ".intrinsic", f"'{stencil.intrinsic}' is an instruction that not every CPU has", (note,)
    for place, feature in enumerate(stencil.features):
        if config.cpu is None or feature not in config.cpu.features:
            note = "help: list it in 'cpu.features' too, or leave the stencil out"
            yield f".features[{place}]", f"the CPU has no feature '{feature}'", (note,)


def _inner_faults(stencil: Stencil, config: HwConfig) -> Iterator[Fault]:
    stencils = {s.name: s for s in config.stencils}
    if stencil.inner and stencil.inner not in stencils:
        known = did_you_mean(stencil.inner, stencils)
        yield ".inner", f"no stencil is named '{stencil.inner}'", known
    chain = [stencil.name]
    while (inner := stencils[chain[-1]].inner) in stencils:
        chain.append(inner)
        if inner in chain[:-1]:
            yield ".inner", f"stencils hold each other: {' -> '.join(chain)}", ()
            return


def _least_sizes(stencil: Stencil, unit: Unit, result: str) -> dict[str, int]:
    """The sizes of the smallest use of a stencil, and `lanes`."""
    bits = re.sub(r"\D", "", stencil.types[result])
    lanes = max(1, unit.vector_bytes // (int(bits or 8) // 8))
    sizes = {"lanes": lanes}
    for name, rule in stencil.indices.items():
        if isinstance(rule, SizeRange):
            step = lanes if rule.multiple == "lanes" else rule.multiple
            sizes[name] = -(-rule.least // step) * step
        else:
            sizes[name] = 1 if rule == "any" else rule
    return sizes


def _value_fault(text: str, sizes: dict[str, int]) -> str:
    """Why an expression is no count of cycles or registers at these sizes; empty if it is one."""
    at = ", ".join(f"{name} = {sizes[name]}" for name in sorted(size_names(text)))
    where = f" at {at}" if at else ""
    try:
        value = evaluate_size(text, sizes)
    except ExpressionError as error:
        return f"{error}{where}"
    if not (0 <= value < inf):
        return f"'{text}' is {value:.6g}{where}; expected 0 or more"
    return ""


def _nearest(memory: Memory) -> str:
    """Sizes near that of a memory that are whole lines, in equal banks."""
    assert memory.bytes is not None
    step = lcm(memory.line_bytes, memory.banks * memory.align_bytes)
    least = memory.bytes - memory.bytes % step
    return f"help: {f'{least} or ' if least else ''}{least + step} bytes divide"


def _memory(config: HwConfig, name: str) -> Memory:
    found = config.memory(name)
    assert found is not None  # checked by the caller
    return found
