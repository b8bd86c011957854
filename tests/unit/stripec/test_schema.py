"""The JSON Schema says what the loader says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import hwconfigs
from hwconfigs.load import available
from stripec.schema import schema, schema_text

FOLDER = Path(hwconfigs.__file__).parent
CHIP: dict[str, Any] = {"name": "chip", "extends": "generic"}


def accepts(config: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft202012Validator(schema()).is_valid(config))


def test_the_file_that_ships_is_the_one_that_is_made() -> None:
    shipped = (FOLDER / "hwconfig.schema.json").read_text()
    assert shipped == schema_text(), "run: stripec targets schema > hwconfigs/hwconfig.schema.json"


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("name", available())
def test_it_accepts_the_shipped_configs(name: str) -> None:
    jsonschema.validate(json.loads((FOLDER / "data" / f"{name}.json").read_text()), schema())


@pytest.mark.parametrize(
    ("more", "good"),
    [
        ({}, True),
        ({"memories": [{"name": "L2", "bytes": 64}]}, True),
        ({"pipeline": [{"pass": "autotile", "memory": "L1", "indices": ["x"]}]}, True),
        ({"pipeline": [{"pass": "autotile", "memmory": "L1"}]}, False),
        ({"pipeline": [{"pass": "autotile", "indices": "x"}]}, False),
        ({"pipeline": [{"pass": "autotyle"}]}, False),
        ({"memories": [{"name": "L2", "bytes": 0}]}, False),
        ({"memories": [{"bytes": 64}]}, False),
        ({"executor": "gpu"}, False),
        ({"colour": "red"}, False),
    ],
)
def test_it_tells_good_from_bad(more: dict[str, Any], good: bool) -> None:
    assert accepts(CHIP | more) is good
