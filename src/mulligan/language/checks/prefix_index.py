"""An index of names by prefix, so that thousands of patterns need not be tried on each of thousands of names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property

from mulligan.core.model.text.lazy_regex import lazy_regex

# The literal letters at the start of a pattern, without a last one that a quantifier makes optional or repeats.
_PLAIN = lazy_regex(r"[A-Za-z0-9_-]+(?![A-Za-z0-9_?*+{-])")
_LAST = "\U0010ffff"


def literal_prefix(expression: str) -> str:
    """The literal prefix of everything that the pattern matches; empty if there is none."""
    match = _PLAIN.match(expression) if "|" not in expression else None
    return match.group() if match else ""


class PrefixIndex:
    """Names that keep their order and can be looked up by prefix."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.names)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def names_with_prefix(self, prefix: str) -> list[str]:
        """The names that begin with the prefix, in their original order."""
        if not prefix:
            return self.names
        first, last = (bisect_left(self._sorted, prefix + end) for end in ("", _LAST))
        return sorted(self._sorted[first:last], key=self._positions.__getitem__)
