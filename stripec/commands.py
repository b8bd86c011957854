"""What each subcommand of `stripec` does. They print to standard output and raise CompileError."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from codegen_cpu import aot
from codegen_cpu.host import host_target_name
from hwconfigs.load import available, load_named
from hwconfigs.model import HwConfig
from stripe.analysis.work import operations
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.dtypes import DType, TensorType, from_numpy
from stripe.files import write_whole
from stripe.interp import interpret
from stripe.parser import parse
from stripe.passes.registry import (
    check_pipeline,
    make_passes,
    parse_pipeline,
    pass_json,
)
from stripe.printer import to_text
from stripec.api import Kernel, Specialisation, compile
from stripec.compare import compare, longest_sum
from stripec.driver import Frontend, optimise, read_program, resolve_target
from stripec.files import check_output, decode_source, read_source
from stripec.mappings import mapped
from stripec.outputs import CODE, code_file, has_header
from stripec.reference import hwconfig_markdown
from stripec.schema import schema_text
from stripec.tables import print_table
from stripec.tensors import Array, make_input, parse_type
from stripec.threads import with_arguments

T = TypeVar("T")

EMITS = ("stripe", "llvm", "asm", "obj", "shared")
SLOW_OPERATIONS = 10**9  # the interpreter does about as many in ten seconds
MIN_RUNS, MAX_RUNS, TIMING_SECONDS = 5, 1000, 0.5


def run(arguments: argparse.Namespace) -> None:
    """`stripec run`: compile, run, and say what came out; check and time where asked."""
    path = Path(arguments.file)
    frontend = read_program(path)
    given = _unique(arguments.input, "--input", frontend.inputs)
    outputs = _unique(arguments.output, "--output", frontend.outputs)
    for name in arguments.const:
        if name not in frontend.inputs:
            raise _error("D031", f"--const {name}: no such input", *did_you_mean(name, frontend.inputs))
    for name in frontend.inputs:
        if name not in given:
            note = f"help: --input {name}=FILE.npy or --input {name}=random:{frontend.form(name)}"
            raise _error("D033", f"input '{name}' is not given", note)
    arrays = {name: make_input(given[name], name, arguments.seed) for name in frontend.inputs}
    constants = {name: arrays[name] for name in arguments.const}
    free = [array for name, array in arrays.items() if name not in constants]
    kernel = compile(
        path, shapes=arrays, target=arguments.target, threads=arguments.threads, constants=constants,
        verify=arguments.verify, deterministic=arguments.deterministic, mapping=arguments.mapping,
    )  # fmt: skip
    results = _tuple(_interruptible(lambda: kernel(*free)))
    print_validation(kernel.validation)
    for name, result in zip(kernel.outputs, results, strict=True):
        print(_summary(name, result))
    for name, target in outputs.items():
        _write_npy(Path(target), results[kernel.outputs.index(name)])
    if arguments.check:
        _check(kernel, arrays, results)
    if arguments.time:
        _interruptible(lambda: _time(kernel, free, [*arrays.values(), *results]))


def _interruptible(call: Callable[[], T]) -> T:
    """Run a call that may spend long in native code, where Ctrl-C would not be noticed, in a thread.

    This thread only waits, and so hears the signal; the other one ends with the process.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return outcome.result()


def _tuple(results: Any) -> tuple[Array, ...]:
    return results if isinstance(results, tuple) else (results,)


