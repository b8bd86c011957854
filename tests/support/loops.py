"""Loops in the assembly of modules, for tests of what they hold."""

from __future__ import annotations

import re

from codegen_cpu.build import Module


def loops(assembly: str) -> list[list[str]]:
    """The innermost loops: the instructions from a label to a branch back to it."""
    lines = [line.split("#")[0].strip() for line in assembly.splitlines()]
    found = []
    for number, line in enumerate(lines):
        target = re.match(r"(?:j\w+|b\.\w+|cbnz\s+\w+,)\s+(\.?L\w+)$", line)
        if target is None:
            continue
        start = next((at for at in range(number, -1, -1) if lines[at] == f"{target[1]}:"), None)
        if start is not None:
            body = lines[start + 1 : number + 1]
            if not any(inner.endswith(":") for inner in body):
                found.append([i for i in body if i and not i.startswith(".")])
    return found


def hot_loop(module: Module, instruction: str) -> list[str]:
    """The innermost loop that has most of one instruction."""
    return max(loops(module.asm), key=lambda body: sum(instruction in line for line in body))
