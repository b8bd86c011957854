"""stripec: a tensor compiler. `stripec.compile(tile_text)` gives a function on NumPy arrays."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def _check_neighbours() -> None:
    """Another distribution may have put its own `stripe` in our place; say so, not `no module`."""
    found = importlib.util.find_spec("stripe")
    origin = found.origin if found is not None else None
    if origin is not None and (Path(origin).parent / "affine.py").exists():
        return
    what = f"is another package, in {Path(origin).parent}" if origin else "is missing"
    raise ImportError(
        f"the package 'stripe' that stripec needs {what}. The payments library on the package index "
        "has the same name, and the two can't share an environment: make a new virtual environment "
        "and install stripec alone"
    )


_check_neighbours()

from stripe.diag import CompileError  # noqa: E402 - only once it is known whose `stripe` that is
from stripec._version import VERSION  # noqa: E402
from stripec.api import Kernel, compile  # noqa: E402

__all__ = ["CompileError", "Kernel", "compile"]
__version__ = VERSION
