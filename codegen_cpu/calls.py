"""Quick calls: arrays that are exactly as the code was compiled for go to it through one C function.

    quick = quick_call(loaded, symbol, inputs, outputs, workspace)
    result = quick((a, b), None)            new arrays take the result
    result = quick((a, b), c)               c does, or a tuple for several outputs

The answer is NotImplemented, and nothing has happened, if anything is not as it has to be: another type
(subclasses of ndarray too), element type, shape, stride or alignment, an output that is read-only or
overlaps, a workspace that another thread uses, no memory. The caller then goes the careful way, which has
the copies and the messages.

The C function (codegen_cpu.calls_native) is made when a first kernel asks for it, in some milliseconds.
Where Python or NumPy is not built as it expects, every call is careful.

To call an object whose class has `__call__` in Python takes longer than many a kernel: so the class of
kernels gets it from the same code (`take_calls`) as soon as one of them has a quick call.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any, TypeAlias

import numpy as np

from codegen_cpu import calls_native as native
from codegen_cpu.jit import Loaded, plain_object_code
from codegen_cpu.layout import ALIGNMENT
from codegen_cpu.ll import Module as Text
from codegen_cpu.llvm import llvm_lock
from codegen_cpu.target import Target, process_triple
from stripe.ir import Block, Special

Array: TypeAlias = "np.ndarray[Any, Any]"
QuickCall: TypeAlias = Callable[[tuple[Any, ...], Any], Any]

_SHORT = 4096  # statements, at most: so few are over in the time that a hand-over of the GIL takes

_PYTHON = (
    "PyLong_AsVoidPtr", "PyTuple_GetItem", "PyTuple_SetItem", "PyTuple_Size", "PyTuple_New",
    "Py_IncRef", "Py_DecRef", "PyErr_Clear", "PyObject_CallFunction",
    "PyEval_SaveThread", "PyEval_RestoreThread", "PyObject_Vectorcall",
)  # fmt: skip

# Places in the table of NumPy's C functions, which are the same in all its versions.
_ABI_VERSION = 0
_NUMPY = {"PyArray_NewFromDescr": 94, "PyArray_SetBaseObject": 282}
_KNOWN_ABIS = (0x1000009, 0x2000000)

_FAST_CONVENTION = 0x0080  # METH_FASTCALL: the function takes `self`, an array of arguments, their number
_WITH_NAMES = 0x0002  # METH_KEYWORDS: and the names of those behind these


def refuse(arrays: tuple[Any, ...], out: Any) -> Any:
    """The quick call of what has none."""
    return NotImplemented


@dataclass(frozen=True, slots=True)
class Operand:
    """What native code takes for one tensor; `strides` are in bytes.

    `bound`: the array itself, if it is no argument of the call. `aligned`: a new array starts at a whole
    cache line. `offset`: how many bytes from the first element the code wants to begin, of an array that
    lies backwards.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bytes: int
    aligned: bool
    bound: Array | None = None
    offset: int = 0


def quick_call(
    loaded: Loaded,
    packed: str,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    workspace: Array | None,
    *,
    dispatch: Callable[[int, int], None] | None = None,
    short: bool = False,
) -> QuickCall:
    """The quick call of the function `packed`, which takes an array of pointers: inputs, outputs, workspace.

    `dispatch` runs functions of one argument, both given as addresses; None: they are called here, without
    the GIL unless they are `short`.
    """
    operands = (*inputs, *outputs)
    usual = all(o.bytes and (o.offset or all(stride >= 0 for stride in o.strides)) for o in operands)
    if not outputs or not usual:  # the strides of arrays without elements are NumPy's affair
        return refuse
    with llvm_lock():  # threads that come at the same time get one code: nothing else keeps it
        code = _code()
    if code is None:
        return refuse
    tensors = (native.Tensor * len(operands))()
    kept: list[object] = [loaded, code, tensors, operands, workspace, dispatch]
    for number, (tensor, operand) in enumerate(zip(tensors, operands, strict=True)):
        rank = len(operand.shape)
        sizes = (ctypes.c_int64 * rank)(*operand.shape)
        strides = (ctypes.c_int64 * rank)(*operand.strides)
        kept += [sizes, strides]
        writes = native.WRITEABLE if number >= len(inputs) else 0
        tensor.bound = None if operand.bound is None else address_of(operand.bound)
        tensor.dtype = id(operand.dtype)
        tensor.flags = native.ALIGNED | writes
        tensor.rank = rank
        tensor.sizes, tensor.strides = ctypes.addressof(sizes), ctypes.addressof(strides)
        tensor.bytes = operand.bytes
        tensor.room = operand.bytes + ALIGNMENT if operand.aligned else 0
        tensor.offset = operand.offset
    call = native.Call(
        function=loaded.address(packed),
        dispatch=None if dispatch is None else id(dispatch),
        workspace=None if workspace is None else whole_line(workspace),
        needs_workspace=workspace is not None,
        short=short,
        given=sum(o.bound is None for o in inputs),
        inputs=len(inputs),
        outputs=len(outputs),
        tensors=ctypes.addressof(tensors),
        none=id(None),
        not_implemented=id(NotImplemented),
        tuple_type=id(tuple),
        array_type=id(np.ndarray),
        byte_type=id(_BYTE),
        out_name=id(_OUT),
    )
    return code.function((ctypes.addressof(call), call, *kept))


def address_of(array: Array) -> int:
    """Where the first element of an array lies in memory."""
    address: int = array.__array_interface__["data"][0]
    return address


def whole_line(memory: Array) -> int:
    """The first address in bytes of memory at which a cache line starts."""
    address = address_of(memory)
    return address + -address % ALIGNMENT


