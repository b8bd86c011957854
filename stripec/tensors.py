"""Types and data of tensors as a person writes them: `f32[3,4]`, arrays, `.npy` files, generators.

Codes: D020 a type that can't be read, D021 a `.npy` file that can't be used, D022 an input that
can't be made, D011 more memory than this machine has.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any, TypeAlias

import numpy as np

from stripe.diag import CompileError, Diagnostic, did_you_mean
from stripe.dtypes import DTYPE_NAMES, DType, TensorType, from_numpy

Array = np.ndarray[Any, Any]
TypeLike: TypeAlias = "str | TensorType | tuple[Any, Sequence[int]] | Array | np.generic"

MAX_RANK = 32
MAX_SIZE = 1 << 48
GENERATORS = ("random", "zeros", "ones", "arange")


def as_type(value: TypeLike, name: str) -> TensorType:
    """The type of input `name`, given as text, TensorType, (element type, shape) or an array.

    Raises CompileError D020.
    """
    if isinstance(value, TensorType):
        return value
    if isinstance(value, str):
        return parse_type(value, name)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Sequence):
        return TensorType(_dtype(value[0], name), _shape(value[1], name))
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type):
        return TensorType(_dtype(value.dtype, name), _shape(value.shape, name))
    raise _bad_type(
        f"the type of '{name}' is given by {value!r:.80}",
        'help: write "f32[3,4]", ("f32", (3, 4)), or pass an array',
    )


def parse_type(text: str, name: str) -> TensorType:
    """`f32[12,16,8]`, or `f32` or `f32[]` for a scalar. Raises CompileError D020."""
    match = re.fullmatch(r"\s*([A-Za-z]\w*)\s*(?:\[([\d\s,]*)\])?\s*", text, re.ASCII)
    if match is None:
        raise _bad_type(
            f"the type of '{name}' is '{text:.80}'", "help: write an element type and sizes, such as f32[3,4]"
        )
    sizes = [size.strip() for size in (match[2] or "").split(",")]
    if sizes == [""]:
        sizes = []
    if not all(sizes):
        raise _bad_type(f"a size is missing in '{text:.80}', the type of '{name}'")
    return TensorType(_dtype(match[1], name), _shape([int(size[:20]) for size in sizes], name))


def _bad_type(message: str, *notes: str) -> CompileError:
    return CompileError(Diagnostic("D020", message, notes=notes))


def _dtype(value: Any, name: str) -> DType:
    if isinstance(value, str) and value in DTYPE_NAMES:
        return DType(value)
    try:
        found = None if value is None else from_numpy(np.dtype(value).newbyteorder("="))
    except TypeError:
        found = None
    if found is None:
        shown = value if isinstance(value, str) else str(value)[:80]
        raise _bad_type(f"'{name}' has the element type '{shown}'", *did_you_mean(str(shown), DTYPE_NAMES))
    return found


def _shape(sizes: Sequence[Any], name: str) -> tuple[int, ...]:
    if len(sizes) > MAX_RANK:
        raise _bad_type(f"'{name}' has {len(sizes)} dimensions; at most {MAX_RANK} are supported")
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise _bad_type(f"a size of '{name}' is {size!r:.40}; expected an integer")
        if not 0 <= size <= MAX_SIZE:
            raise _bad_type(f"a size of '{name}' is {size}; sizes go from 0 to {MAX_SIZE}")
    return tuple(int(size) for size in sizes)


def type_bytes(kind: TensorType) -> int:
    """The bytes of a dense tensor."""
    return math.prod(kind.shape) * kind.dtype.bytes


def check_memory(tensors: Iterable[tuple[str, TensorType]], what: str) -> None:
    """Raises CompileError D011 if these tensors together exceed this machine's memory."""
    sized = sorted(((type_bytes(kind), name, kind) for name, kind in tensors), key=lambda t: -t[0])
    total = sum(size for size, _, _ in sized)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if total > present:
        size, name, kind = sized[0]
        raise CompileError(
            Diagnostic(
                "D011",
                f"{what} needs {bytes_text(total)} of memory; this machine has {bytes_text(present)}",
                notes=(f"the largest tensor is '{name}', {kind}: {bytes_text(size)}",),
            )
        )


