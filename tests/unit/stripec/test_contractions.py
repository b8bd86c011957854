"""Contractions whose operands lie awkwardly: which tiles and copies the pipeline of a CPU chooses."""

from __future__ import annotations

from math import prod

import pytest

import stripec
from stripe.ir import Block, Direction
from stripe.visit import walk


def compiled(strings: str, sizes: dict[str, int]) -> stripec.Kernel:
    """Index strings "Z-X-Y", row-major, on Zen 4."""
    out, left, right = strings.split("-")
    given = f"X[{', '.join(left.upper())}], Y[{', '.join(right.upper())}]"
    result = f"Z[{', '.join(out)} : {', '.join(out.upper())}]"
    text = f"function ({given}) -> (Z) {{ {result} = +(X[{', '.join(left)}] * Y[{', '.join(right)}]); }}"
    shapes = {
        name: f"f32[{', '.join(str(sizes[i]) for i in letters)}]"
        for name, letters in (("X", left), ("Y", right))
    }
    return stripec.compile(text, shapes, target="x86_64_zen4", threads=1)


def copies(block: Block) -> list[tuple[int, int]]:
    """The bytes of each copy below a block, and how often it is made."""
    found = []

    def below(inner: Block, often: int) -> None:
        often *= prod(inner.ranges.values())
        for ref in inner.refinements:
            if ref.direction is Direction.NEW and "_packed" in ref.name:
                found.append((prod(ref.shape) * ref.dtype.bytes, often))
        for child in inner.children:
            below(child, often)

    below(block, 1)
    return found


def test_a_copy_is_not_made_anew_for_each_step_of_a_sum() -> None:
    """A place inside the sum claims to save more than all that the kernel takes."""
    sizes = dict(zip("abcde", (20, 30, 72, 72, 63), strict=True))
    made = compiled("acdb-eba-edc", sizes).program
    assert copies(made.root)
    assert all(size * often <= 4 * 20 * 30 * 63 * 4 for size, often in copies(made.root))


@pytest.mark.parametrize("strings", ["dcba-aebd-ce", "dcba-aced-eb"])
def test_what_is_turned_is_copied_in_tiles_of_a_cache(strings: str) -> None:
    (copy,) = copies(compiled(strings, dict.fromkeys("abcde", 48)).program.root)
    size, often = copy
    assert size <= 1 << 19  # of the second cache's 1 MiB
    assert size * often == 48**4 * 4  # each element once, whole lines at a time
    assert often > 1


def test_no_tile_of_a_cache_where_those_in_registers_bring_in_as_little() -> None:
    program = compiled("dcba-ce-deba", dict.fromkeys("abcde", 48)).program
    assert not copies(program.root)
    depth = max(len(path) for path, _ in walk(program.root))
    assert depth == 3  # the root, tiles in registers, and what is in them
