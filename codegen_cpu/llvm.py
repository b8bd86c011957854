"""LLVM through llvmlite: the one place where its untyped library meets typed code."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding

binding: Any = llvmlite.binding
VERSION = f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, binding.llvm_version_info))}"

# LLVM's global context serves one thread at a time. The garbage collector may free an engine while
# its own thread holds LLVM, so that the lock has to let it in again. A fork waits until nobody holds it:
# the child's copy of LLVM is whole, and the lock is free.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_ready = threading.Event()


@contextmanager
def llvm_lock() -> Iterator[None]:
    """Hold LLVM: with every target and assembler initialised, and for this thread alone."""
    with _lock:
        if not _ready.is_set():
            binding.initialize_all_targets()
            binding.initialize_all_asmprinters()
            _ready.set()
        yield
