"""Quick calls: what goes straight to native code, and what is left to the careful way."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_cpu import calls, calls_native
from codegen_cpu.build import build
from codegen_cpu.calls import is_short, refuse
from codegen_cpu.kernel import NativeKernel
from codegen_cpu.llvm import llvm_lock
from stripe.diag import CompileError, Source
from stripe.ir import Program
from stripe.parser import parse
from tests.support.native import LOAD_TIME, TWO_OUTPUTS, Guarded, host

ADD = """
block main [] (
  in A[0, 0] f32(4, 5):(5, 1)
  in B[0, 0] f32(4, 5):(5, 1)
  out C[0, 0]:assign f32(4, 5):(5, 1)
) {
  block sum [m:4, n:5] (in A[m, n] f32(1, 1)  in B[m, n] f32(1, 1)  out C[m, n]:assign f32(1, 1)) {
    $a = load(A) f32
    $b = load(B) f32
    $c = add($a, $b) f32
    C = store($c)
  }
}
"""
# A tensor of the program's own that is too large for the stack.
IN_WORKSPACE = """
block main [] (in A[0] f32(4000):(1)  out C[0]:assign f32(4000):(1)  new T f32(4000):(1)) {
  block there [n:4000] (in A[n] f32(1)  out T[3999 - n]:assign f32(1)) {
    $a = load(A) f32
    T = store($a)
  }
  block back [n:4000] (in T[n] f32(1)  out C[3999 - n]:assign f32(1)) {
    $t = load(T) f32
    $c = add($t, $t) f32
    C = store($c)
  }
}
"""
LONG = """
block main [] (out C[]:add f64():()) {
  block count [a:40000, b:300] (out C[]:add f64():()) {
    $a = index(a + b) f64
    $s = sin($a) f64
    C = store($s)
  }
}
"""


def program(text: str) -> Program:
    return parse(Source("test.stripe", dedent(text)))


def kernel_of(text: str, **constants: np.ndarray) -> NativeKernel:
    return NativeKernel(build(program(text), host()), constants)


def ready(text: str, *arrays: Any, **constants: np.ndarray) -> NativeKernel:
    """A kernel that was called often enough to have a quick call."""
    kernel = kernel_of(text, **constants)
    for _ in range(2):
        kernel(*arrays)
    assert kernel.quick is not refuse
    return kernel


A = np.arange(20, dtype=np.float32).reshape(4, 5)
B = np.ones((4, 5), np.float32)


@cache
def add() -> NativeKernel:
    return ready(ADD, A, B)


@cache
def split() -> NativeKernel:
    return ready(TWO_OUTPUTS, np.zeros(3, np.int32))


# -- what is quick -----------------------------------------------------------------------------


def test_the_second_call_makes_it() -> None:
    kernel = kernel_of(ADD)
    kernel(A, B)
    assert kernel.quick is refuse
    kernel(A, B)
    assert kernel.quick is not refuse


def test_new_arrays_and_out() -> None:
    first, second = add().quick((A, B), None), add().quick((B, B), None)
    np.testing.assert_array_equal(first, A + 1)
    np.testing.assert_array_equal(second, B + B)
    assert (first.dtype, first.shape, first.strides) == (np.dtype("f4"), (4, 5), (20, 4))
    assert first.flags.c_contiguous and first.flags.writeable and type(first) is np.ndarray
    out = np.zeros((4, 5), np.float32)
    assert add().quick((A, B), out) is out
    np.testing.assert_array_equal(out, A + 1)


def test_the_whole_call_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    add()  # its first calls are careful
    monkeypatch.setattr(NativeKernel, "_carefully", lambda *_: pytest.fail("this one is careful"))
    out = np.zeros((4, 5), np.float32)
    for result in (add()(A, B), add()(B=B, A=A), add()(A, B, out=out), add()(A, B, out=(out,))):
        np.testing.assert_array_equal(result, A + 1)


def test_large_results_start_at_a_cache_line() -> None:
    kernel = ready(IN_WORKSPACE, np.zeros(4000, np.float32))
    kept = []
    for number in range(9):
        result = kernel.quick((np.full(4000, number, np.float32),), None)
        assert result.ctypes.data % 64 == 0 and result.flags.writeable and result.flags.c_contiguous
        kept.append(result)
    gc.collect()
    for number, result in enumerate(kept):
        np.testing.assert_array_equal(result, 2 * number)


def test_several_outputs() -> None:
    given = np.array([1, 2, 3], np.int32)
    made = split().quick((given,), None)
    assert type(made) is tuple and [m.tolist() for m in made] == [[1, 2, 3], [3, 2, 1]]
    out = (np.zeros(3, np.int32), np.zeros(3, np.int32))
    assert split().quick((given,), out) is out
    assert [o.tolist() for o in out] == [[1, 2, 3], [3, 2, 1]]


def copy_of(kind: str, shape: str, strides: str, at: str) -> str:
    return f"""
        block main [] (in A[{at}] {kind}{shape}:{strides}  out B[{at}]:assign {kind}{shape}:{strides}) {{
          $a = load(A) {kind}
          B = store($a)
        }}
        """


def test_arrays_without_dimensions() -> None:
    scalar = ready(copy_of("f64", "()", "()", ""), np.float64(0))
    result = scalar.quick((np.array(3.5),), None)
    assert result.shape == () and result == 3.5


def test_arrays_without_elements_are_careful() -> None:
    kernel = kernel_of(
        """
        block main [] (in A[0, 0] f32(0, 3):(3, 1)  out B[0, 0]:assign f32(0, 3):(3, 1)) {
          block copy [m:0, n:3] (in A[m, n] f32(1, 1)  out B[m, n]:assign f32(1, 1)) {
            $a = load(A) f32
            B = store($a)
          }
        }
        """
    )
    for _ in range(4):
        assert kernel(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert kernel.quick is refuse


@pytest.mark.parametrize("kind", ["bool", "i8", "u16", "i64", "f16", "bf16", "f64"])
def test_element_types(kind: str) -> None:
    names = {"bool": np.bool_, "bf16": ml_dtypes.bfloat16, "f16": "f2", "f64": "f8"}
    names |= {"i8": "i1", "u16": "u2", "i64": "i8"}
    value = np.ones((1,), names[kind])
    kernel = ready(copy_of(kind, "(1)", "(1)", "0"), value)
    result = kernel.quick((value,), None)
    assert result.dtype == value.dtype and result[0] == value[0]


def test_a_dimension_of_size_1_may_have_any_stride() -> None:
    kernel = ready(copy_of("f32", "(1, 1)", "(1, 1)", "0, 0"), np.zeros((1, 1), np.float32))
    view = np.array([7, 8], np.float32)[None, ::2]
    assert view.strides != np.zeros((1, 1), np.float32).strides
    assert kernel.quick((view,), None) == 7
    out = np.zeros((5, 5), np.float32)
    assert kernel.quick((view,), out[2:3, 2:3])[0, 0] == out[2, 2] == 7


def test_guarded_memory() -> None:
    given, out = Guarded(A.nbytes).at_end(A), Guarded(A.nbytes).at_end(np.zeros_like(A))
    assert add().quick((given, given), out) is out
    np.testing.assert_array_equal(out, A + A)


def test_read_only_inputs_are_quick() -> None:
    fixed = A.copy()
    fixed.flags.writeable = False
    np.testing.assert_array_equal(add().quick((fixed, fixed), None), A + A)


def test_outputs_may_lie_side_by_side_with_inputs() -> None:
    both = np.zeros((8, 5), np.float32)
    both[:4] = A
    assert add().quick((both[:4], B), both[4:]) is not NotImplemented
    np.testing.assert_array_equal(both[4:], A + 1)
    assert add().quick((both[4:], B), both[:4]) is not NotImplemented
    np.testing.assert_array_equal(both[:4], A + 2)


# -- what is not -------------------------------------------------------------------------------


class Sub(np.ndarray[Any, Any]):
    pass


def reshaped(array: Any, kind: Any) -> Any:
    return array.view(kind)


def deviations() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Arguments of ADD, each with one thing that is not as compiled."""
    wide = np.zeros((8, 15), np.float32)
    unaligned = np.zeros(81, np.uint8)[1:].view(np.float32).reshape(4, 5)
    fixed = np.zeros((4, 5), np.float32)
    fixed.flags.writeable = False
    joined = np.zeros((5, 5), np.float32)
    return {
        "f64": lambda: ((A.astype("f8"), B), None),
        "i32": lambda: ((A.astype("i4"), B), None),
        "byte-swapped": lambda: ((A, B.astype(">f4")), None),
        "another dtype object": lambda: ((pickle.loads(pickle.dumps(A)), B), None),
        "fields": lambda: ((A.view([("x", "f4")]), B), None),
        "shape": lambda: ((A.T.copy(), B), None),
        "rank": lambda: ((A.reshape(4, 5, 1), B), None),
        "one dimension": lambda: ((A.ravel(), B), None),
        "Fortran order": lambda: ((np.asfortranarray(A), B), None),
        "strided": lambda: ((wide[::2, ::3], B), None),
        "backwards": lambda: ((A[::-1], B), None),
        "broadcast": lambda: ((A, np.broadcast_to(np.float32(1), (4, 5))), None),
        "unaligned": lambda: ((unaligned, B), None),
        "subclass": lambda: ((reshaped(A, Sub), B), None),
        "matrix": lambda: ((A.view(np.matrix), B), None),
        "masked": lambda: ((np.ma.masked_array(A), B), None),
        "recarray": lambda: ((A.view(np.recarray), B), None),
        "list": lambda: ((A.tolist(), B), None),
        "number": lambda: ((1.0, B), None),
        "None": lambda: ((None, B), None),
        "the class": lambda: ((np.ndarray, B), None),
        "too few": lambda: ((A,), None),
        "none": lambda: ((), None),
        "too many": lambda: ((A, B, B), None),
        "out read-only": lambda: ((A, B), fixed),
        "out f64": lambda: ((A, B), np.zeros((4, 5))),
        "out of a shape": lambda: ((A, B), np.zeros((5, 4), np.float32)),
        "out turned": lambda: ((A, B), np.zeros((5, 4), np.float32).T),
        "out strided": lambda: ((A, B), wide[::2, ::3]),
        "out unaligned": lambda: ((A, B), unaligned),
        "out subclass": lambda: ((A, B), np.zeros((4, 5), np.float32).view(Sub)),
        "out list": lambda: ((A, B), [np.zeros((4, 5), np.float32)]),
        "out two": lambda: ((A, B), (np.zeros_like(A), np.zeros_like(A))),
        "out empty": lambda: ((A, B), ()),
        "out number": lambda: ((A, B), 3),
        "out overlaps": lambda: ((joined[:4], B), joined[1:]),
        "out is an input": lambda: ((A, fixed), A),
    }


