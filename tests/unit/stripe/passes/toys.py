"""Small passes that break or keep the contract, for the tests of registry and pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Diagnostic
from stripe.ir import Block, Direction, Program
from stripe.passes.base import Pass, PassContext, option
from stripe.visit import map_program


@dataclass(frozen=True)
class Toy(Pass):
    """Do nothing, with many options.

    before:  anything
    after:   the same
    """

    name: ClassVar[str] = "toy"

    count: int = option(1, "how many", unit="points", least=0, most=99)
    share: float = option(0.5, "how much")
    eager: bool = option(False, "now")
    memory: str = option("", "where")
    tag: str = option("", "which")
    indices: tuple[str, ...] = option((), "along what")
    limit: int | None = option(None, "up to")
    cost: Literal["low", "high"] = option("low", "how dear")
    sizes: tuple[tuple[str, int], ...] = option((), "how large", least=1, most=99)

    def check(self, hw: HwConfig) -> None:
        if self.eager and not hw.units:
            raise CompileError(Diagnostic("P199", "toy: nobody is there to be eager"))

    def run(self, program: Program, context: PassContext) -> Program:
        context.remark("main", False, "a toy does nothing")
        return program


@dataclass(frozen=True)
class Rename(Pass):
    """Give the root another name."""

    name: ClassVar[str] = "rename"

    to: str = option("renamed", "the new name")

    def run(self, program: Program, context: PassContext) -> Program:
        if program.root.name == self.to:
            return program
        return replace(program, root=replace(program.root, name=self.to))


@dataclass(frozen=True)
class Copy(Pass):
    """Return an equal program: against the contract."""

    name: ClassVar[str] = "copy"

    def run(self, program: Program, context: PassContext) -> Program:
        return replace(program, root=replace(program.root))


@dataclass(frozen=True)
class Break(Pass):
    """Drop the root's statements, so that its output is not written."""

    name: ClassVar[str] = "break"

    def run(self, program: Program, context: PassContext) -> Program:
        return replace(program, root=replace(program.root, statements=()))


@dataclass(frozen=True)
class Crash(Pass):
    """Raise."""

    name: ClassVar[str] = "crash"

    def run(self, program: Program, context: PassContext) -> Program:
        raise AssertionError("a fault of the pass")


@dataclass(frozen=True)
class Shift(Pass):
    """Turn the order round in which blocks read: well formed, and wrong."""

    name: ClassVar[str] = "shift"

    def run(self, program: Program, context: PassContext) -> Program:
        def turned(block: Block) -> Block | None:
            flipped = {
                ref.name: tuple(-expr + (block.ranges[n] - 1) for expr in ref.access for n in expr.names)
                for ref in block.refinements
                if ref.direction is Direction.IN and block.ranges
            }
            refs = tuple(
                replace(ref, access=flipped[ref.name]) if ref.name in flipped else ref
                for ref in block.refinements
            )
            return replace(block, refinements=refs) if flipped else None

        return map_program(program, turned)


TOYS = {
    cls.name: f"tests.unit.stripe.passes.toys:{cls.__name__}"
    for cls in (Toy, Rename, Copy, Break, Crash, Shift)
}
