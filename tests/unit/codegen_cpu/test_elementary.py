"""The elementary functions: their errors over the whole range, their special values, their code."""

from __future__ import annotations

import re

import numpy as np
import pytest

import stripec
from benchmarks.formulas import GELU, LAYERNORM, SOFTMAX
from codegen_cpu.build import build
from codegen_cpu.elementary import NAMES
from codegen_cpu.kernel import NativeKernel
from codegen_cpu.target import Target
from hwconfigs.load import load_named
from hwconfigs.model import HwConfig
from stripe.dtypes import DType
from stripe.intrinsics import evaluate
from tests.support.elementary import (
    NUMPY,
    UNARY,
    Compiled,
    Errors,
    errors,
    f32_errors,
    f64_errors,
    hard_points,
    over_all_patterns,
    power_points,
    stated,
    wide,
)
from tests.support.native import elementwise, runnable

LIMITS = stated()


def targets() -> list[HwConfig]:
    """One target for each way in which the functions are written that this machine can run."""
    named = sorted(runnable(), key=lambda hw: hw.name)
    return list({Target.of(hw).arithmetic: hw for hw in named}.values())


every_target = pytest.mark.parametrize("hw", targets(), ids=lambda hw: hw.name)


def check(name: str, found: Errors, limit: float) -> None:
    assert not found.wrong, f"{name}: {found.wrong}"
    assert found.largest <= limit, f"{name}: {found.largest} units in the last place: {found.at}"


def test_the_document_states_all_of_them() -> None:
    assert set(LIMITS) == set(NUMPY) == set(NAMES)
    assert all(single <= 2 for single, _ in LIMITS.values())


def test_errors_are_seen() -> None:
    """The measure itself, on results that are wrong on purpose."""
    x = np.array([1.0, 2.0, 0.0, 90.0, np.nan], np.float32)
    exact = wide("exp", [x])
    with np.errstate(all="ignore"):
        right = exact.astype(np.float32)
    assert errors(right, exact, [x]).largest <= 0.5 and not errors(right, exact, [x]).wrong
    off = np.nextafter(right, np.float32(0))
    off = np.nextafter(off, np.float32(0))
    assert errors(off[:2], exact[:2], [x[:2]]).largest > 1.4
    assert errors(off[3:4], exact[3:4], [x[3:4]]).largest > 1
    assert errors(right[:1], exact[4:], [x[4:]]).wrong
    zero, minus = np.zeros(1, np.float32), -np.zeros(1, np.float32)
    assert errors(zero, minus.astype(np.float64), [minus]).wrong


@every_target
def test_f32_over_the_whole_range(hw: HwConfig) -> None:
    for name, found in f32_errors(tuple(NUMPY), hw, 49_999).items():
        check(name, found, LIMITS[name][0])


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("target", ["x86_64_avx512", "x86_64_avx2", "generic"])
def test_f32_on_every_bit_pattern(name: str, target: str) -> None:
    hw = next((hw for hw in runnable() if hw.name == target), None)
    if hw is None:
        pytest.skip(f"this machine does not run {target}")
    check(name, over_all_patterns(name, hw), LIMITS[name][0])


@every_target
@pytest.mark.parametrize("name", NUMPY)
def test_f64_over_the_whole_range(hw: HwConfig, name: str) -> None:
    check(name, f64_errors(name, hw, 6_000, 200), LIMITS[name][1])


@pytest.mark.slow
@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("target", ["x86_64_avx512", "x86_64_avx2", "generic"])
def test_f64_on_many_points(name: str, target: str) -> None:
    hw = next((hw for hw in runnable() if hw.name == target), None)
    if hw is None:
        pytest.skip(f"this machine does not run {target}")
    check(name, f64_errors(name, hw, 2_000_000, 20_000), LIMITS[name][1])


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
def test_scalars_compute_what_lanes_do(dtype: DType) -> None:
    x = hard_points(dtype.numpy.type, 400)
    y = np.roll(x, 5)
    for hw in targets()[-1:]:
        for names, operands in ((UNARY, (x,)), (("pow",), (x, y))):
            lanes = Compiled(names, dtype, x.size, hw)(*operands)
            scalars = Compiled(names, dtype, x.size, hw, vector=False)(*operands)
            for name in names:
                np.testing.assert_array_equal(lanes[name], scalars[name], err_msg=name)


