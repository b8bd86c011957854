"""transfer with choices: what goes around a memory, who executes a block, and who copies."""

from __future__ import annotations

import msgspec

from stripe.passes.choices import Choice


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
