"""A JSON value as a tree that opens and closes. What a step said is text, always; a large value is cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from mulligan.service.rendering.descriptions import describe_artifact
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html

# How many entries of one list or object, how many lines of the whole tree, and how many characters of a text are shown.
ENTRIES_MAX, LINES_MAX, CHARS_MAX = 200, 1_500, 20_000
# A value that is this short when it is written stands in one line.
_SHORT = 72
_DEPTH_MAX = 40


def value_tree(value: Any, *, name: str = "", is_open: bool = True) -> Html:
    """The value, with its parts below it. `name` makes ids, by which a page that is rendered again finds them."""
    return _node(value, f"tree-{name}" if name else "", [LINES_MAX], is_open=is_open, depth=0)


def _node(value: Any, name: str, left: list[int], *, is_open: bool, depth: int) -> Html:
    left[0] -= 1
    if said := describe_artifact(value):
        return ui.muted(said)
    if not isinstance(value, dict | list) or not value:
        return _leaf(value)
    if (short := _in_one_line(value)) is not None:
        return element("code", short, class_="tree-short")
    if left[0] <= 0 or depth > _DEPTH_MAX:
        return ui.muted(f"{_size(value)}, not shown")
    pairs: Iterable[tuple[object, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    lines = join_html(_lines(pairs, name, left, depth))
    more = len(value) - ENTRIES_MAX
    rest = element("li", f"and {more:,} more", class_="muted") if more > 0 else ""
    return element(
        "details",
        element("summary", _size(value), class_="muted"),
        element("ul", lines, rest, class_="tree"),
        open=is_open or depth == 0,
        id=name or None,
    )


def _lines(pairs: Iterable[tuple[object, Any]], name: str, left: list[int], depth: int) -> Iterator[Html]:
    for number, (key, one) in enumerate(pairs):
        if number >= ENTRIES_MAX or left[0] <= 0:
            return
        inside = _node(one, f"{name}-{number}" if name else "", left, is_open=depth < 1, depth=depth + 1)
        yield element("li", element("span", key, class_="tree-key"), inside)


def _leaf(value: Any) -> Html:
    if isinstance(value, str):
        shown = value if len(value) <= CHARS_MAX else f"{value[:CHARS_MAX]}… ({len(value):,} characters)"
        return ui.text_block(shown) if "\n" in value or len(value) > 400 else element("code", shown, class_="text")
    return element("code", json.dumps(value, ensure_ascii=False), class_="plain")


def _in_one_line(value: Any) -> str | None:
    """The value as text, if it has a few plain parts."""
    if len(value) > 8:
        return None
    parts = value.values() if isinstance(value, dict) else value
    if any(isinstance(one, dict | list) and one for one in parts):
        return None
    if any(isinstance(one, str) and ("\n" in one or len(one) > _SHORT) for one in parts):
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHORT else None


def _size(value: Any) -> str:
    count, what = len(value), "entry" if isinstance(value, dict) else "item"
    plural = {"entry": "entries", "item": "items"}[what]
    return f"{count:,} {what if count == 1 else plural}"
