"""Whatever stands in a config or a pipeline's text, the answer is a value or an error of the user's."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hwconfigs.load import DATA, load
from hwconfigs.model import ConfigError
from stripe.diag import CompileError
from stripe.passes.registry import check_pipeline, make_passes, parse_pipeline, pass_spec

TEXT = (DATA / "generic.json").read_text()
WHOLE: dict[str, Any] = json.loads(TEXT)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["L1", "REG", "", "autotile", "é"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "pass", "x"]), inner)
    ),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


PLACES = [place for place in places(WHOLE) if place]


def answered(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "chip.json"
        path.write_bytes(content)
        try:
            check_pipeline(load(path))
        except (ConfigError, CompileError) as error:
            assert len(str(error)) < 5000


@given(st.integers(0, len(TEXT)), st.integers(0, 6), st.text('{}[]",:\n\\ae19.-', max_size=6))
def test_damaged_text(start: int, length: int, insert: str) -> None:
    answered((TEXT[:start] + insert + TEXT[start + length :]).encode())


@given(st.binary(max_size=30))
def test_bytes(content: bytes) -> None:
    answered(content)


@settings(max_examples=300)
@given(st.sampled_from(PLACES), values)
def test_a_value_of_another_kind(place: tuple[Any, ...], value: Any) -> None:
    changed = json.loads(TEXT)
    at = changed
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    answered(json.dumps(changed).encode())


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(
            ["autotile", "fuse", "{", "}", "[", "]", ",", "=", "memory", "L1", '"', "3", "-", "true"]
        ),
        max_size=9,
    ).map("".join)
)
def test_pipelines(text: str) -> None:
    try:
        steps = make_passes(parse_pipeline(text))
    except CompileError as error:
        assert error.diagnostics[0].span is not None
    else:
        assert make_passes(parse_pipeline(",".join(map(pass_spec, steps)))) == steps
