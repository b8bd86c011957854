"""The C function behind quick calls, as LLVM text: `quick(self, (arrays, out))` of Python's fast convention.

It serves every kernel: what it has to know of one is a `Call` in memory, to which `self` leads. It
reads arrays as any extension module does, by NumPy's C structure of an array, and makes new ones with
NumPy's C functions. Whatever is not exactly as the code was compiled for, it leaves to Python: it
returns NotImplemented, and nothing has happened.

`called(self, arguments...)` is a method for objects that are called: their slots lead to the `self` of
`quick`, and to the function of Python that takes the same arguments where that is refused.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from codegen_cpu.layout import ALIGNMENT
from codegen_cpu.ll import I8, I32, I64, PTR, VOID, Function, Module, Type, Value, constant

QUICK = "stripec_quick"
CALLED = "stripec_called"
_FRESH = "stripec_fresh"

ALIGNED, WRITEABLE = 0x100, 0x400  # NumPy's flags of an array

_pointer, _number = ctypes.c_void_p, ctypes.c_int64


class Array(ctypes.Structure):
    """An array, as NumPy's ABI has it (PyArrayObject_fields)."""

    _fields_ = (
        ("references", ctypes.c_ssize_t),
        ("type", _pointer),
        ("data", _pointer),
        ("rank", ctypes.c_int),
        ("sizes", _pointer),
        ("strides", _pointer),
        ("base", _pointer),
        ("dtype", _pointer),
        ("flags", ctypes.c_int),
    )


class Tensor(ctypes.Structure):
    """What native code takes for one tensor. `bound`: its elements, if it is no argument of the call.

    `room`: the bytes to allocate for a new array that has to start at a whole cache line, else 0. `offset`:
    how far from the first element the code wants to begin, in bytes.
    """

    _fields_ = (
        ("bound", _pointer),
        ("dtype", _pointer),
        ("flags", _number),
        ("rank", _number),
        ("sizes", _pointer),
        ("strides", _pointer),
        ("bytes", _number),
        ("room", _number),
        ("offset", _number),
    )


class Call(ctypes.Structure):
    """One kernel. `function` takes an array of pointers: the tensors, `inputs` of them first, then the
    workspace. `workspace` is null while a call uses it; `dispatch`, if any, is a function of Python that
    runs `function`; `short` says that it is over before the GIL could be handed to another thread.
    """

    _fields_ = (
        ("function", _pointer),
        ("dispatch", _pointer),
        ("workspace", _pointer),
        ("needs_workspace", _number),
        ("short", _number),
        ("given", _number),
        ("inputs", _number),
        ("outputs", _number),
        ("tensors", _pointer),
        ("none", _pointer),
        ("not_implemented", _pointer),
        ("tuple_type", _pointer),
        ("array_type", _pointer),
        ("byte_type", _pointer),
        ("out_name", _pointer),
    )


class Called(ctypes.Structure):
    """What the method knows of an object: its slots, `held` is the `self` of `quick`, or null."""

    _fields_ = (
        ("references", ctypes.c_ssize_t),
        ("type", _pointer),
        ("held", _pointer),
        ("slow", _pointer),
    )


_NULL = Value(PTR, "null")


def write(text: Module) -> None:
    """Add the functions to a module."""
    _write_fresh(text)
    _write_quick(text)
    _write_called(text)


