"""What a pass is: a frozen dataclass whose fields are its options and whose `run` maps a
program to a program. See stripe.passes.registry for the table of passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias, TypeVar

from hwconfigs.model import HwConfig
from stripe.diag import Remark
from stripe.ir import Program

T = TypeVar("T")
Named: TypeAlias = tuple[tuple[str, int], ...]  # the type of an option that has numbers by name


@dataclass(slots=True)
class PassContext:
    """What a pass may ask for beside the program: the target; and where it says what it did."""

    hw: HwConfig
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, pass_name: str, block: str, acted: bool, message: str, **data: object) -> None:
        """Say what was done to `block` (a path such as `main/dot`), or why nothing was."""
        self.remarks.append(Remark(pass_name, block, acted, message, data))


@dataclass(frozen=True)
class Pass(ABC):
    """One Stripe -> Stripe step. Options are the dataclass fields, each with metadata
    `{"help": ..., "unit": ..., "least": ..., "most": ...}`.

    Contract: the input verifies; the output verifies and computes the same; the input is never
    modified; the same object comes back if there is nothing to do; for every block that the
    pass could have changed and did not, it leaves a remark that says why.
    """

    name: ClassVar[str]
    tags_read: ClassVar[tuple[str, ...]] = ()
    tags_set: ClassVar[tuple[str, ...]] = ()
    by_kernel: ClassVar[bool] = False  # a child block of a root is treated without a look at the others

    def check(self, hw: HwConfig) -> None:
        """Raises CompileError P### if the options ask for what the target does not have.

        Names in options called `memory`, `unit` and `tag` were looked up before.
        """
        return

    @abstractmethod
    def run(self, program: Program, context: PassContext) -> Program: ...


def option(default: T, help: str, unit: str = "", *, least: int | None = None, most: int | None = None) -> T:
    """A field of a pass, with its help and unit; tuples and scalars are immutable defaults.

    `least` and `most` bound the value of a number.
    """
    made: T = field(default=default, metadata={"help": help, "unit": unit, "least": least, "most": most})
    return made
