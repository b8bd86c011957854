"""Arrays that do not lie row-major: kernels take them as they are, from the start or once they come again."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stripec
from stripec.layouts import layouts_of, takes
from stripec.tensors import as_type

Array = np.ndarray[Any, Any]
WHOLE = np.random.default_rng(0).standard_normal((12, 14, 20)).astype(np.float32)

VIEWS: dict[str, Callable[[Array], Array]] = {
    "turned": lambda a: a.transpose(2, 0, 1),
    "steps": lambda a: a[::2, 1::3, ::2],
    "backwards": lambda a: a[::-1, :, ::-1],
    "backwards in steps": lambda a: a[:, ::-2, ::-3],
    "a part": lambda a: a[2:9, 3:11, 5:16],
    "rows that repeat": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "an element that repeats": lambda a: np.broadcast_to(a[1, 2, 3], (5, 6, 7)),
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a[0, 0], (4, 5)[0:1])[:, None, :],
    "turned, backwards, repeated": lambda a: np.broadcast_to(a.T[::-1, :1], (20, 14, 12)),
}
PROGRAM = """function (X[A, B, C]) -> (T, R, L, W, E, D, G) {
  T[c, a, b : C, A, B] = =(X[a, b, c]);
  R[a, b : A, B] = +(X[a, b, c]);
  L[b, c : B, C] = >(X[a, b, c]);
  W[a, b, c : A, B, C] = >(X[a, b, c + i - 1]), i < 3;
  E = 2 * X + index(X, 1);
  S[a, b, 0 : A, B, 1] = +(X[a, b, c]);
  D = X - S / C;
  G = gather(X, index(X, 0));
}"""
ROWS = "function (X[A, B, C]) -> (Y) { Y[a, b : A, B] = +(X[a, b, c]); }"


def reference(x: Array) -> tuple[Array, ...]:
    rows = np.arange(x.shape[1], dtype="f4")[:, None]
    return (
        x.transpose(2, 0, 1), x.sum(axis=2), x.max(axis=0), _windows(x), 2 * x + rows,
        x - x.mean(2, keepdims=True), x[np.indices(x.shape)[0]],
    )  # fmt: skip


def _windows(x: Array) -> Array:
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1)), constant_values=-np.inf)
    return np.asarray(np.maximum(np.maximum(wide[..., :-2], wide[..., 1:-1]), wide[..., 2:]))


def compiled(x: Any, text: str = ROWS, **options: Any) -> stripec.Kernel:
    return stripec.compile(text, shapes={"X": x}, threads=1, **options)


@pytest.mark.parametrize("view", VIEWS)
def test_results_are_those_of_a_row_major_copy(view: str) -> None:
    x = VIEWS[view](WHOLE)
    expected = reference(np.ascontiguousarray(x))
    for kernel in (compiled(x, PROGRAM), compiled(("f32", x.shape), PROGRAM)):
        for array in (x, x, x, x, np.ascontiguousarray(x)):
            for found, wanted in zip(kernel(array), expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("view", VIEWS)
def test_arrays_that_come_again_are_not_copied(view: str) -> None:
    x = VIEWS[view](WHOLE)
    for kernel in (compiled(x), compiled(("f32", x.shape))):
        for _ in range(6):
            expected = kernel(x)
        found = kernel._quick((x,), None)  # takes arrays as they are, or not at all
        np.testing.assert_array_equal(found, expected)


def test_types_that_are_known_by_the_first_call_come_with_its_layout() -> None:
    kernel = stripec.compile("function (X) -> (Y) { Y = X + 1; }", threads=1)
    x = WHOLE[0].T
    np.testing.assert_array_equal(kernel(x), x + 1)
    assert "f32(20, 14):(1, 20)" in kernel.stripe


def test_a_deterministic_kernel_has_one_code() -> None:
    kernel = compiled(("f32", WHOLE.shape), deterministic=True)
    x, found = WHOLE[::-1], []
    for _ in range(6):
        found.append(kernel(x))
    assert kernel.runner.quick((x,), None) is NotImplemented
    np.testing.assert_array_equal(found[-1], kernel(np.ascontiguousarray(x)))


def test_what_repeats_is_not_expected_of_others() -> None:
    """Code that takes one element of each row must not be given rows that differ."""
    repeated = np.broadcast_to(WHOLE[:, :, :1], WHOLE.shape)
    kernel = compiled(repeated)
    for x in (repeated, WHOLE, WHOLE[::-1], repeated) * 3:
        np.testing.assert_allclose(kernel(x), x.sum(axis=2), rtol=1e-5, atol=1e-5)


def test_results_may_lie_in_what_is_read() -> None:
    memory = np.arange(40, dtype=np.float32)
    kernel = stripec.compile("function (X) -> (Y) { Y = 2 * X; }", shapes={"X": memory[::-1]}, threads=1)
    for _ in range(4):
        memory[:] = np.arange(40)
        kernel(memory[::-1], out=memory)
        np.testing.assert_array_equal(memory, 2 * np.arange(40)[::-1])


def test_a_pickled_kernel_takes_the_same_arrays() -> None:
    x = WHOLE.transpose(2, 0, 1)
    again = pickle.loads(pickle.dumps(compiled(x)))
    assert "f32(20, 12, 14):(1, 280, 20)" in again.stripe
    np.testing.assert_allclose(again(x), x.sum(axis=2), rtol=2e-6)


def test_what_has_to_be_copied_has_no_layout() -> None:
    bytes_ = np.zeros(1000, np.uint8)
    unaligned = bytes_[1:801].view("f4").reshape(10, 20).T
    uneven = np.lib.stride_tricks.as_strided(bytes_.view("f4"), (4, 4), (18, 4))
    others = (unaligned, uneven, WHOLE[::2].astype(">f4"), WHOLE[:0].T, [[1, 2]], WHOLE)
    assert layouts_of(others, None) == ()
    assert layouts_of([WHOLE.T], [as_type("f32[3]", "X")]) == (), "another type is refused later on"
    assert layouts_of([WHOLE, WHOLE[::-1]], None) == (None, (-280, 20, 1))
    assert takes((), ((0, 1),)) and takes(((0, 1),), ((0, 2),))
    assert not takes(((0, 1),), ()) and not takes(((0, 1),), ((1, 1),))
