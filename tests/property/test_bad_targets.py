"""Whatever is wrong with a target, the answer is a right result or an error of the user's that says where.

The shipped targets with programmer-managed memories, and two CPUs, are broken in every way that
tests.support.bad_targets knows: hundreds of ways each. A part is tried by default, all under `slow`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stripec
from hwconfigs.model import ConfigError
from stripe.diag import CompileError
from stripe.verify import verify
from tests.support.bad_targets import Json, broken, shipped

Array = np.ndarray[Any, Any]
EXAMPLES = Path(__file__).parents[2] / "examples"
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "matmul": {"A": (33, 20), "B": (20, 40), "D": (40,)},
    "conv": {"I": (9, 10, 3), "F": (3, 3, 3, 20)},
    "softmax": {"X": (9, 40)},
}
TARGETS = ("systolic_16", "vector_dsp", "many_core", "x86_64_avx512", "generic")
LONGEST = 15.0  # seconds of processor time that one answer may take


@cache
def example(name: str) -> tuple[str, dict[str, Array], Array]:
    """The text of an example, inputs, and what it gives on the generic target."""
    text = (EXAMPLES / f"{name}.tile").read_text()
    rng = np.random.default_rng(0)
    arrays = {n: rng.integers(-3, 4, shape).astype("f4") for n, shape in SHAPES[name].items()}
    return text, arrays, stripec.compile(text, shapes=arrays, target="generic")(**arrays)


def answer(config: Json, name: str, folder: Path) -> str:
    """`right`, or the code of the error. Anything else is a failure of the test."""
    path = folder / "chip.json"
    path.write_text(json.dumps(config))
    text, arrays, wanted = example(name)
    try:
        kernel = stripec.compile(text, shapes=arrays, target=path)
        verify(kernel.stages[-1][1], kernel.hw)
        np.testing.assert_allclose(kernel(**arrays), wanted, rtol=1e-4, atol=1e-5)
    except ConfigError as error:
        assert error.code.startswith("H") and str(path) in str(error)
        return error.code
    except CompileError as error:
        codes = sorted({found.code for found in error.diagnostics})
        assert codes and len(str(error)) < 20000
        return codes[0]
    return "right"


def tried(target: str, name: str, folder: Path, step: int, first: int = 0) -> Counter[str]:
    """How often each answer came, for every `step`th way to break a target."""
    answers: Counter[str] = Counter()
    for edit, config in islice(broken(shipped(target)), first, None, step):
        started = time.process_time()
        try:
            answers[answer(config, name, folder)] += 1
        except Exception as error:
            error.add_note(f"{name} for {target}, {edit}")
            raise
        assert time.process_time() - started < LONGEST, f"{name} for {target}, {edit}: too slow"
    return answers


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SHAPES)
def test_a_part(target: str, name: str, tmp_path: Path) -> None:
    first = (list(SHAPES).index(name) * 31 + TARGETS.index(target) * 7) % 120
    assert tried(target, name, tmp_path, 311, first)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SHAPES)
def test_all(target: str, name: str, tmp_path: Path, say: Callable[[object], None]) -> None:
    answers = tried(target, name, tmp_path, 1)
    say(f"{name} for {target}: " + ", ".join(f"{code} {n}" for code, n in sorted(answers.items())))
    assert answers["right"] > 50 and answers["H003"] > 20
