"""`python -m benchmarks`: see benchmarks.main."""

from benchmarks.main import main

main()
