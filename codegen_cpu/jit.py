"""Object code made callable in this process."""

from __future__ import annotations

import ctypes
import ctypes.util
import weakref
from collections.abc import Iterable
from typing import Any

from codegen_cpu.llvm import binding as llvm
from codegen_cpu.llvm import llvm_lock, target_of
from codegen_cpu.target import Target
from stripe.diag import CompileError, Diagnostic


class Loaded:
    """Object code in executable memory; it stays for as long as this object.

    `symbols` are addresses of functions that it calls, by name.
    """

    def __init__(self, target: Target, object_code: bytes, symbols: Iterable[tuple[str, int]] = ()) -> None:
        with llvm_lock():
            _offer_libm()
            for name, address in symbols:
                llvm.add_symbol(name, address)
            try:
                llvm.check_jit_execution()
            except OSError as error:
                note = "help: compile ahead of time to a shared library instead"
                raise CompileError(
                    Diagnostic("C003", f"this system runs no new code: {error}", notes=(note,))
                ) from error
            empty = llvm.parse_assembly(f'target triple = "{target.triple}"')
            # MCJIT wants a module of its own; the engine then owns it and the target machine.
            self._engine = llvm.create_mcjit_compiler(empty, target.machine())
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
            self._engine.finalize_object()
        weakref.finalize(self, _close, self._engine).atexit = False

    def address(self, name: str) -> int:
        with llvm_lock():
            return int(self._engine.get_function_address(name))


def plain_object_code(target: Target, text: str) -> bytes:
    """Object code made in a few milliseconds, without optimisation, for small code of our own."""
    with llvm_lock():
        machine = target_of(target.triple).create_target_machine(opt=0, reloc="pic", codemodel="default")
        made: bytes = machine.emit_object(llvm.parse_assembly(text))
        return made


def _close(engine: Any) -> None:
    with llvm_lock():
        engine.close()


def _offer_libm() -> None:
    """Make the functions of libm known to the linker: the interpreter need not have loaded them."""
    if llvm.address_of_symbol("erff"):
        return
    try:
        llvm.load_library_permanently("libm.so.6")  # what it nearly always is; to ask starts a process
    except RuntimeError:
        name = ctypes.util.find_library("m")
        if name is not None:
            llvm.load_library_permanently(name)