def _write_called(text: Module) -> None:
    """The method. Of named arguments it knows `out`."""
    self_, arguments, count, names = (
        Value(PTR, "%self"), Value(PTR, "%arguments"), Value(I64, "%count"), Value(PTR, "%names"),
    )  # fmt: skip
    f = text.function(CALLED, PTR, [(self_, ""), (arguments, ""), (count, ""), (names, "")])
    out, pair = f.alloca(PTR, "out"), f.emit(PTR, "alloca [2 x ptr], align 8", "pair")
    held = _field(f, self_, Called, "held")
    _require(f, "ne", held, _NULL)
    _do(f, "Py_IncRef", held)  # while the GIL is free, another thread may give the object another one
    call = f.call("PyLong_AsVoidPtr", PTR, [f.call("PyTuple_GetItem", PTR, [held, constant(I64, 0)])])
    f.store(_field(f, call, Call, "none"), out, 8)
    unnamed = f.compare("icmp eq", names, _NULL)
    f.branch_if(unnamed, "positional", "named")
    f.start("named")
    _require(f, "eq", f.call("PyTuple_Size", I64, [names]), constant(I64, 1))
    name = f.call("PyTuple_GetItem", PTR, [names, constant(I64, 0)])
    _require(f, "eq", name, _field(f, call, Call, "out_name"))
    f.store(f.load(PTR, f.offset(arguments, PTR, count), 8), out, 8)
    f.branch("positional")
    f.start("positional")
    _require(f, "eq", count, _field(f, call, Call, "given"))
    arrays = f.call("PyTuple_New", PTR, [count])
    _require(f, "ne", arrays, _NULL)
    with _each(f, count) as i:
        array = f.load(PTR, f.offset(arguments, PTR, i), 8)
        _do(f, "Py_IncRef", array)
        f.call("PyTuple_SetItem", I32, [arrays, i, array])
    f.store(arrays, pair, 8)
    f.store(f.load(PTR, out, 8), f.offset(pair, PTR, constant(I64, 1)), 8)
    result = f.emit(PTR, f"call ptr @{QUICK}({held}, {pair}, {constant(I64, 2)})", "result")
    _do(f, "Py_DecRef", arrays)
    refused = f.compare("icmp eq", result, _field(f, call, Call, "not_implemented"))
    f.branch_if(refused, "refused", "answered")
    f.start("answered")
    _do(f, "Py_DecRef", held)
    f.result(result)
    f.start("refused")
    _do(f, "Py_DecRef", result)
    f.branch("refuse")
    f.start("refuse")
    _do(f, "Py_DecRef", held)
    _ask_slow(f, self_, arguments, count, names)


def _ask_slow(f: Function, self_: Value, arguments: Value, count: Value, names: Value) -> None:
    """Leave a call to `slow`, which is given the object and all arguments."""
    _do(f, "PyErr_Clear")
    extra = f.alloca(I64, "extra")
    f.store(constant(I64, 0), extra, 8)
    f.branch_if(f.compare("icmp eq", names, _NULL), "counted", "count_names")
    f.start("count_names")
    f.store(f.call("PyTuple_Size", I64, [names]), extra, 8)
    f.branch("counted")
    f.start("counted")
    total = f.binary("add", count, f.load(I64, extra, 8))
    one = constant(I64, 1)
    room = f.binary("add", total, one)
    copied = f.emit(PTR, f"alloca ptr, {room}, align 8", "copied")
    f.store(self_, copied, 8)
    with _each(f, total) as i:
        argument = f.load(PTR, f.offset(arguments, PTR, i), 8)
        f.store(argument, f.offset(copied, PTR, f.binary("add", i, one)), 8)
    slow, number = _field(f, self_, Called, "slow"), f.binary("add", count, one)
    f.result(f.call("PyObject_Vectorcall", PTR, [slow, copied, number, names]))


def _write_quick(text: Module) -> None:
    self_, arguments = Value(PTR, "%self"), Value(PTR, "%arguments")
    f = text.function(QUICK, PTR, [(self_, ""), (arguments, ""), (Value(I64, "%count"), "")])
    call = f.call("PyLong_AsVoidPtr", PTR, [f.call("PyTuple_GetItem", PTR, [self_, constant(I64, 0)])])
    arrays = f.load(PTR, arguments, 8)
    out = f.load(PTR, f.offset(arguments, PTR, constant(I64, 1)), 8)
    inputs, outputs = _field(f, call, Call, "inputs"), _field(f, call, Call, "outputs")
    tensors = _field(f, call, Call, "tensors")
    total = f.binary("add", inputs, outputs)
    room = f.binary("add", total, constant(I64, 1))
    pointers = f.emit(PTR, f"alloca ptr, {room}, align 8", "pointers")
    results = f.alloca(PTR, "results")
    f.store(_NULL, results, 8)

    _require(f, "eq", f.call("PyTuple_Size", I64, [arrays]), _field(f, call, Call, "given"))
    _take_inputs(f, call, arrays, inputs, tensors, pointers)
    _take_outputs(f, call, out, tensors, pointers, results)
    with _each(f, total, inputs) as i, _each(f, i) as j:
        _require_apart(f, tensors, pointers, i, j)
    _run(f, call, pointers, total, results)
    f.result(f.load(PTR, results, 8))

    f.start("refuse")
    _do(f, "Py_DecRef", f.load(PTR, results, 8))
    _do(f, "PyErr_Clear")
    answer = _field(f, call, Call, "not_implemented")
    _do(f, "Py_IncRef", answer)
    f.result(answer)


