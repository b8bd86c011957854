"""Who measured: a digest of the compiler's sources. Results of two compilers must not stand in one sweep."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from pathlib import Path

from stripe.poly import isl_version
from stripec._version import VERSION

# What the outcome of a point depends on.
_PACKAGES = ("hwconfigs", "simulator", "stripe")
_MODULES = ("driver.py", "exploring/measure.py", "exploring/result.py")


@cache
def compiler() -> str:
    """The version, and a digest of what compiles and simulates."""
    digest = hashlib.blake2b(isl_version().encode(), digest_size=8)
    homes = {package: Path(str(resources.files(package))) for package in (*_PACKAGES, "stripec")}
    files = [(package, path) for package in _PACKAGES for path in sorted(homes[package].rglob("*.py"))]
    files += [("stripec", homes["stripec"] / module) for module in _MODULES]
    for package, path in files:
        content = path.read_bytes()
        digest.update(f"{package}/{path.relative_to(homes[package]).as_posix()}:{len(content)}:".encode())
        digest.update(content)
    return f"{VERSION}-{digest.hexdigest()}"


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