def outcome(kernel: NativeKernel, arrays: tuple[Any, ...], out: Any) -> Any:
    try:
        result = kernel(*arrays, out=out)
    except CompileError as error:
        return str(error)
    return result.tolist()


@pytest.mark.parametrize("name", sorted(deviations()))
def test_a_deviation_goes_the_careful_way_with_the_same_outcome(name: str) -> None:
    careful = kernel_of(ADD)
    expected = outcome(careful, *deviations()[name]())
    assert careful.quick is refuse
    arrays, out = deviations()[name]()
    before = A.copy()
    assert add().quick(arrays, out) is NotImplemented
    np.testing.assert_array_equal(A, before)
    arrays, out = deviations()[name]()
    try:
        assert outcome(add(), arrays, out) == expected
    finally:
        A[...] = before


@pytest.mark.parametrize("case", ["one", "three", "a list", "shared", "same", "with an input"])
def test_outs_of_several_outputs_that_do_not_fit(case: str) -> None:
    given, spare = np.array([1, 2, 3], np.int32), np.zeros(4, np.int32)
    one, two = np.zeros(3, np.int32), np.zeros(3, np.int32)
    out: dict[str, Any] = {
        "one": one,
        "three": (one, two, spare[:3]),
        "a list": [one, two],
        "shared": (spare[:3], spare[1:]),
        "same": (one, one),
        "with an input": (given, one),
    }
    assert split().quick((given,), out[case]) is NotImplemented
    assert given.tolist() == [1, 2, 3] and not one.any() and not two.any() and not spare.any()


