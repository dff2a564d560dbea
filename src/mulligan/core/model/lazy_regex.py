"""Regular expressions that are compiled when somebody first asks them: a file needs few of those that we have."""

from __future__ import annotations

import re
from typing import Any, cast


class _Pattern:
    """Stands for a compiled one, and hands out that one's methods from the first use on."""

    def __init__(self, text: str, flags: int) -> None:
        self.pattern = text
        self.flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self.pattern, self.flags), name)
        # The next time it is there, and nobody asks us.
        self.__dict__[name] = found
        return found


def lazy_regex(text: str, flags: int = 0) -> re.Pattern[str]:
    """A regular expression, compiled (and found wrong, if it is) at its first use."""
    return cast("re.Pattern[str]", _Pattern(text, flags))
