"""Two texts of a program side by side, kernel by kernel, with the words that differ marked.

    parts    a program's text as its head, its kernels and its specials
    changes  what differs between two programs, and what does not

Lines are compared without their indentation: a block that moved under another one is the same block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from stripe.alike import kind
from stripe.ir import Block, Program
from stripe.printer import to_text
from stripec.reporting.model import Change, Hunk, Piece, Row

CONTEXT = 2  # unchanged lines shown beside a change
SHORTEST_FOLD = 5  # a run of unchanged lines that is folded
MAX_ROWS = 1500  # of one change
MAX_PAIRING = 10_000  # pairs of lines that are weighed, to find out which became which

_WORD = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a program: the head of a root, a kernel, or a statement of the root that is no block."""

    name: str
    lines: tuple[str, ...]
    block: Block | None


def parts(program: Program) -> list[Part]:
    """The pieces of both roots, in the order of the text."""
    found: list[Part] = []
    lines = to_text(program).splitlines()
    for root in filter(None, (program.load, program.root)):
        end = next(at for at, line in enumerate(lines) if line == "}") + 1
        found += _parts_of(root, lines[:end])
        lines = lines[end + 1 :]
    return found


def _parts_of(root: Block, lines: Sequence[str]) -> Iterator[Part]:
    opened = next(at for at, line in enumerate(lines) if line.endswith("{"))
    yield Part(f"{root.name} (buffers)", tuple(lines[: opened + 1]), None)
    children = iter(root.children)
    at, last = opened + 1, len(lines) - 1
    while at < last:
        if not lines[at].startswith("  block "):
            yield Part(f"{root.name}: {lines[at].strip()}"[:60], (lines[at],), None)
            at += 1
            continue
        end = next(n for n in range(at, last) if lines[n] == "  }") + 1
        block = next(children)
        yield Part(f"{root.name}/{block.name}", tuple(lines[at:end]), block)
        at = end


@dataclass(frozen=True, slots=True)
class Difference:
    """The kernels that are others now, and those that are the same."""

    changes: tuple[Change, ...]
    unchanged: tuple[str, ...]


def changes(before: Sequence[Part], after: Sequence[Part], rows: int = MAX_ROWS) -> Difference:
    """What differs; a kernel that is gone is shown with the next one that changed, into which it may have
    gone.

    Changes that are the same but for names are shown once. `rows` is a bound for all together.
    """
    same: list[str] = []
    groups: list[tuple[list[Part], list[Part]]] = []
    waiting: list[Part] = []
    for old, new in _paired(before, after):
        if old is not None and new is not None and old.lines == new.lines:
            same += [new.name] if new.block is not None else []
        elif new is None:
            waiting += [old] if old is not None else []
        else:
            groups.append(([*waiting, *([old] if old is not None else [])], [new]))
            waiting = []
    if waiting:
        groups.append((waiting, []))
    found: list[Change] = []
    known: dict[object, int] = {}
    for olds, news in groups:
        key = tuple(id(kind(p.block).block) if p.block else p.lines for p in (*olds, *news))
        whole = (len(olds), *key)
        name = ", ".join(dict.fromkeys(p.name for p in (*news, *olds)))
        if whole in known:
            like = found[known[whole]]
            found[known[whole]] = Change(
                like.name, like.added, like.removed, like.hunks, (*like.alike, name), like.omitted
            )
            continue
        known[whole] = len(found)
        left = [line for p in olds for line in p.lines]
        right = [line for p in news for line in p.lines]
        made = change(name, left, right, min(rows, MAX_ROWS))
        rows = max(0, rows - sum(len(h.rows) for h in made.hunks))
        found.append(made)
    return Difference(tuple(found), tuple(same))


def _paired(before: Sequence[Part], after: Sequence[Part]) -> Iterator[tuple[Part | None, Part | None]]:
    """Parts of the same name and order beside each other, others alone."""
    matcher = SequenceMatcher(None, [p.name for p in before], [p.name for p in after], autojunk=False)
    for op, a, b, c, d in matcher.get_opcodes():
        if op == "equal":
            yield from zip(before[a:b], after[c:d], strict=True)
        else:
            yield from ((p, None) for p in before[a:b])
            yield from ((None, p) for p in after[c:d])


