"""Alternative names for artifacts: a stored artifact is never overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count


def names_like(name: str) -> Iterator[str]:
    """The name itself, then numbered ones: `output.json`, `output-2.json` and so on."""
    yield name
    stem, dot, ending = name.rpartition(".")
    for number in count(2):
        yield f"{stem}-{number}{dot}{ending}"
