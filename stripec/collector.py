"""Python's collector of cyclic garbage waits while a program is compiled.

Compilation makes many objects and hardly a cycle. The collector would look through all objects of the
process several times meanwhile, which takes as long as to find compiled code on disk.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_waiting_for = 0  # compilations


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
                _waiting_for -= 1
                if not _waiting_for:
                    gc.enable()