def _unique(pairs: Sequence[tuple[str, str]], flag: str, known: Sequence[str]) -> dict[str, str]:
    """The NAME=VALUE pairs of a flag by name; unknown and repeated names are errors."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            kind = "input" if flag != "--output" else "output"
            raise _error("D031", f"{flag} {name}: no such {kind}", *did_you_mean(name, known))
        if name in found:
            raise _error("D032", f"{flag} {name} is given twice")
        found[name] = value
    return found


def _summary(name: str, array: Array) -> str:
    """One line on an output: its type, and its values or their range."""
    dtype = from_numpy(array.dtype)
    kind = TensorType(dtype, array.shape) if dtype is not None else array.dtype
    if array.size <= 16:
        return f"{name}: {kind} = {np.array2string(array, separator=', ', max_line_width=1000)}".replace(
            "\n", ""
        )
    wide = array if dtype is not None and not dtype.is_float else array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if finite.size == 0:
        return f"{name}: {kind}, no finite element"
    rest = f", {array.size - finite.size} not finite" if finite.size < array.size else ""
    return f"{name}: {kind}, from {finite.min():.6g} to {finite.max():.6g}{rest}"


def _write_npy(path: Path, array: Array) -> None:
    content = io.BytesIO()
    np.lib.format.write_array(content, _storable(array), allow_pickle=False)
    write_whole(path, content.getvalue())


def _storable(array: Array) -> Array:
    """bf16 as two bytes without a type, which is what NumPy's format has for it."""
    return array.view("V2") if array.dtype == DType.BF16.numpy else array


def _check(kernel: Kernel, arrays: dict[str, Array], results: tuple[Array, ...]) -> None:
    """Compare with the interpreter's run of the program as it was before the first pass."""
    lowered = kernel.stages[0][1]
    work = operations(lowered)
    if work > SLOW_OPERATIONS:
        print(f"checking {work:.3g} operations in the interpreter takes a while", file=sys.stderr)
    wanted = interpret(lowered, arrays)
    terms = longest_sum(lowered)
    for name, got in zip(kernel.outputs, results, strict=True):
        found = compare(got, wanted[name], terms)
        if found.at is not None:
            raise _error(
                "D050",
                f"output '{name}' differs from the interpreter's at {list(found.at)}: "
                f"{got[found.at]} instead of {wanted[name][found.at]}",
                f"largest difference {found.worst:.3g}, allowed {found.allowed:.3g}",
                "this is a fault of stripec, or a comparison that rounding tips over; please report it",
            )
        if found.allowed:
            print(f"{name}: agrees with the interpreter: {found.worst:.3g} off, {found.allowed:.3g} allowed")
        else:
            print(f"{name}: equal to the interpreter's")


def _time(kernel: Kernel, inputs: list[Array], tensors: list[Array]) -> None:
    """Print the median time of a call, and what that makes in operations and in bytes."""
    seconds: list[float] = []
    began = time.perf_counter()
    while len(seconds) < MIN_RUNS or (
        len(seconds) < MAX_RUNS and time.perf_counter() - began < TIMING_SECONDS
    ):
        start = time.perf_counter()
        kernel(*inputs)
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    work = operations(kernel.stages[0][1])
    moved = sum(array.nbytes for array in tensors)
    print(
        f"median of {len(seconds)} runs: {_duration(median)}; "
        f"{work / median / 1e9:.3g} GFLOP/s ({work} operations), "
        f"{moved / median / 1e9:.3g} GB/s ({moved} bytes in inputs and outputs)"
    )


