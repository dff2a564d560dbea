"""Our own pages for users, and a search in them: for programs that cannot open a browser.

An installed package has them in one file; a checkout has the folder `docs`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from mulligan.errors import NotFound
from mulligan.language.text.suggestions import did_you_mean

PACKAGE = Path(__file__).parents[2]
# Written into the wheel by tools/packaging/build_backend.py.
PAGES_FILE = PACKAGE / "pages.json"
CHECKOUT = PACKAGE.parent.parent / "docs"
# Decisions and measurements are for those who work on the code.
LEFT_OUT = ("project/",)
# How much of a section a search shows, and of a page one answer.
EXCERPT_CHARS, PAGE_CHARS = 500, 12_000
_HEADING = re.compile(r"^(#{1,4}) +(.+?) *#*$")
_FENCE = re.compile(r"^(```|~~~)")
_WORD = re.compile(r"[a-z0-9_]+(?:[-.][a-z0-9_]+)*")
# Pages that are not about a thing of ours: lists of pages, and other systems.
_BESIDE = re.compile(r"(.*/)?README\.md|other-systems/.*")
# How much more a word counts in the title of a page and in a heading than in the text below.
_TITLE, _HEAD = 6, 8


class UnknownPage(NotFound):
    """There is no page of this name."""

    code = "page.unknown"


class FoundSection(msgspec.Struct, frozen=True):
    """A section that a search found."""

    page: str
    title: str
    section: str
    excerpt: str


class PageText(msgspec.Struct, frozen=True):
    """A page, or one section of it, as Markdown."""

    page: str
    title: str
    text: str
    # Its sections, in their order.
    sections: list[str]
    # Where to read on, by character; None at the end.
    next: int | None


class _Section(msgspec.Struct, frozen=True):
    page: str
    title: str
    heading: str
    text: str


class Documentation:
    """The pages by name, such as `concepts/ladder.md`."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.pages = pages

    @cached_property
    def _sections(self) -> list[tuple[_Section, Counter[str]]]:
        return [(one, _weighed(one)) for page, text in self.pages.items() for one in _split(page, text)]

    @cached_property
    def _rarity(self) -> Mapping[str, float]:
        """How much a word says: one that stands everywhere says little."""
        seen = Counter(word for _, words in self._sections for word in words)
        return {word: math.log(1 + len(self._sections) / count) for word, count in seen.items()}

    def search(self, query: str, limit: int = 8) -> list[FoundSection]:
        """The sections that have the words of a query, the best first; those that begin a word count less."""
        wanted = dict.fromkeys(_words(query))
        if not wanted:
            return []
        scored = ((self._score(words, wanted) * _worth(one.page), one) for one, words in self._sections)
        best = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: -pair[0])[:limit]
        return [FoundSection(one.page, one.title, one.heading, _excerpt(one.text, wanted)) for _, one in best]

    def _score(self, words: Counter[str], wanted: Mapping[str, None]) -> float:
        score, hits = 0.0, 0
        size = sum(words.values())
        for word in wanted:
            count: float = words[word]
            rarity = self._rarity.get(word, 0.0)
            if not count and len(word) > 3:
                # `retries` finds `retry` and `retrying`.
                stem = word[: max(4, len(word) - 2)]
                near = [other for other in words if other.startswith(stem)]
                count = sum(words[other] for other in near) / 2
                rarity = max((self._rarity[other] for other in near), default=0.0)
            if count:
                hits += 1
                # A long section has every word more often.
                score += rarity * count / (count + 0.5 + size / 200)
        # One section that has all the words is better than one that has a single word often.
        return score * hits / len(wanted)

    def read(self, page: str, section: str = "", start: int = 0) -> PageText:
        """A page, or a section with what belongs to it, from a character on. `UnknownPage`."""
        name = self._name(page)
        text = self.pages[name]
        parts = [*_split(name, text)]
        title = parts[0].title if parts else name
        headings = [one.heading for one in parts if one.heading]
        if section:
            text = _below(text, section)
            if not text:
                hint = did_you_mean(section, headings) or f"it has: {'; '.join(headings[:20])}"
                raise UnknownPage(f"'{name}' has no section '{section[:100]}'", hint=hint, page=name)
        end = start + PAGE_CHARS
        return PageText(name, title, text[start:end], headings, end if end < len(text) else None)

    def _name(self, page: str) -> str:
        wanted = page.strip().removeprefix("docs/").partition("#")[0]
        found = [name for name in self.pages if name in (wanted, f"{wanted}.md")]
        found = found or [name for name in self.pages if name.removesuffix(".md").endswith(f"/{wanted}")]
        found = found or [name for name in self.pages if name.endswith(f"/{wanted}")]
        if not found:
            hint = did_you_mean(wanted, self.pages) or "search for a word: docs with a query"
            raise UnknownPage(f"there is no page '{page[:100]}'", hint=hint, page=page[:100])
        return found[0]


def open_documentation() -> Documentation:
    """The pages that this installation has; none if it has none."""
    if PAGES_FILE.is_file():
        return Documentation(msgspec.json.decode(PAGES_FILE.read_bytes(), type=dict[str, str]))
    return Documentation(read_pages(CHECKOUT))


def read_pages(folder: Path) -> dict[str, str]:
    """The pages of a checkout for users, by name."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    kept = (name for name in names if not name.startswith(LEFT_OUT))
    return {name: (folder / name).read_text(encoding="utf-8") for name in kept}


def _split(page: str, text: str) -> Iterator[_Section]:
    """The sections of a page: a heading, and the text down to the next one. The first one has the title."""
    title, heading, lines, is_code = page, "", list[str](), False
    for line in text.splitlines():
        is_code ^= bool(_FENCE.match(line))
        found = None if is_code else _HEADING.match(line)
        if found is None:
            lines.append(line)
            continue
        if "\n".join(lines).strip():
            yield _Section(page, title, heading, "\n".join(lines).strip())
        lines = []
        if found[1] == "#":
            title, heading = found[2], ""
        else:
            heading = found[2]
    if "\n".join(lines).strip():
        yield _Section(page, title, heading, "\n".join(lines).strip())


def _below(text: str, section: str) -> str:
    """A section with the smaller ones in it; "" if there is none of that name."""
    lines, level, is_code = list[str](), 0, False
    for line in text.splitlines():
        is_code ^= bool(_FENCE.match(line))
        found = None if is_code else _HEADING.match(line)
        if found is not None:
            if level and len(found[1]) <= level:
                break
            if not level and found[2].casefold() == section.strip().casefold():
                level = len(found[1])
        if level:
            lines.append(line)
    return "\n".join(lines)


def _weighed(section: _Section) -> Counter[str]:
    words = Counter(_words(section.text))
    for weight, text in ((_TITLE, section.title), (_HEAD, section.heading), (1, section.page)):
        words.update({word: weight * count for word, count in Counter(_words(text)).items()})
    return words


def _worth(page: str) -> float:
    return 0.6 if _BESIDE.fullmatch(page) else 1.0


def _words(text: str) -> list[str]:
    """The words of a text; `on_failure` is also `on` and `failure`."""
    found = _WORD.findall(text.lower())
    return [*found, *(part for word in found if re.search(r"[-._]", word) for part in re.split(r"[-._]", word) if part)]


def _excerpt(text: str, wanted: Mapping[str, None]) -> str:
    """The part of a section around its first line with one of the words."""
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if set(_words(line)) & wanted.keys()), 0)
    start = max(0, first - 1)
    return "\n".join(lines[start:])[:EXCERPT_CHARS]