def _take_inputs(
    f: Function, call: Value, arrays: Value, inputs: Value, tensors: Value, pointers: Value
) -> None:
    """The pointers of all inputs: those bound, and those of the arrays."""
    taken = f.alloca(I64, "taken")
    f.store(constant(I64, 0), taken, 8)
    with _each(f, inputs) as i:
        tensor = _at(f, tensors, Tensor, i)
        slot = f.offset(pointers, PTR, i)
        bound = _field(f, tensor, Tensor, "bound")
        f.store(bound, slot, 8)
        given, done = f.fresh("given"), f.fresh("done")
        f.branch_if(f.compare("icmp eq", bound, _NULL), given, done)
        f.start(given)
        number = f.load(I64, taken, 8)
        f.store(f.binary("add", number, constant(I64, 1)), taken, 8)
        array = f.call("PyTuple_GetItem", PTR, [arrays, number])
        f.store(_elements(f, call, array, tensor), slot, 8)
        f.branch(done)
        f.start(done)


def _take_outputs(
    f: Function, call: Value, out: Value, tensors: Value, pointers: Value, results: Value
) -> None:
    """The pointers of all outputs, and in `results` what the call returns: `out`, or new arrays."""
    inputs, outputs = _field(f, call, Call, "inputs"), _field(f, call, Call, "outputs")
    several = f.compare("icmp ne", outputs, constant(I64, 1))
    make = f.compare("icmp eq", out, _field(f, call, Call, "none"))
    f.branch_if(make, "make", "take")
    f.start("make")
    f.branch_if(several, "make_tuple", "ready")
    f.start("make_tuple")
    f.store(f.call("PyTuple_New", PTR, [outputs]), results, 8)
    f.branch("ready")
    f.start("take")
    _do(f, "Py_IncRef", out)
    f.store(out, results, 8)
    f.branch_if(several, "take_tuple", "ready")
    f.start("take_tuple")
    _require(f, "eq", _field(f, out, Array, "type"), _field(f, call, Call, "tuple_type"))
    _require(f, "eq", f.call("PyTuple_Size", I64, [out]), outputs)
    f.branch("ready")
    f.start("ready")
    array = f.alloca(PTR, "array")
    with _each(f, outputs) as i:
        number = f.binary("add", inputs, i)
        tensor = _at(f, tensors, Tensor, number)
        f.store(f.load(PTR, results, 8), array, 8)
        labels = {name: f.fresh(name) for name in ("new", "kept", "alone", "item", "known")}
        f.branch_if(make, labels["new"], labels["kept"])
        f.start(labels["new"])
        made = f.emit(PTR, f"call ptr @{_FRESH}({call}, {tensor})", "made")
        _require(f, "ne", made, _NULL)
        f.store(made, array, 8)
        f.branch_if(several, labels["item"], labels["alone"])
        f.start(labels["item"])
        f.call("PyTuple_SetItem", I32, [f.load(PTR, results, 8), i, made])
        f.branch(labels["known"])
        f.start(labels["alone"])
        f.store(made, results, 8)
        f.branch(labels["known"])
        f.start(labels["kept"])
        part = f.fresh("part")
        f.branch_if(several, part, labels["known"])
        f.start(part)
        f.store(f.call("PyTuple_GetItem", PTR, [f.load(PTR, results, 8), i]), array, 8)
        f.branch(labels["known"])
        f.start(labels["known"])
        elements = _elements(f, call, f.load(PTR, array, 8), tensor)
        f.store(elements, f.offset(pointers, PTR, number), 8)


