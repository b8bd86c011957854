"""The command `stripec`, also as `python -m stripec`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable


def _command() -> Callable[[], int]:
    # Loaded here: it takes a good part of a second, in which Ctrl-C must end as it does later.
    command: Callable[[], int] = importlib.import_module("stripec.cli").main
    return command


def main() -> int:
    """Run the command with the arguments of the process; the exit code."""
    try:
        command = _command()
    except KeyboardInterrupt:
        print("stripec: interrupted", file=sys.stderr)
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
