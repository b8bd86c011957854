"""stripec: a tensor compiler. `stripec.compile(tile_text)` gives a function on NumPy arrays."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from stripec._version import VERSION

if TYPE_CHECKING:
    from stripe.diag import CompileError
    from stripec.api import Kernel, compile
    from stripec.exploring.api import explore
    from stripec.mapping_made import mapping
    from stripec.reporting.api import report
    from stripec.simulation import simulate
    from stripec.threads import openmp

__all__ = ["CompileError", "Kernel", "compile", "explore", "mapping", "openmp", "report", "simulate"]

__version__ = VERSION

_HOMES = {
    "CompileError": "stripe.diag",
    "Kernel": "stripec.api",
    "compile": "stripec.api",
    "mapping": "stripec.mapping_made",
    "explore": "stripec.exploring.api",
    "openmp": "stripec.threads",
    "report": "stripec.reporting.api",
    "simulate": "stripec.simulation",
}


def __getattr__(name: str) -> object:
    """Load the compiler when its first part is asked for, so that the command starts at once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'stripec' has no attribute '{name}'")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


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
