"""A pipeline that can't apply is answered with pass, block and limit, and by how much it is exceeded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stripec
from hwconfigs.model import ConfigError
from stripe.diag import CompileError
from stripec.cli import main
from tests.support.bad_targets import Json, shipped

EXAMPLES = Path(__file__).parents[3] / "examples"
TYPES = {"A": "f32[33,20]", "B": "f32[20,40]", "D": "f32[40]"}


def part(config: Json, key: str, name: str) -> dict[str, Any]:
    return next(p for p in config[key] if name in (p.get("name"), p.get("pass")))


def steps(*names: str) -> Callable[[Json], None]:
    """Keep these steps of the pipeline, in this order."""

    def edit(config: Json) -> None:
        config["pipeline"] = [part(config, "pipeline", name) for name in names]

    return edit


def without(name: str) -> Callable[[Json], None]:
    def edit(config: Json) -> None:
        config["pipeline"] = [step for step in config["pipeline"] if step["pass"] != name]

    return edit


def put(key: str, name: str, **values: Any) -> Callable[[Json], None]:
    def edit(config: Json) -> None:
        part(config, key, name).update(values)

    return edit


ERRORS: dict[str, tuple[Callable[[Json], object], str]] = {
    "too small for one use of a stencil": (
        put("memories", "ACC", bytes=512),
        r"P110\]: autotile: no tile of 'main/R/C' fits: the smallest needs \d+ bytes of ACC, "
        r"of which there are 512: \d+ too many",
    ),
    "too small at home": (
        put("memories", "DRAM", bytes=6400),
        r"V037\]: block main, statement 1 \(block R\): \d+ bytes are alive at once in DRAM, \d+ more ",
    ),
    "an unknown memory": (
        put("pipeline", "transfer", memory="SPUD"),
        r"P005\]: option 'memory' of 'transfer': the target 'systolic_16' has no memory 'SPUD'\n.*'SPAD'\?\n"
        r".*\$\.pipeline\[10\]\.memory",
    ),
    "banks that do not divide": (
        put("memories", "SPAD", banks=3),
        r"H005\]: .*: the 262144 bytes of 'SPAD' do not divide into 3 banks of a multiple of 64 "
        r"bytes each: \d+ left over",
    ),
    "an unknown operation": (
        put("units", "VPU", operations=["add", "mull"]),
        r"P007\]: no operation is named 'mull'\n.*'mul'\?\n.*in the operations of the unit 'VPU'",
    ),
    "an unknown special": (
        put("units", "VPU", specials=["gether"]),
        r"P007\]: no special is named 'gether'\n.*'gather'\?\n.*in the specials of the unit 'VPU'",
    ),
    "no unit that can": (
        put("units", "VPU", operations=["mul"]),
        r"P150\]: transfer: no unit of 'systolic_16' can execute 'main/R/R'\n"
        r"(.*\n)*.*VPU does not compute 'add': "
        r"its operations are mul",
    ),
    "no transfer unit": (
        lambda config: config["units"].pop(),
        r"P153\]: transfer: 'A' of 'main' lies in DRAM, and no unit reaches both DRAM and SPAD",
    ),
    "named stencils that fit nothing": (
        put("pipeline", "stencil", stencils=["mac_i8", "mac_bf16"]),
        r"P122\]: stencil: no block of 'main' is a use of mac_i8 or mac_bf16\n.*main/R.*f32",
    ),
    "a stencil that fits no registers": (
        put("stencils", "mac_f32", registers={"acc": "i * j"}),
        r"P121\]: stencil: 'mac_f32' can never be used: its smallest use needs 256 registers, .* has 16",
    ),
    "a stencil on what its unit does not reach": (
        put("stencils", "mac_f32", memory={"x": "DRAM"}),
        r"H005\]: .*the unit 'MAC' does not reach 'DRAM': it reaches SPAD, ACC.*\$\.stencils\[2\]\.memory\.x",
    ),
    "no copies": (
        without("transfer"),
        r"P006\]: after the pass 'place' \(step 13: place\), .*MAC does not reach DRAM: it reaches SPAD, ACC",
    ),
    "nothing but addresses": (
        steps("place"),
        r"V065\]: block main, refinement 'C': it lies in no memory(.*\n)*.*'systolic_16' ends with 'place'",
    ),
    "caches are not filled by transfers": (
        put("memories", "SPAD", kind="cached"),
        r"P151\]: transfer: SPAD is filled by hardware",
    ),
    "a bank of no size": (
        put("memories", "SPAD", bytes=None),
        r"P\d+\]: (partition: SPAD of 'systolic_16' has no size|transfer: )",
    ),
    "too many points in flight": (
        put("pipeline", "autotile", inflight=1000),
        r"P004\]: option 'inflight' of 'autotile': expected at most 64, found 1000",
    ),
    "interleaved tiles that are copied": (
        put("pipeline", "autotile", interleave=True),
        r"P111\]: autotile: tiles interleave in memories of kind 'cached'; SPAD is 'explicit'",
    ),
    "copies of a unit without an instance each": (
        lambda config: [edit(config) for edit in (
            put("memories", "SPAD", count=4), put("units", "VPU", count=3)
        )],
        r"H005\]: .*'VPU' has 3 copies and 'SPAD' 4 instances",
    ),
}  # fmt: skip


def broken(edit: Callable[[Json], object], folder: Path) -> Path:
    config = shipped("systolic_16")
    edit(config)
    path = folder / "chip.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(("edit", "message"), ERRORS.values(), ids=ERRORS)
def test_errors(edit: Callable[[Json], object], message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, CompileError)) as caught:
        stripec.compile(EXAMPLES / "matmul.tile", shapes=TYPES, target=broken(edit, tmp_path))
    assert re.search(message, str(caught.value)), str(caught.value)


def test_the_command_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit, message = ERRORS["too small for one use of a stencil"]
    path = broken(edit, tmp_path)
    inputs = [f"--input={name}=ones:{type_}" for name, type_ in TYPES.items()]
    assert main(["run", str(EXAMPLES / "matmul.tile"), "--target", str(path), *inputs]) == 1
    assert re.search(message, capsys.readouterr().err)


def without_limit(config: Json) -> None:
    part(config, "memories", "SPAD").update(bytes=None, banks=1)
    without("partition")(config)


HARMLESS: dict[str, Callable[[Json], object]] = {
    "copies before tiles": steps("canonicalize", "transfer", "autotile", "schedule", "place"),
    "order before copies": steps("canonicalize", "autotile", "schedule", "transfer", "place"),
    "everything twice": lambda config: config.update(
        pipeline=config["pipeline"][:-1] * 2 + config["pipeline"][-1:]
    ),
    "no tiles": without("autotile"),
    "no addresses": without("place"),
    "no order": without("schedule"),
    "no stencils": without("stencil"),
    "nothing at all": steps(),
    "a near memory without limit": without_limit,
}


@pytest.mark.parametrize("edit", HARMLESS.values(), ids=HARMLESS)
def test_steps_in_a_wrong_place_do_no_harm(edit: Callable[[Json], object], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shapes = {"A": (33, 20), "B": (20, 40), "D": (40,)}
    arrays = {name: rng.integers(-3, 4, shape).astype("f4") for name, shape in shapes.items()}
    wanted = np.maximum(arrays["A"] @ arrays["B"] + arrays["D"], 0)
    kernel = stripec.compile(EXAMPLES / "matmul.tile", shapes=TYPES, target=broken(edit, tmp_path))
    np.testing.assert_allclose(kernel(**arrays), wanted, rtol=1e-5, atol=1e-5)
