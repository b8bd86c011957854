"""What it takes to load the rows of a window, of whose steps a few are written out.

    O[y, x] += I[y + r, x + s] * F[r, s]        y: rows in registers, x: lanes

With 4 values of r written out, 6 rows of y share 9 rows of I, instead of 24.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from stripe.affine import Affine
from stripe.analysis.bounds import Counts, Sizes
from stripe.analysis.cost_problem import Costs

MOST = 8  # values of a sum that are written out
LEAST_GAIN = 1.05  # how much longer steps take of which too few are written out
HIDDEN = 0.8  # of the shorter one of loads and arithmetic

Access = Sequence[Affine]  # where a view begins, dimension by dimension


def sharing(inputs: Sequence[Access], name: str, rows: Collection[str], lane: str) -> bool:
    """Whether an index moves through a dimension of an input as one of the rows that are written out does.
    What is the same in all lanes an instruction takes from memory on its way."""
    return any(
        expr.coefficient(name) and any(expr.coefficient(row) for row in rows)
        for access in inputs
        if any(expr.coefficient(lane) for expr in access)
        for expr in access
    )


def lines_read(access: Access, sizes: Sizes, lane: str, vectors: Counts | int, width: int) -> Counts:
    """Lines that are read to load all that an input has at one step; one vector may lie across two."""
    count: Counts = np.asarray(1, np.int64)
    for expr in access:
        terms = [(abs(c), np.asarray(sizes[n], np.int64)) for n, c in expr.terms if n in sizes]
        reached = apart = np.asarray(1, np.int64)
        for step, size in terms:
            reached, apart = reached + step * (size - 1), apart * size
        count = count * np.minimum(reached, apart)
        if lane and expr.coefficient(lane):
            across = any(c % width for n, c in expr.terms if n != lane)
            count = count * vectors * (2 if across else 1)
    return count


def counts(size: int, tested: bool, most: int = MOST) -> list[int]:
    """How many values of a sum over so many may be written out at a time, up to `most`: such as leave no
    rest; all of them where steps are tested, as only then it is known which there are."""
    return [n for n in range(2, min(MOST, most, size) + 1) if size % n == 0 and (n == size or not tested)]


def room(results: Counts | int, count: int, registers: int) -> Any:
    """Whether registers hold so many results, what they are multiplied with at `count` steps, and a row."""
    return results + count + 1 <= registers


def together(loads: Costs | float, arithmetic: Costs | float) -> Costs:
    """The longer part hides most of the other."""
    return np.maximum(loads, arithmetic) + (1 - HIDDEN) * np.minimum(loads, arithmetic)


def pays(loads: Costs | float, arithmetic: Costs | float, least: Costs | float) -> Any:
    """Whether steps with so many loads, which take `least` if some are written out, had better be so."""
    return (loads >= arithmetic) & (least * LEAST_GAIN < together(loads, arithmetic))
