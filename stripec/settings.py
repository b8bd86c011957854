"""What the environment may say. Everything else is an argument or a flag.

STRIPEC_DEBUG      words, separated by commas; any of them also shows tracebacks
    dump           write the program after every pass to stripec-dumps/<program>/
    time           print how long each pass took to standard error
    verify         verify after every pass even where verify="off" was asked for
STRIPEC_CACHE_DIR  the folder of compiled code; `off` compiles anew every time. Unset: below
                   XDG_CACHE_HOME, else ~/.cache

OMP_NUM_THREADS    on how many threads kernels run where `threads` is not given; of a list, the first
                   number. Unset: on all cores that the process may use
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from stripe.diag import CompileError, Diagnostic, did_you_mean

WORDS = ("dump", "time", "verify")


@dataclass(frozen=True, slots=True)
class Settings:
    """`cache` is the folder of compiled code, None if nothing is to be kept."""

    dump: bool = False
    time: bool = False
    verify: bool = False
    traceback: bool = False
    cache: Path | None = None


def read_settings() -> Settings:
    """The settings of this moment. Raises CompileError D003 for an unknown word."""
    words = [word.strip() for word in os.environ.get("STRIPEC_DEBUG", "").split(",") if word.strip()]
    for word in words:
        if word not in WORDS:
            raise CompileError(
                Diagnostic("D003", f"STRIPEC_DEBUG does not know '{word}'", notes=did_you_mean(word, WORDS))
            )
    return Settings("dump" in words, "time" in words, "verify" in words, bool(words), _cache_folder())


def threads_wanted(most: int) -> int | None:
    """What OMP_NUM_THREADS says, if it says anything. Raises CompileError D004 for what is no number, or more
    than `most`."""
    text = os.environ.get("OMP_NUM_THREADS", "").strip()
    if not text:
        return None
    first = text.split(",")[0].strip()
    if not (first.isascii() and first.isdigit() and len(first) < 9 and int(first) > 0):
        raise CompileError(
            Diagnostic(
                "D004", f"OMP_NUM_THREADS is '{text[:40]}'; expected a positive integer",
                notes=("help: unset it for all cores, or give threads",),
            )
        )  # fmt: skip
    if int(first) > most:
        text = f"OMP_NUM_THREADS is '{first}': more than {most} are not supported"
        raise CompileError(Diagnostic("D004", text, notes=("help: unset it for all cores, or give threads",)))
    return int(first)


def tracebacks() -> bool:
    """Whether tracebacks are shown; asked where nothing may be raised."""
    return bool(os.environ.get("STRIPEC_DEBUG", "").strip())


def _cache_folder() -> Path | None:
    chosen = os.environ.get("STRIPEC_CACHE_DIR", "")
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    below = os.environ.get("XDG_CACHE_HOME", "")
    home = os.environ.get("HOME", "")
    if not below and not home:
        return None
    return (Path(below) if below else Path(home) / ".cache") / "stripec"
