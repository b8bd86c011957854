"""What is found out about this machine, and what is made of it."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import msgspec
import pytest

import stripec
from codegen_cpu import host
from codegen_cpu.host import Cache, check_runs_here, complete_host, host_caches, host_target_name
from codegen_cpu.llvm import binding as llvm
from codegen_cpu.target import Target, process_triple
from hwconfigs.load import available, load_named
from hwconfigs.model import Cpu, HwConfig
from stripe.diag import CompileError


def cpu_of(hw: HwConfig) -> Cpu:
    assert hw.cpu is not None
    return hw.cpu


def test_the_host_config_is_shipped_and_runs_here() -> None:
    name = host_target_name()
    assert name in available()
    hw = complete_host(load_named(name))
    check_runs_here(hw)
    assert hw.cpu is not None and hw.cpu.cpu and hw.cpu.triple
    assert set(cpu_of(load_named(name)).features) <= set(hw.cpu.features)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}, "x86_64_avx2"),
        ({"sse2"}, "generic"),
        (set(), "generic"),
    ],
)
def test_the_choice_follows_the_features(
    monkeypatch: pytest.MonkeyPatch, features: set[str], expected: str
) -> None:
    monkeypatch.setattr(host, "host_features", lambda: frozenset(features))
    monkeypatch.setattr(host, "process_triple", lambda: "x86_64-unknown-linux-gnu")
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "x86-64")  # none that was measured
    assert host_target_name.__wrapped__() == expected


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ("znver5", "x86_64_zen5"),
        ("znver4", "x86_64_zen4"),
        ("znver3", "x86_64_zen3"),
        ("sapphirerapids", "x86_64_avx512_vnni"),
    ],
)
def test_a_config_of_measured_rates_is_for_its_own_cpus(
    monkeypatch: pytest.MonkeyPatch, cpu: str, expected: str
) -> None:
    like = expected if expected == "x86_64_zen3" else "x86_64_zen4"
    features = frozenset(cpu_of(load_named(like)).features)
    monkeypatch.setattr(host, "host_features", lambda: features)
    monkeypatch.setattr(host, "process_triple", lambda: "x86_64-unknown-linux-gnu")
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: cpu)
    assert host_target_name.__wrapped__() == expected


def test_registers_that_the_system_does_not_grant_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is then what it is without them, and who asks for them by name is told what is missing."""
    wanted = cpu_of(load_named("x86_64_amx")).features
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict.fromkeys(wanted, True))
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "sapphirerapids")
    monkeypatch.setattr(host, "process_triple", lambda: "x86_64-unknown-linux-gnu")
    for granted, expected in ((True, "x86_64_amx"), (False, "x86_64_avx512_vnni")):
        features = host.host_features.__wrapped__
        monkeypatch.setattr(host, "_tiles_granted", lambda granted=granted: granted)
        with monkeypatch.context() as patch:
            patch.setattr(host, "host_features", features)
            assert host_target_name.__wrapped__() == expected
            if not granted:
                with pytest.raises(
                    CompileError, match=r"C004.*'x86_64_amx' needs amx-bf16, amx-int8, amx-tile"
                ):
                    check_runs_here(load_named("x86_64_amx"))


def test_arm_machines_get_neon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host_features", lambda: frozenset({"neon", "fp-armv8"}))
    monkeypatch.setattr(host, "process_triple", lambda: "arm64-apple-darwin23")
    assert host_target_name.__wrapped__() == "aarch64_neon"


def test_missing_features_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host_features", lambda: frozenset({"avx", "avx2"}))
    monkeypatch.setattr(host, "process_triple", lambda: "x86_64-unknown-linux-gnu")
    with pytest.raises(CompileError, match=r"C004.*x86_64_avx512.*avx512f"):
        check_runs_here(load_named("x86_64_avx512"))
    with pytest.raises(CompileError, match=r"C004.*aarch64"):
        complete_host(load_named("aarch64_neon"))


