"""Options that several of the commands here have, refused before anything is measured."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from stripe.diag import CompileError
from stripec.driver import resolve_target

PICTURES = (".svg", ".png")


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds")
    return found


def target(text: str) -> str:
    """A shipped target, or the file of one."""
    try:
        resolve_target(text)
    except CompileError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def new_file(text: str) -> Path:
    """A file that can be written, as far as its folder says."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder '{path.parent}'")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"'{path}' is a folder")
    return path


def picture(text: str) -> Path:
    path = new_file(text)
    if path.suffix not in PICTURES:
        raise argparse.ArgumentTypeError(f"'{path}' ends with none of {', '.join(PICTURES)}")
    return path
