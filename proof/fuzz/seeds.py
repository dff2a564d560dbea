"""What to begin with: the examples, the pages and the refusals of this project, read where they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2]
SEED_BYTES_MAX = 6000
_BLOCK = re.compile(r"^```(?:yaml|json5?|kdl)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_REFUSED = re.compile(r"^=== .*?\n(.*?)^---", re.MULTILINE | re.DOTALL)
_WORD = re.compile(rb"[A-Za-z_][\w-]{1,24}")
_HOLE = re.compile(r"\$\{([^{}]+)\}")
_WORDS_MAX = 300


@cache
def workflows() -> tuple[bytes, ...]:
    """Return Mulligan files: the examples, and what the tests refuse."""
    found = [path.read_bytes() for path in sorted((PROJECT / "examples").glob("*.yaml"))]
    texts = [path.read_text() for path in sorted((PROJECT / "tests/language/refusals").glob("*.txt"))]
    return _bounded([*found, *(match[1].encode() for text in texts for match in _REFUSED.finditer(text))])


@cache
def foreign(system: str, *suffixes: str) -> tuple[bytes, ...]:
    """Another system's files, and what our page about it shows."""
    folder = PROJECT / "examples/formats" / system
    paths = sorted(path for path in folder.rglob("*") if path.suffix in suffixes and path.stem != "runs")
    return _bounded([*(path.read_bytes() for path in paths), *_blocks(system)])


def _blocks(system: str) -> Iterator[bytes]:
    page = PROJECT / "docs/other-systems" / f"{system}.md"
    for match in _BLOCK.finditer(page.read_text() if page.exists() else ""):
        yield match[1].encode()


@cache
def expressions() -> tuple[bytes, ...]:
    """What stands in the holes of the examples."""
    return tuple(
        sorted({hole.encode() for text in workflows() for hole in _HOLE.findall(text.decode("utf-8", "replace"))})
    )


def words(seeds: Iterable[bytes]) -> tuple[bytes, ...]:
    """The words that seeds are made of, the most frequent first."""
    counts: dict[bytes, int] = {}
    for seed in seeds:
        for word in _WORD.findall(seed):
            counts[word] = counts.get(word, 0) + 1
    return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:_WORDS_MAX])


def _bounded(found: list[bytes]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(seed for seed in found if len(seed) <= SEED_BYTES_MAX))