def test_copies_take_the_quick_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made to fit needs no more checks."""
    monkeypatch.setattr(add(), "_main", lambda *_: pytest.fail("this one is slow"))
    turned = np.zeros((5, 4), np.float32).T
    unpickled = pickle.loads(pickle.dumps(A))
    for odd in (np.asfortranarray(A), A.astype(">f4"), A.view(np.matrix), unpickled):
        np.testing.assert_array_equal(add()(odd, B), A + 1)
        np.testing.assert_array_equal(add()(odd, B, out=turned), A + 1)


def test_memory_maps_are_careful(tmp_path: Path) -> None:
    A.tofile(tmp_path / "a")
    mapped = np.memmap(tmp_path / "a", np.float32, "r", shape=(4, 5))
    assert add().quick((mapped, B), None) is NotImplemented
    np.testing.assert_array_equal(add()(mapped, B), A + 1)
    plain = np.asarray(mapped).view(np.ndarray)
    np.testing.assert_array_equal(add().quick((plain, B), None), A + 1)


def test_results_that_no_memory_holds() -> None:
    kernel = kernel_of(
        """
        block main [] (in A[] f32():()  out B[0]:assign f32(35184372088832):(1)) {
          block one [n:1] (in A[] f32():()  out B[n]:assign f32(1)) {
            $a = load(A) f32
            B = store($a)
          }
        }
        """
    )
    for _ in range(4):
        with pytest.raises(CompileError, match="C017"):
            kernel(np.float32(1))
    assert kernel.quick is not refuse
    assert kernel.quick((np.zeros((), np.float32),), None) is NotImplemented


@given(
    st.sampled_from([(4, 5), (5, 4), (8, 10), (4, 10), (9, 5), (20, 1)]),
    st.tuples(st.integers(-2, 3).filter(bool), st.integers(-2, 3).filter(bool)),
    st.tuples(st.integers(0, 4), st.integers(0, 5)),
    st.booleans(),
    st.sampled_from(["f4", ">f4", "f8"]),
    st.booleans(),
)
def test_views_are_never_misread(
    shape: tuple[int, int],
    steps: tuple[int, int],
    start: tuple[int, int],
    turned: bool,
    dtype: str,
    out: bool,
) -> None:
    """Whatever view comes in: right, or refused as from a kernel without a quick call."""
    base = np.arange(shape[0] * shape[1], dtype=dtype).reshape(shape)
    view = base[start[0] :: steps[0], start[1] :: steps[1]]
    view = (view.T if turned else view)[:4, :5]
    is_exact = (view.dtype, view.shape, view.strides) == (A.dtype, A.shape, A.strides)
    if out:
        result = add().quick((A, B), view)
        expected = A + 1
    else:
        result = add().quick((view, B), None)
        expected = view + 1
    assert (result is not NotImplemented) == is_exact
    if is_exact:
        np.testing.assert_array_equal(result, expected)


# -- nothing is lost ---------------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="borrowed references are not counted")
def test_references_are_as_before() -> None:
    out = np.zeros((4, 5), np.float32)
    pair = (np.zeros(3, np.int32), np.zeros(3, np.int32))
    given, wrong = np.zeros(3, np.int32), A.astype("f8")
    watched = (A, B, out, pair, *pair, given, wrong, A.dtype, given.dtype, np.dtype("u1"), NotImplemented)

    def counts() -> list[int]:
        return [sys.getrefcount(one) for one in watched]

    add(), split()  # made by the first test that asks for them; each keeps its element types
    before = counts()
    for _ in range(50):
        add().quick((A, B), out)
        add().quick((A, B), None)
        add().quick((wrong, B), out)
        add().quick((A, B), A)
        split().quick((given,), pair)
        split().quick((given,), None)
        split().quick((given,), (pair[0], pair[0]))
    assert counts() == before


def state(kernel: NativeKernel) -> Any:
    """What the C function knows of a kernel."""
    quick: Any = kernel.quick
    return quick.__self__[1]


def test_the_workspace_serves_one_call_at_a_time() -> None:
    given = np.arange(4000, dtype=np.float32)
    kernel = ready(IN_WORKSPACE, given)
    place = state(kernel).workspace
    assert place and place % 64 == 0
    np.testing.assert_array_equal(kernel.quick((given,), None), 2 * given)
    assert state(kernel).workspace == place
    state(kernel).workspace = None  # another thread has it
    assert kernel.quick((given,), None) is NotImplemented
    np.testing.assert_array_equal(kernel(given), 2 * given)
    assert state(kernel).workspace is None
    state(kernel).workspace = place
    assert kernel.quick((given,), given) is NotImplemented
    assert state(kernel).workspace == place


def test_a_kernel_may_go_before_its_quick_call() -> None:
    kernel = ready(IN_WORKSPACE, np.zeros(4000, np.float32))
    quick = kernel.quick
    del kernel
    gc.collect()
    given = np.arange(4000, dtype=np.float32)
    np.testing.assert_array_equal(quick((given,), None), 2 * given)


# -- threads -----------------------------------------------------------------------------------


def test_threads_may_call_at_once() -> None:
    kernel = kernel_of(IN_WORKSPACE)  # the threads make the quick call, too
    wrong: list[int] = []

    def work(number: int) -> None:
        mine = np.full(4000, number, np.float32)
        for _ in range(200):
            if not (kernel(mine) == 2 * number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and kernel.quick is not refuse


def test_the_gil_is_released_unless_the_kernel_is_short() -> None:
    kernel = kernel_of(LONG)
    kernel._calls = 1  # the first run would take as long
    kernel.quick = kernel._made_quick()
    assert not state(kernel).short and state(add()).short
    began = time.perf_counter()
    caller = threading.Thread(target=kernel.quick, args=((), None))
    caller.start()
    started = time.perf_counter() - began
    caller.join()
    assert started < 0.5 * (time.perf_counter() - began)


@pytest.mark.parametrize(
    ("text", "short"), [(ADD, True), (IN_WORKSPACE, False), (LONG, False), (TWO_OUTPUTS, True)]
)
def test_what_is_short(text: str, short: bool) -> None:
    assert is_short(program(text).root) is short


def test_a_fork_waits_until_nobody_compiles() -> None:
    """Else the child could wait for ever for a thread that it does not have."""
    held = threading.Event()

    def compiling() -> None:
        with llvm_lock():
            held.set()
            time.sleep(0.2)

    other = threading.Thread(target=compiling)
    other.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        with llvm_lock():
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other.join()
    with llvm_lock():
        pass


def test_a_forked_child_calls_quickly() -> None:
    kernel = add()
    child = os.fork()
    if child == 0:
        os._exit(0 if (kernel.quick((A, B), None) == A + 1).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- kernels on several threads ----------------------------------------------------------------


@pytest.fixture
def dispatched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Kernels that run by way of a function of Python, which lists its calls; every third fails."""
    seen: list[int] = []
    kinds = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def run(function: int, argument: int) -> list[int]:
        seen.append(function)
        if len(seen) % 3 == 0:
            raise KeyboardInterrupt
        kinds(function)(argument)
        return seen

    made = calls.quick_call
    monkeypatch.setattr(
        "codegen_cpu.kernel.quick_call", lambda *given, **named: made(*given, **{**named, "dispatch": run})
    )
    yield seen