def bytes_text(size: int) -> str:
    """`1.5 GiB`: a size as a person reads it."""
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if amount < 1024 or unit == "PiB":
            break
        amount /= 1024
    return f"{size} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def make_input(text: str, name: str, seed: int) -> Array:
    """The data of input `name`: a generator such as `random:f32[3,3]`, or a path of a `.npy`.

    The generators: `random` (uniform in [-1, 1), integers from -8 to 7, or 0 to 15 if unsigned),
    `zeros`, `ones` and `arange`. Each input has its own stream of random numbers.
    """
    kind, colon, wanted = text.partition(":")
    if not colon or os.path.exists(text):
        return read_npy(Path(text), name)
    if kind not in GENERATORS:
        if text.endswith(".npy"):
            return read_npy(Path(text), name)
        raise CompileError(
            Diagnostic(
                "D022",
                f"input '{name}': no generator is named '{kind}'",
                notes=did_you_mean(kind, GENERATORS),
            )
        )
    type_ = parse_type(wanted, name)
    check_memory([(name, type_)], f"the input '{name}'")
    return _generate(kind, type_, np.random.default_rng([seed, *name.encode()]))


def _generate(kind: str, type_: TensorType, rng: np.random.Generator) -> Array:
    shape, dtype = type_.shape, type_.dtype
    if kind == "zeros":
        return np.zeros(shape, dtype.numpy)
    if kind == "ones":
        return np.ones(shape, dtype.numpy)
    if kind == "arange":
        return np.arange(math.prod(shape)).astype(dtype.numpy).reshape(shape)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_float:
        width = np.float64 if dtype is DType.F64 else np.float32
        return (rng.random(shape, width) * 2 - 1).astype(dtype.numpy)
    low, high = (-8, 8) if dtype.is_signed else (0, 16)
    return rng.integers(low, high, shape).astype(dtype.numpy)


def read_npy(path: Path, name: str) -> Array:
    """The array in a `.npy` file, mapped from the disk, not copied. Nothing is ever unpickled.

    Two-byte elements without a type are read as bf16: NumPy's format has no name for it, and
    writes it so. Raises CompileError D021.
    """

    def bad(why: str, *notes: str) -> CompileError:
        return CompileError(Diagnostic("D021", f"input '{name}': '{path}' {why}", notes=notes))

    try:
        if path.is_dir():
            raise bad("is a directory; expected a .npy file")
        with path.open("rb") as file:
            head = file.read(6)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise bad(f"can't be read: {reason}", _generator_hint()) from None
    if head[:2] == b"PK":
        raise bad("is a .npz archive", "help: save the array alone, with numpy.save")
    if head != np.lib.format.MAGIC_PREFIX:
        raise bad("is no .npy file", "help: write it with numpy.save")
    try:
        array: Array = _map_npy(path)
    except _HEADER_FAULTS as error:
        if "Python objects" in str(error) or "pickle" in str(error):
            raise bad("holds pickled Python objects, which are not read: they can run code") from None
        raise bad(f"can't be used: {_first_line(error)}") from None
    if array.dtype == np.dtype("V2"):
        array = array.view(DType.BF16.numpy)
    if from_numpy(array.dtype.newbyteorder("=")) is None:
        raise bad(f"has elements of type {array.dtype}", f"known: {', '.join(sorted(DTYPE_NAMES))}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


# What NumPy's reader of a header, a Python literal, raises for texts that are none.
_HEADER_FAULTS = (
    ValueError, OSError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError, TokenError,
)  # fmt: skip


def _map_npy(path: Path) -> Array:
    """Map the elements, after a check that the file is as long as its header says."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"its format has version {version[0]}.{version[1]}, which is not known")
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("Python objects")
        offset = file.tell()
        present = os.fstat(file.fileno()).st_size - offset
    if any(not isinstance(size, int) or size < 0 for size in shape):
        raise ValueError(f"its shape is {shape}")
    wanted = math.prod(shape) * dtype.itemsize
    if present < wanted:
        raise ValueError(f"it is truncated: {present} bytes of data, {wanted} expected")
    if wanted == 0:
        return np.empty(shape, dtype)
    order = "F" if fortran else "C"
    return np.asarray(np.memmap(path, dtype, "r", offset, shape, order))  # type: ignore[call-overload]


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _generator_hint() -> str:
    return f"help: or make one: {', '.join(f'{kind}:f32[3,4]' for kind in GENERATORS)}"
