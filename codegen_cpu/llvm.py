"""LLVM through llvmlite: the one place where its untyped library meets typed code."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import llvmlite.binding

binding: Any = llvmlite.binding
VERSION = f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, binding.llvm_version_info))}"

# LLVM's global context serves one thread at a time. The garbage collector may free an engine while
# its own thread holds LLVM, so that the lock has to let it in again. A fork waits until nobody holds it, nor
# that of llvmlite, which frees objects without ours: the child's copy of LLVM is whole, and both are free.
_lock = threading.RLock()
_inner: Any = getattr(binding.ffi.lib, "_lock", None) or threading.RLock()


def _hold() -> None:
    _lock.acquire()
    _inner.__enter__()


def _release() -> None:
    _inner.__exit__(None, None, None)
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_release)


@contextmanager
def llvm_lock() -> Iterator[None]:
    """Hold LLVM: for this thread alone, with this machine's target and assembler initialised."""
    with _lock:
        _initialise_own()
        yield


@contextmanager
def in_written_order() -> Iterator[None]:
    """Meanwhile LLVM leaves instructions in the order in which they are written until they have registers."""
    with _inner:  # the option is the process's: nobody else generates code meanwhile
        binding.set_option("", "-enable-misched=false")
        try:
            yield
        finally:
            binding.set_option("", "-enable-misched=true")


def target_of(triple: str) -> Any:
    """LLVM's target of a triple. Raises RuntimeError where it has none. Call under `llvm_lock`."""
    try:
        return binding.Target.from_triple(triple)
    except RuntimeError:  # not this machine's: to initialise all takes 2 ms
        _initialise_all()
        return binding.Target.from_triple(triple)


@cache
def _initialise_own() -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()


@cache
def _initialise_all() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


def architecture(triple: str) -> str:
    """The first part of a triple, with one spelling for each."""
    name = triple.split("-")[0].lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)
