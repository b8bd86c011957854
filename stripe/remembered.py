"""What was found out before, of as many things as there is room for: several threads may ask and tell.

An answer that is forgotten is worked out anew, and so is one that two threads work out at the same time.
So whoever asks goes on with the value that `get` or `put` gave, and never looks it up again: another
thread may have pushed it out meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from stripe.locks import ThreadLock

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """The values of the last `limit` keys; the oldest go first. No value is None.

    A key with the `id` of an object needs a value that holds the object, so that the id stays its own.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[K, V] = {}
        self._lock = ThreadLock()

    def get(self, key: K) -> V | None:
        return self._values.get(key)  # one step of the dict, which needs no lock

    def put(self, key: K, value: V) -> V:
        """Keep the value from now on, also where there is another."""
        with self._lock:
            self._values[key] = value
            self._forget()
        return value

    def put_first(self, key: K, value: V) -> V:
        """The value that is kept, which is this one if there was none."""
        with self._lock:
            kept = self._values.setdefault(key, value)
            self._forget()
        return kept

    def _forget(self) -> None:
        while len(self._values) > self._limit:
            del self._values[next(iter(self._values))]


class RememberedOf(Generic[T, V]):
    """What was found out about the last `limit` objects, which do not change; equal ones are told apart."""

    def __init__(self, limit: int) -> None:
        self._found = Remembered[int, tuple[T, V]](limit)

    def get(self, thing: T) -> V | None:
        found = self._found.get(id(thing))
        return None if found is None else found[1]

    def put(self, thing: T, value: V) -> V:
        return self._found.put(id(thing), (thing, value))[1]
