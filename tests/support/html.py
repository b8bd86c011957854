"""An HTML file as a test sees it: well formed, with its anchors, links and texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "input", "br", "wbr", "hr", "img", "col"})


@dataclass
class Found:
    """What a document has. `faults` are tags that don't match, and identifiers given twice."""

    faults: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)


def read(html: str) -> Found:
    """Read a document; scripts and styles are no texts."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    reader.found.faults += [f"<{tag}> is not closed" for tag in reader.open]
    return reader.found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found = Found()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = self.found
        found.tags[tag] = found.tags.get(tag, 0) + 1
        for name, value in attrs:
            if name == "id":
                if value in found.ids:
                    found.faults.append(f"id {value!r} is given twice, at line {self.getpos()[0]}")
                found.ids.add(value or "")
            elif name == "href" and tag == "a":
                found.links.append(value or "")
            elif name in ("src", "href", "xlink:href", "srcset", "action", "data"):
                found.sources.append(value or "")
            elif name.startswith("on"):
                found.faults.append(f"<{tag}> has a handler, {name}")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.found.faults.append(f"</{tag}> at line {self.getpos()[0]} closes {self.open[-1:]}")
            return
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]) and data.strip():
            self.found.texts.append(data)
