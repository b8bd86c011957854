"""Native code as a function on NumPy arrays.

Nothing reaches native code unchecked: element type, shape, byte order, strides and alignment of
each array are what the code was compiled for, or a copy is made that has them. From its third call on, a
kernel takes what fits as it is through a C function (codegen_cpu.calls). The GIL is released
while native code runs, unless it is over at once; a kernel may be called from several threads at once. One
that runs on several threads itself waits for its turn: codegen_cpu.parallel_dispatch.

Codes: C010 element type, C011 shape, C012 number of inputs, C013 unknown name, C014 an input is
missing or given twice, C015 `out` does not fit, C016 not an array, C017 no memory left.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from codegen_cpu.build import Module
from codegen_cpu.calls import Operand, QuickCall, address_of, quick_call, refuse, whole_line
from codegen_cpu.host import check_runs_here
from codegen_cpu.jit import Loaded
from codegen_cpu.layout import ALIGNMENT, elements
from codegen_cpu.native import Entry, Native
from codegen_cpu.parallel_dispatch import dispatch, openmp_symbols
from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.dtypes import TensorType, from_numpy
from stripe.input_strides import Steps
from stripe.ir import Direction, Refinement, contiguous

Array: TypeAlias = "np.ndarray[Any, Any]"
_Arrays: TypeAlias = "tuple[Array, ...]"

_SMALL = 4096  # bytes: below, an array of NumPy's own is as good
_WORTH_IT = 2  # calls, after which more are expected
_MOST_WORK = 10_000  # steps of NumPy's search for a byte that arrays have in common; some milliseconds


class NativeKernel:
    """A compiled program. Call it with its inputs, by position or by name.

    The result is an array, or a tuple in the order of the outputs. Inputs are anything that NumPy
    takes for an array, or that has `__dlpack__`; an element type or shape that differs from the
    program's is a CompileError, strides and byte orders are not. `out` takes the results: an
    array, or a tuple with one for each output.

    `constants` are inputs by name that are given once, and no arguments of a call: arrays that nobody
    writes to. `quick` runs the kernel on a tuple of arrays and `out`, or refuses: codegen_cpu.calls.
    `steps` are the strides of arrays that some inputs are taken as they lie in, in elements: the code runs on
    what `stripe.input_strides` made of them, which begins at the other end of what lies backwards, and has
    one element of what repeats. It is for the caller to see that this does repeat.

    Raises CompileError C004 if this machine's CPU can't run the code.
    """

    def __init__(
        self,
        made: Module | Native,
        constants: Mapping[str, Array] | None = None,
        steps: Mapping[str, Steps] | None = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        check_runs_here(made.hw)
        native = made.native if isinstance(made, Module) else made
        parallel = native.is_parallel
        names = [n for e in (native.entry, native.load_entry) if e for n in (e.packed, e.in_workspace)]
        symbols = openmp_symbols() if parallel else ()
        self._loaded = Loaded(native.target, native.object_code, names, symbols)
        self._main = _Native(self._loaded, native.entry, parallel)
        self._is_short = native.is_short
        entry = native.load_entry
        bound = constants or {}
        self._load = None if entry is None else _LoadTime(_Native(self._loaded, entry, parallel), bound)
        ready = set() if entry is None else {r.name for r in entry.tensors if r.direction.writes}
        laid, whole = steps or {}, shapes or {}
        self._taken = {  # by the root
            ref.name: _Tensor(ref, laid.get(ref.name), whole.get(ref.name)) for ref in native.inputs
        }
        self._constants = {name: self._taken[name].accepted(array) for name, array in bound.items()}
        given = [tensor for name, tensor in self._taken.items() if name not in bound and name not in ready]
        self._tensors = {tensor.name: tensor for tensor in given}
        self._inputs = tuple(given)
        self._outputs = tuple(_Tensor(ref) for ref in native.outputs)
        self._calls = 0
        self.quick: QuickCall = refuse

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self._outputs)

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        if named or len(arrays) != len(self._inputs):
            arrays = self._by_position(arrays, named)
        if isinstance(out, tuple) and len(out) == 1:
            out = out[0]
        result = self.quick(arrays, out)
        return self._carefully(arrays, out) if result is NotImplemented else result

    def _carefully(self, arrays: tuple[Any, ...], out: Any) -> Any:
        calls = self._calls = self._calls + 1
        if calls == _WORTH_IT:
            self.quick = self._made_quick()
        given = tuple(t.accepted(a) for t, a in zip(self._inputs, arrays, strict=True))
        if out is None:
            result = self.quick(given, None)
            if result is not NotImplemented:
                return result
            results = tuple(tensor.empty() for tensor in self._outputs)
            self._run(given, results)
        else:
            results = self._checked_out(out)
            targets = tuple(t.target(o, given) for t, o in zip(self._outputs, results, strict=True))
            self._run(given, targets)
            for result, target in zip(results, targets, strict=True):
                if result is not target:
                    result[...] = target
        return results[0] if len(results) == 1 else results

    def _run(self, given: _Arrays, results: _Arrays) -> None:
        if self.quick(given, results[0] if len(results) == 1 else results) is not NotImplemented:
            return
        if self._constants or self._load is not None:
            given = self._with_constants(given)
        self._main(given + results)

    def _with_constants(self, given: _Arrays) -> _Arrays:
        """The inputs of the root: with the constants, and what the load-time program makes."""
        named = dict(zip(self._tensors, given, strict=True)) | self._constants
        if self._load is not None:
            named |= self._load(named)
        return tuple(named[name] for name in self._taken)

    def _made_quick(self) -> QuickCall:
        """The quick call, if the load-time program has run for good."""
        bound = self._constants
        if self._load is not None:
            if not self._load.reads <= bound.keys():
                return refuse
            bound = bound | self._load(bound)
        inputs = [tensor.operand(bound.get(name)) for name, tensor in self._taken.items()]
        outputs = [tensor.operand() for tensor in self._outputs]
        return self._main.quick(inputs, outputs, self._is_short)

    # -- arguments -----------------------------------------------------------------------

    def _by_position(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        names = self.inputs
        listed = ", ".join(names) or "none"
        if len(arrays) > len(names):
            raise _error("C012", f"{len(arrays)} inputs were given, expected {len(names)} ({listed})")
        for name in named:
            if name not in self._tensors:
                raise _error("C013", f"no input is named '{name}'", *did_you_mean(name, names))
            if name in names[: len(arrays)]:
                raise _error("C014", f"input '{name}' is given by position and by name")
        for name in names[len(arrays) :]:
            if name not in named:
                raise _error("C014", f"input '{name}' is missing", f"the inputs are: {listed}")
        return (*arrays, *(named[name] for name in names[len(arrays) :]))

    def _checked_out(self, out: Any) -> _Arrays:
        results = out if isinstance(out, tuple) else (out,)
        if len(results) != len(self._outputs):
            names = ", ".join(self.outputs)
            raise _error("C015", f"out has {len(results)} arrays, expected {len(self._outputs)} ({names})")
        for tensor, result in zip(self._outputs, results, strict=True):
            tensor.check_out(result)
        for number, result in enumerate(results):
            if any(share_memory(result, other) for other in results[:number]):
                raise _error(
                    "C015", f"out for '{self._outputs[number].name}' shares memory with another output"
                )
        return results


class _Tensor:
    """What native code takes for one tensor: its element type, shape and strides. `steps` and `shape` are
    those of the arrays, where these differ."""

    def __init__(
        self, ref: Refinement, steps: Steps | None = None, shape: tuple[int, ...] | None = None
    ) -> None:
        self.name = ref.name
        self.shape = ref.shape if shape is None else shape
        self.type = TensorType(ref.dtype, self.shape)
        self._lies = ref.shape
        self._steps = steps if steps is not None and min(steps, default=1) <= 0 else None
        self._part = None if self._steps is None else tuple(map(_part, self._steps))
        self.dtype = ref.dtype.numpy
        strides = ref.strides if ref.strides is not None else contiguous(ref.shape)
        self.elements = elements(ref.shape, strides)
        self.strides = tuple(s * ref.dtype.bytes for s in strides)
        self.is_row_major = strides == contiguous(ref.shape) or not self.elements
        self._is_plain = self.is_row_major and self.elements * ref.dtype.bytes < _SMALL

    def accepted(self, value: Any) -> Array:
        """The array itself if native code can take it as it is, else a copy that it can."""
        if type(value) is np.ndarray and value.dtype is self.dtype and value.shape == self.shape:
            array = value
        else:
            array = self._checked(as_array(self.name, value))
        if self._part is not None:
            array = array[self._part]
        return array if self._fits(array) else self._copied(array)

    def operand(self, bound: Array | None = None) -> Operand:
        """What a quick call checks."""
        size, strides, offset = self.elements * self.dtype.itemsize, self.strides, 0
        if self._steps is not None:
            strides = tuple(step * self.dtype.itemsize for step in self._steps)
            offset = sum((n - 1) * min(stride, 0) for n, stride in zip(self.shape, strides, strict=True))
        return Operand(self.dtype, self.shape, strides, size, not self._is_plain, bound, offset)

    def _checked(self, array: Array) -> Array:
        if array.dtype != self.dtype:
            native = array.dtype.newbyteorder("=")
            if native != self.dtype:
                found = from_numpy(native)
                raise _error(
                    "C010",
                    f"input '{self.name}' has elements of type {found.value if found else array.dtype}, "
                    f"expected {self.type.dtype.value}",
                    f"help: convert it: {self.name}.astype('{self.dtype}')",
                )
            array = array.astype(self.dtype)
        elif array.dtype is not self.dtype:  # as after unpickling
            array = array.view(self.dtype)
        if array.shape != self.shape:
            raise _error(
                "C011", f"input '{self.name}' has shape {array.shape}, expected {self.shape}", *self._hint()
            )
        return array

    def _hint(self) -> tuple[str, ...]:
        return (f"the program was compiled for {self.name}: {self.type}",)

    def _fits(self, array: Array) -> bool:
        """Whether the layout is the one that the code was compiled for."""
        if not array.flags.aligned:
            return False
        if array.strides == self.strides:
            return True
        if not array.size:
            return True
        steps = zip(array.shape, array.strides, self.strides, strict=True)
        return all(size == 1 or here == wanted for size, here, wanted in steps)

    def _copied(self, array: Array) -> Array:
        made = self.empty()
        made[...] = array
        return made

    def empty(self) -> Array:
        """A new array in this layout; large ones start at a whole cache line."""
        size = self.elements * self.dtype.itemsize
        if self._is_plain:
            return np.empty(self._lies, self.dtype)
        memory = _memory(size, f"tensor '{self.name}'")
        skip = -address_of(memory) % ALIGNMENT
        flat = memory[skip : skip + size].view(self.dtype)
        if self.is_row_major:
            return flat.reshape(self._lies)
        return np.lib.stride_tricks.as_strided(flat, self._lies, self.strides)

    def check_out(self, value: Any) -> None:
        what = f"out for '{self.name}'"
        if not isinstance(value, np.ndarray):
            raise _error("C015", f"{what} is a {type(value).__name__}, expected an array")
        if value.dtype != self.dtype or value.shape != self.shape:
            found = from_numpy(value.dtype)
            shown = TensorType(found, value.shape) if found else f"{value.dtype}{list(value.shape)}"
            raise _error("C015", f"{what} is {shown}, expected {self.type}")
        if not value.flags.writeable:
            raise _error("C015", f"{what} is read-only")
        if value.strides != self.strides and _meets_itself(value):
            raise _error("C015", f"{what} has elements that share memory: strides of {value.strides} bytes")

    def target(self, out: Array, given: _Arrays) -> Array:
        """`out`, or a temporary array where native code can't write to it directly."""
        overlaps = any(np.may_share_memory(out, array) for array in given)
        return out if self._fits(out) and not overlaps else self.empty()


