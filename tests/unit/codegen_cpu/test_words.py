"""Copies that move groups of neighbours as words: exact to the bit, wherever the groups lie."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_cpu.build import build
from stripe.interp import interpret
from tests.support.executions import native_target, run_native
from tests.support.passes import program_of

TARGETS = ("x86_64_zen5", "x86_64_avx512", "x86_64_avx2", "generic")
GROUPS = {"u8": 4, "bf16": 2, "f16": 2, "f32": 2}  # elements of a word


def moves(dtype: str, n: int, k: int, first: int = 0, spare: int = 0) -> str:
    """Rows of k groups and `spare` elements more, of which the first group begins at element `first`."""
    size = GROUPS[dtype]
    row = size * k + spare
    return f"""
    block main [] (
      in X[0, 0] {dtype}({n}, {row}):({row}, 1)
      out Y[0, 0, 0]:assign {dtype}({k}, {n}, {size}):({n * size}, {size}, 1)
    ) {{
      block o [p:{size}, k:{k}, n:{n}] (
        in X[n, {size}*k + p + {first}] {dtype}(1, 1)
        out Y[k, n, p]:assign {dtype}(1, 1, 1)
      ) #across=k #group=p #vector=n {{
        $v = load(X) {dtype}
        Y = store($v)
      }}
    }}
    """


@pytest.mark.parametrize("dtype", GROUPS)
@pytest.mark.parametrize(
    ("n", "k", "first", "spare"),
    [
        (16, 16, 0, 0),
        (33, 47, 0, 0),
        (5, 3, 0, 0),
        (1, 7, 0, 0),
        (40, 19, 1, 3),
        (40, 19, 0, 1),
        (40, 16, 4, 4),
    ],
)
def test_groups_are_moved_to_the_bit(dtype: str, n: int, k: int, first: int, spare: int) -> None:
    """Rows that are no whole number of words apart, or begin within one, are moved element by element."""
    program = program_of(moves(dtype, n, k, first, spare))
    (ref,) = program.inputs
    bits = np.random.default_rng(0).integers(0, 256, ref.shape[0] * ref.shape[1] * ref.dtype.bytes, np.uint8)
    x = bits.view(ref.dtype.numpy).reshape(ref.shape)
    size = GROUPS[dtype]
    groups = x[:, first : first + size * k].reshape(n, k, size).transpose(1, 0, 2)
    for name in TARGETS:
        hw = native_target(name)
        if hw is not None:
            assert run_native(program, hw, {"X": x})["Y"].tobytes() == groups.tobytes()
    assert interpret(program, {"X": x})["Y"].tobytes() == groups.tobytes()


def test_pairs_are_turned_in_whole_vectors() -> None:
    hw = native_target("x86_64_zen5")
    if hw is None:
        pytest.skip("this CPU lacks what the target has")
    asm = build(program_of(moves("bf16", 64, 64)), hw).asm
    assert "zmm" in asm
    assert not any(name in asm for name in ("vpinsrw", "vpextrw", "vpinsrd", "vpextrd", "gather"))
