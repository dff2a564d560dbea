"""HTML as a strict reader sees it: what is not closed, or asks for anything from elsewhere, is found."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = frozenset({"meta", "input", "br"})
# Elements that could load or run something, and attributes that name an address.
FORBIDDEN = frozenset(
    "script link img image iframe object embed base form audio video source use foreignobject".split()
)
ADDRESSES = frozenset({"href", "src", "srcset", "xlink:href", "action", "data", "poster", "background"})
# A relative path, percent-encoded: no scheme, no server, nothing that runs.
_NEAR = re.compile(r"(?!/)[\w./%~-]+", re.ASCII)
_OUTSIDE = re.compile(r"@import|url\((?!#)|https?:|//")


class Page(HTMLParser):
    """A page that was read: its text, its headings, and what is wrong with it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.problems: list[str] = []
        self.headings: list[str] = []
        self.tags: list[str] = []
        # Where its links lead; only to files near the page.
        self.links: list[str] = []
        self._open: list[str] = []
        self._texts: list[str] = []
        self.feed(html)
        self.close()
        self.problems += [f"'{tag}' is not closed" for tag in self._open]

    @property
    def text(self) -> str:
        """What is read in it, blanks as one."""
        return " ".join(" ".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in FORBIDDEN:
            self.problems.append(f"there is a '{tag}'")
        self.links += [value or "" for name, value in attrs if (tag, name) == ("a", "href")]
        self.problems += [problem for name, value in attrs if (problem := _attribute(tag, name, value or ""))]
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("h1", "h2"):
            self.headings.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.problems.append(f"'{tag}' is closed inside {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            self.problems += [f"the style has '{found}'" for found in _OUTSIDE.findall(data)]
            return
        self._texts.append(data)
        if "h1" in self._open or "h2" in self._open:
            self.headings[-1] += data


def _attribute(tag: str, name: str, value: str) -> str:
    if (tag, name) == ("a", "href") and _NEAR.fullmatch(value):
        return ""
    if name in ADDRESSES or name.startswith("on"):
        return f"there is an attribute '{name}'"
    is_namespace = name == "xmlns" and value == "http://www.w3.org/2000/svg"
    return f"'{name}' has '{value}'" if name == "style" and _OUTSIDE.search(value) and not is_namespace else ""