def is_short(root: Block) -> bool:
    """Whether one run executes so few statements that other threads of Python had better wait for it."""
    count = 0
    left = [(root, 1)]
    while left and count <= _SHORT:
        block, times = left.pop()
        for size in block.ranges.values():
            times *= size
        for statement in block.statements:
            if isinstance(statement, Special):
                return False
            if isinstance(statement, Block):
                left.append((statement, times))
            else:
                count += times
    return count <= _SHORT


# -- the C function of this process ------------------------------------------------------------

_BYTE = np.dtype(np.uint8)
_OUT = sys.intern("out")


class Called:
    """What is called as quickly as a function: `take_calls` gives its class another `__call__`.

    `_held` leads to the quick call, and is not set if there is none; `_slow` is the function that takes the
    same arguments, and the object first.
    """

    __slots__ = ("_held", "_slow")

    _held: object
    _slow: object

    def hold(self, quick: QuickCall) -> None:
        """Have this quick call take what the object is called with."""
        if isinstance(quick, BuiltinFunctionType):
            self._held = quick.__self__
        elif hasattr(self, "_held"):
            del self._held

    @classmethod
    def take_calls(cls, document: str) -> None:
        """Call objects of this class through native code, once one of them holds a quick call."""
        code = _code()
        in_python = not isinstance(cls.__dict__.get("__call__"), MethodDescriptorType)
        if code is not None and in_python and _slots_are_known():
            type.__setattr__(cls, "__call__", code.method(cls, document))


class _MethodDef(ctypes.Structure):
    """PyMethodDef of Python's ABI."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Code:
    """The machine code, and how to make a function of Python of it."""

    def __init__(self, symbols: Sequence[tuple[str, int]]) -> None:
        target = Target(process_triple(), "", (), 16, False, False, False, ())
        text = Text(target.triple, target.layout())
        native.write(text)
        names = (native.QUICK, native.CALLED)
        self._loaded = Loaded(target, plain_object_code(target, text.text()), names, symbols)
        self._method = _MethodDef(b"quick", self._loaded.address(native.QUICK), _FAST_CONVENTION, None)
        kinds = (ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        address = _address("PyCFunction_NewEx")
        self._make = ctypes.PYFUNCTYPE(*kinds)(address)
        self._called: list[_MethodDef] = []

    def method(self, owner: type, document: str) -> object:
        """`__call__` of a class below `Called`."""
        address, how = self._loaded.address(native.CALLED), _FAST_CONVENTION | _WITH_NAMES
        self._called.append(_MethodDef(b"__call__", address, how, document.encode()))
        kinds = (ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
        made: object = ctypes.PYFUNCTYPE(*kinds)(_address("PyDescr_NewMethod"))(
            owner, ctypes.addressof(self._called[-1])
        )
        return made

    def function(self, kept: tuple[object, ...]) -> QuickCall:
        """A function with a Call, whose address comes first in `kept`; it keeps alive what follows."""
        made: QuickCall = self._make(ctypes.addressof(self._method), kept, None)
        return made


@cache
def _code() -> _Code | None:
    """The code for this process; None if Python or NumPy is built otherwise than it expects."""
    symbols = _symbols()
    return _Code(symbols) if symbols and _layout_is_known() else None


def _symbols() -> list[tuple[str, int]]:
    """The functions of Python and NumPy that the code calls; none if they are not to be had."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return []
    try:
        found = [(name, _address(name)) for name in _PYTHON]
        capsule = import_module("numpy._core._multiarray_umath")._ARRAY_API
    except (AttributeError, ImportError):
        return []
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        _address("PyCapsule_GetPointer")
    )
    table = (ctypes.c_void_p * (max(_NUMPY.values()) + 1)).from_address(pointer_of(capsule, None))
    version = ctypes.PYFUNCTYPE(ctypes.c_uint)(table[_ABI_VERSION] or 0)
    if version() not in _KNOWN_ABIS:
        return []
    return found + [(name, table[place] or 0) for name, place in _NUMPY.items()]


def _address(name: str) -> int:
    """Where a function of Python's C interface lies."""
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert found is not None
    return found


def _layout_is_known() -> bool:
    """Whether arrays lie in memory as the code expects: looked up in some that differ in every field."""
    if object.__basicsize__ != native.Array.data.offset or np.ndarray.__basicsize__ < ctypes.sizeof(
        native.Array
    ):
        return False
    return all(_reads(array) for array in _samples())


@cache
def _slots_are_known() -> bool:
    """Whether the slots of `Called` lie where the code expects them."""
    probe, marks = Called(), (object(), object())
    probe._held, probe._slow = marks
    found = native.Called.from_address(id(probe))
    return (found.type, found.held, found.slow) == (id(Called), *map(id, marks))


def _samples() -> Iterator[Array]:
    plain = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    read_only = plain[:, ::2].T
    read_only.flags.writeable = False
    unaligned = np.zeros(9, np.uint8)[1:].view(np.float64)
    yield from (plain, plain[1:, ::-1], read_only, unaligned, plain.astype(">i2"), np.zeros(()))


def _reads(array: Array) -> bool:
    found = native.Array.from_address(id(array))
    if (found.type, found.rank, found.dtype) != (id(np.ndarray), array.ndim, id(array.dtype)):
        return False
    vector = ctypes.c_ssize_t * array.ndim
    flags = native.ALIGNED * array.flags.aligned | native.WRITEABLE * array.flags.writeable
    return (
        found.data == address_of(array)
        and (not array.ndim or tuple(vector.from_address(found.sizes)) == array.shape)
        and (not array.ndim or tuple(vector.from_address(found.strides)) == array.strides)
        and found.flags & (native.ALIGNED | native.WRITEABLE) == flags
    )
