"""Fresh names, supplied per program or block: never from a global counter."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Hands out names that were not taken before: `x`, then `x_1`, `x_2` ..."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken: set[str] = set(taken)
        self._last: dict[str, int] = {}  # the number that each wanted name got last

    def fresh(self, wanted: str) -> str:
        name, number = wanted, self._last.get(wanted, 0)
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        self._last[wanted] = number
        return name

    def copy(self) -> Names:
        """Hands out the same names as this one from now on, without taking them from it."""
        made = Names(self._taken)
        made._last = dict(self._last)
        return made
