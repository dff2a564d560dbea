"""The pages of the documentation site: which there are, where each stands, and how links lead from one to another.

The files of docs/ are written for a code host: relative links, README.md as the page of a folder. Here they get their
places in the site; what they link to outside docs/ (an example, a source file) becomes a page of its own.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NAVIGATION = Path(__file__).with_name("navigation.toml")

_FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What is in backticks is no link.
_CODE_OR_TARGET = re.compile(
    r"(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)|(?<=\]\()(?P<link>[^)\s]+)(?=\))|(?<=<img src=\")(?P<image>[^\"]+)",
    re.DOTALL,
)
# A row of docs/README.md: a page and what it is for, or what one wants and the page for it.
_ROW = re.compile(r"^\| (?P<one>[^|]*) \| (?P<other>[^|]*) \|$", re.MULTILINE)
_FILE_AS_TEXT = re.compile(r"\[[\w./-]+\.md\]\((?P<name>[^)\s#:]+\.md)(?P<anchor>#[^)\s]*)?\)")
_TARGET = re.compile(r"\]\(([^)\s#]+)\)")
_HEADING = re.compile(r"^# +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the navigation. `source` is its file in the clone; "" if its page is made from its list."""

    place: str
    source: str
    title: str = ""
    text: str = ""
    below: tuple[Entry, ...] = ()

    def walk(self) -> Iterator[Entry]:
        """The entry and all below it, in the order of reading."""
        yield self
        for entry in self.below:
            yield from entry.walk()


