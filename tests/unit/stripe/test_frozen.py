"""Frozen dataclasses that are made fast: in all else they are what the standard library makes."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from stripe.frozen import frozen


@frozen
class Point:
    x: int
    y: int = 2
    note: str = field(default="", compare=False)


@frozen
class Further(Point):
    z: int = 3


@dataclass(frozen=True, slots=True)
class Plain:
    x: int
    y: int = 2
    note: str = field(default="", compare=False)


def test_fields_come_by_position_name_and_default() -> None:
    assert (Point(1).x, Point(1).y, Point(1).note) == (1, 2, "")
    assert Point(1, y=5, note="here") == Point(1, 5), "what does not count in comparisons does not"
    assert hash(Point(1)) == hash(Point(1, 2, "there"))
    assert Further(1, 4, z=5) != Further(1, 4)
    assert repr(Further(1)) == "Further(x=1, y=2, note='', z=3)"
    with pytest.raises(TypeError, match=r"Point.*missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]


def test_nothing_can_be_set_or_added() -> None:
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    assert not hasattr(Point(1), "__dict__")


def test_it_is_a_dataclass_like_any_other() -> None:
    assert inspect.signature(Point) == inspect.signature(Plain)
    assert [f.name for f in fields(Further)] == ["x", "y", "note", "z"]
    assert replace(Point(1), y=7) == Point(1, 7)
    assert pickle.loads(pickle.dumps(Point(1, 4))) == Point(1, 4)
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)


def test_what_it_can_not_make_is_refused() -> None:
    with pytest.raises(AssertionError):

        @frozen
        class Many:
            items: list[int] = field(default_factory=list)
