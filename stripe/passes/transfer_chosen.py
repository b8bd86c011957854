"""transfer with choices: what goes around a memory, who executes a block, and who copies."""

from __future__ import annotations

from typing import Any

import msgspec

from stripe.passes.base import PassContext
from stripe.passes.choices import Choice

NAME = "transfer"


class Past(Choice, frozen=True):
    """Of a block: the buffers that get no copy for its statements, nor for what is in these (`around`): they
    go around the memory, to a nearer one, or to a unit that reaches them where they lie; `unit`, which
    executes the block's own statements, and `specials`, those which execute its specials, in order; and, by
    the name of a copy, the unit that fills it and writes it back (`by`).
    """

    around: tuple[str, ...] = ()
    unit: str = ""
    specials: tuple[str, ...] = ()
    by: dict[str, str] = msgspec.field(default_factory=dict)


def chose(context: PassContext, key: str, **fields: Any) -> None:
    """Say what was chosen for a block, beside what was said of it before."""
    known = context.choices.get(key)
    past = known if isinstance(known, Past) else Past()
    context.chose(key, msgspec.structs.replace(past, **fields))
