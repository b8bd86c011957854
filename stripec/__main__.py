"""`python -m stripec` is the command `stripec`."""

import sys

from stripec.cli import main

if __name__ == "__main__":
    sys.exit(main())
