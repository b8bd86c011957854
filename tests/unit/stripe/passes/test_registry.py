"""Pipelines as text and JSON: round trips, and what a wrong one is answered with."""

from __future__ import annotations

import importlib
import inspect
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwconfigs.load import available, load_named
from hwconfigs.model import HwConfig, Memory, PassStep, Unit
from stripe.diag import CompileError
from stripe.passes import registry
from stripe.passes.registry import (
    PASSES,
    check_pipeline,
    make_pass,
    make_passes,
    parse_pipeline,
    pass_class,
    pass_info,
    pass_json,
    pass_spec,
)
from stripe.tags import TAGS
from tests.unit.stripe.passes.toys import TOYS, Toy

HW = HwConfig("chip", "", "interpreter", memories=(Memory("SPAD", "explicit"),))


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, where in TOYS.items():
        monkeypatch.setitem(PASSES, name, where)


def fault(text: str) -> tuple[str, str, int]:
    """Code, whole text and 1-based column of the error that a pipeline text gives."""
    with pytest.raises(CompileError) as caught:
        parse_pipeline(text)
    (found,) = caught.value.diagnostics
    assert found.span is not None
    return found.code, found.render(), found.span.start + 1


@pytest.mark.usefixtures("toys")
def test_text_gives_typed_options() -> None:
    text = (
        'toy{count=3, share=2, eager=true, indices=[x, "a b"], limit=7, cost=high, sizes={x=3, y=4}},rename'
    )
    steps = parse_pipeline(text)
    assert [s.name for s in steps] == ["toy", "rename"]
    toy, rename = make_passes(steps)
    assert toy == Toy(
        count=3, share=2.0, eager=True, indices=("x", "a b"), limit=7, cost="high", sizes=(("x", 3), ("y", 4))
    )  # fmt: skip
    assert isinstance(toy.share, float)
    assert pass_spec(rename) == "rename"
    assert parse_pipeline("  ") == ()


@pytest.mark.usefixtures("toys")
def test_spec_is_canonical_and_leaves_defaults_out() -> None:
    (toy,) = make_passes(parse_pipeline('toy{ indices = ["x",y] ,memory=L1, count=1 }'))
    assert pass_spec(toy) == "toy{memory=L1, indices=[x, y]}"
    assert pass_json(toy) == {"pass": "toy", "memory": "L1", "indices": ["x", "y"]}
    (quoted,) = make_passes(parse_pipeline('toy{memory="true"}'))
    assert pass_spec(quoted) == 'toy{memory="true"}'


words = st.text(string.ascii_letters + string.digits + ' _-."\\{}[],=é', max_size=8)


@given(
    st.builds(
        Toy,
        count=st.integers(0, 99),
        share=st.floats(allow_nan=False, allow_infinity=False),
        eager=st.booleans(),
        memory=words,
        indices=st.lists(words, max_size=3).map(tuple),
        limit=st.none() | st.integers(-5, 5),
        cost=st.sampled_from(["low", "high"]),
        sizes=st.dictionaries(words, st.integers(1, 99), max_size=3).map(lambda d: tuple(d.items())),
    )
)
def test_round_trip_through_text_and_json(toy: Toy) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PASSES, "toy", TOYS["toy"])
        (again,) = make_passes(parse_pipeline(pass_spec(toy)))
        assert again == toy
        step = pass_json(toy)
        name = step.pop("pass")
        assert make_pass(name, step) == toy


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("text", "code", "column", "said"),
    [
        ("tooy", "P002", 1, "did you mean 'toy'?"),
        ("rename,xyzzy", "P002", 8, "known: "),
        ("toy{cont=3}", "P003", 5, "did you mean 'count'?"),
        ("copy{a=1}", "P003", 6, "'copy' takes no options"),
        ("toy{count=high}", "P004", 5, "expected integer, found high"),
        ("toy{count=-1}", "P004", 5, "expected at least 0, found -1"),
        ("toy{count=100}", "P004", 5, "expected at most 99, found 100"),
        ("toy{count=true}", "P004", 5, "expected integer, found true"),
        ("toy{count=1.5}", "P004", 5, "expected integer, found 1.5"),
        ("toy{memory=3}", "P004", 5, "expected string, found 3"),
        ("toy{indices=x}", "P004", 5, "expected list of strings, found x"),
        ("toy{indices=[x, 3]}", "P004", 5, "found [x, 3]"),
        ("toy{limit=x}", "P004", 5, "expected integer or none"),
        ("toy{sizes=3}", "P004", 5, "expected integers by name, found 3"),
        ("toy{sizes={x=1.5}}", "P004", 5, "found {x=1.5}"),
        ("toy{sizes={x=0}}", "P004", 5, "expected at least 1 for x, found {x=0}"),
        ("toy{sizes={x=1, x=2}}", "P001", 17, "'x' is given twice"),
        ("toy{sizes={x=1", "P001", 15, "expected ','"),
        ("toy{sizes={1=x}}", "P001", 12, "expected a name"),
        ('toy{sizes={"\\x"=1}}', "P001", 12, "not a value"),
        ("toy{sizes={x={}}}", "P001", 14, "expected the value"),
        ("toy{cost=hihg}", "P004", 5, "did you mean 'high'?"),
        ("toy{count=1, count=2}", "P001", 14, "given twice"),
        ("toy{count}", "P001", 10, "expected '='"),
        ("toy{count=}", "P001", 11, "expected the value of an option"),
        ("toy{count=1", "P001", 12, "expected ','"),
        ("toy{indices=[[x]]}", "P001", 14, "expected the value"),
        ("toy rename", "P001", 5, "expected ','"),
        ("toy,", "P001", 5, "expected a pass after ','"),
        (",", "P001", 1, "expected the name of a pass"),
        ("toy;", "P001", 4, "unexpected character ';'"),
        ("toy{memory=\"\\x\"}", "P001", 12, "not a value"),
        ("toy{count=" + "9" * 5000 + "}", "P001", 11, "not a value"),
        ("[" * 100_000, "P001", 1, "expected the name"),
    ],
)  # fmt: skip
def test_a_wrong_text_is_answered_with_its_place(text: str, code: str, column: int, said: str) -> None:
    found = fault(text)
    assert (found[0], found[2]) == (code, column)
    assert said in found[1]


