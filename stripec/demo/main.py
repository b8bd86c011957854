"""Runs the two programs of the demo, checks them, and writes pictures and dumps."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from threadpoolctl import threadpool_limits

from stripe.diag import CompileError, Diagnostic
from stripec.api import Kernel, compile
from stripec.demo.classifier import forward_with_numpy, train
from stripec.demo.photograph import edge_inputs, edges_with_scipy
from stripec.files import write_dumps

Array = np.ndarray[Any, Any]


def run(out: Path, target: str) -> None:
    """Run the demo; pictures and dumps are written below `out`. Raises CompileError if a
    result differs from the reference's."""
    photograph(out, target)
    print()
    digits(out, target)


def photograph(out: Path, target: str) -> None:
    print("(a) The edges of a photograph: blur, Sobel, thinning, threshold")
    inputs = edge_inputs()
    kernel = _compiled("edges.tile", inputs, target)
    magnitude, edges = kernel(**inputs)
    expected_magnitude, expected_edges = edges_with_scipy(**inputs)

    out.mkdir(parents=True, exist_ok=True)
    before, after = out / "photograph.png", out / "edges.png"
    Image.fromarray((inputs["I"] * 255).round().astype(np.uint8)).save(before)
    Image.fromarray(255 - edges).save(after)

    _describe(kernel, out / "dumps-edges")
    _times(lambda: kernel(**inputs), lambda: edges_with_scipy(**inputs), "SciPy")
    worst = float(np.abs(magnitude - expected_magnitude).max())
    differ = int((edges != expected_edges).sum())
    print(
        f"    against scipy.ndimage: gradient differs by at most {worst:.2e}; "
        f"{differ} of {edges.size} pixels differ"
    )
    print(f"    pictures: {before} and {after}")
    # A pixel whose neighbour along the gradient is equal up to rounding may fall either way.
    if worst > 1e-5 or differ > edges.size // 10_000:
        raise _mismatch("the edges differ from scipy.ndimage's")


def digits(out: Path, target: str) -> None:
    print("(b) Handwritten digits: a perceptron trained by scikit-learn, its forward pass in Tile")
    classifier = train()
    inputs = classifier.inputs()
    kernel = _compiled("digits.tile", inputs, target)
    _, labels = kernel(**inputs)
    expected = classifier.model.predict(classifier.images)

    _describe(kernel, out / "dumps-digits")
    _times(lambda: kernel(**inputs), lambda: forward_with_numpy(**inputs), "NumPy")
    same = int((labels == expected).sum())
    right = float((labels == classifier.labels).mean())
    print(
        f"    labels equal to scikit-learn's: {same} of {labels.size}; "
        f"{right:.1%} of the images are labelled right"
    )
    if same != labels.size:
        raise _mismatch("the labels differ from scikit-learn's")


def _compiled(name: str, inputs: dict[str, Array], target: str) -> Kernel:
    source = (files("stripec.demo") / name).read_text(encoding="utf-8")
    start = time.perf_counter()
    kernel = compile(source, shapes=inputs, target=target, threads=1)
    shapes = ", ".join(f"{n} {'x'.join(map(str, a.shape)) or 'scalar'}" for n, a in inputs.items())
    print(f"    compiled {name} for {kernel.hw.name} in {time.perf_counter() - start:.2f} s ({shapes})")
    return kernel


def _describe(kernel: Kernel, dumps: Path) -> None:
    """Say what the passes did, tiles above all, and write the dump after every pass."""
    counts: dict[str, int] = {}
    for remark in kernel.remarks:
        if remark.acted:
            counts[remark.pass_name] = counts.get(remark.pass_name, 0) + 1
    print("    passes that acted: " + ", ".join(f"{name} on {n} blocks" for name, n in counts.items()))
    for remark in kernel.remarks:
        if remark.acted and "chosen" in remark.data:
            print(f"      {remark.block}: {remark.message}")
    write_dumps(kernel.stages, dumps)
    print(f"    dumps after every pass: {dumps}")


def _times(ours: Callable[[], object], theirs: Callable[[], object], name: str) -> None:
    """Print the median time of both, measured in turn, on one thread each."""
    mine: list[float] = []
    other: list[float] = []
    with threadpool_limits(1):
        for _ in range(9):
            for function, times in ((ours, mine), (theirs, other)):
                start = time.perf_counter()
                function()
                times.append(time.perf_counter() - start)
    fast, slow = float(np.median(mine)), float(np.median(other))
    print(
        f"    median time, one thread: stripec {fast * 1e3:.3f} ms, {name} {slow * 1e3:.3f} ms "
        f"({slow / fast:.1f} times)"
    )


def _mismatch(what: str) -> CompileError:
    return CompileError(Diagnostic("D090", what, notes=("this is a fault of stripec; please report it",)))
