"""Object code in this process, wherever there is room for it."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

# Room for one page in reach of others, and for all else 8 GiB away.
APART = """
    import ctypes
    import numpy as np
    import stripec

    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


    def reserve(size):
        return libc.mmap(None, size, 0, 0x4022, -1, 0)  # private, of no file, nothing set aside


    x = np.zeros(100, np.float32)
    stripec.compile("function (X[N]) -> (Y) { Y = exp(X); }")(x)
    kernel = stripec.compile("function (X[N]) -> (Y) { Y = exp(X) + 1; }")
    far = 8 << 30
    low = reserve(far)
    for size in (1 << 30, 1 << 24, 1 << 20, 1 << 16, 1 << 12):
        while (at := reserve(size)) > low:
            pass
        libc.munmap(at, size)
    libc.munmap(low + far - 8192, 4096)
    print(kernel(x)[0])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="numbers of Linux's mmap")
def test_constants_lie_in_reach_of_code() -> None:
    """exp has a table of them. Two pieces, each where there is room, would be too far apart."""
    run = subprocess.run(
        [sys.executable, "-c", dedent(APART)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.returncode, run.stdout.strip()) == (0, "2.0"), run.stderr[-500:]
