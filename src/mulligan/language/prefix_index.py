"""Names by how they begin: thousands of expressions over thousands of names need not ask each name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property

from mulligan.core.model.lazy_regex import lazy_regex

# Letters that every match begins with. What a quantifier follows may be missing, or be there twice.
_PLAIN = lazy_regex(r"[A-Za-z0-9_-]+(?![A-Za-z0-9_?*+{-])")
_LAST = "\U0010ffff"


def plain_beginning(expression: str) -> str:
    """What all begins with that an expression matches from its start on; empty where that is not plain."""
    found = _PLAIN.match(expression) if "|" not in expression else None
    return found.group() if found else ""


class Beginnings:
    """Names in their order, found by how they begin."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.names)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def starting(self, beginning: str) -> list[str]:
        """Those that begin so, in their order."""
        if not beginning:
            return self.names
        first, last = (bisect_left(self._sorted, beginning + end) for end in ("", _LAST))
        return sorted(self._sorted[first:last], key=self._places.__getitem__)
