"""Whether a CPU has what code was compiled for, asked by the code itself: for files that other programs use.

In this process `codegen_cpu.host` asks before anything runs. A library may be loaded anywhere, and the first
instruction that a CPU lacks ends the program. So its functions ask the CPU once, by `cpuid`, and the system
by `xgetbv` whether it keeps the wide registers (Intel 64 and IA-32 Architectures Software Developer's Manual,
volume 1, sections 14.3 and 15.2 to 15.4; AMD64 Architecture Programmer's Manual, volume 3, appendix E).
Nothing is asked on other architectures than x86, nor by code that is made on one: llvmlite assembles such
instructions for its own machine alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from codegen_cpu.ll import Module as Text
from codegen_cpu.llvm import architecture
from codegen_cpu.target import process_triple

LACKING = 2  # what functions return on a CPU that lacks something

# What they are made of themselves: any x86-64 CPU has that.
PLAIN = '"target-cpu"="x86-64" "target-features"="" '

_EAX, _EBX, _ECX, _EDX = range(4)
_EXTENDED = 0x80000000

# LLVM's names of features: the leaf and subleaf of cpuid that tells of each, the register and its bit.
FEATURES: Mapping[str, tuple[int, int, int, int]] = {
    "sse3": (1, 0, _ECX, 0), "pclmul": (1, 0, _ECX, 1), "ssse3": (1, 0, _ECX, 9), "fma": (1, 0, _ECX, 12),
    "sse4.1": (1, 0, _ECX, 19), "sse4.2": (1, 0, _ECX, 20), "movbe": (1, 0, _ECX, 22),
    "popcnt": (1, 0, _ECX, 23), "aes": (1, 0, _ECX, 25), "avx": (1, 0, _ECX, 28), "f16c": (1, 0, _ECX, 29),
    "bmi": (7, 0, _EBX, 3), "avx2": (7, 0, _EBX, 5), "bmi2": (7, 0, _EBX, 8), "avx512f": (7, 0, _EBX, 16),
    "avx512dq": (7, 0, _EBX, 17), "adx": (7, 0, _EBX, 19), "avx512ifma": (7, 0, _EBX, 21),
    "avx512cd": (7, 0, _EBX, 28), "avx512bw": (7, 0, _EBX, 30), "avx512vl": (7, 0, _EBX, 31),
    "avx512vbmi": (7, 0, _ECX, 1), "avx512vbmi2": (7, 0, _ECX, 6), "gfni": (7, 0, _ECX, 8),
    "vaes": (7, 0, _ECX, 9), "vpclmulqdq": (7, 0, _ECX, 10), "avx512vnni": (7, 0, _ECX, 11),
    "avx512bitalg": (7, 0, _ECX, 12), "avx512vpopcntdq": (7, 0, _ECX, 14), "amx-bf16": (7, 0, _EDX, 22),
    "avx512fp16": (7, 0, _EDX, 23), "amx-tile": (7, 0, _EDX, 24), "amx-int8": (7, 0, _EDX, 25),
    "avxvnni": (7, 1, _EAX, 4), "avx512bf16": (7, 1, _EAX, 5), "avxifma": (7, 1, _EAX, 23),
    "lzcnt": (_EXTENDED + 1, 0, _ECX, 5), "sse4a": (_EXTENDED + 1, 0, _ECX, 6),
}  # fmt: skip

_OS_KEEPS = (1, 0, _ECX, 27)  # whether xgetbv says which registers the system keeps
# The bits for registers that features need, by how their names begin.
_KEPT = {"avx512": 0xE6, "avx": 0x6, "fma": 0x6, "f16c": 0x6, "vaes": 0x6, "vpclmul": 0x6, "amx": 0x60000}
_NAME = "stripec_required"


def asked(triple: str, features: Iterable[str]) -> list[str]:
    """Those of the features for which a CPU is asked by code of a target."""
    here = {architecture(triple), architecture(process_triple())} == {"x86_64"}
    return sorted(FEATURES.keys() & set(features)) if here else []


def asks(text: Text, features: Iterable[str]) -> str:
    """The name of a function `i32 ()` of the module, which gives `LACKING` on a CPU without one of these
    features, all of which can be `asked` for."""
    text.helper(_NAME, _function(features))
    return _NAME


def _function(features: Iterable[str]) -> str:
    """It asks once, and remembers the answer: 1, or LACKING."""
    masks: dict[tuple[int, int], list[int]] = {}
    state = 0
    for feature in features:
        leaf, subleaf, register, bit = FEATURES[feature]
        masks.setdefault((leaf, subleaf), [0] * 4)[register] |= 1 << bit
        state |= next((bits for begin, bits in _KEPT.items() if feature.startswith(begin)), 0)
    if state:
        leaf, subleaf, register, bit = _OS_KEEPS
        masks.setdefault((leaf, subleaf), [0] * 4)[register] |= 1 << bit
    lines = [
        f"@{_NAME}.known = internal global i32 0",
        f"define internal i32 @{_NAME}() noinline nounwind {PLAIN}{{",
        "entry:",
        f"  %before = load atomic i32, ptr @{_NAME}.known monotonic, align 4",
        "  %new = icmp eq i32 %before, 0",
        "  br i1 %new, label %ask, label %told",
        "told:",
        "  ret i32 %before",
        "ask:",
        *_cpuid("basic", 0, 0),
        *_cpuid("extended", _EXTENDED, 0),
        "  %all.0 = icmp eq i32 0, 0",
    ]
    count = 0
    for number, ((leaf, subleaf), wanted) in enumerate(masks.items()):
        most = "extended" if leaf >= _EXTENDED else "basic"
        lines += _cpuid(f"leaf{number}", leaf, subleaf)
        tests = [f"icmp uge i32 %{most}.{_EAX}, {leaf}"]
        for register in (r for r in range(4) if wanted[r]):
            lines.append(f"  %has{number}.{register} = and i32 %leaf{number}.{register}, {wanted[register]}")
            tests.append(f"icmp eq i32 %has{number}.{register}, {wanted[register]}")
        for test in tests:
            lines += [f"  %t{count} = {test}", f"  %all.{count + 1} = and i1 %all.{count}, %t{count}"]
            count += 1
    lines.append(f"  br i1 %all.{count}, label %state, label %end" if state else "  br label %end")
    answer = f"  %has = phi i1 [ %all.{count}, %ask ]"
    if state:
        lines += [
            "state:",
            '  %xgetbv = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)',
            "  %kept = extractvalue { i32, i32 } %xgetbv, 0",
            f"  %asked = and i32 %kept, {state}",
            f"  %keeps = icmp eq i32 %asked, {state}",
            "  br label %end",
        ]
        answer += ", [ %keeps, %state ]"
    return "\n".join(
        [
            *lines,
            "end:",
            answer,
            f"  %found = select i1 %has, i32 1, i32 {LACKING}",
            f"  store atomic i32 %found, ptr @{_NAME}.known monotonic, align 4",
            "  ret i32 %found",
            "}",
        ]
    )


def _cpuid(name: str, leaf: int, subleaf: int) -> Iterable[str]:
    """What cpuid says, a value for each register: `name.0` to `name.3`."""
    signed = leaf - (1 << 32) if leaf >= _EXTENDED else leaf
    four, given = "{ i32, i32, i32, i32 }", "={ax},={bx},={cx},={dx},{ax},{cx}"
    yield f'  %{name} = call {four} asm sideeffect "cpuid", "{given}"(i32 {signed}, i32 {subleaf})'
    for register in range(4):
        yield f"  %{name}.{register} = extractvalue {four} %{name}, {register}"
