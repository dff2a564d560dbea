"""The names of the items of a map: on one line, of printable characters, and different from each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mulligan.core.model.text.formatting import escape_unprintable, single_line, strip_control_characters

NAME_CHARS_MAX = 48
# Of more items the names are not compared: their places are named by their index.
NAMED_MAX = 1000


def item_word(text: str) -> str:
    """A text as the name of an item."""
    text = escape_unprintable(single_line(strip_control_characters(text))).strip()
    return text if len(text) <= NAME_CHARS_MAX else text[: NAME_CHARS_MAX - 1] + "…"


def with_numbers(names: Sequence[str]) -> list[str]:
    """The same names, where those that occur more than once, or are empty, have their number appended."""
    often = Counter(names)
    return [f"{name} #{index}".strip() if often[name] > 1 or not name else name for index, name in enumerate(names)]
