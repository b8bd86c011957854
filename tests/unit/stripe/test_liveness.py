"""stripe.analysis.liveness: times, copies, and the largest live set."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hwconfigs.load import load
from hwconfigs.model import HwConfig
from stripe.analysis.liveness import Lifetime, lifetimes, peak, peaks, timeline, units_of
from stripe.ir import Block
from stripe.parser import parse

TINY = load(Path(__file__).parents[2] / "golden" / "targets" / "tiny.json")

COPY = """block %s [x:4] (in A = %s[x] f32(1) out B = %s[x]:assign f32(1)) { $x = load(A) B = store($x) }"""


def copy(name: str, source: str, target: str) -> str:
    return COPY % (name, source, target)


def root(body: str, refs: str = "") -> Block:
    head = "block main [] (in X[0] f32(16):(1) out Y[0]:assign f32(16):(1) %s) {\n%s\n}"
    return parse(head % (refs, body)).root


def lives(block: Block) -> dict[str, Lifetime]:
    return {life.ref.name: life for life in lifetimes(block, TINY)}


def times(block: Block) -> dict[str, tuple[int, int]]:
    return {name: (life.start, life.end) for name, life in lives(block).items()}


CHAIN = root(
    "\n".join([copy("a", "X", "T"), copy("b", "T", "U"), copy("c", "U", "Y")]),
    "new T f32(4):(1) @SPAD new U f32(4):(1) @SPAD new V f32(4):(1) @SPAD",
)


def test_buffers_live_from_their_first_to_their_last_use() -> None:
    # each copy takes two ticks; V is used by nobody
    assert times(CHAIN) == {"X": (0, 5), "Y": (4, 5), "T": (0, 3), "U": (2, 5), "V": (0, -1)}
    assert lives(CHAIN)["V"].uses is None
    assert {life.memory for life in lifetimes(CHAIN, TINY)} == {"SPAD", "DRAM"}  # X and Y lie at home


def test_timeline_follows_the_text() -> None:
    top = timeline(CHAIN)
    assert [(s.path, s.at, s.start, s.end) for s in top.children] == [
        ("main/a", 0, 0, 1),
        ("main/b", 1, 2, 3),
        ("main/c", 2, 4, 5),
    ]


def test_empty_blocks_take_a_tick() -> None:
    top = timeline(Block("main", statements=(Block("a"), Block("b"))))
    assert (top.times, top.end) == ([(0, 0), (1, 1)], 1)


def test_the_largest_live_set_is_at_the_middle_copy() -> None:
    most = peak(CHAIN, TINY, "SPAD")
    assert most is not None
    assert (most.bytes, most.scope.path, most.statement) == (32, "main", 1)
    assert peak(CHAIN, TINY, "SRAM") is None


TILE = """block tiles [t:4] %s (in X[4*t] f32(4) out Y[4*t]:assign f32(4) new T f32(4):(1) @SPAD) {
  block one [] (in X[0] f32(4) out T[0]:assign f32(4) new P f32(4):(1) @SPAD) { %s %s }
  block two [] (in T[0] f32(4) out Y[0]:assign f32(4) new Q f32(8):(1) @SPAD) { %s %s }
}"""


def tile(location: str) -> Block:
    steps = (copy("a", "X", "P"), copy("b", "P", "T"), copy("c", "T", "Q"), copy("d", "Q", "Y"))
    return root(TILE % (location, *steps))


def test_what_stands_in_two_statements_takes_turns() -> None:
    block = tile("")
    assert times(block) | {"X": (), "Y": ()} == {"X": (), "Y": (), "T": (0, 7), "P": (0, 3), "Q": (4, 7)}
    most = peaks(block, TINY)["SPAD"]
    assert (most.bytes, most.scope.path, most.statement) == (16 + 32, "main/tiles/two", 0)


def test_points_in_flight_are_at_different_statements() -> None:
    block = tile("inflight=3")
    found = lives(block)
    assert [found[name].slots for name in "TPQ"] == [3, 1, 1]
    assert {(found[name].start, found[name].end) for name in "TPQ"} == {(0, 7)}
    most = peaks(block, TINY)["SPAD"]
    assert (most.bytes, most.scope.path) == (3 * 16 + 16 + 32, "main/tiles")
    assert lives(tile("inflight=9"))["T"].slots == 4  # there are four points


def test_units_side_by_side_have_a_copy_each() -> None:
    block = tile("@CORE[t]")
    found = lives(block)
    assert [found[name].units for name in "TPQ"] == [4, 4, 4]
    assert (found["P"].start, found["P"].end) == (0, 3)
    assert (found["P"].wide_start, found["P"].wide_end) == (0, 7)
    assert found["Q"].total == 4 * 32
    assert peaks(block, TINY)["SPAD"].bytes == 4 * (16 + 32)
    assert peaks(block, TINY, in_one=True)["SPAD"].bytes == 4 * (16 + 32)
    assert peaks(block, spads(4))["SPAD"].bytes == 4 * (16 + 32)
    for instances, own in ((2, 2), (3, 2), (4, 1), (5, 1)):
        assert peaks(block, spads(instances), in_one=True)["SPAD"].bytes == own * (16 + 32)


def spads(instances: int) -> HwConfig:
    """The target with several of its near memories."""
    memories = (replace(m, count=instances) if m.name == "SPAD" else m for m in TINY.memories)
    return replace(TINY, memories=tuple(memories))


@pytest.mark.parametrize(
    ("location", "units"),
    [
        ("@CORE[i]", 4),
        ("@CORE[2*i + j]", 8),
        ("@CORE[0*i]", 1),
        ("@CORE[c]", 1),
        ("@CORE", 1),
        ("@CORE[k]", 3),
    ],
)
def test_units_are_counted(location: str, units: int) -> None:
    inner = f"block inner [i:4, j:2, k:5, c = c] {location} (2 - k >= 0) {{}}"
    block = parse(f"block main [] () {{\nblock outer [c:2] () {{\n{inner}\n}}\n}}").root
    assert units_of(block.children[0].children[0]) == units


def test_parts_and_gaps_count() -> None:
    block = root(
        copy("a", "X", "T") + copy("b", "T", "U") + copy("c", "U", "Y"),
        "new T f32(8):(2) @SPAD[spread 0] new U f32(4):(1) @SPAD",
    )
    found = lives(block)["T"]
    assert (found.parts, found.bytes, found.total) == (4, 12, 48)  # two elements and the gap between
    assert peaks(block, TINY)["SPAD"].bytes == 48 + 16
    assert peaks(block, spads(3), in_one=True)["SPAD"].bytes == 4 * 4 + 16  # of 12 banks, 4 are in one