def share_memory(array: Array, other: Array) -> bool:
    """Whether two arrays have a byte in common; where that is hard to find out, they count as having one."""
    try:
        found = np.shares_memory(array, other, max_work=_MOST_WORK)  # type: ignore[arg-type]  # any number is good
        return bool(found)
    except np.exceptions.TooHardError:
        return True


def _part(step: int) -> slice:
    """What is taken of a dimension: forwards, or one element where it repeats."""
    return slice(None) if step > 0 else slice(None, None, -1) if step else slice(0, 1)


def _meets_itself(array: Array) -> bool:
    """Whether two elements of an array share a byte."""
    steps = sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    if not array.size:
        return False
    reach = array.itemsize
    for step, size in steps:
        if step < reach:
            break
        reach += step * (size - 1)
    else:
        return False
    # Dimensions that lie within each other's steps are rare: all places are looked at.
    places = np.zeros((1,), np.int64)
    for step, size in steps:
        places = np.add.outer(places, step * np.arange(size)).ravel()
    places.sort()
    return bool((np.diff(places) < array.itemsize).any())


def _memory(size: int, what: str) -> Array:
    """Bytes, with room to start at a whole cache line."""
    try:
        return np.empty(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError, OverflowError):
        raise _error("C017", f"no memory for the {size} bytes of {what}") from None