@pytest.mark.parametrize("feature", ["avx512vp2intersect", "amx-fp16", "avx512vnnii"])
def test_a_target_that_asks_for_more_is_refused_by_name(tmp_path: Path, feature: str) -> None:
    """Whatever the config: code is not even loaded. Names that there are none of are missing, too."""
    if feature in host.host_features():
        pytest.skip(f"this CPU has {feature}")
    name = host_target_name()
    features = [*cpu_of(load_named(name)).features, feature]
    chip = {"extends": name, "name": "chip", "cpu": {"features": features}}
    path = tmp_path / "chip.json"
    path.write_text(json.dumps(chip))
    kernel = stripec.compile("function (A[M]) -> (B) { B = A + A; }", {"A": "f32[8]"}, target=path)
    with pytest.raises(CompileError, match=rf"C004.*'chip' needs {feature}, which"):
        kernel([0.0] * 8)


@pytest.mark.parametrize(
    ("here", "there", "runs"),
    [
        ("x86_64-unknown-linux-gnu", "x86_64-pc-windows-msvc", False),
        ("x86_64-unknown-linux-gnu", "x86_64-unknown-uefi", False),
        ("x86_64-unknown-linux-gnu", "x86_64-unknown-linux-gnux32", False),
        ("x86_64-pc-windows-msvc", "x86_64-unknown-linux-gnu", False),
        ("x86_64-pc-windows-msvc", "x86_64-w64-windows-gnu", True),
        ("x86_64-pc-windows-msvc", "", True),
        ("x86_64-unknown-linux-gnu", "x86_64-pc-linux-musl", True),
    ],
)
def test_code_that_is_called_otherwise_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, here: str, there: str, runs: bool
) -> None:
    """The same CPU, but arguments come in other registers, or pointers are shorter: a call would crash."""
    monkeypatch.setattr(host, "process_triple", lambda: here)
    hw = load_named("generic")
    chip = msgspec.structs.replace(hw, name="chip", cpu=msgspec.structs.replace(cpu_of(hw), triple=there))
    assert host.runs_here(chip) == runs
    if runs:
        check_runs_here(chip)
    else:
        with pytest.raises(CompileError, match=rf"C004.*'chip' is for '{there}', whose functions"):
            check_runs_here(chip)


def describe(folder: Path, number: int, **values: str) -> None:
    index = folder / f"index{number}"
    index.mkdir(parents=True)
    for name, value in values.items():
        (index / name).write_text(f"{value}\n")


def test_caches_are_read_from_the_system(tmp_path: Path) -> None:
    common = {"coherency_line_size": "64", "ways_of_associativity": "8"}
    describe(tmp_path, 0, type="Data", level="1", size="48K", **common)
    describe(tmp_path, 1, type="Instruction", level="1", size="32K", **common)
    describe(tmp_path, 2, type="Unified", level="2", size="2M", **common)
    describe(tmp_path, 3, type="Unified", level="3", size="what?", **common)
    assert host_caches(tmp_path) == (Cache(1, 48 << 10, 64, 8), Cache(2, 2 << 20, 64, 8))
    assert host_caches(tmp_path / "nowhere") == ()


def test_caches_replace_the_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host_caches", lambda: (Cache(1, 1 << 16, 128, None),))
    hw = complete_host(load_named("generic"))
    l1, l2 = hw.memory("L1"), hw.memory("L2")
    assert l1 is not None and (l1.bytes, l1.line_bytes, l1.ways) == (1 << 16, 128, 8)
    assert l2 == load_named("generic").memory("L2")


def test_code_uses_only_what_a_config_lists() -> None:
    hw = load_named("x86_64_avx2")
    tuned = msgspec.structs.replace(hw, cpu=msgspec.structs.replace(cpu_of(hw), cpu="skylake-avx512"))
    assert Target.of(tuned).features == tuple(sorted(cpu_of(hw).features))
    assert Target.of(tuned).tuned_for == "skylake-avx512"


def test_unknown_targets_are_errors() -> None:
    hw = load_named("generic")
    strange = msgspec.structs.replace(hw, cpu=msgspec.structs.replace(cpu_of(hw), triple="pdp11-dec-unix"))
    with pytest.raises(CompileError, match=r"C002.*pdp11"):
        Target.of(strange).layout()


def test_the_process_is_what_python_says() -> None:
    triple = process_triple().replace("arm64", "aarch64")
    assert platform.machine().lower().replace("amd64", "x86_64") in triple