@dataclass(slots=True)
class Site:
    """What the site has: the navigation, and the files that its pages link to."""

    root: Path
    navigation: tuple[Entry, ...]
    # Where each file of the clone stands in the site. Files that are linked to are added as they are met.
    places: dict[str, str] = field(default_factory=dict)
    # What the page of each file is called.
    titles: dict[str, str] = field(default_factory=dict)

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order of reading."""
        for entry in self.navigation:
            yield from entry.walk()


def read_navigation(root: Path = ROOT, text: str | None = None) -> Site:
    """The site as navigation.toml orders it."""
    table = tomllib.loads(NAVIGATION.read_text(encoding="utf-8") if text is None else text)
    elsewhere: dict[str, str] = table["elsewhere"]
    navigation = tuple(entry for row in table["navigation"] for entry in _entries(root, row, elsewhere))
    home = navigation[0]
    navigation = (Entry("index.md", home.source, home.title), *navigation[1:])
    site = Site(root, navigation)
    site.places = {entry.source or entry.place: entry.place for entry in site.entries()}
    # On a code host the first page is the README of the clone.
    site.places["README.md"] = "index.md"
    return site


def _entries(root: Path, row: str | Mapping[str, Any], elsewhere: Mapping[str, str]) -> Iterator[Entry]:
    fields: Mapping[str, Any] = {"page": row} if isinstance(row, str) else row
    name = fields.get("page", "")
    if "*" in name:
        for path in sorted((root / "docs").glob(f"{name}.md")):
            yield from _entries(root, path.relative_to(root / "docs").as_posix(), elsewhere)
        return
    yield Entry(
        place=_place(name) if name else fields["at"],
        source=elsewhere.get(name, f"docs/{name}") if name else "",
        title=fields.get("title", ""),
        text=fields.get("text", ""),
        below=tuple(entry for below in fields.get("pages", ()) for entry in _entries(root, below, elsewhere)),
    )


def _place(name: str) -> str:
    """Where a file of docs/ stands: the README of a folder is its index, and that of docs/ lists all pages."""
    if name == "README.md":
        return "pages.md"
    folder, file = posixpath.split(name)
    if file != "README.md":
        return name
    return f"{folder}/files.md" if folder == "other-systems" else f"{folder}/index.md"


def missing_pages(site: Site) -> list[str]:
    """The pages of docs/ that stand nowhere in the navigation."""
    there = {path.relative_to(site.root).as_posix() for path in (site.root / "docs").rglob("*.md")}
    return sorted(there - {entry.source for entry in site.entries()})


def doubled_pages(site: Site) -> list[str]:
    """The pages that stand in the navigation more than once, or at the place of another."""
    found = [name for entry in site.entries() for name in {entry.source, entry.place} - {""}]
    return sorted({name for name in found if found.count(name) > 1})


def absent_files(site: Site) -> list[str]:
    """The files of the navigation that there are not."""
    return sorted(entry.source for entry in site.entries() if entry.source and not (site.root / entry.source).is_file())


def relink(site: Site, source: str, text: str, place: str = "") -> str:
    """The text of `source` with every link to a file of the clone as it leads from page to page of the site.

    `place` is where the text stands, if that is not the page of `source`.
    """
    place = place or site.places[source]
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_relink_prose(site, source, place, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _relink_prose(site, source, place, text[end:])])


def _relink_prose(site: Site, source: str, place: str, text: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        link = found["link"] or found["image"]
        # A link that leads out of the clone, or to a heading of its own page, stays.
        if not link or re.match(r"[a-z]+:|#", link):
            return found[0]
        name, mark, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
        return _relative(place, place_of(site, target)) + mark + anchor

    return _CODE_OR_TARGET.sub(replaced, text)


def link_between(site: Site, source: str, target: str) -> str:
    """The link from the page of one file or folder to that of another."""
    return _relative(site.places[source], place_of(site, target))


def _relative(place: str, other: str) -> str:
    return posixpath.relpath(other, posixpath.dirname(place) or ".")


def place_of(site: Site, target: str) -> str:
    """Where a file or folder of the clone stands in the site; it gets a place when it is first linked to."""
    if (site.root / target / "README.md").is_file():
        return place_of(site, f"{target}/README.md")
    if target not in site.places:
        site.places[target] = _place_of_file(site.root / target, target)
    return site.places[target]


def _place_of_file(path: Path, target: str) -> str:
    if target.startswith("docs/") and path.suffix != ".md":
        return target.removeprefix("docs/")  # a picture
    # The generator leaves out what begins with a dot.
    target = "/".join(part.removeprefix(".") for part in target.split("/"))
    if path.is_dir():
        return f"files/{target}/index.md"
    if path.suffix == ".md":
        return f"files/{target}".replace("README.md", "index.md")
    return f"files/{target}.md"


def written_text(site: Site, place: str) -> str | None:
    """The text of the clone that a page is made of; None if it was not written by a person."""
    sources = {entry.place: entry.source for entry in site.entries() if entry.source}
    source = sources.get(place, place.removeprefix("files/").replace("index.md", "README.md"))
    path = site.root / source
    return name_pages(site, source, path.read_text(encoding="utf-8")) if path.is_file() else None


def descriptions(site: Site) -> dict[str, str]:
    """What docs/README.md says about each page, by its file."""
    found: dict[str, str] = {}
    for row in _ROW.finditer((site.root / "docs/README.md").read_text(encoding="utf-8")):
        for pages, text in ((row["one"], row["other"]), (row["other"], row["one"])):
            for target in _TARGET.findall(pages):
                found.setdefault(posixpath.normpath(posixpath.join("docs", target)), text)
    return found


def title_of(site: Site, entry: Entry) -> str:
    """What an entry is called in the navigation."""
    return entry.title or heading((site.root / entry.source).read_text(encoding="utf-8"))


def name_pages(site: Site, source: str, text: str) -> str:
    """The text with the title of a page where a link has the name of its file: a reader of the site sees no files."""
    if not site.titles:
        site.titles = {entry.source: title_of(site, entry) for entry in site.entries() if entry.source}
    titles = site.titles

    def named(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found["name"]))
        return f"[{titles[target]}]({found['name']}{found['anchor'] or ''})" if target in titles else found[0]

    return _FILE_AS_TEXT.sub(named, text)


def heading(text: str) -> str:
    """The title of a page."""
    found = _HEADING.search(text)
    return found[1] if found else ""


def fences(text: str) -> Iterable[re.Match[str]]:
    """The fenced blocks of a page: language, words after it, text."""
    return _FENCE.finditer(text)
