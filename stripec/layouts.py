"""How arrays lie in memory, and kernels that take them as they lie.

A kernel is compiled for arrays that are row-major, or for those that it was compiled with. One that lies
otherwise is copied first, which takes longer than many a kernel; if such arrays come again, the kernel
is compiled for them, too: codegen_cpu.kernel copies what does not fit, this decides what it is to fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from codegen_cpu.calls import QuickCall
from stripe.dtypes import TensorType
from stripe.rewrite_inputs import Steps
from stripec.tensors import Array

Layouts: TypeAlias = "tuple[Steps | None, ...]"  # of each input; None: row-major
_Part: TypeAlias = "tuple[slice, ...]"


def layouts_of(arrays: Sequence[Any], types: Sequence[TensorType] | None) -> Layouts:
    """How arrays of these types lie; empty if all are row-major. Without types, arrays are of their own."""
    wanted: Sequence[TensorType | None] = [None] * len(arrays) if types is None else types
    found = tuple(map(_layout, arrays, wanted))
    return found if any(found) else ()


def _layout(array: Any, type_: TensorType | None) -> Steps | None:
    """The strides of an array, in elements; None if it is row-major, or has to be copied whatever code is
    made for. Those of dimensions of size 1 count as 1."""
    if type(array) is not np.ndarray or not array.dtype.isnative:
        return None
    if type_ is not None and (array.shape != type_.shape or array.dtype != type_.dtype.numpy):
        return None
    flags, size = array.flags, array.itemsize
    if flags.c_contiguous or not array.size or not flags.aligned or any(s % size for s in array.strides):
        return None
    both = zip(array.shape, array.strides, strict=True)
    return tuple(1 if count == 1 else stride // size for count, stride in both)


def takes(made: Layouts, lie: Layouts) -> bool:
    """Whether code for some layouts can be given copies of arrays that lie so: what it takes one element of
    has to repeat."""
    wanted = lie or (None,) * len(made)
    for steps, own in zip(made, wanted, strict=True) if made else ():
        for at, step in enumerate(steps or ()):
            if step == 0 and (own is None or own[at] != 0):
                return False
    return True


class AsTheyLie:
    """Runs a kernel that was compiled for `layouts`: arrays that lie backwards are turned around, and of
    what repeats one element is taken. Both are views."""

    def __init__(self, run: Any, layouts: Layouts) -> None:
        self._run = run
        self._parts = tuple(_part(steps) for steps in layouts)

    @property
    def quick(self) -> QuickCall:
        return self._quick

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        return self._run(*self._forwards(arrays), out=out)

    def _quick(self, arrays: tuple[Any, ...], out: Any) -> Any:
        """Refuses where what is taken once does not repeat, or is no array."""
        if len(arrays) != len(self._parts):
            return NotImplemented
        for array, part in zip(arrays, self._parts, strict=True):
            if part is not None and not _repeats(array, part):
                return NotImplemented
        return self._run.quick(self._forwards(arrays), out)

    def _forwards(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        pairs = zip(arrays, self._parts, strict=True)
        return tuple(array if part is None else array[part] for array, part in pairs)


_AS_IT_IS, _BACKWARDS, _ONCE = slice(None), slice(None, None, -1), slice(0, 1)


def _part(steps: Steps | None) -> _Part | None:
    if steps is None or all(step > 0 for step in steps):
        return None
    return tuple(_AS_IT_IS if step > 0 else _BACKWARDS if step else _ONCE for step in steps)


def _repeats(array: Array, part: _Part) -> bool:
    if type(array) is not np.ndarray or array.ndim != len(part):
        return False
    both = zip(array.strides, part, strict=True)
    return all(stride == 0 for stride, taken in both if taken is _ONCE)