@every_target
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
def test_narrow_floats_on_every_bit_pattern(hw: HwConfig, dtype: DType) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits.view(dtype.numpy)
    results = Compiled(UNARY, dtype, x.size, hw)(x)
    for name in UNARY:
        got, want = results[name], evaluate(name, (x,))
        near = _places(got, want) <= 1
        nan = np.isnan(want.astype(np.float32))
        assert (np.isnan(got.astype(np.float32)) == nan).all() and (near | nan).all(), name


def _places(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many floats lie between two, of 16 bits."""

    def ordered(v: np.ndarray) -> np.ndarray:
        bits = v.view(np.int16).astype(np.int64)
        return np.where(bits < 0, -32768 - bits, bits)

    return np.asarray(np.abs(ordered(a) - ordered(b)))


@every_target
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=str)
def test_powers_of_narrow_floats(hw: HwConfig, dtype: DType) -> None:
    with np.errstate(all="ignore"):
        x, y = (v.astype(dtype.numpy) for v in power_points(np.float32, 10_000))
        # On some CPUs NumPy hands signalling NaNs on, of which libraries differ in what they make.
        x, y = (np.where(np.isnan(v), np.array(np.nan, dtype.numpy), v) for v in (x, y))
    got, want = Compiled(["pow"], dtype, x.size, hw)(x, y)["pow"], evaluate("pow", (x, y))
    nan = np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    assert (nan | (_places(got, want) <= 1)).all()


# C99, Annex F, section 9.4.4; NumPy follows it.
INF, NAN = float("inf"), float("nan")
POWERS = [
    (0.0, -3.0, INF), (-0.0, -3.0, -INF), (0.0, -2.0, INF), (-0.0, -2.0, INF), (-0.0, -2.5, INF),
    (0.0, -INF, INF), (-0.0, -INF, INF), (0.0, 3.0, 0.0), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0),
    (-0.0, 0.5, 0.0), (-1.0, INF, 1.0), (-1.0, -INF, 1.0), (1.0, NAN, 1.0), (1.0, INF, 1.0),
    (NAN, 0.0, 1.0), (NAN, -0.0, 1.0), (INF, 0.0, 1.0), (0.0, 0.0, 1.0), (-2.0, 0.5, NAN),
    (-2.0, 1 / 3, NAN), (0.5, -INF, INF), (-0.5, -INF, INF), (2.0, -INF, 0.0), (-2.0, -INF, 0.0),
    (0.5, INF, 0.0), (-0.5, INF, 0.0), (2.0, INF, INF), (-2.0, INF, INF), (-INF, -3.0, -0.0),
    (-INF, -2.0, 0.0), (-INF, -0.5, 0.0), (-INF, 3.0, -INF), (-INF, 2.0, INF), (-INF, 0.5, INF),
    (INF, -1.0, 0.0), (INF, 1.0, INF), (NAN, 1.0, NAN), (2.0, NAN, NAN), (-1.0, NAN, NAN),
    (-8.0, 3.0, -512.0), (-8.0, 2.0, 64.0), (2.0, 10.0, 1024.0),
]  # fmt: skip


@every_target
@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32, DType.F64], ids=str)
def test_powers_with_a_name_in_the_standard(hw: HwConfig, dtype: DType) -> None:
    x, y, want = (np.array(column).astype(dtype.numpy) for column in zip(*POWERS, strict=True))
    got = Compiled(["pow"], dtype, x.size, hw)(x, y)["pow"]
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    known = ~np.isnan(want.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])


@every_target
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
@pytest.mark.parametrize("exponent", [2.0, 3.0, -1.0, 0.5, -0.5])
def test_powers_without_a_logarithm(hw: HwConfig, dtype: DType, exponent: float) -> None:
    special = np.array([x for x, *_ in POWERS]).astype(dtype.numpy)
    x = np.concatenate([special, hard_points(dtype.numpy.type, 4000)])
    kernel = stripec.compile(f"function (X[N]) -> (R) {{ R = pow(X, {exponent}); }}", {"X": x}, target=hw)
    wide = np.float64 if dtype is DType.F32 else np.longdouble
    with np.errstate(all="ignore"):
        want = np.power(x.astype(wide), np.full(x.shape, exponent, wide))
        near = want.astype(dtype.numpy)
        got = kernel(x)
        off = np.abs(got.astype(wide) - want) / np.spacing(np.abs(near)).astype(wide)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(near))
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(near)], np.signbit(near)[~np.isnan(near)])
    finite = np.isfinite(near)
    np.testing.assert_array_equal(got[~finite], near[~finite])
    assert off[finite].max() <= LIMITS["pow"][dtype is DType.F64]
    assert len(kernel.asm.splitlines()) < 200


@pytest.mark.parametrize("dtype", [DType.I8, DType.U16, DType.I64], ids=str)
def test_whole_powers_of_integers_wrap(dtype: DType) -> None:
    x = np.arange(-120, 120).astype(dtype.numpy)
    for exponent in (0, 1, 2, 3, 7, 16, 17):
        kernel = stripec.compile(f"function (X[N]) -> (R) {{ R = pow(X, {exponent}); }}", {"X": x})
        np.testing.assert_array_equal(kernel(x), np.power(x, np.array(exponent, dtype.numpy)))


# -- code --------------------------------------------------------------------------------------

CALL = re.compile(r"^\s*(?:call|callq|bl|blr)\s+(\S+)", re.M)


ALL = ("x86_64_avx512", "x86_64_avx2", "generic", "aarch64_neon")


@pytest.mark.parametrize(
    ("target", "dtype", "vector"),
    [(target, dtype, True) for target in ALL for dtype in (DType.F32, DType.F64)]
    + [(target, DType.F32, False) for target in ("x86_64_avx512", "generic")]
    + [(target, DType.F16, True) for target in ("x86_64_avx512", "x86_64_avx2")],
    ids=str,
)
def test_no_function_calls_another(target: str, dtype: DType, vector: bool) -> None:
    functions = {f"r_{n}": (n, [dtype] * (2 if n == "pow" else 1), dtype) for n in NUMPY}
    module = build(elementwise(functions, (1 << 20) + 3, vector), load_named(target))
    called = {re.sub("@.*", "", name) for name in CALL.findall(module.asm)}
    called = {name for name in called if not name.startswith("main_program")}
    assert not called
    assert "gather" not in module.asm


@pytest.mark.parametrize("name", ["erf", "tanh", "exp", "log", "pow"])
def test_coefficients_are_looked_up_where_that_is_one_instruction(name: str) -> None:
    operands = [DType.F32] * (2 if name == "pow" else 1)
    program = elementwise({f"r_{name}": (name, operands, DType.F32)}, 1 << 10, True)
    wide, narrow = (build(program, load_named(target)).asm for target in ("x86_64_avx512", "x86_64_avx2"))
    assert re.search("vperm(ps|d)", wide) and "vdivps" not in wide
    assert not re.search("vperm(ps|d)", narrow)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sin"])
def test_constants_are_read_where_they_are_used(name: str) -> None:
    """Without AVX-512 no instruction spreads one of them over the lanes of what it computes."""
    program = elementwise({"r": (name, [DType.F32], DType.F32)}, 1 << 10, True)
    loop = _usual_loop(build(program, load_named("x86_64_avx2")).asm)
    assert "stripec.each" in loop and "vbroadcast" not in loop


def test_hyperbolic_tangents_take_one_formula() -> None:
    program = elementwise({"r": ("tanh", [DType.F32], DType.F32)}, 1 << 10, True)
    loop = _usual_loop(build(program, load_named("x86_64_avx2")).asm)
    assert loop.count("vdivps") == 1 and not re.search("vblend|vcmp", loop)


def _usual_loop(asm: str) -> str:
    """The instructions of the first loop; what is rarely branched to lies behind it."""
    start = asm.index(".LBB0_1:")
    return asm[start : asm.index("\t.LBB0_1", start)]


def test_usual_powers_are_not_cut_off() -> None:
    """One test of the result finds all that is special; each limit more would cost a tenth of the time."""
    program = elementwise({"r": ("pow", [DType.F32] * 2, DType.F32)}, 1 << 10, True)
    asm = build(program, load_named("x86_64_avx512")).asm
    assert not re.search("v(min|max)ps", asm)


@every_target
def test_powers_of_what_is_too_large_to_be_taken_apart(hw: HwConfig) -> None:
    """Products with logarithms beyond all floats, and those that no float tells from their neighbours."""
    x = np.array([0.5, 2, 1.0000001, 0.99999994, -2, -0.5, 0, np.inf], np.float32)
    y = np.array([3e38, -3e38, 1e30, -1e30, 1e9, -1e9, 2e5, -2e5], np.float32)
    bases, powers = (v.ravel() for v in np.meshgrid(x, y))
    got = Compiled(["pow"], DType.F32, bases.size, hw)(bases, powers)["pow"]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, (bases.astype(float) ** powers).astype(np.float32))


def test_what_is_far_below_zero_is_not_scaled() -> None:
    """A core takes a hundred cycles and more for a result too small for a float; masked scores are such."""
    program = elementwise({"r": ("exp", [DType.F32], DType.F32)}, 1 << 10, True)
    asm = build(program, load_named("x86_64_avx512")).asm
    assert re.search(r"\{%k\d\} \{z\}\n\s*vscalefps", asm)


@every_target
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_lanes_of_exp_do_not_disturb_each_other(hw: HwConfig, dtype: DType) -> None:
    """Results that are too small, too large or nearly so take a branch, with the lanes beside them."""
    edges = (
        [86.9, 87.1, 88.1, 88.8, 95, 103] if dtype == DType.F32 else [707.9, 708.1, 709.5, 709.8, 730, 745]
    )
    far = [np.inf, 1e30, *edges]
    lanes = np.arange(16)
    x = np.tile(np.linspace(-80, 80, 16), (2 * len(far) + 1, 16, 1))
    x[:, lanes, lanes] = np.array([*far, *(-f for f in far), np.nan])[:, None]
    operand = x.ravel().astype(dtype.numpy)
    got = Compiled(["exp"], dtype, operand.size, hw)(operand)["exp"]
    check("exp", errors(got, wide("exp", [operand]), [operand]), LIMITS["exp"][dtype == DType.F64])


@every_target
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_exp_of_what_is_far_below_zero(hw: HwConfig, dtype: DType) -> None:
    x = np.array([-np.inf, -1e30, -1e5, -800, np.nan, 0, 1], dtype.numpy)
    program = elementwise({"r": ("exp", [dtype], dtype)}, x.size, True)
    result = NativeKernel(build(program, hw))(**{f"{dtype}_0": x})
    np.testing.assert_array_equal(result[:6], [0, 0, 0, 0, np.nan, 1])


@every_target
def test_it_is_never_beyond_its_limit(hw: HwConfig) -> None:
    """Also where |x| is cut off: there and next to it the result is 1, or below."""
    x = np.concatenate([np.linspace(3, 10, 20_000), [3.96875, 9.3125, 1e30, np.inf]]).astype(np.float32)
    for name in ("erf", "tanh"):
        program = elementwise({"r": (name, [DType.F32], DType.F32)}, x.size, True)
        result = NativeKernel(build(program, hw))(f32_0=x)
        assert result.max() == 1 and result.argmax() > 0 and (result > 0.99).all()


@pytest.mark.parametrize("text", [SOFTMAX, LAYERNORM, GELU], ids=["softmax", "layernorm", "gelu"])
@pytest.mark.parametrize("target", ["x86_64_avx512", "generic"])
def test_whole_programs_hold_no_calls(text: str, target: str) -> None:
    shapes = {name: f"f32[{size}]" for name, size in (("X", "32,96"), ("G", "96"), ("B", "96"))}
    named = {name: shape for name, shape in shapes.items() if f"{name}[" in text.partition(")")[0]}
    kernel = stripec.compile(text, shapes=named, target=target, threads=1)
    # Once for each call of the program: its entry, and the memory that it needs.
    outside = ("main", "mem", "aligned_alloc", "free")
    assert not [name for name in CALL.findall(kernel.asm) if not name.startswith(outside)]
