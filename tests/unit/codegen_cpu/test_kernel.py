"""What a native kernel accepts, refuses, and hands back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from codegen_cpu.build import build
from codegen_cpu.kernel import NativeKernel, lasting
from hwconfigs.load import load_named
from stripe.diag import CompileError, Source
from stripe.parser import parse
from tests.support.native import LOAD_TIME, TWO_OUTPUTS, Guarded, host


def kernel_of(text: str) -> NativeKernel:
    return NativeKernel(build(parse(Source("test.stripe", dedent(text))), host()))


@pytest.fixture(scope="module")
def add() -> NativeKernel:
    """C = A + B, with a temporary tensor so that there is a workspace."""
    return kernel_of(
        """
        block main [] (
          in A[0, 0] f32(4, 5):(5, 1)
          in B[0, 0] f32(4, 5):(5, 1)
          out C[0, 0]:assign f32(4, 5):(5, 1)
          new T f32(4, 5):(5, 1)
        ) {
          block sum [m:4, n:5] (in A[m, n] f32(1, 1)  in B[m, n] f32(1, 1)  out T[m, n]:assign f32(1, 1)) {
            $a = load(A) f32
            $b = load(B) f32
            $c = add($a, $b) f32
            T = store($c)
          }
          block copy [m:4, n:5] (in T[m, n] f32(1, 1)  out C[m, n]:assign f32(1, 1)) #vector=n {
            $t = load(T) f32
            C = store($t)
          }
        }
        """
    )


A = np.arange(20, dtype=np.float32).reshape(4, 5)
B = np.ones((4, 5), np.float32)


def fault(action: Callable[[], Any]) -> str:
    with pytest.raises(CompileError) as caught:
        action()
    return str(caught.value)


def test_by_position_and_by_name(add: NativeKernel) -> None:
    for result in (add(A, B), add(A, B=B), add(B=B, A=A)):
        np.testing.assert_array_equal(result, A + 1)


class Foreign:
    """An array of another library."""

    def __init__(self, array: Any, protocol: str) -> None:
        if protocol == "interface":
            self.__array_interface__ = array.__array_interface__
            self.kept = array
        else:
            self.__dlpack__ = array.__dlpack__
            self.__dlpack_device__ = array.__dlpack_device__


def odd_layouts() -> dict[str, Any]:
    wide = np.zeros((8, 15), np.float32)
    wide[::2, ::3] = A
    unaligned = np.frombuffer(b"x" + A.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 5)
    readonly = A.copy()
    readonly.flags.writeable = False
    return {
        "Fortran order": np.asfortranarray(A),
        "strided": wide[::2, ::3],
        "backwards": A[::-1, ::-1].copy()[::-1, ::-1],
        "unaligned": unaligned,
        "read-only": readonly,
        "byte-swapped": A.astype(">f4"),
        "interface": Foreign(A, "interface"),
        "dlpack": Foreign(A, "dlpack"),
        "at a page": Guarded(A.nbytes).at_end(A),
    }


@pytest.mark.parametrize("layout", sorted(odd_layouts()))
def test_layouts_are_never_misread(add: NativeKernel, layout: str) -> None:
    np.testing.assert_array_equal(add(odd_layouts()[layout], B), A + 1)


def test_broadcast_arrays(add: NativeKernel) -> None:
    np.testing.assert_array_equal(add(A, np.broadcast_to(np.float32(1), (4, 5))), A + 1)


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda k: k(A.astype("f8"), B), "C010", ("'A'", "f64", "f32", "astype")),
        (lambda k: k(A.astype("c8"), B), "C010", ("complex64",)),
        (lambda k: k([[1.0]], B), "C010", ("'A'",)),
        (lambda k: k(A.T, B), "C011", ("'A'", "(5, 4)", "(4, 5)")),
        (lambda k: k(A[0], B), "C011", ("(5,)",)),
        (lambda k: k(A, B, A), "C012", ("3 inputs", "expected 2")),
        (lambda k: k(A, D=B), "C013", ("'D'",)),
        (lambda k: k(A), "C014", ("'B'", "missing")),
        (lambda k: k(A, B, A=A), "C014", ("'A'", "by position and by name")),
        (lambda k: k("text", B), "C010", ()),
        (lambda k: k(object(), B), "C016", ("object",)),
        (lambda k: k([[1], [2, 3]], B), "C016", ("'A'",)),
        (lambda k: k(A, B, out=[1]), "C015", ("list",)),
        (lambda k: k(A, B, out=(A, B)), "C015", ("2 arrays",)),
        (lambda k: k(A, B, out=np.empty((4, 5))), "C015", ("f64", "f32")),
        (lambda k: k(A, B, out=np.empty((5, 4), "f4")), "C015", ("[5, 4]", "[4, 5]")),
    ],
)
def test_what_does_not_fit_is_refused(
    add: NativeKernel, call: Callable[[NativeKernel], Any], code: str, words: tuple[str, ...]
) -> None:
    message = fault(lambda: call(add))
    assert code in message
    assert all(word in message for word in words), message


def test_read_only_out_is_refused(add: NativeKernel) -> None:
    out = np.empty((4, 5), np.float32)
    out.flags.writeable = False
    assert "read-only" in fault(lambda: add(A, B, out=out))


def test_out_of_any_layout_takes_the_result(add: NativeKernel) -> None:
    plain = np.zeros((4, 5), np.float32)
    assert add(A, B, out=plain) is plain
    turned = np.zeros((5, 4), np.float32).T
    add(A, B, out=turned)
    spaced = np.zeros((4, 10), np.float32)
    add(A, B, out=spaced[:, ::2])
    for result in (plain, turned, spaced[:, ::2]):
        np.testing.assert_array_equal(result, A + 1)
    np.testing.assert_array_equal(spaced[:, 1::2], 0)


def test_out_may_be_an_input(add: NativeKernel) -> None:
    both = A.copy()
    add(both, both, out=both)
    np.testing.assert_array_equal(both, A + A)


def test_several_outputs_are_a_tuple() -> None:
    kernel = kernel_of(TWO_OUTPUTS)
    first, second = kernel(np.array([1, 2, 3], np.int32))
    assert first.tolist() == [1, 2, 3] and second.tolist() == [3, 2, 1]
    shared = np.zeros(4, np.int32)
    message = fault(lambda: kernel(np.zeros(3, np.int32), out=(shared[:3], shared[1:])))
    assert "C015" in message and "another output" in message


def test_outputs_may_lie_between_each_other() -> None:
    """Arrays whose places overlap, but no elements."""
    kernel = kernel_of(TWO_OUTPUTS)
    both = np.zeros(6, np.int32)
    kernel(np.array([1, 2, 3], np.int32), out=(both[::2], both[1::2]))
    assert both.tolist() == [1, 3, 2, 2, 3, 1]
    message = fault(lambda: kernel(np.zeros(3, np.int32), out=(both[::2], both[2:5])))
    assert "C015" in message and "another output" in message


def test_results_are_fresh(add: NativeKernel) -> None:
    first = add(A, B)
    second = add(B, B)
    np.testing.assert_array_equal(first, A + 1)
    np.testing.assert_array_equal(second, 2)


def test_strides_of_the_signature() -> None:
    kernel = kernel_of(
        """
        block main [] (in A[0, 0] f32(3, 4):(1, 5)  out B[0, 0]:assign f32(3, 4):(8, 2)) {
          block copy [m:3, n:4] (in A[m, n] f32(1, 1)  out B[m, n]:assign f32(1, 1)) {
            $a = load(A) f32
            B = store($a)
          }
        }
        """
    )
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    result = kernel(given)
    np.testing.assert_array_equal(result, given)
    assert result.strides == (32, 8)


def test_arrays_without_elements() -> None:
    kernel = kernel_of(
        """
        block main [] (in A[0, 0] f32(0, 3):(3, 1)  out B[0, 0]:assign f32(0, 3):(3, 1)) {
          block copy [m:0, n:3] (in A[m, n] f32(1, 1)  out B[m, n]:assign f32(1, 1)) #vector=n {
            $a = load(A) f32
            B = store($a)
          }
        }
        """
    )
    assert kernel(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_scalars_are_arrays_without_dimensions() -> None:
    kernel = kernel_of(
        """
        block main [] (in A[] f32():()  out B[]:assign f32():()) {
          $a = load(A) f32
          $b = add($a, $a) f32
          B = store($b)
        }
        """
    )
    result = kernel(np.float32(21))
    assert result.shape == () and result == 42


def test_threads_may_call_at_once(add: NativeKernel) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        mine = np.full((4, 5), number, np.float32)
        for _ in range(300):
            if not (add(mine, B) == number + 1).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_may_compile_at_once() -> None:
    results: list[Any] = []

    def work() -> None:
        for _ in range(5):
            results.append(kernel_of(TWO_OUTPUTS)(np.array([1, 2, 3], np.int32))[1].tolist())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[3, 2, 1]] * 15


def test_the_load_time_program_runs_once_for_constants() -> None:
    kernel = kernel_of(LOAD_TIME)
    assert kernel.inputs == ("W", "A")
    w, a = np.array([1, 2, 3, 4], np.float32), np.full(4, 2, np.float32)
    np.testing.assert_array_equal(kernel(w, a), [8, 6, 4, 2])
    w[0] = 10
    np.testing.assert_array_equal(kernel(w, a), [8, 6, 4, 20])  # it could be written to: read again
    fixed = np.frombuffer(w.tobytes(), np.float32)
    load = kernel._load
    assert load is not None
    runs = [load({"W": fixed}) for _ in range(2)]
    assert runs[0] is runs[1]
    np.testing.assert_array_equal(kernel(fixed, a), [8, 6, 4, 20])


def test_an_array_that_is_read_only_for_a_while_is_no_constant() -> None:
    kernel = kernel_of(LOAD_TIME)
    w, a = np.array([1, 2, 3, 4], np.float32), np.ones(4, np.float32)
    for value in (5, 6):
        w[0] = value
        w.flags.writeable = False
        np.testing.assert_array_equal(kernel(w, a), [4, 3, 2, value])
        w.flags.writeable = True


def test_a_read_only_view_of_what_changes_is_no_constant() -> None:
    kernel = kernel_of(LOAD_TIME)
    w, a = np.array([1, 2, 3, 4], np.float32), np.ones(4, np.float32)
    view = w.view()
    view.flags.writeable = False
    np.testing.assert_array_equal(kernel(view, a), [4, 3, 2, 1])
    w[:] = 7
    np.testing.assert_array_equal(kernel(view, a), [7, 7, 7, 7])


@pytest.mark.parametrize("shape", [(), (0,), (3,), (5, 7), (300, 11)])
def test_lasting_copies_begin_at_lines_and_stay_as_they_are(shape: tuple[int, ...]) -> None:
    given = np.asfortranarray(np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape))
    made = lasting(given)
    np.testing.assert_array_equal(made, given)
    assert made.flags.c_contiguous and (made.size == 0 or made.ctypes.data % 64 == 0)
    memory: np.ndarray | None = made
    while memory is not None:
        assert not memory.flags.writeable
        memory = memory.base


def test_code_for_another_machine_does_not_run_here() -> None:
    program = parse(Source("two.stripe", TWO_OUTPUTS))
    cpu = host().cpu or load_named("generic").cpu
    assert cpu is not None
    foreign = load_named("aarch64_neon" if "x86" in cpu.triple else "x86_64_avx2")
    assert "C004" in fault(lambda: NativeKernel(build(program, foreign)))
    figure = load_named("paper_figure4")
    assert "C001" in fault(lambda: build(program, figure))
