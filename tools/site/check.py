"""Check the pages that were built: links lead somewhere, nothing comes from elsewhere, and the text is that of docs/.

    python -m tools.site.check build/site

Zensical checks the links between sources; this looks at what a browser gets. It reads Markdown in another way than
a code host, so the text of every page is compared with what CommonMark makes of it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

from tools.site.pages import read_navigation, written_text

# What makes a browser ask for something without a click.
_FETCHED = {("link", "href"), ("a", "ping"), ("form", "action"), ("object", "data"), ("video", "poster")}
_SOURCES = ("src", "srcset")
_STYLE_ADDRESS = re.compile(r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\"')\s]+)")
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
# Parts of an article that are the site's own: the mark beside a heading, the name above a block, a table for a diagram.
_OWN = {"headerlink", "filename", "states"}
_FRONT = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)
_DIAGRAM = re.compile(r"^```mermaid\n.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(slots=True)
class Page(HTMLParser):
    """What a check needs to know of an HTML page."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    _open: list[tuple[str, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        for name, value in found.items():
            if name in _SOURCES or (tag, name) in _FETCHED:
                self.fetched += [part.split()[0] for part in value.split(",")] if name == "srcset" else [value]
            elif (tag, name) == ("a", "href"):
                self.links.append(value)
        self.fetched += _STYLE_ADDRESS.findall(found.get("style", ""))
        if tag not in _VOID:
            is_ours = tag in ("script", "style", "button") or bool(_OWN & set(found.get("class", "").split()))
            self._open.append((tag, is_ours))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = {tag for tag, _ in self._open}
        if "style" in tags:
            self.fetched += _STYLE_ADDRESS.findall(data)
        if "article" in tags and not any(is_ours for _, is_ours in self._open):
            self.words += data.split()


def read(text: str) -> Page:
    """A page, parsed."""
    page = Page()
    page.feed(text)
    page.close()
    return page


def problems(folder: Path) -> Iterator[str]:
    """What is wrong with the site in `folder`, in words."""
    html = folder / "html"
    pages = {path: read(path.read_text(encoding="utf-8")) for path in sorted(html.rglob("*.html"))}
    if not pages:
        yield f"there is no page in {html}"
    for path, page in pages.items():
        name = path.relative_to(html).as_posix()
        yield from (f"{name}: asks another host for {address}" for address in page.fetched if is_elsewhere(address))
        for link in dict.fromkeys([*page.links, *page.fetched]):
            if not is_elsewhere(link) and (reason := why_dead(pages, html, path, link)):
                yield f"{name}: {link}: {reason}"
    for path in sorted(html.rglob("*.css")):
        for address in _STYLE_ADDRESS.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(html).as_posix()}: asks another host for {address}"
    site = read_navigation()
    render = MarkdownIt("commonmark").enable("table").render
    for path in sorted((folder / "source").rglob("*.md")):
        name = path.relative_to(folder / "source")
        built = pages.get(html / name.with_suffix(".html"))
        if built is None:
            yield f"{name.as_posix()} was not built"
            continue
        text = written_text(site, name.as_posix()) or path.read_text(encoding="utf-8")
        if difference := first_difference(words_of_source(text, render), built.words):
            yield f"{name.as_posix()}: {difference}"


def is_elsewhere(address: str) -> bool:
    """Whether an address leads out of the site."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https", "mailto")


def why_dead(pages: dict[Path, Page], html: Path, path: Path, link: str) -> str:
    """Why a link leads nowhere; "" if it leads to a file, and to an element of it if it names one."""
    parts = urlsplit(link)
    if parts.scheme in ("data", "javascript"):
        return ""
    # 404.html is shown at any address, so its links begin at the top.
    base = html if parts.path.startswith("/") else path.parent
    target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "there is no such file"
    anchor = unquote(parts.fragment)
    return "there is no such heading" if anchor and target in pages and anchor not in pages[target].ids else ""


def words_of_source(text: str, render: Callable[[str], str]) -> list[str]:
    """The words that a code host shows of a page."""
    return read(f"<article>{render(_DIAGRAM.sub('', _FRONT.sub('', text)))}</article>").words


def first_difference(expected: list[str], found: list[str]) -> str:
    """The first place at which the texts differ; "" if there is none. Where a word ends does not matter."""
    one, other = "".join(expected), "".join(found)
    if one == other:
        return ""
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"shows {other[max(0, at - 30) : at + 40]!r} where a code host shows {one[max(0, at - 30) : at + 40]!r}"


def main(folder: Path) -> None:
    """Print what is wrong, and fail if anything is."""
    found = list(problems(folder))
    print("\n".join(found[:50]), file=sys.stderr)
    if found:
        sys.exit(f"{len(found)} problems in {folder / 'html'}")
    count = len(list((folder / "html").rglob("*.html")))
    print(f"{folder / 'html/index.html'}: {count} pages, no broken link, no request to elsewhere")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
