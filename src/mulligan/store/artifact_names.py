"""Alternative names for artifacts: a stored artifact is never overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count


def names_like(name: str) -> Iterator[str]:
    """The name itself, then numbered ones: `output.json`, `output-2.json` and so on."""
    yield name
    folder, slash, last = name.rpartition("/")
    stem, dot, ending = last.rpartition(".")
    if not stem:
        stem, dot, ending = last, "", ""
    for number in count(2):
        yield f"{folder}{slash}{stem}-{number}{dot}{ending}"