def _duration(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"


def compile_file(arguments: argparse.Namespace) -> None:
    """`stripec compile`: write the program, or its code, for a target."""
    program = read_program(Path(arguments.file))
    frontend, hw = mapped(arguments.mapping, program, resolve_target(arguments.target))
    hw = with_arguments(hw, arguments.threads, arguments.deterministic)
    lowered = frontend.lower(input_types(arguments.shape, frontend), ())
    dumps = Path(arguments.dump_passes) if arguments.dump_passes else None
    done = optimise(lowered, hw, verify=arguments.verify, dumps=dumps, name=frontend.name)
    print_validation(done.validation)
    _emit(Specialisation(frontend.name, done, hw), arguments)


def input_types(shapes: Sequence[tuple[str, str]], frontend: Frontend) -> dict[str, TensorType]:
    """The types of the inputs, as --shape gives them, or the program itself."""
    given = _unique(shapes, "--shape", frontend.inputs)
    types = frontend.fixed_types() | {name: parse_type(text, name) for name, text in given.items()}
    missing = [name for name in frontend.inputs if name not in types]
    if missing:
        note = f"help: {' '.join(f'--shape {name}={frontend.form(name)}' for name in missing)}"
        names = ", ".join(f"'{name}'" for name in missing)
        said = f"the type of input {names} is" if len(missing) == 1 else f"the types of inputs {names} are"
        raise _error("D033", f"{said} not given", note)
    return types


def _emit(made: Specialisation, arguments: argparse.Namespace) -> None:
    """Write one kind of result. Code comes with a C header beside it, unless it goes to `-` or a device."""
    emit, out = arguments.emit, arguments.out
    if emit in CODE:
        code = aot.object_file(made.module) if emit == "obj" else aot.shared_library(made.module)
        if out == "-":
            sys.stdout.buffer.write(code)
            return
        path = code_file(arguments)
        check_output(path)
        write_whole(path, code)
        if has_header(path):
            write_whole(path.with_suffix(".h"), aot.c_header(made.module))
        return
    text = (
        to_text(made.program) if emit == "stripe" else made.module.llvm if emit == "llvm" else made.module.asm
    )
    if out is None or out == "-":
        sys.stdout.write(text)
    else:
        write_whole(Path(out), text)


def opt(arguments: argparse.Namespace) -> None:
    """`stripec opt`: Stripe text in, verified and transformed Stripe text out."""
    if arguments.file == "-":
        source = decode_source(sys.stdin.buffer.read(), "<stdin>")
    else:
        source = read_source(Path(arguments.file))
    hw = resolve_target(arguments.target)
    steps = make_passes(parse_pipeline(arguments.passes, hw))
    program = parse(source)
    dumps = Path(arguments.dump_passes) if arguments.dump_passes else None
    done = optimise(program, hw, steps=steps, verify=arguments.verify, dumps=dumps)
    print_validation(done.validation)
    sys.stdout.write(to_text(done.program))


def print_validation(text: str) -> None:
    """What --verify=full found; on standard error, since the output may be a program."""
    if text:
        print(text, file=sys.stderr)


def targets(arguments: argparse.Namespace) -> None:
    """`stripec targets`: the shipped targets, with the one of this machine marked."""
    host = host_target_name()
    rows = []
    for name in available():
        hw = load_named(name)
        rows.append((name + (" (host)" if name == host else ""), hw.executor, hw.description))
    print_table(("target", "executed by", "description"), rows)


def show_target(arguments: argparse.Namespace) -> None:
    """`stripec targets show`: a target as one JSON file, with all that it inherits."""
    print(_target_json(resolve_target(arguments.name)))


def _target_json(hw: HwConfig) -> str:
    whole = json.loads(msgspec.json.encode(hw))
    whole["pipeline"] = [pass_json(step) for step in make_passes(hw.pipeline)]
    return json.dumps(whole, indent=2)


def check_target(arguments: argparse.Namespace) -> None:
    """`stripec targets check`: read a file, check every name in it, and say that it is good."""
    hw = resolve_target(Path(arguments.file))
    steps = check_pipeline(hw)
    parts = ((len(hw.memories), "memories"), (len(hw.units), "units"), (len(steps), "passes"))
    print(f"{arguments.file}: '{hw.name}' is fine: {', '.join(f'{n} {what}' for n, what in parts)}")


def print_schema(arguments: argparse.Namespace) -> None:
    """`stripec targets schema`: the JSON Schema of hardware configs, or their reference."""
    sys.stdout.write(hwconfig_markdown() if arguments.markdown else schema_text())


def demo(arguments: argparse.Namespace) -> None:
    # Imported here: it needs packages that the rest of stripec does without.
    try:
        main = importlib.import_module("stripec.demo.main")
    except ModuleNotFoundError as error:
        message = f"the demo needs the package '{error.name}', which is not installed"
        raise _error("D091", message, "help: pip install 'stripec[demo]'") from None
    main.run(Path(arguments.out), arguments.target)


def _error(code: str, message: str, *notes: str) -> CompileError:
    return CompileError(Diagnostic(code, message, notes=notes))
