"""`stripec.compile`: a Tile program in, a function on NumPy arrays out.

    kernel = stripec.compile("function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }")
    C = kernel(A, B)

A Kernel holds one Specialisation for each set of input types that it was called with, or one
alone where the types were given. A Specialisation is a program after every pass, and the native
code or the interpreter that runs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from codegen_cpu.build import Module, build
from codegen_cpu.calls import Called, QuickCall, refuse
from codegen_cpu.kernel import NativeKernel, as_array, lasting, share_memory
from hwconfigs.model import HwConfig
from stripe.arena import interpret_placed
from stripe.diag import CompileError, Diagnostic, Remark, did_you_mean
from stripe.dtypes import TensorType
from stripe.input_strides import Steps, takes_strides, with_strides
from stripe.interp import interpret
from stripe.ir import Program, Refinement
from stripe.locks import ThreadLock, cached_property
from stripe.passes.pipeline import check_verify_level
from stripe.printer import to_text
from stripec.collector import collector_paused
from stripec.driver import Compilation, Frontend, Target, optimise, read_program, resolve_target
from stripec.kept import Kept, look_up
from stripec.layouts import Layouts, layouts_of, takes
from stripec.mappings import MappingLike, mapped
from stripec.settings import read_settings
from stripec.tensors import Array, TypeLike, as_type, check_memory
from stripec.threads import check_threads, threads_for, with_threads

Result: TypeAlias = "Array | tuple[Array, ...]"

MAX_SPECIALISATIONS = 64  # kept for each kernel; the one made first goes first
_SIGNATURE = "__call__($self, /, *arrays, out=None, **named)\n--\n\n"
_WORTH_IT = 3  # calls with arrays that lie alike, by which more are expected
_MAX_LAYOUTS = 8  # of arrays of the same types, for which code is made; in others they are copied


class Runner(Protocol):
    """Runs a program on arrays, in the order of the inputs, and `out`, a tuple of arrays or None. `quick`
    takes both as they are, and may refuse."""

    @property
    def quick(self) -> QuickCall: ...

    def __call__(self, *arrays: Any, out: Any = None) -> Any: ...


class Specialisation:
    """A program for one set of input types: its stages, and what runs it, made when asked for.

    `constants` are inputs that are given now, by name. `kept` says under which name it is kept on disk,
    and what was found there: then the compilation is done when somebody looks at it. `strides` and
    `shapes` are those of arrays that it takes as they lie, by name.
    """

    def __init__(
        self,
        name: str,
        compilation: Compilation | Callable[[], Compilation],
        hw: HwConfig,
        constants: Mapping[str, Array] | None = None,
        kept: Kept | None = None,
        strides: Mapping[str, Steps] | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        self.name = name
        self.hw = hw
        self._compilation = compilation
        self._constants = dict(constants or {})
        self._kept = kept
        self._strides = dict(strides or {})
        self._shapes = dict(shapes or {})
        self._lock = ThreadLock()

    @cached_property
    def compilation(self) -> Compilation:
        made = self._compilation
        return made if isinstance(made, Compilation) else made()

    @property
    def program(self) -> Program:
        return self.compilation.program

    @cached_property
    def module(self) -> Module:
        """Native code. Raises CompileError C001 for a target that no CPU executes."""
        cache, given = read_settings().cache, self.compilation.signature
        return build(self.program, self.hw, name=self.name, cache=cache, signature=given)

    @property
    def runner(self) -> Runner:
        """What runs it, on the inputs that are no constants. A second thread that asks for it waits."""
        with self._lock:
            return self._runner

    @cached_property
    @collector_paused()
    def _runner(self) -> Runner:
        native = self._kept.native if self._kept is not None else None
        if native is not None:
            check_memory(_types_of(native.entry.tensors), f"'{self.name}'")
            return NativeKernel(native, self._constants, self._strides, self._shapes)
        refinements = self.program.root.refinements
        check_memory(_types_of(refinements), f"'{self.name}'")
        if self.hw.executor == "cpu":
            made = NativeKernel(self.module, self._constants, self._strides, self._shapes)
            if self._kept is not None:
                self.module.keep_as(self._kept.name)
            return made
        if self.hw.executor == "interpreter":
            return _Interpreted(self.program, self.hw, self._constants)
        raise CompileError(
            Diagnostic(
                "D041",
                f"the target '{self.hw.name}' is executed by the {self.hw.executor}, "
                "which is not available yet",
                notes=("help: its Stripe text can be looked at: kernel.stripe",),
            )
        )


def _types_of(refinements: Iterable[Refinement]) -> Iterator[tuple[str, TensorType]]:
    return ((ref.name, TensorType(ref.dtype, ref.shape)) for ref in refinements)


class _Interpreted:
    """Runs a program in the interpreter, with the calling convention of native code.

    Where programs of the target say at which addresses buffers lie, it runs on these addresses.
    """

    quick: QuickCall = staticmethod(refuse)

    def __init__(self, program: Program, hw: HwConfig, constants: Mapping[str, Array]) -> None:
        self._program = program
        self._constants = dict(constants)
        self._hw = hw if any(memory.kind == "explicit" for memory in hw.memories) else None
        self._inputs = tuple(ref.name for ref in program.inputs if ref.name not in constants)

    def __call__(self, *arrays: Any, out: tuple[Array, ...] | None = None) -> Result:
        pairs = zip(self._inputs, arrays, strict=True)
        given = {name: _native_order(as_array(name, value)) for name, value in pairs} | self._constants
        if self._hw is None:
            found = interpret(self._program, given)
        else:
            found = interpret_placed(self._program, given, self._hw)
        results = tuple(found.values())
        if out is not None:
            if len(out) != len(results):
                raise _call_error("D034", f"out has {len(out)} arrays, expected {len(results)}")
            for target, result, ref in zip(out, results, self._program.outputs, strict=True):
                if not isinstance(target, np.ndarray) or target.shape != result.shape:
                    raise _call_error("D034", f"out for '{ref.name}' is no array of shape {result.shape}")
                if target.dtype != result.dtype or not target.flags.writeable:
                    raise _call_error(
                        "D034", f"out for '{ref.name}' is no writable array of {ref.dtype.value}"
                    )
            for number, target in enumerate(out):
                if any(share_memory(target, other) for other in out[:number]):
                    name = self._program.outputs[number].name
                    raise _call_error("D034", f"out for '{name}' shares memory with another output")
            for target, result in zip(out, results, strict=True):
                target[...] = result
            results = out
        return results[0] if len(results) == 1 else results


def _native_order(array: Array) -> Array:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


class Kernel(Called):
    """A compiled Tile program: call it with arrays, by position or by name.

    `hw` is the target. `stages`, `stripe`, `llvm`, `asm` and `remarks` speak of the types given
    to `compile`, or else of those compiled last. A kernel may be called from several threads.

    `layouts`: how the arrays lie that its types were taken from. If it `adapts`, arrays that lie otherwise
    and come again have code made for them, which takes them as they are.
    """

    def __init__(
        self,
        frontend: Frontend,
        hw: HwConfig,
        types: Mapping[str, TensorType] | None,
        constants: Mapping[str, Array],
        verify: str,
        layouts: Layouts = (),
        adapts: bool = True,
    ) -> None:
        self.hw = hw
        self._frontend = frontend
        self._constants = constants
        self._verify = verify
        self.inputs = tuple(name for name in frontend.inputs if name not in constants)
        self.outputs = frontend.outputs
        self._made: dict[tuple[tuple[TensorType, ...], Layouts], Specialisation] = {}
        self._runners: dict[tuple[object, Layouts], Runner] = {}
        self._met: dict[tuple[object, Layouts], int] = {}  # how often arrays came that lie so
        self._lock = ThreadLock()
        self._latest: Specialisation | None = None
        self._quick: QuickCall = refuse  # of what ran last
        self._slow = Kernel._in_python
        self._types = types
        self._layouts = layouts
        self._adapts = adapts
        self._fixed = None if types is None else tuple(types[name] for name in self.inputs)
        if self._fixed is not None:
            self._latest = self._specialise(self._fixed, self._accepted(layouts))

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """The outputs for these inputs: an array, or a tuple in the order of the outputs.

        `out` is an array (a tuple or list of them for several outputs) that takes the result. Raises
        CompileError if an array does not fit.
        """
        if named:
            arrays = self._by_position(arrays, named)
        result = self._quick(arrays, out)
        return self._carefully(arrays, out) if result is NotImplemented else result

    _in_python = __call__

    def _carefully(self, arrays: tuple[Any, ...], out: Any) -> Any:
        if len(arrays) != len(self.inputs):
            arrays = self._by_position(arrays, {})
        if out is not None:
            out = tuple(out) if isinstance(out, tuple | list) else (out,)
        run = self._runner_for(arrays)
        result = run(*arrays, out=out)
        if self._quick is not run.quick:
            self._quick = run.quick
            self.hold(run.quick)
            Kernel.take_calls(_SIGNATURE)
        return result

    def _by_position(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        rest = self.inputs[len(arrays) :]
        if named.keys() == set(rest) and len(arrays) + len(rest) == len(self.inputs):
            return (*arrays, *map(named.__getitem__, rest))
        for name in named:
            if name not in self.inputs:
                bound = (f"'{name}' is a constant of this kernel",) if name in self._constants else ()
                message = f"the kernel has no input '{name}'"
                raise _call_error("D031", message, *(bound or did_you_mean(name, self.inputs)))
        if len(arrays) > len(self.inputs):
            raise _call_error(
                "D030", f"{len(arrays)} arrays were given; the kernel takes {', '.join(self.inputs)}"
            )
        both = [name for name in self.inputs[: len(arrays)] if name in named]
        if both:
            raise _call_error("D032", f"input '{both[0]}' is given by position and by name")
        missing = next(name for name in rest if name not in named)
        inputs = ", ".join(self.inputs)
        raise _call_error("D033", f"input '{missing}' is not given", f"the kernel takes {inputs}")

    def _runner_for(self, arrays: tuple[Any, ...]) -> Runner:
        types: object = self._fixed
        if types is None:
            try:
                types = tuple((a.dtype, a.shape) for a in arrays)
            except AttributeError:
                arrays = tuple(as_array(n, a) for n, a in zip(self.inputs, arrays, strict=True))
                types = tuple((a.dtype, a.shape) for a in arrays)
        lie = self._accepted(layouts_of(arrays, self._fixed))
        found = self._runners.get((types, lie))
        if found is not None:
            return found
        named = self._fixed
        if named is None:
            named = tuple(as_type(as_array(n, a), n) for n, a in zip(self.inputs, arrays, strict=True))
        layouts = self._chosen(named, lie)
        made = self._specialise(named, layouts)
        run = made.runner
        with self._lock:
            if self._fixed is None:
                self._latest = made
            if len(self._runners) >= MAX_SPECIALISATIONS:
                self._runners.pop(next(iter(self._runners)))
            if layouts == lie:
                self._runners[types, lie] = run
        return run

    def _accepted(self, layouts: Layouts) -> Layouts:
        """Layouts if code may be made for them: a Stripe program says itself how its inputs lie, and choices
        that are given belong to a program as it is."""
        frontend = self._frontend
        free = frontend.fixed is None and frontend.expected is None and self.hw.executor == "cpu"
        return layouts if free else ()

    def _chosen(self, types: tuple[TensorType, ...], lie: Layouts) -> Layouts:
        """The layouts of the code for arrays that lie so: their own if there is none that takes them, or if
        they have come before; else they are copied."""
        made = [layouts for known, layouts in tuple(self._made) if known == types]
        if not made or lie in made:
            return lie
        if len(self._met) >= MAX_SPECIALISATIONS:
            self._met.clear()
        calls = self._met[types, lie] = self._met.get((types, lie), 0) + 1
        again = self._adapts and calls >= _WORTH_IT and len(made) < _MAX_LAYOUTS
        return lie if again else next((known for known in made if takes(known, lie)), lie)

    def _specialise(self, types: tuple[TensorType, ...], layouts: Layouts) -> Specialisation:
        """Compile for these types, once; a second thread that asks for the same waits."""
        with self._lock, collector_paused():
            found = self._made.get((types, layouts))
            if found is None:
                named = dict(zip(self.inputs, types, strict=True))
                named |= {name: as_type(array, name) for name, array in self._constants.items()}
                found = self._compiled(named, layouts)
                if len(self._made) >= MAX_SPECIALISATIONS:
                    self._made.pop(next(iter(self._made)))
                self._made[types, layouts] = found
            return found

    def _compiled(self, types: Mapping[str, TensorType], layouts: Layouts) -> Specialisation:
        """What other processes kept, or else a program after every pass."""
        name, frontend, hw = self._frontend.name, self._frontend, self.hw
        strides: dict[str, Steps] = {}
        lowered = frontend.lower(types, self._constants) if layouts else None
        if lowered is not None:
            named = zip(self.inputs, layouts, strict=True)
            strides = {n: steps for n, steps in named if steps and takes_strides(lowered, n, steps)}
            lowered = with_strides(lowered, strides)

        def compilation() -> Compilation:
            program = frontend.lower(types, self._constants) if lowered is None else lowered
            return optimise(program, hw, verify=self._verify, name=name)

        kept = look_up(frontend, types, self._constants, hw, self._verify, strides)
        made = compilation if kept is not None and kept.native is not None else compilation()
        shapes = {name: types[name].shape for name in strides}
        return Specialisation(name, made, hw, self._constants, kept, strides, shapes)

    @property
    def _current(self) -> Specialisation:
        if self._latest is None:
            raise CompileError(
                Diagnostic(
                    "D042",
                    "the kernel is not compiled yet: its types become known with the first call",
                    notes=("help: give them to compile: shapes={'A': 'f32[3,4]', ...}",),
                )
            )
        return self._latest

    @property
    def stages(self) -> tuple[tuple[str, Program], ...]:
        """The program before the first pass, as ("input", program), and after each one."""
        return self._current.compilation.stages

    @property
    def validation(self) -> str:
        """What verify="full" proved and what it checked by running, in a few lines; else empty."""
        return self._current.compilation.validation

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What the passes did, and why they did not act where they could have."""
        return self._current.compilation.remarks

    @property
    def program(self) -> Program:
        """The program after the last pass."""
        return self._current.program

    @property
    def stripe(self) -> str:
        """The program after the last pass, as Stripe text."""
        return to_text(self._current.program)

    @property
    def runner(self) -> Runner:
        """What runs the kernel, made now if it was not called yet."""
        return self._current.runner

    @property
    def module(self) -> Module:
        """The native code. Raises CompileError C001 where the target has none."""
        return self._current.module

    @property
    def llvm(self) -> str:
        """The LLVM IR."""
        return self.module.llvm

    @property
    def asm(self) -> str:
        """The assembly."""
        return self.module.asm

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the program and the target; native code is made anew where it is read."""
        given = (self._frontend, self.hw, self._types, self._constants, self._verify)
        return Kernel, (*given, self._layouts, self._adapts)

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(self.inputs), ", ".join(self.outputs)
        return f"<stripec.Kernel {self._frontend.name}({inputs}) -> ({outputs}) on {self.hw.name}>"


def compile(
    source: str | os.PathLike[str] | Program,
    shapes: Mapping[str, TypeLike] | None = None,
    target: Target = "host",
    threads: int | None = None,
    constants: Mapping[str, Any] | None = None,
    verify: Literal["off", "on", "full"] = "on",
    deterministic: bool = False,
    mapping: MappingLike = None,
) -> Kernel:
    """Compile a Tile program for a target.

    `source`: Tile text, the path of a Tile or Stripe file, or a Stripe program.
    `shapes`: the type of each input by name, as `"f32[3,4]"`, `("f32", (3, 4))` or an array like
    it; left out, the kernel is compiled on its first call for each set of types. Code takes arrays as they
    are that lie as the one given here, or in the first call: row-major, with strides, backwards. Others are
    copied; if such come again, code is made for them, too (not if `deterministic`: it may add up in another
    order).
    `target`: `"host"`, the name of a shipped config, the path of a JSON file, or a HwConfig.
    `threads`: on how many threads the kernel runs; None means OMP_NUM_THREADS of this moment, else all
    cores that the process may use. Small kernels run on one.
    `constants`: inputs bound now, by name; they are copied, and no longer arguments of the kernel.
    `verify`: `"on"` proves the program well formed after every pass, `"full"` also that it computes
    what it did before (`kernel.validation` says what was proved), `"off"` trusts the passes.
    `deterministic`: the same bits for every number of threads; else sums of floats that are cut for threads
    may differ in the last ones.
    `mapping`: a file with the choices of passes for this program and target, as `stripec map` writes it.

    Raises CompileError, whose text says what is wrong, where, and what to do.
    """
    with collector_paused():
        threads = check_threads(threads)
        check_verify_level(verify)
        frontend, hw = mapped(mapping, read_program(source), resolve_target(target))
        hw = with_threads(hw, threads_for(hw, threads), deterministic)
        options: tuple[tuple[str, object], ...] = (("shapes", shapes), ("constants", constants))
        for what, given in options:
            if given is not None and not isinstance(given, Mapping):
                message = f"{what} is of type {type(given).__name__}; expected a dict with names of inputs"
                raise _call_error("D020", message)
        bound = {name: _constant(name, value, frontend) for name, value in (constants or {}).items()}
        types = frontend.fixed_types() if frontend.fixed is not None else None
        if shapes is not None:
            types = _types(frontend, shapes, bound)
        elif set(bound) == set(frontend.inputs):
            types = {}
        layouts: Layouts = ()
        if shapes is not None and types is not None:
            inputs = [name for name in frontend.inputs if name not in bound]
            layouts = layouts_of([shapes.get(n) for n in inputs], [types[n] for n in inputs])
        return Kernel(frontend, hw, types, bound, verify, layouts, not deterministic)


def _constant(name: str, value: Any, frontend: Frontend) -> Array:
    if name not in frontend.inputs:
        message = f"constant '{name}': the program has no such input"
        raise _call_error("D031", message, *did_you_mean(name, frontend.inputs))
    given = as_array(name, value)
    as_type(given, name)
    return lasting(_native_order(given))


def check_types(frontend: Frontend, shapes: Mapping[str, TypeLike] | None) -> dict[str, TensorType]:
    """The types of the inputs as `shapes` gives them; those of a Stripe text are part of it. Raises
    CompileError D0## for what is missing or unknown."""
    given: object = shapes
    if given is not None and not isinstance(given, Mapping):
        message = f"shapes is of type {type(given).__name__}; expected a dict with names of inputs"
        raise _call_error("D020", message)
    fixed = frontend.fixed_types()
    return fixed | _types(frontend, {name: fixed[name] for name in fixed} | dict(shapes or {}), {})


def _types(
    frontend: Frontend, shapes: Mapping[str, TypeLike], constants: Mapping[str, Array]
) -> dict[str, TensorType]:
    for name in shapes:
        if name not in frontend.inputs:
            message = f"shapes: the program has no input '{name}'"
            raise _call_error("D031", message, *did_you_mean(name, frontend.inputs))
    types = {name: as_type(value, name) for name, value in shapes.items()}
    for name in constants.keys() & types.keys():
        if as_type(constants[name], name) != types[name]:
            message = f"'{name}' is {types[name]} in shapes and {as_type(constants[name], name)} in constants"
            raise _call_error("D023", message)
    for name in frontend.inputs:
        if name not in types and name not in constants:
            note = f"help: add it to shapes: {{..., '{name}': 'f32[...]'}}"
            raise _call_error("D033", f"the type of input '{name}' is not given", note)
    return types


def _call_error(code: str, message: str, *notes: str) -> CompileError:
    return CompileError(Diagnostic(code, message, notes=notes))