def change(name: str, left: Sequence[str], right: Sequence[str], limit: int = MAX_ROWS) -> Change:
    """Two texts beside each other, at most `limit` rows of them."""
    rows = list(_rows(left, right))
    added = sum(r.changed and r.right is not None for r in rows)
    removed = sum(r.changed and r.left is not None for r in rows)
    hunks, used = [], 0
    for hunk in _hunks(rows):
        room = limit - used
        if room <= 0:
            break
        kept = hunk.rows[:room]
        hunks.append(Hunk(hunk.folded, kept))
        used += len(kept)
    return Change(name, added, removed, tuple(hunks), (), len(rows) - used)


def _rows(left: Sequence[str], right: Sequence[str]) -> Iterator[Row]:
    matcher = SequenceMatcher(
        None, [line.strip() for line in left], [line.strip() for line in right], autojunk=False
    )
    for op, a, b, c, d in matcher.get_opcodes():
        if op == "equal":
            for i, j in zip(range(a, b), range(c, d), strict=True):
                yield Row((Piece(left[i]),), (Piece(right[j]),), i + 1, j + 1)
            continue
        for at, to in _matched(left[a:b], right[c:d]):
            old = None if at is None else left[a + at]
            new = None if to is None else right[c + to]
            before, after = _marked(old, new)
            yield Row(before, after, 0 if at is None else a + at + 1, 0 if to is None else c + to + 1)


def _matched(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Which line became which: the pairs in order whose words agree most; others stand alone."""
    n, m = len(left), len(right)
    if not n or not m or n * m > MAX_PAIRING:
        yield from ((at, None) for at in range(n))
        yield from ((None, to) for to in range(m))
        return
    words = (
        [set(re.findall(r"\w+", line)) for line in left],
        [set(re.findall(r"\w+", line)) for line in right],
    )
    best = [[0.0] * (m + 1) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            paired = best[i + 1][j + 1] + _agreement(words[0][i], words[1][j])
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    i = j = 0
    while i < n or j < m:
        if i < n and j < m:
            gain = _agreement(words[0][i], words[1][j])
            if gain > 0 and best[i][j] == best[i + 1][j + 1] + gain:
                yield i, j
                i, j = i + 1, j + 1
                continue
        if i < n and (j == m or best[i][j] == best[i + 1][j]):
            yield i, None
            i += 1
        else:
            yield None, j
            j += 1


def _agreement(left: set[str], right: set[str]) -> float:
    """How much two lines have in common, from 0 to 1; little is nothing."""
    share = len(left & right) / max(len(left | right), 1)
    return share if share >= 0.4 else 0.0


def _marked(old: str | None, new: str | None) -> tuple[tuple[Piece, ...] | None, tuple[Piece, ...] | None]:
    """Both lines with their differing words marked; a line that stands alone has no marks."""
    if old is None or new is None:
        return (None if old is None else (Piece(old),)), (None if new is None else (Piece(new),))
    left, right = _WORD.findall(old), _WORD.findall(new)
    before: list[Piece] = []
    after: list[Piece] = []
    for op, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for pieces, words in ((before, left[a:b]), (after, right[c:d])):
            if words:
                pieces.append(Piece("".join(words), op != "equal" and bool("".join(words).strip())))
    return tuple(before), tuple(after)


def _hunks(rows: Sequence[Row]) -> Iterator[Hunk]:
    """The rows in runs: long runs without a change are folded, but for the lines next to changes."""
    at = 0
    while at < len(rows):
        end = at
        while end < len(rows) and rows[end].changed == rows[at].changed:
            end += 1
        run = tuple(rows[at:end])
        head = 0 if at == 0 else CONTEXT
        tail = 0 if end == len(rows) else CONTEXT
        if run[0].changed or len(run) < head + tail + SHORTEST_FOLD:
            yield Hunk(False, run)
        else:
            stop = len(run) - tail
            if head:
                yield Hunk(False, run[:head])
            yield Hunk(True, run[head:stop])
            if tail:
                yield Hunk(False, run[stop:])
        at = end
