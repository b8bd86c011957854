"""Files that other programs use: object code, a shared library, and the C header of both.

The functions and their arguments are described in codegen_cpu.build; the header repeats it for
a reader of C. Linking is the system's: `cc`, else `ld`, and for another architecture than this
machine's the cross tools of the usual names.

Codes: C020 no linker, C021 the linker failed.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from codegen_cpu.build import Module
from codegen_cpu.c_names import parameter_name
from codegen_cpu.layout import ALIGNMENT
from codegen_cpu.llvm import architecture
from codegen_cpu.native import Entry
from codegen_cpu.required import LACKING, asked
from codegen_cpu.target import process_triple
from stripe.diag import CompileError, Diagnostic
from stripe.dtypes import DType, TensorType
from stripe.ir import Direction, Refinement, contiguous

_LINK_SECONDS = 120

# f16 and bf16 have no name in C that every compiler knows: they travel as their bits.
_C_TYPES = {
    DType.BOOL: "uint8_t", DType.F16: "uint16_t", DType.BF16: "uint16_t", DType.F32: "float",
    DType.F64: "double", DType.I8: "int8_t", DType.I16: "int16_t", DType.I32: "int32_t", DType.I64: "int64_t",
    DType.U8: "uint8_t", DType.U16: "uint16_t", DType.U32: "uint32_t", DType.U64: "uint64_t",
}  # fmt: skip


def object_file(module: Module) -> bytes:
    """The contents of a relocatable object file; a program that uses it links with `-lm`, and with
    `-fopenmp` where `Module.is_parallel`."""
    return module.for_files.object_code


def shared_library(module: Module) -> bytes:
    """The contents of a shared library.

    Raises CompileError C020 if there is no linker for the target, C021 if it fails.
    """
    command, module = _linker(module.target.triple), module.for_files
    with tempfile.TemporaryDirectory(prefix="stripec-") as folder:
        source, result = Path(folder, "code.o"), Path(folder, "code.so")
        source.write_bytes(module.object_code)
        try:
            done = subprocess.run(
                [*command, "-shared", "-o", str(result), str(source), "-lm", *_openmp(module, command)],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LINK_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _error("C021", f"the linker {command[0]} did not run: {error}") from None
        if done.returncode != 0 or not result.exists():
            lines = (line for line in done.stderr.splitlines() if line.strip())
            raise _error("C021", f"the linker {command[0]} failed", *list(lines)[:5])
        return result.read_bytes()


def _openmp(module: Module, command: list[str]) -> list[str]:
    """What brings in the runtime of code that runs on several threads; plain linkers know its name."""
    if not module.is_parallel:
        return []
    return ["-lgomp"] if Path(command[0]).name.endswith(("ld", "ld.lld")) else ["-fopenmp"]


def _linker(triple: str) -> list[str]:
    """The command that links for a target. Plain linkers leave libm's symbols to the program."""
    wanted = architecture(triple)
    names = [f"{wanted}-linux-gnu-gcc", f"{wanted}-linux-gnu-ld", "ld.lld"]
    if wanted == architecture(process_triple()):
        names = ["cc", "gcc", "clang", "ld", *names]
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return [path]
    raise _error(
        "C020",
        f"a shared library for {wanted} needs a linker, and none of {', '.join(names)} was found",
        "help: install a C compiler, or write an object file (--emit obj) and link it where there is one",
    )


# -- the header --------------------------------------------------------------------------------


def c_header(module: Module) -> str:
    """A header that declares the functions of the object code, with what each argument holds."""
    module = module.for_files
    guard = f"STRIPEC_{module.symbol.upper()}_H"
    entries = [entry for entry in (module.load_entry, module.entry) if entry is not None]
    lines = [
        f"/* {module.name}, compiled by stripec for {module.hw.name} ({module.target.triple}).",
        *_requirements(module),
        *_threads(module),
        " * Link with -lm. No two tensors of a call may overlap, if one of them is an output. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
    ]
    for entry in entries:
        lines += _declarations(entry)
    if module.load_entry is not None:
        lines[-1:] = _how_to_load(module, module.load_entry)
    lines += ["#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */"]
    return "\n".join(lines) + "\n"


def _requirements(module: Module) -> list[str]:
    features = ", ".join(module.target.features)
    lines = [f" * The CPU must have: {features}." if features else " * Any CPU of this architecture runs it."]
    if asked(module.target.triple, module.target.features):
        lines += [f" * Functions that return a number return {LACKING} where it has not, and do nothing."]
    if "amx-tile" in module.target.features:
        lines += [
            " * Code that uses the registers of AMX asks Linux for them when it is loaded; where they are",
            " * refused it must not be called.",
        ]
    return lines


def _threads(module: Module) -> list[str]:
    if not module.is_parallel:
        return []
    return [
        f" * It runs on up to {module.target.threads} threads of an OpenMP runtime: link with -fopenmp.",
        " * The runtime keeps a team of threads for each thread that calls.",
    ]


def _declarations(entry: Entry) -> list[str]:
    listed = [_parameter(ref) for ref in entry.tensors]
    described = [f" *   {_describe(ref)}" for ref in entry.tensors]
    macro = f"{entry.symbol.upper()}_WORKSPACE_BYTES"
    return [
        f"/* {entry.symbol} takes",
        *described,
        " * each aligned to its element. It returns 0, or 1 if no memory was left. */",
        f"int {entry.symbol}({', '.join(listed) or 'void'});",
        "",
        f"/* The same with a workspace of the caller's, {ALIGNMENT}-byte aligned, for one call at a time;",
        " * it may be NULL where its size is 0. */",
        f"#define {macro} {entry.workspace_bytes}",
        f"void {entry.in_workspace}({', '.join([*listed, 'void *workspace'])});",
        "",
    ]


def _how_to_load(module: Module, entry: Entry) -> list[str]:
    made = ", ".join(parameter_name(r.name) for r in entry.tensors if r.direction.writes)
    return [f"/* Call {entry.symbol} once, and give {made} to every call of {module.symbol}. */", ""]


def _parameter(ref: Refinement) -> str:
    const = "" if ref.direction.writes else "const "
    return f"{const}{_C_TYPES[ref.dtype]} *{parameter_name(ref.name)}"


def _describe(ref: Refinement) -> str:
    use = "written whole" if ref.direction is Direction.OUT else "read"
    kind = TensorType(ref.dtype, ref.shape)
    strides = ref.strides or ()
    layout = "row-major" if strides == contiguous(ref.shape) else f"strides {strides} in elements"
    bits = " (the bits of each element)" if ref.dtype in (DType.F16, DType.BF16) else ""
    return f"{parameter_name(ref.name)}: {kind}{bits}, {layout}, {use}"


def _error(code: str, message: str, *notes: str) -> CompileError:
    return CompileError(Diagnostic(code, message, notes=notes))