def lasting(array: Array) -> Array:
    """A copy that nobody can write to, row-major, from a whole cache line on: a vector that lies on two takes
    twice as long to load, at every call."""
    memory = _memory(array.nbytes, "a constant")
    skip = -address_of(memory) % ALIGNMENT
    made = memory[skip : skip + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    made.flags.writeable = memory.flags.writeable = False
    return made


def as_array(name: str, value: Any) -> Array:
    """What was given for input `name`, as an array. Raises CompileError C016 if it is none."""
    if isinstance(value, np.ma.MaskedArray):
        note = f"help: give the values that masked elements shall have: {name}.filled(0)"
        raise _error("C016", f"input '{name}' is a masked array, and its mask would be lost", note)
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
            array: Array = np.from_dlpack(value)
        else:
            array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise _error("C016", f"input '{name}' is no array: {error}") from None
    if array.dtype.hasobject:
        if isinstance(value, int):
            raise _error("C016", f"input '{name}' is {value}, which no element type holds")
        what = f"an array of '{array.dtype}'" if array is value else f"'{type(value).__name__}'"
        raise _error("C016", f"input '{name}' is {what}, which is no array of numbers")
    return array


class _Native:
    """One entry point. Its workspace is kept for each thread that calls.

    One with parallel regions runs on the dispatcher, which enters them for all threads.
    """

    def __init__(self, loaded: Loaded, entry: Entry, parallel: bool) -> None:
        count = len(entry.tensors) + 1
        if parallel:
            self._arguments = ctypes.c_void_p * count
            self._packed = loaded.address(entry.packed)
            self._function: Callable[..., Any] = self._dispatched
        else:
            kinds = [ctypes.c_void_p] * count
            self._function = ctypes.CFUNCTYPE(None, *kinds)(loaded.address(entry.in_workspace))
        self._parallel = parallel
        self._loaded = loaded  # the code lives as long as this does
        self._bytes = entry.workspace_bytes
        self._local = threading.local()
        self.entry = entry

    def __call__(self, arrays: _Arrays) -> None:
        pointers = [address_of(array) for array in arrays]
        self._function(*pointers, self._workspace() if self._bytes else None)

    def quick(self, inputs: Sequence[Operand], outputs: Sequence[Operand], short: bool) -> QuickCall:
        try:
            workspace = _memory(self._bytes, "the program's own tensors") if self._bytes else None
        except CompileError:  # the careful call says it
            return refuse
        return quick_call(
            self._loaded,
            self.entry.packed,
            inputs,
            outputs,
            workspace,
            dispatch=dispatch if self._parallel else None,
            short=short,
        )

    def _dispatched(self, *pointers: int | None) -> None:
        arguments = self._arguments(*pointers)
        dispatch(self._packed, ctypes.addressof(arguments))

    def _workspace(self) -> int:
        address: int | None = getattr(self._local, "address", None)
        if address is None:
            memory = _memory(self._bytes, "the program's own tensors")
            address = whole_line(memory)
            self._local.memory, self._local.address = memory, address
        return address


class _LoadTime:
    """The load-time program; its results are kept while the same arrays come in, if nobody can
    write to them. Nobody writes to those that are `bound`."""

    def __init__(self, native: _Native, bound: Collection[str]) -> None:
        self._native = native
        self._bound = frozenset(bound)
        self._tensors = tuple(_Tensor(ref) for ref in native.entry.tensors)
        self._writes = tuple(ref.direction is not Direction.IN for ref in native.entry.tensors)
        self._kept: tuple[_Arrays, dict[str, Array]] | None = None
        both = zip(self._tensors, self._writes, strict=True)
        self.reads = {tensor.name for tensor, writes in both if not writes}

    def __call__(self, named: Mapping[str, Array]) -> dict[str, Array]:
        """The further inputs of the root, by name."""
        both = tuple(zip(self._tensors, self._writes, strict=True))
        given = tuple(named[tensor.name] for tensor, writes in both if not writes)
        open_ = (
            named[tensor.name] for tensor, writes in both if not writes and tensor.name not in self._bound
        )
        kept = self._kept
        if kept is not None and all(a is b for a, b in zip(kept[0], given, strict=True)):
            return kept[1]
        arrays = tuple(t.empty() if writes else named[t.name] for t, writes in both)
        self._native(arrays)
        made = {t.name: a for (t, writes), a in zip(both, arrays, strict=True) if writes}
        if all(map(_is_constant, open_)):
            self._kept = (given, made)
        return made


def _is_constant(array: Array) -> bool:
    """Whether an array stays as it is: it and all that it is a view of are read-only, and its memory is no
    array's own, which could be made writeable again."""
    memory: object = array
    while isinstance(memory, np.ndarray):
        if memory.flags.writeable or memory.flags.owndata:
            return False
        memory = memory.base
    try:
        return memoryview(memory).readonly  # type: ignore[arg-type]
    except TypeError:
        return False


def _error(code: str, message: str, *notes: str) -> CompileError:
    return CompileError(Diagnostic(code, message, notes=notes))