def _elements(f: Function, call: Value, array: Value, tensor: Value) -> Value:
    """Where the elements of an array lie, if they lie as the tensor's; a dimension of size 1 may have
    any stride."""
    _require(f, "eq", _field(f, array, Array, "type"), _field(f, call, Call, "array_type"))
    _require(f, "eq", _field(f, array, Array, "dtype"), _field(f, tensor, Tensor, "dtype"))
    rank = _field(f, tensor, Tensor, "rank")
    _require(f, "eq", _field(f, array, Array, "rank"), rank)
    wanted = _field(f, tensor, Tensor, "flags")
    _require(f, "eq", f.binary("and", _field(f, array, Array, "flags"), wanted), wanted)
    here = [_field(f, array, Array, name) for name in ("sizes", "strides")]
    there = [_field(f, tensor, Tensor, name) for name in ("sizes", "strides")]
    with _each(f, rank) as d:
        (size, stride), (size_wanted, stride_wanted) = (
            [f.load(I64, f.offset(base, I64, d), 8) for base in both] for both in (here, there)
        )
        _require(f, "eq", size, size_wanted)
        one = f.compare("icmp eq", size, constant(I64, 1))
        _require(f, "eq", f.select(one, stride_wanted, stride), stride_wanted)
    return f.offset(_field(f, array, Array, "data"), I8, _field(f, tensor, Tensor, "offset"))


def _require_apart(f: Function, tensors: Value, pointers: Value, i: Value, j: Value) -> None:
    """Tensors i and j share no byte."""
    starts, ends = [], []
    for number in (i, j):
        start = f.load(I64, f.offset(pointers, PTR, number), 8)
        size = _field(f, _at(f, tensors, Tensor, number), Tensor, "bytes")
        starts.append(start)
        ends.append(f.binary("add", start, size))
    before = f.compare("icmp ule", ends[0], starts[1])
    after = f.compare("icmp ule", ends[1], starts[0])
    _require(f, "ne", f.binary("or", before, after), Value(before.type, "false"))


def _run(f: Function, call: Value, pointers: Value, total: Value, results: Value) -> None:
    """Take the workspace, run the kernel, and put the workspace back."""
    held = _address(f, call, Call, "workspace")
    workspace = f.emit(PTR, f"atomicrmw xchg {held}, ptr null acquire, align 8", "workspace")
    is_there = f.compare("icmp ne", workspace, _NULL)
    needless = f.compare("icmp eq", _field(f, call, Call, "needs_workspace"), constant(I64, 0))
    _require(f, "ne", f.binary("or", is_there, needless), Value(is_there.type, "false"))
    f.store(workspace, f.offset(pointers, PTR, total), 8)
    function, dispatch = _field(f, call, Call, "function"), _field(f, call, Call, "dispatch")

    f.branch_if(f.compare("icmp eq", dispatch, _NULL), "here", "elsewhere")
    f.start("here")
    short = f.compare("icmp ne", _field(f, call, Call, "short"), constant(I64, 0))
    f.branch_if(short, "at_once", "released")
    f.start("at_once")
    f.line(f"call void {function.text}({pointers})")
    f.branch("over")
    f.start("released")
    state = f.call("PyEval_SaveThread", PTR, [])
    f.line(f"call void {function.text}({pointers})")
    _do(f, "PyEval_RestoreThread", state)
    f.branch("over")

    f.start("elsewhere")
    f.module.helper("format", '@format = internal constant [3 x i8] c"KK\\00"')
    f.module.declare("PyObject_CallFunction", PTR, [PTR, PTR, Type("...")])
    operands = f"{dispatch}, ptr @format, {function}, {pointers}"
    done = f.emit(PTR, f"call ptr (ptr, ptr, ...) @PyObject_CallFunction({operands})", "done")
    f.branch_if(f.compare("icmp eq", done, _NULL), "failed", "dispatched")
    f.start("failed")  # with an exception set
    f.line(f"store atomic {workspace}, {held} release, align 8")
    _do(f, "Py_DecRef", f.load(PTR, results, 8))
    f.result(_NULL)
    f.start("dispatched")
    _do(f, "Py_DecRef", done)
    f.branch("over")
    f.start("over")
    f.line(f"store atomic {workspace}, {_address(f, call, Call, 'workspace')} release, align 8")


