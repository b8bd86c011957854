"""`stripec.compile` and the kernels it makes, run by the interpreter."""

from __future__ import annotations

import inspect
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen_cpu.kernel
import stripec
from hwconfigs.model import Cpu, HwConfig, Memory, PassStep, Unit
from stripe.diag import CompileError, Source
from stripe.parser import parse
from stripec import api, driver

HW = HwConfig("chip", "", "interpreter", memories=(Memory("DRAM", "explicit"),))
MATMUL = "function matmul(A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
TWO = "function two(A, B) -> (S, D) { S = A + B; D = A - B; }"


def kernel(source: Any = MATMUL, target: Any = HW, **options: Any) -> stripec.Kernel:
    return stripec.compile(source, target=target, **options)


def fault(call: Any, *args: Any, **named: Any) -> tuple[str, str]:
    with pytest.raises(CompileError) as caught:
        call(*args, **named)
    return caught.value.diagnostics[0].code, str(caught.value)


A = np.arange(6, dtype="f4").reshape(2, 3)
B = np.arange(12, dtype="f4").reshape(3, 4)


def test_a_kernel_specialises_for_each_set_of_types() -> None:
    matmul = kernel()
    assert matmul.inputs == ("A", "B")
    assert matmul.outputs == ("C",)
    for dtype in ("f4", "f8", "i4"):
        got = matmul(A.astype(dtype), B.astype(dtype))
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, (A @ B).astype(dtype))
    np.testing.assert_array_equal(matmul(A[:, :2], B[:2]), A[:, :2] @ B[:2])
    assert "f32(2, 2)" in matmul.stripe, "texts speak of the types compiled last"


def test_a_call_by_position_by_name_and_mixed() -> None:
    matmul = kernel(shapes={"A": "f32[2,3]", "B": ("f32", (3, 4))})
    for got in (matmul(A, B), matmul(B=B, A=A), matmul(A, B=B), matmul(A, B.astype(">f4"))):
        np.testing.assert_array_equal(got, A @ B)


def test_several_outputs_come_in_order_and_out_takes_them() -> None:
    two = kernel(TWO, shapes={"A": A, "B": A})
    sum_, difference = two(A, 2 * A)
    np.testing.assert_array_equal(sum_, 3 * A)
    np.testing.assert_array_equal(difference, -A)
    outs = (np.empty_like(A), np.empty_like(A))
    assert two(A, A, out=outs)[1] is outs[1]
    np.testing.assert_array_equal(outs[0], 2 * A)
    matmul = kernel()
    out = np.empty((2, 4), "f4")
    assert matmul(A, B, out=out) is out
    np.testing.assert_array_equal(out, A @ B)


def test_constants_are_bound_copied_and_marked() -> None:
    weights = B.copy()
    bound = kernel(constants={"B": weights})
    assert bound.inputs == ("A",)
    weights[:] = 0
    np.testing.assert_array_equal(bound(A), A @ B)
    np.testing.assert_array_equal(bound(A=A), A @ B)
    assert [ref.const for ref in bound.program.inputs] == [False, True]
    first = kernel(constants={"A": A}, shapes={"B": B})
    np.testing.assert_array_equal(first(B), A @ B)
    whole = kernel(constants={"A": A, "B": B})
    np.testing.assert_array_equal(whole(), A @ B)
    assert fault(bound, A, B=B)[1].count("is a constant of this kernel") == 1


