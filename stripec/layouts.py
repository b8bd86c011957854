"""How arrays lie in memory.

A kernel is compiled for arrays that are row-major, or for those that it was compiled with. One that lies
otherwise is copied first, which takes longer than many a kernel; if such arrays come again, the kernel
is compiled for them, too: codegen_cpu.kernel copies what does not fit, this decides what it is to fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from stripe.dtypes import TensorType
from stripe.input_strides import Steps

Layouts: TypeAlias = "tuple[Steps | None, ...]"  # of each input; None: row-major


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
