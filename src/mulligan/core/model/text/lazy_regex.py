"""Regular expressions that are compiled at their first use, since one file needs only a few of them."""

from __future__ import annotations

import re
from typing import Any, cast


class _Pattern:
    """A stand-in that compiles the expression at the first access and passes on its methods."""

    def __init__(self, text: str, flags: int) -> None:
        self.pattern = text
        self.flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self.pattern, self.flags), name)
        # Cached: the next access does not come here.
        self.__dict__[name] = found
        return found


def lazy_regex(text: str, flags: int = 0) -> re.Pattern[str]:
    """A regular expression that is compiled, and its errors found, at its first use."""
    return cast("re.Pattern[str]", _Pattern(text, flags))