@pytest.mark.usefixtures("toys")
def test_names_in_a_pipeline_are_checked_against_the_target_all_at_once() -> None:
    steps = (
        PassStep("toy", {"memory": "SPDA"}),
        PassStep("tooy", {}),
        PassStep("toy", {"tag": "vectr"}),
        PassStep("toy", {"memory": "SPAD", "tag": "vector"}),
    )
    hw = HwConfig("chip", "", "interpreter", memories=HW.memories, pipeline=steps)
    with pytest.raises(CompileError) as caught:
        check_pipeline(hw)
    assert [d.code for d in caught.value.diagnostics] == ["P005", "P002", "P005"]
    text = str(caught.value)
    for said in ("'SPAD'", "$.pipeline[0].memory", "'toy'", "$.pipeline[1]", "'vector'", "$.pipeline[2].tag"):
        assert said in text


@pytest.mark.usefixtures("toys")
def test_names_in_a_text_are_checked_against_a_target_if_there_is_one() -> None:
    text = "rename,toy{count=2, memory=SPDA}"
    assert len(parse_pipeline(text)) == 2
    with pytest.raises(CompileError) as caught:
        parse_pipeline(text, HW)
    (found,) = caught.value.diagnostics
    assert found.span is not None
    assert (found.code, found.span.start) == ("P005", text.index("memory"))
    assert "'chip' has no memory 'SPDA'" in found.message


@pytest.mark.usefixtures("toys")
def test_what_a_pass_finds_wrong_with_a_target_has_the_place_of_its_step() -> None:
    hw = HwConfig("chip", "", "interpreter", pipeline=(PassStep("toy", {}), PassStep("toy", {"eager": True})))
    with pytest.raises(CompileError) as caught:
        check_pipeline(hw)
    (found,) = caught.value.diagnostics
    assert found.code == "P199"
    assert any("$.pipeline[1]" in note for note in found.notes)
    with pytest.raises(CompileError) as caught:
        parse_pipeline("rename, toy{eager=true}", hw)
    (found,) = caught.value.diagnostics
    assert found.span is not None and found.span.start == 8


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (PassStep("autotile", {}), "P102"),
        (PassStep("localize", {"accumulators": "CACHE"}), "P005"),
        (PassStep("autotile", {"cost": "rooflin"}), "P101"),
        (PassStep("vectorize", {"unit": "DMA"}), "P103"),
    ],
)
def test_a_target_that_lacks_what_a_pass_needs_is_refused_before_anything_runs(
    step: PassStep, code: str
) -> None:
    memories = () if code == "P102" else HW.memories
    units = (Unit("DMA", "transfer"),)
    with pytest.raises(CompileError) as caught:
        check_pipeline(HwConfig("chip", "", "interpreter", memories=memories, units=units, pipeline=(step,)))
    (found,) = caught.value.diagnostics
    assert found.code == code


def test_the_table_is_complete_and_each_pass_keeps_the_form() -> None:
    folder = Path(inspect.getfile(registry)).parent
    machinery = {"__init__", "base", "registry", "pipeline", "observers", "kernels"}
    helpers = (
        {path.stem for path in folder.glob("*.py")} - machinery - {name.replace("-", "_") for name in PASSES}
    )
    for name in PASSES:
        cls = pass_class(name)
        module = PASSES[name].partition(":")[0]
        assert module == f"stripe.passes.{name.replace('-', '_')}"
        assert cls.__name__.lower() == name.replace("-", "")
        assert "before:" in (cls.__doc__ or "") and "after:" in (cls.__doc__ or ""), name
        info = pass_info(name)
        assert info.summary.endswith("."), name
        for opt in info.options:
            assert opt.help, f"{name}.{opt.name} has no help"
        for tag in (*info.tags_read, *info.tags_set):
            assert tag in TAGS, f"{name}: tag {tag}"
        assert make_passes(parse_pipeline(pass_spec(cls()))) == (cls(),)
    for helper in helpers:  # parts of a pass that is too long for one file hold no pass themselves
        classes = vars(importlib.import_module(f"stripe.passes.{helper}")).values()
        assert not any(
            inspect.isclass(c) and hasattr(c, "run") and c.__module__.endswith(helper) for c in classes
        )


@pytest.mark.parametrize("name", available())
def test_every_shipped_pipeline_names_what_is_there_and_is_one_line_of_text(name: str) -> None:
    steps = check_pipeline(load_named(name))
    line = ",".join(pass_spec(step) for step in steps)
    assert make_passes(parse_pipeline(line)) == steps
