"""Locks that hold for the threads of one process, and not for a forked child.

The child has one thread, and copies of all locks as they were. One that another thread held at the fork
would never be free there.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload
from weakref import WeakSet

T = TypeVar("T")


class ThreadLock:
    """A lock for one thread at a time, which may take it again. In a forked child it is free: what another
    thread was about to do there, nobody does, so that each of its steps has to leave things whole."""

    def __init__(self) -> None:
        self._held = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._held.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.release()

    def renew(self) -> None:
        """Let nobody hold it: in a child."""
        self._held = threading.RLock()


_all: WeakSet[ThreadLock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)

if sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(Generic[T]):
        """As in `functools`, without the lock that 3.11 holds there for all instances of a class, while it
        works a value out for one of them: others need not wait, and none of it is left in a child."""

        def __init__(self, function: Callable[[Any], T]) -> None:
            self._function = function
            self._name = ""
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        @overload
        def __get__(self, instance: None, owner: type | None = None) -> Self: ...

        @overload
        def __get__(self, instance: object, owner: type | None = None) -> T: ...

        def __get__(self, instance: object | None, owner: type | None = None) -> Self | T:
            if instance is None:
                return self
            value = self._function(instance)
            instance.__dict__[self._name] = value
            return value
