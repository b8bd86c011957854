"""What a tile of a block touches: extents, elements and cache lines of each operand.

An `Operand` is a buffer as one block uses it; a `Leaf` is a block of a nest that loads or stores,
with the indexes of the whole nest. Sizes of tiles are NumPy arrays with one entry for each
candidate (or plain integers), so that a search asks once for all of them.

A tile is taken as its bounding box, parts that overhang included, as in Figure 4 of the Stripe
paper: an m x n tile that looks through a 3x3 window at 8 channels touches (m+2) x (n+2) x 8 inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce, wraps
from math import gcd, prod
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

import numpy as np

from stripe.affine import Affine
from stripe.dtypes import DType
from stripe.ir import Aggregation, Block, Direction, Load, Refinement, Special, Store
from stripe.names import Names
from stripe.visit import View, views_of

Counts: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Sizes: TypeAlias = Mapping[str, Counts | int]
Views: TypeAlias = Mapping[str, View]


@dataclass(frozen=True)
class Operand:
    """A buffer as a block uses it.

    `access` is the origin of what one point touches, over the block's indexes, `extent` its size
    in each dimension; `strides` are those of the allocation, in elements. A `local` buffer lives
    for one point of the block that is asked about.
    """

    name: str
    direction: Direction
    dtype: DType
    access: tuple[Affine, ...]
    extent: tuple[int, ...]
    strides: tuple[int, ...]
    aggregation: Aggregation | None = None
    local: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.access, self.extent, self.strides))

    @cached_property
    def indexes(self) -> frozenset[str]:
        """The indexes that what is touched depends on."""
        return frozenset([name for expr in self.access for name, _ in expr.terms])

    def stride(self, index: str) -> int:
        """How far one step of an index goes in memory, in elements."""
        return self._steps.get(index, 0)

    @cached_property