def test_a_dispatcher_runs_the_kernel_and_may_fail(dispatched: list[int]) -> None:
    given, out = np.arange(4000, dtype=np.float32), np.zeros(4000, np.float32)
    kernel = ready(IN_WORKSPACE, given)
    place = state(kernel).workspace
    before = sys.getrefcount(out), sys.getrefcount(dispatched)
    assert len(dispatched) == 1  # the second of its calls
    for _ in range(3):
        assert kernel.quick((given,), out) is out
        np.testing.assert_array_equal(out, 2 * given)
        out[:] = 0
        with pytest.raises(KeyboardInterrupt):
            kernel.quick((given,), out)
        assert state(kernel).workspace == place
        np.testing.assert_array_equal(kernel.quick((given,), None), 2 * given)
    assert len(dispatched) == 10 and len(set(dispatched)) == 1
    assert (sys.getrefcount(out), sys.getrefcount(dispatched)) == before
    dispatched.append(0)
    with pytest.raises(KeyboardInterrupt):
        kernel.quick((given,), None)


# -- constants ---------------------------------------------------------------------------------

W = np.array([1, 2, 3, 4], np.float32)
W.flags.writeable = False


def test_constants_are_no_arguments() -> None:
    a = np.full(4, 2, np.float32)
    kernel = ready(LOAD_TIME, a, W=W)
    assert kernel.inputs == ("A",)
    np.testing.assert_array_equal(kernel.quick((a,), None), [8, 6, 4, 2])
    assert kernel.quick((W, a), None) is NotImplemented
    one = ready(ADD, B, A=A)
    np.testing.assert_array_equal(one.quick((B,), None), A + 1)
    assert one.quick((B,), A) is NotImplemented  # it would be written to


