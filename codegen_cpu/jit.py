"""Object code made callable in this process."""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import weakref
from collections.abc import Iterable
from functools import cache
from typing import Any

from codegen_cpu.llvm import binding as llvm
from codegen_cpu.llvm import llvm_lock, target_of
from codegen_cpu.target import Target
from stripe.diag import CompileError, Diagnostic

_numbers = itertools.count()


class Loaded:
    """Object code in executable memory; it stays for as long as this object.

    `names` are its functions that are asked for, `symbols` addresses of those that it calls, by name.
    """

    def __init__(
        self,
        target: Target,
        object_code: bytes,
        names: Iterable[str],
        symbols: Iterable[tuple[str, int]] = (),
    ) -> None:
        with llvm_lock():
            _offer_libm()
            try:
                llvm.check_jit_execution()
            except OSError as error:
                note = "help: compile ahead of time to a shared library instead"
                raise CompileError(
                    Diagnostic("C003", f"this system runs no new code: {error}", notes=(note,))
                ) from error
            library = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process()
            for name in names:
                library.export_symbol(name)
            for name, address in symbols:
                library.import_symbol(name, address)
            self._library = library.link(_linker(target.triple), f"kernel{next(_numbers)}")
        weakref.finalize(self, _close, self._library).atexit = False

    def address(self, name: str) -> int:
        return int(self._library[name])


def plain_object_code(target: Target, text: str) -> bytes:
    """Object code made in a few milliseconds, without optimisation, for small code of our own."""
    with llvm_lock():
        machine = target_of(target.triple).create_target_machine(opt=0, reloc="pic", codemodel="default")
        made: bytes = machine.emit_object(llvm.parse_assembly(text))
        return made


@cache
def _linker(triple: str) -> Any:
    """What links object code in this process. JITLink lays out all of an object in one piece: what MCJIT
    does, each section where there is room, may put constants more than 2 GiB from code, which can't reach
    them then. Call under `llvm_lock`."""
    return llvm.create_lljit_compiler(
        target_of(triple).create_target_machine(reloc="pic", codemodel="default"), use_jit_link=True
    )


def _close(library: Any) -> None:
    with llvm_lock():
        library.close()


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
