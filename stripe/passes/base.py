"""What a pass is: a frozen dataclass whose fields are its options and whose `run` maps a
program to a program. See stripe.passes.registry for the table of passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, TypeVar

import msgspec

from hwconfigs.model import HwConfig
from stripe.diag import CompileError, Diagnostic, Remark
from stripe.ir import Block, Program
from stripe.passes.choices import C, Choice, Given

T = TypeVar("T")
Named: TypeAlias = tuple[tuple[str, int], ...]  # the type of an option that has numbers by name


@dataclass(slots=True)
class PassContext:
    """What a pass may ask for beside the program: the target, and choices that are given (see
    stripe.passes.choices); and where it says what it did."""

    hw: HwConfig
    pass_name: str = ""  # of the pass that runs
    remarks: list[Remark] = field(default_factory=list)
    given: Given | None = None
    choices: dict[str, Choice] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)  # given choices that the pass came to
    _met: Counter[tuple[str, str]] = field(default_factory=Counter)
    _undecided: set[str] = field(default_factory=set)  # blocks of which that was said

    def remark(self, block: str, acted: bool, message: str, **data: object) -> None:
        """Say what was done to `block` (a path such as `main/dot`), or why nothing was."""
        self.remarks.append(Remark(self.pass_name, block, acted, message, data))

    def undecided(self, block: str) -> None:
        """Say that `block` stays as it is since choices are given, but none for it: once, however many
        things a choice would settle. For blocks that the pass would have had something to decide about."""
        if block not in self._undecided:
            self._undecided.add(block)
            self.remark(block, False, "left as it is: no choice is given for it")

    def undecided_nest(self, block: str, inside: Callable[[], Block]) -> Block:
        """What `inside` makes of an undecided block, where blocks inside could be chosen for as well: where
        no choice is given for any of these, it is said of the block alone, else of those left inside."""
        said, taken = len(self.remarks), len(self.taken)
        made = inside()
        if len(self.taken) == taken:
            self._undecided -= {remark.block for remark in self.remarks[said:]}
            del self.remarks[said:]
            self.undecided(block)
        return made

    def anew(self, given: Given | None) -> PassContext:
        """What the same pass may ask for, with these choices, where nothing has been said yet."""
        return PassContext(self.hw, self.pass_name, given=given)

    @property
    def searches(self) -> bool:
        """Whether the pass decides by itself about blocks for which no choice is given."""
        return self.given is None or self.given.others == "search"

    def key(self, block: str, about: str = "") -> str:
        """What a block is called among choices: its path, with a number if one of this path was met
        before. To be asked once for each block, or for each thing that is chosen `about` it."""
        self._met[about, block] += 1
        met = self._met[about, block]
        return block if met == 1 else f"{block}#{met}"

    def explicit(self, key: str, kind: type[C]) -> C | None:
        """The choice that is given for a block, if there is one."""
        found = None if self.given is None else self.given.records.get(key)
        if self.given is None or not isinstance(found, kind):
            return None
        self.taken.add(key)
        return found

    def chose(self, key: str, choice: Choice) -> None:
        """Say what was chosen for a block, so that it can be given another time."""
        self.choices[key] = choice

    def chosen(self, key: str, kind: type[C]) -> C:
        """What was chosen for a block so far; a record that says nothing if nothing was."""
        known = self.choices.get(key)
        return known if isinstance(known, kind) else kind()

    def chose_also(self, key: str, kind: type[C], **fields: Any) -> None:
        """Say what else was chosen for a block: `fields` of its record, beside what was said before."""
        self.chose(key, msgspec.structs.replace(self.chosen(key, kind), **fields))

    def refused(self, key: str, reason: str, field: str = "", *notes: str) -> CompileError:
        """The error for a given choice that can't be made; `field` is the part of it that is wrong."""
        where = () if self.given is None else (self.given.at(key, field),)
        message = f"{self.pass_name}: the choice for '{key}' can't be made: {reason}"
        return CompileError(Diagnostic("P009", message, None, (*notes, *where)))


@dataclass(frozen=True)
class Pass(ABC):
    """One Stripe -> Stripe step. Options are the dataclass fields, each with metadata
    `{"help": ..., "unit": ..., "least": ..., "most": ...}`; and, for passes with a `choice`, `choices`:
    what is chosen for blocks, ahead of any search.

    Contract: the input verifies; the output verifies and computes the same; the input is never
    modified; the same object comes back if there is nothing to do; for every block that the
    pass could have changed and did not, it leaves a remark that says why.
    """

    name: ClassVar[str]
    tags_read: ClassVar[tuple[str, ...]] = ()
    tags_set: ClassVar[tuple[str, ...]] = ()
    by_kernel: ClassVar[bool] = False  # a child block of a root is treated without a look at the others
    choice: ClassVar[type[Choice] | None] = None  # the record of what it chooses for a block, if it chooses

    choices: Given | None = field(default=None, kw_only=True, hash=False)

    @property
    def alike(self) -> bool:
        """Whether results are to have the same bits for every number of units: then no step of the pipeline
        knows how many there are, but one that `deals`."""
        return False

    @property
    def deals(self) -> bool:
        """Whether it deals points out to units, which changes the results of no point."""
        return False

    def check(self, hw: HwConfig) -> None:
        """Raises CompileError P### if the options ask for what the target does not have.

        Names in options called `memory`, `unit` and `tag` were looked up before.
        """
        return

    @abstractmethod
    def run(self, program: Program, context: PassContext) -> Program: ...


def is_worth(gained: float, whole: float, least_gain: int) -> bool:
    """Whether something is gained, and so many percent of the whole at least."""
    return gained > 0 and gained * 100 >= least_gain * whole


def option(default: T, help: str, unit: str = "", *, least: int | None = None, most: int | None = None) -> T:
    """A field of a pass, with its help and unit; tuples and scalars are immutable defaults.

    `least` and `most` bound the value of a number.
    """
    made: T = field(default=default, metadata={"help": help, "unit": unit, "least": least, "most": most})
    return made
