"""Explicit choices: what a step decided for each block, in one form for all passes.

A pass that searches says what it chose (`PassContext.chose`): a record of its own type, `Pass.choice`,
for a block by its path. The same records, given to a step, take the place of the search
(`PassContext.explicit`): a block without one stays as it is, unless `others` says that it is searched for.

    {"main/c": {"sizes": {"m": 16, "n": 48}, "order": ["n", "m"]}}

Of blocks with the same path the second is `main/c#2`, in the order in which the pass comes to them.

Codes: P008 records that are none, P009 a choice that can't be made: the block is not there, or it can't be
treated so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from stripe.diag import CompileError, Diagnostic, did_you_mean

Others: TypeAlias = Literal["leave", "search"]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a pass chose for one block. Subclasses are the records of passes; fields without a value
    that says otherwise are left out."""


C = TypeVar("C", bound=Choice)


@dataclass(frozen=True, slots=True)
class Given:
    """The explicit choices of one step. `place` is where they stand, in words that end in a JSON path."""

    records: Mapping[str, Choice]
    others: Others = "leave"
    place: str = ""

    def at(self, path: str, field: str = "") -> str:
        """Where the record of a block stands, or a field of it."""
        return f"{self.place}[{_quoted(path)}]" + (f".{field}" if field else "")

    def check_taken(self, step: str, taken: Collection[str], blocks: Collection[str]) -> None:
        """Raises CompileError P009 for records that were not `taken`: of blocks that the pass did not
        come to. `blocks` are the paths of all that there are."""
        left = [path for path in self.records if path not in taken]
        wrong = []
        for path in left:
            bare = re.sub(r"#\d+$", "", path)
            if bare in blocks:
                message = f"{step}: the choice for '{path}' has no use: the pass does not come to this block"
                notes: tuple[str, ...] = ("help: leave the choice out; or look at those of blocks around it",)
            else:
                message = f"{step}: there is no block '{path}' in front of this step"
                notes = did_you_mean(bare, blocks)
            wrong.append(Diagnostic("P009", message, None, (*notes, self.at(path))))
        if wrong:
            raise CompileError(*wrong)


def read_given(step: str, kind: type[Choice] | None, value: object, others: object, place: str) -> Given:
    """The choices of a step from JSON values. Raises CompileError P008 with the JSON path."""

    def wrong(message: str, where: str, *notes: str) -> CompileError:
        return CompileError(Diagnostic("P008", f"{step}: {message}", None, (*notes, where)))

    if kind is None:
        raise wrong("this pass makes no choices for blocks: its options say all", place)
    if others not in ("leave", "search"):
        where = place.removesuffix(".choices") + ".others"
        raise wrong(f"expected 'leave' or 'search', found {_shown(others)}", where)
    if not isinstance(value, Mapping):
        raise wrong(f"expected choices by block path, found {_shown(value)}", place)
    records: dict[str, Choice] = {}
    for path, record in value.items():
        try:
            records[str(path)] = msgspec.convert(record, kind, strict=True)
        except msgspec.ValidationError as error:
            message, _, below = str(error).partition(" - at `$")
            below = below.rstrip("`")
            found = _culprit(record, kind, below)
            if found is not None:
                below = below.replace("[...]", f".{found[0]}", 1)
                message += f", found {_shown(found[1])}"
            where = f"{place}[{_quoted(str(path))}]{below}"
            fields = [f.name for f in msgspec.structs.fields(kind)]
            unknown = re.search(r"unknown field `(.*)`", message)
            notes = did_you_mean(unknown[1], fields) if unknown else ()
            raise wrong(message[0].lower() + message[1:].replace("`", "'"), where, *notes) from None
    return Given(records, "search" if others == "search" else "leave", place)


def _culprit(record: object, kind: type[Choice], below: str) -> tuple[str, object] | None:
    """The entry of an object in a record that is wrong, where an error is at `.FIELD[...]`."""
    field = below.removesuffix("[...]").removeprefix(".")
    values = record.get(field) if isinstance(record, Mapping) and below.endswith("[...]") else None
    for name, value in values.items() if isinstance(values, Mapping) else ():
        try:
            msgspec.convert({**record, field: {name: value}}, kind, strict=True)  # type: ignore[dict-item]
        except msgspec.ValidationError:
            return str(name), value
    return None


def choices_json(records: Mapping[str, Choice]) -> dict[str, Any]:
    """Records as JSON has them, in the order in which they were made."""
    return {path: msgspec.json.decode(msgspec.json.encode(record)) for path, record in records.items()}


def _quoted(path: str) -> str:
    return msgspec.json.encode(path).decode()


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"'{value[:40]}'"
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), str(value)[:40])