def test_copies_of_constants_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load-time program of a bound constant does not run again with each call."""
    made: list[object] = []
    empty = codegen_cpu.kernel._LoadTime.__call__

    def counted(self: Any, named: Any) -> Any:
        result = empty(self, named)
        made.append(result)
        return result

    monkeypatch.setattr(codegen_cpu.kernel._LoadTime, "__call__", counted)
    weights = np.arange(1 << 18, dtype="f4").reshape(512, 512)[:, ::-1]
    bound = kernel(constants={"B": weights}, shapes={"A": "f32[512,512]"}, target="host")
    ones = np.ones((512, 512), "f4")
    np.testing.assert_allclose(bound(ones), ones @ weights, rtol=1e-4)
    bound(ones)
    assert bound.program.load is None or (len(made) == 2 and made[0] is made[1])


def test_sources_are_text_path_stripe_text_or_program(tmp_path: Path) -> None:
    path = tmp_path / "matmul.tile"
    path.write_text(MATMUL)
    made = kernel(path, shapes={"A": A, "B": B})
    stripe = tmp_path / "matmul.stripe"
    stripe.write_text(made.stripe)
    for source in (stripe, made.program):
        again = kernel(source)
        np.testing.assert_array_equal(again(A, B), A @ B)
        assert fault(kernel, source, shapes={"A": "f32[2,2]", "B": B})[0] == "D023"
    code, text = fault(kernel, "matmul.tile")
    assert code.startswith("T") and "pathlib.Path" in text
    assert fault(kernel, tmp_path / "none.tile")[0] == "D001"


def test_stages_remarks_and_texts() -> None:
    late = kernel()
    assert fault(lambda: late.stripe)[0] == "D042"
    made = kernel(shapes={"A": A, "B": B})
    assert [name for name, _ in made.stages] == ["input"]
    assert made.stages[0][1] is made.program
    assert parse(Source("stripe", made.stripe)) == made.program
    assert made.remarks == ()
    assert "C001" in fault(lambda: made.llvm)
    assert "matmul(A, B) -> (C) on chip" in repr(made)


@pytest.mark.parametrize(
    ("arrays", "named", "code", "said"),
    [
        ((A,), {}, "D033", "input 'B' is not given"),
        ((), {}, "D033", "input 'A' is not given"),
        ((A, B, B), {}, "D030", "takes A, B"),
        ((A, B), {"A": A}, "D032", "by position and by name"),
        ((A,), {"C": B}, "D031", "no input 'C'"),
        ((A, B.T), {}, "I002", "B"),
        ((A, B.astype("f8")), {}, "I002", "B"),
    ],
)
def test_calls_that_do_not_fit(arrays: tuple[Any, ...], named: dict[str, Any], code: str, said: str) -> None:
    found = fault(kernel(shapes={"A": A, "B": B}), *arrays, **named)
    assert found[0] == code
    assert said in found[1]


class Tensor:
    """An array of another library, which does not give its elements away, as those with gradients do not."""

    dtype, shape = np.dtype("f4"), A.shape

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise RuntimeError("detach it")

    def __dlpack__(self, **named: Any) -> Any:
        raise BufferError("detach it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_an_array_that_gives_no_elements_is_named_whether_types_are_given_or_not() -> None:
    for made in (kernel(), kernel(shapes={"A": A, "B": B}, target="host")):
        code, said = fault(made, Tensor(), B)
        assert code == "C016" and "'A' is no array: detach it" in said


@pytest.mark.parametrize(
    "out", [np.empty((2, 5), "f4"), np.empty((2, 4), "f8"), "x", np.broadcast_to(np.float32(0), (2, 4))]
)
def test_out_that_does_not_fit(out: Any) -> None:
    assert fault(kernel(), A, B, out=out)[0] == "D034"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"shapes": {"A": A}}, "D033", "type of input 'B'"),
        ({"shapes": {"A": A, "B": B, "Bb": B}}, "D031", "did you mean 'B'"),
        ({"shapes": {"A": A, "B": "f31[3,4]"}}, "D020", "'B'"),
        ({"constants": {"W": A}}, "D031", "no such input"),
        ({"constants": {"B": B}, "shapes": {"A": A, "B": "f32[9,9]"}}, "D023", "f32[9, 9]"),
        ({"constants": {"B": [[1, 2], [3]]}}, "C016", "'B'"),
        ({"constants": {"B": None}}, "C016", "'B'"),
        ({"threads": 0}, "D004", "positive integer"),
        ({"threads": "2"}, "D004", "positive integer"),
        ({"threads": 5000}, "D004", "more than 1024"),
        ({"verify": "maybe"}, "D002", "'off', 'on' or 'full'"),
        ({"target": "x86_avx512"}, "H001", "did you mean 'x86_64_avx512'"),
        ({"target": "none.json"}, "H001", "no such file"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], code: str, said: str) -> None:
    found = fault(kernel, **options)
    assert found[0] == code
    assert said in found[1]


def test_threads_none_and_one_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    for threads in (None, 1):
        np.testing.assert_array_equal(kernel(threads=threads)(A, B), A @ B)


def test_a_pipeline_with_a_wrong_pass_is_an_error_of_the_config() -> None:
    hw = HwConfig("chip", "", "interpreter", pipeline=(PassStep("autotiel", {}),))
    code, text = fault(kernel, target=hw, shapes={"A": A, "B": B})
    assert code == "P002"
    assert "did you mean 'autotile'" in text and "'chip', $.pipeline[0]" in text


def test_a_tensor_too_large_for_memory_is_said_before_it_is_made() -> None:
    double = kernel("function (A) -> (B) { B = A + A; }", shapes={"A": "f64[1000000,1000000,10]"})
    code, text = fault(double, np.zeros((1, 1, 1)))
    assert code == "D011"
    assert "f64[1000000, 1000000, 10]" in text


def test_the_simulator_says_that_it_is_not_there() -> None:
    hw = HwConfig("sim", "", "simulator")
    made = kernel(target=hw, shapes={"A": A, "B": B})
    assert "block" in made.stripe
    assert fault(made, A, B)[0] == "D041"


def test_the_cache_of_specialisations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_SPECIALISATIONS", 2)
    double = kernel("function (A) -> (B) { B = A + A; }")
    for _ in range(2):
        for size in range(5):
            assert double(np.ones(size, "f4")).tolist() == [2.0] * size
    assert len(double._made) == len(double._runners) == 2


def test_several_threads_compile_once_for_each_type(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[object] = []

    def counted(*given: Any, **named: Any) -> driver.Compilation:
        lowered.append(given)
        return driver.optimise(*given, **named)

    monkeypatch.setattr(api, "optimise", counted)
    matmul = kernel()
    wrong: list[object] = []

    def work() -> None:
        for _ in range(5):
            for dtype in ("f4", "f8"):
                if not np.array_equal(matmul(A.astype(dtype), B.astype(dtype)), A @ B):
                    wrong.append(dtype)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(lowered) == 2


def test_compiling_twice_gives_the_same_text() -> None:
    one, two = (kernel(TWO, shapes={"A": A, "B": A}).stripe for _ in range(2))
    assert one == two


def test_a_named_config_is_loaded_once_and_a_config_is_itself() -> None:
    hw = HwConfig("c", "", "cpu", units=(Unit("CORE"),), cpu=Cpu())
    assert driver.resolve_target(hw) is hw
    assert driver.resolve_target("host") is driver.resolve_target("host")
    assert driver.resolve_target("paper_figure4").name == "paper_figure4"


def test_calls_go_through_native_code_as_soon_as_there_is_some() -> None:
    add = kernel(TWO, target="host", shapes={"A": A, "B": A}, threads=1)
    for _ in range(4):
        sum_, difference = add(A, 2 * A)
    assert isinstance(type(add).__dict__["__call__"], types.MethodDescriptorType)
    out = (np.empty_like(A), np.empty_like(A))
    references = [sys.getrefcount(o) for o in (A, out, out[0])]
    for found in (add(A, 2 * A), add(A, B=2 * A), add(A=A, B=2 * A), add(A, 2 * A, out=out)):
        np.testing.assert_array_equal(found[0], sum_)
        np.testing.assert_array_equal(found[1], difference)
    del found
    assert [sys.getrefcount(o) for o in (A, out, out[0])] == references
    assert fault(add, A)[0] == "D033"
    assert fault(add, A, A, A)[0] == "D030"
    assert fault(add, A, A, C=A)[0] == "D031"
    assert fault(add, A, B)[0] == "C011"
    assert fault(add, A, A, out=A)[0] == "C015"
    assert list(inspect.signature(add).parameters) == ["arrays", "out", "named"]
    again = kernel(TWO, target="host", shapes={"A": A, "B": A}, threads=1)
    np.testing.assert_array_equal(again(A, 2 * A)[0], sum_)  # one that was not called before
