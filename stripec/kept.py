"""What earlier processes compiled: found by what it was compiled from, before any pass runs.

The name of an entry is a digest of the program's text, the types of its inputs, how they lie, which of them
are constants, the whole target, the level of verification, and the versions of all that takes part. An
entry is made when a program has been compiled to the end, so what has an error is never found.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from codegen_cpu import cache, native
from hwconfigs.model import HwConfig
from stripe.dtypes import TensorType
from stripe.poly import isl_version
from stripe.printer import to_text
from stripec.driver import Frontend
from stripec.settings import read_settings

_PACKAGES = ("codegen_cpu", "hwconfigs", "stripe", "stripec", "tile_frontend")


@dataclass(frozen=True, slots=True)
class Kept:
    """The name of an entry, and what was found under it."""

    name: str
    native: native.Native | None


def look_up(
    frontend: Frontend,
    types: Mapping[str, TensorType],
    constants: Collection[str],
    hw: HwConfig,
    verify: str,
    strides: Mapping[str, tuple[int, ...]],
) -> Kept | None:
    """`strides` are those of inputs that are not row-major. None where nothing is to be kept: there is no
    folder for it, the target is no CPU, or somebody wants to see the passes at work."""
    settings = read_settings()
    watched = settings.dump or settings.time or settings.verify or verify == "full"
    if settings.cache is None or hw.executor != "cpu" or watched:
        return None
    if frontend.fixed is not None:
        text = to_text(frontend.fixed)
    else:
        assert frontend.source is not None  # a frontend has a source or a program
        text = frontend.source.text
    name = cache.key(
        settings.cache,
        frontend.name,
        text,
        repr([(name, str(types[name])) for name in frontend.inputs]),
        repr(sorted(constants)),
        repr(sorted(strides.items())),
        msgspec.json.encode(hw).decode(),
        verify,
        f"{platform.python_version()}, {isl_version()}",
        packages=_PACKAGES,
    )
    return Kept(name, native.find(settings.cache, name, hw))
