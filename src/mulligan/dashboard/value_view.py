"""A JSON value for people: as a tree, and a list of objects also as a table. Of large values the beginning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mulligan.dashboard.shell import table
from mulligan.service import Html, describe_artifact, element, join_html
from mulligan.service.formatting import pluralize

# How much is shown: parts of a tree, entries of one list or object, rows and columns of a table, characters of a text.
PARTS_MAX, ENTRIES_MAX, ROWS_MAX, COLUMNS_MAX = 500, 100, 200, 16
TEXT_CHARS_MAX, CELL_CHARS_MAX, LONG_TEXT_CHARS_MAX = 500, 120, 20_000
# Levels of a tree that are open at first.
_OPEN_LEVELS = 2


def value_view(value: Any, *, name: str, raw: str) -> Html:
    """A value with a link to all of it. `name`: a word for ids, different for each value of a page."""
    whole = element("p", element("a", "JSON", href=raw, download=f"{name}.json"), class_="note")
    if isinstance(value, str):
        return join_html([_long_text(value), whole])
    if isinstance(value, dict | list) and value and not describe_artifact(value):
        tree = element("div", _Tree().render(value), class_="tree")
        if not isinstance(value, list) or not _is_table(value):
            return join_html([tree, whole])
        return join_html([_choice(name, {"Table": _rows(value, name), "Tree": tree}), whole])
    return join_html([element("p", _scalar(value)), whole])


def _long_text(text: str) -> Html:
    shown = element("pre", text[:LONG_TEXT_CHARS_MAX] or " ", tabindex="0")
    left = len(text) - LONG_TEXT_CHARS_MAX
    return join_html([shown, element("p", f"and {left:,} more characters", class_="note")]) if left > 0 else shown


def _choice(name: str, views: dict[str, Html]) -> Html:
    """Several views, of which one is shown. Which one is the state of a radio button, so that no script is needed."""
    parts: list[Html] = []
    for index, title in enumerate(views):
        parts.append(element("input", type="radio", name=f"{name}-view", id=f"{name}-view-{index}", checked=index == 0))
        parts.append(element("label", title, for_=f"{name}-view-{index}"))
    parts += [element("div", view, class_="view") for view in views.values()]
    return element("div", *parts, class_="views")


def _is_table(value: list[Any]) -> bool:
    """Whether it is a list of objects with something in common."""
    if not all(isinstance(one, dict) and one for one in value[:ROWS_MAX]):
        return False
    columns = _columns(value[:ROWS_MAX])
    return len(columns) <= COLUMNS_MAX or any(all(name in one for one in value[:ROWS_MAX]) for name in columns)


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _rows(value: list[dict[str, Any]], name: str) -> Html:
    shown = value[:ROWS_MAX]
    columns = _columns(shown)[:COLUMNS_MAX]
    rows = [
        element(
            "tr",
            element("td", f"{number:,}", class_="n dim"),
            join_html(_cell(row.get(column, "")) for column in columns),
        )
        for number, row in enumerate(shown)
    ]
    left = len(value) - len(shown)
    note = element("p", f"and {left:,} more rows", class_="note") if left > 0 else ""
    return join_html([table(("", *columns), rows, label=name), note])


def _cell(value: Any) -> Html:
    if isinstance(value, bool | int | float):
        return element("td", json.dumps(value), class_="n")
    text = value if isinstance(value, str) else describe_artifact(value) or json.dumps(value, ensure_ascii=False)
    return element("td", text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…")


class _Tree:
    """Renders a value up to a number of parts."""

    def __init__(self) -> None:
        self._left = PARTS_MAX

    def render(self, value: Any) -> Html:
        return self._children(value, 0)

    def _children(self, value: dict[str, Any] | list[Any], level: int) -> Html:
        entries = list(value.items() if isinstance(value, dict) else enumerate(value))
        shown = entries[: min(ENTRIES_MAX, max(1, self._left))]
        self._left -= len(shown)
        rows = [self._entry(str(key), one, level) for key, one in shown]
        if len(shown) < len(entries):
            rows.append(element("li", f"{len(entries) - len(shown):,} more", class_="dim"))
        return element("ul", join_html(rows))

    def _entry(self, key: str, value: Any, level: int) -> Html:
        name = element("span", key, class_="key")
        if not isinstance(value, dict | list) or not value or describe_artifact(value):
            return element("li", name, " ", _scalar(value))
        kind = pluralize(len(value), "key" if isinstance(value, dict) else "entry").replace("entrys", "entries")
        head = element("summary", name, " ", element("span", kind, class_="dim"))
        if self._left <= 0:
            return element("li", name, " ", element("span", kind, class_="dim"))
        return element("li", element("details", head, self._children(value, level + 1), open=level + 1 < _OPEN_LEVELS))


def _scalar(value: Any) -> Html:
    if said := describe_artifact(value):
        return element("span", said, class_="dim")
    text = json.dumps(value, ensure_ascii=False)
    kind = "text" if isinstance(value, str) else "figure"
    return element("code", text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…", class_=kind)