def test_a_constant_that_does_not_lie_as_compiled_is_copied() -> None:
    kernel = ready(LOAD_TIME, W, W=np.repeat(W, 2)[::2].astype(">f4"))
    gc.collect()
    np.testing.assert_array_equal(kernel.quick((np.ones(4, np.float32),), None), [4, 3, 2, 1])


def test_what_the_load_time_program_reads_at_each_call_is_careful() -> None:
    kernel = kernel_of(LOAD_TIME)
    for _ in range(4):
        np.testing.assert_array_equal(kernel(W, np.ones(4, np.float32)), [4, 3, 2, 1])
    assert kernel.quick is refuse


# -- where Python or NumPy is another ----------------------------------------------------------


class Shifted(ctypes.Structure):
    """An array whose fields lie elsewhere."""

    _fields_ = (("more", ctypes.c_void_p), *calls_native.Array._fields_)


class Swapped(ctypes.Structure):
    """An array with two fields in another order."""

    _fields_ = tuple(
        ({"sizes": "strides", "strides": "sizes"}.get(name, name), kind)
        for name, kind in calls_native.Array._fields_
    )


@pytest.mark.parametrize("layout", [Shifted, Swapped])
def test_an_unknown_layout_of_arrays_is_found(layout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls._layout_is_known()
    monkeypatch.setattr(calls_native, "Array", layout)
    assert not calls._layout_is_known()


def test_without_the_c_function_every_call_is_careful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_code", lambda: None)
    kernel = kernel_of(ADD)
    for _ in range(4):
        np.testing.assert_array_equal(kernel(A, B), A + 1)
    assert kernel.quick is refuse


def test_other_versions_of_numpy_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls._symbols()
    monkeypatch.setattr(calls, "_KNOWN_ABIS", ())
    assert not calls._symbols()
    monkeypatch.setattr(sys.implementation, "name", "other")
    assert not calls._symbols()