def _write_fresh(text: Module) -> None:
    """`fresh(call, tensor)`: a new array, or null with an exception set."""
    call, tensor = Value(PTR, "%call"), Value(PTR, "%tensor")
    f = text.function(_FRESH, PTR, [(call, ""), (tensor, "")])
    array_type = _field(f, call, Call, "array_type")
    dtype = _field(f, tensor, Tensor, "dtype")
    rank = f.convert("trunc", _field(f, tensor, Tensor, "rank"), I32)
    sizes = _field(f, tensor, Tensor, "sizes")
    room = _field(f, tensor, Tensor, "room")

    def made(*operands: Value) -> Value:
        return f.call("PyArray_NewFromDescr", PTR, [array_type, *operands, _NULL])

    no_flags = constant(I32, 0)
    f.branch_if(f.compare("icmp eq", room, constant(I64, 0)), "plain", "aligned")
    f.start("plain")
    _do(f, "Py_IncRef", dtype)
    f.result(made(dtype, rank, sizes, _NULL, _NULL, no_flags))
    f.start("aligned")
    byte_type = _field(f, call, Call, "byte_type")
    _do(f, "Py_IncRef", byte_type)
    memory = made(byte_type, constant(I32, 1), _address(f, tensor, Tensor, "room"), _NULL, _NULL, no_flags)
    f.branch_if(f.compare("icmp eq", memory, _NULL), "failed", "allocated")
    f.start("failed")
    f.result(_NULL)
    f.start("allocated")
    data = _field(f, memory, Array, "data")
    start = f.binary("sub", constant(I64, 0), f.convert("ptrtoint", data, I64))
    first = f.offset(data, I8, f.binary("and", start, constant(I64, ALIGNMENT - 1)))
    _do(f, "Py_IncRef", dtype)
    strides = _field(f, tensor, Tensor, "strides")
    view = made(dtype, rank, sizes, strides, first, constant(I32, WRITEABLE))
    f.branch_if(f.compare("icmp eq", view, _NULL), "no_view", "viewed")
    f.start("no_view")
    _do(f, "Py_DecRef", memory)
    f.result(_NULL)
    f.start("viewed")
    f.call("PyArray_SetBaseObject", I32, [view, memory])
    f.result(view)


# -- writing it --------------------------------------------------------------------------------


def _do(f: Function, name: str, *operands: Value) -> None:
    """Call a function that gives nothing."""
    f.module.declare(name, VOID, [o.type for o in operands])
    f.line(f"call void @{name}({', '.join(map(str, operands))})")


def _address(f: Function, base: Value, kind: type[ctypes.Structure], name: str) -> Value:
    return f.offset(base, I8, constant(I64, getattr(kind, name).offset))


def _field(f: Function, base: Value, kind: type[ctypes.Structure], name: str) -> Value:
    """A field of a structure in memory; a C int is widened."""
    types: dict[str, Any] = {field[0]: field[1] for field in kind._fields_}
    address = _address(f, base, kind, name)
    if types[name] is ctypes.c_int:
        return f.convert("sext", f.load(I32, address, 4), I64)
    return f.load(PTR if types[name] is _pointer else I64, address, 8)


def _at(f: Function, base: Value, kind: type[ctypes.Structure], number: Value) -> Value:
    """An element of an array of structures."""
    return f.offset(base, I8, f.binary("mul", number, constant(I64, ctypes.sizeof(kind))))


def _require(f: Function, how: str, a: Value, b: Value) -> None:
    """Refuse the call unless two values are equal (`eq`) or differ (`ne`)."""
    good = f.fresh("good")
    f.branch_if(f.compare(f"icmp {how}", a, b), good, "refuse")
    f.start(good)


@contextmanager
def _each(f: Function, end: Value, begin: Value | None = None) -> Iterator[Value]:
    """A loop over the numbers below `end`."""
    slot = f.alloca(I64, "number")
    again, body, done = f.fresh("again"), f.fresh("body"), f.fresh("done")
    f.store(begin or constant(I64, 0), slot, 8)
    f.branch(again)
    f.start(again)
    number = f.load(I64, slot, 8)
    f.branch_if(f.compare("icmp slt", number, end), body, done)
    f.start(body)
    yield number
    f.store(f.binary("add", number, constant(I64, 1)), slot, 8)
    f.branch(again)
    f.start(done)
