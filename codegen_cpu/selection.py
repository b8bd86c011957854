"""Whether LLVM can make code of an intrinsic that a config names, before it is asked to.

LLVM ends the process on an intrinsic of a target whose operands or features do not fit. So one that is not
known here is compiled ahead, alone, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

# The intrinsics of shipped configs: their types, the result's first, and the features that have them.
_WORDS, _BYTES, _PAIRS = "<16 x i32>", "<64 x i8>", "<32 x bfloat>"
_KNOWN: dict[tuple[str, tuple[str, ...]], frozenset[str]] = {
    ("llvm.x86.avx512.vpdpbusd.512", (_WORDS, _BYTES, _BYTES)): frozenset({"avx512vnni"}),
    ("llvm.x86.avx512bf16.dpbf16ps.512", ("<16 x float>", _PAIRS, _PAIRS)): frozenset({"avx512bf16"}),
}
_SECONDS = 60

# What the process does; its last word says how far it came.
_TRIAL = """
import json, sys
import llvmlite.binding as llvm
name, types, triple, cpu, features = json.load(sys.stdin)
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
head = f"declare {types[0]} @{name}({', '.join(types)})"
try:
    module = llvm.parse_assembly(head)
    module.verify()
except RuntimeError:
    sys.exit(0)
if "memory(none)" not in str(module):  # as LLVM knows of its own
    print("unknown", flush=True)
    sys.exit(0)
print("declared", flush=True)
given = ", ".join(f"{kind} %a{number}" for number, kind in enumerate(types))
body = f"define {types[0]} @f({given}) {{ %r = call {types[0]} @{name}({given}) ret {types[0]} %r }}"
module = llvm.parse_assembly(f"{head} {body}")
module.verify()
target = llvm.Target.from_triple(triple)
machine = target.create_target_machine(cpu, ",".join("+" + f for f in features), opt=2, reloc="pic")
machine.emit_object(module)
print("selected", flush=True)
"""


@cache
def intrinsic_fault(
    name: str, types: tuple[str, ...], triple: str, cpu: str, features: tuple[str, ...]
) -> str:
    """Why LLVM can make no code of an intrinsic with these operands for a machine, as a clause; empty if it
    can. It gives the first type, which is also its first operand."""
    shown = ", ".join(types)
    if not name.startswith("llvm."):
        return "which is no name of an intrinsic"
    needed = _KNOWN.get((name, types))
    if needed is not None:
        missing = sorted(needed - set(features))
        return f"which needs the feature '{missing[0]}' of 'cpu.features'" if missing else ""
    reached = _tried(name, types, triple, cpu, features)
    return {
        "selected": "",
        "": f"which does not take {shown}",
        "unknown": f"which this LLVM does not have for {shown}",
        "declared": f"of which LLVM makes no code for {shown} with the features that 'cpu.features' lists",
    }[reached]


def _tried(name: str, types: tuple[str, ...], triple: str, cpu: str, features: tuple[str, ...]) -> str:
    """How far a process of its own comes: its last word."""
    if not sys.executable:  # Python is part of another program, and nothing can be tried
        return "selected"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TRIAL],
            input=json.dumps([name, types, triple, cpu, features]),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "declared"
    except OSError:
        return "selected"
    words = [word for word in done.stdout.split() if word in ("unknown", "declared", "selected")]
    return words[-1] if words else ""
