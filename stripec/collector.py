"""Python's collector of cyclic garbage waits while a program is compiled.

Compilation makes many objects and hardly a cycle. The collector would look through all objects of the
process several times meanwhile, which takes as long as to find compiled code on disk.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from stripe.locks import ThreadLock

_lock = ThreadLock()
_waiting_for = 0  # compilations


def _nobody_waits() -> None:
    """In a forked child: its only thread does not compile."""
    global _waiting_for
    if _waiting_for:
        _waiting_for = 0
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_nobody_waits)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing is collected until the last of those who asked for it, in any thread, is done."""
    global _waiting_for
    with _lock:
        if _waiting_for or gc.isenabled():
            _waiting_for += 1
            mine = True
            gc.disable()
        else:
            mine = False  # somebody else has switched it off, and it stays off
    try:
        yield
    finally:
        if mine:
            with _lock:
                _waiting_for = max(0, _waiting_for - 1)
                if not _waiting_for:
                    gc.enable()
