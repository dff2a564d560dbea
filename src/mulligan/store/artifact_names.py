"""What an artifact is called where its name is taken: nothing that was kept is ever written over."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count


def names_like(name: str) -> Iterator[str]:
    """The name itself, then others beside it: `output.json`, `output-2.json`, …"""
    yield name
    stem, dot, ending = name.rpartition(".")
    for number in count(2):
        yield f"{stem}-{number}{dot}{ending}"
