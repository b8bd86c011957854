"""`python -m benchmarks`: see benchmarks.run."""

import os

# The size of a thread pool is fixed when its library is loaded, so this comes before NumPy.
for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[pool] = "1"

from benchmarks.run import main  # noqa: E402 - after the pools' sizes are set

main()
